/* linear.c -- y = x W^T + b, with or without a following relu, gelu or residual add.
 *
 * Three matrix products by sgemm. Rows of W are padded (linear.h). */
#include "backend/cpu/linear.h"

#include "backend/cpu/gemm.h"
#include "backend/cpu/vmath.h"

typedef struct linear {
    fr__kernel k;
    int64_t rows, in, out, ld; /* ld: floats from row to row of W */
    fr__tail tail;
    bool has_bias;
} linear;

/* --- what follows the product ------------------------------------------------------------- */

typedef struct tail_job {
    const linear *l;
    float *z;              /* (rows, out): product in, pre-activation out; may be y */
    float *y;              /* (rows, out) */
    const float *bias;     /* (out) or NULL */
    const float *residual; /* (rows, out) or NULL */
} tail_job;

FR_INLINE void tail_row(fr__tail what, int64_t n, float *z, float *y, const float *bias,
                        const float *residual)
{
#pragma omp simd /* y is z or does not overlap it */
    for (int64_t i = 0; i < n; i++) {
        float v = bias ? z[i] + bias[i] : z[i];
        if (what == FR_TAIL_RELU) v = v < 0.0f ? 0.0f : v; /* NaN stays */
        if (what == FR_TAIL_ADD) v += residual[i];
        if (what == FR_TAIL_GELU) {
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
        case FR_TAIL_NONE: tail_row(FR_TAIL_NONE, n, z, y, job->bias, NULL); break;
        case FR_TAIL_RELU: tail_row(FR_TAIL_RELU, n, z, y, job->bias, NULL); break;
        case FR_TAIL_GELU: tail_row(FR_TAIL_GELU, n, z, y, job->bias, NULL); break;
        case FR_TAIL_ADD: tail_row(FR_TAIL_ADD, n, z, y, job->bias, residual); break;
        }
    }
}

static fr_status linear_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const linear *l = (const linear *)k;
    float *z = l->tail == FR_TAIL_GELU && k->training ? a->saved : a->y;
    fr__multiply(k->dev, &(fr__product){.w = {a->w[0], l->out, l->in, l->ld},
                                        .rows = l->rows,
                                        .from = a->x[0],
                                        .ld_from = l->in,
                                        .to = z,
                                        .ld_to = l->out});
    if (!l->has_bias && l->tail == FR_TAIL_NONE) return FR_OK;
    tail_job job = {.l = l,
                    .z = z,
                    .y = a->y,
                    .bias = l->has_bias ? a->w[1] : NULL,
                    .residual = l->tail == FR_TAIL_ADD ? a->x[1] : NULL};
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
    if (l->tail == FR_TAIL_RELU) {
        fr__cpu_relu_back(k->dev, FR_F32, dz, a->dy, a->y, n);
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

/* dW in panels of rows, each passed on immediately or left in place: sgemm may give other bits for
 * another number of rows. */
static void make_panels(const linear *l, const fr__kernel_args *a, bool hands_over)
{
    const fr_pass *pass = a->pass;
    float *panel = a->scratch; /* (FR_PANEL_ROWS, ld) */
    fr__weight_grad_args grad = whole_grad(l, a);
    for (int64_t r = 0; r < FR_PANEL_ROWS && hands_over; r++) {
        for (int64_t c = l->in; c < l->ld; c++) panel[r * l->ld + c] = 0.0f;
    }
    for (int64_t first = 0; first < l->out; first += FR_PANEL_ROWS) {
        int64_t n = l->out - first < FR_PANEL_ROWS ? l->out - first : FR_PANEL_ROWS;
        grad.dy = (const float *)a->dy + first, grad.out = n;
        grad.dw = hands_over ? panel : a->dw[0] + first * l->ld;
        fr__weight_grad(l->k.dev, &grad);
        if (hands_over)
            pass->grad_ready(pass->user, a->w_at[0] + (size_t)(first * l->ld), (size_t)(n * l->ld),
                             panel);
    }
}

static fr_status linear_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const linear *l = (const linear *)k;
    const fr__weight_grad_args grad = whole_grad(l, a);
    if (l->has_bias)
        fr__column_sums(k->dev, (fr__source){a->dy, FR_F32}, l->rows, l->out, a->dw[1], a->add_dw,
                        a->scratch);
    if (k->reports_ready)
        make_panels(l, a, fr__hands_over_now(k, a));
    else
        fr__weight_grad(k->dev, &grad);
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

/* Tied weights are shared with an embedding, whose rows are not padded. */
static bool is_tied(const fr_param *weight) { return weight->tied_to >= 0 || weight->has_ties; }

static fr_status pad_rows(linear *l)
{
    if (is_tied(fr_graph_param(l->k.graph, l->k.node->params[0]))) return FR_OK;
    l->ld = fr__padded_row(l->in);
    if (l->ld == l->in) return FR_OK;
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
    if (fr__spec_has_bf16(spec)) return fr__cpu_linear_bf16(spec, arena, out);
    fr__tail what = fr__tail_of(spec);
    bool is_active = what == FR_TAIL_RELU || what == FR_TAIL_GELU;
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
    if (fr__hands_over_panels(spec, l->out, l->ld)) {
        size_t panel_bytes = (size_t)(FR_PANEL_ROWS * l->ld) * sizeof(float);
        if (panel_bytes > k->scratch_bytes) k->scratch_bytes = panel_bytes;
        k->reports_ready = 1;
    }
    if (what == FR_TAIL_GELU && spec->training) k->saved_bytes = k->y.bytes;
    k->needs_x = 1;
    k->needs_y = what == FR_TAIL_RELU;
    if (what == FR_TAIL_ADD) k->pass_dx = 2;
    *out = k;
    return FR_OK;
}
