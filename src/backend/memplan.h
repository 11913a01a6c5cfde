/* memplan.h -- places for tensors with known lifetimes in one block. */
#ifndef FR_BACKEND_MEMPLAN_H
#define FR_BACKEND_MEMPLAN_H

#include <forerun/base.h>

/* Alive from step `first` to step `last`, both included. */
typedef struct fr__lease {
    size_t bytes;
    int first, last;
    size_t offset; /* result; a multiple of FR_ALIGN */
} fr__lease;

/* Place n leases so that no two that are alive at the same step overlap: greedy by size, each at
 * the lowest offset that fits (best known simple heuristic for offline packing; see Pisarchyk and
 * Lee 2020, "greedy by size"). Fills *bytes with the size of the block. False: out of memory. */
bool fr__memplan(fr__lease *leases, int n, size_t *bytes);
/* live[step]: bytes of the leases alive at each of n_steps; room for n_steps + 1. */
void fr__memplan_live(const fr__lease *leases, int n, int n_steps, size_t *live);

#endif
