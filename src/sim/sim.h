/* sim.h -- inside the simulator: the state of a walk on a virtual clock.
 *
 *     simulate.c  workers walk their lists; what they wait for; the result
 *     sums.c      gradients or weights of replicas, bucket by bucket; steps
 *     queue.c     who is next in virtual time
 *     notes.c     busy times and events of workers
 *     bounds.c    what no walk can beat
 *     spread.c    a layout by numbers -> schedule, timing, memory
 *     spread_fit.c  the nodes that a layout recomputes to fit */
#ifndef FR_SIM_SIM_H
#define FR_SIM_SIM_H

#include <forerun/sim.h>

#include "base/arena.h"
#include "cost/keep.h"
#include "sched/sched.h"

/* Events that workers wait for. The lists are walked repeatedly: each event happens once per round
 * (the last two once per mini-batch), and a waiter gives the round. */
typedef enum fr__sim_event {
    FR__ARRIVED_F, /* [link][micro]: the message has arrived */
    FR__ARRIVED_B,
    FR__FREED,   /* [stage][micro]: its activations and inputs are no longer needed */
    FR__GRADS,   /* [stage][micro]: the backward no longer needs its incoming gradients */
    FR__SUMMED,  /* [stage]: all buckets of a sum over replicas */
    FR__BOARDED, /* all workers have the sums of their stages, if steps are joint */
    FR__N_SIM_EVENTS
} fr__sim_event;

typedef struct fr__sim_who {
    int micro, round; /* round -1: none */
} fr__sim_who;

/* Sums of a stage's replicas. */
typedef struct fr__sim_sum {
    int n;                /* buckets; 0: no sum */
    int n_posted;         /* replicas that have submitted */
    int next;             /* next bucket for the links, counted from the end of the block */
    int64_t batch;        /* of this sum */
    size_t last_bytes;    /* of the last bucket, the first of the block; others are whole */
    double *ready, *done; /* [n], counted from the end of the block */
    double *posted;       /* [replica][n], for the trace; NULL: no trace */
    int *devices;         /* [replica] */
} fr__sim_sum;

typedef struct fr__sim_item {
    double time;
    int who; /* worker, or n_workers + stage: its next bucket */
} fr__sim_item;

typedef struct fr__sim {
    fr_ctx *ctx;
    const fr_sim_desc *d;
    const fr_schedule *s;
    fr__link_index x;
    fr_links *links; /* NULL: transfers are free */
    fr_arena *arena;
    int n_micro; /* of the segment */
    size_t first[FR__N_SIM_EVENTS + 1];
    double *when;      /* [event]: the last time */
    int *nth;          /* [event]: its round; -1: none */
    int *sleeper;      /* [event]: a worker that waits for it, or -1 */
    int *next_sleeper; /* [worker] */
    int *awake;        /* [worker]: stack of workers that can continue */
    int n_awake;
    fr__sim_item *heap; /* [worker + stage] */
    int n_heap;
    double now; /* all events before it are decided */
    /* [worker] */
    double *clock;
    int *at, *round;
    bool *has_stepped;    /* the weights are submitted, and the worker waits for their sum */
    bool *has_recomputed; /* what goes before the current instruction */
    int64_t *boarded;     /* mini-batch whose board it has posted */
    int *live;
    double *first_start;
    int n_boarded;
    double boarded_at;
    fr__sim_who **slot_holder;   /* [stage][replica, slot] */
    fr__sim_who **buffer_holder; /* [backward link][pair, buffer] */
    fr__sim_sum *sums;           /* [stage] */
    int64_t *n_stepped;          /* [worker][nth of its stages]: by first_part */
    int *first_part;             /* [stage] */
    double message_bytes;
    int *max_events; /* [worker] */
    fr_sim_result *out;
} fr__sim;

/* An instruction in progress. */
typedef struct fr__sim_task {
    const fr_instr *i;
    int worker;
    int64_t batch; /* of the walk */
} fr__sim_task;

static inline size_t fr__sim_event_of(const fr__sim *m, fr__sim_event kind, int row, int micro)
{
    size_t columns = kind < FR__SUMMED ? (size_t)m->n_micro : 1;
    return m->first[kind] + (size_t)row * columns + (size_t)micro;
}

/* The event happens; the worker that waits for it continues. */
void fr__sim_happen(fr__sim *m, size_t event, int nth, double when);
/* True: the event has happened, and *start is not earlier. False: worker w waits for it. */
bool fr__sim_after(fr__sim *m, int w, size_t event, int nth, double *start);

void fr__sim_push(fr__sim *m, int who, double time);
bool fr__sim_pop(fr__sim *m, fr__sim_item *out);

/* Seconds of an instruction's computation, without the overhead. */
double fr__sim_seconds(const fr__sim *m, const fr__sim_task *t);
static inline double fr__sim_speed(const fr_timing *t, int worker)
{
    return t->speed ? t->speed[worker] : 1;
}
static inline bool fr__sim_is_last_gradient(const fr_schedule *s, const fr_instr *i)
{
    int own = s->replicas[i->stage], j = i->micro % s->n_micro / own;
    return (i->action == FR_DO_B || i->action == FR_DO_W) && j == s->n_micro / own - 1;
}

/* Stage k of a spread, and how many activation sets and areas the schedule has for it. */
fr__keep_stage fr__spread_stage(const fr_spread_desc *d, const fr_schedule *s, int k);

fr_status fr__sim_sums_init(fr__sim *m);
/* Bytes of bucket k, counted from the end. */
static inline size_t fr__sim_bucket_bytes(const fr__sim_sum *s, int k)
{
    return k == s->n - 1 ? s->last_bytes : FR_BUCKET_BYTES;
}
/* The last backward of a mini-batch runs from start to end: submit its buckets as they become
 * final. */
void fr__sim_post(fr__sim *m, const fr__sim_task *t, double start, double end);
/* The next bucket of a stage goes to the links. */
void fr__sim_sum_next(fr__sim *m, int stage);
/* Run a STEP that begins at *start to its end; false: it waits. */
bool fr__sim_step(fr__sim *m, const fr__sim_task *t, double *start, double *end);
double fr__sim_sum_bytes(const fr__sim *m); /* sent by all workers per mini-batch */

fr_status fr__sim_notes_init(fr__sim *m);
/* From the time when the worker came to the instruction; `busy` of it, at the end, was work. */
void fr__sim_note(fr__sim *m, const fr__sim_task *t, double came, double busy, double end);
void fr__sim_note_sums(fr__sim *m, const fr__sim_task *t);

/* Check that schedule and timing can be walked. */
fr_status fr__sim_check(fr_ctx *ctx, const fr_sim_desc *d);
int fr__sim_device(const fr_timing *t, int worker);
static inline double fr__sim_overhead(const fr__sim *m) { return m->d->timing.overhead_s; }

#endif
