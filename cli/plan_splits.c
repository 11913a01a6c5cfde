/* plan_splits.c -- forerun plan CONFIG --planner pase: which layers to split inside themselves. A
 * report: training cannot run such splits yet. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

static void print_splits(const fr_plan *p)
{
    const fr_plan_splits *s = p->splits;
    printf(
        "%s: %.0f operations of each of %d devices, words sent counted as %.4g operations each\n",
        p->planner, s->cost, s->n_devices, s->ratio);
    printf("  split by batch alone %.0f, on one device %.0f\n", s->batch_cost, s->whole_cost);
    printf("  %10s %8s %8s  %15s  %6s  %s\n", "rows m", "out n", "in k", "parts of m n k", "share",
           "layer");
    for (int i = 0; i < s->n; i++) {
        const fr_plan_split *x = &s->at[i];
        char parts[48];
        snprintf(parts, sizeof parts, "%d x %d x %d", x->split[0], x->split[1], x->split[2]);
        cli_line("  %10.0f %8.0f %8.0f  %15s  %5.1f%%  %s", x->size[0], x->size[1], x->size[2],
                 parts, 100 * x->cost / s->cost, x->name);
    }
    printf("%s\n", p->why);
}

/* FLOP/s of this machine, if a device of the cluster says its speed only. */
static fr_status find_flops(const plan_wishes *o, const fr_cluster *c, fr_run_model *m,
                            double *flops)
{
    bool is_needed = false;
    for (int i = 0; c && i < c->n_devices; i++) is_needed |= !(c->devices[i].flops > 0);
    return is_needed && !(o->ratio > 0) ? fr_run_model_peak(m, flops) : FR_OK;
}

static fr_status plan_model(fr_ctx *ctx, const plan_wishes *o, const fr_planner *planner,
                            const fr_cluster *cluster, fr_run_model *model)
{
    fr_plan *plan = NULL;
    fr_plan_problem p = {.cluster = cluster,
                         .n_devices = (int)o->devices,
                         .graph = fr_run_model_graph(model),
                         .batch = fr_run_model_batch(model),
                         .ratio = o->ratio};
    FR_TRY(find_flops(o, cluster, model, &p.machine_flops));
    FR_TRY(planner->plan(ctx, &p, &plan));
    if (strcmp(o->format, "json") == 0)
        cli_print_plan(plan, NULL, true);
    else
        print_splits(plan);
    fr_plan_free(plan);
    return FR_OK;
}

fr_status cli_plan_splits(fr_ctx *ctx, const plan_wishes *o, const fr_planner *planner)
{
    fr_cluster *cluster = NULL;
    fr_run_model *model = NULL;
    const fr_run_options run = {
        .size = sizeof run, .config = o->config, .n_sets = o->sets.n, .sets = o->sets.at};
    if (o->out)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "%s splits layers inside themselves, which training cannot run yet; leave "
                       "--out out",
                       planner->name);
    if (!o->cluster && (!o->devices || !(o->ratio > 0)))
        return fr_fail(ctx, FR_INVALID,
                       "%s needs --cluster FILE, or --devices P and --ratio R (operations that a "
                       "device does while it sends a word of 4 bytes)",
                       planner->name);
    fr_status status = o->cluster ? fr_cluster_read(ctx, o->cluster, &cluster) : FR_OK;
    if (status == FR_OK) status = fr_run_model_open(ctx, &run, NULL, &model);
    if (status == FR_OK) status = plan_model(ctx, o, planner, cluster, model);
    fr_run_model_free(model);
    fr_cluster_free(cluster);
    return status;
}
