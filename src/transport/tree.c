/* tree.c -- how sums over members are made: who adds what, and in which order.
 *
 * sum(a, s) = sum(a, 2s) + sum(a + s, 2s), and member a alone if a + s is none: members whose
 * numbers end in the same bits are added first. With four: (0 + 2) + (1 + 3). */
#include "base/alloc.h"
#include "base/simd.h"
#include "transport/transport.h"

#include <string.h>

enum {
    BLOCK = 1024, /* floats; what a sweep over many members keeps in the nearest cache */
    DEPTH = 11    /* of the tree of FR_TREE_MEMBERS */
};

/* Whole lines of the cache, so that two members do not write to one. */
void fr__shard(size_t n, int n_members, int k, size_t *at, size_t *count)
{
    size_t line = FR_ALIGN / sizeof(float), m = (size_t)n_members;
    size_t each = ((n + m - 1) / m + line - 1) / line * line;
    size_t begin = each * (size_t)k < n ? each * (size_t)k : n;
    size_t end = begin + each < n ? begin + each : n;
    *at = begin, *count = end - begin;
}

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

/* sum(a, s) of one block: where it lies, which is a member's own row or `scratch`. */
static const float *sum_block(float *scratch, const float *const *from, int n_members, int a, int s,
                              size_t at, size_t count)
{
    if (a + s >= n_members) return from[a] + at;
    const float *left = sum_block(scratch, from, n_members, a, 2 * s, at, count);
    const float *right = sum_block(scratch + BLOCK, from, n_members, a + s, 2 * s, at, count);
    add_two(scratch, left, right, count);
    return scratch;
}

void fr__tree_sum(float *to, const float *const *from, int n_members, size_t count)
{
    if (n_members == 1 && to != from[0]) memcpy(to, from[0], count * sizeof *to);
    if (n_members == 2) add_two(to, from[0], from[1], count);
    if (n_members == 4) add_four(to, from, count);
    if (n_members <= 2 || n_members == 4) return;
    float scratch[DEPTH * BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const float *left = sum_block(scratch, from, n_members, 0, 2, at, n);
        const float *right = sum_block(scratch + BLOCK, from, n_members, 1, 2, at, n);
        add_two(to + at, left, right, n);
    }
}
