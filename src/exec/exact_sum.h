/* exact_sum.h -- exact sums: the order in which the gradients of a worker's micro-batches are
 * added.
 *
 * Micro-batches j = 0 .. n - 1 are added along the tree of fr_sum_desc, sum(a, s) = sum(a, 2s) +
 * sum(a + s, 2s), a leaf if a + s >= n. If R is a power of two that divides n, each of R replicas
 * adds a subtree of the tree of one worker, and the transport's tree over replicas is the rest: R
 * replicas give the bits of one.
 *
 * A plan is immutable after its creation. */
#ifndef FR_EXEC_EXACT_SUM_H
#define FR_EXEC_EXACT_SUM_H

#include "base/arena.h"

typedef struct fr__tree_merge {
    int to, from; /* block `to` += block `from`, which is free then */
} fr__tree_merge;

typedef struct fr__tree {
    int n;        /* micro-batches of a worker's share of an update */
    int n_blocks; /* n / 2 + 1 for powers of two */
    int *block;   /* [n]: where the gradient of micro-batch j is written, fresh, by its backward */
    /* After micro-batch j follow merges first_merge[j] .. first_merge[j + 1] - 1, in that order;
     * after the last one the sum is in block 0. */
    int *first_merge;       /* [n + 1] */
    fr__tree_merge *merges; /* [n - 1] */
} fr__tree;

/* false: out of memory. Lives as long as the arena. */
bool fr__tree_plan(fr_arena *arena, int n, fr__tree *out);

#endif
