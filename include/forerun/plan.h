/* plan.h -- planners: how to spread a model over devices. One file each, listed in fr_planner_list.
 *
 * A planner works on a profile and a cluster alone; one that splits layers, on the graph and a
 * cluster. It returns a layout with reasons; the
 * choice over methods, stages, replicas, micro-batches and recompute (fr_plan_choose) tries what
 * the planners propose and many more in the simulator. */
#ifndef FORERUN_PLAN_H
#define FORERUN_PLAN_H

#include <forerun/sim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_plan_problem {
    const fr_profile *profile;
    const fr_cluster *cluster; /* NULL: n_devices alike */
    int n_devices;             /* most to use; 0: all of the cluster's */
    double bandwidth; /* planners that know one bandwidth only: bytes/s; 0: the cluster's slowest */
    int n_micro;      /* micro-batches of a mini-batch, where it matters */
    int n_stages;     /* wanted; 0: any */
    int replicas;     /* wanted, of every stage; 0: any */
    bool deals_evenly; /* replicas divide n_micro, as schedules want it */
    int64_t memory;    /* of a device; 0: the cluster's, or any */
    bool contiguous; /* stages are ranges of nodes in order, as the engine cuts; else pipedream may
                        put branches into different stages, as its authors do */
    double
        seconds; /* dlplacer: solver's limit, 0: 60; exact: about, to tell devices apart, most 1 */
    /* Machines of each level and their bandwidth, the innermost first, as PipeDream counts them;
     * 0: the cluster's, or one level. */
    int n_levels;
    const int *level_n;
    const double *level_bandwidth;
    const char *objective; /* brute: the planner whose count it goes by; NULL: exact */
    /* Planners with splits_layers, which take shapes instead of a profile. */
    const fr_graph *graph;
    int batch;            /* samples of a mini-batch */
    double ratio;         /* operations that a device does while a word is sent; 0: the cluster's */
    double machine_flops; /* FLOP/s of a device of speed 1; 0: not known */
} fr_plan_problem;

typedef struct fr_plan_stage {
    int first, last; /* nodes first .. last - 1; where others lie between, see stage_of */
    int replicas;
    int device;    /* of the first replica */
    double time_s; /* as the planner counts it */
    int *devices;  /* [replicas], of the cluster */
} fr_plan_stage;

/* A layer as a product of (m, k) and (k, n), and into how many parts each dimension is cut. */
typedef struct fr_plan_split {
    const char *name;
    double size[3]; /* m, n, k */
    int split[3];
    double cost; /* of a device: operations, and words in the time of operations */
} fr_plan_split;

typedef struct fr_plan_splits {
    int n, n_devices;
    fr_plan_split *at; /* [n] in the order of the model */
    double ratio;
    double cost;       /* of all layers, and of the words that change devices between them */
    double batch_cost; /* every layer cut by samples only */
    double whole_cost; /* nothing cut */
} fr_plan_splits;

typedef struct fr_plan {
    const char *planner;
    int n_stages;
    fr_plan_stage *stages;
    double time_s;   /* what the planner minimised: of a mini-batch (or micro-batch, see it) */
    int *stage_of;   /* [node]; -1: data fed from outside */
    int *device_of;  /* [node], dlplacer only; else NULL */
    double *start_s; /* [node], dlplacer only */
    bool *recompute; /* [node]: the backward computes it again; NULL: none */
    fr_plan_splits *splits; /* instead of stages, which are none then; NULL: none */
    bool is_optimal;        /* proved, by its own count */
    char why[1024];
    void *arena;
} fr_plan;

typedef struct fr_planner {
    const char *name, *summary;
    const char *method; /* that runs its plans of several stages */
    bool splits_layers; /* takes problem.graph, gives plan.splits: a report, nothing runs it yet */
    int lead;           /* of that method's schedule; 0 = 1 */
    fr_status (*plan)(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out); /* fr_plan_free */
} fr_planner;

FR_API const fr_planner *const *fr_planner_list(void); /* NULL-terminated */
FR_API const fr_planner *fr_planner_find(const char *name);
FR_API void fr_plan_free(fr_plan *p);
/* {stages: [{nodes, replicas, time_s, devices}], time_s, ...}: the contract of `forerun plan
 * --format json`; with splits {layers: [{name, size, split, cost}], cost, ...}, without profile.
 * The caller frees it by fr_text_free; NULL: out of memory. */
FR_API char *fr_plan_to_json(const fr_plan *p, const fr_profile *profile);

/* --- the whole choice ---------------------------------------------------------------------------
 */

/* A method as the choice sees it (the table of train's methods is one layer up). */
typedef struct fr_plan_method {
    const char *name;
    const fr_generator *generator;
    const fr_policy *policy;
    int chunks, max_stages;
    int max_lead;          /* 2 or 4: such leads are tried, too (generator->has_lead); 0: none */
    bool wants_replicas;   /* dp */
    bool is_allowed_async; /* its weights are not those of one worker */
} fr_plan_method;

/* Profile of a micro-batch of so many samples; kept by whoever gives it. */
typedef fr_status (*fr_profile_fn)(void *user, int batch, const fr_profile **out);

typedef struct fr_choice_desc {
    fr_profile_fn profile;
    void *user;
    const fr_cluster *cluster;
    int batch; /* samples of a mini-batch */
    int n_methods;
    const fr_plan_method *methods;
    int n_devices;    /* most to use; 0: all */
    bool all_devices; /* else fewer may be taken where more do not help */
    bool may_recompute;
    double overhead_s;
    int n_kept; /* candidates returned, best first; 0: 10 */
} fr_choice_desc;

typedef struct fr_candidate {
    const char *method;
    int n_stages, n_workers, n_micro, chunks;
    int lead; /* of the schedule; 1 where the method has none */
    int *cuts, *replicas, *device_of;
    const bool *recompute; /* [node of the profile]; NULL: none */
    bool is_async;
    double s_per_batch, samples_per_s, bubble; /* simulated */
    size_t *memory;                            /* [worker], estimated */
    size_t peak;                               /* most of any worker */
    bool fits;
    double bound_s; /* no schedule of this cut can be faster */
    const char *why;
} fr_candidate;

typedef struct fr_choice {
    int n;
    fr_candidate *at; /* best first; those that do not fit come last */
    int n_tried, n_too_large;
    char why[2048];    /* for people: best, runner-up, what decided */
    const char **lost; /* [method of the desc]: why it is not the best, a line; NULL: it is */
    void *arena;
} fr_choice;

FR_API FR_MUST_USE fr_status fr_plan_choose(fr_ctx *ctx, const fr_choice_desc *d, fr_choice **out);
FR_API void fr_choice_free(fr_choice *c);

#ifdef __cplusplus
}
#endif
#endif
