/* host_tree.c -- sums over several blocks along a binary tree.
 *
 * sum(a, s) = sum(a, 2s) + sum(a + s, 2s), and block a alone if a + s is none: blocks whose
 * numbers end in the same bits are added first. With four: (0 + 2) + (1 + 3). */
#include "backend/device.h"

#include "base/simd.h"

#include <string.h>

enum {
    BLOCK = 1024, /* floats of each block that fit the first cache together */
    DEPTH = 11    /* of the tree of FR_TREE_MEMBERS */
};

FR_SIMD(static, add_two, (float *to, const float *a, const float *b, size_t count),
        (to, a, b, count))
{
    for (size_t i = 0; i < count; i++) to[i] = a[i] + b[i];
}

FR_SIMD(static, add_four, (float *to, const float *const *from, size_t count), (to, from, count))
{
    const float *a = from[0], *b = from[1], *c = from[2], *d = from[3];
    for (size_t i = 0; i < count; i++) to[i] = (a[i] + c[i]) + (b[i] + d[i]);
}

/* sum(a, s) of one block; returns one of `from`, or `scratch`. */
static const float *sum_block(float *scratch, const float *const *from, int n, int a, int s,
                              size_t at, size_t count)
{
    if (a + s >= n) return from[a] + at;
    const float *left = sum_block(scratch, from, n, a, 2 * s, at, count);
    const float *right = sum_block(scratch + BLOCK, from, n, a + s, 2 * s, at, count);
    add_two(scratch, left, right, count);
    return scratch;
}

void fr__tree_sum(float *to, const float *const *from, int n, size_t count)
{
    if (n == 1 && to != from[0]) memcpy(to, from[0], count * sizeof *to);
    if (n == 2) add_two(to, from[0], from[1], count);
    if (n == 4) add_four(to, from, count);
    if (n <= 2 || n == 4) return;
    float scratch[DEPTH * BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t piece = count - at < BLOCK ? count - at : BLOCK;
        const float *left = sum_block(scratch, from, n, 0, 2, at, piece);
        const float *right = sum_block(scratch + BLOCK, from, n, 1, 2, at, piece);
        add_two(to + at, left, right, piece);
    }
}
