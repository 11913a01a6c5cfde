/* sim.h -- a virtual clock: the schedules that the engine walks, times from cost.h.
 *
 * Each worker walks its list in order; a receive waits for its message; a send does not hold the
 * worker up; a slot or buffer in use is waited for; links that several use serve one after the
 * other; gradients of replicas are added bucket by bucket while the last backward still runs, and a
 * step waits for its buckets. */
#ifndef FORERUN_SIM_H
#define FORERUN_SIM_H

#include <forerun/cost.h>
#include <forerun/events.h>
#include <forerun/sched.h>
#include <forerun/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_sim_desc {
    const fr_schedule *schedule;
    fr_timing timing;
    int64_t
        n_batches; /* mini-batches; the lists are walked as often as it takes, as the engine does */
    int sync_every; /* 0: gradients are added for every update; K: each replica steps for itself,
                       and weights are averaged every K updates */
    bool overlaps;  /* sums are handed in while the backward runs; else after it */
    /* Sums are the workers' own work (a real run): a step begins when all of its stage is added up;
     * else each bucket is stepped as it comes back. */
    bool adds_itself;
    /* [stage], of the execution plan: the update is part of a mini-batch's last backward (a real
     * run). NULL: all of it is in STEP (an emulated one). */
    const bool *update_in_backward;
    bool steps_together; /* flush only: fr_exec_plan.sums_stages */
    int draw;            /* of the numbers behind the jitter: another one, other numbers */
    double jitter;       /* standard deviation of an instruction's time over its mean, from 0 to 1:
                            what comes late holds others up; 0: all take what they cost */
    int n_events;        /* most events kept for each worker; 0: none */
} fr_sim_desc;

typedef struct fr_sim_worker {
    double busy,
        wait;      /* seconds; the rest of the makespan is before its first and after its last */
    int peak_live; /* activation sets held at once */
    int n_events;
    fr_event *events; /* ns of virtual time */
} fr_sim_worker;

typedef struct fr_sim_result {
    double makespan;
    double s_per_batch; /* without the first tenth of the mini-batches */
    double bubble;      /* mean over workers, share of the makespan not in F, B, I, W, STEP */
    double sum_bytes, message_bytes; /* sent by all, a mini-batch */
    int n_workers;
    fr_sim_worker *workers;
    double *done; /* [n_batches]: when all stages have stepped */
    void *arena;
} fr_sim_result;

/* *out is freed by fr_sim_free. */
FR_API FR_MUST_USE fr_status fr_simulate(fr_ctx *ctx, const fr_sim_desc *d, fr_sim_result *out);
FR_API void fr_sim_free(fr_sim_result *r);

/* Lower bound of the time: the busiest worker's computation (and the busiest link's), and the
 * longest chain of dependencies of one mini-batch. */
typedef struct fr_sim_bounds {
    double worker_s_per_batch, link_s_per_batch, critical_path_s;
} fr_sim_bounds;
FR_API FR_MUST_USE fr_status fr_sim_bounds_of(fr_ctx *ctx, const fr_sim_desc *d,
                                              fr_sim_bounds *out);

/* A layout of a model, by numbers: what a planner tries and a run is. */
typedef struct fr_spread_desc {
    const fr_profile *profile; /* of a micro-batch of the right size */
    int n_stages;
    const int *cuts;             /* [n_stages - 1] */
    const int *replicas;         /* [n_stages]; NULL: 1 */
    const fr_schedule *schedule; /* to be used, lowered; NULL: as the generator makes it */
    const fr_generator *generator;
    int chunks, n_micro, n_batches; /* n_batches: of a segment, asynchronous only */
    int lead;                       /* of the generator; 0 = 1 */
    const bool *recompute;          /* [node of the profile]; NULL: none */
    const fr_policy *policy;        /* NULL: live */
    fr_policy_options policy_options;
    const fr_cluster *cluster; /* NULL: free links, speed 1 */
    const int *device_of;      /* [worker]; NULL: worker w on device w */
    double overhead_s;
} fr_spread_desc;

/* Schedule, timing and memory of it. */
typedef struct fr_spread {
    const fr_schedule *schedule; /* freed with the spread unless it was given */
    fr_timing timing;
    size_t *memory; /* [worker], estimated from the profile: weights, gradients, optimizer, slots,
                       workspace, messages */
    void *arena;
} fr_spread;
FR_API FR_MUST_USE fr_status fr_spread_make(fr_ctx *ctx, const fr_spread_desc *d, fr_spread *out);
FR_API void fr_spread_free(fr_spread *s);
/* The nodes of least forward time to recompute, so that no worker takes more than its limit (0: it
 * has none): recompute [node of the profile], on top of which the spread of d with them is within
 * the limits. `made` is the spread of d without recompute. *fits false: no set is enough for some
 * worker, and recompute is undefined. */
FR_API FR_MUST_USE fr_status fr_spread_fit(fr_ctx *ctx, const fr_spread_desc *d,
                                           const fr_spread *made, const size_t *limits,
                                           bool *recompute, bool *fits);

#ifdef __cplusplus
}
#endif
#endif
