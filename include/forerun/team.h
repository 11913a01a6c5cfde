/* team.h -- the processes of one run: their identity, their loss, and control messages.
 *
 * A process that a launcher (mpirun, srun) started together with others joins its team. Every rank
 * is connected to rank 0, so messages go between rank 0 and another rank. A control thread detects
 * when a rank ends (immediately) or is silent (after a timeout), whatever the workers do. Tensors
 * do not travel here but through the channels of a transport.
 *
 * A NULL team means that the process is alone: rank 0 of 1. */
#ifndef FORERUN_TEAM_H
#define FORERUN_TEAM_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_team fr_team;

/* Join the processes that were started together with this one; *out is NULL if it is alone. Every
 * process calls it once. FR_UNSUPPORTED: a launcher started this process, but this build has no
 * MPI. */
FR_API FR_MUST_USE fr_status fr_team_join(fr_ctx *ctx, fr_team **out);
/* Leave and free the team. All ranks wait for each other, unless one is lost. */
FR_API void fr_team_leave(fr_team *t);
FR_API int fr_team_rank(const fr_team *t); /* NULL: 0 */
FR_API int fr_team_size(const fr_team *t); /* NULL: 1 */
/* The rank of this process according to its launcher, without joining; 0 if alone. Size: 1 if
 * alone, 0 if there are others but their number is unknown. */
FR_API int fr_team_rank_by_launcher(void);
FR_API int fr_team_size_by_launcher(void);
/* "rank 2 (host nodeb, process 4711)" */
FR_API const char *fr_team_name(const fr_team *t, int rank);
FR_API const char *fr_team_host(const fr_team *t, int rank); /* its machine; "": no such rank */

/* Processes of the team on this machine that may use the same cores: *n of them, this process
 * included, which is number *nth in the order of ranks. */
FR_API void fr_team_neighbours(const fr_team *t, int *nth, int *n);

/* Silence after which a rank counts as lost; default 30 s, minimum 0.2 s. */
FR_API void fr_team_set_timeout(fr_team *t, double seconds);

typedef struct fr_team_callbacks {
    void *user;
    /* Runs on the control thread and must not block; messages of a rank arrive in order. */
    void (*on_message)(void *user, int from, const void *data, size_t bytes);
    /* A rank ended, is silent, or failed; text: which and why. Called once, for the first loss. It
     * may be this rank: it was stopped, and the others have given it up. */
    void (*on_loss)(void *user, int rank, const char *text);
} fr_team_callbacks;
/* Without callbacks messages are queued. An earlier loss is reported immediately, on the caller's
 * thread. When the call returns, the previous callbacks are no longer in use. NULL: none. */
FR_API void fr_team_set_callbacks(fr_team *t, const fr_team_callbacks *callbacks);

/* Queue a message from rank 0 to another rank, or the reverse. The data is copied; never blocks;
 * any thread. Messages to a lost rank are dropped. */
FR_API fr_status fr_team_notify(fr_team *t, int to, const void *data, size_t bytes);
FR_API fr_status fr_team_notify_all(fr_team *t, const void *data,
                                    size_t bytes); /* rank 0, to all others */

/* A stream of bytes each way between rank 0 and another rank, separate from messages. Both ends
 * must pass the same size. Blocks; fails with FR_PEER (and a text) when a rank is lost. One thread
 * at a time per rank and direction. */
FR_API FR_MUST_USE fr_status fr_team_send(fr_team *t, int to, const void *data, size_t bytes);
FR_API FR_MUST_USE fr_status fr_team_recv(fr_team *t, int from, void *data, size_t bytes);

/* Collective: all ranks call these together, on a connection separate from the streams. */
/* FR_OK if `mine` is FR_OK on all ranks; otherwise the status of the lowest rank that failed, on
 * all ranks. A rank without a failure of its own gets that rank's name and text. */
FR_API FR_MUST_USE fr_status fr_team_agree(fr_team *t, fr_status mine);
/* Fails on all ranks unless `word` (a hash of `what`, such as "the config") is the same on all. */
FR_API FR_MUST_USE fr_status fr_team_same(fr_team *t, const char *what, uint64_t word);
/* Broadcast rank 0's bytes. */
FR_API FR_MUST_USE fr_status fr_team_share(fr_team *t, void *data, size_t bytes);

/* This rank fails: it is lost to all others, with this text. Nothing more is sent or received. */
FR_API void fr_team_fail(fr_team *t, const char *text);
/* True if a rank is lost; *text (may be NULL) then names it and the reason. */
FR_API bool fr_team_is_broken(const fr_team *t, const char **text);

#ifdef __cplusplus
}
#endif
#endif
