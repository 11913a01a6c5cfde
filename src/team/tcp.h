/* tcp.h -- TCP sockets: every wait has a deadline or can be stopped, no SIGPIPE, descriptors close
 * on exec. */
#ifndef FR_TEAM_TCP_H
#define FR_TEAM_TCP_H

#include <forerun/base.h>

enum { FR__ADDRESS_BYTES = 48 };
typedef char fr__address[FR__ADDRESS_BYTES]; /* "10.0.0.1", "fd00::2" */

typedef enum fr__tcp_result {
    FR__TCP_OK,
    FR__TCP_TIMED_OUT, /* the deadline passed */
    FR__TCP_STOPPED,   /* stop_fd is readable, and the socket is not */
    FR__TCP_CLOSED     /* by the peer, or an error */
} fr__tcp_result;

/* Move all bytes; stop_fd -1: no stop, until_ns 0: no deadline. *moved (may be NULL): the bytes
 * moved. */
fr__tcp_result fr__tcp_write(int fd, const void *data, size_t bytes, int stop_fd, uint64_t until_ns,
                             size_t *moved);
fr__tcp_result fr__tcp_read(int fd, void *data, size_t bytes, int stop_fd, uint64_t until_ns,
                            size_t *moved);

/* A socket that listens on all interfaces at a free port, or -1 with errno. */
int fr__tcp_listen(int *port);
int fr__tcp_accept(int listener); /* -1: none is waiting */
/* A connected socket, or -1 with errno. */
int fr__tcp_connect(const char *address, int port, uint64_t until_ns);
/* Addresses of this machine that others may reach, loopback last; returns their number. */
int fr__tcp_addresses(fr__address *out, int room);
bool fr__tcp_is_loopback(const char *address);
/* Whether the peer's machine has acknowledged all bytes sent. */
bool fr__tcp_is_flushed(int fd);
void fr__tcp_close(int *fd); /* -1 allowed */

#endif
