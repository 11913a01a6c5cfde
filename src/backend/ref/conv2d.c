/* conv2d.c -- two-dimensional convolution, any kernel, stride, zero padding, groups.
 *
 * Each of the three passes is a sweep over its result, and one function that gathers one element
 * of it: output pixel (oy, ox) and tap (ky, kx) meet at input pixel oy * stride + ky - pad. */
#include "backend/ref/ref.h"

typedef struct conv {
    fr__kernel base;
    int64_t n_in, n_out;         /* channels */
    int64_t group_in, group_out; /* channels of one group */
    int64_t h, w, oh, ow;        /* input and output image */
    int64_t kh, kw, sy, sx, py, px;
} conv;

/* One output number, without bias. x (in, h, w) of a sample, wt (out, group_in, kh, kw). */
static double output_at(const conv *c, const float *x, const float *wt, int64_t o, int64_t oy,
                        int64_t ox)
{
    double sum = 0;
    int64_t first = o / c->group_out * c->group_in;
    for (int64_t i = 0; i < c->group_in; i++)
        for (int64_t ky = 0; ky < c->kh; ky++)
            for (int64_t kx = 0; kx < c->kw; kx++) {
                int64_t iy = oy * c->sy + ky - c->py, ix = ox * c->sx + kx - c->px;
                if (iy < 0 || iy >= c->h || ix < 0 || ix >= c->w) continue;
                sum += (double)x[((first + i) * c->h + iy) * c->w + ix] *
                       (double)wt[((o * c->group_in + i) * c->kh + ky) * c->kw + kx];
            }
    return sum;
}

/* Gradient of one input number: all outputs that used it. dy (out, oh, ow) of a sample. */
static double input_grad_at(const conv *c, const float *dy, const float *wt, int64_t i, int64_t iy,
                            int64_t ix)
{
    double sum = 0;
    int64_t first = i / c->group_in * c->group_out, inside = i % c->group_in;
    for (int64_t o = first; o < first + c->group_out; o++)
        for (int64_t ky = 0; ky < c->kh; ky++)
            for (int64_t kx = 0; kx < c->kw; kx++) {
                int64_t ty = iy + c->py - ky, tx = ix + c->px - kx;
                if (ty < 0 || tx < 0 || ty % c->sy || tx % c->sx) continue;
                int64_t oy = ty / c->sy, ox = tx / c->sx;
                if (oy >= c->oh || ox >= c->ow) continue;
                sum += (double)dy[(o * c->oh + oy) * c->ow + ox] *
                       (double)wt[((o * c->group_in + inside) * c->kh + ky) * c->kw + kx];
            }
    return sum;
}

/* Gradient of one weight: all samples and output pixels. x (N, in, h, w), dy (N, out, oh, ow). */
static double weight_grad_at(const conv *c, const float *x, const float *dy, int64_t o, int64_t i,
                             int64_t ky, int64_t kx)
{
    double sum = 0;
    int64_t channel = o / c->group_out * c->group_in + i;
    for (int64_t s = 0; s < c->base.batch; s++)
        for (int64_t oy = 0; oy < c->oh; oy++)
            for (int64_t ox = 0; ox < c->ow; ox++) {
                int64_t iy = oy * c->sy + ky - c->py, ix = ox * c->sx + kx - c->px;
                if (iy < 0 || iy >= c->h || ix < 0 || ix >= c->w) continue;
                sum += (double)x[((s * c->n_in + channel) * c->h + iy) * c->w + ix] *
                       (double)dy[((s * c->n_out + o) * c->oh + oy) * c->ow + ox];
            }
    return sum;
}

static fr_status conv_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const conv *c = (const conv *)k;
    const float *bias = k->node->n_params > 1 ? a->w[1] : NULL;
    float *y = a->y;
    for (int64_t s = 0; s < k->batch; s++) {
        const float *x = (const float *)a->x[0] + s * c->n_in * c->h * c->w;
        for (int64_t o = 0; o < c->n_out; o++)
            for (int64_t at = 0; at < c->oh * c->ow; at++) {
                double v = output_at(c, x, a->w[0], o, at / c->ow, at % c->ow);
                *y++ = (float)(v + (bias ? (double)bias[o] : 0));
            }
    }
    return FR_OK;
}

static fr_status conv_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const conv *c = (const conv *)k;
    float *dx = a->dx[0];
    for (int64_t s = 0; s < k->batch; s++) {
        const float *dy = (const float *)a->dy + s * c->n_out * c->oh * c->ow;
        for (int64_t i = 0; i < c->n_in; i++)
            for (int64_t at = 0; at < c->h * c->w; at++)
                fr__ref_put(dx++, input_grad_at(c, dy, a->w[0], i, at / c->w, at % c->w),
                            a->add_dx[0]);
    }
    return FR_OK;
}

static fr_status conv_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const conv *c = (const conv *)k;
    const float *x = a->x[0], *dy = a->dy;
    float *dw = a->dw[0];
    int64_t taps = c->kh * c->kw, pixels = c->oh * c->ow;
    for (int64_t o = 0; o < c->n_out; o++)
        for (int64_t at = 0; at < c->group_in * taps; at++) {
            int64_t tap = at % taps;
            fr__ref_put(dw++, weight_grad_at(c, x, dy, o, at / taps, tap / c->kw, tap % c->kw),
                        a->add_dw);
        }
    if (k->node->n_params < 2) return FR_OK;
    for (int64_t o = 0; o < c->n_out; o++) {
        double sum = 0;
        for (int64_t s = 0; s < k->batch; s++)
            for (int64_t at = 0; at < pixels; at++)
                sum += (double)dy[(s * c->n_out + o) * pixels + at];
        fr__ref_put(&a->dw[1][o], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_conv2d(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = conv_forward,
                                       .backward_input = conv_backward_input,
                                       .backward_weight = conv_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(conv), &ops, out));
    conv *c = (conv *)*out;
    const fr_attrs *at = &c->base.node->attrs;
    const int64_t *in = fr__ref_input(*out, 0)->shape.dim, *to = c->base.node->shape.dim;
    c->base.needs_x = 1;
    c->n_in = in[0], c->h = in[1], c->w = in[2];
    c->n_out = to[0], c->oh = to[1], c->ow = to[2];
    c->group_in = c->n_in / at->conv2d.groups, c->group_out = c->n_out / at->conv2d.groups;
    c->kh = at->conv2d.kernel[0], c->kw = at->conv2d.kernel[1];
    c->sy = at->conv2d.stride[0], c->sx = at->conv2d.stride[1];
    c->py = at->conv2d.pad[0], c->px = at->conv2d.pad[1];
    return FR_OK;
}
