/* softmax.c -- y = exp(x - largest) / sum over the last dimension; dx = y * (dy - sum(dy * y)).
 *
 * A number of -infinity, as masks add it, gives 0. Rows of bf16 are widened into rooms of their
 * thread. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#include <math.h>

typedef struct softmax {
    fr__kernel k;
    int64_t rows, n;
    fr_dtype x_type;
} softmax;

/* Rows of a thread as floats. */
enum { IN, OUT, Y, N_ROOMS };

typedef struct softmax_job {
    const softmax *s;
    fr__source in; /* (rows, n): x or dy */
    fr__source y;  /* of a backward */
    fr__sink out;  /* y or dx */
    float *rooms;  /* (threads, N_ROOMS, n) */
    bool add;
} softmax_job;

static float *room(const softmax_job *job, int which)
{
    return job->rooms + (fr__cpu_thread() * N_ROOMS + which) * job->s->n;
}

/* NaNs are passed over here; they return by the exponentials. */
FR_INLINE float largest_of(const float *x, int64_t n)
{
    float lane[FR_SUM_LANES];
    const int64_t whole = n / FR_SUM_LANES * FR_SUM_LANES;
    for (int l = 0; l < FR_SUM_LANES; l++) lane[l] = -INFINITY;
    for (int64_t at = 0; at < whole; at += FR_SUM_LANES)
        for (int l = 0; l < FR_SUM_LANES; l++) lane[l] = x[at + l] > lane[l] ? x[at + l] : lane[l];
    for (int64_t i = whole; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int l = 1; l < FR_SUM_LANES; l++) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

/* y is x or does not overlap it. */
FR_INLINE void softmax_row(const float *x, float *y, int64_t n)
{
    const float largest = largest_of(x, n);
    float sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float below = x[i] - largest; /* fr__exp of -infinity would be NaN */
        y[i] = below < -87.0f ? 0.0f : fr__exp(below);
    }
    FR_SUM(sum, i, n, y[i]);
    const float scale = 1.0f / sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = y[i] * scale;
}

FR_SIMD_RANGE(forward_rows)
{
    const softmax_job *job = arg;
    const size_t n = (size_t)job->s->n;
    for (size_t r = begin; r < end; r++) {
        const float *x = fr__read(job->in, r * n, n, room(job, IN));
        float *y = fr__place(job->out, r * n, room(job, OUT));
        softmax_row(x, y, (int64_t)n);
        fr__store(job->out, r * n, n, y);
    }
}

/* dx is dy or does not overlap it. */
FR_INLINE void backward_row(const float *y, const float *dy, float *dx, int64_t n, bool add)
{
    float sum;
    FR_SUM(sum, i, n, dy[i] * y[i]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = y[i] * (dy[i] - sum);
        dx[i] = add ? dx[i] + v : v;
    }
}

FR_SIMD_RANGE(backward_rows)
{
    const softmax_job *job = arg;
    const size_t n = (size_t)job->s->n;
    for (size_t r = begin; r < end; r++) {
        const float *y = fr__read(job->y, r * n, n, room(job, Y));
        const float *dy = fr__read(job->in, r * n, n, room(job, IN));
        float *dx = fr__place(job->out, r * n, room(job, OUT));
        if (job->add && job->out.type != FR_BF16)
            backward_row(y, dy, dx, (int64_t)n, true);
        else
            backward_row(y, dy, dx, (int64_t)n, false);
        if (job->add)
            fr__store_sum(job->out, r * n, n, dx);
        else
            fr__store(job->out, r * n, n, dx);
    }
}

static fr_status softmax_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const softmax *s = (const softmax *)k;
    softmax_job job = {
        .s = s, .in = {a->x[0], s->x_type}, .out = {a->y, k->y.dtype}, .rooms = a->scratch};
    fr__cpu_parallel(k->dev, (size_t)s->rows, 1, forward_rows, &job);
    return FR_OK;
}

static fr_status softmax_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const softmax *s = (const softmax *)k;
    softmax_job job = {.s = s,
                       .in = {a->dy, k->y.dtype},
                       .y = {a->y, k->y.dtype},
                       .out = {a->dx[0], s->x_type},
                       .rooms = a->scratch,
                       .add = a->add_dx[0]};
    fr__cpu_parallel(k->dev, (size_t)s->rows, 1, backward_rows, &job);
    return FR_OK;
}

static const fr__kernel_ops softmax_ops = {.forward = softmax_forward,
                                           .backward_input = softmax_backward_input};

fr_status fr__cpu_softmax(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    softmax *s = (softmax *)fr__kernel_new(spec, arena, sizeof *s, &softmax_ops);
    if (!s) return FR_NO_MEMORY;
    s->rows = fr__rows(s->k.node, spec->batch);
    s->n = fr__cols(s->k.node);
    s->x_type = spec->x[0]->dtype;
    const bool is_one_type = s->x_type == spec->y_type;
    const int n_rooms = fr__spec_has_bf16(spec) ? N_ROOMS * fr_device_n_threads(spec->dev) : 0;
    s->k.scratch_bytes = (size_t)(n_rooms * s->n) * sizeof(float);
    s->k.needs_y = true;
    s->k.can_add_dx = 1;
    s->k.can_overwrite_x0 = is_one_type;
    s->k.can_overwrite_dy = is_one_type;
    *out = &s->k;
    return FR_OK;
}
