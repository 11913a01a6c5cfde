/* lstm.c -- one LSTM layer, gates i, f, g, o as in PyTorch, starting from zero state.
 *
 * The input's share of all gates is one product over all steps; only h W_hh^T is computed step by
 * step. Forward saves the gates' values and the cells. The backward goes from the last step to the
 * first and turns the saved gates into their gradients in place; input and weight gradients are
 * then single products over all steps. With a projection (Sak et al., 2014) the output is P wide,
 * and the outputs of the cells and their gradients are saved too, for the projection's gradient. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/vmath.h"

#include <string.h>

typedef struct lstm {
    fr__kernel k;
    int64_t batch, time, in, hidden;
    int64_t out; /* P, or H without a projection */
    bool is_projected;
    bool has_dx;     /* backward_input runs, and computes the gates' gradients */
    size_t cells;    /* offsets in saved: the cells (batch, T, H); with a projection, */
    size_t emitted;  /* outputs of the cells (batch, T, H), and */
    size_t sums;     /* gradients of the outputs, from above and from later (batch, T, P) */
    size_t states;   /* scratch offsets: dh and dc (2, batch, H), dh of a projection (batch, P); */
    size_t previous; /* y shifted by a step (batch, T, P) */
    size_t column_sums;
} lstm;

/* One step of all samples. Rows of gates are time * 4H apart. */
typedef struct step_job {
    const lstm *l;
    int64_t t;
    float *gates; /* (batch, T, 4H): sums, then values, then gradients */
    float *cells; /* (batch, T, H) */
    const float *b_ih, *b_hh;
    float *y;        /* (batch, T, H): outputs, before a projection */
    const float *dy; /* their gradients; NULL with a projection, where dh holds them */
    float *dh, *dc;  /* (batch, H) */
} step_job;

FR_SIMD_RANGE(forward_step)
{
    const step_job *job = arg;
    int64_t h = job->l->hidden, time = job->l->time;
    for (size_t s = begin; s < end; s++) {
        int64_t row = (int64_t)s * time + job->t;
        float *restrict g = job->gates + row * 4 * h;
        float *restrict c = job->cells + row * h, *restrict y = job->y + row * h;
        const float *restrict bi = job->b_ih, *restrict bh = job->b_hh;
        for (int64_t i = 0; i < h; i++) {
            float in = fr__sigmoid(g[i] + bi[i] + bh[i]);
            float forget = fr__sigmoid(g[h + i] + bi[h + i] + bh[h + i]);
            float cell = fr__tanh(g[2 * h + i] + bi[2 * h + i] + bh[2 * h + i]);
            float out = fr__sigmoid(g[3 * h + i] + bi[3 * h + i] + bh[3 * h + i]);
            float before = job->t > 0 ? c[i - h] : 0.0f;
            g[i] = in, g[h + i] = forget, g[2 * h + i] = cell, g[3 * h + i] = out;
            c[i] = forget * before + in * cell;
            y[i] = out * fr__tanh(c[i]);
        }
    }
}

FR_SIMD_RANGE(backward_step)
{
    const step_job *job = arg;
    int64_t h = job->l->hidden, time = job->l->time;
    for (size_t s = begin; s < end; s++) {
        int64_t row = (int64_t)s * time + job->t;
        float *restrict g = job->gates + row * 4 * h;
        const float *restrict c = job->cells + row * h;
        const float *restrict dy = job->dy ? job->dy + row * h : NULL;
        float *restrict dh = job->dh + (int64_t)s * h, *restrict dc = job->dc + (int64_t)s * h;
        for (int64_t i = 0; i < h; i++) {
            float in = g[i], forget = g[h + i], cell = g[2 * h + i], out = g[3 * h + i];
            float before = job->t > 0 ? c[i - h] : 0.0f, tc = fr__tanh(c[i]);
            float d = dy ? dy[i] + dh[i] : dh[i], e = dc[i] + d * out * (1.0f - tc * tc);
            g[i] = e * cell * in * (1.0f - in);
            g[h + i] = e * before * forget * (1.0f - forget);
            g[2 * h + i] = e * in * (1.0f - cell * cell);
            g[3 * h + i] = d * tc * out * (1.0f - out);
            dc[i] = e * forget;
        }
    }
}

static fr_status lstm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t h = l->hidden, p = l->out, rows = l->batch * l->time;
    float *y = a->y; /* (batch, T, P) */
    step_job job = {.l = l,
                    .gates = a->saved,
                    .cells = (float *)((char *)a->saved + l->cells),
                    .b_ih = a->w[2],
                    .b_hh = a->w[3],
                    .y = l->is_projected ? (float *)((char *)a->saved + l->emitted) : y};
    fr__multiply(k->dev, &(fr__product){.w = {a->w[0], 4 * h, l->in, l->in},
                                        .rows = rows,
                                        .from = a->x[0],
                                        .ld_from = l->in,
                                        .to = job.gates,
                                        .ld_to = 4 * h});
    for (job.t = 0; job.t < l->time; job.t++) {
        if (job.t > 0) /* samples are T rows apart */
            fr__multiply(k->dev, &(fr__product){.w = {a->w[1], 4 * h, p, p},
                                                .add = true,
                                                .rows = l->batch,
                                                .from = y + (job.t - 1) * p,
                                                .ld_from = l->time * p,
                                                .to = job.gates + job.t * 4 * h,
                                                .ld_to = l->time * 4 * h});
        fr__cpu_parallel(k->dev, (size_t)l->batch, 1, forward_step, &job);
        if (l->is_projected)
            fr__multiply(k->dev, &(fr__product){.w = {a->w[4], p, h, h},
                                                .rows = l->batch,
                                                .from = job.y + job.t * h,
                                                .ld_from = l->time * h,
                                                .to = y + job.t * p,
                                                .ld_to = l->time * p});
    }
    return FR_OK;
}

/* Gradients of a step's outputs: add dy and that of the later step (dp), then go through the
 * projection to dh. */
static void through_projection(const lstm *l, const fr__kernel_args *a, int64_t t, const float *dp,
                               float *dh)
{
    int64_t h = l->hidden, p = l->out, row = l->time * p;
    const float *dy = (const float *)a->dy + t * p;
    float *sums = (float *)((char *)a->saved + l->sums) + t * p;
    for (int64_t s = 0; s < l->batch; s++)
        for (int64_t i = 0; i < p; i++) sums[s * row + i] = dy[s * row + i] + dp[s * p + i];
    fr__multiply(l->k.dev, &(fr__product){.w = {a->w[4], p, h, h},
                                          .is_dx = true,
                                          .rows = l->batch,
                                          .from = sums,
                                          .ld_from = row,
                                          .to = dh,
                                          .ld_to = h});
}

/* Gates to their gradients, from the last step to the first. */
static void through_time(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t h = l->hidden, p = l->out;
    float *states = (float *)((char *)a->scratch + l->states);
    float *dp = l->is_projected ? states + 2 * l->batch * h : states;
    step_job job = {.l = l,
                    .gates = a->saved,
                    .cells = (float *)((char *)a->saved + l->cells),
                    .dy = l->is_projected ? NULL : a->dy,
                    .dh = states,
                    .dc = states + l->batch * h};
    memset(states, 0, (size_t)(l->batch * (2 * h + (l->is_projected ? p : 0))) * sizeof(float));
    for (job.t = l->time - 1; job.t >= 0; job.t--) {
        if (l->is_projected) through_projection(l, a, job.t, dp, job.dh);
        fr__cpu_parallel(k->dev, (size_t)l->batch, 1, backward_step, &job);
        if (job.t > 0)
            fr__multiply(k->dev, &(fr__product){.w = {a->w[1], 4 * h, p, p},
                                                .is_dx = true,
                                                .rows = l->batch,
                                                .from = job.gates + job.t * 4 * h,
                                                .ld_from = l->time * 4 * h,
                                                .to = dp,
                                                .ld_to = p});
    }
}

static fr_status lstm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t h = l->hidden;
    through_time(k, a);
    fr__multiply(k->dev, &(fr__product){.w = {a->w[0], 4 * h, l->in, l->in},
                                        .is_dx = true,
                                        .rows = l->batch * l->time,
                                        .from = a->saved,
                                        .ld_from = 4 * h,
                                        .to = a->dx[0],
                                        .ld_to = l->in});
    return FR_OK;
}

static fr_status lstm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const lstm *l = (const lstm *)k;
    int64_t h = l->hidden, p = l->out, rows = l->batch * l->time;
    if (!l->has_dx) through_time(k, a);
    fr__matrix gates_t = {a->saved, 4 * h, true};
    const float *y = a->y;
    float *previous = (float *)((char *)a->scratch + l->previous);
    for (int64_t s = 0; s < l->batch; s++) {
        float *at = previous + s * l->time * p;
        memset(at, 0, (size_t)p * sizeof(float));
        memcpy(at + p, y + s * l->time * p, (size_t)((l->time - 1) * p) * sizeof(float));
    }
    fr__gemm(4 * h, l->in, rows, gates_t, (fr__matrix){a->x[0], l->in, false}, a->dw[0], l->in,
             a->add_dw);
    fr__gemm(4 * h, p, rows, gates_t, (fr__matrix){previous, p, false}, a->dw[1], p, a->add_dw);
    if (l->is_projected)
        fr__gemm(p, h, rows, (fr__matrix){(const float *)((char *)a->saved + l->sums), p, true},
                 (fr__matrix){(const float *)((char *)a->saved + l->emitted), h, false}, a->dw[4],
                 h, a->add_dw);
    float *sums = (float *)((char *)a->scratch + l->column_sums);
    for (int bias = 2; bias < 4; bias++)
        fr__column_sums(k->dev, (fr__source){a->saved, FR_F32}, rows, 4 * h, a->dw[bias], a->add_dw,
                        sums);
    return FR_OK;
}

static const fr__kernel_ops lstm_ops = {.forward = lstm_forward,
                                        .backward_input = lstm_backward_input,
                                        .backward_weight = lstm_backward_weight};

static size_t take(size_t *end, int64_t n_floats)
{
    size_t offset = *end;
    *end += fr__align_up((size_t)n_floats * sizeof(float));
    return offset;
}

fr_status fr__cpu_lstm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    lstm *l = (lstm *)fr__kernel_new(spec, arena, sizeof *l, &lstm_ops);
    if (!l) return FR_NO_MEMORY;
    fr__kernel *k = &l->k;
    l->batch = spec->batch;
    l->hidden = k->node->attrs.lstm.hidden;
    l->is_projected = k->node->attrs.lstm.projection > 0;
    l->out = fr__cols(k->node);
    l->time = fr_shape_count(&k->node->shape) / l->out;
    l->in = fr__cols(fr_graph_node(spec->graph, spec->inputs[0]));
    l->has_dx = spec->need_dx[0];
    int64_t rows = l->batch * l->time, h = l->hidden;
    (void)take(&k->saved_bytes, rows * 4 * h);
    l->cells = take(&k->saved_bytes, rows * h);
    if (l->is_projected) {
        l->emitted = take(&k->saved_bytes, rows * h);
        l->sums = take(&k->saved_bytes, rows * l->out);
    }
    l->states = take(&k->scratch_bytes, l->batch * (2 * h + (l->is_projected ? l->out : 0)));
    l->previous = take(&k->scratch_bytes, rows * l->out);
    l->column_sums = take(&k->scratch_bytes, FR_ROW_BLOCKS * 4 * h);
    k->needs_x = 1;
    k->needs_y = true;
    k->dw_reads_w = true;
    *out = k;
    return FR_OK;
}
