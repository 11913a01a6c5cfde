/* exact.c -- the least largest stage time over all cuts, replicas and devices, within memory.
 *
 * Stages are ranges of nodes; stage k of N takes any r_k devices of the cluster. What it costs for
 * each micro-batch:
 *
 *     T = max( (F + B) / (r speed) + (update / speed + 2 (r-1)/r P / bandwidth) / M,
 *              (bytes in + bytes out) / (r bandwidth) )
 *
 * the computation and the sum over replicas (once in M micro-batches), or its ports: both kinds of
 * border carry a value one way and a gradient the other. The slowest of its devices counts. A stage
 * holds min(M / r, N - k) activation sets, as 1F1B does, beside weights, gradients and optimizer
 * state; it must fit the smallest of its devices.
 *
 * Devices of one speed and one memory form a class: only how many of each class are in use matters.
 * The slots depend on how many stages come behind, so the table is filled from the end:
 * best[q][u][used] for units u .. in q stages, beside devices in use by the stages in front.
 * Without a memory limit q does not matter, and with one number of replicas on equal devices the
 * devices do not: both are then left out. Where there are too many classes, those of about one
 * speed become one with the numbers of its worst device, and the result is not proved. */
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>

struct cell {
    double time;
    int v, used; /* the first stage ends before unit v; devices in use with it; v 0: none fits */
};

struct class
{
    int n, first; /* devices; first of them in `members` */
    double speed, memory;
    int stride; /* of a state: one more device in use */
};

struct table {
    const struct fr__task *t;
    bool with_links;
    int n_layers; /* 0: stages are not counted */
    int n_states; /* 1: devices are not counted */
    int replicas; /* of every stage; 0: any */
    int n_classes;
    struct class *classes;
    int *members; /* (n_all) devices by class */
    struct cell *at;
};

static struct cell *cell(const struct table *b, int q, int u, int used)
{
    size_t row = (size_t)(b->n_layers ? q : 0) * (size_t)(b->t->n + 1) + (size_t)u;
    return &b->at[row * (size_t)b->n_states + (size_t)used];
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
        p->time_s = part_s(t, true, p->u, p->v, p->replicas, n - s, fr__task_min(t, t->speed, p),
                           fr__task_min(t, t->memory, p));
        worst = fmax(worst, p->time_s);
    }
    return worst;
}

/* --- classes of devices ----------------------------------------------------------------------- */

/* Devices whose speeds are within `ratio` are of one class; 0: only those that are alike. */
static void group_devices(struct table *b, const struct fr__ranked *all, double ratio)
{
    b->n_classes = 0;
    for (int i = 0; i < b->t->n_all; i++) {
        const struct fr__ranked *at = &all[i];
        struct class *last = b->n_classes ? &b->classes[b->n_classes - 1] : NULL;
        bool is_like = last && (ratio > 0 ? all[last->first].speed <= ratio * at->speed
                                          : last->speed == at->speed && last->memory == at->memory);
        if (!is_like) {
            last = &b->classes[b->n_classes++];
            *last = (struct class){.first = i, .memory = INFINITY};
        }
        last->n++, last->speed = at->speed, last->memory = fmin(last->memory, at->memory);
        b->members[i] = at->device;
    }
}

/* Ways to go on from all states together: what each pair of units costs. */
static double count_ways(const struct table *b)
{
    double n_states = 1, ways = 1, r = b->replicas;
    for (int i = 0; i < b->n_classes; i++) {
        double n = fmin(b->classes[i].n, b->t->n_devices);
        n_states *= n + 1;
        ways *= (n + 2) / 2; /* of a state, in the mean */
    }
    if (r > 0) ways = fmin(ways, pow(b->n_classes, r));
    return n_states * ways;
}

static fr_status make_classes(struct table *b, double per_way, bool *is_proved)
{
    static const double ratios[] = {0, 1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, INFINITY};
    const struct fr__task *t = b->t;
    const double seconds = t->problem->seconds > 0 ? fmin(t->problem->seconds, 1) : 1;
    const double most = 2e8 * seconds; /* more only where all are of one class */
    const int n = t->n_all;
    struct fr__ranked *all = FR_NEW_ARRAY(struct fr__ranked, n);
    b->members = FR_NEW_ARRAY(int, n);
    b->classes = FR_NEW_ARRAY(struct class, n);
    if (!all || !b->members || !b->classes) {
        fr__free(all);
        return fr__no_memory(t->ctx, (size_t)n * sizeof *all, "the devices of exact");
    }
    fr__task_rank(t, all);
    size_t k = 0, n_ratios = sizeof ratios / sizeof *ratios;
    group_devices(b, all, ratios[0]);
    while (b->n_classes > 1 && count_ways(b) * per_way > most && ++k < n_ratios)
        group_devices(b, all, ratios[k]);
    fr__free(all);
    *is_proved = k == 0;
    double n_states = 1;
    for (int i = 0; i < b->n_classes; i++) {
        struct class *at = &b->classes[i];
        if (at->n > t->n_devices) at->n = t->n_devices;
        at->stride = (int)n_states;
        n_states *= at->n + 1; /* no more than `most`, or those of one class */
    }
    b->n_states = b->replicas && t->are_alike ? 1 : (int)n_states;
    return FR_OK;
}

/* --- the table -------------------------------------------------------------------------------- */

/* The cell being filled: units u .. in q stages beside `used` devices. */
struct filling {
    const struct table *b;
    int q, u, used, most; /* most: devices that its first stage may take */
    struct cell *to;
};

static void consider(const struct filling *f, int r, int used, double speed, double memory)
{
    const struct table *b = f->b;
    const struct fr__task *t = b->t;
    for (int v = f->u + 1; v <= t->n; v++) {
        bool ends = b->n_layers ? f->q == 1 : v == t->n;
        if (ends && v < t->n) continue;
        double rest = ends ? 0 : cell(b, f->q - 1, v, used)->time;
        if (rest >= f->to->time) continue;
        double time = part_s(t, b->with_links, f->u, v, r, f->q, speed, memory);
        if (time < rest) time = rest;
        if (time < f->to->time) *f->to = (struct cell){time, v, used};
    }
}

/* All ways to take devices of the classes from i on, beside the r taken of others. */
static void pick(const struct filling *f, int i, int r, int used, double speed, double memory)
{
    const struct table *b = f->b;
    if (i == b->n_classes) {
        if (r > 0 && fr__task_may(b->t, r)) consider(f, r, used, speed, memory);
        return;
    }
    const struct class *c = &b->classes[i];
    int left = c->n - used / c->stride % (c->n + 1);
    pick(f, i + 1, r, used, speed, memory);
    for (int m = 1; m <= left && r + m <= f->most; m++)
        pick(f, i + 1, r + m, used + m * c->stride, fmin(speed, c->speed), fmin(memory, c->memory));
}

static int devices_in(const struct table *b, int used)
{
    int n = 0;
    for (int i = 0; i < b->n_classes; i++) n += used / b->classes[i].stride % (b->classes[i].n + 1);
    return n;
}

static void fill(const struct table *b, int q, int u, int used)
{
    struct filling f = {.b = b, .q = q, .u = u, .used = used, .to = cell(b, q, u, used)};
    f.most = b->t->n_devices - devices_in(b, used);
    if (b->replicas && b->replicas < f.most) f.most = b->replicas;
    *f.to = (struct cell){.time = INFINITY};
    if (b->n_states == 1)
        consider(&f, b->replicas, 0, b->t->slowest, b->t->least);
    else
        pick(&f, 0, 0, used, INFINITY, INFINITY);
}

/* Reads the plan off the table; t->order holds the devices of its stages, then the others. */
static int walk(const struct table *b, struct fr__task *t, int q, struct fr__part *parts)
{
    int n = 0, n_taken = 0;
    for (int u = 0, used = 0; u < t->n; n++, q--) {
        const struct cell *c = cell(b, q, u, used);
        parts[n] = (struct fr__part){.u = u, .v = c->v, .device = n_taken};
        for (int i = 0; i < b->n_classes && b->n_states > 1; i++) {
            struct class *k = &b->classes[i];
            int m = c->used / k->stride % (k->n + 1) - used / k->stride % (k->n + 1);
            for (; m > 0; m--, k->first++) {
                t->order[n_taken++] = b->members[k->first];
                b->members[k->first] = -1;
            }
        }
        if (b->n_states == 1) n_taken += b->replicas;
        parts[n].replicas = n_taken - parts[n].device;
        u = c->v, used = c->used;
    }
    for (int i = 0; i < t->n_all && b->n_states > 1; i++)
        if (b->members[i] >= 0) t->order[n_taken++] = b->members[i];
    return n;
}

static fr_status solve(struct table *b, struct fr__task *t, int most, int *n,
                       struct fr__part *parts)
{
    const int wanted = t->problem->n_stages;
    double tries = (double)(b->n_layers ? b->n_layers : 1) * t->n * t->n / 2 *
                   (b->n_states == 1 ? 1 : count_ways(b));
    if (tries > 5e8) /* some seconds */
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "exact: %.1g combinations of cuts, stages and replicas are too many; ask "
                       "for one number of replicas or stages, or fewer devices",
                       tries);
    size_t cells = (size_t)(b->n_layers + 1) * (size_t)(t->n + 1) * (size_t)b->n_states;
    b->at = FR_NEW_ARRAY(struct cell, cells);
    if (!b->at) return fr__no_memory(t->ctx, cells * sizeof(struct cell), "the table of exact");
    for (size_t i = 0; i < cells; i++) b->at[i].time = INFINITY;
    for (int q = 1; q <= (b->n_layers ? b->n_layers : 1); q++)
        for (int u = t->n - 1; u >= 0; u--)
            for (int used = b->n_states - 1; used >= 0; used--) fill(b, q, u, used);
    int best = wanted ? wanted : 1;
    for (int q = best + 1; q <= b->n_layers && q <= most; q++)
        if (cell(b, q, 0, 0)->time < cell(b, best, 0, 0)->time) best = q;
    if (isfinite(cell(b, best, 0, 0)->time)) *n = walk(b, t, best, parts);
    return FR_OK;
}

fr_status fr__exact_solve(struct fr__task *t, bool with_links, int *n, struct fr__part *parts,
                          bool *is_proved)
{
    const int wanted = t->problem->n_stages;
    const int r = t->n_devices == 1 ? 1 : t->problem->replicas;
    struct table b = {.t = t, .with_links = with_links, .replicas = r};
    int most = r ? t->n_devices / r : t->n_devices;
    bool has_limit = false;
    *n = 0, *is_proved = true;
    if (most > t->n) most = t->n;
    if (wanted) most = wanted <= most ? wanted : 0;
    if (most == 0) return FR_OK;
    for (int d = 0; d < t->n_all; d++) has_limit = has_limit || isfinite(t->memory[d]);
    b.n_layers = wanted || (r && t->are_alike) || has_limit ? most : 0;
    fr_status status =
        make_classes(&b, (double)(b.n_layers ? b.n_layers : 1) * t->n * t->n / 2, is_proved);
    if (status == FR_OK) status = solve(&b, t, most, n, parts);
    fr__free(b.at), fr__free(b.classes), fr__free(b.members);
    return status;
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    int n = 0, worst = 0;
    bool is_proved = true;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    if (!parts) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    FR_TRY(fr__exact_solve(t, true, &n, parts, &is_proved));
    if (n == 0)
        return fr_fail(t->ctx, FR_INVALID,
                       "exact: no cut of %d nodes into %s stages fits %d devices of %.3g GB; "
                       "allow more devices or memory, or another number of stages",
                       t->n_nodes, t->problem->n_stages ? "so many" : "any number of", t->n_devices,
                       t->least / 1e9);
    double time = fr__score_exact(t, n, parts);
    FR_TRY(fr__plan_make(t, "exact", n, parts, time, out));
    for (int s = 1; s < n; s++)
        if (parts[s].time_s > parts[worst].time_s) worst = s;
    (*out)->is_optimal = is_proved && t->n == t->n_nodes;
    snprintf((*out)->why, sizeof(*out)->why,
             "the slowest of %d stages is %d: %.6g s for each micro-batch, and no cut into "
             "ranges of nodes on any devices has a faster slowest one%s%s%s",
             n, worst, parts[worst].time_s,
             isfinite(t->least) ? " within the memory of its devices (1F1B)" : "",
             is_proved ? "" : " (devices of nearly one speed counted as the slower one)",
             fr__task_note(t));
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, FR__MOST_UNITS, make, out);
}

const fr_planner fr__planner_exact = {
    .name = "exact",
    .summary = "least slowest stage over cuts, replicas and devices, within memory for 1F1B",
    .method = "1f1b",
    .plan = plan,
};
