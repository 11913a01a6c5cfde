/* exact.c -- the least largest stage time over all cuts, replicas and devices, within memory.
 *
 * Stages are ranges of nodes; stage k of N takes r_k devices that lie side by side, in the order of
 * the cluster. What it costs for each micro-batch:
 *
 *     T = max( (F + B) / (r speed) + (update / speed + 2 (r-1)/r P / bandwidth) / M,
 *              (bytes in + bytes out) / (r bandwidth) )
 *
 * the computation and the sum over replicas (once in M micro-batches), or its ports: both kinds of
 * border carry a value one way and a gradient the other. The slowest of its devices counts. A stage
 * holds min(M / r, N - k) activation sets, as 1F1B does, beside weights, gradients and optimizer
 * state; it must fit the smallest of its devices.
 *
 * The slots depend on how many stages come behind, so the table is filled from the end:
 * best[q][u][d] for units u .. in q stages on devices d .. . Without a memory limit q does not
 * matter, and with one number of replicas on equal devices d does not: both are then left out. */
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>

struct cell {
    double time;
    int v, r; /* the first stage ends before unit v and takes r devices; r 0: device d is idle */
};

struct table {
    const struct fr__task *t;
    bool with_links;
    int n_layers; /* 0: stages are not counted */
    int n_d;      /* 1: devices are not counted */
    int replicas; /* of every stage; 0: any */
    struct cell *at;
};

static struct cell *cell(const struct table *b, int q, int u, int d)
{
    size_t row = (size_t)(b->n_layers ? q : 0) * (size_t)(b->t->n + 1) + (size_t)u;
    return &b->at[row * (size_t)(b->n_d + 1) + (size_t)(b->n_d > 1 ? d : 0)];
}

static double part_s(const struct fr__task *t, bool with_links, int u, int v, int r, int q,
                     double speed, double memory)
{
    double share = ceil((double)t->n_micro / r), slots = share < q ? share : q;
    if (fr__task_fixed(t, u, v) + slots * (t->kept[v] - t->kept[u]) > memory) return INFINITY;
    double work = fr__task_work(t, u, v) / (r * speed);
    double once = (t->update[v] - t->update[u]) / speed;
    if (with_links) once += fr__task_sum_s(t, u, v, r);
    work += once / t->n_micro;
    double ports = with_links ? (t->cut[u] + t->cut[v]) / (r * t->bandwidth) : 0;
    return work > ports ? work : ports;
}

double fr__score_exact(const struct fr__task *t, int n, struct fr__part *parts)
{
    double worst = 0;
    for (int s = 0; s < n; s++) {
        struct fr__part *p = &parts[s];
        double speed = INFINITY, memory = INFINITY;
        for (int d = p->device; d < p->device + p->replicas; d++)
            speed = fmin(speed, t->speed[d]), memory = fmin(memory, t->memory[d]);
        p->time_s = part_s(t, true, p->u, p->v, p->replicas, n - s, speed, memory);
        worst = fmax(worst, p->time_s);
    }
    return worst;
}

/* Units u .. in q stages (any number, if stages are not counted) on devices d .. */
static void fill(const struct table *b, int q, int u, int d)
{
    const struct fr__task *t = b->t;
    const int wanted = b->replicas, last_d = b->n_d > 1 ? t->n_devices : wanted;
    struct cell *c = cell(b, q, u, d);
    *c = (struct cell){.time = INFINITY};
    if (b->n_d > 1 && !t->are_alike && d < t->n_devices) {
        c->time = cell(b, q, u, d + 1)->time;
        c->v = u;
    }
    double speed = INFINITY, memory = INFINITY;
    for (int r = 1; d + r <= last_d; r++) {
        speed = fmin(speed, t->speed[d + r - 1]), memory = fmin(memory, t->memory[d + r - 1]);
        if (!fr__task_may(t, r)) continue;
        for (int v = u + 1; v <= t->n; v++) {
            bool ends = b->n_layers ? q == 1 : v == t->n;
            if (ends && v < t->n) continue;
            double rest = ends ? 0 : cell(b, q - 1, v, d + r)->time;
            if (rest >= c->time) continue;
            double time = part_s(t, b->with_links, u, v, r, q, speed, memory);
            if (time < rest) time = rest;
            if (time < c->time) *c = (struct cell){time, v, r};
        }
    }
}

static int walk(const struct table *b, int q, struct fr__part *parts)
{
    const struct fr__task *t = b->t;
    int n = 0;
    for (int u = 0, d = 0; u < t->n;) {
        const struct cell *c = cell(b, q, u, d);
        if (c->r == 0) {
            d++;
            continue;
        }
        parts[n++] = (struct fr__part){.u = u, .v = c->v, .replicas = c->r, .device = d};
        u = c->v, d += c->r, q--;
    }
    return n;
}

fr_status fr__exact_solve(const struct fr__task *t, bool with_links, int *n, struct fr__part *parts)
{
    const int wanted = t->problem->n_stages;
    const int r = t->n_devices == 1 ? 1 : t->problem->replicas;
    struct table b = {.t = t, .with_links = with_links, .replicas = r};
    int most = r ? t->n_devices / r : t->n_devices;
    *n = 0;
    if (most > t->n) most = t->n;
    if (wanted) most = wanted <= most ? wanted : 0;
    b.n_d = r && t->are_alike ? 1 : t->n_devices;
    b.n_layers = wanted || b.n_d == 1 || isfinite(t->least) ? most : 0;
    if (most == 0) return FR_OK;
    double tries = (double)(b.n_layers ? b.n_layers : 1) * t->n * t->n / 2 * b.n_d *
                   (r || b.n_d == 1 ? 1 : t->n_devices / 2.0);
    if (tries > 5e8) /* some seconds */
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "exact: %.1g combinations of cuts, stages and replicas are too many; ask "
                       "for one number of replicas or stages, or fewer devices",
                       tries);
    size_t cells = (size_t)(b.n_layers + 1) * (size_t)(t->n + 1) * (size_t)(b.n_d + 1);
    b.at = FR_NEW_ARRAY(struct cell, cells);
    if (!b.at) return fr__no_memory(t->ctx, cells * sizeof(struct cell), "the table of exact");
    for (size_t i = 0; i < cells; i++) b.at[i].time = INFINITY;
    for (int q = 1; q <= (b.n_layers ? b.n_layers : 1); q++)
        for (int u = t->n - 1; u >= 0; u--)
            for (int d = b.n_d - 1; d >= 0; d--) fill(&b, q, u, d);
    int best = wanted ? wanted : 1;
    for (int q = best + 1; q <= b.n_layers; q++)
        if (cell(&b, q, 0, 0)->time < cell(&b, best, 0, 0)->time) best = q;
    if (isfinite(cell(&b, best, 0, 0)->time)) *n = walk(&b, best, parts);
    for (int s = 1; s < *n && b.n_d == 1; s++) parts[s].device = s * r;
    fr__free(b.at);
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    struct fr__task t;
    int n = 0;
    *out = NULL;
    FR_TRY(fr__task_init(ctx, p, &t));
    struct fr__part *parts = FR_ARENA_ARRAY(&t.arena, struct fr__part, t.n);
    fr_status status = parts ? fr__exact_solve(&t, true, &n, parts)
                             : fr__no_memory(ctx, 0, "the stages of a plan");
    if (status == FR_OK && n == 0)
        status =
            fr_fail(ctx, FR_INVALID,
                    "exact: no cut of %d nodes into %s stages fits %d devices of %.3g GB; "
                    "allow more devices or memory, or another number of stages",
                    t.n, p->n_stages ? "so many" : "any number of", t.n_devices, t.least / 1e9);
    if (status == FR_OK) {
        double time = fr__score_exact(&t, n, parts);
        status = fr__plan_make(&t, "exact", n, parts, time, out);
    }
    if (status == FR_OK) {
        int worst = 0;
        for (int s = 1; s < n; s++)
            if (parts[s].time_s > parts[worst].time_s) worst = s;
        (*out)->is_optimal = true;
        snprintf((*out)->why, sizeof(*out)->why,
                 "the slowest of %d stages is %d: %.6g s for each micro-batch, and no cut into "
                 "ranges of nodes has a faster slowest one%s",
                 n, worst, parts[worst].time_s,
                 isfinite(t.least) ? " within the memory of its devices (1F1B)" : "");
    }
    fr__task_fini(&t);
    return status;
}

const fr_planner fr__planner_exact = {
    .name = "exact",
    .summary = "least slowest stage over cuts and replicas, within memory for 1F1B",
    .plan = plan,
};
