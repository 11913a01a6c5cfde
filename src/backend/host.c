/* host.c -- shared by backends whose device is the host: memory, and sweeps over it on the device's
 * threads. No result depends on the number of threads. */
#include "backend/kernel.h"

#include "base/bf16.h"
#include "optim/optim.h"

#include <string.h>

enum { SWEEP_GRAIN = 1024, BLEND_GRAIN = 4096, ADD_GRAIN = 8192, SQUARES_GRAIN = 8 /* spans */ };

void *fr__host_alloc(fr_device *dev, size_t bytes)
{
    (void)dev;
    return fr__alloc(bytes);
}

void fr__host_release(fr_device *dev, void *block)
{
    (void)dev;
    fr__free(block);
}

fr_status fr__host_copy(fr_device *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
    return FR_OK;
}

/* ---- Element types ---- */

typedef struct two_blocks {
    void *y;
    const void *x;
} two_blocks;

FR_SIMD_RANGE(narrow_range)
{
    uint16_t *restrict y = ((const two_blocks *)arg)->y;
    const float *restrict x = ((const two_blocks *)arg)->x;
    for (size_t i = begin; i < end; i++) y[i] = fr__bf16_of(x[i]);
}

FR_SIMD_RANGE(widen_range)
{
    float *restrict y = ((const two_blocks *)arg)->y;
    const uint16_t *restrict x = ((const two_blocks *)arg)->x;
    for (size_t i = begin; i < end; i++) y[i] = fr__bf16_value(x[i]);
}

fr_status fr__host_convert(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                           const void *from, size_t n)
{
    if (to_type == FR_I32 || from_type == FR_I32)
        return fr_fail(dev->ctx, FR_INTERNAL, "integers are not converted");
    if (to_type == from_type) return fr__host_copy(dev, to, from, n * fr_dtype_bytes(to_type));
    dev->backend->parallel(dev, n, BLEND_GRAIN, to_type == FR_BF16 ? narrow_range : widen_range,
                           &(two_blocks){to, from});
    return FR_OK;
}

FR_SIMD_RANGE(add_range)
{
    float *restrict y = ((const two_blocks *)arg)->y;
    const float *restrict x = ((const two_blocks *)arg)->x;
    for (size_t i = begin; i < end; i++) y[i] += x[i];
}

FR_SIMD_RANGE(add_bf16_range)
{
    uint16_t *restrict y = ((const two_blocks *)arg)->y;
    const uint16_t *restrict x = ((const two_blocks *)arg)->x;
    for (size_t i = begin; i < end; i++)
        y[i] = fr__bf16_of(fr__bf16_value(y[i]) + fr__bf16_value(x[i]));
}

void fr__host_add(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n)
{
    dev->backend->parallel(dev, n, ADD_GRAIN, type == FR_BF16 ? add_bf16_range : add_range,
                           &(two_blocks){y, x});
}

/* ---- Blends ---- */

typedef struct blending {
    float *y;
    const float *x;
    float by;
} blending;

FR_SIMD_RANGE(scale_range)
{
    const blending *b = arg;
    for (size_t i = begin; i < end; i++) b->y[i] = b->x[i] * b->by;
}

FR_SIMD_RANGE(divide_range)
{
    const blending *b = arg;
    for (size_t i = begin; i < end; i++) b->y[i] = b->x[i] / b->by;
}

FR_SIMD_RANGE(add_part_range)
{
    const blending *b = arg;
    for (size_t i = begin; i < end; i++) b->y[i] += b->x[i] / b->by;
}

FR_SIMD_RANGE(rest_range)
{
    const blending *b = arg;
    for (size_t i = begin; i < end; i++) b->y[i] = b->x[i] - b->y[i];
}

void fr__host_blend(fr_device *dev, fr__blend kind, float *y, const float *x, float by, size_t n)
{
    static const fr_range_fn bodies[] = {[FR_BLEND_SCALE] = scale_range,
                                         [FR_BLEND_DIVIDE] = divide_range,
                                         [FR_BLEND_ADD_PART] = add_part_range,
                                         [FR_BLEND_REST] = rest_range};
    dev->backend->parallel(dev, n, BLEND_GRAIN, bodies[kind], &(blending){y, x, by});
}

/* ---- Optimizers ---- */

/* On the stack of the caller: several threads may sweep ranges at once. */
typedef struct sweeping {
    const fr_optimizer *opt;
    const fr_optim_coef *coef;
    const fr_sweep *whole;
} sweeping;

static void sweep_range(void *arg, size_t begin, size_t end)
{
    const sweeping *t = arg;
    fr_sweep s = *t->whole;
    s.n = end - begin;
    s.from += begin;
    if (s.to) s.to += begin;
    if (s.grad) s.grad += begin;
    if (s.drift) s.drift += begin;
    for (int i = 0; i < t->opt->n_state; i++) s.state[i] += begin;
    size_t bytes = s.ahead_is_bf16 ? sizeof(uint16_t) : sizeof(float);
    for (int i = 0; i < s.n_ahead; i++) s.ahead[i] = (char *)s.ahead[i] + begin * bytes;
    if (t->coef)
        t->opt->step(t->coef, &s);
    else
        t->opt->predict(&s);
}

void fr__host_sweep(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                    const fr_sweep *sweep)
{
    dev->backend->parallel(dev, sweep->n, SWEEP_GRAIN, sweep_range, &(sweeping){opt, coef, sweep});
}

/* ---- Sums and samples ---- */

typedef struct squaring {
    const float *x;
    const fr__span *spans;
    double *sums;
} squaring;

static void square_range(void *arg, size_t begin, size_t end)
{
    const squaring *t = arg;
    for (size_t i = begin; i < end; i++)
        t->sums[i] = fr__sum_squares_block(t->x + t->spans[i].offset, t->spans[i].count);
}

void fr__host_squares(fr_device *dev, const float *x, const fr__span *spans, size_t n, double *sums)
{
    dev->backend->parallel(dev, n, SQUARES_GRAIN, square_range, &(squaring){x, spans, sums});
}

/* By one thread: each member of a sum adds a shard of its own. */
void fr__host_tree_sum(fr_device *dev, float *to, const float *const *from, int n, size_t count)
{
    (void)dev;
    fr__tree_sum(to, from, n, count);
}

fr_status fr__host_pick(fr_device *dev, float *host, fr_dtype type, const void *from, size_t n,
                        size_t stride)
{
    (void)dev;
    const float *f32 = from;
    const uint16_t *bf16 = from;
    for (size_t i = 0; i < n; i++)
        host[i] = type == FR_BF16 ? fr__bf16_value(bf16[i * stride]) : f32[i * stride];
    return FR_OK;
}
