/* check.h -- tables that the parts of the proof share: the place of each piece of work.
 *
 * All lists are laid end to end, so one number, a place, names worker and step. The tables are
 * filled from the finished lists only, never by the generator or the passes. */
#ifndef FR_SCHED_CHECK_H
#define FR_SCHED_CHECK_H

#include "base/arena.h"

#include <forerun/sched.h>

enum { FR_FORWARD, FR_BACKWARD, FR_N_WAYS }; /* forward or backward links */

/* Numbers sorted into groups: group g is at[first[g]] .. at[first[g + 1] - 1]. */
typedef struct fr__groups {
    int *first; /* [groups + 1] */
    int *at;
} fr__groups;

typedef struct fr__proof {
    fr_ctx *ctx;
    const fr_schedule *s;
    fr_arena arena;
    bool has_slots; /* and buffers; if false, everything except slots and buffers is proved */
    int n_all;      /* micro-batches of the segment */
    int n_places;
    int *first; /* [worker + 1]: place of a worker's step 0 */
    /* Places; -1: nowhere. A B is both back and weight. */
    int *forward, *back, *weight;           /* [stage][micro] */
    int *send[FR_N_WAYS], *recv[FR_N_WAYS]; /* [link][micro] */
    int *reduce, *step;                     /* [copy][batch] */
    bool has_reduce;                        /* or must have: replicas sum their gradients */
    /* A copy is one replica of one stage. The copies of stage k start at first_copy[k]. */
    int *first_copy;                               /* [stage + 1] */
    fr__groups into[FR_N_WAYS], out_of[FR_N_WAYS]; /* links by stage */
    fr__groups stages;                             /* by worker */
    int *n_pairs[FR_N_WAYS]; /* [link]: worker pairs; micro-batch m belongs to pair m mod n_pairs */
} fr__proof;

/* One row of a table [stage or link][micro]. */
static inline int *fr__micro_row(const fr__proof *p, int *table, int row)
{
    return table + (size_t)row * (size_t)p->n_all;
}
static inline int fr__copy_on(const fr__proof *p, int stage, int worker)
{
    return p->first_copy[stage] + worker - p->s->worker_of[stage];
}
/* The row of the stage's replica on this worker in a table [copy][batch]. */
static inline int *fr__batch_row(const fr__proof *p, int *table, int stage, int worker)
{
    return table + (size_t)fr__copy_on(p, stage, worker) * (size_t)p->s->n_batches;
}
static inline const fr_instr *fr__instr_at(const fr__proof *p, int worker, int step)
{
    return &p->s->lists[worker].at[step];
}
static inline const fr_link *fr__links(const fr_schedule *s, int way)
{
    return way == FR_FORWARD ? s->forward : s->backward;
}
static inline bool fr__is_send(int action)
{
    return action == FR_DO_SEND_F || action == FR_DO_SEND_B;
}
static inline int fr__way_of(int action)
{
    return action == FR_DO_SEND_F || action == FR_DO_RECV_F ? FR_FORWARD : FR_BACKWARD;
}
/* Step of a place in the list of the worker that owns the stage's micro-batch. */
static inline int fr__step_of(const fr__proof *p, int stage, int micro, int place)
{
    return place - p->first[fr_schedule_worker(p->s, stage, micro)];
}

/* "worker 2, step 17 (2B5): ..."; step n of a list of n is its end. */
fr_status fr__fault(const fr__proof *p, int worker, int step, const char *format, ...)
    FR_PRINTF(4, 5);

/* The link between two existing stages, or -1. */
int fr__proof_link(const fr__proof *p, int way, int from, int to);
/* rows x columns of -1, owned by the proof; NULL when memory is exhausted. */
int *fr__proof_table(fr__proof *p, int rows, int columns);

/* Check shape, indices and duplicates; fill the tables. */
fr_status fr__proof_index(fr__proof *p);
/* Check every rule that concerns one list. */
fr_status fr__proof_order(fr__proof *p);
/* Check that all lists run to their ends, including waits for slots and buffers. */
fr_status fr__proof_run(fr__proof *p);

/* fr_schedule_check for a schedule whose lowering failed and which therefore has no slots. */
fr_status fr__schedule_explain(fr_ctx *ctx, const fr_schedule *s);

#endif
