/* internal.h -- what planners share: the problem with its gaps filled in, sums over the nodes, the
 * making of a plan. One planner is one thread's affair. */
#ifndef FR_PLAN_INTERNAL_H
#define FR_PLAN_INTERNAL_H

#include "base/arena.h"

#include <forerun/plan.h>

/* A problem as planners read it. A unit is a node that computes (data fed from outside is no
 * stage's work), or a run of nodes where there are many; sums have a leading 0, so that units
 * u .. v - 1 have sum[v] - sum[u]. */
struct fr__task {
    fr_ctx *ctx;
    const fr_plan_problem *problem;
    const fr_profile *profile;
    fr_arena arena; /* of everything here; dropped by fr__task_fini */
    int n, n_nodes; /* units; nodes that compute: more where units are runs */
    int *node;      /* (n + 1) the first of each unit; the end of the profile */
    double *forward, *backward, *update; /* (n + 1) sums, seconds at speed 1 */
    double *params, *kept;               /* (n + 1) sums, bytes */
    double **values, **scratch; /* [level]: (n) largest of units u .. u + 2^level - 1, bytes */
    double *cut; /* (n + 1) bytes of a micro-batch across a cut before the unit; 0 at both ends */
    double *cut_back; /* (n + 1) of them, bytes whose gradients come back */
    int *last_use;    /* (nodes of the profile) the last that reads it; -1: none */
    bool *has_grad;   /* (nodes of the profile) it, or one that it depends on, has parameters */
    int n_all;        /* devices of the cluster */
    double *speed, *memory; /* (n_all); memory: INFINITY where there is no limit */
    int n_devices;          /* most to use */
    int *order;             /* (n_all): devices in the order in which stages take them; the first
                               n_devices are the fastest, as long as no planner reorders them */
    double slowest, least;  /* of those n_devices */
    bool are_alike;         /* all n_all of one speed and one memory */
    double *pair;     /* (n_devices, n_devices) bytes/s by place in the order; fr__spp_order */
    double bandwidth; /* INFINITY: transfers are free */
    int n_micro;
};

/* A cluster's slowest way between two neighbours, bytes/s: a port, or a share of a bus; INFINITY:
 * all are free. False: no memory. */
bool fr__slowest_link(fr_arena *a, const fr_cluster *c, double *least);

/* Units that tables over pairs of them have time and memory for. */
enum { FR__MOST_UNITS = 2000 };
/* most: units at the most, each a run of nodes where there are more of these; 0: any number. */
fr_status fr__task_init(fr_ctx *ctx, const fr_plan_problem *p, int most, struct fr__task *t);
void fr__task_fini(struct fr__task *t);
/* The remark of a plan whose units are runs of nodes. */
static inline const char *fr__task_note(const struct fr__task *t)
{
    return t->n < t->n_nodes ? " (by runs of nodes: single nodes would be too many)" : "";
}
/* The unit that begins at a node of the profile, or the first behind it. */
int fr__task_unit(const struct fr__task *t, int node);

/* Weights that passes read, gradients and optimizer state, in floats for each weight. */
static inline double fr__floats_per_weight(const fr_profile *p)
{
    return (double)fr_weight_bytes(p->precision, 1) / sizeof(float) + 1 + p->state_per_weight;
}
/* Bytes of weights, gradients, optimizer state and workspace of units u .. v - 1. */
double fr__task_fixed(const struct fr__task *t, int u, int v);
/* Seconds that each of r replicas sends to add up its gradients, by a ring. */
double fr__task_sum_s(const struct fr__task *t, int u, int v, int r);
static inline double fr__task_work(const struct fr__task *t, int u, int v)
{
    return t->forward[v] - t->forward[u] + t->backward[v] - t->backward[u];
}

/* May a stage have r replicas? */
static inline bool fr__task_may(const struct fr__task *t, int r)
{
    const fr_plan_problem *p = t->problem;
    return (!p->replicas || r == p->replicas) && (!p->deals_evenly || t->n_micro % r == 0);
}

/* A stage of a layout under construction: units u .. v - 1 on devices order[device] and those that
 * follow it there. */
struct fr__part {
    int u, v, replicas, device;
    double time_s;
};

/* The task of a problem, planned by `make`; *out is NULL on failure. */
fr_status fr__plan_by(fr_ctx *ctx, const fr_plan_problem *p, int most,
                      fr_status (*make)(struct fr__task *t, fr_plan **out), fr_plan **out);
/* A plan of n stages over ranges of units. On failure *out is NULL. */
fr_status fr__plan_make(const struct fr__task *t, const char *planner, int n,
                        const struct fr__part *parts, double time_s, fr_plan **out);
/* The same for any labelling of units (label: (n units), 0 .. n_stages - 1). */
fr_status fr__plan_make_any(const struct fr__task *t, const char *planner, int n_stages,
                            const int *label, const int *replicas, const double *time_s,
                            double total_s, fr_plan **out);

/* The plan recomputes these nodes of the profile; on failure *out is freed and NULL. */
fr_status fr__plan_recompute(const struct fr__task *t, const bool *recompute, fr_plan **out);

/* Cost of a layout by the rules of one planner, for enumerations; INFINITY: not allowed.
 * Stages follow each other; together they cover all units. Sets time_s of each part. */
enum { FR__MOST_TRIED = 16 }; /* units, and so stages */
typedef double (*fr__score_fn)(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_exact(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_dapple(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_pipedream(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_adapipe(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_bapipe(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_spp(const struct fr__task *t, int n, struct fr__part *parts);
double fr__score_graphpipe(const struct fr__task *t, int n, struct fr__part *parts);
/* Sets t->order as spp does, and t->pair. */
fr_status fr__spp_order(struct fr__task *t);
/* Sorts `order`, which holds the vertices 0 .. n - 1, by recursive minimum cuts of a graph with
 * these weights, (n, n) and symmetric; see min_cut.c. */
fr_status fr__cut_order(fr_ctx *ctx, int n, const double *weight, int *order);

/* All devices: the fastest first; of equally fast ones those with more memory, then by the file. */
struct fr__ranked {
    double speed, memory;
    int device;
};
void fr__task_rank(const struct fr__task *t, struct fr__ranked *all); /* (n_all) */
/* The smallest value of a part's devices: of t->speed or t->memory. */
double fr__task_min(const struct fr__task *t, const double *values, const struct fr__part *p);

/* Least largest stage time over cuts, replicas and devices; see exact.c. Sets t->order. *n 0:
 * nothing fits. *is_proved: false where devices that differ had to count as alike. */
fr_status fr__exact_solve(struct fr__task *t, bool with_links, int *n, struct fr__part *parts,
                          bool *is_proved);

/* --- pipedream's states (states.c) -------------------------------------------------------------
 * A state is a part of the graph that is closed towards its inputs: what has been placed so far.
 * Sorted, so that what lies inside comes before what holds it. */
struct fr__states {
    int n;
    double *work, *params, *kept, *out; /* (n); out: bytes that leave it */
    uint64_t *inside;                   /* (n, words): units */
    uint64_t *before;                   /* (n, state words): states that may come before it */
    int words, state_words;
    bool is_chain; /* ranges of units in order */
};
static inline bool fr__bit(const uint64_t *bits, int i) { return bits[i >> 6] >> (i & 63) & 1; }
static inline void fr__set_bit(uint64_t *bits, int i) { bits[i >> 6] |= (uint64_t)1 << (i & 63); }
/* most: more states than that and the ranges in order are taken instead (is_chain says so). */
fr_status fr__states_make(struct fr__task *t, int most, struct fr__states *s);

/* Machines of each level of a cluster and their bandwidth, innermost first, where all groups of a
 * level are alike; 0: they are not. Levels of one machine are left out. */
enum { FR__MAX_LEVELS = 8 };
int fr__levels_of(const fr_cluster *c, int n[FR__MAX_LEVELS], double bandwidth[FR__MAX_LEVELS]);

extern const fr_planner fr__planner_pipedream, fr__planner_dapple, fr__planner_exact,
    fr__planner_bapipe, fr__planner_spp, fr__planner_dlplacer, fr__planner_list, fr__planner_brute,
    fr__planner_adapipe, fr__planner_pase, fr__planner_graphpipe;

#endif
