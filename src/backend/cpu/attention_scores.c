/* attention_scores.c -- softmax over rows of scores, and its gradient.
 *
 * A row is one query. It sees a contiguous range of the block's keys; a mask may hide some of them
 * (-inf). One function serves rows with and without a mask: `has_mask` is a constant where it is
 * inlined. */
#include "backend/cpu/attention.h"

#include "backend/cpu/vmath.h"

#include <math.h>
#include <string.h>

/* The keys of row r: from .. from + n - 1 of the block's. */
typedef struct span {
    int64_t from, n;
} span;

FR_INLINE span find_span(const fr__scores *s, int64_t r)
{
    const fr__block *b = &s->block;
    const int64_t query = b->first + r - b->low;
    span seen = {0, s->sight.is_causal && query + 1 < b->keys ? query + 1 : b->keys};
    if (s->sight.window > 0 && query >= s->sight.window) {
        const int64_t from = query + 1 - s->sight.window;
        seen = from < seen.n ? (span){from, seen.n - from} : (span){0, 0};
    }
    return seen;
}

/* Scores of a row become scale * score + mask; a mask of integers hides a key by 0. */
FR_INLINE void mask_row(const fr__scores *s, float *restrict x, int64_t r, span seen)
{
    const float scale = s->scale;
    const int64_t at = r * s->ld_mask + seen.from;
    if (s->mask.type == FR_I32) {
        const int32_t *restrict m = (const int32_t *)s->mask.at + at;
        for (int64_t i = 0; i < seen.n; i++) x[i] = m[i] ? x[i] * scale : -INFINITY;
    } else if (s->mask.type == FR_BF16) {
        const uint16_t *restrict m = (const uint16_t *)s->mask.at + at;
        for (int64_t i = 0; i < seen.n; i++) x[i] = x[i] * scale + fr__bf16_value(m[i]);
    } else {
        const float *restrict m = (const float *)s->mask.at + at;
        for (int64_t i = 0; i < seen.n; i++) x[i] = x[i] * scale + m[i];
    }
}

/* A NaN is not hidden. */
FR_INLINE bool sees_none(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != -INFINITY) return false;
    return true;
}

FR_INLINE void fill(float *to, int64_t n) { memset(to, 0, (size_t)n * sizeof(float)); }

FR_INLINE void weigh_row(const fr__scores *s, int64_t r, bool has_mask)
{
    const int64_t keys = s->block.keys;
    const span seen = find_span(s, r);
    float *row = s->at + r * keys, *restrict x = row + seen.from;
    float top, sum, scale = has_mask ? 1.0f : s->scale;
    fill(row, seen.from);
    if (has_mask) mask_row(s, x, r, seen);
    if (seen.n == 0 || (has_mask && sees_none(x, seen.n))) {
        fill(row, keys);
        if (s->lse) s->lse[r] = INFINITY;
        return;
    }
    top = x[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < seen.n; i++) top = x[i] > top ? x[i] : top;
    top *= scale;
    for (int64_t i = 0; i < seen.n; i++) {
        const float p = fr__exp(x[i] * scale - top);
        x[i] = has_mask && x[i] == -INFINITY ? 0.0f : p;
    }
    FR_SUM(sum, i, seen.n, x[i]);
    float inv = 1.0f / sum;
    for (int64_t i = 0; i < seen.n; i++) x[i] *= inv;
    fill(x + seen.n, keys - seen.from - seen.n);
    if (s->lse) s->lse[r] = top + logf(sum);
}

FR_SIMD(extern, fr__weigh_scores, (const fr__scores *s), (s))
{
    if (s->mask.at)
        for (int64_t r = 0; r < s->block.n; r++) weigh_row(s, r, true);
    else
        for (int64_t r = 0; r < s->block.n; r++) weigh_row(s, r, false);
}

/* The gradient of a row of the mask is that of its scores, 0 where the query sees no key. */
FR_INLINE void put_mask_grad(const fr__scores *s, int64_t r, span seen, const float *restrict g)
{
    const int64_t first = s->block.low + seen.from, last = first + seen.n;
    if (s->mask_grad.type == FR_BF16) {
        uint16_t *restrict to = (uint16_t *)s->mask_grad.at + r * s->n_mask;
        for (int64_t i = 0; i < first; i++) to[i] = 0;
        for (int64_t i = 0; i < seen.n; i++) to[first + i] = fr__bf16_of(g[i]);
        for (int64_t i = last; i < s->n_mask; i++) to[i] = 0;
    } else {
        float *restrict to = (float *)s->mask_grad.at + r * s->n_mask;
        for (int64_t i = 0; i < first; i++) to[i] = 0.0f;
        for (int64_t i = 0; i < seen.n; i++) to[first + i] = g[i];
        for (int64_t i = last; i < s->n_mask; i++) to[i] = 0.0f;
    }
}

FR_INLINE void slope_row(const fr__scores *s, int64_t r, bool has_mask)
{
    const int64_t keys = s->block.keys;
    const span seen = find_span(s, r);
    float *row = s->at + r * keys, *grads = s->grads + r * keys;
    float *restrict p = row + seen.from, *restrict g = grads + seen.from;
    float sum, scale = s->scale, shift = s->lse[r];
    if (seen.n == 0 || (has_mask && shift == INFINITY)) {
        fill(row, keys), fill(grads, keys);
        if (has_mask && s->mask_grad.at) put_mask_grad(s, r, seen, g);
        return;
    }
    fill(row, seen.from), fill(grads, seen.from);
    if (has_mask) {
        mask_row(s, p, r, seen);
        for (int64_t i = 0; i < seen.n; i++) {
            const float value = fr__exp(p[i] - shift);
            p[i] = p[i] == -INFINITY ? 0.0f : value;
        }
    } else {
        for (int64_t i = 0; i < seen.n; i++) p[i] = fr__exp(p[i] * scale - shift);
    }
    FR_SUM(sum, i, seen.n, p[i] * g[i]);
    if (has_mask && s->mask_grad.at) {
        for (int64_t i = 0; i < seen.n; i++) g[i] = p[i] * (g[i] - sum);
        put_mask_grad(s, r, seen, g);
        for (int64_t i = 0; i < seen.n; i++) g[i] *= scale;
    } else {
        for (int64_t i = 0; i < seen.n; i++) g[i] = p[i] * (g[i] - sum) * scale;
    }
    fill(p + seen.n, keys - seen.from - seen.n);
    fill(g + seen.n, keys - seen.from - seen.n);
}

FR_SIMD(extern, fr__slope_scores, (const fr__scores *s), (s))
{
    if (s->mask.at)
        for (int64_t r = 0; r < s->block.n; r++) slope_row(s, r, true);
    else
        for (int64_t r = 0; r < s->block.n; r++) slope_row(s, r, false);
}
