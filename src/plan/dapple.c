/* dapple.c -- DAPPLE's planner (Fan et al., PPoPP 2021): the least latency of a synchronous
 * mini-batch, over cuts and replicas.
 *
 * With M micro-batches, and Q the pivot, the stage without bubbles in its steady phase:
 *
 *     L = Tw + Ts + Te        Tw = sum of F_s, s <= Q      Ts = (M - 1) (F_Q + B_Q)
 *     Te = max over s of  AR_s + sum of B from s to Q  (s <= Q)   AR_s - sum of B from Q to s (s >
 * Q)
 *
 * The pivot is the stage on which L is longest: every other gives a path of the same mini-batch
 * that is no longer. F and B of a stage are shared out among its replicas; a border is a stage of
 * its own, F = B = bytes / (bandwidth r), r the replicas behind it, AR = 0; AR is a ring. With a
 * memory limit each device must hold its stage with one activation set (warm-ups shrink to what
 * fits).
 *
 * L does not split into a sum or a maximum over stages, but what the stages from some point on add
 * to any front is three numbers, in which L is monotone:
 *
 *     X  longest way down to a pivot there and back     (for a stage in front whose AR ends it)
 *     Y  longest way down to a pivot there, and an end there
 *     Z  latest end there, counted from a pivot in front
 *
 * so a table over (unit, devices) keeps every triple that no other beats, and the result is
 * exact. */
#include "base/vec.h"
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>

struct tail {
    double x, y, z;
    int v, r, next; /* the first stage ends before v on r devices; which triple of that follows */
};
typedef FR_VEC(struct tail) front;

struct step {
    double f, b, ar;
};

static struct step step_of(const struct fr__task *t, int u, int v, int r)
{
    double share = r * t->slowest;
    return (struct step){.f = (t->forward[v] - t->forward[u]) / share,
                         .b = (t->backward[v] - t->backward[u]) / share,
                         .ar = fr__task_sum_s(t, u, v, r) +
                               (t->update[v] - t->update[u]) / t->slowest};
}

static bool fits(const struct fr__task *t, int u, int v)
{
    return fr__task_fixed(t, u, v) + t->kept[v] - t->kept[u] <= t->least;
}

/* The rest with one more stage in front of it. */
static struct tail prepend(const struct fr__task *t, struct step s, struct tail rest)
{
    double steady = (t->n_micro - 1) * (s.f + s.b);
    struct tail a = rest;
    a.x = s.f + s.b + fmax(rest.x, steady);
    a.y = fmax(fmax(s.f + rest.y, s.ar + s.f + s.b + rest.x),
               fmax(s.f + steady + s.b + s.ar, s.f + steady + rest.z - s.b));
    a.z = fmax(s.ar, rest.z) - s.b;
    return a;
}

static const struct tail nothing = {.x = -INFINITY, .y = -INFINITY, .z = -INFINITY};

/* Stage i of the 2n - 1 that the parts and the borders between them make. */
static struct step step_at(const struct fr__task *t, const struct fr__part *parts, int i)
{
    const struct fr__part *p = &parts[(i + 1) / 2];
    if (i % 2 == 0) return step_of(t, p->u, p->v, p->replicas);
    double move = t->cut[p->u] / (t->bandwidth * p->replicas);
    return (struct step){move, move, 0};
}

/* Te: the latest end, counted from the last backward of pivot q. */
static double end_s(const struct fr__task *t, int total, const struct fr__part *parts, int q)
{
    double end = -INFINITY;
    for (int i = 0; i < total; i++) {
        double back = 0;
        for (int k = i; k <= q; k++) back += step_at(t, parts, k).b;
        for (int k = q; k <= i && i > q; k++) back -= step_at(t, parts, k).b;
        end = fmax(end, step_at(t, parts, i).ar + back);
    }
    return end;
}

/* Straight from the formula. */
double fr__score_dapple(const struct fr__task *t, int n, struct fr__part *parts)
{
    double worst = 0, down = 0;
    for (int i = 0; i < n; i++) {
        struct step s = step_of(t, parts[i].u, parts[i].v, parts[i].replicas);
        parts[i].time_s = s.f + s.b;
        if (!fits(t, parts[i].u, parts[i].v)) worst = INFINITY;
    }
    for (int q = 0; q < 2 * n - 1; q++) {
        struct step s = step_at(t, parts, q);
        down += s.f;
        worst = fmax(worst, down + (t->n_micro - 1) * (s.f + s.b) + end_s(t, 2 * n - 1, parts, q));
    }
    return worst;
}

static bool beats(const struct tail *a, const struct tail *b)
{
    return a->x <= b->x && a->y <= b->y && a->z <= b->z;
}

static bool keep(front *f, struct tail a)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (beats(&f->at[i], &a)) return true;
    for (size_t i = 0; i < f->n; i++)
        if (!beats(&a, &f->at[i])) f->at[n++] = f->at[i];
    f->n = n;
    return fr__vec_push(f, a);
}

struct table {
    const struct fr__task *t;
    int n_layers; /* 0: stages are not counted */
    front *at;    /* [stages left][unit][devices left] */
};

static front *cell(const struct table *b, int q, int u, int d)
{
    size_t row = (size_t)(b->n_layers ? q : 0) * (size_t)(b->t->n + 1) + (size_t)u;
    return &b->at[row * (size_t)(b->t->n_devices + 1) + (size_t)d];
}

/* All ways to run units u .. on at most d devices. */
static bool fill(const struct table *b, int q, int u, int d)
{
    const struct fr__task *t = b->t;
    front *f = cell(b, q, u, d);
    int wanted = t->problem->replicas;
    for (int v = u + 1; v <= t->n && fits(t, u, v); v++) {
        bool ends = v == t->n;
        if (b->n_layers && ends != (q == 1)) continue;
        for (int r = wanted ? wanted : 1; r <= (wanted && wanted < d ? wanted : d); r++) {
            if (!fr__task_may(t, r)) continue;
            struct step s = step_of(t, u, v, r), move = {0};
            const front *rest = ends ? NULL : cell(b, q - 1, v, d - r);
            move.f = move.b = t->cut[u] / (t->bandwidth * r);
            for (size_t i = 0; i < (ends ? 1 : rest->n); i++) {
                struct tail a = prepend(t, s, ends ? nothing : rest->at[i]);
                if (u) a = prepend(t, move, a);
                a.v = v, a.r = r, a.next = (int)i;
                if (!keep(f, a)) return false;
            }
        }
    }
    return true;
}

static int walk(const struct table *b, int q, struct fr__part *parts)
{
    const struct fr__task *t = b->t;
    int n = 0, best = 0, d = t->n_devices;
    const front *f = cell(b, q, 0, d);
    for (size_t i = 1; i < f->n; i++)
        if (f->at[i].y < f->at[best].y) best = (int)i;
    for (int u = 0; u < t->n;) {
        const struct tail *a = &cell(b, q, u, d)->at[best];
        parts[n++] =
            (struct fr__part){.u = u, .v = a->v, .replicas = a->r, .device = t->n_devices - d};
        u = a->v, d -= a->r, best = a->next, q--;
    }
    return n;
}

static fr_status solve(const struct fr__task *t, int *n, struct fr__part *parts)
{
    int wanted = t->problem->n_stages, most = t->n < t->n_devices ? t->n : t->n_devices;
    struct table b = {.t = t, .n_layers = wanted};
    double tries = (double)(wanted ? wanted : 1) * t->n * t->n / 2 * t->n_devices *
                   (t->problem->replicas ? 1 : t->n_devices / 2.0);
    *n = 0;
    if (tries > 2e7) /* some seconds */
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "dapple: %.1g combinations of cuts and replicas are too many; ask for one "
                       "number of replicas, or fewer devices",
                       tries);
    if (wanted > most) return FR_OK;
    size_t cells = (size_t)(wanted + 1) * (size_t)(t->n + 1) * (size_t)(t->n_devices + 1);
    b.at = FR_NEW_ARRAY(front, cells);
    bool is_whole = b.at != NULL;
    for (int q = 1; is_whole && q <= (wanted ? wanted : 1); q++)
        for (int u = t->n - 1; is_whole && u >= 0; u--)
            for (int d = 1; is_whole && d <= t->n_devices; d++) is_whole = fill(&b, q, u, d);
    if (is_whole && cell(&b, wanted ? wanted : 1, 0, t->n_devices)->n)
        *n = walk(&b, wanted ? wanted : 1, parts);
    for (size_t i = 0; b.at && i < cells; i++) fr__vec_fini(&b.at[i]);
    fr__free(b.at);
    return is_whole ? FR_OK : fr__no_memory(t->ctx, cells * sizeof(front), "the table of dapple");
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    int n = 0, pivot = 0;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    if (!parts) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    FR_TRY(solve(t, &n, parts));
    if (n == 0)
        return fr_fail(t->ctx, FR_INVALID,
                       "dapple: no layout of %d nodes fits %d devices of %.3g GB with one "
                       "activation set; allow more devices or memory, or other numbers",
                       t->n_nodes, t->n_devices, t->least / 1e9);
    FR_TRY(fr__plan_make(t, "dapple", n, parts, fr__score_dapple(t, n, parts), out));
    fr_plan *plan = *out;
    for (int s = 0; s < n; s++) {
        plan->stages[s].time_s = parts[s].time_s;
        if (parts[s].time_s > parts[pivot].time_s) pivot = s;
    }
    plan->is_optimal = t->n == t->n_nodes;
    snprintf(plan->why, sizeof plan->why,
             "a synchronous mini-batch of %d micro-batches takes %.6g s by DAPPLE's latency; "
             "of %d stages, %d has the longest steady phase (%.6g s a micro-batch)%s",
             t->n_micro, plan->time_s, n, pivot, parts[pivot].time_s, fr__task_note(t));
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, FR__MOST_UNITS, make, out);
}

const fr_planner fr__planner_dapple = {
    .name = "dapple",
    .summary = "least latency of a synchronous mini-batch around a pivot stage, with replicas",
    .method = "1f1b",
    .plan = plan,
};
