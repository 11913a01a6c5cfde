/* distance.c -- losses of an output against targets of floats.
 *
 *     mse        (x - t)^2                                      third number: |x - t|
 *     smooth_l1  d^2 / (2 beta), d - beta / 2 beyond beta; d = |x - t|        |x - t|
 *     bce        -t log s - (1 - t) log(1 - s), s = sigmoid(x)                is it hit by x > 0
 *     cosine     1 - x.t / (|x| |t|), of the last dimension                   0
 *
 * A target that is NaN does not count; of cosine, a vector with one. Output of a sample: sum of
 * losses, targets that counted, sum of the third numbers. */
#include <math.h>

#include "backend/check.h"
#include "backend/ref/ref.h"

static const double least_norm = 1e-8; /* of a vector: as PyTorch has it */

/* Of one number: loss, slope and third number. */
typedef struct term {
    double loss, slope, third;
} term;

static term term_of(const fr_node *node, double x, double t)
{
    double d = x - t, beta = (double)node->attrs.loss.beta;
    switch (node->op) {
    case FR_OP_MSE: return (term){d * d, 2 * d, fabs(d)};
    case FR_OP_SMOOTH_L1:
        if (fabs(d) < beta) return (term){d * d / (2 * beta), d / beta, fabs(d)};
        return (term){fabs(d) - beta / 2, d < 0 ? -1 : d > 0 ? 1 : d, fabs(d)};
    default: /* log(1 + exp(x)) - t x without overflow */
        return (term){(x > 0 ? x : 0) - t * x + log1p(exp(-fabs(x))), 1 / (1 + exp(-x)) - t,
                      (x > 0) == (t > 0.5)};
    }
}

static fr_status number_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n = fr_shape_count(&fr__ref_input(k, 0)->shape);
    const float *x = a->x[0], *t = a->x[1]; /* (N, n) */
    float *y = a->y;
    if (k->node->op == FR_OP_BCE) FR_TRY(fr__check_shares(k, a));
    for (int64_t s = 0; s < k->batch; s++, x += n, t += n, y += 3) {
        double loss = 0, counted = 0, third = 0;
        for (int64_t i = 0; i < n; i++) {
            if (isnan(t[i])) continue;
            term one = term_of(k->node, (double)x[i], (double)t[i]);
            loss += one.loss, third += one.third, counted += 1;
        }
        y[0] = (float)loss, y[1] = (float)counted, y[2] = (float)third;
    }
    return FR_OK;
}

static fr_status number_backward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n = fr__ref_count(k, fr__ref_input(k, 0));
    const float *x = a->x[0], *t = a->x[1];
    for (int64_t i = 0; i < n; i++) {
        double g = isnan(t[i]) ? 0 : term_of(k->node, (double)x[i], (double)t[i]).slope;
        fr__ref_put((float *)a->dx[0] + i, g * (double)a->pass->loss_scale, a->add_dx[0]);
    }
    return FR_OK;
}

/* A vector and its target. */
typedef struct angle {
    double norm_x, norm_t, cosine;
    bool counts;
} angle;

static angle angle_of(const float *x, const float *t, int64_t n)
{
    double xx = 0, tt = 0, xt = 0;
    for (int64_t i = 0; i < n; i++) {
        xx += (double)x[i] * (double)x[i];
        tt += (double)t[i] * (double)t[i];
        xt += (double)x[i] * (double)t[i];
    }
    double norm_x = fmax(sqrt(xx), least_norm), norm_t = fmax(sqrt(tt), least_norm);
    return (angle){norm_x, norm_t, xt / (norm_x * norm_t), !isnan(tt)};
}

static fr_status cosine_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const fr_node *in = fr__ref_input(k, 0);
    int64_t n = fr__cols(in), rows = fr__rows(in, k->batch) / k->batch;
    const float *x = a->x[0], *t = a->x[1]; /* (N, rows, n) */
    float *y = a->y;
    for (int64_t s = 0; s < k->batch; s++, y += 3) {
        double loss = 0, counted = 0;
        for (int64_t r = 0; r < rows; r++, x += n, t += n) {
            angle v = angle_of(x, t, n);
            if (v.counts) loss += 1 - v.cosine, counted += 1;
        }
        y[0] = (float)loss, y[1] = (float)counted, y[2] = 0;
    }
    return FR_OK;
}

/* d cosine / dx = t / (|x| |t|) - cosine x / |x|^2; the norm of a vector of zeros is constant. */
static fr_status cosine_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const fr_node *in = fr__ref_input(k, 0);
    int64_t n = fr__cols(in), rows = fr__rows(in, k->batch);
    const float *x = a->x[0], *t = a->x[1];
    float *dx = a->dx[0];
    for (int64_t r = 0; r < rows; r++, x += n, t += n, dx += n) {
        angle v = angle_of(x, t, n);
        double shrink = v.norm_x > least_norm ? v.cosine / (v.norm_x * v.norm_x) : 0;
        for (int64_t i = 0; i < n; i++) {
            double g = shrink * (double)x[i] - (double)t[i] / (v.norm_x * v.norm_t);
            fr__ref_put(&dx[i], v.counts ? g * (double)a->pass->loss_scale : 0, a->add_dx[0]);
        }
    }
    return FR_OK;
}

fr_status fr__ref_distance(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops of_numbers = {.forward = number_forward,
                                              .backward_input = number_backward};
    static const fr__kernel_ops of_vectors = {.forward = cosine_forward,
                                              .backward_input = cosine_backward};
    bool is_cosine = fr_graph_node(spec->graph, spec->nodes[0])->op == FR_OP_COSINE;
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), is_cosine ? &of_vectors : &of_numbers,
                          out));
    (*out)->needs_x = 3;
    return FR_OK;
}
