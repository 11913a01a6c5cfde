/* loss.c -- softmax cross entropy: one sweep forward, one sweep backward.
 *
 * Forward keeps log(sum(exp)) of each row; the gradient is then exp(x - that) - q, scaled. q is the
 * target, smoothed: 1 - e + e/K at the target and e/K elsewhere. */
#include "backend/check.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#include <math.h>

typedef struct loss {
    fr__kernel k;
    int64_t rows_per_sample, classes;
    float smoothing;
    fr_dtype x_type;
} loss;

typedef struct loss_job {
    const loss *l;
    fr__source x;          /* (batch, rows, classes) */
    const int32_t *target; /* (batch, rows) */
    float *lse;            /* (batch, rows) or NULL */
    float *out;            /* (batch, 3) */
    fr__sink dx;
    float *rooms; /* (threads, 2, classes): rows of x and dx as floats */
    float scale;
} loss_job;

/* Rooms of the calling thread. */
static float *rooms_of(const loss_job *job)
{
    return job->rooms + fr__cpu_thread() * 2 * job->l->classes;
}

FR_SIMD_RANGE(loss_samples)
{
    const loss_job *job = arg;
    int64_t n = job->l->classes, rows = job->l->rows_per_sample;
    float e = job->l->smoothing, *room = rooms_of(job);
    for (size_t s = begin; s < end; s++) {
        double sum_loss = 0.0;
        int64_t counted = 0, correct = 0;
        for (int64_t r = (int64_t)s * rows; r < (int64_t)(s + 1) * rows; r++) {
            const float *restrict x = fr__read(job->x, (size_t)(r * n), (size_t)n, room);
            float top = x[0], sum, total;
#pragma omp simd reduction(max : top)
            for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
            FR_SUM(sum, i, n, fr__exp(x[i] - top));
            FR_SUM(total, i, n, x[i] - top);
            float log_sum = logf(sum);
            if (job->lse) job->lse[r] = top + log_sum;
            int32_t target = job->target[r];
            if (!fr__target_counts(job->l->k.node, target)) continue;
            int64_t best = 0;
            while (x[best] != top && best + 1 < n)
                best++; /* first of equals; NaN stops at the end */
            counted++;
            correct += best == target;
            float at_target = log_sum - (x[target] - top), mean = log_sum - total / (float)n;
            sum_loss += (double)((1.0f - e) * at_target + e * mean);
        }
        job->out[3 * s] = (float)sum_loss;
        job->out[3 * s + 1] = (float)counted;
        job->out[3 * s + 2] = (float)correct;
    }
}

FR_SIMD_RANGE(gradient_rows)
{
    const loss_job *job = arg;
    int64_t n = job->l->classes;
    float base = job->l->smoothing / (float)n, scale = job->scale;
    float *x_room = rooms_of(job), *dx_room = x_room + n;
    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        const size_t at = (size_t)(r * n);
        float *restrict dx = fr__place(job->dx, at, dx_room);
        if (!fr__target_counts(job->l->k.node, job->target[r])) {
            for (int64_t i = 0; i < n; i++) dx[i] = 0.0f;
            fr__store(job->dx, at, (size_t)n, dx);
            continue;
        }
        const float *restrict x = fr__read(job->x, at, (size_t)n, x_room);
        float lse = job->lse[r];
        for (int64_t i = 0; i < n; i++) dx[i] = (fr__exp(x[i] - lse) - base) * scale;
        dx[job->target[r]] -= (1.0f - job->l->smoothing) * scale;
        fr__store(job->dx, at, (size_t)n, dx);
    }
}

static fr_status loss_forward(fr__kernel *k, const fr__kernel_args *a)
{
    FR_TRY(fr__check_targets(k, a));
    const loss *l = (const loss *)k;
    loss_job job = {.l = l,
                    .x = {a->x[0], l->x_type},
                    .rooms = a->scratch,
                    .target = a->x[1],
                    .lse = k->training ? a->saved : NULL,
                    .out = a->y};
    fr__cpu_parallel(k->dev, (size_t)k->batch, 1, loss_samples, &job);
    return FR_OK;
}

static fr_status loss_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const loss *l = (const loss *)k;
    loss_job job = {.l = l,
                    .x = {a->x[0], l->x_type},
                    .target = a->x[1],
                    .lse = a->saved,
                    .dx = {a->dx[0], l->x_type},
                    .rooms = a->scratch,
                    .scale = a->pass->loss_scale};
    fr__cpu_parallel(k->dev, (size_t)(l->rows_per_sample * k->batch), 16, gradient_rows, &job);
    return FR_OK;
}

static const fr__kernel_ops loss_ops = {.forward = loss_forward,
                                        .backward_input = loss_backward_input};

fr_status fr__cpu_loss(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    loss *l = (loss *)fr__kernel_new(spec, arena, sizeof *l, &loss_ops);
    if (!l) return FR_NO_MEMORY;
    const fr_node *logits = fr_graph_node(spec->graph, spec->inputs[0]);
    l->classes = fr__cols(logits);
    l->rows_per_sample = fr_shape_count(&logits->shape) / l->classes;
    l->smoothing = l->k.node->attrs.loss.label_smoothing;
    if (spec->training)
        l->k.saved_bytes = (size_t)(l->rows_per_sample * spec->batch) * sizeof(float);
    l->x_type = spec->x[0]->dtype;
    if (l->x_type == FR_BF16)
        l->k.scratch_bytes =
            (size_t)(2 * l->classes * fr_device_n_threads(spec->dev)) * sizeof(float);
    l->k.needs_x = 3;
    *out = &l->k;
    return FR_OK;
}
