/* graphpipe.c -- GraphPipe's problem (Jeon et al., ASPLOS 2025) over ranges of nodes: the least
 * largest stage time, where stages form a graph and not a chain.
 *
 * Branches lie one after the other in the order of nodes, and stages are ranges of that order, as
 * training cuts them. A stage sends to those that read its values, so stages of different branches
 * run at the same time, and a stage holds activation sets for the workers on its longest way to the
 * end, not for all stages behind it:
 *
 *     S = r + largest S of the stages that it waits for    sets = min(M / r, S / r), rounded up
 *
 * which is q(i) = 1 + max over successors without replicas. A stage waits for those that read its
 * values and, where it reads a value with a gradient, for the next stage that reads it, too: the
 * gradient goes from reader to reader (fr_profile_links). What a stage costs for each micro-batch
 * is that of exact.c, except that its ports carry what it reads and what others read of it:
 *
 *     T = max( (F + B) / (r speed) + (update / speed + 2 (r-1)/r P / bandwidth) / M,
 *              (bytes in + bytes out) / (r bandwidth) )
 *
 * The largest time is found by bisection over the times of all ranges. For each it is decided from
 * the end whether stages within it fit memory: at a cut, all that counts of the stages behind it is
 * how many devices they take and, for each unit in front that they read, the largest S of its
 * readers. Every such state is kept that no other beats. On a series-parallel graph these numbers
 * are those of the authors' recursion (of the sink, and of the sources of the branches under way);
 * other graphs are solved as well. All devices count as the slowest one. */
#include "base/vec.h"
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_UNITS = 400, MOST_STATES = 1000000 };

/* --- costs ------------------------------------------------------------------------------------ */

static double time_of(const struct fr__task *t, int u, int v, int r, double ports)
{
    double once = (t->update[v] - t->update[u]) / t->slowest + fr__task_sum_s(t, u, v, r);
    double work = fr__task_work(t, u, v) / (r * t->slowest) + once / t->n_micro;
    return fmax(work, ports / (r * t->bandwidth));
}

/* S: workers on the longest way from the stage to the end. */
static int sets_of(const struct fr__task *t, int r, int workers)
{
    const int share = (t->n_micro + r - 1) / r, ahead = (workers + r - 1) / r;
    return ahead < share ? ahead : share;
}

static bool fits(const struct fr__task *t, int u, int v, int r, int workers)
{
    const double each = t->kept[v] - t->kept[u];
    return fr__task_fixed(t, u, v) + sets_of(t, r, workers) * each <= t->least;
}

static int stage_of(int n, const struct fr__part *parts, const struct fr__task *t, int node)
{
    int s = n - 1;
    while (s > 0 && node < t->node[parts[s].u]) s--;
    return s;
}

/* Bytes of each stage's ports. A value is sent once, however many read it. */
static void sum_ports(const struct fr__task *t, int n, const struct fr__part *parts, double *ports)
{
    const fr_profile *p = t->profile;
    for (int s = 0; s < n; s++) ports[s] = 0;
    for (int x = 0; x < p->n_nodes; x++) {
        const int from = stage_of(n, parts, t, x);
        const double bytes = (double)p->nodes[x].output_bytes;
        int last = from;
        for (int i = x + 1; i < p->n_nodes && !p->nodes[x].is_input; i++)
            for (int k = 0; k < p->nodes[i].n_inputs; k++) {
                const int to = stage_of(n, parts, t, i);
                if (p->nodes[i].inputs[k] != x || to == last) continue;
                if (last == from) ports[from] += bytes;
                ports[to] += bytes, last = to;
            }
    }
}

/* Workers on the longest way from each stage to the end. */
static void measure_depth(const struct fr__task *t, int n, const struct fr__part *parts,
                          int *workers)
{
    const fr_profile *p = t->profile;
    for (int s = n - 1; s >= 0; s--) {
        int most = 0;
        for (int x = 0; x < p->n_nodes; x++) {
            const int made = stage_of(n, parts, t, x);
            bool is_own = made == s, has_next = false;
            for (int i = x + 1; i < p->n_nodes && !p->nodes[x].is_input; i++)
                for (int k = 0; k < p->nodes[i].n_inputs; k++) {
                    const int to = stage_of(n, parts, t, i);
                    if (p->nodes[i].inputs[k] != x) continue;
                    is_own = is_own || (to == s && t->has_grad[x]);
                    if (to <= s || !is_own || (made != s && has_next)) continue;
                    has_next = true; /* of a gradient the next reader only */
                    most = workers[to] > most ? workers[to] : most;
                }
        }
        workers[s] = parts[s].replicas + most;
    }
}

/* Straight from the rules, for models that are small enough to be enumerated. */
double fr__score_graphpipe(const struct fr__task *t, int n, struct fr__part *parts)
{
    int workers[FR__MOST_TRIED];
    double ports[FR__MOST_TRIED], worst = 0;
    sum_ports(t, n, parts, ports);
    measure_depth(t, n, parts, workers);
    for (int s = 0; s < n; s++) {
        struct fr__part *p = &parts[s];
        p->time_s = time_of(t, p->u, p->v, p->replicas, ports[s]);
        worst = fmax(worst, fits(t, p->u, p->v, p->replicas, workers[s]) ? p->time_s : INFINITY);
    }
    return worst;
}

/* --- the graph of units ----------------------------------------------------------------------- */

struct graph {
    const struct fr__task *t;
    int *unit_of;     /* [node] */
    double *ports;    /* (n + 1, n + 1): bytes in and out of units u .. v - 1 */
    bool *has_grad;   /* (n): of its values */
    bool has_limit;   /* of memory: else what a state asks for does not matter */
    int *n_open;      /* (n + 1): units before u that one at or behind u reads */
    int **open;       /* (n + 1): which, ascending */
    int **first_read; /* (n + 1): of each, the first unit at or behind u that reads it */
};

static double *ports_at(const struct graph *g, int u, int v)
{
    return &g->ports[(size_t)u * (size_t)(g->t->n + 1) + (size_t)v];
}

/* Bytes that units u .. v - 1 read of others and others read of them, for all v. */
static void fill_ports(const struct graph *g, int u, int *seen, double *expire)
{
    const struct fr__task *t = g->t;
    const fr_profile *p = t->profile;
    double in = 0, out = 0;
    for (int v = u; v <= t->n; v++) expire[v] = 0;
    for (int v = u; v < t->n; v++) {
        for (int i = t->node[v]; i < t->node[v + 1]; i++) {
            const double bytes = (double)p->nodes[i].output_bytes;
            for (int k = 0; k < p->nodes[i].n_inputs; k++) {
                const int from = p->nodes[i].inputs[k];
                if (from >= t->node[u] || p->nodes[from].is_input || seen[from] == u + 1) continue;
                seen[from] = u + 1, in += (double)p->nodes[from].output_bytes;
            }
            if (p->nodes[i].is_input || t->last_use[i] < t->node[v + 1]) continue;
            out += bytes, expire[g->unit_of[t->last_use[i]]] += bytes;
        }
        out -= expire[v];
        *ports_at(g, u, v + 1) = in + out;
    }
}

/* The units that are open before u, of all that others read (reads: (n, n) bits). */
static bool fill_open(struct graph *g, fr_arena *a, int u, const bool *reads)
{
    const size_t n = (size_t)g->t->n;
    g->open[u] = FR_ARENA_ARRAY(a, int, u + 1);
    g->first_read[u] = FR_ARENA_ARRAY(a, int, u + 1);
    if (!g->open[u] || !g->first_read[u]) return false;
    for (int x = 0; x < u; x++) {
        int first = u;
        while (first < (int)n && !reads[(size_t)first * n + (size_t)x]) first++;
        if (first == (int)n) continue;
        g->open[u][g->n_open[u]] = x;
        g->first_read[u][g->n_open[u]++] = first;
    }
    return true;
}

static fr_status graph_init(struct graph *g, struct fr__task *t)
{
    const size_t n = (size_t)t->n, room = (n + 1) * (n + 1);
    const fr_profile *p = t->profile;
    fr_arena *a = &t->arena;
    *g = (struct graph){.t = t, .has_limit = isfinite(t->least)};
    g->unit_of = FR_ARENA_ARRAY(a, int, p->n_nodes);
    g->ports = FR_ARENA_ARRAY(a, double, room);
    g->n_open = FR_ARENA_ARRAY(a, int, n + 1);
    g->open = FR_ARENA_ARRAY(a, int *, n + 1);
    g->first_read = FR_ARENA_ARRAY(a, int *, n + 1);
    int *seen = FR_ARENA_ARRAY(a, int, p->n_nodes);
    double *expire = FR_ARENA_ARRAY(a, double, n + 1);
    bool *reads = FR_ARENA_ARRAY(a, bool, n *n);
    g->has_grad = FR_ARENA_ARRAY(a, bool, n);
    if (!g->unit_of || !g->ports || !g->n_open || !g->open || !g->first_read || !g->has_grad ||
        !seen || !expire || !reads)
        return fr__no_memory(t->ctx, room * sizeof(double), "the graph of a plan");
    for (int u = 0; u < t->n; u++)
        for (int i = t->node[u]; i < t->node[u + 1]; i++) {
            g->unit_of[i] = u;
            g->has_grad[u] = g->has_grad[u] || t->has_grad[i];
        }
    for (int i = 0; i < p->n_nodes; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++)
            if (!p->nodes[p->nodes[i].inputs[k]].is_input)
                reads[(size_t)g->unit_of[i] * n + (size_t)g->unit_of[p->nodes[i].inputs[k]]] = true;
    for (int u = 0; u < t->n; u++) fill_ports(g, u, seen, expire);
    for (int u = 0; u <= t->n && g->has_limit; u++)
        if (!fill_open(g, a, u, reads))
            return fr__no_memory(t->ctx, n * sizeof(int), "the graph of a plan");
    return FR_OK;
}

/* --- states ----------------------------------------------------------------------------------- */

/* What the stages from a cut on take and ask for. */
struct state {
    int used, n_stages;
    int v, r, next; /* the first of them ends before v on r devices; the state there */
    int *ask;       /* [open unit]: the largest S of its readers */
};
typedef FR_VEC(struct state) front;

struct search {
    const struct graph *g;
    front *at; /* (n + 1) */
    fr_arena arena;
    int n_states;
    int *ask; /* of the state that is being made */
};

static bool beats(const struct state *a, const struct state *b, int n_open, bool same_number)
{
    if (a->used > b->used || (same_number && a->n_stages != b->n_stages)) return false;
    for (int i = 0; i < n_open; i++)
        if (a->ask[i] > b->ask[i]) return false;
    return true;
}

static bool keep(struct search *o, int u, struct state s)
{
    front *f = &o->at[u];
    const int n_open = o->g->n_open[u];
    const bool same_number = o->g->t->problem->n_stages > 0;
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (beats(&f->at[i], &s, n_open, same_number)) return true;
    for (size_t i = 0; i < f->n; i++)
        if (!beats(&s, &f->at[i], n_open, same_number)) f->at[n++] = f->at[i];
    f->n = n;
    int *ask = FR_ARENA_ARRAY(&o->arena, int, n_open + 1);
    if (!ask) return false;
    memcpy(ask, s.ask, (size_t)n_open * sizeof *ask);
    s.ask = ask, o->n_states++;
    return fr__vec_push(f, s);
}

/* S of a stage of units u .. v - 1 on r devices in front of a state at v: it waits for those that
 * read of it, or after it what it reads. */
static int workers_of(const struct graph *g, const struct state *behind, int u, int v, int r)
{
    int most = 0;
    for (int k = g->n_open[v] - 1, i = g->n_open[u] - 1; k >= 0; k--) {
        const int x = g->open[v][k];
        while (i >= 0 && g->open[u][i] > x) i--;
        const bool is_read = i >= 0 && g->open[u][i] == x && g->first_read[u][i] < v;
        if ((x >= u || (is_read && g->has_grad[x])) && behind->ask[k] > most) most = behind->ask[k];
    }
    return r + most;
}

/* The state at u with that stage in front: readers of what is open there are in it, or behind. */
static void make_ask(const struct graph *g, const struct state *behind, int u, int v, int workers,
                     int *ask)
{
    for (int i = 0, k = 0; i < g->n_open[u]; i++) {
        while (k < g->n_open[v] && g->open[v][k] < g->open[u][i]) k++;
        ask[i] = k < g->n_open[v] && g->open[v][k] == g->open[u][i] ? behind->ask[k] : 0;
        if (g->first_read[u][i] < v && ask[i] < workers) ask[i] = workers;
    }
}

/* All stages that may come in front of state k at v. */
static bool extend(struct search *o, int v, size_t k, double target)
{
    const struct fr__task *t = o->g->t;
    const int wanted = t->problem->n_stages;
    for (int r = 1; o->at[v].at[k].used + r <= t->n_devices; r++) {
        if (!fr__task_may(t, r)) continue;
        for (int u = v - 1; u >= 0; u--) {
            const struct state *behind = &o->at[v].at[k];
            if (time_of(t, u, v, r, 0) > target) break; /* as do all longer ones */
            if (time_of(t, u, v, r, *ports_at(o->g, u, v)) > target) continue;
            const int workers = workers_of(o->g, behind, u, v, r);
            if (!fits(t, u, v, r, workers)) continue;
            struct state s = {behind->used + r, behind->n_stages + 1, v, r, (int)k, o->ask};
            if (wanted && (u == 0 ? s.n_stages != wanted : s.n_stages >= wanted)) continue;
            make_ask(o->g, behind, u, v, workers, o->ask);
            if (!keep(o, u, s)) return false;
        }
    }
    return true;
}

static void drop_states(struct search *o)
{
    for (int u = 0; u <= o->g->t->n; u++) o->at[u].n = 0;
    fr__arena_fini(&o->arena);
    o->arena = (fr_arena){0}, o->n_states = 0;
}

/* Are there stages no slower than the target? They are the first state at 0. */
static fr_status decide(struct search *o, double target, bool *is_possible)
{
    const struct fr__task *t = o->g->t;
    drop_states(o);
    bool has_room = keep(o, t->n, (struct state){.ask = o->ask});
    for (int v = t->n; has_room && v > 0; v--)
        for (size_t k = 0; has_room && k < o->at[v].n; k++) {
            has_room = extend(o, v, k, target);
            if (o->n_states > MOST_STATES)
                return fr_fail(t->ctx, FR_UNSUPPORTED,
                               "graphpipe: more than %d states of branches, devices and memory; "
                               "ask for one number of replicas, or fewer devices",
                               MOST_STATES);
        }
    *is_possible = o->at[0].n > 0;
    return has_room ? FR_OK : fr__no_memory(t->ctx, sizeof(struct state), "graphpipe");
}

/* --- bisection -------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static fr_status list_times(const struct graph *g, double **times, size_t *n)
{
    const struct fr__task *t = g->t;
    *n = 0;
    *times = FR_NEW_ARRAY(double, (size_t)t->n *(size_t)(t->n + 1) / 2 * (size_t)t->n_devices);
    if (!*times) return fr__no_memory(t->ctx, (size_t)t->n * sizeof(double), "graphpipe");
    for (int r = 1; r <= t->n_devices; r++)
        for (int u = 0; u < t->n && fr__task_may(t, r); u++)
            for (int v = u + 1; v <= t->n; v++)
                (*times)[(*n)++] = time_of(t, u, v, r, *ports_at(g, u, v));
    qsort(*times, *n, sizeof **times, ascending);
    return FR_OK;
}

/* On FR_OK with *n 0 nothing fits. */
static fr_status bisect(struct search *o, const double *times, size_t n_times, int *n,
                        struct fr__part *parts, int *sets)
{
    const struct fr__task *t = o->g->t;
    size_t low = 0, high = n_times; /* the least that is possible is in low .. high - 1 */
    bool is_possible = false;
    *n = 0;
    if (n_times == 0) return FR_OK;
    FR_TRY(decide(o, times[n_times - 1], &is_possible));
    if (!is_possible) return FR_OK;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2 - 1;
        FR_TRY(decide(o, times[middle], &is_possible));
        if (is_possible)
            high = middle + 1;
        else
            low = middle + 1;
    }
    FR_TRY(decide(o, times[low], &is_possible));
    size_t best = 0; /* on the fewest devices */
    for (size_t i = 1; i < o->at[0].n; i++)
        if (o->at[0].at[i].used < o->at[0].at[best].used) best = i;
    for (int u = 0, k = (int)best, device = 0; u < t->n; ++*n) {
        const struct state *s = &o->at[u].at[k];
        const int workers = workers_of(o->g, &o->at[s->v].at[s->next], u, s->v, s->r);
        parts[*n] = (struct fr__part){.u = u, .v = s->v, .replicas = s->r, .device = device};
        parts[*n].time_s = time_of(t, u, s->v, s->r, *ports_at(o->g, u, s->v));
        sets[*n] = o->g->has_limit ? sets_of(t, s->r, workers) : 0;
        u = s->v, k = s->next, device += s->r;
    }
    return FR_OK;
}

/* sets: [stage], 0 where memory has no limit. */
static fr_status solve(struct fr__task *t, int *n, struct fr__part *parts, int *sets)
{
    struct graph g;
    double *times = NULL;
    size_t n_times = 0;
    FR_TRY(graph_init(&g, t));
    struct search o = {.g = &g};
    o.at = FR_ARENA_ARRAY(&t->arena, front, t->n + 1);
    o.ask = FR_ARENA_ARRAY(&t->arena, int, t->n + 1);
    fr_status status = o.at && o.ask ? list_times(&g, &times, &n_times)
                                     : fr__no_memory(t->ctx, sizeof(front), "graphpipe");
    if (status == FR_OK) status = bisect(&o, times, n_times, n, parts, sets);
    for (int u = 0; o.at && u <= t->n; u++) fr__vec_fini(&o.at[u]);
    fr__arena_fini(&o.arena);
    fr__free(times);
    return status;
}

/* --- the plan --------------------------------------------------------------------------------- */

static void explain(const struct fr__task *t, int n, const int *sets, int worst, fr_plan *p)
{
    enum { ENOUGH = 16 };
    const size_t room = sizeof p->why;
    size_t at = (size_t)snprintf(p->why, room,
                                 "the slowest of %d stages is %d: %.6g s for each micro-batch, and "
                                 "no cut into ranges of nodes has a faster slowest one%s",
                                 n, worst, p->time_s, fr__task_note(t));
    if (sets[0] == 0) return;
    at += (size_t)snprintf(p->why + at, room - at,
                           " within memory for 1F1B; activation sets by the links of stages:");
    for (int s = 0; s < n && s < ENOUGH; s++)
        at += (size_t)snprintf(p->why + at, room - at, " %d", sets[s]);
    if (n > ENOUGH) snprintf(p->why + at, room - at, " ...");
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    int n = 0, worst = 0;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, t->n);
    int *sets = FR_ARENA_ARRAY(&t->arena, int, t->n);
    if (!parts || !sets) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    FR_TRY(solve(t, &n, parts, sets));
    if (n == 0)
        return fr_fail(t->ctx, FR_INVALID,
                       "graphpipe: no cut of %d nodes into %s stages fits %d devices of %.3g GB; "
                       "allow more devices or memory, or other numbers",
                       t->n_nodes, t->problem->n_stages ? "so many" : "any number of", t->n_devices,
                       t->least / 1e9);
    for (int s = 1; s < n; s++)
        if (parts[s].time_s > parts[worst].time_s) worst = s;
    FR_TRY(fr__plan_make(t, "graphpipe", n, parts, parts[worst].time_s, out));
    (*out)->is_optimal = t->n == t->n_nodes;
    explain(t, n, sets, worst, *out);
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, MOST_UNITS, make, out);
}

const fr_planner fr__planner_graphpipe = {
    .name = "graphpipe",
    .summary = "least slowest stage of a graph of stages: branches hold what their depth asks for",
    .method = "1f1b",
    .plan = plan,
};
