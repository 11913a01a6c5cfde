/* rows.c -- reverse_time, which moves whole steps, of numbers or of ids. */
#include "backend/cpu/cpu.h"
#include "base/simd.h"

#include <string.h>

typedef struct rows {
    fr__kernel k;
    int64_t n, width; /* steps, bytes of a step */
    bool has_length;
} rows;

typedef struct rows_job {
    const rows *r;
    const fr__kernel_args *a;
} rows_job;

static int64_t length_of(const rows_job *job, int64_t sample)
{
    const rows *r = job->r;
    int64_t n = r->has_length ? ((const int32_t *)job->a->x[1])[sample] : r->n;
    return n < 0 ? 0 : n > r->n ? r->n : n;
}

static int64_t source_of(int64_t t, int64_t length) { return t < length ? length - 1 - t : t; }

static void move_samples(void *arg, size_t begin, size_t end)
{
    const rows_job *job = arg;
    const rows *r = job->r;
    for (int64_t s = (int64_t)begin; s < (int64_t)end; s++) {
        int64_t length = length_of(job, s);
        for (int64_t t = 0; t < r->n; t++)
            memcpy((char *)job->a->y + (s * r->n + t) * r->width,
                   (const char *)job->a->x[0] + (s * r->n + source_of(t, length)) * r->width,
                   (size_t)r->width);
    }
}

FR_INLINE void add_floats(float *restrict to, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

FR_SIMD_RANGE(return_samples)
{
    const rows_job *job = arg;
    const rows *r = job->r;
    const bool add = job->a->add_dx[0];
    for (int64_t s = (int64_t)begin; s < (int64_t)end; s++) {
        int64_t length = length_of(job, s);
        char *dx = (char *)job->a->dx[0] + s * r->n * r->width;
        for (int64_t t = 0; t < r->n; t++) {
            const void *dy = (const char *)job->a->dy + (s * r->n + t) * r->width;
            void *to = dx + source_of(t, length) * r->width;
            if (add)
                add_floats(to, dy, r->width / (int64_t)sizeof(float));
            else
                memcpy(to, dy, (size_t)r->width);
        }
    }
}

static fr_status rows_forward(fr__kernel *k, const fr__kernel_args *a)
{
    fr__cpu_parallel(k->dev, (size_t)k->batch, 1, move_samples, &(rows_job){(rows *)k, a});
    return FR_OK;
}

static fr_status rows_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    fr__cpu_parallel(k->dev, (size_t)k->batch, 1, return_samples, &(rows_job){(rows *)k, a});
    return FR_OK;
}

static const fr__kernel_ops rows_ops = {.forward = rows_forward,
                                        .backward_input = rows_backward_input};

fr_status fr__cpu_rows(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (spec->x[0]->dtype != spec->y_type)
        return fr__kernel_in_floats(spec, arena, fr__cpu_rows, out);
    rows *r = (rows *)fr__kernel_new(spec, arena, sizeof *r, &rows_ops);
    if (!r) return FR_NO_MEMORY;
    const fr_node *node = r->k.node;
    r->n = node->shape.dim[0];
    r->width = fr_shape_count(&node->shape) / r->n * (int64_t)fr_dtype_bytes(r->k.y.dtype);
    r->has_length = spec->n_inputs > 1;
    r->k.needs_x = r->has_length ? 2 : 0;
    r->k.can_add_dx = r->k.y.dtype == FR_F32;
    *out = &r->k;
    return FR_OK;
}
