/* sched.h -- internal to the module: building a schedule, and the helpers of the passes.
 *
 * To build a schedule, a generator (through fr_schedule_create) or a reader calls fr__schedule_new,
 * then fr__emit for each instruction of each worker in order, then fr__emit_failed once, then
 * fr__schedule_lower. */
#ifndef FR_SCHED_SCHED_H
#define FR_SCHED_SCHED_H

#include <forerun/clock.h>

#include "base/arena.h"

extern const fr_generator fr__gen_sequential, fr__gen_gpipe, fr__gen_1f1b, fr__gen_1f1b_async,
    fr__gen_interleaved, fr__gen_zb_h1, fr__gen_zb_h2, fr__gen_zbv, fr__gen_v_half, fr__gen_v_min,
    fr__gen_dualpipev, fr__gen_nf1b, fr__gen_forward;

/* Create a schedule with the sizes, replicas and links of d and n_workers empty lists. The caller
 * sets the flags. worker_of: [n_stages], the worker of replica 0; n_workers counts all replicas. A
 * forward-only schedule has no backward links. */
fr_status fr__schedule_new(fr_ctx *ctx, const char *name, const fr_schedule_desc *d, int n_workers,
                           const int *worker_of, bool is_forward_only, fr_schedule **out);

/* fr_schedule_create of a schedule that may still be changed. */
fr_status fr__schedule_create(fr_ctx *ctx, const fr_generator *g, const fr_schedule_desc *desc,
                              fr_schedule **out);
/* Add what is missing of steps, reductions, transfers; then slots and buffers. A schedule that has
 * transfers (or steps) already keeps them; a step waits for reductions that are added. Fails on a
 * schedule that the clock cannot run through (a deadlock), naming worker and step. */
fr_status fr__schedule_lower(fr_ctx *ctx, fr_schedule *s, bool must_reduce);

/* Append to a worker's list. Running out of memory is recorded, not returned, so a generator is a
 * plain loop that ends with `return !fr__emit_failed(s)`. */
void fr__emit(fr_schedule *s, int worker, fr_action action, int stage, int micro);
void fr__emit_transfer(fr_schedule *s, int worker, fr_action action, int stage, int micro,
                       int peer);
bool fr__emit_failed(const fr_schedule *s);
/* The list of worker w in zb-h1, its distances multiplied by `times` (gen_zb_h1.c). */
bool fr__emit_zero_bubble(const fr_schedule_desc *d, int w, int times, fr_schedule *s);

/* --- replicas (replicas.c) --- */

static inline int fr__replicas(const fr_schedule_desc *d, int stage)
{
    return d->replicas ? d->replicas[stage] : 1;
}
bool fr__has_replicas(const fr_schedule *s); /* some stage has more than one replica */
int fr__lcm(int a, int b);                   /* least common multiple; of positive numbers */
/* Do the replicas of each stage divide the micro-batches of d? If the generator requires it, do all
 * stages have the same number? */
fr_status fr__check_replicas(fr_ctx *ctx, const char *name, const fr_schedule_desc *d,
                             bool any_replicas);
/* Stages that share one worker must have the same number of replicas. */
fr_status fr__check_together(fr_ctx *ctx, const fr_schedule *s, const int *replicas);
/* Give each replica of a worker the worker's list in *base, which numbers the micro-batches of one
 * replica 0, 1, 2, ...: number i becomes i * r + q on replica q of r. Steps and transfers are
 * copied. *base is freed and replaced. n_micro: per mini-batch, over all replicas. */
fr_status fr__schedule_replicate(fr_ctx *ctx, fr_schedule **base, const int *replicas, int n_micro);

/* The stages of a worker, ascending; *n of them. */
const int *fr__stages_of(const fr_schedule *s, int worker, int *n);
/* Zeroed; lives as long as the schedule. NULL: out of memory. */
int *fr__schedule_ints(fr_schedule *s, size_t n);
/* Micro-batches of the whole segment. */
static inline int fr__n_micro(const fr_schedule *s) { return s->n_batches * s->n_micro; }

/* Lists for counting what a long run holds at once: those of s or, if its segment ends before the
 * pipeline is full, longer ones without transfers. The first *n_batches mini-batches suffice. */
const fr_schedule *fr__schedule_steady(const fr_schedule *s, int *n_batches);

/* Copy without steps and reductions, to be lowered again; *out is the caller's even on failure. */
fr_status fr__schedule_strip(fr_ctx *ctx, const fr_schedule *s, fr_schedule **out,
                             bool *has_reduce);

/* A list's room is the power of two at or above its length (from 16 on). False: out of memory. */
bool fr__list_push(fr_instr_list *l, fr_instr i);
/* Replace the list of a worker and free the old one. */
void fr__list_replace(fr_instr_list *l, fr_instr_list by);

/* Links of one direction by stage: those that end at stage k are in.link[in.first[k]] to
 * in.link[in.first[k + 1] - 1]. `out` holds those that begin there. Link numbers ascend. */
typedef struct fr__stage_links {
    int *first; /* [n_stages + 1] */
    int *link;  /* [n links] */
} fr__stage_links;
typedef struct fr__direction {
    int n;
    const fr_link *links;
    fr__stage_links in, out;
    /* With replicas at both ends, micro-batch m uses worker pair m mod pairs[link]. Each pair has
     * its own channel. The pairs of a link are numbered from first_pair[link], over all links. */
    int *pairs;      /* [link] */
    int *first_pair; /* [link + 1] */
} fr__direction;
typedef struct fr__link_index {
    fr__direction forward, backward;
} fr__link_index;
/* Also checks that stages, micro-batches and peers of all instructions are in range, that stages
 * are on their workers and that transfers use links. Later code indexes by them without checks. */
fr_status fr__link_index_init(fr_ctx *ctx, fr_arena *a, const fr_schedule *s, fr__link_index *out);
int fr__link_of(const fr__direction *d, int from, int to); /* -1: none */
/* The link that a transfer goes over; -1: none. */
int fr__transfer_link(const fr__link_index *x, const fr_instr *i);

static inline int fr__pair(const fr__direction *d, int link, int micro)
{
    return d->first_pair[link] + micro % d->pairs[link];
}

/* Fail with FR_INVALID and the prefix "worker 2, step 17 (2B5): ". */
fr_status fr__instr_fail(fr_ctx *ctx, const fr_schedule *s, int worker, int step,
                         const char *format, ...) FR_PRINTF(5, 6);

/* fr_schedule_clock for a schedule with its index made and ranges checked. If `hold`, instructions
 * wait for slots and buffers. */
fr_status fr__clock_run(fr_ctx *ctx, const fr_schedule *s, const fr__link_index *x,
                        const fr_costs *costs, bool hold, fr_clock *out);

/* Several walks of a lowered schedule as one segment: its first n_batches mini-batches. All memory
 * that *out adds is in the arena. False: out of memory. */
bool fr__schedule_repeat(fr_arena *a, const fr_schedule *s, int n_batches, fr_schedule *out);

/* The passes of fr__schedule_lower, in this order. */
fr_status fr__pass_steps(fr_ctx *ctx, fr_schedule *s, bool must_reduce);
fr_status fr__pass_transfers(fr_ctx *ctx, fr_schedule *s, const fr__link_index *x);
fr_status fr__pass_slots(fr_ctx *ctx, fr_schedule *s, const fr__link_index *x);

static inline bool fr__is_transfer(int action)
{
    return action >= FR_DO_SEND_F && action <= FR_DO_RECV_B;
}
/* The last computation that needs a micro-batch's activations on its stage. */
static inline bool fr__is_last_use(const fr_schedule *s, int action)
{
    return s->is_forward_only ? action == FR_DO_F : action == FR_DO_B || action == FR_DO_W;
}
/* True: a STEP waits for the REDUCE of all stages, which update together. Without a flush each
 * stage waits for its own replicas only. */
static inline bool fr__steps_together(const fr_schedule *s) { return s->is_flush; }
/* Makes gradients for other stages. */
static inline bool fr__makes_gradients(int action)
{
    return action == FR_DO_B || action == FR_DO_I;
}

/* Text of an action: "F", "SEND_F". */
const char *fr__action_name(int action);
/* Default peer of a transfer: values go up one stage, gradients go down one. */
int fr__neighbour(const fr_instr *i);

#endif
