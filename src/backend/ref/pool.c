/* pool.c -- max, average and global average over image windows.
 *
 * Max saves the index of the largest pixel (the first of equals), so that the input is not kept. */
#include <math.h>

#include "backend/ref/ref.h"

/* The part of an image that one output pixel reads. */
typedef struct window {
    int64_t y0, y1, x0, x1;
} window;

/* Kernel, stride, padding and image sizes of a pooling node. */
typedef struct pool {
    fr__kernel base;
    int64_t planes; /* samples times channels */
    int64_t h, w, oh, ow;
    int64_t kh, kw, sy, sx, py, px;
} pool;

static int64_t at_least_0(int64_t v) { return v > 0 ? v : 0; }
static int64_t at_most(int64_t v, int64_t limit) { return v < limit ? v : limit; }

static window window_of(const pool *p, int64_t pixel)
{
    int64_t y = pixel / p->ow * p->sy - p->py, x = pixel % p->ow * p->sx - p->px;
    return (window){.y0 = at_least_0(y),
                    .y1 = at_most(y + p->kh, p->h),
                    .x0 = at_least_0(x),
                    .x1 = at_most(x + p->kw, p->w)};
}

static fr_status make_pool(const fr__kernel_spec *spec, fr_arena *arena, const fr__kernel_ops *ops,
                           fr__kernel **out)
{
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(pool), ops, out));
    pool *p = (pool *)*out;
    const fr_attrs *at = &p->base.node->attrs;
    const int64_t *in = fr__ref_input(*out, 0)->shape.dim, *to = p->base.node->shape.dim;
    p->planes = p->base.batch * in[0];
    p->h = in[1], p->w = in[2], p->oh = to[1], p->ow = to[2];
    p->kh = at->pool.kernel[0], p->kw = at->pool.kernel[1];
    p->sy = at->pool.stride[0], p->sx = at->pool.stride[1];
    p->py = at->pool.pad[0], p->px = at->pool.pad[1];
    return FR_OK;
}

/* Index of the first largest pixel of a window; a NaN is larger than any number. */
static int64_t winner(const pool *p, const float *x, window v)
{
    int64_t best = v.y0 * p->w + v.x0;
    for (int64_t iy = v.y0; iy < v.y1; iy++)
        for (int64_t ix = v.x0; ix < v.x1; ix++) {
            float at = x[iy * p->w + ix];
            if (at > x[best] || (isnan(at) && !isnan(x[best]))) best = iy * p->w + ix;
        }
    return best;
}

static fr_status max_pool_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const pool *p = (const pool *)k;
    int64_t n_out = p->oh * p->ow, n_in = p->h * p->w;
    const float *x = a->x[0];
    float *y = a->y;
    int32_t *won = a->saved; /* (planes, oh, ow) */
    for (int64_t c = 0; c < p->planes; c++)
        for (int64_t at = 0; at < n_out; at++) {
            int64_t best = winner(p, x + c * n_in, window_of(p, at));
            y[c * n_out + at] = x[c * n_in + best];
            if (k->training) won[c * n_out + at] = (int32_t)best;
        }
    return FR_OK;
}

static fr_status max_pool_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const pool *p = (const pool *)k;
    int64_t n_out = p->oh * p->ow, n_in = p->h * p->w;
    const float *dy = a->dy;
    const int32_t *won = a->saved;
    float *dx = a->dx[0];
    if (!a->add_dx[0]) memset(dx, 0, (size_t)(p->planes * n_in) * sizeof(float));
    for (int64_t c = 0; c < p->planes; c++)
        for (int64_t at = c * n_out; at < (c + 1) * n_out; at++) dx[c * n_in + won[at]] += dy[at];
    return FR_OK;
}

fr_status fr__ref_max_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = max_pool_forward,
                                       .backward_input = max_pool_backward};
    FR_TRY(make_pool(spec, arena, &ops, out));
    if (spec->training)
        (*out)->saved_bytes = (size_t)fr__ref_count(*out, (*out)->node) * sizeof(int32_t);
    return FR_OK;
}

/* The divisor of the sum over a window. */
static double divisor(const pool *p, window v)
{
    bool valid_only = p->base.node->attrs.pool.count_valid;
    return (double)(valid_only ? (v.y1 - v.y0) * (v.x1 - v.x0) : p->kh * p->kw);
}

static fr_status avg_pool_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const pool *p = (const pool *)k;
    int64_t n_out = p->oh * p->ow;
    for (int64_t c = 0; c < p->planes; c++) {
        const float *x = (const float *)a->x[0] + c * p->h * p->w;
        float *y = (float *)a->y + c * n_out;
        for (int64_t at = 0; at < n_out; at++) {
            window v = window_of(p, at);
            double sum = 0;
            for (int64_t iy = v.y0; iy < v.y1; iy++)
                for (int64_t ix = v.x0; ix < v.x1; ix++) sum += (double)x[iy * p->w + ix];
            y[at] = (float)(sum / divisor(p, v));
        }
    }
    return FR_OK;
}

static fr_status avg_pool_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const pool *p = (const pool *)k;
    int64_t n_out = p->oh * p->ow, n_in = p->h * p->w;
    if (!a->add_dx[0]) memset(a->dx[0], 0, (size_t)(p->planes * n_in) * sizeof(float));
    for (int64_t c = 0; c < p->planes; c++) {
        const float *dy = (const float *)a->dy + c * n_out;
        float *dx = (float *)a->dx[0] + c * n_in;
        for (int64_t at = 0; at < n_out; at++) {
            window v = window_of(p, at);
            float share = (float)((double)dy[at] / divisor(p, v));
            for (int64_t iy = v.y0; iy < v.y1; iy++)
                for (int64_t ix = v.x0; ix < v.x1; ix++) dx[iy * p->w + ix] += share;
        }
    }
    return FR_OK;
}

fr_status fr__ref_avg_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = avg_pool_forward,
                                       .backward_input = avg_pool_backward};
    return make_pool(spec, arena, &ops, out);
}

static fr_status global_pool_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t planes = fr__ref_count(k, k->node), n = fr__ref_count(k, fr__ref_input(k, 0)) / planes;
    for (int64_t c = 0; c < planes; c++) {
        const float *x = (const float *)a->x[0] + c * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)x[i];
        ((float *)a->y)[c] = (float)(sum / (double)n);
    }
    return FR_OK;
}

static fr_status global_pool_backward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t planes = fr__ref_count(k, k->node), n = fr__ref_count(k, fr__ref_input(k, 0)) / planes;
    for (int64_t c = 0; c < planes; c++) {
        double share = (double)((const float *)a->dy)[c] / (double)n;
        float *dx = (float *)a->dx[0] + c * n;
        for (int64_t i = 0; i < n; i++) fr__ref_put(&dx[i], share, a->add_dx[0]);
    }
    return FR_OK;
}

fr_status fr__ref_global_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = global_pool_forward,
                                       .backward_input = global_pool_backward};
    return fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out);
}
