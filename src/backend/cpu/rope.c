/* rope.c -- rotary position embedding: numbers i and i + w/2 of a head are turned by the angle
 * t * base^(-2i / w), where w is rotated_width and t the time step; gradients are turned back.
 *
 * Cosines and sines of step t are those of steps FINE * (t / FINE) and t % FINE, from two small
 * tables, by the addition theorem: a table of every step would take more memory than the tensor of
 * a small batch. A row is turned in place if it may be. */
#include "backend/cpu/cpu.h"
#include "base/simd.h"

#include <math.h>
#include <string.h>

enum { FINE = 64 };

typedef struct rope {
    fr__kernel k;
    int64_t time, width, head; /* numbers in a row, in a head */
    int64_t half;              /* pairs of a head that are turned */
    int n_rotated;             /* heads */
    float *fine, *coarse;      /* (FINE, 2, half), (steps / FINE, 2, half): cosines, sines */
} rope;

typedef struct rope_job {
    const rope *p;
    fr__source in; /* (batch, time, width) */
    fr__sink out;
    float *rooms; /* (threads, 6, half): cosines, sines, and a head in and out as floats */
    float sign;   /* -1: turn back */
} rope_job;

/* Cosines and sines of a step. */
FR_INLINE void angles_of(const rope_job *job, int64_t t, float *restrict c, float *restrict s)
{
    const int64_t half = job->p->half;
    const float *restrict a = job->p->coarse + t / FINE * 2 * half;
    const float *restrict b = job->p->fine + t % FINE * 2 * half;
    for (int64_t i = 0; i < half; i++) {
        c[i] = a[i] * b[i] - a[half + i] * b[half + i];
        s[i] = job->sign * (a[half + i] * b[i] + a[i] * b[half + i]);
    }
}

/* y is x or does not overlap it. */
FR_INLINE void turn(int64_t half, const float *c, const float *s, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        const float x1 = x[i], x2 = x[half + i];
        y[i] = x1 * c[i] - x2 * s[i];
        y[half + i] = x2 * c[i] + x1 * s[i];
    }
}

FR_SIMD_RANGE(turn_rows)
{
    const rope_job *job = arg;
    const rope *p = job->p;
    const int64_t half = p->half, row_bytes = p->width * (int64_t)fr_dtype_bytes(job->in.type);
    const bool is_whole = 2 * half == p->head && p->n_rotated * p->head == p->width;
    float *c = job->rooms + fr__cpu_thread() * 6 * half, *s = c + half;
    for (size_t r = begin; r < end; r++) {
        angles_of(job, (int64_t)r % p->time, c, s);
        if (!is_whole && job->in.at != job->out.at)
            memcpy((char *)job->out.at + (int64_t)r * row_bytes,
                   (const char *)job->in.at + (int64_t)r * row_bytes, (size_t)row_bytes);
        for (int h = 0; h < p->n_rotated; h++) {
            const size_t at = (size_t)((int64_t)r * p->width + h * p->head), n = (size_t)(2 * half);
            const float *x = fr__read(job->in, at, n, s + half);
            float *y = fr__place(job->out, at, s + 3 * half);
            turn(half, c, s, x, y);
            fr__store(job->out, at, n, y);
        }
    }
}

static void run(fr__kernel *k, const fr__kernel_args *a, const void *in, void *out, float sign)
{
    const rope *p = (const rope *)k;
    rope_job job = {.p = p,
                    .in = {in, k->y.dtype},
                    .out = {out, k->y.dtype},
                    .rooms = a->scratch,
                    .sign = sign};
    fr__cpu_parallel(k->dev, (size_t)(k->batch * p->time), 1, turn_rows, &job);
}

static fr_status rope_forward(fr__kernel *k, const fr__kernel_args *a)
{
    run(k, a, a->x[0], a->y, 1.0f);
    return FR_OK;
}

static fr_status rope_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    run(k, a, a->dy, dz, -1.0f);
    return FR_OK;
}

/* Steps 0, stride, 2 stride, ... */
static float *make_table(const rope *p, fr_arena *arena, int64_t n, int64_t stride)
{
    float *table = FR_ARENA_ARRAY(arena, float, n * 2 * p->half);
    for (int64_t t = 0; table && t < n; t++)
        for (int64_t i = 0; i < p->half; i++) {
            const double base = (double)p->k.node->attrs.rope.base;
            const double angle = (double)(t * stride) * pow(base, -(double)i / (double)p->half);
            table[(2 * t) * p->half + i] = (float)cos(angle);
            table[(2 * t + 1) * p->half + i] = (float)sin(angle);
        }
    return table;
}

static const fr__kernel_ops rope_ops = {.forward = rope_forward, .prepare_dy = rope_prepare_dy};

fr_status fr__cpu_rope(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (spec->x[0]->dtype != spec->y_type)
        return fr__kernel_in_floats(spec, arena, fr__cpu_rope, out);
    rope *p = (rope *)fr__kernel_new(spec, arena, sizeof *p, &rope_ops);
    if (!p) return FR_NO_MEMORY;
    const fr_node *node = p->k.node;
    p->time = node->shape.dim[0];
    p->width = node->shape.dim[1];
    p->head = p->width / node->attrs.rope.heads;
    p->half = node->attrs.rope.rotated_width / 2;
    p->n_rotated = node->attrs.rope.rotated_heads;
    p->fine = make_table(p, arena, FINE, 1);
    p->coarse = make_table(p, arena, (p->time + FINE - 1) / FINE, FINE);
    if (!p->fine || !p->coarse)
        return fr__no_memory(spec->ctx, (size_t)(p->half * 2 * FINE) * sizeof(float), "a kernel");
    p->k.scratch_bytes = (size_t)(fr_device_n_threads(spec->dev) * 6 * p->half) * sizeof(float);
    p->k.pass_dx = 1;
    p->k.can_overwrite_x0 = true;
    *out = &p->k;
    return FR_OK;
}
