/* min_cut.c -- an order of devices by their bandwidths: the graph is split where the sum of
 * bandwidths across is least (a global minimum cut, Stoer and Wagner, 1997), each side likewise,
 * and the sides are put one behind the other. Devices between which much can be sent are then
 * neighbours. */
#include "plan/internal.h"

#include <math.h>
#include <string.h>

struct scratch {
    int n;
    const double *weight; /* (n, n) of all vertices, symmetric */
    double *merged;       /* (n, n) of those that are left in the subset */
    double *pull;         /* (n) weight to what is taken in a phase */
    int *alive;           /* (n) */
    bool *is_taken;       /* (n) */
    bool *within;         /* (n, n): vertices that row i stands for */
    bool *side;           /* (n) of the least cut so far */
    int *sorted;          /* (n) */
};

/* One phase: takes the vertex that is pulled most, again and again, from the first one on. Returns
 * the weight between the last one taken and the others. */
static double phase(struct scratch *s, int n_alive, int *before, int *last)
{
    const size_t n = (size_t)s->n;
    double weight = 0;
    *before = *last = s->alive[0];
    for (int i = 0; i < n_alive; i++) s->pull[s->alive[i]] = 0, s->is_taken[s->alive[i]] = false;
    for (int k = 0; k < n_alive; k++) {
        int next = -1;
        for (int i = 0; i < n_alive; i++) {
            int v = s->alive[i];
            if (!s->is_taken[v] && (next < 0 || s->pull[v] > s->pull[next])) next = v;
        }
        s->is_taken[next] = true;
        *before = *last, *last = next, weight = s->pull[next];
        for (int i = 0; i < n_alive; i++)
            s->pull[s->alive[i]] += s->merged[(size_t)next * n + (size_t)s->alive[i]];
    }
    return weight;
}

/* Vertex b becomes a part of vertex a. */
static void merge(struct scratch *s, int *n_alive, int a, int b)
{
    const size_t n = (size_t)s->n, row = (size_t)a * n, other = (size_t)b * n;
    for (size_t v = 0; v < n; v++) {
        s->within[row + v] = s->within[row + v] || s->within[other + v];
        s->merged[row + v] += s->merged[other + v];
        s->merged[v * n + (size_t)a] = s->merged[row + v];
    }
    s->merged[row + (size_t)a] = 0;
    int kept = 0;
    for (int i = 0; i < *n_alive; i++)
        if (s->alive[i] != b) s->alive[kept++] = s->alive[i];
    *n_alive = kept;
}

/* The least cut of m vertices: s->side. */
static void cut(struct scratch *s, int m, const int *of)
{
    const size_t n = (size_t)s->n;
    double least = INFINITY;
    int n_alive = m;
    memcpy(s->merged, s->weight, n * n * sizeof *s->merged);
    memset(s->within, 0, n * n * sizeof *s->within);
    for (int i = 0; i < m; i++) {
        s->alive[i] = of[i];
        s->within[(size_t)of[i] * n + (size_t)of[i]] = true;
    }
    while (n_alive > 1) {
        int before, last;
        double weight = phase(s, n_alive, &before, &last);
        if (weight < least) {
            least = weight;
            memcpy(s->side, s->within + (size_t)last * n, n * sizeof *s->side);
        }
        merge(s, &n_alive, before, last);
    }
}

/* The side of the first one comes first; each side keeps its order until it is split itself. */
static void arrange(struct scratch *s, int m, int *order)
{
    while (m > 2) {
        int n = 0, n_first = 0;
        cut(s, m, order);
        const bool first = s->side[order[0]];
        for (int i = 0; i < m; i++) n_first += s->side[order[i]] == first;
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < m; i++)
                if ((s->side[order[i]] == first) == (pass == 0)) s->sorted[n++] = order[i];
        memcpy(order, s->sorted, (size_t)m * sizeof *order);
        /* the smaller side by a call, so that calls are nested no deeper than log2 of m */
        if (n_first <= m - n_first) {
            arrange(s, n_first, order);
            order += n_first, m -= n_first;
        } else {
            arrange(s, m - n_first, order + n_first);
            m = n_first;
        }
    }
}

fr_status fr__cut_order(fr_ctx *ctx, int n, const double *weight, int *order)
{
    fr_arena arena = {0};
    struct scratch s = {.n = n, .weight = weight};
    const size_t cells = (size_t)n * (size_t)n;
    s.merged = FR_ARENA_ARRAY(&arena, double, cells);
    s.within = FR_ARENA_ARRAY(&arena, bool, cells);
    s.pull = FR_ARENA_ARRAY(&arena, double, n);
    s.alive = FR_ARENA_ARRAY(&arena, int, n);
    s.is_taken = FR_ARENA_ARRAY(&arena, bool, n);
    s.side = FR_ARENA_ARRAY(&arena, bool, n);
    s.sorted = FR_ARENA_ARRAY(&arena, int, n);
    const bool has_room =
        s.merged && s.within && s.pull && s.alive && s.is_taken && s.side && s.sorted;
    if (has_room) arrange(&s, n, order);
    fr__arena_fini(&arena);
    return has_room ? FR_OK : fr__no_memory(ctx, cells * sizeof(double), "an order of devices");
}
