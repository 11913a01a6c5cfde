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
} norm;

typedef struct norm_job {
    const norm *l;
    const float *x, *dy; /* (rows, n) */
    const float *w, *b;  /* (n) */
    float *stats;        /* (rows, 2): mean, 1/sigma */
    float *y, *dx;       /* (rows, n) */
    float *partials;     /* (FR_ROW_BLOCKS, 2n): dw, db */
    bool add;
} norm_job;

FR_SIMD_RANGE(forward_rows)
{
    const norm_job *job = arg;
    int64_t n = job->l->n;
    const float *restrict w = job->w, *restrict b = job->b;
    for (size_t r = begin; r < end; r++) {
        const float *restrict x = job->x + (int64_t)r * n;
        float *restrict y = job->y + (int64_t)r * n;
        float sum, squares;
        FR_SUM(sum, i, n, x[i]);
        float mean = sum / (float)n;
        FR_SUM(squares, i, n, (x[i] - mean) * (x[i] - mean));
        float inv = 1.0f / sqrtf(squares / (float)n + job->l->eps);
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv * w[i] + b[i];
        if (job->stats) job->stats[2 * r] = mean, job->stats[2 * r + 1] = inv;
    }
}

FR_INLINE void backward_row(const norm_job *job, size_t r, bool add)
{
    int64_t n = job->l->n;
    const float *restrict x = job->x + (int64_t)r * n, *restrict dy = job->dy + (int64_t)r * n;
    const float *restrict w = job->w;
    float *restrict dx = job->dx + (int64_t)r * n;
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
    for (size_t r = begin; r < end; r++) {
        if (job->add)
            backward_row(job, r, true);
        else
            backward_row(job, r, false);
    }
}

FR_SIMD_RANGE(weight_blocks)
{
    const norm_job *job = arg;
    int64_t n = job->l->n;
    for (size_t block = begin; block < end; block++) {
        float *restrict dw = job->partials + (int64_t)block * 2 * n, *restrict db = dw + n;
        for (int64_t i = 0; i < 2 * n; i++) dw[i] = 0.0f;
        int64_t last = fr__row_block(job->l->rows, block + 1);
        for (int64_t r = fr__row_block(job->l->rows, block); r < last; r++) {
            const float *restrict x = job->x + r * n, *restrict dy = job->dy + r * n;
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
    return (norm_job){.l = (const norm *)k,
                      .x = a->x[0],
                      .dy = a->dy,
                      .w = a->w[0],
                      .b = a->w[1],
                      .stats = k->training ? a->saved : NULL,
                      .y = a->y,
                      .dx = a->dx[0],
                      .partials = a->scratch,
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
    if (spec->training) {
        l->k.saved_bytes = (size_t)l->rows * 2 * sizeof(float);
        l->k.scratch_bytes = (size_t)(2 * l->n) * (FR_ROW_BLOCKS + 1) * sizeof(float);
    }
    l->k.needs_x = 1;
    l->k.can_add_dx = 1;
    *out = &l->k;
    return FR_OK;
}
