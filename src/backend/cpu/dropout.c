/* dropout.c -- dropout and alpha_dropout by the rule of backend/dropout.h, vectorised.
 *
 * Random words are drawn for 16 quads of elements at a time, one lane each, so that the ten
 * rounds of Philox run in vector registers. Nothing is saved: the backward draws the same words. */
#include "backend/dropout.h"

#include "backend/cpu/cpu.h"
#include "base/simd.h"

#include <string.h>

enum { LANES = 16 };

typedef struct dropout {
    fr__kernel k;
    int node; /* index in the graph: part of the random counter */
    fr__dropout_rule rule;
    int64_t n; /* elements in a sample */
} dropout;

typedef struct drop_job {
    const dropout *d;
    const fr_pass *pass;
    fr__source in; /* (batch, n) */
    fr__sink out;
    float shift, dropped; /* zero for gradients */
} drop_job;

/* kept[4 * l + w] = 1 or 0 for the elements of quads first .. first + LANES - 1. */
FR_INLINE void draw(const drop_job *job, int64_t sample, int64_t first, float kept[4 * LANES])
{
    uint32_t c[4][LANES];
    for (int l = 0; l < LANES; l++) {
        c[0][l] = (uint32_t)(first + l);
        c[1][l] = (uint32_t)job->pass->step;
        c[2][l] = (uint32_t)(job->pass->first_sample + sample);
        c[3][l] = (uint32_t)FR_STREAM_DROPOUT << 24 ^ (uint32_t)job->d->node;
    }
    uint32_t k0 = (uint32_t)job->pass->seed, k1 = (uint32_t)(job->pass->seed >> 32);
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < LANES; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][l], p1 = (uint64_t)0xCD9E8D57u * c[2][l];
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1][l] ^ k0;
            uint32_t n2 = (uint32_t)(p0 >> 32) ^ c[3][l] ^ k1;
            c[0][l] = n0, c[1][l] = (uint32_t)p1, c[2][l] = n2, c[3][l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < LANES; l++) {
        for (int w = 0; w < 4; w++)
            kept[4 * l + w] = fr__dropout_kept(c[w][l], job->d->rule.p) ? 1.0f : 0.0f;
    }
}

FR_INLINE void drop_block(const drop_job *job, const float *kept, const float *in, float *out,
                          int64_t n)
{
    float gain = job->d->rule.gain;
#pragma omp simd /* out is in or does not overlap it */
    for (int64_t i = 0; i < n; i++)
        out[i] = kept[i] > 0.0f ? in[i] * gain + job->shift : job->dropped;
}

/* Blocks of 4 * LANES elements, numbered through all samples. */
FR_SIMD_RANGE(drop_blocks)
{
    const drop_job *job = arg;
    int64_t n = job->d->n, per_sample = (n + 4 * LANES - 1) / (4 * LANES);
    float kept[4 * LANES], in_room[4 * LANES], out_room[4 * LANES];
    for (size_t b = begin; b < end; b++) {
        int64_t sample = (int64_t)b / per_sample, block = (int64_t)b % per_sample;
        int64_t first = block * 4 * LANES, left = n - first;
        draw(job, sample, first / 4, kept);
        const size_t at = (size_t)(sample * n + first);
        const size_t size = left < 4 * LANES ? (size_t)left : 4 * LANES;
        const float *in = fr__read(job->in, at, size, in_room);
        float *out = fr__place(job->out, at, out_room);
        if (left >= 4 * LANES)
            drop_block(job, kept, in, out, 4 * LANES);
        else
            drop_block(job, kept, in, out, left);
        fr__store(job->out, at, size, out);
    }
}

static void run(fr__kernel *k, drop_job *job)
{
    int64_t per_sample = (job->d->n + 4 * LANES - 1) / (4 * LANES);
    fr__cpu_parallel(k->dev, (size_t)(per_sample * k->batch), 16, drop_blocks, job);
}

static fr_status dropout_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const dropout *d = (const dropout *)k;
    drop_job job = {.d = d,
                    .pass = a->pass,
                    .in = {a->x[0], k->y.dtype},
                    .out = {a->y, k->y.dtype},
                    .shift = d->rule.shift,
                    .dropped = d->rule.dropped};
    run(k, &job);
    return FR_OK;
}

static fr_status dropout_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    drop_job job = {.d = (const dropout *)k,
                    .pass = a->pass,
                    .in = {a->dy, k->y.dtype},
                    .out = {dz, k->y.dtype}};
    run(k, &job);
    return FR_OK;
}

static const fr__kernel_ops dropout_ops = {.forward = dropout_forward,
                                           .prepare_dy = dropout_prepare_dy};
static const fr__kernel_ops identity_ops = {0}; /* y_is_x0: never called */

/* Needs row-major tensors: elements of a sample are numbered in that order. */
fr_status fr__cpu_dropout(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    const fr_node *node = fr_graph_node(spec->graph, spec->nodes[0]);
    if (spec->x[0]->dtype != spec->y_type)
        return fr__kernel_in_floats(spec, arena, fr__cpu_dropout, out);
    bool is_off = !spec->training || node->attrs.dropout.p <= 0.0f;
    if (spec->x[0]->desc && (!is_off || spec->plain_output))
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_dropout, out);
    dropout *d =
        (dropout *)fr__kernel_new(spec, arena, sizeof *d, is_off ? &identity_ops : &dropout_ops);
    if (!d) return FR_NO_MEMORY;
    d->node = spec->nodes[0];
    d->rule = fr__dropout_rule_of(node);
    d->n = fr_shape_count(&node->shape);
    d->k.pass_dx = 1;
    d->k.y = *spec->x[0];
    d->k.y_is_x0 = is_off;
    d->k.can_overwrite_x0 = true;
    *out = &d->k;
    return FR_OK;
}
