/* probe.h -- measuring: how long the nodes of a model take on this machine, what an update costs
 * under a weight policy, how fast workers here talk to each other. */
#ifndef FORERUN_PROBE_H
#define FORERUN_PROBE_H

#include <forerun/cost.h>
#include <forerun/transport.h>
#include <forerun/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Mini-batches of n_micro micro-batches are run as the engine would: forward, backward, the update
 * fused into the last backward; on dummy data, with weights of their own. */
typedef struct fr_probe_desc {
    const fr_graph *graph;
    const fr_stage *stage; /* NULL: the whole graph */
    const fr_backend *backend;
    int n_threads; /* this and the next two: as in fr_device_desc */
    bool pin;
    int first_cpu;
    int batch; /* samples of a micro-batch */
    int n_micro;
    bool split_backward;     /* I and W apart: back_input_s and back_weight_s are measured */
    bool update_in_backward; /* the update is fused into the last backward; else a sweep of its own
                              */
    const fr_optimizer *optimizer;
    fr_optim_options options;
    const fr_policy *policy;   /* NULL: live */
    fr_policy_context context; /* of the stage, by its execution plan; zeroed: one stage */
    double seconds; /* to spend, about; at least 2 mini-batches after those that warm it up */
    /* A run of so many waits for it: no more than a tenth of that is spent, and when the seconds
     * are over one mini-batch is enough. 0: nobody waits. */
    int64_t for_batches;
} fr_probe_desc;

/* n probes at the same time, each on a thread of its own, all busy until the last has enough: times
 * as they are when all workers of this machine work. A time is the mean over all mini-batches
 * but those that were stopped (more than three times the median). out: [n] profiles: nodes[i] of
 * one is the graph's node stage->first + i, and its inputs are numbers of the graph's nodes. Those
 * of a whole cut are made into one profile by fr_profile_join. Each is the caller's, who frees it
 * by fr_profile_free. */
FR_API FR_MUST_USE fr_status fr_probe_nodes(fr_ctx *ctx, int n, const fr_probe_desc *desc,
                                            const fr_profile **out);

/* The same probe n times at once, each with n_threads cores of its own where it is pinned; the
 * profile of the first, which is the caller's. */
FR_API FR_MUST_USE fr_status fr_probe_copies(fr_ctx *ctx, int n, const fr_probe_desc *desc,
                                             const fr_profile **out);
/* FLOP/s of the fastest matrix product of a worker in this precision, n of them at once, measured
 * within a second. desc: backend, threads and optimizer; its model does not count. */
FR_API FR_MUST_USE fr_status fr_probe_peak(fr_ctx *ctx, int n, const fr_probe_desc *desc,
                                           fr_dtype precision, double *flops_per_s);

/* --- a profile by kind of operator ------------------------------------------------------------ */

/* Of a mini-batch. Operators that run as one kernel are a kind of their own ("conv2d+relu"). */
typedef struct fr_operator_cost {
    const char *kind;
    int64_t calls; /* kernels: nodes times micro-batches */
    double forward_s, back_input_s, back_weight_s;
    double total_s;          /* the sum of these; of other kinds of work all there is */
    double flops;            /* 0: not counted */
    double best_flops_per_s; /* of the fastest kernel of the kind */
    double projected_s;      /* if all ran at that rate: at most total_s */
} fr_operator_cost;

/* The slowest kind first; then "update" (of weights), "prediction" (of weights, where they are
 * read) and "other" (what is left of the step), if they take time. */
typedef struct fr_operator_table {
    int n;
    fr_operator_cost *at;
    double step_s; /* as measured; if it was not, the sum of all rows */
    double sum_s, projected_s;
    void *arena;
} fr_operator_table;

/* On FR_OK the caller frees the table by fr_operator_table_free. */
FR_API FR_MUST_USE fr_status fr_profile_by_operator(fr_ctx *ctx, const fr_profile *p,
                                                    fr_operator_table *out);
FR_API void fr_operator_table_free(fr_operator_table *t);

/* --- workers of this machine ------------------------------------------------------------------ */

/* Seconds that n workers take to add up a block of gradients; over a team, all of its processes
 * together, equally many workers in each. */
FR_API FR_MUST_USE fr_status fr_probe_sum(fr_ctx *ctx, const fr_transport *transport, fr_team *team,
                                          int n, size_t bytes, double *seconds);

/* This machine as a cluster: one device a core (or n of them), links measured between two workers
 * of a transport. */
FR_API FR_MUST_USE fr_status fr_probe_cluster(fr_ctx *ctx, const fr_transport *transport,
                                              fr_team *team, int n, fr_cluster **out);

#ifdef __cplusplus
}
#endif
#endif
