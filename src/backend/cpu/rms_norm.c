/* rms_norm.c -- y = x / sqrt(mean(x^2) + eps) * w over the last dimension.
 *
 * Forward saves 1 / sqrt(...) of each row. With g = dy * w and s the saved number,
 * dx = s * (g - x * s^2 * mean(g * x)). It is added to the present value if the program requests
 * it. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "base/simd.h"

#include <math.h>

typedef struct norm {
    fr__kernel k;
    int64_t rows, n;
    float eps;
    fr_dtype x_type;
    size_t rooms_at; /* in scratch, as floats: (threads, N_ROOMS, n) */
} norm;

/* Rows of a thread as floats. */
enum { X, Y, W, DX, N_ROOMS };

typedef struct norm_job {
    const norm *l;
    fr__source x, dy; /* (rows, n) */
    fr__source w;     /* (n) */
    float *scales;    /* (rows) */
    fr__sink y, dx;   /* (rows, n) */
    float *partials;  /* (FR_ROW_BLOCKS, n): dw */
    float *rooms;
    bool add;
} norm_job;

/* One of the calling thread's rooms. */
static float *room(const norm_job *job, int which)
{
    return job->rooms + (fr__cpu_thread() * N_ROOMS + which) * job->l->n;
}

FR_SIMD_RANGE(forward_rows)
{
    const norm_job *job = arg;
    const int64_t n = job->l->n;
    const size_t width = (size_t)n;
    const float *restrict w = fr__read(job->w, 0, width, room(job, W));
    float *x_room = room(job, X), *y_room = room(job, Y);
    for (size_t r = begin; r < end; r++) {
        const float *restrict x = fr__read(job->x, r * width, width, x_room);
        float *restrict y = fr__place(job->y, r * width, y_room);
        float squares;
        FR_SUM(squares, i, n, x[i] * x[i]);
        const float scale = 1.0f / sqrtf(squares / (float)n + job->l->eps);
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
        fr__store(job->y, r * width, width, y);
        if (job->scales) job->scales[r] = scale;
    }
}

/* dx is a row of floats. */
FR_INLINE void backward_row(int64_t n, float scale, const float *restrict w,
                            const float *restrict x, const float *restrict dy, float *restrict dx,
                            bool add)
{
    float sum;
    FR_SUM(sum, i, n, dy[i] * w[i] * x[i]);
    const float c = sum * scale * scale / (float)n;
    for (int64_t i = 0; i < n; i++) {
        float v = scale * (dy[i] * w[i] - x[i] * c);
        dx[i] = add ? dx[i] + v : v;
    }
}

FR_SIMD_RANGE(backward_rows)
{
    const norm_job *job = arg;
    const size_t n = (size_t)job->l->n;
    const bool is_bf16 = job->dx.type == FR_BF16;
    const float *w = fr__read(job->w, 0, n, room(job, W));
    float *x_room = room(job, X), *dy_room = room(job, Y), *dx_room = room(job, DX);
    for (size_t r = begin; r < end; r++) {
        const float *x = fr__read(job->x, r * n, n, x_room);
        const float *dy = fr__read(job->dy, r * n, n, dy_room);
        float *dx = fr__place(job->dx, r * n, dx_room);
        if (job->add && !is_bf16)
            backward_row((int64_t)n, job->scales[r], w, x, dy, dx, true);
        else
            backward_row((int64_t)n, job->scales[r], w, x, dy, dx, false);
        if (job->add)
            fr__store_sum(job->dx, r * n, n, dx);
        else
            fr__store(job->dx, r * n, n, dx);
    }
}

FR_SIMD_RANGE(weight_blocks)
{
    const norm_job *job = arg;
    const int64_t n = job->l->n;
    const size_t width = (size_t)n;
    float *x_room = room(job, X), *dy_room = room(job, Y);
    for (size_t block = begin; block < end; block++) {
        float *restrict dw = job->partials + (int64_t)block * n;
        const int64_t last = fr__row_block(job->l->rows, block + 1);
        for (int64_t i = 0; i < n; i++) dw[i] = 0.0f;
        for (int64_t r = fr__row_block(job->l->rows, block); r < last; r++) {
            const float *restrict x = fr__read(job->x, (size_t)r * width, width, x_room);
            const float *restrict dy = fr__read(job->dy, (size_t)r * width, width, dy_room);
            const float scale = job->scales[r];
            for (int64_t i = 0; i < n; i++) dw[i] += dy[i] * x[i] * scale;
        }
    }
}

static norm_job job_of(const fr__kernel *k, const fr__kernel_args *a)
{
    const norm *l = (const norm *)k;
    return (norm_job){.l = l,
                      .x = {a->x[0], l->x_type},
                      .dy = {a->dy, k->y.dtype},
                      .w = {a->w[0], k->w_type},
                      .scales = k->training ? a->saved : NULL,
                      .y = {a->y, k->y.dtype},
                      .dx = {a->dx[0], l->x_type},
                      .partials = a->scratch,
                      .rooms = (float *)a->scratch + l->rooms_at,
                      .add = a->add_dx[0]};
}

static fr_status norm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    norm_job job = job_of(k, a);
    fr__cpu_parallel(k->dev, (size_t)job.l->rows, 1, forward_rows, &job);
    return FR_OK;
}

static fr_status norm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    norm_job job = job_of(k, a);
    fr__cpu_parallel(k->dev, (size_t)job.l->rows, 1, backward_rows, &job);
    return FR_OK;
}

static fr_status norm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    norm_job job = job_of(k, a);
    fr__cpu_parallel(k->dev, FR_ROW_BLOCKS, 1, weight_blocks, &job);
    fr__add_partials(job.partials, job.l->n, a->dw[0], a->add_dw);
    return FR_OK;
}

static const fr__kernel_ops norm_ops = {.forward = norm_forward,
                                        .backward_input = norm_backward_input,
                                        .backward_weight = norm_backward_weight};

fr_status fr__cpu_rms_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    norm *l = (norm *)fr__kernel_new(spec, arena, sizeof *l, &norm_ops);
    if (!l) return FR_NO_MEMORY;
    l->rows = fr__rows(l->k.node, spec->batch);
    l->n = fr__cols(l->k.node);
    l->eps = l->k.node->attrs.norm.eps;
    l->x_type = spec->x[0]->dtype;
    if (spec->training) {
        l->k.saved_bytes = (size_t)l->rows * sizeof(float);
        l->rooms_at = (size_t)l->n * FR_ROW_BLOCKS;
    }
    const int n_rooms = fr__spec_has_bf16(spec) ? N_ROOMS * fr_device_n_threads(spec->dev) : 0;
    l->k.scratch_bytes = (l->rooms_at + (size_t)(n_rooms * l->n)) * sizeof(float);
    l->k.needs_x = 1;
    l->k.can_add_dx = 1;
    *out = &l->k;
    return FR_OK;
}
