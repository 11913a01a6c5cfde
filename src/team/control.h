/* control.h -- the state of a team: a star of connections to rank 0, three sockets per peer.
 *
 * FR__CONTROL carries frames (messages, heartbeats, losses, leaving) and is read by the control
 * thread, which sleeps in poll(). Any thread sends a frame by appending it to the peer's queue,
 * under the lock, and writing what the socket accepts. FR__STREAM and FR__COLLECTIVE carry plain
 * bytes and are used by the thread that calls send, recv, agree, same or share. A loss wakes
 * blocked threads through broken_fd, which becomes readable and stays so. */
#ifndef FR_TEAM_CONTROL_H
#define FR_TEAM_CONTROL_H

#include "team/bootstrap.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { FR__MAX_MESSAGE = 64 << 20, FR__MAX_TEXT = 2048 };

enum fr__frame_type {
    FR__FRAME_HEARTBEAT, /* empty */
    FR__FRAME_MESSAGE,   /* of fr_team_notify */
    FR__FRAME_INTERVAL,  /* u32: milliseconds between heartbeats that the sender requests */
    FR__FRAME_LOST,      /* u32 rank, text: that rank is lost */
    FR__FRAME_FAIL,      /* text: the sender failed */
    FR__FRAME_LEAVE,     /* the sender is done; closing its connection is not a loss */
    FR__N_FRAME_TYPES
};

typedef struct fr__frame { /* followed by `bytes` bytes */
    uint32_t bytes, type;
} fr__frame;

/* A queue of bytes: those from `done` to `n` are pending. */
typedef struct fr__bytes {
    char *at;
    size_t n, room, done;
} fr__bytes;

/* Sockets between rank 0 and another rank. */
enum fr__socket { FR__CONTROL, FR__STREAM, FR__COLLECTIVE, FR__N_SOCKETS };

typedef struct fr__peer {
    int rank;              /* of the peer */
    int fd[FR__N_SOCKETS]; /* -1: not connected */
    /* Guarded by the team's lock. */
    fr__bytes out;
    bool is_write_closed; /* writing failed */
    bool has_left;        /* sent LEAVE; set by the control thread */
    /* Set once. */
    atomic_bool is_lost;        /* no frame is sent to it or read from it */
    atomic_bool is_read_closed; /* end of file or error */
    /* Used by the control thread only. */
    fr__bytes in;
    uint64_t silent_ns;
    uint64_t requested_ns; /* interval of heartbeats that the peer requests; 0: none yet */
} fr__peer;

typedef struct fr__name {
    char text[112];
    char host[64];
    uint64_t cores; /* fr__cpus_id */
} fr__name;

struct fr_team {
    fr_ctx *ctx;
    int rank, size, n_peers;
    fr__peer *peers; /* [n_peers]: on rank 0 all other ranks, elsewhere rank 0 */
    fr__name *names; /* [size] */
    fr__bootstrap bootstrap;

    pthread_mutex_t lock; /* guards the members below, and those of peers that say so */
    pthread_cond_t changed;
    uint64_t timeout_ns;
    fr_team_callbacks callbacks;
    bool has_callbacks, is_loss_reported;
    bool is_in_callback; /* the control thread runs a callback */
    int lost_rank;
    char text[FR__MAX_TEXT]; /* which rank was lost and why; written once, before is_broken */
    atomic_bool is_broken, is_ending;
    atomic_bool has_failed; /* fr_team_fail was called here */

    int wake_fd;   /* wakes the control thread */
    int broken_fd; /* readable from the first loss on */
    pthread_t thread;
    bool has_thread;
    fr__bytes inbox;      /* of the control thread: each a fr__message and its bytes */
    struct pollfd *polls; /* of the control thread: [1 + n_peers] */
};

typedef struct fr__message {
    uint64_t bytes, from;
} fr__message;

/* join.c: connects the sockets of all peers and exchanges the names of all ranks. */
fr_status fr__team_connect(fr_team *t);
/* This rank cannot join: complete its part of the bootstrap, so that no other rank blocks in it. */
void fr__team_refuse(const fr__bootstrap *b, int rank, const char *problem);

/* control.c */
fr_status fr__control_start(fr_team *t);
void fr__control_stop(fr_team *t); /* joins the thread; sockets stay open */
fr__peer *fr__peer_of(fr_team *t, int rank);
void fr__control_wake(fr_team *t);
/* Queue a frame (a, then b) and write what the socket accepts; with the lock held. The frame is
 * dropped if the peer is lost. False: no memory. */
bool fr__peer_send(fr__peer *peer, enum fr__frame_type type, const void *a, size_t n_a,
                   const void *b, size_t n_b);
/* Record the loss of a rank, if it is the first, and send it to the ranks that cannot detect it.
 * Without the lock; any thread. */
void fr__team_lose(fr_team *t, int rank, const char *format, ...) FR_PRINTF(3, 4);
/* The same with the lock held, and without sending it. */
void fr__team_break(fr_team *t, int rank, const char *text);
/* Wait until the peers have acknowledged all frames, at most `seconds`. */
void fr__control_flush(fr_team *t, double seconds);
/* The interval of heartbeats, and of checks for them, that suits a timeout. */
uint64_t fr__heartbeat_ns(uint64_t timeout_ns);

bool fr__bytes_reserve(fr__bytes *b, size_t more);
void fr__bytes_fini(fr__bytes *b);

#endif
