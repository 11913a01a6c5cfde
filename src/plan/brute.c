/* brute.c -- every layout, counted as another planner counts it: what the others are checked
 * against. For about 10 nodes and 4 devices.
 *
 * Layouts are all ways to cut the units into ranges, with all numbers of replicas; where devices
 * differ and the count looks at them, on all devices in all orders. For dlplacer's count it tries
 * every operator on every device in every order instead (place_brute.c). */
#include "plan/place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct objective {
    const char *name;
    fr__score_fn score;
    bool by_device; /* it looks at each device; others at the slowest of all */
    fr_status (*order)(struct fr__task *t); /* stages take devices in this order; NULL: any */
} objectives[] = {
    {"exact", fr__score_exact, true, NULL},
    {"pipedream", fr__score_pipedream, false, NULL},
    {"dapple", fr__score_dapple, false, NULL},
    {"bapipe", fr__score_bapipe, true, NULL},
    {"adapipe", fr__score_adapipe, false, NULL},
    {"spp", fr__score_spp, false, fr__spp_order},
    {"graphpipe", fr__score_graphpipe, false, NULL},
    {"dlplacer", NULL, false, NULL}, /* places operators, not ranges of them */
};

struct search {
    struct fr__task *t;
    fr__score_fn score;
    bool by_device;
    struct fr__part *parts, *best; /* (units) */
    int *order;                    /* (n_all) of the best */
    int n_best;
    double time;
    int64_t tried;
};

static void try_all(struct search *o, int n, int u, int device);

static void judge(struct search *o, int n)
{
    double time = o->score(o->t, n, o->parts);
    o->tried++;
    if (!(time < o->time)) return;
    o->time = time, o->n_best = n;
    memcpy(o->best, o->parts, (size_t)n * sizeof *o->best);
    memcpy(o->order, o->t->order, (size_t)o->t->n_all * sizeof *o->order);
}

static void swap(int *order, int a, int b)
{
    int device = order[a];
    order[a] = order[b], order[b] = device;
}

/* All sets of devices for the last stage so far: those before `from` of its places are taken; each
 * set comes once, as places are filled from the front of what is left. */
static void try_devices(struct search *o, int n, int from, int next)
{
    struct fr__part *p = &o->parts[n - 1];
    int end = p->device + p->replicas;
    if (from == end) {
        try_all(o, n, p->v, end);
        return;
    }
    for (int i = next; i < o->t->n_all; i++) {
        swap(o->t->order, from, i);
        try_devices(o, n, from + 1, i + 1);
        swap(o->t->order, from, i);
    }
}

static void try_all(struct search *o, int n, int u, int device)
{
    const struct fr__task *t = o->t;
    const fr_plan_problem *p = t->problem;
    if (u == t->n && (!p->n_stages || n == p->n_stages)) judge(o, n);
    if (p->n_stages && n == p->n_stages) return;
    for (int v = u + 1; v <= t->n; v++)
        for (int r = 1; device + r <= t->n_devices; r++) {
            if (!fr__task_may(t, r)) continue;
            o->parts[n] = (struct fr__part){.u = u, .v = v, .replicas = r, .device = device};
            if (o->by_device && !t->are_alike)
                try_devices(o, n + 1, device, device);
            else
                try_all(o, n + 1, v, device + r);
        }
}

static fr_status search_ranges(struct fr__task *t, const struct objective *by, fr_plan **out)
{
    struct search o = {.t = t, .score = by->score, .by_device = by->by_device, .time = INFINITY};
    if (t->n > FR__MOST_TRIED || t->n_devices > 8 ||
        (by->by_device && !t->are_alike && t->n_all > 8))
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "brute: %d nodes on %d devices would take too long; at most %d on 8", t->n,
                       t->n_devices, FR__MOST_TRIED);
    if (by->order) FR_TRY(by->order(t));
    o.parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    o.best = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    o.order = FR_ARENA_ARRAY(&t->arena, int, t->n_all);
    if (!o.parts || !o.best || !o.order) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    try_all(&o, 0, 0, 0);
    if (!o.n_best)
        return fr_fail(t->ctx, FR_INVALID, "brute: none of %lld layouts fits", (long long)o.tried);
    memcpy(t->order, o.order, (size_t)t->n_all * sizeof *o.order);
    o.time = by->score(t, o.n_best, o.best); /* and the times of its stages */
    FR_TRY(fr__plan_make(t, "brute", o.n_best, o.best, o.time, out));
    snprintf((*out)->why, sizeof(*out)->why, "the best of all %lld layouts", (long long)o.tried);
    return FR_OK;
}

static fr_status search_places(struct fr__task *t, fr_plan **out)
{
    struct fr__jobs jobs;
    struct fr__placing best;
    FR_TRY(fr__jobs_make(t, &jobs));
    if (jobs.n > 12)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "brute: %d operators in every order would take too long; at most 12",
                       jobs.n);
    FR_TRY(fr__placing_make(t->ctx, &t->arena, &jobs, &best));
    FR_TRY(fr__place_brute(t->ctx, &jobs, &best));
    FR_TRY(fr__plan_place(t, "brute", &jobs, &best, out));
    snprintf((*out)->why, sizeof(*out)->why, "every operator on every device in every order");
    return FR_OK;
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    const char *name = t->problem->objective ? t->problem->objective : "exact";
    size_t n = sizeof objectives / sizeof *objectives, i = 0;
    while (i < n && strcmp(objectives[i].name, name) != 0) i++;
    if (i == n)
        return fr_fail(t->ctx, FR_INVALID,
                       "brute: no planner '%s' to count as; exact, pipedream, dapple, bapipe, "
                       "adapipe, spp, graphpipe or dlplacer",
                       name);
    FR_TRY(objectives[i].score ? search_ranges(t, &objectives[i], out) : search_places(t, out));
    (*out)->is_optimal = true;
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, 0, make, out);
}

const fr_planner fr__planner_brute = {
    .name = "brute",
    .summary = "every layout of a small model, counted as another planner does",
    .method = "1f1b",
    .plan = plan,
};
