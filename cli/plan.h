/* plan.h -- shared by the two files of `forerun plan`. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "cli.h"

typedef struct plan_wishes {
    const char *config, *cluster, *profile, *machines, *bandwidth;
    const char *planner, *objective, *methods, *format, *out;
    cli_list sets;
    int64_t devices, stages, replicas, micro;
    double memory, seconds;
    bool contiguous, sync, async, all, no_recompute, is_quiet, want_json;
} plan_wishes;

/* With a config: one planner, or the whole choice (plan_config.c). */
fr_status cli_plan_config(fr_ctx *ctx, const plan_wishes *o);
void cli_print_plan(const fr_plan *p, const fr_profile *profile, bool as_json);
/* NULL after an error that lists them. */
const fr_planner *cli_find_planner(fr_ctx *ctx, const char *name);

#endif
