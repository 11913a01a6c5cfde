/* memplan.c -- greedy-by-size packing of leases. */
#include "backend/memplan.h"

#include "base/alloc.h"

#include <stdlib.h>

static bool overlap_in_time(const fr_lease *a, const fr_lease *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Larger first; ties by order, so that the plan is the same everywhere. */
static int by_size(const void *a, const void *b, void *user)
{
    const fr_lease *leases = user;
    int i = *(const int *)a, j = *(const int *)b;
    if (leases[i].bytes != leases[j].bytes) return leases[i].bytes > leases[j].bytes ? -1 : 1;
    return i - j;
}

static void sort_by_size(fr_lease *leases, int n, int *order)
{
    for (int i = 0; i < n; i++) order[i] = i;
    if (n > 0) qsort_r(order, (size_t)n, sizeof *order, by_size, leases);
}

/* Lowest offset where lease `order[n_placed]` meets none of those placed before it. */
static size_t lowest_fit(const fr_lease *leases, const int *order, int n_placed)
{
    const fr_lease *lease = &leases[order[n_placed]];
    size_t offset = 0;
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (int i = 0; i < n_placed; i++) {
            const fr_lease *other = &leases[order[i]];
            if (!overlap_in_time(lease, other)) continue;
            size_t other_end = fr__align_up(other->offset + other->bytes);
            if (offset < other_end && other->offset < offset + lease->bytes) {
                offset = other_end;
                has_moved = true;
            }
        }
    }
    return offset;
}

size_t fr__memplan(fr_lease *leases, int n, int *scratch)
{
    size_t total = 0;
    sort_by_size(leases, n, scratch);
    for (int i = 0; i < n; i++) {
        fr_lease *lease = &leases[scratch[i]];
        lease->offset = lease->bytes ? lowest_fit(leases, scratch, i) : 0;
        size_t end = fr__align_up(lease->offset + lease->bytes);
        if (end > total) total = end;
    }
    return total;
}

void fr__memplan_live(const fr_lease *leases, int n, int n_steps, size_t *live)
{
    for (int i = 0; i <= n_steps; i++) live[i] = 0;
    for (int i = 0; i < n; i++) { /* changes from step to step; unsigned sums may pass below zero */
        live[leases[i].first] += fr__align_up(leases[i].bytes);
        live[leases[i].last + 1] -= fr__align_up(leases[i].bytes);
    }
    for (int i = 1; i <= n_steps; i++) live[i] += live[i - 1];
}
