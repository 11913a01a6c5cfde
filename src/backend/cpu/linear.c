/* linear.c -- y = x W^T + b, with or without a following relu, gelu or residual add.
 *
 * Three matrix products by sgemm. Rows of W whose length is a multiple of 2 KB are stored 64
 * bytes further apart. Otherwise all rows start in the same cache sets, and the input gradient of a
 * small batch runs at half speed (44 against 97 GF/s for 64 x 2048 x 2048 on one Zen 3 core).
 *
 * If the gradient of a large W is not kept, it is computed in panels of rows, which are passed to
 * the optimizer while they are in cache and never written to memory. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/vmath.h"

typedef enum tail { TAIL_NONE, TAIL_RELU, TAIL_GELU, TAIL_ADD } tail;

typedef struct linear {
    fr__kernel k;
    int64_t rows, in, out, ld; /* ld: floats from row to row of W */
    tail tail;
    bool has_bias;
} linear;

enum { PANEL_ROWS = 512, PAD_FLOATS = 16, LARGE_WEIGHT = 1 << 20 /* floats */ };

/* --- what follows the product ------------------------------------------------------------- */

typedef struct tail_job {
    const linear *l;
    float *z;              /* (rows, out): product in, pre-activation out; may be y */
    float *y;              /* (rows, out) */
    const float *bias;     /* (out) or NULL */
    const float *residual; /* (rows, out) or NULL */
} tail_job;

FR_INLINE void tail_row(tail what, int64_t n, float *z, float *y, const float *bias,
                        const float *residual)
{
#pragma omp simd /* y is z or does not overlap it */
    for (int64_t i = 0; i < n; i++) {
        float v = bias ? z[i] + bias[i] : z[i];
        if (what == TAIL_RELU) v = v < 0.0f ? 0.0f : v; /* NaN stays */
        if (what == TAIL_ADD) v += residual[i];
        if (what == TAIL_GELU) {
            z[i] = v;
            v = fr__gelu(v);
        }
        y[i] = v;
    }
}

FR_SIMD_RANGE(tail_rows)
{
    const tail_job *job = arg;
    int64_t n = job->l->out;
    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        float *z = job->z + r * n, *y = job->y + r * n;
        const float *residual = job->residual ? job->residual + r * n : NULL;
        switch (job->l->tail) { /* one loop each, so that each is vectorised */
        case TAIL_NONE: tail_row(TAIL_NONE, n, z, y, job->bias, NULL); break;
        case TAIL_RELU: tail_row(TAIL_RELU, n, z, y, job->bias, NULL); break;
        case TAIL_GELU: tail_row(TAIL_GELU, n, z, y, job->bias, NULL); break;
        case TAIL_ADD: tail_row(TAIL_ADD, n, z, y, job->bias, residual); break;
        }
    }
}

static fr_status linear_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const linear *l = (const linear *)k;
    float *z = l->tail == TAIL_GELU && k->training ? a->saved : a->y;
    fr__multiply(k->dev, &(fr__product){.w = {a->w[0], l->out, l->in, l->ld},
                                        .rows = l->rows,
                                        .from = a->x[0],
                                        .ld_from = l->in,
                                        .to = z,
                                        .ld_to = l->out});
    if (!l->has_bias && l->tail == TAIL_NONE) return FR_OK;
    tail_job job = {.l = l,
                    .z = z,
                    .y = a->y,
                    .bias = l->has_bias ? a->w[1] : NULL,
                    .residual = l->tail == TAIL_ADD ? a->x[1] : NULL};
    fr__cpu_parallel(k->dev, (size_t)l->rows, 1, tail_rows, &job);
    return FR_OK;
}

/* --- gradients ---------------------------------------------------------------------------- */

typedef struct slope_job {
    const float *dy, *z;
    float *dz;
} slope_job;

FR_SIMD_RANGE(gelu_back)
{
    const slope_job *job = arg;
    const float *dy = job->dy, *z = job->z;
    float *dz = job->dz;
#pragma omp simd /* dz is dy or does not overlap it */
    for (size_t i = begin; i < end; i++) dz[i] = dy[i] * fr__gelu_slope(z[i]);
}

static fr_status linear_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    const linear *l = (const linear *)k;
    size_t n = (size_t)(l->rows * l->out);
    if (l->tail == TAIL_RELU) {
        fr__cpu_relu_back(k->dev, dz, a->dy, a->y, n);
    } else {
        slope_job job = {.dy = a->dy, .z = a->saved, .dz = dz};
        fr__cpu_parallel(k->dev, n, 1024, gelu_back, &job);
    }
    return FR_OK;
}

static fr_status linear_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const linear *l = (const linear *)k;
    fr__multiply(k->dev, &(fr__product){.w = {a->w[0], l->out, l->in, l->ld},
                                        .is_dx = true,
                                        .rows = l->rows,
                                        .from = a->dy,
                                        .ld_from = l->out,
                                        .to = a->dx[0],
                                        .ld_to = l->in});
    return FR_OK;
}

static fr__weight_grad_args whole_grad(const linear *l, const fr__kernel_args *a)
{
    return (fr__weight_grad_args){.dy = a->dy,
                                  .x = a->x[0],
                                  .dw = a->dw[0],
                                  .rows = l->rows,
                                  .out = l->out,
                                  .in = l->in,
                                  .ld_dy = l->out,
                                  .ld_dw = l->ld,
                                  .add = a->add_dw};
}

/* dW in panels, each passed on immediately. */
static void hand_over_panels(const linear *l, const fr__kernel_args *a)
{
    const fr_pass *pass = a->pass;
    float *panel = a->scratch; /* (PANEL_ROWS, ld) */
    fr__weight_grad_args grad = whole_grad(l, a);
    grad.dw = panel;
    size_t offset = (size_t)(a->w[0] - pass->weights);
    for (int64_t r = 0; r < PANEL_ROWS; r++) {
        for (int64_t c = l->in; c < l->ld; c++) panel[r * l->ld + c] = 0.0f;
    }
    for (int64_t first = 0; first < l->out; first += PANEL_ROWS) {
        int64_t n = l->out - first < PANEL_ROWS ? l->out - first : PANEL_ROWS;
        grad.dy = (const float *)a->dy + first, grad.out = n;
        fr__weight_grad(l->k.dev, &grad);
        pass->grad_ready(pass->user, offset + (size_t)(first * l->ld), (size_t)(n * l->ld), panel);
    }
}

static fr_status linear_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const linear *l = (const linear *)k;
    if (l->has_bias)
        fr__column_sums(k->dev, a->dy, l->rows, l->out, a->dw[1], a->add_dw, a->scratch);
    const fr_pass *pass = a->pass;
    if (k->reports_ready && pass->transient_grads && pass->grad_ready && !a->add_dw) {
        hand_over_panels(l, a);
    } else {
        const fr__weight_grad_args grad = whole_grad(l, a);
        fr__weight_grad(k->dev, &grad);
    }
    return FR_OK;
}

static const fr__kernel_ops plain_ops = {.forward = linear_forward,
                                         .backward_input = linear_backward_input,
                                         .backward_weight = linear_backward_weight};
static const fr__kernel_ops active_ops = {.forward = linear_forward,
                                          .prepare_dy = linear_prepare_dy,
                                          .backward_input = linear_backward_input,
                                          .backward_weight = linear_backward_weight};

/* --- making ------------------------------------------------------------------------------- */

static tail find_tail(const fr__kernel_spec *spec)
{
    if (fr__group_has(spec, FR_OP_RELU)) return TAIL_RELU;
    if (fr__group_has(spec, FR_OP_GELU)) return TAIL_GELU;
    return fr__group_has(spec, FR_OP_ADD) ? TAIL_ADD : TAIL_NONE;
}

/* Tied weights are shared with an embedding, whose rows are not padded. */
static bool is_tied(const fr_param *weight) { return weight->tied_to >= 0 || weight->has_ties; }

static fr_status pad_rows(linear *l)
{
    if (l->in % 512 != 0 || is_tied(fr_graph_param(l->k.graph, l->k.node->params[0]))) return FR_OK;
    l->ld = l->in + PAD_FLOATS;
    fr__md md;
    FR_TRY(fr__md_new(&l->k, 2, (dnnl_dims_t){l->out, l->in}, dnnl_format_tag_undef,
                      (dnnl_dims_t){l->ld, 1}, &md));
    FR_TRY(fr__layout_of_md(&l->k, md, &l->k.w[0]));
    l->k.w[0].bytes = (size_t)(l->out * l->ld) * sizeof(float);
    l->k.w[0].ld = l->ld;
    return FR_OK;
}

fr_status fr__cpu_linear(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    tail what = find_tail(spec);
    bool is_active = what == TAIL_RELU || what == TAIL_GELU;
    linear *l =
        (linear *)fr__kernel_new(spec, arena, sizeof *l, is_active ? &active_ops : &plain_ops);
    if (!l) return FR_NO_MEMORY;
    fr__kernel *k = &l->k;
    l->tail = what;
    l->rows = fr__rows(k->node, spec->batch);
    l->out = fr__cols(k->node);
    l->in = l->ld = fr__cols(fr_graph_node(spec->graph, spec->inputs[0]));
    l->has_bias = !k->node->attrs.linear.no_bias;
    FR_TRY(pad_rows(l));
    if (l->has_bias && spec->training) k->scratch_bytes = fr__column_sums_bytes(l->out);
    if (l->out * l->ld >= LARGE_WEIGHT && l->out >= PANEL_ROWS && spec->training) {
        size_t panel_bytes = (size_t)(PANEL_ROWS * l->ld) * sizeof(float);
        if (panel_bytes > k->scratch_bytes) k->scratch_bytes = panel_bytes;
        k->reports_ready = 1;
    }
    if (what == TAIL_GELU && spec->training) k->saved_bytes = k->y.bytes;
    k->needs_x = 1;
    k->needs_y = what == TAIL_RELU;
    if (what == TAIL_ADD) k->pass_dx = 2;
    *out = k;
    return FR_OK;
}
