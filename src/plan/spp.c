/* spp.c -- SPP-style (Luo et al., INFOCOM 2022; only the abstract was read, the rules are
 * recalled): stages, replicas and devices for synchronous 1F1B with a lead of 4.
 *
 * M micro-batches on x stages take no more than (M + 4 x - 4) w, where w is the largest time of a
 * stage (forward and backward of a micro-batch) or of a link (a value and its gradient). Replicas
 * add up their gradients once in the mini-batch. All devices are used. Minimised is
 *
 *     (M + 4 x - 4) w + largest sum        stage  (F + B) / (r speed)
 *                                          link   2 bytes / (bandwidth min(r, r'))
 *                                          sum    2 (r - 1) / r P / bandwidth
 *
 * over cuts, x and the replicas r of each stage. Devices are first put in an order by recursive
 * minimum cuts of the graph of bandwidths (min_cut.c); stages take them from the front. The slowest
 * device of a stage counts, and the slowest pair of devices of a link or a sum.
 *
 * The table w(x, j, d, r) has units 0 .. j - 1 in x stages on the first d devices, r of them for
 * the last stage. Time and sum are two numbers, so it keeps every pair that no other beats, and the
 * result is exact. With a memory limit a stage must fit with the activation sets of that lead. */
#include "base/vec.h"
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAD = 4, MOST_ORDERED = 128, MOST_UNITS = 1000 };

/* --- devices ---------------------------------------------------------------------------------- */

static const double many = 1 << 20;  /* bytes: what a byte takes, without latency */
static const double no_limit = 1e18; /* bytes/s of a link that is free */

/* Bandwidth between devices a and b of levels of machines. */
static double level_pair(const fr_plan_problem *p, int a, int b)
{
    int l = 0;
    for (int n = p->level_n[0]; l < p->n_levels - 1 && a / n != b / n; n *= p->level_n[l]) l++;
    return p->level_bandwidth[l];
}

/* (n_devices, n_devices) by place in the order. */
static fr_status fill_pairs(struct fr__task *t)
{
    const fr_plan_problem *p = t->problem;
    const int n = t->n_devices;
    fr_links *links = NULL;
    if (p->cluster && !(p->bandwidth > 0)) FR_TRY(fr_links_create(t->ctx, p->cluster, &links));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const int a = t->order[i], b = t->order[k];
            double *to = &t->pair[(size_t)i * (size_t)n + (size_t)k], each;
            *to = t->bandwidth;
            if (i != k && links) {
                each = fr_links_send_time(links, a, b, (size_t)many) -
                       fr_links_send_time(links, a, b, 0);
                *to = each > 0 ? many / each : INFINITY;
            } else if (i != k && p->n_levels > 1) {
                *to = level_pair(p, a, b);
            }
        }
    fr_links_free(links);
    return FR_OK;
}

fr_status fr__spp_order(struct fr__task *t)
{
    const int n = t->n_devices;
    const size_t cells = (size_t)n * (size_t)n;
    double *weight = FR_ARENA_ARRAY(&t->arena, double, cells);
    int *order = FR_ARENA_ARRAY(&t->arena, int, 2 * n);
    bool is_even = true;
    t->pair = FR_ARENA_ARRAY(&t->arena, double, cells);
    if (!weight || !order || !t->pair)
        return fr__no_memory(t->ctx, cells * sizeof(double), "the devices of spp");
    FR_TRY(fill_pairs(t));
    for (size_t i = 0; i < cells; i++) {
        weight[i] = fmin(t->pair[i], no_limit);
        is_even = is_even && (i / (size_t)n == i % (size_t)n || weight[i] == weight[1]);
    }
    if (is_even) return FR_OK; /* any order is as good */
    if (n > MOST_ORDERED)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "spp: %d devices with different links are too many to put in order; at most "
                       "%d (--devices)",
                       n, MOST_ORDERED);
    for (int i = 0; i < n; i++) order[i] = i;
    FR_TRY(fr__cut_order(t->ctx, n, weight, order));
    for (int i = 0; i < n; i++) order[n + i] = t->order[order[i]];
    memcpy(t->order, order + n, (size_t)n * sizeof *order);
    return fill_pairs(t);
}

/* The slowest pair of devices between the places a .. b - 1 and c .. d - 1. */
static double slowest_pair(const struct fr__task *t, int a, int b, int c, int d)
{
    double least = INFINITY;
    for (int i = a; i < b; i++)
        for (int k = c; k < d; k++)
            if (i != k) least = fmin(least, t->pair[(size_t)i * (size_t)t->n_devices + (size_t)k]);
    return least;
}

/* --- costs ------------------------------------------------------------------------------------ */

/* Of r devices that begin at a place. */
struct seat {
    double speed, memory, bandwidth; /* least of them; bandwidth: between two of them */
};

static struct seat seat_at(const struct fr__task *t, int device, int r)
{
    const struct fr__part p = {.device = device, .replicas = r};
    return (struct seat){.speed = fr__task_min(t, t->speed, &p),
                         .memory = fr__task_min(t, t->memory, &p),
                         .bandwidth = slowest_pair(t, device, device + r, device, device + r)};
}

static double work_s(const struct fr__task *t, const struct seat *at, int u, int v, int r)
{
    return fr__task_work(t, u, v) / (r * at->speed);
}

static double sum_s(const struct fr__task *t, const struct seat *at, int u, int v, int r)
{
    return r > 1 ? 2.0 * (r - 1) / r * (t->params[v] - t->params[u]) / at->bandwidth : 0;
}

static double link_s(const struct fr__task *t, int u, int before, int r, double bandwidth)
{
    return 2 * t->cut[u] / (bandwidth * (r < before ? r : before));
}

/* With the activation sets of the lead; n_behind: devices of later stages. */
static bool fits(const struct fr__task *t, const struct seat *at, int u, int v, int r, int n_behind)
{
    double share = ceil((double)t->n_micro / r), ahead = ceil((double)LEAD * n_behind / r);
    double slots = fmin(share, fmax(ahead, 1));
    return fr__task_fixed(t, u, v) + slots * (t->kept[v] - t->kept[u]) <= at->memory;
}

static double total_s(const struct fr__task *t, int n_stages, double slowest, double sum)
{
    return (t->n_micro + 4 * n_stages - 4) * slowest + sum;
}

double fr__score_spp(const struct fr__task *t, int n, struct fr__part *parts)
{
    double slowest = 0, sum = 0;
    int used = 0;
    for (int s = 0; s < n; s++) {
        struct fr__part *p = &parts[s];
        const struct seat at = seat_at(t, p->device, p->replicas);
        used += p->replicas;
        if (!fits(t, &at, p->u, p->v, p->replicas, t->n_devices - used)) return INFINITY;
        p->time_s = work_s(t, &at, p->u, p->v, p->replicas);
        slowest = fmax(slowest, p->time_s);
        sum = fmax(sum, sum_s(t, &at, p->u, p->v, p->replicas));
        if (s == 0) continue;
        const double bandwidth =
            slowest_pair(t, p[-1].device, p->device, p->device, p->device + p->replicas);
        slowest = fmax(slowest, link_s(t, p->u, p[-1].replicas, p->replicas, bandwidth));
    }
    return used == t->n_devices ? total_s(t, n, slowest, sum) : INFINITY;
}

/* --- the table -------------------------------------------------------------------------------- */

struct way {
    double slowest, sum;
    int u, before, next; /* the last stage begins at u; replicas in front of it; its way there */
};
typedef FR_VEC(struct way) front;

struct table {
    const struct fr__task *t;
    struct seat *seats; /* [place][r] */
    double *across;     /* [place][r in front of it][r]: slowest pair between two stages */
    front *at;          /* [stages - 1][units][devices][r] */
    double best;        /* of whole layouts so far */
    double fastest;     /* speed of a device */
};

static size_t index3(const struct fr__task *t, int a, int b, int c)
{
    const size_t n = (size_t)t->n_devices + 1;
    return ((size_t)a * n + (size_t)b) * n + (size_t)c;
}

static front *cell(const struct table *b, int x, int j, int d, int r)
{
    const size_t plane = (size_t)(b->t->n_devices + 1) * (size_t)(b->t->n_devices + 1);
    return &b->at[((size_t)(x - 1) * (size_t)b->t->n + (size_t)(j - 1)) * plane +
                  index3(b->t, 0, d, r)];
}

static bool keep(front *f, struct way a)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (f->at[i].slowest <= a.slowest && f->at[i].sum <= a.sum) return true;
    for (size_t i = 0; i < f->n; i++)
        if (!(a.slowest <= f->at[i].slowest && a.sum <= f->at[i].sum)) f->at[n++] = f->at[i];
    f->n = n;
    return fr__vec_push(f, a);
}

/* No layout that begins with units 0 .. j - 1 in x stages on d devices takes less. */
static double least_s(const struct table *b, int x, int j, int d, double slowest, double sum)
{
    const struct fr__task *t = b->t;
    if (j == t->n) return total_s(t, x, slowest, sum);
    const double rest = fr__task_work(t, j, t->n) / ((t->n_devices - d) * b->fastest);
    return total_s(t, x + 1, fmax(slowest, rest), sum);
}

/* The ways to one stage of units u .. j - 1 behind x - 1 others. */
static bool append(struct table *b, int x, int u, int j, int d, int r, front *to)
{
    const struct fr__task *t = b->t;
    const struct seat *at = &b->seats[index3(t, 0, d - r, r)];
    const double work = work_s(t, at, u, j, r), sum = sum_s(t, at, u, j, r);
    if (x == 1) return keep(to, (struct way){work, sum, 0, 0, 0});
    for (int before = 1; before <= d - r; before++) {
        const front *rest = cell(b, x - 1, u, d - r, before);
        if (rest->n == 0) continue;
        const double bandwidth = b->across[index3(t, d - r, before, r)];
        const double own = fmax(work, link_s(t, u, before, r, bandwidth));
        for (size_t i = 0; i < rest->n; i++) {
            struct way a = {fmax(own, rest->at[i].slowest), fmax(sum, rest->at[i].sum), u, before,
                            (int)i};
            if (least_s(b, x, j, d, a.slowest, a.sum) < b->best && !keep(to, a)) return false;
        }
    }
    return true;
}

static bool fill(struct table *b, int x, int j, int d, int r)
{
    const struct fr__task *t = b->t;
    const struct seat *at = &b->seats[index3(t, 0, d - r, r)];
    front *to = cell(b, x, j, d, r);
    if ((j == t->n) != (d == t->n_devices)) return true; /* all units, all devices */
    if (x == 1) {
        if (d != r || !fits(t, at, 0, j, r, t->n_devices - d)) return true;
        return append(b, x, 0, j, d, r, to);
    }
    for (int u = j - 1; u >= x - 1; u--) {
        if (least_s(b, x, j, d, work_s(t, at, u, j, r), 0) >= b->best) break;
        if (!fits(t, at, u, j, r, t->n_devices - d)) break;
        if (!append(b, x, u, j, d, r, to)) return false;
    }
    return true;
}

/* Of whole layouts of x stages. */
static void find_best(struct table *b, int x, int *n, int *replicas, int *way)
{
    const struct fr__task *t = b->t;
    for (int r = 1; r <= t->n_devices; r++) {
        const front *f = cell(b, x, t->n, t->n_devices, r);
        for (size_t i = 0; i < f->n; i++) {
            const double total = total_s(t, x, f->at[i].slowest, f->at[i].sum);
            if (!(total < b->best)) continue;
            b->best = total, *n = x, *replicas = r, *way = (int)i;
        }
    }
}

static void walk(const struct table *b, int n, int r, int way, struct fr__part *parts)
{
    const struct fr__task *t = b->t;
    for (int x = n, j = t->n, d = t->n_devices; x > 0; x--) {
        const struct way *a = &cell(b, x, j, d, r)->at[way];
        parts[x - 1] = (struct fr__part){.u = a->u, .v = j, .replicas = r, .device = d - r};
        j = a->u, d -= r, r = a->before, way = a->next;
    }
}

static void fill_seats(struct table *b)
{
    const struct fr__task *t = b->t;
    const int n = t->n_devices;
    for (int d = 0; d < n; d++)
        for (int r = 1; d + r <= n; r++) b->seats[index3(t, 0, d, r)] = seat_at(t, d, r);
    for (int d = 1; d < n; d++)
        for (int before = 1; before <= d; before++)
            for (int r = 1; d + r <= n; r++) {
                double least = t->pair[(size_t)(d - before) * (size_t)n + (size_t)(d + r - 1)];
                if (before > 1) least = fmin(least, b->across[index3(t, d, before - 1, r)]);
                if (r > 1) least = fmin(least, b->across[index3(t, d, before, r - 1)]);
                b->across[index3(t, d, before, r)] = least;
            }
}

static bool fill_all(struct table *b, int most, int *n, struct fr__part *parts)
{
    const struct fr__task *t = b->t;
    const int wanted = t->problem->n_stages;
    int replicas = 0, way = 0;
    fill_seats(b);
    for (int d = 0; d < t->n_devices; d++) b->fastest = fmax(b->fastest, t->speed[t->order[d]]);
    for (int x = 1; x <= most; x++) {
        for (int j = x; j <= t->n; j++)
            for (int d = x; d <= t->n_devices; d++)
                for (int r = 1; r <= d - x + 1; r++)
                    if (fr__task_may(t, r) && !fill(b, x, j, d, r)) return false;
        if (!wanted || wanted == x) find_best(b, x, n, &replicas, &way);
    }
    if (*n) walk(b, *n, replicas, way, parts);
    return true;
}

static fr_status solve(const struct fr__task *t, int *n, struct fr__part *parts)
{
    const int wanted = t->problem->n_stages, each = t->problem->replicas;
    int most = t->n < t->n_devices ? t->n : t->n_devices;
    struct table b = {.t = t, .best = INFINITY};
    *n = 0;
    if (wanted) most = wanted <= most ? wanted : 0;
    if (most == 0) return FR_OK;
    double tries = (double)most * t->n * t->n / 2 * t->n_devices *
                   (each ? 1 : t->n_devices * (double)t->n_devices / 6);
    if (tries > 5e8) /* some seconds */
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "spp: %.1g combinations of cuts, stages and replicas are too many; ask for "
                       "one number of replicas, fewer stages, or fewer devices",
                       tries);
    const size_t plane = (size_t)(t->n_devices + 1) * (size_t)(t->n_devices + 1);
    const size_t cells = (size_t)most * (size_t)t->n * plane;
    b.at = FR_NEW_ARRAY(front, cells);
    b.seats = FR_NEW_ARRAY(struct seat, plane);
    b.across = FR_NEW_ARRAY(double, plane *(size_t)t->n_devices);
    const bool is_whole = b.at && b.seats && b.across && fill_all(&b, most, n, parts);
    for (size_t i = 0; b.at && i < cells; i++) fr__vec_fini(&b.at[i]);
    fr__free(b.at), fr__free(b.seats), fr__free(b.across);
    return is_whole ? FR_OK : fr__no_memory(t->ctx, cells * sizeof(front), "the table of spp");
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    int n = 0;
    double slowest = 0, sum = 0;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    if (!parts) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    FR_TRY(fr__spp_order(t));
    FR_TRY(solve(t, &n, parts));
    if (n == 0)
        return fr_fail(t->ctx, FR_INVALID,
                       "spp: no layout of %d nodes takes all of %d devices within %.3g GB each; "
                       "allow fewer devices, more memory, or other numbers of stages, replicas and "
                       "micro-batches",
                       t->n_nodes, t->n_devices, t->least / 1e9);
    FR_TRY(fr__plan_make(t, "spp", n, parts, fr__score_spp(t, n, parts), out));
    for (int s = 0; s < n; s++) {
        const struct seat at = seat_at(t, parts[s].device, parts[s].replicas);
        sum = fmax(sum, sum_s(t, &at, parts[s].u, parts[s].v, parts[s].replicas));
    }
    slowest = ((*out)->time_s - sum) / (t->n_micro + 4 * n - 4);
    (*out)->is_optimal = t->n == t->n_nodes;
    snprintf((*out)->why, sizeof(*out)->why,
             "SPP-style (the paper's rules recalled): %d micro-batches on %d stages take at most "
             "%.6g s with a lead of %d: the slowest stage or link %.6g s a micro-batch, the "
             "longest sum of gradients %.6g s%s",
             t->n_micro, n, (*out)->time_s, LEAD, slowest, sum, fr__task_note(t));
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, MOST_UNITS, make, out);
}

const fr_planner fr__planner_spp = {
    .name = "spp",
    .summary = "SPP-style: least bound of 1F1B with a lead of 4; devices by minimum cuts",
    .method = "1f1b",
    .lead = LEAD,
    .plan = plan,
};
