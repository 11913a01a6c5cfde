/* tcp.h -- TCP sockets: nothing waits without an end, no signals, no descriptors for children. */
#ifndef FR_TEAM_TCP_H
#define FR_TEAM_TCP_H

#include <forerun/base.h>

enum { FR__ADDRESS_BYTES = 48 };
typedef char fr__address[FR__ADDRESS_BYTES]; /* "10.0.0.1", "fd00::2" */

typedef enum fr__tcp_result {
    FR__TCP_OK,
    FR__TCP_TIMED_OUT, /* the deadline passed */
    FR__TCP_STOPPED,   /* stop_fd is readable, and nothing is there to read */
    FR__TCP_CLOSED     /* the other end is gone */
} fr__tcp_result;

/* Move all bytes; stop_fd may be -1, until_ns 0 (no deadline). *moved (may be NULL): how many. */
fr__tcp_result fr__tcp_write(int fd, const void *data, size_t bytes, int stop_fd, uint64_t until_ns,
                             size_t *moved);
fr__tcp_result fr__tcp_read(int fd, void *data, size_t bytes, int stop_fd, uint64_t until_ns,
                            size_t *moved);

/* A socket that listens on all interfaces, or -1 with errno; *port is the one that was free. */
int fr__tcp_listen(int *port);
int fr__tcp_accept(int listener); /* -1: nobody */
/* A connected socket, or -1 with errno. */
int fr__tcp_connect(const char *address, int port, uint64_t until_ns);
/* Addresses of this machine by which others may reach it, loopback last; returns how many. */
int fr__tcp_addresses(fr__address *out, int room);
bool fr__tcp_is_loopback(const char *address);
/* Whether the bytes that were sent have all arrived at the other machine. */
bool fr__tcp_is_flushed(int fd);
void fr__tcp_close(int *fd); /* -1 allowed */

#endif
