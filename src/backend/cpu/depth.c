/* depth.c -- stochastic_depth by the rule of backend/dropout.h: in training a whole sample is kept,
 * times 1 / (1 - p), or zero. It works on any layout, as a sample is one block of it. */
#include "backend/cpu/cpu.h"
#include "backend/dropout.h"
#include "base/simd.h"

typedef struct depth {
    fr__kernel k;
    int node; /* index in the graph: part of the random counter */
    fr__dropout_rule rule;
    size_t n; /* elements in a sample, padding included */
} depth;

typedef struct depth_job {
    const depth *d;
    const fr_pass *pass;
    fr__source in; /* (batch, n) */
    fr__sink out;
} depth_job;

static bool is_kept(const depth_job *job, size_t sample)
{
    uint32_t words[4];
    fr__dropout_words(job->pass, job->d->node, (int64_t)sample, 0, words);
    return fr__dropout_kept(words[0], job->d->rule.p);
}

FR_SIMD_RANGE(keep_elements)
{
    const depth_job *job = arg;
    float in_room[FR_PIECE], out_room[FR_PIECE];
    for (size_t at = begin, last; at < end; at = last) {
        const size_t sample = at / job->d->n, after = (sample + 1) * job->d->n;
        const bool kept = is_kept(job, sample);
        last = after < end ? after : end;
        for (size_t i = at, n; i < last; i += n) {
            n = fr__piece(i, last);
            const float *in = fr__read(job->in, i, n, in_room);
            float *out = fr__place(job->out, i, out_room);
#pragma omp simd /* out is in or does not overlap it */
            for (size_t j = 0; j < n; j++) out[j] = kept ? in[j] * job->d->rule.gain : 0.0f;
            fr__store(job->out, i, n, out);
        }
    }
}

static void run(fr__kernel *k, const fr_pass *pass, const void *in, void *out)
{
    const depth *d = (const depth *)k;
    depth_job job = {.d = d, .pass = pass, .in = {in, k->y.dtype}, .out = {out, k->y.dtype}};
    fr__cpu_parallel(k->dev, d->n * (size_t)k->batch, 1024, keep_elements, &job);
}

static fr_status depth_forward(fr__kernel *k, const fr__kernel_args *a)
{
    run(k, a->pass, a->x[0], a->y);
    return FR_OK;
}

static fr_status depth_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    run(k, a->pass, a->dy, dz);
    return FR_OK;
}

static const fr__kernel_ops depth_ops = {.forward = depth_forward, .prepare_dy = depth_prepare_dy};
static const fr__kernel_ops identity_ops = {0}; /* y_is_x0: never called */

fr_status fr__cpu_depth(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    const fr_node *node = fr_graph_node(spec->graph, spec->nodes[0]);
    if (spec->x[0]->dtype != spec->y_type)
        return fr__kernel_in_floats(spec, arena, fr__cpu_depth, out);
    if (spec->x[0]->desc && spec->plain_output)
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_depth, out);
    const bool is_off = !spec->training || node->attrs.dropout.p <= 0.0f;
    depth *d = (depth *)fr__kernel_new(spec, arena, sizeof *d, is_off ? &identity_ops : &depth_ops);
    if (!d) return FR_NO_MEMORY;
    d->node = spec->nodes[0];
    d->rule = fr__dropout_rule_of(node);
    d->k.y = *spec->x[0];
    d->n = fr__layout_count(&d->k.y) / (size_t)spec->batch;
    d->k.pass_dx = 1;
    d->k.y_is_x0 = is_off;
    d->k.can_overwrite_x0 = true;
    *out = &d->k;
    return FR_OK;
}
