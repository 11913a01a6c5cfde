/* batch_norm.c -- batch normalisation (Ioffe and Szegedy, 2015), with a following relu fused.
 *
 *     m, v = mean and variance of a channel over samples and pixels;  h = (x - m) / sqrt(v + eps)
 *     y  = weight * h + bias
 *     dx = weight / sqrt(v + eps) * (dz - mean(dz) - h * mean(dz * h)),  dz = dy where the relu let
 *          y through, which is asked again of x, so that y is not needed
 *
 * Channels are processed eight at a time, one block after the other, each block twice:
 * statistics, then values, which are read from the cache. Statistics are sums over the plane of one
 * sample, combined in order of samples (Chan, Golub and LeVeque, 1979). Their bits do not depend on
 * the layout of the tensors or the number of threads.
 *
 * Parameters: weight, bias (trained), running_mean, running_var (buffers). */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes.h"
#include "base/bf16.h"

enum { LANES = FR_LANES };

/* Layout of a tensor: sample, block of LANES channels, pixel, lane. */
typedef struct view {
    size_t sample, block, pixel, lane; /* strides in elements */
    size_t half; /* blocks of 16 channels: the odd block starts here, `block` is for two */
    fr_dtype type;
    bool is_padded; /* the last block has room for all lanes, which must be zero */
} view;

/* A block of a tensor: all lanes side by side, as floats or as bf16; or fewer, or apart. */
typedef enum form { FLOATS, BF16, ANY } form;

typedef struct bn {
    fr__kernel base;
    bool has_relu;
    size_t channels, samples, pixels;
    view x, y;
} bn;

typedef struct call {
    const bn *b;
    const fr__kernel_args *a;
    void *dx; /* NULL: parameter gradients only */
} call;

/* Coefficients of a block, zeros for missing lanes: h = (x - mean) * slope, y = (x - mean) * scale
 * + bias. */
typedef struct terms {
    fr__v8 mean, slope, scale, bias;
} terms;

/* Vectors of `channels` floats in `saved`. */
enum { MEAN, SLOPE, D_WEIGHT, D_BIAS, N_VECTORS };

static float *vector(const bn *b, const fr__kernel_args *a, int which)
{
    return (float *)((char *)a->saved + (size_t)which * fr__align_up(b->channels * sizeof(float)));
}

static inline size_t start_of(const view *v, size_t sample, size_t block)
{
    if (!v->half) return sample * v->sample + block * v->block;
    return sample * v->sample + block / 2 * v->block + block % 2 * v->half;
}

/* 0 if the last block is only padding to 16 channels. */
static inline size_t lanes_in(const bn *b, size_t block)
{
    if (block * LANES >= b->channels) return 0;
    size_t left = b->channels - block * LANES;
    return left < LANES ? left : LANES;
}

/* n lanes of a pixel, the first of which is element i; zeros in the others. f is a constant. */
FR_INLINE void load(fr__v8 *to, const void *tensor, size_t i, form f, size_t n, const view *v)
{
    const float *floats = (const float *)tensor + i;
    const uint16_t *bf16 = (const uint16_t *)tensor + i;
    float lane[LANES] = {0};
    switch (f) {
    case FLOATS: *to = FR_LOAD8(floats); return;
    case BF16: *to = FR_LOAD8_BF16(bf16); return;
    case ANY: break;
    }
    for (size_t l = 0; l < n; l++)
        lane[l] = v->type == FR_BF16 ? fr__bf16_value(bf16[l * v->lane]) : floats[l * v->lane];
    *to = FR_LOAD8(lane);
}

FR_INLINE void store(const fr__v8 *from, void *tensor, size_t i, form f, size_t n, const view *v)
{
    float *floats = (float *)tensor + i, lane[LANES];
    uint16_t *bf16 = (uint16_t *)tensor + i;
    const bool is_padded = f == ANY && v->is_padded;
    if (f == BF16 || (is_padded && v->type == FR_BF16)) {
        FR_STORE8_BF16(bf16, *from);
    } else if (f == FLOATS || is_padded) {
        FR_STORE8(floats, *from);
    } else {
        FR_STORE8(lane, *from);
        for (size_t l = 0; l < n; l++) {
            if (v->type == FR_BF16)
                bf16[l * v->lane] = fr__bf16_of(lane[l]);
            else
                floats[l * v->lane] = lane[l];
        }
    }
}

/* ---- Forward ---- */

/* Mean and sum of squared distances of one plane, joined to those of the `seen` numbers before. */
FR_INLINE void join_plane(const bn *b, const void *x, size_t start, form f, size_t n, double seen,
                          double mean[LANES], double spread[LANES])
{
    fr__v8 sum = FR_ALL8(0), square = FR_ALL8(0), at;
    for (size_t p = 0; p < b->pixels; p++) {
        load(&at, x, start + p * b->x.pixel, f, n, &b->x);
        sum += at;
    }
    const fr__v8 middle = sum / (float)b->pixels;
    for (size_t p = 0; p < b->pixels; p++) {
        load(&at, x, start + p * b->x.pixel, f, n, &b->x);
        square += (at - middle) * (at - middle);
    }
    const double fresh = (double)b->pixels, total = seen + fresh;
    for (size_t l = 0; l < LANES; l++) {
        double d = (double)middle[l] - mean[l];
        mean[l] += d * fresh / total;
        spread[l] += (double)square[l] + d * d * seen * fresh / total;
    }
}

FR_INLINE void find_statistics(const bn *b, const fr__kernel_args *a, size_t block, form f,
                               size_t n)
{
    double mean[LANES] = {0}, spread[LANES] = {0};
    for (size_t s = 0; s < b->samples; s++)
        join_plane(b, a->x[0], start_of(&b->x, s, block), f, n, (double)(s * b->pixels), mean,
                   spread);
    const double count = (double)(b->samples * b->pixels);
    const float m = b->base.node->attrs.norm.momentum, eps = b->base.node->attrs.norm.eps;
    for (size_t l = 0; l < n; l++) {
        const size_t c = block * LANES + l;
        float *running_mean = a->buffers[2] + c, *running_var = a->buffers[3] + c;
        vector(b, a, MEAN)[c] = (float)mean[l];
        vector(b, a, SLOPE)[c] = (float)(1 / sqrt(spread[l] / count + (double)eps));
        /* PyTorch's rule: m weighs the new value; the variance kept is the unbiased one. */
        *running_mean = (1 - m) * *running_mean + m * (float)mean[l];
        *running_var = (1 - m) * *running_var + m * (float)(spread[l] / (count - 1));
    }
}

FR_INLINE void normalise(const bn *b, const fr__kernel_args *a, const terms *t, size_t block,
                         form f, bool has_relu, size_t n)
{
    for (size_t s = 0; s < b->samples; s++) {
        const size_t x = start_of(&b->x, s, block), y = start_of(&b->y, s, block);
        for (size_t p = 0; p < b->pixels; p++) {
            fr__v8 at;
            load(&at, a->x[0], x + p * b->x.pixel, f, n, &b->x);
            at = (at - t->mean) * t->scale + t->bias;
            if (has_relu) at = FR_SELECT8(at < FR_ALL8(0), FR_ALL8(0), at); /* NaN stays */
            store(&at, a->y, y + p * b->y.pixel, f, n, &b->y);
        }
    }
}

static float trained(const bn *b, const fr__kernel_args *a, int i, size_t c)
{
    if (b->base.w_type == FR_BF16) return fr__bf16_value(((const uint16_t *)a->w[i])[c]);
    return fr__floats(a, i)[c];
}

static void find_terms(const bn *b, const fr__kernel_args *a, size_t block, terms *t)
{
    float mean[LANES] = {0}, slope[LANES] = {0}, scale[LANES] = {0}, bias[LANES] = {0};
    for (size_t l = 0; l < lanes_in(b, block); l++) {
        const size_t c = block * LANES + l;
        const double eps = (double)b->base.node->attrs.norm.eps;
        bool is_training = b->base.training;
        mean[l] = is_training ? vector(b, a, MEAN)[c] : fr__floats(a, 2)[c];
        slope[l] =
            is_training ? vector(b, a, SLOPE)[c] : (float)(1 / sqrt(fr__floats(a, 3)[c] + eps));
        scale[l] = slope[l] * trained(b, a, 0, c);
        bias[l] = trained(b, a, 1, c);
    }
    *t = (terms){FR_LOAD8(mean), FR_LOAD8(slope), FR_LOAD8(scale), FR_LOAD8(bias)};
}

static form form_of(const bn *b, size_t block)
{
    if (lanes_in(b, block) < LANES || b->x.lane > 1 || b->y.lane > 1) return ANY;
    return b->x.type == FR_BF16 ? BF16 : FLOATS;
}

FR_INLINE void forward_block(const call *c, size_t block, form f, bool has_relu, size_t n)
{
    terms t;
    if (c->b->base.training) find_statistics(c->b, c->a, block, f, n);
    find_terms(c->b, c->a, block, &t);
    normalise(c->b, c->a, &t, block, f, has_relu, n);
}

/* One version of the loops for each combination of compile-time constants. */
#define FOR_EACH_BLOCK(visit)                                            \
    for (size_t block = begin; block < end; block++) {                   \
        const call *c = arg;                                             \
        const form f = form_of(c->b, block);                             \
        if (f == ANY)                                                    \
            visit(c, block, ANY, c->b->has_relu, lanes_in(c->b, block)); \
        else if (f == BF16 && c->b->has_relu)                            \
            visit(c, block, BF16, true, LANES);                          \
        else if (f == BF16)                                              \
            visit(c, block, BF16, false, LANES);                         \
        else if (c->b->has_relu)                                         \
            visit(c, block, FLOATS, true, LANES);                        \
        else                                                             \
            visit(c, block, FLOATS, false, LANES);                       \
    }

FR_SIMD_RANGE(forward_blocks){FOR_EACH_BLOCK(forward_block)}

/* ---- Backward ---- */

/* x to its distance from the mean, dy to dz. y is positive if the value is above `zero`: with bf16
 * the largest number that is rounded to 0. */
FR_INLINE void revisit(fr__v8 *x, fr__v8 *dy, const terms *t, bool has_relu, float zero)
{
    *x -= t->mean;
    if (has_relu) *dy = FR_SELECT8(*x * t->scale + t->bias > FR_ALL8(zero), *dy, FR_ALL8(0));
}

static float zero_of(const bn *b) { return b->y.type == FR_BF16 ? 0x1p-134f : 0.0f; }

FR_INLINE void sum_gradients(const bn *b, const fr__kernel_args *a, const terms *t, size_t block,
                             form f, bool has_relu, size_t n)
{
    double d_weight[LANES] = {0}, d_bias[LANES] = {0};
    const float zero = zero_of(b);
    for (size_t s = 0; s < b->samples; s++) {
        const size_t x = start_of(&b->x, s, block), y = start_of(&b->y, s, block);
        fr__v8 sum = FR_ALL8(0), sum_h = FR_ALL8(0), d, dz;
        for (size_t p = 0; p < b->pixels; p++) {
            load(&d, a->x[0], x + p * b->x.pixel, f, n, &b->x);
            load(&dz, a->dy, y + p * b->y.pixel, f, n, &b->y);
            revisit(&d, &dz, t, has_relu, zero);
            sum += dz;
            sum_h += dz * (d * t->slope);
        }
        for (size_t l = 0; l < LANES; l++) d_bias[l] += (double)sum[l];
        for (size_t l = 0; l < LANES; l++) d_weight[l] += (double)sum_h[l];
    }
    for (size_t l = 0; l < n; l++) vector(b, a, D_WEIGHT)[block * LANES + l] = (float)d_weight[l];
    for (size_t l = 0; l < n; l++) vector(b, a, D_BIAS)[block * LANES + l] = (float)d_bias[l];
}

FR_INLINE void find_dx(const call *c, const terms *t, size_t block, form f, bool has_relu, size_t n)
{
    const bn *b = c->b;
    const float share = 1.0f / (float)(b->samples * b->pixels), zero = zero_of(b);
    float lane[2][LANES] = {{0}};
    for (size_t l = 0; l < n; l++) {
        lane[0][l] = vector(b, c->a, D_BIAS)[block * LANES + l] * share;
        lane[1][l] = vector(b, c->a, D_WEIGHT)[block * LANES + l] * share;
    }
    const fr__v8 mean_dz = FR_LOAD8(lane[0]), slope_dz = FR_LOAD8(lane[1]) * t->slope;
    for (size_t s = 0; s < b->samples; s++) {
        const size_t x = start_of(&b->x, s, block), y = start_of(&b->y, s, block);
        for (size_t p = 0; p < b->pixels; p++) {
            fr__v8 d, dz;
            load(&d, c->a->x[0], x + p * b->x.pixel, f, n, &b->x);
            load(&dz, c->a->dy, y + p * b->y.pixel, f, n, &b->y);
            revisit(&d, &dz, t, has_relu, zero);
            dz = t->scale * (dz - mean_dz - d * slope_dz);
            store(&dz, c->dx, x + p * b->x.pixel, f, n, &b->x);
        }
    }
}

FR_INLINE void backward_block(const call *c, size_t block, form f, bool has_relu, size_t n)
{
    terms t;
    find_terms(c->b, c->a, block, &t);
    sum_gradients(c->b, c->a, &t, block, f, has_relu, n);
    if (c->dx) find_dx(c, &t, block, f, has_relu, n);
}

FR_SIMD_RANGE(backward_blocks) { FOR_EACH_BLOCK(backward_block) }

/* ---- Entries ---- */

/* Blocks of 16 channels are two each, even where the second is all padding, which must be zero. */
static size_t n_blocks(const bn *b)
{
    const size_t step = b->x.half || b->y.half ? 2 : 1, lanes = step * LANES;
    return (b->channels + lanes - 1) / lanes * step;
}

static fr_status bn_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const bn *b = (const bn *)k;
    fr__cpu_parallel(k->dev, n_blocks(b), 1, forward_blocks, &(call){.b = b, .a = a});
    return FR_OK;
}

/* Leaves the gradients of the parameters in `saved`, for backward_weight. */
static fr_status bn_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const bn *b = (const bn *)k;
    fr__cpu_parallel(k->dev, n_blocks(b), 1, backward_blocks, &(call){b, a, a->dx[0]});
    return FR_OK;
}

static fr_status bn_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const bn *b = (const bn *)k;
    if (!k->ops->backward_input)
        fr__cpu_parallel(k->dev, n_blocks(b), 1, backward_blocks, &(call){b, a, NULL});
    for (int i = 0; i < 2; i++) {
        const float *fresh = vector(b, a, D_WEIGHT + i);
        if (a->add_dw)
            fr__host_add(k->dev, FR_F32, a->dw[i], fresh, b->channels);
        else
            memcpy(a->dw[i], fresh, b->channels * sizeof(float));
    }
    return FR_OK;
}

/* A lone (C) is one pixel of all channels. */
static view make_view(const bn *b, const fr__layout *layout)
{
    const size_t side = (size_t)fr__layout_lanes(layout);
    const fr_dtype type = layout->dtype;
    if (b->base.node->shape.n_dims == 1)
        return (view){.sample = b->channels, .block = LANES, .lane = 1, .type = type};
    if (side == 1)
        return (view){.sample = b->channels * b->pixels,
                      .block = LANES * b->pixels,
                      .pixel = 1,
                      .lane = b->pixels,
                      .type = type};
    return (view){.sample = (b->channels + side - 1) / side * side * b->pixels,
                  .block = side * b->pixels,
                  .pixel = side,
                  .lane = 1,
                  .half = side == 16 ? LANES : 0,
                  .type = type,
                  .is_padded = true};
}

static fr_status describe(bn *b, const fr__kernel_spec *spec)
{
    fr__kernel *k = &b->base;
    b->has_relu = fr__group_has(spec, FR_OP_RELU);
    b->channels = (size_t)k->node->shape.dim[0];
    b->samples = (size_t)k->batch;
    b->pixels = (size_t)fr_shape_count(&k->node->shape) / b->channels;
    if (k->training && b->samples * b->pixels < 2)
        return fr_fail(
            k->ctx, FR_INVALID,
            "node %s: batch_norm cannot train on one number per channel (a variance needs "
            "two); use micro-batches of at least 2 samples",
            k->node->name);
    b->x = make_view(b, spec->x[0]);
    fr__md y;
    FR_TRY(spec->plain_output ? fr__md_plain(k, k->node, &y) : fr__md_blocked(k, k->node, &y));
    if (!spec->plain_output && spec->x[0]->desc)
        FR_TRY(fr__md_of_layout(k, spec->x[0], k->node, &y));
    FR_TRY(fr__layout_of_md(k, y, &k->y));
    b->y = make_view(b, &k->y);
    k->can_overwrite_x0 = memcmp(&b->x, &b->y, sizeof b->x) == 0;
    return FR_OK;
}

static const fr__kernel_ops evaluating = {.forward = bn_forward};
static const fr__kernel_ops training = {.forward = bn_forward,
                                        .backward_input = bn_backward_input,
                                        .backward_weight = bn_backward_weight};
static const fr__kernel_ops training_first = {.forward = bn_forward,
                                              .backward_weight = bn_backward_weight};

fr_status fr__cpu_batch_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (spec->x[0]->dtype != spec->y_type)
        return fr__kernel_in_floats(spec, arena, fr__cpu_batch_norm, out);
    if (fr__layout_lanes(spec->x[0]) == 0)
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_batch_norm, out);
    const fr__kernel_ops *ops = !spec->training    ? &evaluating
                                : spec->need_dx[0] ? &training
                                                   : &training_first;
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(bn), ops);
    if (!k) return FR_NO_MEMORY;
    *out = k;
    bn *b = (bn *)k;
    FR_TRY(describe(b, spec));
    if (!spec->training) return FR_OK;
    k->needs_x = 1;
    k->saved_bytes = N_VECTORS * fr__align_up(b->channels * sizeof(float));
    return FR_OK;
}
