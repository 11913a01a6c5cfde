/* exec_plan.h -- the execution plan: what a lowered schedule, a weight policy and the options of a
 * run decide together, once and before anything is allocated.
 *
 * The engine runs by it, the probe measures by it; forecast, planner and command read it. A plan is
 * immutable: any thread may read it. */
#ifndef FORERUN_EXEC_PLAN_H
#define FORERUN_EXEC_PLAN_H

#include <forerun/graph.h>
#include <forerun/sched.h>
#include <forerun/team.h>
#include <forerun/weights.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_exec_desc {
    const fr_schedule *schedule; /* lowered; lives as long as the plan */
    const char *name;            /* of the schedule in messages; NULL: its own */
    const fr_policy *policy;     /* NULL: live */
    fr_policy_options policy_options;
    /* To find tied parameters and batch norms, and for its precision; NULL: there are none.
     * stages: [stage] */
    const fr_graph *graph;
    const fr_stage *stages;
    fr_dtype weight_type; /* without a graph: of the weights that passes read */
    /* Replicas step each for itself and agree by the rule of this name; NULL: they step with the
     * sum of their gradients. */
    const char *lone_sync;
    double clip_norm;
    bool clip_late;                        /* as in fr_engine_desc */
    bool want_norm, keep_grads, exact_sum; /* as in fr_engine_desc */
} fr_exec_desc;

typedef struct fr_exec_plan {
    const fr_schedule *schedule;
    const fr_policy *policy;
    fr_dtype weight_type; /* of the weights that passes read */
    bool has_replicas;    /* some stage has several */
    bool sums_replicas;   /* replicas step with the sum of their gradients */
    bool needs_norm;      /* of the gradient: to clip by it, or to report it */
    /* Without a flush, clip_late: a step of update u knows the norms of all stages of update u -
     * norm_lag; 0: the stage's own norm alone. */
    int norm_lag;
    /* Flush: no stage steps before norms and tied gradients of all stages have been combined. */
    bool sums_stages;
    /* Without a flush: a stage that is tied to another reads the weights that the forward of the
     * same mini-batch read there, and its gradient goes there. */
    bool lends_ties;
    /* [stage] */
    fr_policy_context *context; /* for the weight policy */
    int *n_weight_blocks;       /* that passes read, counted along the lists; floats: the newest
                                   weights included (fr_weight_bytes) */
    bool *needs_whole_gradient; /* a step sees all gradients before it changes a weight */
    bool *update_in_backward;   /* the update is fused into the last backward */
    void *arena;
} fr_exec_plan;

/* The choice that causes a refusal. */
typedef enum fr_exec_refusal {
    FR_REFUSED_NOT,
    FR_REFUSED_WEIGHTS, /* the policy */
    FR_REFUSED_METHOD,  /* the schedule */
    FR_REFUSED_SYNC     /* how replicas agree */
} fr_exec_refusal;

/* *out is freed by fr_exec_plan_free. *why (may be NULL): what is refused, if that is the failure;
 * the text has the reason and a remedy. */
FR_API FR_MUST_USE fr_status fr_exec_plan_create(fr_ctx *ctx, const fr_exec_desc *d,
                                                 fr_exec_plan **out, fr_exec_refusal *why);
FR_API void fr_exec_plan_free(fr_exec_plan *p);

/* Before there is a schedule: true if it must have reductions, as something needs the gradients of
 * all stages. (Asynchronous stages do not wait for each other.) */
FR_API bool fr_exec_must_reduce(bool is_flush, bool has_far_ties, double clip_norm, bool want_norm);
/* The first tied parameter whose owner is in another stage; -1: none. */
FR_API int fr_exec_find_far_tie(const fr_graph *g, int n_stages, const fr_stage *stages);
/* True if the policy can be used with the schedule that the generator makes of d. */
FR_API bool fr_exec_takes_policy(const fr_generator *g, const fr_schedule_desc *d,
                                 const fr_policy *policy);

/* Which weights a pass reads: updates contained in them, and updates predicted on top. */
typedef struct fr_weight_read {
    int version, ahead;
} fr_weight_read;
/* Of every pass of the segment. forwards, backwards: [stage][micro], n_stages rows of n_batches *
 * n_micro, filled in. */
FR_API FR_MUST_USE fr_status fr_exec_plan_reads(fr_ctx *ctx, const fr_exec_plan *p,
                                                fr_weight_read *forwards,
                                                fr_weight_read *backwards);

/* How the cores of this machine are shared out among the workers of this process and of those
 * beside it. */
typedef struct fr_exec_cores {
    int n_threads; /* of a worker */
    int n_at_once; /* workers of this process that have cores of their own at the same time */
    int first_cpu; /* of the first of these, the others follow; -1: any core */
} fr_exec_cores;
/* n_threads 0: all cores, in equal shares. team NULL: this process alone. */
FR_API fr_exec_cores fr_exec_share_cores(const fr_team *team, int n_workers, int n_threads,
                                         bool pin);
/* Device of the backend for worker i of the process, in turn over all workers of this machine. */
FR_API int fr_exec_device(const fr_team *team, int n_workers, int i, int n_devices);
/* First core of worker i of the process if all are pinned, else -1. */
FR_API int fr_exec_first_cpu(const fr_exec_cores *c, int n_workers, int i);

#ifdef __cplusplus
}
#endif
#endif
