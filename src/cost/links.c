/* links.c -- occupancy of ports and buses.
 *
 * Each child of a group (a device or a group) has an output port and an input port, or all children
 * share the group's bus. Each port or bus is a resource that serves one message at a time. The
 * route from i to j goes up to the lowest group that contains both, and down again:
 *
 *     i --out--> box 0 --out--> [cluster] --in--> box 1 --in--> j
 *
 * Transfers are cut-through: a message starts when its whole route is free, occupies each resource
 * for bytes / bandwidth of the resource, and arrives after bytes / the smallest bandwidth plus the
 * latencies of all groups on the route.
 *
 * A reduction uses a ring of the devices in ascending order. Each edge carries 2 (n - 1) / n of the
 * block, the optimal volume for any all-reduce (Patarasu and Yuan). The load of a resource is that
 * volume times the edges that pass it. The latency counts 2 (n - 1) times, as in a ring, or 2
 * ceil(log2 n) times, as in two trees with the same load (Sanders et al.), whichever is less. */
#include "cost/links.h"

#include "base/arena.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_DEPTH = 64 };

/* Resources: ports of devices (out, in), ports of groups, buses of groups. */
struct fr_links {
    const fr_cluster *c;
    fr_arena arena;   /* of all lists */
    int *depth;       /* [group] */
    double *free;     /* [resource]: time from which it is free */
    double *used;     /* [resource]: seconds in use so far */
    double *per_byte; /* [resource]: seconds per byte; 0: no limit */
    /* Scratch of a reduction. */
    int *edges;   /* [resource]: ring edges that pass it; 0 between calls */
    int *touched; /* resources with edges */
    int *ring;    /* devices, ascending, without duplicates */
};

typedef struct route {
    int n;
    int resource[2 * MAX_DEPTH];
    double per_byte; /* of the slowest resource */
    double latency;
} route;

static int n_resources(const fr_cluster *c) { return 2 * c->n_devices + 3 * c->n_groups; }

/* --- creation --------------------------------------------------------------------------------- */

/* Check that parents come first, indices are in range and numbers are not negative; fill depths. */
static fr_status check(fr_ctx *ctx, const fr_cluster *c, int *depth)
{
    for (int g = 0; g < c->n_groups; g++) {
        const fr_cluster_group *at = &c->groups[g];
        if (g == 0 ? at->parent != -1 : at->parent < 0 || at->parent >= g)
            return fr_fail(ctx, FR_INVALID,
                           "cluster %s: group %d has parent %d; parents come "
                           "first, and the first group is the root",
                           c->name, g, at->parent);
        depth[g] = g == 0 ? 0 : depth[at->parent] + 1;
        if (depth[g] >= MAX_DEPTH)
            return fr_fail(ctx, FR_INVALID, "cluster %s: groups nested deeper than %d", c->name,
                           MAX_DEPTH);
        if (!(at->bandwidth >= 0) || !(at->latency >= 0))
            return fr_fail(
                ctx, FR_INVALID,
                "cluster %s: group %s has %g bytes/s and %g s of latency; neither may be negative",
                c->name, at->name, at->bandwidth, at->latency);
    }
    for (int d = 0; d < c->n_devices; d++)
        if (c->devices[d].group < 0 || c->devices[d].group >= c->n_groups)
            return fr_fail(ctx, FR_INVALID,
                           "cluster %s: device %d is in group %d; there are %d groups", c->name, d,
                           c->devices[d].group, c->n_groups);
    return FR_OK;
}

static double per_byte(const fr_cluster_group *g)
{
    return g->bandwidth > 0 ? 1 / g->bandwidth : 0;
}

static void fill_rates(fr_links *l)
{
    const fr_cluster *c = l->c;
    double *at = l->per_byte;
    for (int d = 0; d < c->n_devices; d++, at += 2)
        at[0] = at[1] = per_byte(&c->groups[c->devices[d].group]);
    for (int g = 0; g < c->n_groups; g++, at += 2)
        at[0] = at[1] = g > 0 ? per_byte(&c->groups[c->groups[g].parent]) : 0;
    for (int g = 0; g < c->n_groups; g++) *at++ = per_byte(&c->groups[g]);
}

fr_status fr_links_create(fr_ctx *ctx, const fr_cluster *c, fr_links **out)
{
    int n = n_resources(c);
    fr_links *l = *out = FR_NEW(fr_links);
    if (!l) return fr__no_memory(ctx, sizeof *l, "links");
    l->c = c;
    l->depth = FR_ARENA_ARRAY(&l->arena, int, c->n_groups);
    l->free = FR_ARENA_ARRAY(&l->arena, double, n);
    l->used = FR_ARENA_ARRAY(&l->arena, double, n);
    l->per_byte = FR_ARENA_ARRAY(&l->arena, double, n);
    l->edges = FR_ARENA_ARRAY(&l->arena, int, n);
    l->touched = FR_ARENA_ARRAY(&l->arena, int, n);
    l->ring = FR_ARENA_ARRAY(&l->arena, int, c->n_devices);
    bool has_all =
        l->depth && l->free && l->used && l->per_byte && l->edges && l->touched && l->ring;
    fr_status status =
        has_all ? check(ctx, c, l->depth) : fr__no_memory(ctx, (size_t)n * sizeof(double), "links");
    if (status == FR_OK) {
        fill_rates(l);
    } else {
        fr_links_free(l);
        *out = NULL;
    }
    return status;
}

void fr_links_free(fr_links *l)
{
    if (!l) return;
    fr__arena_fini(&l->arena);
    fr__free(l);
}

void fr_links_reset(fr_links *l)
{
    for (int i = 0; i < n_resources(l->c); i++) l->free[i] = l->used[i] = 0;
}

double fr__links_busiest(const fr_links *l)
{
    double most = 0;
    for (int i = 0; i < n_resources(l->c); i++) most = fmax(most, l->used[i]);
    return most;
}

static void take(fr_links *l, int resource, double start, double bytes)
{
    double seconds = bytes * l->per_byte[resource];
    l->free[resource] = start + seconds;
    l->used[resource] += seconds;
}

/* --- routes -----------------------------------------------------------------------------------*/

static void pass(const fr_links *l, route *r, int resource)
{
    if (l->per_byte[resource] == 0) return;
    r->resource[r->n++] = resource;
    r->per_byte = fmax(r->per_byte, l->per_byte[resource]);
}

/* Add `group` to the route: the port of its child (`way` 0 out, 1 in), or its bus. */
static void through(const fr_links *l, route *r, int group, int child_port, int way)
{
    const fr_cluster *c = l->c;
    if (c->groups[group].is_shared)
        pass(l, r, 2 * c->n_devices + 2 * c->n_groups + group);
    else
        pass(l, r, child_port + way);
}

static int group_port(const fr_links *l, int group) { return 2 * (l->c->n_devices + group); }

static void find_route(const fr_links *l, int from, int to, route *r)
{
    const fr_cluster *c = l->c;
    int a = c->devices[from].group, b = c->devices[to].group, port_a = 2 * from, port_b = 2 * to;
    r->n = 0;
    r->per_byte = r->latency = 0;
    if (from == to) return;
    while (a != b) {
        bool is_up = l->depth[a] >= l->depth[b];
        int group = is_up ? a : b;
        through(l, r, group, is_up ? port_a : port_b, is_up ? 0 : 1);
        r->latency += c->groups[group].latency;
        *(is_up ? &port_a : &port_b) = group_port(l, group);
        *(is_up ? &a : &b) = c->groups[group].parent;
    }
    r->latency += c->groups[a].latency;
    through(l, r, a, port_a, 0);
    if (!c->groups[a].is_shared) through(l, r, a, port_b, 1);
}

static bool is_device(const fr_links *l, int d) { return d >= 0 && d < l->c->n_devices; }

double fr_links_send(fr_links *l, int from, int to, size_t bytes, double ready)
{
    route r;
    if (!is_device(l, from) || !is_device(l, to)) return NAN;
    find_route(l, from, to, &r);
    double start = ready;
    for (int i = 0; i < r.n; i++) start = fmax(start, l->free[r.resource[i]]);
    for (int i = 0; i < r.n; i++) take(l, r.resource[i], start, (double)bytes);
    return start + (double)bytes * r.per_byte + r.latency;
}

double fr_links_send_time(const fr_links *l, int from, int to, size_t bytes)
{
    route r;
    if (!is_device(l, from) || !is_device(l, to)) return NAN;
    find_route(l, from, to, &r);
    return (double)bytes * r.per_byte + r.latency;
}

/* --- reductions ------------------------------------------------------------------------------- */

/* Devices of a group are adjacent, so a ring in ascending order leaves each group once. Workers on
 * one device reduce inside it. Returns the length; 0: not devices of this cluster. */
static int make_ring(const fr_links *l, int n, const int *devices)
{
    int m = 0, n_good = 0;
    bool is_sorted = true;
    for (; n_good < n && is_device(l, devices[n_good]); n_good++) {
        int *mark = &l->edges[2 * devices[n_good]];
        if (*mark) continue;
        is_sorted = is_sorted && (m == 0 || devices[n_good] > l->ring[m - 1]);
        *mark = 1;
        l->ring[m++] = devices[n_good];
    }
    for (int i = 0; i < m; i++) l->edges[2 * l->ring[i]] = 0;
    if (!is_sorted) qsort(l->ring, (size_t)m, sizeof *l->ring, fr__by_int);
    return n_good == n ? m : 0;
}

typedef struct load {
    double bytes; /* per edge */
    double time;  /* of the busiest resource */
    double latency;
    int n_touched;
} load;

/* Load of a reduction on the links. The caller resets the edges to 0. */
static load ring_load(const fr_links *l, int n, size_t bytes)
{
    load sum = {.bytes = 2 * (double)bytes * (n - 1) / n};
    double latency = 0;
    int steps = 0;
    route r;
    for (int i = 0; i < n && n > 1; i++) {
        find_route(l, l->ring[i], l->ring[(i + 1) % n], &r);
        latency = fmax(latency, r.latency);
        for (int k = 0; k < r.n; k++)
            if (l->edges[r.resource[k]]++ == 0) l->touched[sum.n_touched++] = r.resource[k];
    }
    for (int i = 0; i < sum.n_touched; i++) {
        int k = l->touched[i];
        sum.time = fmax(sum.time, sum.bytes * l->edges[k] * l->per_byte[k]);
    }
    while (steps < 31 && 1u << steps < (unsigned)n) steps++;
    sum.latency = 2 * latency * (steps < n - 1 ? steps : n - 1);
    return sum;
}

double fr_links_sum(fr_links *l, int n, const int *devices, size_t bytes, double ready)
{
    int m = make_ring(l, n, devices);
    if (m == 0) return NAN;
    load sum = ring_load(l, m, bytes);
    double start = ready;
    for (int i = 0; i < sum.n_touched; i++) start = fmax(start, l->free[l->touched[i]]);
    for (int i = 0; i < sum.n_touched; i++) {
        int k = l->touched[i];
        take(l, k, start, sum.bytes * l->edges[k]);
        l->edges[k] = 0;
    }
    return start + sum.time + sum.latency;
}

double fr_links_sum_time(const fr_links *l, int n, const int *devices, size_t bytes)
{
    int m = make_ring(l, n, devices);
    if (m == 0) return NAN;
    load sum = ring_load(l, m, bytes);
    for (int i = 0; i < sum.n_touched; i++) l->edges[l->touched[i]] = 0;
    return sum.time + sum.latency;
}
