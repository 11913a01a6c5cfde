/* team.h -- the processes of one run: who they are, whether they live, small talk between them.
 *
 * A process that a launcher (mpirun, srun) started together with others joins its team. Rank 0
 * leads: every other rank has a line to it, so messages go between rank 0 and another. The team
 * notices when a rank ends (at once) or falls silent (after a while), whatever the workers do:
 * lines have a thread of their own. Tensors do not travel here but through a transport's channels.
 *
 * A NULL team is that of a process alone: rank 0 of 1. */
#ifndef FORERUN_TEAM_H
#define FORERUN_TEAM_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_team fr_team;

/* Join the processes that were started together with this one; *out is NULL if it is alone. Called
 * once in a process, by all of its peers. FR_UNSUPPORTED: a launcher started it, but this
 * build has no MPI. */
fr_status fr_team_join(fr_ctx *ctx, fr_team **out);
/* Everything went well, or every rank knows that it did not: all ranks leave, and wait for each
 * other. After a rank was lost nobody waits. */
void fr_team_leave(fr_team *t);
int fr_team_rank(const fr_team *t); /* NULL: 0 */
int fr_team_size(const fr_team *t); /* NULL: 1 */
/* Rank that this process has by what its launcher says, without joining; 0 if alone. Size: 1 if
 * alone, 0 if there are others but it is not said how many. */
int fr_team_rank_by_launcher(void);
int fr_team_size_by_launcher(void);
/* "rank 2 (host nodeb, process 4711)" */
const char *fr_team_name(const fr_team *t, int rank);
const char *fr_team_host(const fr_team *t, int rank); /* the machine it runs on; "": no such rank */

/* Processes of the team that share this one's cores, on this machine and not bound elsewhere: how
 * many, and which of them (by rank) this is. */
void fr_team_neighbours(const fr_team *t, int *nth, int *n);

/* How long a rank may be silent before it counts as lost; 30 s unless told, 0.2 s at least. */
void fr_team_set_timeout(fr_team *t, double seconds);

typedef struct fr_team_callbacks {
    void *user;
    /* On the team's own thread, short and without waiting; messages of a rank in order. */
    void (*on_message)(void *user, int from, const void *data, size_t bytes);
    /* A rank has ended, is silent, or gave up; text: who and why. Once, the first loss only. It may
     * be this very rank: it was stopped, and the others do not wait for it any more. */
    void (*on_loss)(void *user, int rank, const char *text);
} fr_team_callbacks;
/* Messages that come while nobody listens wait. A loss that came before is told at once, on the
 * caller's thread. When the call returns, the ears before are not in use any more. */
void fr_team_set_callbacks(fr_team *t, const fr_team_callbacks *callbacks); /* NULL: nobody */

/* A message; from rank 0 to any, from any to rank 0. Never waits for the receiver (it is copied),
 * any thread. To a lost rank: dropped. */
fr_status fr_team_notify(fr_team *t, int to, const void *data, size_t bytes);
fr_status fr_team_notify_all(fr_team *t, const void *data,
                             size_t bytes); /* rank 0, to all others */

/* Bulk: a stream of bytes each way between rank 0 and another, apart from messages. Both ends
 * agree on the amount; waits, and ends with FR_PEER (and a text) when a rank is lost. One thread at
 * a time for each rank and direction. */
fr_status fr_team_send(fr_team *t, int to, const void *data, size_t bytes);
fr_status fr_team_recv(fr_team *t, int from, void *data, size_t bytes);

/* All ranks call these together; streams are not touched. */
/* FR_OK if `mine` is FR_OK everywhere; else everybody gets the status of the lowest rank that
 * failed, and, where its own context has no failure, that rank's name and text. */
fr_status fr_team_agree(fr_team *t, fr_status mine);
/* Fails everywhere unless `word` (a hash of `what`: "the config") is the same on all ranks. */
fr_status fr_team_same(fr_team *t, const char *what, uint64_t word);
/* Rank 0's bytes on every rank. */
fr_status fr_team_share(fr_team *t, void *data, size_t bytes);

/* This rank gives up: all others lose it, with this text. Nothing more is told or taken here. */
void fr_team_fail(fr_team *t, const char *text);
/* Whether some rank is lost; *text (may be NULL) then says who and why. */
bool fr_team_is_broken(const fr_team *t, const char **text);

#ifdef __cplusplus
}
#endif
#endif
