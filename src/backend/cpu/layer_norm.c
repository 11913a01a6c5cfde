/* layer_norm.c -- y = (x - mean) / sqrt(var + eps) * w + b over the last dimension.
 *
 * Forward saves mean and 1/sigma of each row. The input gradient is added to the present value if
 * the program requests it, so that a residual branch needs no separate pass. */
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
enum { X, Y, W, B, N_ROOMS };

typedef struct norm_job {
    const norm *l;
    fr__source x, dy; /* (rows, n) */
    fr__source w, b;  /* (n) */
    float *stats;     /* (rows, 2): mean, 1/sigma */
    fr__sink y, dx;   /* (rows, n) */
    float *partials;  /* (FR_ROW_BLOCKS, 2n): dw, db */
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
    const float *restrict b = fr__read(job->b, 0, width, room(job, B));
    float *x_room = room(job, X), *y_room = room(job, Y);
    for (size_t r = begin; r < end; r++) {
        const float *restrict x = fr__read(job->x, r * width, width, x_room);
        float *restrict y = fr__place(job->y, r * width, y_room);
        float sum, squares;
        FR_SUM(sum, i, n, x[i]);
        float mean = sum / (float)n;
        FR_SUM(squares, i, n, (x[i] - mean) * (x[i] - mean));
        float inv = 1.0f / sqrtf(squares / (float)n + job->l->eps);
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv * w[i] + b[i];
        fr__store(job->y, r * width, width, y);
        if (job->stats) job->stats[2 * r] = mean, job->stats[2 * r + 1] = inv;
    }
}

/* dx is a row of floats. */
FR_INLINE void backward_row(const norm_job *job, size_t r, const float *restrict w,
                            const float *restrict x, const float *restrict dy, float *restrict dx,
                            bool add)
{
    int64_t n = job->l->n;
    float mean = job->stats[2 * r], inv = job->stats[2 * r + 1], s1, s2;
    FR_SUM(s1, i, n, dy[i] * w[i]);
    FR_SUM(s2, i, n, dy[i] * w[i] * (x[i] - mean));
    float a = s1 / (float)n, c = s2 * inv * inv / (float)n;
    for (int64_t i = 0; i < n; i++) {
        float v = inv * (dy[i] * w[i] - a - (x[i] - mean) * c);
        dx[i] = add ? dx[i] + v : v;
    }
}

FR_SIMD_RANGE(backward_rows)
{
    const norm_job *job = arg;
    const size_t n = (size_t)job->l->n;
    const bool is_bf16 = job->dx.type == FR_BF16;
    const float *w = fr__read(job->w, 0, n, room(job, W));
    float *x_room = room(job, X), *dy_room = room(job, Y), *dx_room = room(job, B);
    for (size_t r = begin; r < end; r++) {
        const float *x = fr__read(job->x, r * n, n, x_room);
        const float *dy = fr__read(job->dy, r * n, n, dy_room);
        float *dx = fr__place(job->dx, r * n, dx_room);
        if (job->add && !is_bf16)
            backward_row(job, r, w, x, dy, dx, true);
        else
            backward_row(job, r, w, x, dy, dx, false);
        if (job->add)
            fr__store_sum(job->dx, r * n, n, dx);
        else
            fr__store(job->dx, r * n, n, dx);
    }
}

FR_SIMD_RANGE(weight_blocks)
{
    const norm_job *job = arg;
    int64_t n = job->l->n;
    const size_t width = (size_t)n;
    float *x_room = room(job, X), *dy_room = room(job, Y);
    for (size_t block = begin; block < end; block++) {
        float *restrict dw = job->partials + (int64_t)block * 2 * n, *restrict db = dw + n;
        for (int64_t i = 0; i < 2 * n; i++) dw[i] = 0.0f;
        int64_t last = fr__row_block(job->l->rows, block + 1);
        for (int64_t r = fr__row_block(job->l->rows, block); r < last; r++) {
            const float *restrict x = fr__read(job->x, (size_t)r * width, width, x_room);
            const float *restrict dy = fr__read(job->dy, (size_t)r * width, width, dy_room);
            float mean = job->stats[2 * r], inv = job->stats[2 * r + 1];
            for (int64_t i = 0; i < n; i++) {
                dw[i] += dy[i] * (x[i] - mean) * inv;
                db[i] += dy[i];
            }
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
                      .b = {a->w[1], k->w_type},
                      .stats = k->training ? a->saved : NULL,
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
    int64_t n = job.l->n;
    fr__cpu_parallel(k->dev, FR_ROW_BLOCKS, 1, weight_blocks, &job);
    float *sums = job.partials + FR_ROW_BLOCKS * 2 * n; /* (2n) */
    fr__add_partials(job.partials, 2 * n, sums, false);
    for (int64_t i = 0; i < n; i++) {
        a->dw[0][i] = a->add_dw ? a->dw[0][i] + sums[i] : sums[i];
        a->dw[1][i] = a->add_dw ? a->dw[1][i] + sums[n + i] : sums[n + i];
    }
    return FR_OK;
}

static const fr__kernel_ops norm_ops = {.forward = norm_forward,
                                        .backward_input = norm_backward_input,
                                        .backward_weight = norm_backward_weight};

fr_status fr__cpu_layer_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    norm *l = (norm *)fr__kernel_new(spec, arena, sizeof *l, &norm_ops);
    if (!l) return FR_NO_MEMORY;
    l->rows = fr__rows(l->k.node, spec->batch);
    l->n = fr__cols(l->k.node);
    l->eps = l->k.node->attrs.norm.eps;
    l->x_type = spec->x[0]->dtype;
    if (spec->training) {
        l->k.saved_bytes = (size_t)l->rows * 2 * sizeof(float);
        l->rooms_at = (size_t)(2 * l->n) * (FR_ROW_BLOCKS + 1);
    }
    const int n_rooms = fr__spec_has_bf16(spec) ? N_ROOMS * fr_device_n_threads(spec->dev) : 0;
    l->k.scratch_bytes = (l->rooms_at + (size_t)(n_rooms * l->n)) * sizeof(float);
    l->k.needs_x = 1;
    l->k.can_add_dx = 1;
    *out = &l->k;
    return FR_OK;
}
