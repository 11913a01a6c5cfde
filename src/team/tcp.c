/* tcp.c -- TCP sockets: listen, connect and move bytes, each with a deadline or a stop. */
#include "team/tcp.h"

#include "base/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- moving bytes --------------------------------------------------------------------------- */

static int ms_until(uint64_t until_ns)
{
    if (until_ns == 0) return -1;
    uint64_t now = fr__now_ns();
    if (now >= until_ns) return 0;
    uint64_t ms = (until_ns - now) / 1000000 + 1;
    return ms < 1000000 ? (int)ms : 1000000;
}

/* FR__TCP_OK: fd is ready, or has an error that the next call on it returns. Readable data takes
 * precedence over a stop. */
static fr__tcp_result wait_for(int fd, short events, int stop_fd, uint64_t until_ns)
{
    struct pollfd polls[2] = {{.fd = fd, .events = events}, {.fd = stop_fd, .events = POLLIN}};
    for (;;) {
        int n = poll(polls, 2, ms_until(until_ns));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FR__TCP_CLOSED;
        if (polls[1].revents && !(polls[0].revents & POLLIN)) return FR__TCP_STOPPED;
        if (polls[0].revents) return FR__TCP_OK;
        if (until_ns && fr__now_ns() >= until_ns) return FR__TCP_TIMED_OUT;
    }
}

/* One call on the socket: the bytes moved, 0 if it would block, -1 if the connection is closed. */
static ssize_t move_some(int fd, char *data, size_t bytes, bool is_write)
{
    ssize_t n = is_write ? send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                         : recv(fd, data, bytes, MSG_DONTWAIT);
    if (n > 0) return n;
    if (n == 0) return is_write ? 0 : -1;
    return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
}

static fr__tcp_result move(int fd, char *data, size_t bytes, bool is_write, int stop_fd,
                           uint64_t until_ns, size_t *moved)
{
    fr__tcp_result end = FR__TCP_OK;
    size_t done = 0;
    while (done < bytes && end == FR__TCP_OK) {
        end = wait_for(fd, is_write ? POLLOUT : POLLIN, stop_fd, until_ns);
        ssize_t n = end == FR__TCP_OK ? move_some(fd, data + done, bytes - done, is_write) : 0;
        if (n < 0)
            end = FR__TCP_CLOSED;
        else
            done += (size_t)n;
    }
    if (moved) *moved = done;
    return end;
}

fr__tcp_result fr__tcp_write(int fd, const void *data, size_t bytes, int stop_fd, uint64_t until_ns,
                             size_t *moved)
{
    return move(fd, (char *)(uintptr_t)data, bytes, true, stop_fd, until_ns, moved);
}

fr__tcp_result fr__tcp_read(int fd, void *data, size_t bytes, int stop_fd, uint64_t until_ns,
                            size_t *moved)
{
    return move(fd, data, bytes, false, stop_fd, until_ns, moved);
}

bool fr__tcp_is_flushed(int fd)
{
    int left = 0;
    return ioctl(fd, SIOCOUTQ, &left) != 0 || left == 0;
}

/* --- sockets -------------------------------------------------------------------------------- */

void fr__tcp_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void tune(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* One socket for both IPv6 and IPv4 if the machine has IPv6. */
int fr__tcp_listen(int *port)
{
    const int off = 0;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}};
    socklen_t bytes = sizeof a.v6;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (fd < 0 || bind(fd, &a.any, bytes) != 0) {
        fr__tcp_close(&fd);
        memset(&a, 0, sizeof a);
        a.v4.sin_family = AF_INET;
        bytes = sizeof a.v4;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, &a.any, bytes) != 0) goto failed;
    }
    bytes = sizeof a;
    if (listen(fd, SOMAXCONN) != 0 || getsockname(fd, &a.any, &bytes) != 0) goto failed;
    *port = ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
    return fd;
failed:;
    int error = errno;
    fr__tcp_close(&fd);
    errno = error;
    return -1;
}

int fr__tcp_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) tune(fd);
    return fd;
}

/* The socket is nonblocking: connect() may otherwise block for minutes. */
static int connect_until(int fd, const struct addrinfo *to, uint64_t until_ns)
{
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (wait_for(fd, POLLOUT, -1, until_ns) != FR__TCP_OK) return ETIMEDOUT;
    int error = 0;
    socklen_t bytes = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

int fr__tcp_connect(const char *address, int port, uint64_t until_ns)
{
    char service[8];
    snprintf(service, sizeof service, "%d", port & 0xFFFF);
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *to = NULL;
    if (getaddrinfo(address, service, &hints, &to) != 0) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? errno : connect_until(fd, to, until_ns);
    freeaddrinfo(to);
    if (error)
        fr__tcp_close(&fd);
    else
        tune(fd);
    errno = error;
    return fd;
}

/* --- addresses ------------------------------------------------------------------------------ */

bool fr__tcp_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* The order in which to try an address; -1: not usable from another machine (link-local). */
static int place_of(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return -1;
    bool is_here = (i->ifa_flags & IFF_LOOPBACK) != 0;
    if (i->ifa_addr->sa_family == AF_INET) return is_here ? 2 : 0;
    if (i->ifa_addr->sa_family != AF_INET6) return -1;
    struct sockaddr_in6 a;
    memcpy(&a, i->ifa_addr, sizeof a);
    if (IN6_IS_ADDR_LINKLOCAL(&a.sin6_addr)) return -1;
    return is_here ? 3 : 1;
}

int fr__tcp_addresses(fr__address *out, int room)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return 0;
    int n = 0;
    for (int place = 0; place < 4; place++)
        for (const struct ifaddrs *i = all; i && n < room; i = i->ifa_next) {
            if (place_of(i) != place) continue;
            socklen_t bytes = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                : sizeof(struct sockaddr_in6);
            if (getnameinfo(i->ifa_addr, bytes, out[n], FR__ADDRESS_BYTES, NULL, 0,
                            NI_NUMERICHOST) == 0)
                n++;
        }
    freeifaddrs(all);
    return n;
}
