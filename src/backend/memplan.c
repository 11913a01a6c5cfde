/* memplan.c -- greedy-by-size packing of leases.
 *
 * Leases placed so far are in a search tree, ordered by their first step. Each node holds the
 * latest end below it, so a query visits only the leases that overlap another in time. */
#include "backend/memplan.h"

#include "base/alloc.h"

#include <stdlib.h>

typedef struct packing {
    fr__lease *leases;
    int n;
    int *by_first; /* (n) leases in order of their beginning */
    int *rank;     /* (n) the place of each there */
    int *found;    /* (n) leases of a query */
    int n_found;
    int n_leaves; /* a power of two, at least n */
    int *latest;  /* (2 n_leaves) latest last step placed below; -1: none. Root at 1 */
} packing;

static int compare(size_t a, size_t b) { return (a > b) - (a < b); }

/* Larger first; ties by order, so that the plan is the same everywhere. */
static int by_size(const void *a, const void *b, void *user)
{
    const fr__lease *leases = user;
    int i = *(const int *)a, j = *(const int *)b;
    return leases[i].bytes != leases[j].bytes ? compare(leases[j].bytes, leases[i].bytes) : i - j;
}

static int by_first(const void *a, const void *b, void *user)
{
    const fr__lease *leases = user;
    int i = *(const int *)a, j = *(const int *)b;
    return leases[i].first != leases[j].first ? leases[i].first - leases[j].first : i - j;
}

static int by_offset(const void *a, const void *b, void *user)
{
    const fr__lease *leases = user;
    return compare(leases[*(const int *)a].offset, leases[*(const int *)b].offset);
}

static void sort(fr__lease *leases, int n, int *order,
                 int (*compare_two)(const void *, const void *, void *))
{
    if (n > 1) qsort_r(order, (size_t)n, sizeof *order, compare_two, leases);
}

static void insert(packing *p, int lease)
{
    int last = p->leases[lease].last;
    for (int at = p->n_leaves + p->rank[lease]; at > 0 && p->latest[at] < last; at /= 2)
        p->latest[at] = last;
}

/* Those below tree node `at`, which spans leaves first .. first + span - 1, that overlap `lease`.
 */
static void find(packing *p, const fr__lease *lease, int at, int first, int span)
{
    if (first >= p->n || p->latest[at] < lease->first) return;
    if (p->leases[p->by_first[first]].first > lease->last) return;
    if (span == 1) {
        p->found[p->n_found++] = p->by_first[first];
        return;
    }
    find(p, lease, 2 * at, first, span / 2);
    find(p, lease, 2 * at + 1, first + span / 2, span / 2);
}

/* Lowest offset where the lease overlaps none of those placed before it. */
static size_t lowest_fit(packing *p, const fr__lease *lease)
{
    size_t offset = 0;
    p->n_found = 0;
    find(p, lease, 1, 0, p->n_leaves);
    sort(p->leases, p->n_found, p->found, by_offset);
    for (int i = 0; i < p->n_found; i++) {
        const fr__lease *other = &p->leases[p->found[i]];
        size_t other_end = fr__align_up(other->offset + other->bytes);
        if (other->offset >= offset + lease->bytes) break;
        if (other_end > offset) offset = other_end;
    }
    return offset;
}

static size_t place(packing *p, const int *order)
{
    size_t total = 0;
    for (int i = 0; i < p->n; i++) {
        fr__lease *lease = &p->leases[order[i]];
        lease->offset = lease->bytes ? lowest_fit(p, lease) : 0;
        if (lease->bytes) insert(p, order[i]);
        size_t end = fr__align_up(lease->offset + lease->bytes);
        if (end > total) total = end;
    }
    return total;
}

bool fr__memplan(fr__lease *leases, int n, size_t *bytes)
{
    packing p = {.leases = leases, .n = n, .n_leaves = 1};
    *bytes = 0;
    if (n == 0) return true;
    while (p.n_leaves < n) p.n_leaves *= 2;
    int *order = FR_NEW_ARRAY(int, 4 * (size_t)n + 2 * (size_t)p.n_leaves);
    if (!order) return false;
    p.by_first = order + n;
    p.rank = p.by_first + n;
    p.found = p.rank + n;
    p.latest = p.found + n;
    for (int i = 0; i < n; i++) order[i] = p.by_first[i] = i;
    for (int i = 0; i < 2 * p.n_leaves; i++) p.latest[i] = -1;
    sort(leases, n, order, by_size);
    sort(leases, n, p.by_first, by_first);
    for (int i = 0; i < n; i++) p.rank[p.by_first[i]] = i;
    *bytes = place(&p, order);
    fr__free(order);
    return true;
}

void fr__memplan_live(const fr__lease *leases, int n, int n_steps, size_t *live)
{
    for (int i = 0; i <= n_steps; i++) live[i] = 0;
    for (int i = 0; i < n; i++) { /* changes from step to step; unsigned sums may pass below zero */
        live[leases[i].first] += fr__align_up(leases[i].bytes);
        live[leases[i].last + 1] -= fr__align_up(leases[i].bytes);
    }
    for (int i = 1; i <= n_steps; i++) live[i] += live[i - 1];
}
