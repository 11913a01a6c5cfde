/* control.h -- what a team is made of: a star of lines to rank 0, three sockets each.
 *
 * `talk` carries frames (messages, beats, partings) and belongs to the lines' thread, which sleeps
 * in poll(); whoever sends a frame puts it into the line's queue under the lock and pushes what the
 * socket takes. `bulk` and `accord` carry bare bytes and belong to whoever calls put, take or
 * agree. A loss is made known to all who wait by a descriptor that becomes readable and stays so.
 */
#ifndef FR_TEAM_CONTROL_H
#define FR_TEAM_CONTROL_H

#include "team/bootstrap.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { FR__MAX_MESSAGE = 64 << 20, FR__MAX_TEXT = 2048 };

enum fr__frame_type {
    FR__FRAME_HEARTBEAT, /* nothing but a sign of life */
    FR__FRAME_MESSAGE,   /* a message of the user */
    FR__FRAME_INTERVAL,  /* u32: milliseconds after which the sender wants a sign of life */
    FR__FRAME_LOST,      /* u32 rank, text: it is lost */
    FR__FRAME_FAIL,      /* text: the sender gives up */
    FR__FRAME_LEAVE,     /* the sender is done; the end of its line is no loss */
    FR__N_FRAME_TYPES
};

typedef struct fr__frame { /* then `bytes` bytes */
    uint32_t bytes, type;
} fr__frame;

/* Bytes from `done` to `n` are still to be dealt with. */
typedef struct fr__bytes {
    char *at;
    size_t n, room, done;
} fr__bytes;

/* Sockets between rank 0 and another rank. */
enum fr__socket { FR__CONTROL, FR__STREAM, FR__COLLECTIVE, FR__N_SOCKETS };

typedef struct fr__peer {
    int rank;              /* at the other end */
    int fd[FR__N_SOCKETS]; /* -1: not connected */
    /* Guarded by the team's lock. */
    fr__bytes out;
    bool is_write_closed; /* the socket takes nothing any more */
    bool has_left;        /* it said goodbye; set by the thread */
    /* Set once. */
    atomic_bool is_lost;        /* nothing is said to it, nothing heard from it */
    atomic_bool is_read_closed; /* the socket gives nothing any more */
    /* Of the lines' thread. */
    fr__bytes in;
    uint64_t silent_ns,
        requested_ns; /* how often the other end wants a sign of life; 0: not said */
} fr__peer;

typedef struct fr__name {
    char text[112];
    char host[64];
    uint64_t cores; /* fr__cpus_id */
} fr__name;

struct fr_team {
    fr_ctx *ctx;
    int rank, size, n_peers;
    fr__peer *peers; /* [n_lines]: rank 0 has one to each other, the others one to rank 0 */
    fr__name *names; /* [size] */
    fr__bootstrap bootstrap;

    pthread_mutex_t lock; /* guards what is below, and in lines what says so */
    pthread_cond_t changed;
    uint64_t timeout_ns;
    fr_team_callbacks callbacks;
    bool has_callbacks, is_loss_reported;
    bool is_in_callback; /* the thread is in a function of the ears */
    int lost_rank;
    char text[FR__MAX_TEXT]; /* who was lost and why; written once, before is_broken */
    atomic_bool is_broken, is_ending;
    atomic_bool has_failed; /* this rank gave up */

    int wake_fd;   /* wakes the thread */
    int broken_fd; /* readable for ever once a rank is lost */
    pthread_t thread;
    bool has_thread;
    fr__bytes inbox;      /* of the thread: messages for ears, each a fr__letter and its bytes */
    struct pollfd *polls; /* of the thread: [1 + n_lines] */
};

typedef struct fr__message {
    uint64_t bytes, from;
} fr__message;

/* join.c: the sockets of all lines, and everybody's name. */
fr_status fr__team_connect(fr_team *t);
/* This rank cannot come; so that no other waits for what it would have shared. */
void fr__team_refuse(const fr__bootstrap *b, int rank, const char *problem);

/* control.c */
fr_status fr__control_start(fr_team *t);
void fr__control_stop(fr_team *t); /* the thread ends; sockets stay open */
fr__peer *fr__peer_of(fr_team *t, int rank);
void fr__control_wake(fr_team *t);
/* Queue a frame (two pieces, one after the other) and push; with the lock held. Dropped if the line
 * is of no use. False: no memory. */
bool fr__peer_send(fr__peer *peer, enum fr__frame_type type, const void *a, size_t n_a,
                   const void *b, size_t n_b);
/* A rank is lost: the first loss is remembered, and told to those that cannot know. Without the
 * lock; any thread. */
void fr__team_lose(fr_team *t, int rank, const char *format, ...) FR_PRINTF(3, 4);
void fr__team_break(fr_team *t, int rank,
                    const char *text); /* the same with the lock, told to nobody */
/* Until all frames have arrived at the other ends, or so long. */
void fr__control_flush(fr_team *t, double seconds);
/* How often one has to look for signs of life, and give them, to be so patient. */
uint64_t fr__heartbeat_ns(uint64_t timeout_ns);

bool fr__bytes_reserve(fr__bytes *b, size_t more);
void fr__bytes_fini(fr__bytes *b);

#endif
