/* plan.h -- shared by the files of `forerun plan`. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "cli.h"

typedef struct plan_wishes {
    const char *config, *cluster, *profile, *machines, *bandwidth;
    const char *planner, *objective, *methods, *efficiency, *format, *out;
    cli_list sets;
    int64_t devices, stages, replicas, micro;
    double memory, seconds, ratio;
    bool contiguous, sync, async, all, no_recompute, is_quiet, want_json;
} plan_wishes;

/* With a config: one planner, or the whole choice (plan_config.c). */
fr_status cli_plan_config(fr_ctx *ctx, const plan_wishes *o);
/* The same by a planner with splits_layers (plan_splits.c). */
fr_status cli_plan_splits(fr_ctx *ctx, const plan_wishes *o, const fr_planner *planner);
void cli_print_plan(const fr_plan *p, const fr_profile *profile, bool as_json);
/* What measurements tell about asynchronous methods (plan_efficiency.c). */
enum { PLAN_MOST_RESULTS = 16 };
typedef struct plan_learned {
    const fr_method *method;
    int max_stages; /* with so many it was measured */
    char why[96];   /* it does not learn as well; "": it does */
} plan_learned;
typedef struct plan_evidence {
    int n;
    plan_learned at[PLAN_MOST_RESULTS];
} plan_evidence;
/* paths: results of forerun efficiency, "A,B"; batch: samples of a mini-batch. */
fr_status cli_plan_read_evidence(fr_ctx *ctx, const char *paths, int batch, plan_evidence *out);
const plan_learned *cli_plan_learned(const plan_evidence *e, const fr_method *m); /* NULL: none */

/* NULL after an error that lists them. */
const fr_planner *cli_find_planner(fr_ctx *ctx, const char *name);

#endif
