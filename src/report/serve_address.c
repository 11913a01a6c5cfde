/* serve_address.c -- the address of the live server.
 *
 * The default is loopback. There, the Host of a request must also be a loopback name. Otherwise a
 * foreign web page could let its own name resolve to 127.0.0.1 and read the data (DNS
 * rebinding). */
#include "report/serve.h"

#include "io/number.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* "127.0.0.1:8080", "[::1]:8080", ":8080", "8080" */
static bool split(const char *address, char *host, size_t room, char port[8])
{
    const char *colon = strrchr(address, ':'), *end = colon ? colon : address;
    bool has_brackets = address[0] == '[' && end > address + 1 && end[-1] == ']';
    const char *from = has_brackets ? address + 1 : address;
    size_t n = (size_t)(end - from) - has_brackets;
    int64_t number;
    if (n >= room || (!has_brackets && memchr(from, ':', n))) return false;
    memcpy(host, from, n);
    host[n] = '\0';
    if (!fr__int_scan(colon ? colon + 1 : address, &number) || number < 0 || number > 65535)
        return false;
    snprintf(port, 8, "%d", (int)number);
    return true;
}

static bool is_loopback4(struct in_addr a) { return ntohl(a.s_addr) >> 24 == 127; }

bool fr__address_is_local_host(const char *host)
{
    char name[64];
    struct in_addr four;
    struct in6_addr six;
    bool has_brackets = host[0] == '[';
    size_t n = strcspn(host + has_brackets, has_brackets ? "]" : ":");
    if (n >= sizeof name) return false;
    memcpy(name, host + has_brackets, n);
    name[n] = '\0';
    if (has_brackets) return inet_pton(AF_INET6, name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
    return strcasecmp(name, "localhost") == 0 ||
           (inet_pton(AF_INET, name, &four) == 1 && is_loopback4(four));
}

/* The URL for a browser. A wildcard address is replaced by the host name. */
static void make_url(fr_server *s, const struct sockaddr_storage *at, socklen_t n)
{
    char host[256] = "", port[8] = "";
    const struct sockaddr *a = (const struct sockaddr *)at;
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)at;
    bool is_six = a->sa_family == AF_INET6;
    bool is_any = is_six ? IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr)
                         : four->sin_addr.s_addr == htonl(INADDR_ANY);
    (void)getnameinfo(a, n, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    if (is_any && gethostname(host, sizeof host) == 0) {
        host[sizeof host - 1] = '\0';
        is_six = false;
    }
    snprintf(s->url, sizeof s->url, "http://%s%s%s:%s/", is_six ? "[" : "", host, is_six ? "]" : "",
             port);
    s->is_loopback = a->sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)
                                              : is_loopback4(four->sin_addr);
}

static fr_status fail_to_listen(fr_ctx *ctx, const char *address, int code)
{
    const char *what =
        code == EADDRINUSE
            ? "; the port is in use (another run?): choose another port, or 0 for any free port"
        : code == EACCES        ? "; ports below 1024 are reserved for the system"
        : code == EADDRNOTAVAIL ? "; this machine does not have that address"
                                : "";
    return fr_fail(ctx, FR_INVALID, "cannot serve at %s: %s%s", address, strerror(code), what);
}

/* Returns 0 or an error code. */
static int listen_at(fr_server *s, const struct addrinfo *a)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    int on = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 32) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &n) == 0) {
        s->listen_fd = fd;
        make_url(s, &at, n);
        return 0;
    }
    int code = errno;
    close(fd);
    return code;
}

fr_status fr__address_listen(fr_ctx *ctx, const char *address, fr_server *s)
{
    char host[256], port[8];
    struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    if (!split(address, host, sizeof host, port))
        return fr_fail(ctx, FR_INVALID,
                       "cannot serve at '%s': expected HOST:PORT, [IPv6]:PORT or PORT, for example "
                       "127.0.0.1:8080",
                       address);
    int code = getaddrinfo(host[0] ? host : "127.0.0.1", port, &want, &list);
    if (code != 0)
        return fr_fail(ctx, FR_INVALID, "cannot serve at %s: %s: %s", address, host,
                       gai_strerror(code));
    code = listen_at(s, list); /* the first address of a name is the preferred one */
    freeaddrinfo(list);
    if (code != 0) return fail_to_listen(ctx, address, code);
    if (!s->is_loopback)
        fr_log(ctx, FR_LOG_WARN,
               "%s can be read by everybody who can reach this machine; use 127.0.0.1 for this "
               "machine alone",
               s->url);
    return FR_OK;
}
