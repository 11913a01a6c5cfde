/* time.c -- from a sequence to one vector: the mean over valid steps, or the last of them. */
#include "backend/cpu/cpu.h"
#include "base/simd.h"

typedef struct reduce {
    fr__kernel k;
    int64_t time, width;
    bool is_mean, has_length;
} reduce;

typedef struct reduce_job {
    const reduce *r;
    const float *x;        /* (batch, T, D) */
    const int32_t *length; /* (batch) or NULL */
    float *y;              /* (batch, D) */
    const float *dy;
    float *dx;
    bool add;
} reduce_job;

/* Steps first .. last - 1 of a sample count; none if its length is 0. */
static void valid_steps(const reduce_job *job, size_t sample, int64_t *first, int64_t *last)
{
    int64_t n = job->length ? job->length[sample] : job->r->time;
    *last = n < 0 ? 0 : n > job->r->time ? job->r->time : n;
    *first = job->r->is_mean || *last == 0 ? 0 : *last - 1;
}

FR_SIMD_RANGE(reduce_samples)
{
    const reduce_job *job = arg;
    int64_t width = job->r->width;
    for (size_t s = begin; s < end; s++) {
        int64_t first, last;
        valid_steps(job, s, &first, &last);
        float *restrict y = job->y + (int64_t)s * width;
        for (int64_t i = 0; i < width; i++) y[i] = 0.0f;
        for (int64_t t = first; t < last; t++) {
            const float *restrict x = job->x + ((int64_t)s * job->r->time + t) * width;
            for (int64_t i = 0; i < width; i++) y[i] += x[i];
        }
        float scale = last > first ? 1.0f / (float)(last - first) : 0.0f;
        for (int64_t i = 0; i < width; i++) y[i] *= scale;
    }
}

FR_SIMD_RANGE(spread_samples)
{
    const reduce_job *job = arg;
    int64_t width = job->r->width;
    for (size_t s = begin; s < end; s++) {
        int64_t first, last;
        valid_steps(job, s, &first, &last);
        float scale = last > first ? 1.0f / (float)(last - first) : 0.0f;
        const float *restrict dy = job->dy + (int64_t)s * width;
        for (int64_t t = 0; t < job->r->time; t++) {
            float *restrict dx = job->dx + ((int64_t)s * job->r->time + t) * width;
            float f = t >= first && t < last ? scale : 0.0f;
            for (int64_t i = 0; i < width; i++) dx[i] = (job->add ? dx[i] : 0.0f) + f * dy[i];
        }
    }
}

static fr_status reduce_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const reduce *r = (const reduce *)k;
    reduce_job job = {.r = r, .x = a->x[0], .length = r->has_length ? a->x[1] : NULL, .y = a->y};
    fr__cpu_parallel(k->dev, (size_t)k->batch, 1, reduce_samples, &job);
    return FR_OK;
}

static fr_status reduce_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const reduce *r = (const reduce *)k;
    reduce_job job = {.r = r,
                      .length = r->has_length ? a->x[1] : NULL,
                      .dy = a->dy,
                      .dx = a->dx[0],
                      .add = a->add_dx[0]};
    fr__cpu_parallel(k->dev, (size_t)k->batch, 1, spread_samples, &job);
    return FR_OK;
}

static const fr__kernel_ops reduce_ops = {.forward = reduce_forward,
                                          .backward_input = reduce_backward_input};

fr_status fr__cpu_time(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    reduce *r = (reduce *)fr__kernel_new(spec, arena, sizeof *r, &reduce_ops);
    if (!r) return FR_NO_MEMORY;
    const fr_node *x = fr_graph_node(spec->graph, spec->inputs[0]);
    r->width = fr__cols(x);
    r->time = fr_shape_count(&x->shape) / r->width;
    r->is_mean = r->k.node->op == FR_OP_MEAN_TIME;
    r->has_length = spec->n_inputs > 1;
    r->k.needs_x = r->has_length ? 2 : 0;
    r->k.can_add_dx = 1;
    *out = &r->k;
    return FR_OK;
}
