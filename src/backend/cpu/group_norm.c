/* group_norm.c -- y = (x - mean) / sqrt(var + eps) * w[c] + b[c], where mean and variance are those
 * of a group of channels of one sample: one run of consecutive numbers in row-major order.
 *
 * Forward saves mean and 1/sigma of each run. Sums over a channel have the order of FR_SUM; sums
 * over channels and samples follow in order, so that no sum depends on the number of threads. */
#include "backend/cpu/cpu.h"
#include "base/simd.h"

#include <math.h>

typedef struct norm {
    fr__kernel k;
    int64_t groups, channels; /* of a sample; in a group */
    int64_t area;             /* numbers in a channel */
    float eps;
} norm;

typedef struct norm_job {
    const norm *g;
    const float *x, *dy; /* (batch, groups, channels, area) */
    const float *w, *b;  /* (groups, channels) */
    float *stats;        /* (batch, groups, 2): mean, 1/sigma */
    float *y, *dx;
    float *dw, *db;
    bool add, add_dw;
} norm_job;

FR_SIMD_RANGE(forward_runs)
{
    const norm_job *job = arg;
    const norm *g = job->g;
    const int64_t run = g->channels * g->area;
    for (size_t r = begin; r < end; r++) {
        const float *restrict x = job->x + (int64_t)r * run;
        const int64_t first = (int64_t)r % g->groups * g->channels;
        float sum, squares;
        FR_SUM(sum, i, run, x[i]);
        const float mean = sum / (float)run;
        FR_SUM(squares, i, run, (x[i] - mean) * (x[i] - mean));
        const float inv = 1.0f / sqrtf(squares / (float)run + g->eps);
        for (int64_t c = 0; c < g->channels; c++) {
            const float w = job->w[first + c], b = job->b[first + c];
            const float *restrict from = x + c * g->area;
            float *restrict y = job->y + (int64_t)r * run + c * g->area;
            for (int64_t i = 0; i < g->area; i++) y[i] = (from[i] - mean) * inv * w + b;
        }
        if (job->stats) job->stats[2 * r] = mean, job->stats[2 * r + 1] = inv;
    }
}

/* The sums of dy, and of dy * (x - mean), over a channel. */
FR_INLINE void channel_sums(const float *restrict x, const float *restrict dy, int64_t n,
                            float mean, float sums[2])
{
    FR_SUM(sums[0], i, n, dy[i]);
    FR_SUM(sums[1], i, n, dy[i] * (x[i] - mean));
}

FR_SIMD_RANGE(backward_runs)
{
    const norm_job *job = arg;
    const norm *g = job->g;
    const int64_t run = g->channels * g->area;
    for (size_t r = begin; r < end; r++) {
        const float *restrict x = job->x + (int64_t)r * run, *restrict dy =
                                                                 job->dy + (int64_t)r * run;
        const float *w = job->w + (int64_t)r % g->groups * g->channels;
        const float mean = job->stats[2 * r], inv = job->stats[2 * r + 1];
        float s1 = 0.0f, s2 = 0.0f, sums[2];
        for (int64_t c = 0; c < g->channels; c++) {
            channel_sums(x + c * g->area, dy + c * g->area, g->area, mean, sums);
            s1 += w[c] * sums[0], s2 += w[c] * sums[1];
        }
        const float a = s1 / (float)run, d = s2 * inv * inv / (float)run;
        for (int64_t c = 0; c < g->channels; c++) {
            float *restrict dx = job->dx + (int64_t)r * run;
            for (int64_t i = c * g->area; i < (c + 1) * g->area; i++) {
                float v = inv * (dy[i] * w[c] - a - (x[i] - mean) * d);
                dx[i] = job->add ? dx[i] + v : v;
            }
        }
    }
}

FR_SIMD_RANGE(weight_channels)
{
    const norm_job *job = arg;
    const norm *g = job->g;
    const int64_t all = g->groups * g->channels;
    for (size_t c = begin; c < end; c++) {
        float dw = 0.0f, db = 0.0f, sums[2];
        for (int64_t s = 0; s < g->k.batch; s++) {
            const int64_t at = (s * all + (int64_t)c) * g->area;
            const float *stats = job->stats + 2 * (s * g->groups + (int64_t)c / g->channels);
            channel_sums(job->x + at, job->dy + at, g->area, stats[0], sums);
            dw += sums[1] * stats[1], db += sums[0];
        }
        job->dw[c] = job->add_dw ? job->dw[c] + dw : dw;
        job->db[c] = job->add_dw ? job->db[c] + db : db;
    }
}

static norm_job job_of(const fr__kernel *k, const fr__kernel_args *a)
{
    return (norm_job){.g = (const norm *)k,
                      .x = a->x[0],
                      .dy = a->dy,
                      .w = a->w[0],
                      .b = a->w[1],
                      .stats = k->training ? a->saved : NULL,
                      .y = a->y,
                      .dx = a->dx[0],
                      .dw = a->dw[0],
                      .db = a->dw[1],
                      .add = a->add_dx[0],
                      .add_dw = a->add_dw};
}

static fr_status norm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    norm_job job = job_of(k, a);
    fr__cpu_parallel(k->dev, (size_t)(k->batch * job.g->groups), 1, forward_runs, &job);
    return FR_OK;
}

static fr_status norm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    norm_job job = job_of(k, a);
    fr__cpu_parallel(k->dev, (size_t)(k->batch * job.g->groups), 1, backward_runs, &job);
    return FR_OK;
}

static fr_status norm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    norm_job job = job_of(k, a);
    fr__cpu_parallel(k->dev, (size_t)(job.g->groups * job.g->channels), 1, weight_channels, &job);
    return FR_OK;
}

static const fr__kernel_ops norm_ops = {.forward = norm_forward,
                                        .backward_input = norm_backward_input,
                                        .backward_weight = norm_backward_weight};

fr_status fr__cpu_group_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    norm *g = (norm *)fr__kernel_new(spec, arena, sizeof *g, &norm_ops);
    if (!g) return FR_NO_MEMORY;
    const fr_node *node = g->k.node;
    g->groups = node->attrs.norm.groups;
    g->channels = node->shape.dim[0] / g->groups;
    g->area = fr_shape_count(&node->shape) / node->shape.dim[0];
    g->eps = node->attrs.norm.eps;
    if (spec->training) g->k.saved_bytes = (size_t)(spec->batch * g->groups) * 2 * sizeof(float);
    g->k.needs_x = 1;
    g->k.can_add_dx = 1;
    *out = &g->k;
    return FR_OK;
}
