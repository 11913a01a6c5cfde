/* norm.c -- batch norm (Ioffe and Szegedy, 2015), layer norm (Ba et al., 2016) and group norm (Wu
 * and He, 2018).
 *
 * They map x to xh = (x - mean) / sqrt(var + eps) and y = xh * weight + bias; they differ in the
 * set over which mean and variance are taken. With g = dy * weight and means over the same set, dx
 * = (g - mean(g) - xh * mean(g * xh)) / sqrt(var + eps). Saved from forward to backward: mean and 1
 * / sqrt(var + eps) of each set, in double. */
#include <math.h>

#include "backend/ref/ref.h"

/* A set of numbers that are normalised together: outer x inner of them, outer ones `stride` apart.
 */
typedef struct span {
    int64_t outer, inner, stride;
} span;

typedef struct moments {
    double mean, scale; /* scale: 1 / sqrt(var + eps) */
} moments;

/* Mean and biased variance. */
static void measure(const float *x, span s, double *mean, double *var)
{
    double n = (double)(s.outer * s.inner), sum = 0, square = 0;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) sum += (double)x[o * s.stride + i];
    *mean = sum / n;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            double d = (double)x[o * s.stride + i] - *mean;
            square += d * d;
        }
    *var = square / n;
}

/* Channel c of a (N, C, inner) tensor starts at c * inner. */
static span channel_span(const fr__kernel *k, int64_t *n_channels)
{
    int64_t all = fr_shape_count(&k->node->shape);
    *n_channels = k->node->shape.dim[0];
    return (span){.outer = k->batch, .inner = all / *n_channels, .stride = all};
}

static fr_status batch_norm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_channels;
    span s = channel_span(k, &n_channels);
    double eps = (double)k->node->attrs.norm.eps, rate = (double)k->node->attrs.norm.momentum;
    double n = (double)(s.outer * s.inner);
    moments *saved = a->saved;
    for (int64_t c = 0; c < n_channels; c++) {
        const float *x = (const float *)a->x[0] + c * s.inner;
        float *y = (float *)a->y + c * s.inner;
        double mean = (double)fr__floats(a, 2)[c], var = (double)fr__floats(a, 3)[c];
        if (k->training) {
            measure(x, s, &mean, &var);
            saved[c] = (moments){mean, 1 / sqrt(var + eps)};
            float *run_mean = &a->buffers[2][c], *run_var = &a->buffers[3][c];
            *run_mean = (float)((1 - rate) * (double)*run_mean + rate * mean);
            *run_var = (float)((1 - rate) * (double)*run_var + rate * var * n / (n - 1));
        }
        double gain = (double)fr__floats(a, 0)[c] / sqrt(var + eps),
               shift = (double)fr__floats(a, 1)[c];
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t i = 0; i < s.inner; i++)
                y[o * s.stride + i] = (float)(((double)x[o * s.stride + i] - mean) * gain + shift);
    }
    return FR_OK;
}

/* Sum of dy, and of dy * xh, over one channel. */
static void channel_sums(const float *x, const float *dy, span s, moments m, double *sum,
                         double *sum_xh)
{
    *sum = *sum_xh = 0;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            double g = (double)dy[o * s.stride + i];
            *sum += g;
            *sum_xh += g * ((double)x[o * s.stride + i] - m.mean) * m.scale;
        }
}

static fr_status batch_norm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_channels;
    span s = channel_span(k, &n_channels);
    double n = (double)(s.outer * s.inner);
    for (int64_t c = 0; c < n_channels; c++) {
        const float *x = (const float *)a->x[0] + c * s.inner;
        const float *dy = (const float *)a->dy + c * s.inner;
        float *dx = (float *)a->dx[0] + c * s.inner;
        moments m = ((const moments *)a->saved)[c];
        double sum, sum_xh;
        channel_sums(x, dy, s, m, &sum, &sum_xh);
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t i = 0; i < s.inner; i++) {
                int64_t at = o * s.stride + i;
                double xh = ((double)x[at] - m.mean) * m.scale;
                double v = (double)dy[at] - sum / n - xh * sum_xh / n;
                fr__ref_put(&dx[at], (double)fr__floats(a, 0)[c] * m.scale * v, a->add_dx[0]);
            }
    }
    return FR_OK;
}

static fr_status batch_norm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_channels;
    span s = channel_span(k, &n_channels);
    for (int64_t c = 0; c < n_channels; c++) {
        double sum, sum_xh;
        channel_sums((const float *)a->x[0] + c * s.inner, (const float *)a->dy + c * s.inner, s,
                     ((const moments *)a->saved)[c], &sum, &sum_xh);
        fr__ref_put(&a->dw[0][c], sum_xh, a->add_dw);
        fr__ref_put(&a->dw[1][c], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_batch_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = batch_norm_forward,
                                       .backward_input = batch_norm_backward_input,
                                       .backward_weight = batch_norm_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    fr__kernel *k = *out;
    int64_t n_channels;
    span s = channel_span(k, &n_channels);
    if (k->training && s.outer * s.inner < 2)
        return fr_fail(
            spec->ctx, FR_INVALID,
            "node %s: batch_norm cannot train on one number per channel (a variance needs "
            "two); use micro-batches of at least 2 samples",
            k->node->name);
    k->needs_x = 1;
    if (k->training) k->saved_bytes = (size_t)n_channels * sizeof(moments);
    return FR_OK;
}

static fr_status layer_norm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    double eps = (double)k->node->attrs.norm.eps;
    moments *saved = k->training ? a->saved : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x[0] + r * n;
        float *y = (float *)a->y + r * n;
        double mean, var;
        measure(x, (span){.outer = 1, .inner = n}, &mean, &var);
        double scale = 1 / sqrt(var + eps);
        if (saved) saved[r] = (moments){mean, scale};
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)(((double)x[i] - mean) * scale * (double)fr__floats(a, 0)[i] +
                           (double)fr__floats(a, 1)[i]);
    }
    return FR_OK;
}

static fr_status layer_norm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    const float *w = a->w[0];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x[0] + r * n, *dy = (const float *)a->dy + r * n;
        float *dx = (float *)a->dx[0] + r * n;
        moments m = ((const moments *)a->saved)[r];
        double sum = 0, sum_xh = 0;
        for (int64_t i = 0; i < n; i++) {
            double g = (double)dy[i] * (double)w[i];
            sum += g;
            sum_xh += g * ((double)x[i] - m.mean) * m.scale;
        }
        for (int64_t i = 0; i < n; i++) {
            double xh = ((double)x[i] - m.mean) * m.scale;
            double v = (double)dy[i] * (double)w[i] - (sum + xh * sum_xh) / (double)n;
            fr__ref_put(&dx[i], m.scale * v, a->add_dx[0]);
        }
    }
    return FR_OK;
}

static fr_status layer_norm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    const float *x = a->x[0], *dy = a->dy;
    const moments *saved = a->saved;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, sum_xh = 0;
        for (int64_t r = 0; r < rows; r++) {
            double g = (double)dy[r * n + i];
            sum += g;
            sum_xh += g * ((double)x[r * n + i] - saved[r].mean) * saved[r].scale;
        }
        fr__ref_put(&a->dw[0][i], sum_xh, a->add_dw);
        fr__ref_put(&a->dw[1][i], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_layer_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = layer_norm_forward,
                                       .backward_input = layer_norm_backward_input,
                                       .backward_weight = layer_norm_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    fr__kernel *k = *out;
    k->needs_x = 1;
    if (k->training) k->saved_bytes = (size_t)fr__rows(k->node, k->batch) * sizeof(moments);
    return FR_OK;
}

/* ---- group norm: each group of channels of a sample is one run of numbers ---- */

typedef struct grouping {
    int64_t n_runs, run;  /* of a micro-batch; numbers in one */
    int64_t groups, area; /* groups of a sample; numbers in a channel */
} grouping;

static grouping grouping_of(const fr__kernel *k)
{
    const int64_t groups = k->node->attrs.norm.groups, all = fr_shape_count(&k->node->shape);
    return (grouping){k->batch * groups, all / groups, groups, all / k->node->shape.dim[0]};
}

/* The channel of number i of run r. */
static int64_t channel(const grouping *g, int64_t r, int64_t i)
{
    return (r % g->groups * g->run + i) / g->area;
}

static fr_status group_norm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const grouping g = grouping_of(k);
    moments *saved = k->training ? a->saved : NULL;
    for (int64_t r = 0; r < g.n_runs; r++) {
        const float *x = (const float *)a->x[0] + r * g.run;
        float *y = (float *)a->y + r * g.run;
        double mean, var;
        measure(x, (span){.outer = 1, .inner = g.run}, &mean, &var);
        double scale = 1 / sqrt(var + (double)k->node->attrs.norm.eps);
        if (saved) saved[r] = (moments){mean, scale};
        for (int64_t i = 0; i < g.run; i++) {
            int64_t c = channel(&g, r, i);
            y[i] = (float)(((double)x[i] - mean) * scale * (double)fr__floats(a, 0)[c] +
                           (double)fr__floats(a, 1)[c]);
        }
    }
    return FR_OK;
}

static fr_status group_norm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const grouping g = grouping_of(k);
    const float *w = a->w[0];
    for (int64_t r = 0; r < g.n_runs; r++) {
        const float *x = (const float *)a->x[0] + r * g.run, *dy = (const float *)a->dy + r * g.run;
        float *dx = (float *)a->dx[0] + r * g.run;
        moments m = ((const moments *)a->saved)[r];
        double sum = 0, sum_xh = 0;
        for (int64_t i = 0; i < g.run; i++) {
            double v = (double)dy[i] * (double)w[channel(&g, r, i)];
            sum += v;
            sum_xh += v * ((double)x[i] - m.mean) * m.scale;
        }
        for (int64_t i = 0; i < g.run; i++) {
            double xh = ((double)x[i] - m.mean) * m.scale;
            double v = (double)dy[i] * (double)w[channel(&g, r, i)];
            v -= (sum + xh * sum_xh) / (double)g.run;
            fr__ref_put(&dx[i], m.scale * v, a->add_dx[0]);
        }
    }
    return FR_OK;
}

static fr_status group_norm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const grouping g = grouping_of(k);
    const int64_t n_channels = k->node->shape.dim[0], per_group = n_channels / g.groups;
    const float *x = a->x[0], *dy = a->dy;
    for (int64_t c = 0; c < n_channels; c++) {
        double sum = 0, sum_xh = 0;
        for (int64_t s = 0; s < k->batch; s++) {
            moments m = ((const moments *)a->saved)[s * g.groups + c / per_group];
            for (int64_t i = 0; i < g.area; i++) {
                int64_t at = (s * n_channels + c) * g.area + i;
                sum += (double)dy[at];
                sum_xh += (double)dy[at] * ((double)x[at] - m.mean) * m.scale;
            }
        }
        fr__ref_put(&a->dw[0][c], sum_xh, a->add_dw);
        fr__ref_put(&a->dw[1][c], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_group_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = group_norm_forward,
                                       .backward_input = group_norm_backward_input,
                                       .backward_weight = group_norm_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    fr__kernel *k = *out;
    k->needs_x = 1;
    if (k->training) k->saved_bytes = (size_t)grouping_of(k).n_runs * sizeof(moments);
    return FR_OK;
}
