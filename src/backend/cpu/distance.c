/* distance.c -- losses of an output against targets of floats: mse, smooth_l1, bce, cosine
 * (src/backend/ref/distance.c has the formulas).
 *
 * A sample is summed by one thread, in pieces whose sums are added in double: the bits depend
 * neither on threads nor on the batch. */
#include "backend/check.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#include <math.h>

enum { PIECE = 4096 };  /* numbers that are summed in float */
#define LEAST_NORM 1e-8 /* of a vector: as PyTorch has it */

typedef struct distance {
    fr__kernel k;
    int64_t n;    /* numbers of a sample */
    int64_t cols; /* of a vector; cosine */
    fr_range_fn forward, backward;
} distance;

typedef struct distance_job {
    const distance *d;
    const float *x, *t; /* (batch, n) */
    float *out;         /* (batch, 3) */
    float *dx;          /* (batch, n) */
    float scale, beta;
} distance_job;

/* Of one number: loss, slope, third number. NaN in x stays NaN. */
FR_INLINE float mse_loss(float x, float t, float beta) { return (void)beta, (x - t) * (x - t); }
FR_INLINE float mse_slope(float x, float t, float beta) { return (void)beta, 2.0f * (x - t); }
FR_INLINE float mse_third(float x, float t) { return fabsf(x - t); }

FR_INLINE float smooth_l1_loss(float x, float t, float beta)
{
    float d = fabsf(x - t);
    return d < beta ? 0.5f * d * d / beta : d - 0.5f * beta;
}

FR_INLINE float smooth_l1_slope(float x, float t, float beta)
{
    float d = x - t;
    return fabsf(d) < beta ? d / beta : d < 0.0f ? -1.0f : d > 0.0f ? 1.0f : d;
}

FR_INLINE float smooth_l1_third(float x, float t) { return fabsf(x - t); }

/* log(1 + exp(x)) - t x without overflow */
FR_INLINE float bce_loss(float x, float t, float beta)
{
    (void)beta;
    return (x > 0.0f ? x : 0.0f) - t * x + log1pf(fr__exp(-fabsf(x)));
}

FR_INLINE float bce_slope(float x, float t, float beta) { return (void)beta, fr__sigmoid(x) - t; }
FR_INLINE float bce_third(float x, float t) { return (x > 0.0f) == (t > 0.5f) ? 1.0f : 0.0f; }

/* Sums of a piece; a target that is NaN is not equal to itself. */
#define DEFINE(name)                                                                        \
    FR_SIMD_RANGE(name##_forward)                                                           \
    {                                                                                       \
        const distance_job *job = arg;                                                      \
        const float beta = job->beta;                                                       \
        const int64_t n = job->d->n;                                                        \
        for (size_t s = begin; s < end; s++) {                                              \
            double all[3] = {0};                                                            \
            for (int64_t at = 0; at < n; at += PIECE) {                                     \
                const float *restrict x = job->x + (int64_t)s * n + at;                     \
                const float *restrict t = job->t + (int64_t)s * n + at;                     \
                const int64_t m = n - at < PIECE ? n - at : PIECE;                          \
                float loss, counted, third;                                                 \
                FR_SUM(loss, i, m, t[i] == t[i] ? name##_loss(x[i], t[i], beta) : 0.0f);    \
                FR_SUM(counted, i, m, t[i] == t[i] ? 1.0f : 0.0f);                          \
                FR_SUM(third, i, m, t[i] == t[i] ? name##_third(x[i], t[i]) : 0.0f);        \
                all[0] += (double)loss, all[1] += (double)counted, all[2] += (double)third; \
            }                                                                               \
            for (int i = 0; i < 3; i++) job->out[3 * s + (size_t)i] = (float)all[i];        \
        }                                                                                   \
    }                                                                                       \
    FR_SIMD_RANGE(name##_backward)                                                          \
    {                                                                                       \
        const distance_job *job = arg;                                                      \
        const float *restrict x = job->x, *restrict t = job->t;                             \
        const float beta = job->beta, scale = job->scale;                                   \
        float *restrict dx = job->dx;                                                       \
        for (size_t i = begin; i < end; i++)                                                \
            dx[i] = t[i] == t[i] ? name##_slope(x[i], t[i], beta) * scale : 0.0f;           \
    }
DEFINE(mse)
DEFINE(smooth_l1)
DEFINE(bce)
#undef DEFINE

/* A vector and its target; no norm is less than LEAST_NORM. */
typedef struct angle {
    double norm_x, norm_t, cosine;
    bool counts;
} angle;

FR_INLINE angle angle_of(const float *restrict x, const float *restrict t, int64_t n)
{
    float xx, tt, xt;
    FR_SUM(xx, i, n, x[i] * x[i]);
    FR_SUM(tt, i, n, t[i] * t[i]);
    FR_SUM(xt, i, n, x[i] * t[i]);
    angle v = {.norm_x = sqrt((double)xx), .norm_t = sqrt((double)tt), .counts = tt == tt};
    if (v.norm_x < LEAST_NORM) v.norm_x = LEAST_NORM;
    if (v.norm_t < LEAST_NORM) v.norm_t = LEAST_NORM;
    v.cosine = (double)xt / (v.norm_x * v.norm_t);
    return v;
}

FR_SIMD_RANGE(cosine_forward)
{
    const distance_job *job = arg;
    const int64_t cols = job->d->cols, n = job->d->n;
    for (size_t s = begin; s < end; s++) {
        double loss = 0, counted = 0;
        for (int64_t at = (int64_t)s * n; at < (int64_t)(s + 1) * n; at += cols) {
            angle v = angle_of(job->x + at, job->t + at, cols);
            if (v.counts) loss += 1 - v.cosine, counted += 1;
        }
        job->out[3 * s] = (float)loss;
        job->out[3 * s + 1] = (float)counted;
        job->out[3 * s + 2] = 0.0f;
    }
}

/* d cosine / dx = t / (|x| |t|) - cosine x / |x|^2; begin and end count vectors. */
FR_SIMD_RANGE(cosine_backward)
{
    const distance_job *job = arg;
    const int64_t n = job->d->cols;
    for (size_t r = begin; r < end; r++) {
        const float *restrict x = job->x + (int64_t)r * n, *restrict t = job->t + (int64_t)r * n;
        float *restrict dx = job->dx + (int64_t)r * n;
        angle v = angle_of(x, t, n);
        double shrink = v.norm_x > LEAST_NORM ? v.cosine / (v.norm_x * v.norm_x) : 0;
        float by_x = (float)(shrink * (double)job->scale);
        float by_t = (float)((double)job->scale / (v.norm_x * v.norm_t));
        for (int64_t i = 0; i < n; i++) dx[i] = v.counts ? by_x * x[i] - by_t * t[i] : 0.0f;
    }
}

static fr_status distance_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const distance *d = (const distance *)k;
    distance_job job = {
        .d = d, .x = a->x[0], .t = a->x[1], .out = a->y, .beta = k->node->attrs.loss.beta};
    if (k->node->op == FR_OP_BCE) FR_TRY(fr__check_shares(k, a));
    fr__cpu_parallel(k->dev, (size_t)k->batch, 1, d->forward, &job);
    return FR_OK;
}

static fr_status distance_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const distance *d = (const distance *)k;
    distance_job job = {.d = d,
                        .x = a->x[0],
                        .t = a->x[1],
                        .dx = a->dx[0],
                        .scale = a->pass->loss_scale,
                        .beta = k->node->attrs.loss.beta};
    const bool is_cosine = k->node->op == FR_OP_COSINE;
    const int64_t n = d->n / (is_cosine ? d->cols : 1) * k->batch;
    fr__cpu_parallel(k->dev, (size_t)n, is_cosine ? 1 : 1024, d->backward, &job);
    return FR_OK;
}

fr_status fr__cpu_distance(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = distance_forward,
                                       .backward_input = distance_backward};
    static const struct {
        fr_range_fn forward, backward;
    } sweeps[FR_OPERATOR_COUNT] = {
        [FR_OP_MSE] = {mse_forward, mse_backward},
        [FR_OP_SMOOTH_L1] = {smooth_l1_forward, smooth_l1_backward},
        [FR_OP_BCE] = {bce_forward, bce_backward},
        [FR_OP_COSINE] = {cosine_forward, cosine_backward},
    };
    distance *d = (distance *)fr__kernel_new(spec, arena, sizeof *d, &ops);
    if (!d) return FR_NO_MEMORY;
    const fr_node *x = fr_graph_node(spec->graph, spec->inputs[0]);
    d->n = fr_shape_count(&x->shape);
    d->cols = x->shape.n_dims ? fr__cols(x) : 1;
    d->forward = sweeps[d->k.node->op].forward, d->backward = sweeps[d->k.node->op].backward;
    d->k.needs_x = 3;
    *out = &d->k;
    return FR_OK;
}
