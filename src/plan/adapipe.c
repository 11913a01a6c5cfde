/* adapipe.c -- cuts with recompute in mind: the least slowest stage if each stage recomputes the
 * cheapest nodes that bring it under its memory.
 *
 * In the style of AdaPipe (ASPLOS 2024) and DawnPiper (Peng et al., 2025), whose texts
 * were not read; both choose by heuristics or nested tables what is exact here. Stage x of l (from
 * 1) holds l - x + 1 activation sets, as 1F1B does:
 *
 *     cost(i, j, x) = sum(f + b) + least f of nodes of i .. j - 1 whose kept bytes, times the sets,
 *                     bring the stage under its memory (a knapsack: cost/keep.h)
 *
 * Links, updates and the area into which a backward recomputes do not count; fr_plan_choose counts
 * all three. One device per stage, all like the slowest and smallest.
 *
 * best[q][u]: units u .. in q stages. cost grows with j, so for each cell a search by halves finds
 * where it crosses the rest behind it, and further ends are looked at only where that rest is below
 * the best so far: about ten knapsacks per cell. */
#include "cost/keep.h"
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_UNITS = 400, MOST_CELLS = 20000 };

struct cell {
    double time;
    int v; /* the first stage ends before unit v */
};

struct table {
    struct fr__task *t;
    fr__keep_node *nodes; /* (nodes of the profile) at one set */
    fr__keep_node *stage; /* (nodes of the profile) of the stage that is weighed */
    bool *recompute;      /* (nodes of the profile) of that stage, from 0 */
    bool is_proved;
    struct cell *at; /* [q][u] */
};

static struct cell *cell(const struct table *b, int q, int u)
{
    return &b->at[(size_t)q * (size_t)(b->t->n + 1) + (size_t)u];
}

/* Seconds of units u .. v - 1 as the stage with q - 1 behind it; INFINITY: they do not fit.
 * b->recompute has its nodes. */
static fr_status weigh(struct table *b, int u, int v, int q, double *seconds)
{
    const struct fr__task *t = b->t;
    const int first = t->node[u], n = t->node[v] - first;
    const double room = t->least - fr__task_fixed(t, u, v);
    const double kept = t->kept[v] - t->kept[u];
    fr__keep_set set = {.recompute = b->recompute, .seconds = 0, .is_least = true};
    memset(b->recompute, 0, (size_t)n * sizeof *b->recompute);
    if (q * kept > room) {
        for (int i = 0; i < n; i++) {
            b->stage[i] = b->nodes[first + i];
            b->stage[i].freed *= q;
        }
        FR_TRY(fr__keep_least(t->ctx, n, b->stage, q * kept - room, &set));
    }
    b->is_proved = b->is_proved && set.is_least;
    *seconds = (fr__task_work(t, u, v) + set.seconds) / t->slowest;
    return FR_OK;
}

static fr_status consider(struct table *b, int q, int u, int v, double *own)
{
    struct cell *to = cell(b, q, u);
    const double rest = q > 1 ? cell(b, q - 1, v)->time : 0;
    FR_TRY(weigh(b, u, v, q, own));
    if (fmax(*own, rest) < to->time) *to = (struct cell){fmax(*own, rest), v};
    return FR_OK;
}

static fr_status fill(struct table *b, int q, int u)
{
    const int n = b->t->n;
    int low = q > 1 ? u + 1 : n, high = n - (q - 1), end = high;
    double own;
    *cell(b, q, u) = (struct cell){.time = INFINITY};
    while (low < high) { /* the first end at which the stage is slower than the rest */
        int middle = (low + high) / 2;
        FR_TRY(consider(b, q, u, middle, &own));
        if (own < cell(b, q - 1, middle)->time)
            low = middle + 1;
        else
            high = middle;
    }
    for (int v = q > 1 ? u + 1 : n; v <= end; v++) {
        const double time = cell(b, q, u)->time;
        if (fr__task_work(b->t, u, v) / b->t->slowest >= time) break;
        if (q > 1 && cell(b, q - 1, v)->time >= time) continue;
        FR_TRY(consider(b, q, u, v, &own));
        if (own >= cell(b, q, u)->time) break; /* as are all that follow */
    }
    return FR_OK;
}

static fr_status prepare(struct table *b, int most)
{
    struct fr__task *t = b->t;
    const int n = t->profile->n_nodes;
    const size_t cells = (size_t)(most + 1) * (size_t)(t->n + 1);
    if (cells > MOST_CELLS)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "adapipe: %d nodes in up to %d stages are too many; ask for fewer stages or "
                       "devices",
                       t->n, most);
    b->nodes = FR_ARENA_ARRAY(&t->arena, fr__keep_node, n);
    b->stage = FR_ARENA_ARRAY(&t->arena, fr__keep_node, n);
    b->recompute = FR_ARENA_ARRAY(&t->arena, bool, n);
    b->at = FR_ARENA_ARRAY(&t->arena, struct cell, cells);
    if (!b->nodes || !b->stage || !b->recompute || !b->at)
        return fr__no_memory(t->ctx, cells * sizeof(struct cell), "the table of adapipe");
    for (size_t i = 0; i < cells; i++) b->at[i].time = INFINITY;
    for (int i = 0; i < n; i++)
        if (!t->profile->nodes[i].is_input)
            b->nodes[i] = (fr__keep_node){.seconds = t->profile->nodes[i].forward_s,
                                          .freed = (double)t->profile->nodes[i].kept_bytes};
    return FR_OK;
}

static fr_status solve(struct table *b, int *n_stages)
{
    struct fr__task *t = b->t;
    const int wanted = t->problem->n_stages;
    int most = t->n_devices < t->n ? t->n_devices : t->n;
    *n_stages = 0;
    if (t->problem->replicas > 1)
        return fr_fail(t->ctx, FR_INVALID, "adapipe: %d replicas of each stage; it has one",
                       t->problem->replicas);
    if (wanted > most) return FR_OK;
    if (wanted) most = wanted;
    FR_TRY(prepare(b, most));
    for (int q = 1; q <= most; q++)
        for (int u = t->n - q; u >= 0; u--) FR_TRY(fill(b, q, u));
    int best = wanted ? wanted : 1;
    for (int q = best + 1; q <= most; q++)
        if (cell(b, q, 0)->time < cell(b, best, 0)->time) best = q;
    if (isfinite(cell(b, best, 0)->time)) *n_stages = best;
    return FR_OK;
}

/* Stages and their recomputed nodes, read off the table. */
static fr_status walk(struct table *b, int n, struct fr__part *parts, bool *recompute)
{
    const struct fr__task *t = b->t;
    for (int s = 0, u = 0; s < n; s++) {
        const int v = cell(b, n - s, u)->v, first = t->node[u];
        parts[s] = (struct fr__part){.u = u, .v = v, .replicas = 1, .device = s};
        FR_TRY(weigh(b, u, v, n - s, &parts[s].time_s));
        for (int i = first; i < t->node[v]; i++)
            recompute[i] = b->recompute[i - first] && !t->profile->nodes[i].is_input;
        u = v;
    }
    return FR_OK;
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    struct table b = {.t = t, .is_proved = true};
    int n = 0, n_again = 0;
    double again_s = 0, forward_s = t->forward[t->n];
    FR_TRY(solve(&b, &n));
    if (n == 0)
        return fr_fail(t->ctx, FR_INVALID,
                       "adapipe: no cut of %d nodes into %s stages fits %d devices of %.3g GB, "
                       "even with all nodes recomputed; allow more devices or memory, or another "
                       "number of stages",
                       t->n_nodes, t->problem->n_stages ? "so many" : "any number of", t->n_devices,
                       t->least / 1e9);
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, n);
    bool *recompute = FR_ARENA_ARRAY(&t->arena, bool, t->profile->n_nodes);
    if (!parts || !recompute) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    FR_TRY(walk(&b, n, parts, recompute));
    FR_TRY(fr__plan_make(t, "adapipe", n, parts, cell(&b, n, 0)->time, out));
    FR_TRY(fr__plan_recompute(t, recompute, out));
    for (int i = 0; i < t->profile->n_nodes; i++) {
        n_again += recompute[i];
        again_s += recompute[i] ? t->profile->nodes[i].forward_s : 0;
    }
    (*out)->is_optimal = b.is_proved && t->n == t->n_nodes;
    snprintf((*out)->why, sizeof(*out)->why,
             "the slowest of %d stages takes %.6g s for each micro-batch, and no cut into ranges "
             "of nodes has a faster slowest one within the memory of its devices (1F1B); %d of %d "
             "nodes are recomputed, %.3g %% of the forward%s%s",
             n, (*out)->time_s, n_again, t->n_nodes, forward_s > 0 ? 100 * again_s / forward_s : 0,
             b.is_proved ? "" : " (not proved)", fr__task_note(t));
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, MOST_UNITS, make, out);
}

/* Every subset of the nodes of each stage. */
double fr__score_adapipe(const struct fr__task *t, int n, struct fr__part *parts)
{
    double worst = 0;
    for (int s = 0; s < n; s++) {
        struct fr__part *p = &parts[s];
        const double room = t->least - fr__task_fixed(t, p->u, p->v);
        double least = INFINITY;
        for (long set = 0; set < 1L << (p->v - p->u) && p->replicas == 1; set++) {
            double kept = t->kept[p->v] - t->kept[p->u], again = 0;
            for (int u = p->u; u < p->v; u++) {
                if (!(set >> (u - p->u) & 1)) continue;
                kept -= t->kept[u + 1] - t->kept[u], again += t->forward[u + 1] - t->forward[u];
            }
            if ((n - s) * kept <= room) least = fmin(least, again);
        }
        p->time_s = (fr__task_work(t, p->u, p->v) + least) / t->slowest;
        worst = fmax(worst, p->time_s);
    }
    return worst;
}

const fr_planner fr__planner_adapipe = {
    .name = "adapipe",
    .summary = "AdaPipe-style: cuts and recomputed nodes of the least slowest stage within memory",
    .method = "1f1b",
    .plan = plan,
};
