/* conv_small.c -- conv2d on maps of moderate size: one matrix product over the samples per pixel.
 *
 *     y[p] (N, out) = sum over taps t on the map  x[q(p, t)] (N, in) * w[t] (in, out)
 *
 * Kernels that process one image at a time read all weights for each image, and multiply the
 * padding too. This takes most of their time on maps of 4 x 4 or 2 x 2 pixels, where weights are
 * the large operand and half of the taps are on padding. Here samples are the rows: weights are
 * read once for all samples, and taps on padding are left out.
 *
 * Each pass is a run of small products, up to ROWS rows by 16 columns, whose sums stay in registers
 * over all taps and channels. Operands:
 *     w       (out / 16, taps, in, 16): what oneDNN calls Ohwi16o; gradients are written so too
 *     x, dy   copied to (pixel, sample, channel), or, as right operand of the weight gradient, to
 *             (channel / 16, pixel, sample, 16)
 * backward_input transposes the 16 columns of w it works on, into a buffer of its thread. No sum
 * depends on the number of threads.
 *
 * With bf16 the weight gradient alone is computed here: operands are widened as they are copied,
 * and dw has the order (out / 16, in / 16, taps, 16 in, 16 out), OIhw16i16o, of oneDNN's other
 * passes. */
#include <string.h>

#include "backend/cpu/conv_plan.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes.h"
#include "base/bf16.h"

enum {
    ROWS = 6,
    COLUMNS = 16,
    PACKED_PIXELS = 8,
    CACHED_ROWS = 128,   /* of both operands of the weight gradient, in the second cache */
    WIDE_BYTES = 2 << 20 /* an x that does not fit in that cache */
};

/* A tensor of images: channels in blocks of `lanes` side by side. */
typedef struct images {
    size_t channels, pixels, lanes;
    fr_dtype type;
} images;

typedef struct span {
    size_t begin, end;
} span;

typedef struct conv {
    fr__kernel base;
    bool has_bias, has_relu;
    size_t samples, taps;
    images x, y;
    fr__conv_plan forward, backward; /* y from x, dx from dy */
    fr__tap_pixels *meetings;        /* [taps] */
    size_t x_slices, y_slices;       /* samples are divided, to have work for all threads */
    bool is_wide;                    /* weight gradients read x once */
    size_t dw_tap, dw_block;         /* floats from tap to tap of dw, and to the next 16 inputs */
    size_t right_at; /* in scratch: dy of the weight gradient; weights of backward_input */
} conv;

typedef struct call {
    const conv *c;
    const fr__kernel_args *a;
    const images *from; /* what pack_* copies */
    const void *source;
    float *left, *right; /* (pixel, sample, channel + pad); the right operand in scratch */
} call;

/* ---- Copies of the operands ---- */

/* Rows start at different places of the cache. */
static size_t row_length(size_t channels) { return channels + COLUMNS; }

static inline size_t offset(const images *m, size_t sample, size_t channel, size_t pixel)
{
    size_t block = channel / m->lanes, lane = channel % m->lanes;
    return ((sample * m->channels / m->lanes + block) * m->pixels + pixel) * m->lanes + lane;
}

/* copy_sample for images of bf16. */
FR_INLINE void widen_sample(const images *m, const uint16_t *from, size_t sample, size_t first,
                            size_t n, float *to, size_t step)
{
    const size_t lanes = m->lanes < n ? m->lanes : n;
    for (size_t ch = 0; ch < n; ch += lanes) {
        const uint16_t *at = from + offset(m, sample, first + ch, 0);
        for (size_t q = 0; q < m->pixels; q++) {
            const uint16_t *restrict x = at + q * m->lanes;
            float *restrict row = to + q * step + ch;
            if (lanes == COLUMNS)
                for (int l = 0; l < COLUMNS; l++) row[l] = fr__bf16_value(x[l]);
            else
                for (size_t l = 0; l < lanes; l++) row[l] = fr__bf16_value(x[l]);
        }
    }
}

/* One sample: channels first .. first + n to rows of n numbers, `step` apart from pixel to pixel. A
 * few pixels at a time, so that the lines written are filled before they leave the cache. */
FR_INLINE void copy_sample(const images *m, const void *source, size_t sample, size_t first,
                           size_t n, float *to, size_t step)
{
    if (m->type == FR_BF16) {
        widen_sample(m, source, sample, first, n, to, step);
        return;
    }
    const float *from = source;
    for (size_t p = 0; p < m->pixels; p += PACKED_PIXELS) {
        const size_t end = p + PACKED_PIXELS < m->pixels ? p + PACKED_PIXELS : m->pixels;
        for (size_t ch = 0; ch < n; ch += m->lanes) {
            const float *at = from + offset(m, sample, first + ch, 0);
            for (size_t q = p; q < end; q++) {
                if (m->lanes == 8)
                    FR_STORE8(to + q * step + ch, FR_LOAD8(at + q * 8));
                else
                    for (size_t l = 0; l < m->lanes; l++)
                        to[q * step + ch + l] = at[q * m->lanes + l];
            }
        }
    }
}

/* Samples to (pixel, sample, channel). */
FR_SIMD_RANGE(pack_left)
{
    const call *k = arg;
    const size_t length = row_length(k->from->channels);
    for (size_t s = begin; s < end; s++)
        copy_sample(k->from, k->source, s, 0, k->from->channels, k->left + s * length,
                    k->c->samples * length);
}

/* Blocks of 16 channels to (channel / 16, pixel, sample, 16). */
FR_SIMD_RANGE(pack_right)
{
    const call *k = arg;
    const size_t n = k->c->samples;
    for (size_t block = begin; block < end; block++)
        for (size_t s = 0; s < n; s++)
            copy_sample(k->from, k->source, s, block * COLUMNS, COLUMNS,
                        k->right + (block * k->from->pixels * n + s) * COLUMNS, n * COLUMNS);
}

/* Weights of 16 input channels as right operand: (taps, out, 16). */
FR_INLINE void transpose_weights(const conv *c, const float *w, size_t block, float *to)
{
    for (size_t t = 0; t < c->taps; t++) {
        for (size_t o = 0; o < c->y.channels; o += COLUMNS) {
            const float *tile = w + (o * c->taps + t * COLUMNS) * c->x.channels;
            tile += block * COLUMNS * COLUMNS;
            float *rows = to + (t * c->y.channels + o) * COLUMNS;
            for (size_t i = 0; i < COLUMNS; i++)
                for (size_t j = 0; j < COLUMNS; j++) rows[i * COLUMNS + j] = tile[j * COLUMNS + i];
        }
    }
}

/* ---- The product ---- */

/* Up to ROWS rows by 16 columns. */
typedef struct tile {
    fr__v8 sum[ROWS][2];
} tile;

/* sum[r] += x[r] * right (16), fused where has_fma, a constant, says so. Unrolled, so that the sums
 * stay in registers. */
FR_INLINE void add_rows(tile *out, int rows, const float *x, const float *right, bool has_fma)
{
    const fr__v8 r0 = FR_LOAD8(right), r1 = FR_LOAD8(right + 8);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        if (has_fma) {
            FR_FMA8(out->sum[r][0], x[r], r0);
            FR_FMA8(out->sum[r][1], x[r], r1);
        } else {
            out->sum[r][0] += x[r] * r0;
            out->sum[r][1] += x[r] * r1;
        }
    }
}

/* sum[r] += left row r, at `shift` from its place, * right (length, 16). `rows` is a constant. */
FR_INLINE void multiply(tile *out, int rows, const float *left, const ptrdiff_t *place,
                        ptrdiff_t shift, const float *right, size_t length, bool has_fma)
{
    const float *row[ROWS];
    for (int r = 0; r < rows; r++) row[r] = left + (place[r] + shift);
    for (size_t i = 0; i < length; i++, right += COLUMNS) {
        float x[ROWS];
        for (int r = 0; r < rows; r++) x[r] = row[r][i];
        add_rows(out, rows, x, right, has_fma);
    }
}

/* Destination of a tile: columns of 16 channels at one pixel of a sample each. */
typedef struct target {
    const images *map;
    float *at;
    const float *bias; /* of the 16 channels, or NULL */
    size_t channel;
    bool has_relu, is_added;
} target;

FR_INLINE void put(const target *t, size_t sample, size_t pixel, int half, const fr__v8 *sum)
{
    const size_t lanes = t->map->lanes;
    float *to = t->at + offset(t->map, sample, t->channel + (size_t)half * 8, pixel);
    fr__v8 v = *sum;
    if (t->bias) v += FR_LOAD8(t->bias + half * 8);
    if (t->has_relu) v = FR_SELECT8(v < FR_ALL8(0), FR_ALL8(0), v); /* NaN stays */
    if (lanes >= 8) {
        if (t->is_added) v += FR_LOAD8(to);
        FR_STORE8(to, v);
        return;
    }
    for (int i = 0; i < 8; i++) {
        float *lane = to + (size_t)i * t->map->pixels;
        *lane = t->is_added ? *lane + v[i] : v[i];
    }
}

/* Rows first .. first + rows of a group and a slice of samples: row i is the i % n-th of the n
 * samples at pixel i / n. */
FR_INLINE void make_rows(const call *k, const images *from, const fr__pixel_group *g, span slice,
                         const float *right, size_t first, int rows, const target *to, bool has_fma)
{
    const size_t length = row_length(from->channels), n = slice.end - slice.begin;
    const ptrdiff_t pixel_length = (ptrdiff_t)(k->c->samples * length);
    size_t pixel[ROWS], sample[ROWS];
    ptrdiff_t place[ROWS]; /* of the row's origin, which may be outside the map */
    tile t;
    for (int r = 0; r < rows; r++) {
        pixel[r] = (first + (size_t)r) / n;
        sample[r] = slice.begin + (first + (size_t)r) % n;
        place[r] = pixel_length * g->origins[pixel[r]] + (ptrdiff_t)(sample[r] * length);
        t.sum[r][0] = t.sum[r][1] = FR_ALL8(0);
    }
    for (int i = 0; i < g->n_taps; i++)
        multiply(&t, rows, k->left, place, pixel_length * g->taps[i].shift,
                 right + (size_t)g->taps[i].tap * from->channels * COLUMNS, from->channels,
                 has_fma);
    for (int r = 0; r < rows; r++) {
        put(to, sample[r], (size_t)g->pixels[pixel[r]], 0, &t.sum[r][0]);
        put(to, sample[r], (size_t)g->pixels[pixel[r]], 1, &t.sum[r][1]);
    }
}

/* All pixels of a slice of samples, in tiles of nearly equal height. */
FR_INLINE void make_slice(const call *k, const images *from, const fr__conv_plan *p, span slice,
                          const float *right, const target *to, bool has_fma)
{
    for (int i = 0; i < p->n_groups; i++) {
        const fr__pixel_group *g = &p->groups[i];
        const size_t n_rows = (size_t)g->n_pixels * (slice.end - slice.begin);
        const size_t n_tiles = (n_rows + ROWS - 1) / ROWS;
        for (size_t j = 0; j < n_tiles; j++) {
            const size_t at = n_rows * j / n_tiles, rows = n_rows * (j + 1) / n_tiles - at;
            switch (rows) {
            case 1: make_rows(k, from, g, slice, right, at, 1, to, has_fma); break;
            case 2: make_rows(k, from, g, slice, right, at, 2, to, has_fma); break;
            case 3: make_rows(k, from, g, slice, right, at, 3, to, has_fma); break;
            case 4: make_rows(k, from, g, slice, right, at, 4, to, has_fma); break;
            case 5: make_rows(k, from, g, slice, right, at, 5, to, has_fma); break;
            default: make_rows(k, from, g, slice, right, at, 6, to, has_fma); break;
            }
        }
    }
}

/* ---- Passes ---- */

static span slice_of(const conv *c, size_t i, size_t n)
{
    return (span){c->samples * i / n, c->samples * (i + 1) / n};
}

/* Item: 16 output channels of a slice of samples. */
FR_SIMD_RANGE_FMA(forward_range)
{
    const call *k = arg;
    const conv *c = k->c;
    for (size_t i = begin; i < end; i++) {
        const size_t channel = i / c->x_slices * COLUMNS;
        const target to = {.map = &c->y,
                           .at = k->a->y,
                           .bias = c->has_bias ? fr__floats(k->a, 1) + channel : NULL,
                           .channel = channel,
                           .has_relu = c->has_relu};
        make_slice(k, &c->x, &c->forward, slice_of(c, i % c->x_slices, c->x_slices),
                   fr__floats(k->a, 0) + channel * c->taps * c->x.channels, &to, has_fma);
    }
}

/* Item: 16 input channels of a slice of samples. */
FR_SIMD_RANGE_FMA(backward_range)
{
    const call *k = arg;
    const conv *c = k->c;
    float *w = k->right + (size_t)fr__cpu_thread() * c->taps * c->y.channels * COLUMNS;
    for (size_t i = begin; i < end; i++) {
        const size_t block = i / c->y_slices, slice = i % c->y_slices;
        const target to = {.map = &c->x,
                           .at = k->a->dx[0],
                           .channel = block * COLUMNS,
                           .is_added = k->a->add_dx[0]};
        if (i == begin || slice == 0) transpose_weights(c, k->a->w[0], block, w);
        make_slice(k, &c->y, &c->backward, slice_of(c, slice, c->y_slices), w, &to, has_fma);
    }
}

/* dw[r] (16) = or += sum over tap pixels first .. last and samples of x[r] * dy (16). `rows` is a
 * constant. */
FR_INLINE void gather_rows(const call *k, const fr__tap_pixels *m, int first, int last,
                           const float *right, size_t channel, int rows, float *dw, bool is_added,
                           bool has_fma)
{
    const size_t length = row_length(k->c->x.channels), n = k->c->samples;
    tile t;
    for (int r = 0; r < rows; r++) t.sum[r][0] = t.sum[r][1] = FR_ALL8(0);
    for (int i = first; i < last; i++) {
        const float *x = k->left + (size_t)m->x[i] * n * length + channel;
        const float *dy = right + (size_t)m->y[i] * n * COLUMNS;
        for (size_t s = 0; s < n; s++, x += length, dy += COLUMNS)
            add_rows(&t, rows, x, dy, has_fma);
    }
    for (int r = 0; r < rows; r++, channel++) {
        float *to = dw + channel / COLUMNS * k->c->dw_block + channel % COLUMNS * COLUMNS;
        if (is_added) t.sum[r][0] += FR_LOAD8(to), t.sum[r][1] += FR_LOAD8(to + 8);
        FR_STORE8(to, t.sum[r][0]);
        FR_STORE8(to + 8, t.sum[r][1]);
    }
}

/* The share of some pixels of y in one tap of 16 output channels. The input channels, a multiple of
 * 16, are a sum of sixes and at most two fours. */
FR_INLINE void gather_tap(const call *k, const fr__tap_pixels *m, span pixels, const float *right,
                          float *dw, bool has_fma)
{
    const size_t in = k->c->x.channels, n_fours = in % 6 == 2 ? 2 : in % 6 == 4 ? 1 : 0;
    const bool is_added = k->a->add_dw || pixels.begin > 0;
    int first = 0, last;
    while (first < m->n && (size_t)m->y[first] < pixels.begin) first++;
    for (last = first; last < m->n && (size_t)m->y[last] < pixels.end;) last++;
    if (first == last && is_added) return;
    size_t ch = 0;
    for (; ch < in - 4 * n_fours; ch += 6)
        gather_rows(k, m, first, last, right, ch, 6, dw, is_added, has_fma);
    for (; ch < in; ch += 4) gather_rows(k, m, first, last, right, ch, 4, dw, is_added, has_fma);
}

FR_INLINE void gather_bias(const call *k, const float *right, float *db)
{
    const conv *c = k->c;
    fr__v8 sum0 = FR_ALL8(0), sum1 = FR_ALL8(0);
    for (size_t p = 0; p < c->y.pixels; p++) {
        fr__v8 at0 = FR_ALL8(0), at1 = FR_ALL8(0);
        for (size_t s = 0; s < c->samples; s++, right += COLUMNS) {
            at0 += FR_LOAD8(right);
            at1 += FR_LOAD8(right + 8);
        }
        sum0 += at0;
        sum1 += at1;
    }
    if (k->a->add_dw) sum0 += FR_LOAD8(db), sum1 += FR_LOAD8(db + 8);
    FR_STORE8(db, sum0);
    FR_STORE8(db + 8, sum1);
}

/* Item: one tap of 16 output channels. A few pixels of all samples at a time, so that they stay in
 * the cache; either item by item, or, where x is large and dw small, pixels by pixels. */
FR_SIMD_RANGE_FMA(weight_range)
{
    const call *k = arg;
    const conv *c = k->c;
    const size_t n_items = end - begin;
    const size_t step = c->samples < CACHED_ROWS ? CACHED_ROWS / c->samples : 1;
    const size_t n_steps = (c->y.pixels + step - 1) / step;
    for (size_t i = 0; i < n_items * n_steps; i++) {
        const size_t item = begin + (c->is_wide ? i % n_items : i / n_steps);
        const size_t at = (c->is_wide ? i / n_items : i % n_steps) * step;
        const size_t block = item / c->taps, tap = item % c->taps;
        const float *right = k->right + block * c->y.pixels * c->samples * COLUMNS;
        float *dw = k->a->dw[0] + block * c->taps * c->x.channels * COLUMNS + tap * c->dw_tap;
        gather_tap(k, &c->meetings[tap], (span){at, at + step}, right, dw, has_fma);
        if (c->has_bias && tap == 0 && at == 0)
            gather_bias(k, right, k->a->dw[1] + block * COLUMNS);
    }
}

/* ---- Entries ---- */

static fr_status conv_forward(fr__kernel *kernel, const fr__kernel_args *a)
{
    const conv *c = (const conv *)kernel;
    call k = {.c = c, .a = a, .from = &c->x, .source = a->x[0], .left = a->scratch};
    fr__cpu_parallel(kernel->dev, c->samples, 1, pack_left, &k);
    fr__cpu_parallel(kernel->dev, c->y.channels / COLUMNS * c->x_slices, 1, forward_range, &k);
    return FR_OK;
}

static fr_status conv_backward_input(fr__kernel *kernel, const fr__kernel_args *a)
{
    const conv *c = (const conv *)kernel;
    call k = {.c = c, .a = a, .from = &c->y, .source = a->dy, .left = a->scratch};
    k.right = (float *)((char *)a->scratch + c->right_at);
    fr__cpu_parallel(kernel->dev, c->samples, 1, pack_left, &k);
    fr__cpu_parallel(kernel->dev, c->x.channels / COLUMNS * c->y_slices, 1, backward_range, &k);
    return FR_OK;
}

static fr_status conv_backward_weight(fr__kernel *kernel, const fr__kernel_args *a)
{
    const conv *c = (const conv *)kernel;
    call k = {.c = c, .a = a, .from = &c->x, .source = a->x[0], .left = a->scratch};
    k.right = (float *)((char *)a->scratch + c->right_at);
    fr__cpu_parallel(kernel->dev, c->samples, 1, pack_left, &k);
    k.from = &c->y;
    k.source = a->dy;
    fr__cpu_parallel(kernel->dev, c->y.channels / COLUMNS, 1, pack_right, &k);
    fr__cpu_parallel(kernel->dev, c->y.channels / COLUMNS * c->taps, 1, weight_range, &k);
    return FR_OK;
}

static fr_status conv_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    fr__cpu_relu_back(k->dev, FR_F32, dz, a->dy, a->y, fr__layout_count(&k->y));
    return FR_OK;
}

/* ---- Making ---- */

static size_t count_slices(const conv *c, size_t channels)
{
    const size_t n_blocks = channels / COLUMNS, threads = (size_t)c->base.dev->n_threads;
    size_t n = 1;
    while (n < c->samples && n_blocks * n % threads != 0 && n_blocks * n < 8 * threads) n++;
    return n;
}

static size_t left_bytes(const conv *c, const images *m)
{
    return fr__align_up(m->pixels * c->samples * row_length(m->channels) * sizeof(float));
}

static void size_scratch(conv *c)
{
    fr__kernel *k = &c->base;
    k->scratch_bytes = left_bytes(c, &c->x);
    if (!k->training) return;
    c->right_at =
        left_bytes(c, &c->x) > left_bytes(c, &c->y) ? left_bytes(c, &c->x) : left_bytes(c, &c->y);
    const size_t dy = c->y.pixels * c->samples * c->y.channels;
    const size_t w = c->taps * c->y.channels * COLUMNS * (size_t)k->dev->n_threads;
    k->scratch_bytes = c->right_at + (dy > w ? dy : w) * sizeof(float);
}

/* Where these kernels are faster than oneDNN's, by instruction set and shape alone: the batch must
 * not matter, as programs for training and for evaluation share the weights.
 *
 * AVX2: maps of 1 to 28 pixels squared, 16 to 1024 channels, batches of 1 to 32 on Zen 3. Few
 * channels on large maps do not pay: on Zen 4 under AVX2 cnn (14 x 14, 32 channels) trains at 1370
 * to 1420 samples/s without these kernels there, and at 1130 to 1330 with them.
 *
 * AVX-512, Zen 4: samples/s of a training step by the largest map that comes here:
 *                                    none  2 x 2  4 x 4  8 x 8  16 x 16
 *     vgg16, batch 32, 1 thread      60.7   65.6   68.1   68.7   64.0
 *     vgg16, batch 8, 1 thread       56.9   60.1   64.2   62.9   61.8
 *     resnet50, batch 16, 1 thread   12.6   12.5   13.1   12.9   12.3
 *     cnn, batch 64, 1 thread        1636   1635   1625   1548   1382   (maps of 28, 14, 7)
 *     vgg16, batch 8, 2 threads             114.3  119.6
 * What pays are the weight gradients: 144 GF/s against 84 to 101 for 512 channels on 4 x 4. */
bool fr__cpu_conv2d_is_small(const fr__kernel_spec *spec)
{
    const fr_node *node = fr_graph_node(spec->graph, spec->nodes[0]);
    const fr_shape *x = &fr_graph_node(spec->graph, spec->inputs[0])->shape, *y = &node->shape;
    const int64_t taps = (int64_t)node->attrs.conv2d.kernel[0] * node->attrs.conv2d.kernel[1];
    const bool is_thin = x->dim[0] < 64 || y->dim[0] < 64;
    const int64_t limit = fr__cpu(spec->dev)->lanes == 16 ? 4 * 4 : is_thin ? 8 * 8 : 20 * 20;
    return node->attrs.conv2d.groups == 1 && x->dim[0] % COLUMNS == 0 && y->dim[0] % COLUMNS == 0 &&
           taps > 1 && taps <= FR_MAX_TAPS && x->dim[1] * x->dim[2] <= limit &&
           y->dim[1] * y->dim[2] <= limit;
}

/* [a relu is fused][the input needs a gradient] */
static const fr__kernel_ops conv_ops[2][2] = {
    {{conv_forward, NULL, NULL, conv_backward_weight, NULL},
     {conv_forward, NULL, conv_backward_input, conv_backward_weight, NULL}},
    {{conv_forward, conv_prepare_dy, NULL, conv_backward_weight, NULL},
     {conv_forward, conv_prepare_dy, conv_backward_input, conv_backward_weight, NULL}}};

static fr_status choose_layouts(conv *c, const fr__kernel_spec *spec)
{
    fr__kernel *k = &c->base;
    const dnnl_dims_t dims = {k->node->shape.dim[0], (dnnl_dim_t)c->x.channels,
                              k->node->attrs.conv2d.kernel[0], k->node->attrs.conv2d.kernel[1]};
    const bool has_bf16 = c->x.type == FR_BF16;
    fr__md w, y;
    FR_TRY(fr__md_new(k, 4, dims, has_bf16 ? dnnl_OIhw16i16o : dnnl_Ohwi16o, NULL, &w));
    FR_TRY(fr__layout_of_md(k, w, &k->w[0]));
    c->dw_tap = (has_bf16 ? COLUMNS : c->x.channels) * COLUMNS;
    c->dw_block = (has_bf16 ? c->taps : 1) * COLUMNS * COLUMNS;
    FR_TRY(spec->plain_output ? fr__md_plain(k, k->node, &y) : fr__md_blocked(k, k->node, &y));
    FR_TRY(fr__layout_of_md(k, y, &k->y));
    c->y.lanes = (size_t)fr__layout_lanes(&k->y);
    return FR_OK;
}

fr_status fr__cpu_conv2d_small(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    const int lanes = fr__layout_lanes(spec->x[0]);
    if (lanes == 0) return fr__cpu_wrap_plain(spec, arena, fr__cpu_conv2d_small, out);
    const bool has_relu = fr__group_has(spec, FR_OP_RELU);
    fr__kernel *k =
        fr__kernel_new(spec, arena, sizeof(conv), &conv_ops[has_relu][spec->need_dx[0]]);
    if (!k) return FR_NO_MEMORY;
    *out = k;
    conv *c = (conv *)k;
    const fr_node *node = k->node;
    const fr_shape *in = &fr_graph_node(spec->graph, spec->inputs[0])->shape;
    const fr__map_size from = {(int)in->dim[1], (int)in->dim[2]};
    const fr__map_size to = {(int)node->shape.dim[1], (int)node->shape.dim[2]};
    c->has_bias = !node->attrs.conv2d.no_bias;
    c->has_relu = has_relu;
    c->samples = (size_t)k->batch;
    c->taps = (size_t)(node->attrs.conv2d.kernel[0] * node->attrs.conv2d.kernel[1]);
    c->x = (images){(size_t)in->dim[0], (size_t)(from.height * from.width), (size_t)lanes,
                    spec->x[0]->dtype};
    c->y = (images){(size_t)node->shape.dim[0], (size_t)(to.height * to.width), 1, k->y.dtype};
    FR_TRY(choose_layouts(c, spec));
    FR_TRY(fr__conv_plan_make(k->ctx, arena, node, true, to, from, &c->forward));
    if (spec->training) {
        FR_TRY(fr__conv_plan_make(k->ctx, arena, node, false, from, to, &c->backward));
        FR_TRY(fr__conv_meetings(k->ctx, arena, node, to, from, &c->meetings));
        k->needs_x = 1;
        k->needs_y = has_relu;
        k->can_add_dx = 1;
    }
    c->x_slices = count_slices(c, c->y.channels);
    c->y_slices = count_slices(c, c->x.channels);
    c->is_wide = left_bytes(c, &c->x) > WIDE_BYTES;
    size_scratch(c);
    return FR_OK;
}
