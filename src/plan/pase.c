/* pase.c -- planner pase: cuts layers inside themselves (Elango, PaSE, IPDPS 2021, and the authors'
 * program).
 *
 * A way to cut a layer is a number for each of its dimensions, which divides it and leaves 4 at
 * least; the product is at most the number of devices. A device then computes, sends and receives
 *
 *     3 m n k + 3 pw m n + r (AR(m n, c_k) + AR(m k, c_n) + AR(n k, c_m)),  AR(w, P) = 2 w (P-1)/P
 *
 * with its own share of m, n and k; pw counts the pointwise operators behind the layer, r is the
 * number of operations in the time of one word. Between two layers 2 r (needed - overlap) words
 * move: the overlap is the product of the smaller extents of both, or nothing if the reader has
 * spread the tensor over more devices than the writer.
 *
 * The least sum over all layers is found exactly, by eliminating layers one at a time, always the
 * one with the fewest neighbours left: a table over the cuttings of its neighbours holds the best
 * that the layer, and all that were eliminated into it, can do. */
#include "plan/pase.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEFT = 4 };                   /* of a dimension, at least, where it is cut */
static const double MOST_SUMS = 1e9; /* for one table */

/* --- costs ------------------------------------------------------------------------------------ */

fr_status fr__layer_cuttings(const fr__layers *l, int layer, fr__cuttings *out)
{
    const int64_t *parts = l->at[layer].parts;
    int *may[3], n[3] = {0};
    for (int d = 0; d < 3; d++) {
        may[d] = FR_ARENA_ARRAY(l->arena, int, l->n_devices);
        if (!may[d]) return fr__no_memory(l->ctx, sizeof(int), "splits");
        for (int c = 1; c <= l->n_devices; c++)
            if (c == 1 || (parts[d] % c == 0 && parts[d] / c >= LEFT)) may[d][n[d]++] = c;
    }
    out->n = 0;
    out->at = fr__arena_alloc(
        l->arena, fr__array_bytes((size_t)n[0] * (size_t)n[1], (size_t)n[2] * sizeof *out->at));
    if (!out->at) return fr__no_memory(l->ctx, sizeof *out->at, "splits");
    for (int i = 0; i < n[0]; i++)
        for (int j = 0; j < n[1]; j++)
            for (int k = 0; k < n[2]; k++) {
                int c[3] = {may[0][i], may[1][j], may[2][k]};
                if ((int64_t)c[0] * c[1] * c[2] <= l->n_devices)
                    memcpy(out->at[out->n++], c, sizeof c);
            }
    return FR_OK;
}

double fr__layer_cost(const fr__layers *l, int layer, const int split[3])
{
    const fr__layer *x = &l->at[layer];
    double c = (double)split[0] * split[1] * split[2], words = 0;
    for (int d = 0; d < 3; d++) /* the share of a device is cut by the other two dimensions */
        words += 2 * (x->sum[d] * split[d] / c) * (split[d] - 1) / split[d];
    return x->products / c + x->points / split[FR__ROWS] / split[FR__OUT] + l->ratio * words;
}

double fr__edge_cost(const fr__layers *l, const fr__layer_edge *e, const int from[3],
                     const int to[3])
{
    int rows[2] = {from[FR__ROWS], to[FR__ROWS]};
    int columns[2] = {from[FR__OUT], to[l->at[e->to].reads]};
    double needed = e->words / rows[1] / columns[1];
    double overlap = e->words / (rows[0] > rows[1] ? rows[0] : rows[1]) /
                     (columns[0] > columns[1] ? columns[0] : columns[1]);
    if ((int64_t)rows[1] * columns[1] > (int64_t)rows[0] * columns[0]) overlap = 0;
    return 2 * l->ratio * (needed - overlap);
}

double fr__layers_cost(const fr__layers *l, int (*split)[3])
{
    double cost = 0;
    for (int v = 0; v < l->n; v++) cost += fr__layer_cost(l, v, split[v]);
    for (int e = 0; e < l->n_edges; e++)
        cost += fr__edge_cost(l, &l->edges[e], split[l->edges[e].from], split[l->edges[e].to]);
    return cost;
}

/* --- the least sum ---------------------------------------------------------------------------- */

/* A cost that depends on the cuttings of some layers: of an edge, or the least cost of a layer that
 * has been eliminated. */
typedef struct table {
    int n;          /* layers */
    int *of;        /* (n) */
    size_t *stride; /* (n) */
    double *cost;   /* (size) */
    int *best;      /* (size) cutting of the eliminated layer */
    size_t size;
    bool is_read; /* it is part of another table */
} table;

typedef struct solver {
    const fr__layers *l;
    fr__cuttings *ways; /* (n) */
    bool *is_near;      /* (n, n) */
    bool *is_done;      /* (n) */
    int *now;           /* (n) cutting under consideration */
    int n_tables;
    table *tables; /* (n_edges + n) edges, then layers in the order of elimination */
    int *order;    /* (n) */
} solver;

static bool is_near(const solver *s, int u, int v)
{
    return !s->is_done[u] && s->is_near[(size_t)u * (size_t)s->l->n + (size_t)v];
}

static void set_near(solver *s, int u, int v)
{
    size_t n = (size_t)s->l->n, a = (size_t)u, b = (size_t)v;
    if (u != v) s->is_near[a * n + b] = s->is_near[b * n + a] = true;
}

/* The layer with the fewest neighbours left. */
static int next_layer(const solver *s)
{
    int best = -1, least = 0;
    for (int v = 0; v < s->l->n; v++) {
        int n = 0;
        for (int u = 0; u < s->l->n; u++) n += is_near(s, u, v);
        if (!s->is_done[v] && (best < 0 || n < least)) best = v, least = n;
    }
    return best;
}

static fr_status table_make(solver *s, int n, const int *of, int of_layer, table **out)
{
    table *t = *out = &s->tables[s->n_tables];
    double sums = of_layer < 0 ? 1 : s->ways[of_layer].n;
    for (int i = 0; i < n; i++) sums *= s->ways[of[i]].n;
    if (sums > MOST_SUMS)
        return fr_fail(s->l->ctx, FR_UNSUPPORTED,
                       "pase: the splits of %s and %d layers around it on %d devices make %.3g "
                       "combinations, more than %.0e; give fewer devices",
                       s->l->at[of_layer < 0 ? of[0] : of_layer].name, n, s->l->n_devices, sums,
                       MOST_SUMS);
    t->n = n, t->size = 1;
    t->of = FR_ARENA_ARRAY(s->l->arena, int, n + 1);
    t->stride = FR_ARENA_ARRAY(s->l->arena, size_t, n + 1);
    for (int i = 0; t->of && t->stride && i < n; i++) {
        t->of[i] = of[i], t->stride[i] = t->size;
        t->size *= (size_t)s->ways[of[i]].n;
    }
    t->cost = FR_ARENA_ARRAY(s->l->arena, double, t->size);
    if (of_layer >= 0) t->best = FR_ARENA_ARRAY(s->l->arena, int, t->size);
    if (!t->of || !t->stride || !t->cost || (of_layer >= 0 && !t->best))
        return fr__no_memory(s->l->ctx, t->size * sizeof(double), "a table of splits");
    s->n_tables++;
    return FR_OK;
}

static fr_status add_edge(solver *s, const fr__layer_edge *e)
{
    table *t;
    FR_TRY(table_make(s, 2, (int[]){e->from, e->to}, -1, &t));
    int n = s->ways[e->from].n;
    for (int j = 0; j < s->ways[e->to].n; j++)
        for (int i = 0; i < n; i++)
            t->cost[i + j * n] =
                fr__edge_cost(s->l, e, s->ways[e->from].at[i], s->ways[e->to].at[j]);
    set_near(s, e->from, e->to);
    return FR_OK;
}

/* Numbers of a table for the cuttings of one layer, those of all others as they are now. */
typedef struct column {
    const double *at;
    size_t stride;
} column;

static column column_of(const solver *s, const table *t, int v)
{
    column c = {t->cost, 0};
    for (int i = 0; i < t->n; i++) {
        if (t->of[i] == v)
            c.stride = t->stride[i];
        else
            c.at += t->stride[i] * (size_t)s->now[t->of[i]];
    }
    return c;
}

/* For all cuttings of the neighbours: the best of layer v. */
static void fill(solver *s, int v, table *t, int n, const table *const *from, column *columns,
                 double *own)
{
    for (int c = 0; c < s->ways[v].n; c++) own[c] = fr__layer_cost(s->l, v, s->ways[v].at[c]);
    for (int i = 0; i < t->n; i++) s->now[t->of[i]] = 0;
    for (size_t at = 0; at < t->size; at++) {
        for (int i = 0; i < n; i++) columns[i] = column_of(s, from[i], v);
        t->cost[at] = INFINITY;
        for (int c = 0; c < s->ways[v].n; c++) {
            double cost = own[c];
            for (int i = 0; i < n; i++) cost += columns[i].at[columns[i].stride * (size_t)c];
            if (cost < t->cost[at]) t->cost[at] = cost, t->best[at] = c;
        }
        for (int i = 0; i < t->n && ++s->now[t->of[i]] == s->ways[t->of[i]].n; i++)
            s->now[t->of[i]] = 0;
    }
}

static bool mentions(const table *t, int v)
{
    for (int i = 0; i < t->n; i++)
        if (t->of[i] == v) return true;
    return false;
}

static fr_status eliminate(solver *s, int v)
{
    fr_arena *a = s->l->arena;
    int n = 0, n_from = 0;
    table *t;
    int *near = FR_ARENA_ARRAY(a, int, s->l->n);
    const table **from = FR_ARENA_ARRAY(a, const table *, s->n_tables + 1);
    column *columns = FR_ARENA_ARRAY(a, column, s->n_tables + 1);
    double *own = FR_ARENA_ARRAY(a, double, s->ways[v].n);
    if (!near || !from || !columns || !own)
        return fr__no_memory(s->l->ctx, sizeof(double), "a table of splits");
    for (int u = 0; u < s->l->n; u++)
        if (is_near(s, u, v)) near[n++] = u;
    for (int i = 0; i < s->n_tables; i++) {
        if (s->tables[i].is_read || !mentions(&s->tables[i], v)) continue;
        s->tables[i].is_read = true;
        from[n_from++] = &s->tables[i];
    }
    FR_TRY(table_make(s, n, near, v, &t));
    fill(s, v, t, n_from, from, columns, own);
    s->is_done[v] = true;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) set_near(s, near[i], near[j]);
    return FR_OK;
}

static fr_status open_solver(solver *s, const fr__layers *l)
{
    size_t n = (size_t)l->n;
    *s = (solver){.l = l,
                  .ways = FR_ARENA_ARRAY(l->arena, fr__cuttings, n),
                  .is_near = FR_ARENA_ARRAY(l->arena, bool, n *n),
                  .is_done = FR_ARENA_ARRAY(l->arena, bool, n),
                  .now = FR_ARENA_ARRAY(l->arena, int, n),
                  .order = FR_ARENA_ARRAY(l->arena, int, n),
                  .tables = FR_ARENA_ARRAY(l->arena, table, n + (size_t)l->n_edges)};
    if (!s->ways || !s->is_near || !s->is_done || !s->now || !s->order || !s->tables)
        return fr__no_memory(l->ctx, n * n, "splits");
    for (int v = 0; v < l->n; v++) FR_TRY(fr__layer_cuttings(l, v, &s->ways[v]));
    for (int e = 0; e < l->n_edges; e++) FR_TRY(add_edge(s, &l->edges[e]));
    return FR_OK;
}

fr_status fr__layers_solve(const fr__layers *l, int (*split)[3], double *cost)
{
    solver s;
    FR_TRY(open_solver(&s, l));
    *cost = 0;
    for (int i = 0; i < l->n; i++) {
        s.order[i] = next_layer(&s);
        FR_TRY(eliminate(&s, s.order[i]));
    }
    for (int i = 0; i < s.n_tables; i++)
        if (s.tables[i].n == 0) *cost += s.tables[i].cost[0];
    for (int i = l->n - 1; i >= 0; i--) { /* neighbours of a layer were eliminated after it */
        const table *t = &s.tables[l->n_edges + i];
        size_t at = 0;
        for (int k = 0; k < t->n; k++) at += t->stride[k] * (size_t)s.now[t->of[k]];
        s.now[s.order[i]] = t->best[at];
    }
    for (int v = 0; v < l->n; v++) memcpy(split[v], s.ways[v].at[s.now[v]], sizeof split[v]);
    return FR_OK;
}
