/* pase_plan.c -- planner pase: the report. The rule is in pase.c. */
#include "io/json.h"
#include "plan/pase.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORD = 4, MOST_DEVICES = 4096 }; /* WORD: bytes */

/* Operations that the slowest device does while a word is sent over the slowest link. */
static fr_status find_ratio(fr_ctx *ctx, const fr_plan_problem *p, fr_arena *a, double *ratio)
{
    const fr_cluster *c = p->cluster;
    double flops = INFINITY, bandwidth;
    *ratio = p->ratio;
    if (p->ratio > 0) return FR_OK;
    for (int i = 0; c && i < c->n_devices; i++) {
        const fr_cluster_device *d = &c->devices[i];
        double own = d->flops > 0 ? d->flops : d->speed * p->machine_flops;
        if (!(own > 0))
            return fr_fail(ctx, FR_INVALID,
                           "pase: device %s of the cluster has no FLOP/s; give it `flops`, or give "
                           "the ratio of operations to words sent",
                           d->name);
        flops = fmin(flops, own);
    }
    if (!c)
        return fr_fail(
            ctx, FR_INVALID,
            "pase: needs the ratio of operations to words sent, or a cluster with FLOP/s "
            "and bandwidths");
    if (!fr__slowest_link(a, c, &bandwidth)) return fr__no_memory(ctx, sizeof(int), "a cluster");
    *ratio = isfinite(bandwidth) ? flops / (bandwidth / WORD) : 0;
    return FR_OK;
}

/* Every layer cut by samples alone, into as many parts as all of them allow. */
static fr_status cost_by_batch(const fr__layers *l, int (*split)[3], double *cost)
{
    for (int v = 0; v < l->n; v++) {
        fr__cuttings ways;
        FR_TRY(fr__layer_cuttings(l, v, &ways));
        for (int i = 0; i < ways.n; i++)
            if (ways.at[i][FR__OUT] == 1 && ways.at[i][FR__IN] == 1)
                memcpy(split[v], ways.at[i], sizeof split[v]); /* they ascend */
    }
    *cost = fr__layers_cost(l, split);
    return FR_OK;
}

static fr_status solve(const fr__layers *l, fr_arena *a, fr_plan_splits *out)
{
    int(*split)[3] = fr__arena_alloc(l->arena, fr__array_bytes((size_t)l->n, sizeof *split));
    out->n = l->n, out->n_devices = l->n_devices, out->ratio = l->ratio;
    out->at = FR_ARENA_ARRAY(a, fr_plan_split, l->n);
    if (!split || !out->at) return fr__no_memory(l->ctx, sizeof *split, "splits");
    for (int v = 0; v < l->n; v++) split[v][0] = split[v][1] = split[v][2] = 1;
    out->whole_cost = fr__layers_cost(l, split);
    FR_TRY(cost_by_batch(l, split, &out->batch_cost));
    FR_TRY(fr__layers_solve(l, split, &out->cost));
    for (int v = 0; v < l->n; v++) {
        fr_plan_split *to = &out->at[v];
        to->name = fr__arena_strdup(a, l->at[v].name);
        if (!to->name) return fr__no_memory(l->ctx, 1, "splits");
        memcpy(to->size, l->at[v].size, sizeof to->size);
        memcpy(to->split, split[v], sizeof to->split);
        to->cost = fr__layer_cost(l, v, split[v]);
    }
    return FR_OK;
}

static void explain(const fr_plan_splits *s, char *why, size_t room)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->at[i].split[FR__OUT] * s->at[i].split[FR__IN] > 1;
    snprintf(
        why, room,
        "%d of %d layers are cut by more than samples; the count is %.1f %% of that by samples "
        "alone and %.1f %% of one device's. A report: Forerun cannot run tensor splits yet.",
        n, s->n, 100 * s->cost / s->batch_cost, 100 * s->cost / s->whole_cost);
}

static fr_status make(fr_ctx *ctx, const fr_plan_problem *p, fr_arena *scratch, fr_plan *plan)
{
    fr__layers l = {0};
    int n_all = p->cluster ? p->cluster->n_devices : p->n_devices;
    if (!p->graph || p->batch < 1)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "pase: splits layers by their shapes, which a profile does not have; give a "
                       "config");
    plan->splits = FR_ARENA_NEW(plan->arena, fr_plan_splits);
    if (!plan->splits) return fr__no_memory(ctx, sizeof *plan->splits, "a plan");
    FR_TRY(fr__layers_of(ctx, scratch, p->graph, p->batch, &l));
    l.n_devices = p->n_devices > 0 && p->n_devices < n_all ? p->n_devices : n_all;
    if (l.n_devices < 1 || l.n_devices > MOST_DEVICES)
        return fr_fail(ctx, FR_INVALID, "pase: %d devices; 1 to %d are possible", l.n_devices,
                       (int)MOST_DEVICES);
    FR_TRY(find_ratio(ctx, p, scratch, &l.ratio));
    FR_TRY(solve(&l, plan->arena, plan->splits));
    explain(plan->splits, plan->why, sizeof plan->why);
    plan->is_optimal = true;
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    fr_arena scratch = {0}, *a = FR_NEW(fr_arena);
    fr_plan *made = a ? FR_ARENA_NEW(a, fr_plan) : NULL;
    fr_status status = FR_OK;
    *out = NULL;
    if (made)
        made->planner = "pase", made->arena = a, status = make(ctx, p, &scratch, made);
    else
        status = fr__no_memory(ctx, sizeof *made, "a plan");
    fr__arena_fini(&scratch);
    if (status == FR_OK)
        *out = made;
    else
        fr__arena_free(a);
    return status;
}

void fr__write_splits(fr__json *j, const fr_plan *p)
{
    const fr_plan_splits *s = p->splits;
    fr__json_object(j, NULL);
    fr__json_text(j, "planner", p->planner);
    fr__json_int(j, "devices", s->n_devices);
    fr__json_real(j, "ratio", s->ratio);
    fr__json_list(j, "layers");
    for (int i = 0; i < s->n; i++) {
        fr__json_object(j, NULL);
        fr__json_text(j, "name", s->at[i].name);
        fr__json_list(j, "size");
        for (int d = 0; d < 3; d++) fr__json_real(j, NULL, s->at[i].size[d]);
        fr__json_end(j);
        fr__json_list(j, "split");
        for (int d = 0; d < 3; d++) fr__json_int(j, NULL, s->at[i].split[d]);
        fr__json_end(j);
        fr__json_real(j, "cost", s->at[i].cost);
        fr__json_end(j);
    }
    fr__json_end(j);
    fr__json_real(j, "cost", s->cost);
    fr__json_real(j, "cost_by_batch", s->batch_cost);
    fr__json_real(j, "cost_of_one_device", s->whole_cost);
    fr__json_bool(j, "is_optimal", p->is_optimal);
    fr__json_bool(j, "can_run", false);
    fr__json_text(j, "why", p->why);
    fr__json_end(j);
}

const fr_planner fr__planner_pase = {
    .name = "pase",
    .summary = "which layers to split inside themselves, by batch, outputs or inputs; a report",
    .splits_layers = true,
    .plan = plan,
};
