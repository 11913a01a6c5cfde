/* floats.h -- pieces of a tensor of either type as floats, for sweeps.
 *
 * A sweep computes with floats only. It takes a piece of each operand, small enough for the first
 * cache: floats are read and written in place, bf16 is widened into a room of the caller and
 * rounded on the way back. For FR_SIMD functions. */
#ifndef FR_BACKEND_CPU_FLOATS_H
#define FR_BACKEND_CPU_FLOATS_H

#include "backend/kernel.h"
#include "base/bf16.h"

enum { FR_PIECE = 512 }; /* elements */

/* A tensor to read or to write, FR_F32 or FR_BF16. */
typedef struct fr__source {
    const void *at;
    fr_dtype type;
} fr__source;

typedef struct fr__sink {
    void *at;
    fr_dtype type;
} fr__sink;

/* Elements from i on. */
static inline fr__source fr__source_at(fr__source t, int64_t i)
{
    return (fr__source){(const char *)t.at + i * (int64_t)fr_dtype_bytes(t.type), t.type};
}

static inline fr__sink fr__sink_at(fr__sink t, int64_t i)
{
    return (fr__sink){(char *)t.at + i * (int64_t)fr_dtype_bytes(t.type), t.type};
}

FR_INLINE size_t fr__piece(size_t at, size_t end)
{
    return end - at < FR_PIECE ? end - at : FR_PIECE;
}

/* Elements i to i + n - 1: in place, or in `room`. */
FR_INLINE const float *fr__read(fr__source t, size_t i, size_t n, float *restrict room)
{
    if (t.type != FR_BF16) return (const float *)t.at + i;
    const uint16_t *restrict from = (const uint16_t *)t.at + i;
    for (size_t j = 0; j < n; j++) room[j] = fr__bf16_value(from[j]);
    return room;
}

/* Where to compute elements from i on: in place, or in `room`; then store them. */
FR_INLINE float *fr__place(fr__sink t, size_t i, float *room)
{
    return t.type == FR_BF16 ? room : (float *)t.at + i;
}

FR_INLINE void fr__store(fr__sink t, size_t i, size_t n, const float *restrict from)
{
    if (t.type != FR_BF16) return;
    uint16_t *restrict to = (uint16_t *)t.at + i;
    for (size_t j = 0; j < n; j++) to[j] = fr__bf16_of(from[j]);
}

/* The same for a gradient that is added to another one, after it has been rounded. Where floats are
 * in place the caller has added them. */
FR_INLINE void fr__store_sum(fr__sink t, size_t i, size_t n, const float *restrict from)
{
    if (t.type != FR_BF16) return;
    uint16_t *restrict to = (uint16_t *)t.at + i;
    for (size_t j = 0; j < n; j++)
        to[j] = fr__bf16_of(fr__bf16_value(to[j]) + fr__bf16_value(fr__bf16_of(from[j])));
}

#endif
