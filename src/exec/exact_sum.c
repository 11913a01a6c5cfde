/* exact_sum.c -- the plan of an exact sum.
 *
 * A node of the tree is (j mod s, s) for every micro-batch j below it, s a power of two: those
 * whose numbers end in the same bits. It is complete when its last micro-batch is, the one with j +
 * s >= n. So after micro-batch j, from the leaves up, nodes with j + s >= n are merged: the left
 * half is in the block of its first leaf j mod s, the right one in that of j mod s + s.
 *
 *     n = 6   micro-batch  0    1    2    3    4               5
 *             block        0    1    2    3    4               2
 *             merges                           0 += 4, 0 += 2  1 += 2, 1 += 3, 0 += 1
 *
 * Subtrees wait as short as the order of micro-batches allows, so no plan has fewer blocks. */
#include "exec/exact_sum.h"

/* The lowest block that is not in use. */
static int take(bool *in_use, fr__tree *t)
{
    int b = 0;
    while (in_use[b]) b++;
    in_use[b] = true;
    if (b >= t->n_blocks) t->n_blocks = b + 1;
    return b;
}

bool fr__tree_plan(fr_arena *arena, int n, fr__tree *out)
{
    bool *in_use = FR_ARENA_ARRAY(arena, bool, n + 1);
    *out = (fr__tree){.n = n,
                      .block = FR_ARENA_ARRAY(arena, int, n),
                      .first_merge = FR_ARENA_ARRAY(arena, int, n + 1),
                      .merges = FR_ARENA_ARRAY(arena, fr__tree_merge, n)};
    if (!in_use || !out->block || !out->first_merge || !out->merges) return false;
    int top = 1, n_merges = 0;
    while (top < n) top *= 2;
    for (int j = 0; j < n; j++) {
        out->block[j] = take(in_use, out);
        for (int s = top; s >= 1; s /= 2) {
            int left = j % s, right = left + s;
            if (j + s < n || right >= n) continue; /* more to come; or a leaf */
            out->merges[n_merges++] = (fr__tree_merge){out->block[left], out->block[right]};
            in_use[out->block[right]] = false;
        }
        out->first_merge[j + 1] = n_merges;
    }
    return true;
}
