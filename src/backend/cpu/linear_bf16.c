/* linear_bf16.c -- linear between tensors and weights of which some are bf16.
 *
 * Each of the three products has two ways. If the processor multiplies bf16 and both operands are
 * bf16, oneDNN computes it from them as they are stored; sums are floats, and y is rounded once,
 * bias included. Otherwise the operands are widened and the products of floats (gemm.h) are used;
 * W is widened a panel of rows at a time, which the product finds in cache.
 *
 * The tail is the sweep of its own node (eltwise.c) on the rounded value. dW is computed in the
 * same panels of rows whether they are kept or handed over. Rows of W are not padded: with padded
 * ones oneDNN 2.6 takes another implementation, which gains nothing. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/linear.h"

enum { WIDE_ROWS = 256 }; /* of W that are widened at a time */

typedef struct linear {
    fr__kernel k;
    int64_t rows, in, out;
    fr__tail tail;
    bool has_bias;
    fr_dtype x_type, w_type, y_type;
    /* Products of bf16; no handle: products of floats. */
    fr__prim forward, dx;
    fr__prim dw[2][2]; /* of a whole panel and of the last one if it is smaller; set or add */
    size_t x_at, y_at, w_at, sums_at, panel_at; /* in scratch, behind that of primitives */
} linear;

static void *in_scratch(const fr__kernel_args *a, size_t at) { return (char *)a->scratch + at; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static bool is_bf16(const fr__prim *p) { return p->handle != NULL; }

/* A tensor as floats: itself, or in scratch. */
static fr_status widen(const linear *l, const fr__kernel_args *a, fr__source t, size_t at,
                       int64_t n, const float **out)
{
    *out = t.type == FR_BF16 ? in_scratch(a, at) : t.at;
    if (t.type != FR_BF16) return FR_OK;
    return fr__device_convert(l->k.dev, FR_F32, in_scratch(a, at), FR_BF16, t.at, (size_t)n);
}

typedef struct widen_job {
    const uint16_t *from; /* (rows, in) */
    float *to;            /* rows ld apart */
    size_t in, ld;
} widen_job;

FR_SIMD_RANGE(widen_range)
{
    const widen_job *job = arg;
    for (size_t r = begin; r < end; r++) {
        const uint16_t *restrict from = job->from + r * job->in;
        float *restrict to = job->to + r * job->ld;
        for (size_t i = 0; i < job->in; i++) to[i] = fr__bf16_value(from[i]);
    }
}

/* Rows first to first + n - 1 of W as floats. */
static fr__weights widen_rows(const linear *l, const fr__kernel_args *a, int64_t first, int64_t n)
{
    const fr__source from = fr__source_at((fr__source){a->w[0], l->w_type}, first * l->in);
    if (l->w_type != FR_BF16) return (fr__weights){from.at, n, l->in, l->in};
    widen_job job = {from.at, in_scratch(a, l->w_at), (size_t)l->in, (size_t)fr__padded_row(l->in)};
    fr__cpu_parallel(l->k.dev, (size_t)n, 8, widen_range, &job);
    return (fr__weights){job.to, n, l->in, (int64_t)job.ld};
}

/* --- y ------------------------------------------------------------------------------------ */

typedef struct round_job {
    const linear *l;
    const float *sums; /* (rows, n) */
    fr__source bias;   /* (out); at NULL: none */
    fr__sink z;        /* (rows, out), of which columns first to first + n - 1 */
    int64_t first, n;
} round_job;

FR_SIMD_RANGE(round_rows)
{
    const round_job *job = arg;
    float bias[WIDE_ROWS], room[WIDE_ROWS];
    const size_t n = (size_t)job->n;
    const float *b = bias;
    for (size_t i = 0; i < n; i++) bias[i] = 0.0f;
    if (job->bias.at) b = fr__read(job->bias, (size_t)job->first, n, bias);
    for (size_t r = begin; r < end; r++) {
        const size_t at = r * (size_t)job->l->out + (size_t)job->first;
        const float *restrict sums = job->sums + r * n;
        float *restrict z = fr__place(job->z, at, room);
        for (size_t i = 0; i < n; i++) z[i] = sums[i] + b[i];
        fr__store(job->z, at, n, z);
    }
}

static fr_status forward_in_floats(const linear *l, const fr__kernel_args *a, void *z)
{
    const float *x;
    round_job job = {.l = l,
                     .sums = in_scratch(a, l->y_at),
                     .bias = {l->has_bias ? a->w[1] : NULL, l->w_type},
                     .z = {z, l->y_type}};
    FR_TRY(widen(l, a, (fr__source){a->x[0], l->x_type}, l->x_at, l->rows * l->in, &x));
    for (; job.first < l->out; job.first += job.n) {
        job.n = least(l->out - job.first, WIDE_ROWS);
        fr__multiply(l->k.dev, &(fr__product){.w = widen_rows(l, a, job.first, job.n),
                                              .rows = l->rows,
                                              .from = x,
                                              .ld_from = l->in,
                                              .to = in_scratch(a, l->y_at),
                                              .ld_to = job.n});
        fr__cpu_parallel(l->k.dev, (size_t)l->rows, 16, round_rows, &job);
    }
    return FR_OK;
}

static fr_status linear_forward(fr__kernel *k, const fr__kernel_args *a)
{
    linear *l = (linear *)k;
    const size_t n = (size_t)(l->rows * l->out);
    void *z = l->tail == FR_TAIL_GELU && k->training ? a->saved : a->y;
    if (is_bf16(&l->forward))
        FR_TRY(fr__prim_run(k, &l->forward, a->scratch, FR_TENSORS(a->x[0], a->w[0], z, a->w[1])));
    else
        FR_TRY(forward_in_floats(l, a, z));
    const fr__source from = {z, l->y_type};
    const fr__sink y = {a->y, l->y_type};
    switch (l->tail) {
    case FR_TAIL_NONE: break;
    case FR_TAIL_RELU: fr__cpu_activate(k->dev, FR_OP_RELU, from, y, n); break;
    case FR_TAIL_GELU: fr__cpu_activate(k->dev, FR_OP_GELU, from, y, n); break;
    case FR_TAIL_ADD: fr__cpu_add(k->dev, from, (fr__source){a->x[1], l->y_type}, y, n); break;
    }
    return FR_OK;
}

/* --- gradients ---------------------------------------------------------------------------- */

static fr_status linear_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    const linear *l = (const linear *)k;
    const bool is_relu = l->tail == FR_TAIL_RELU;
    fr__cpu_slope(k->dev, is_relu ? FR_OP_RELU : FR_OP_GELU, (fr__source){a->dy, l->y_type},
                  (fr__source){is_relu ? a->y : a->saved, l->y_type}, (fr__sink){dz, l->y_type},
                  (size_t)(l->rows * l->out));
    return FR_OK;
}

static fr_status widen_dy(const linear *l, const fr__kernel_args *a, const float **dy)
{
    return widen(l, a, (fr__source){a->dy, l->y_type}, l->y_at, l->rows * l->out, dy);
}

static fr_status linear_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    linear *l = (linear *)k;
    const float *dy;
    if (is_bf16(&l->dx))
        return fr__prim_run(k, &l->dx, a->scratch, FR_TENSORS(a->dy, a->w[0], a->dx[0]));
    FR_TRY(widen_dy(l, a, &dy));
    float *dx = l->x_type == FR_BF16 ? in_scratch(a, l->x_at) : a->dx[0];
    for (int64_t first = 0; first < l->out; first += WIDE_ROWS) {
        const fr__weights w = widen_rows(l, a, first, least(l->out - first, WIDE_ROWS));
        fr__multiply(k->dev, &(fr__product){.w = w,
                                            .is_dx = true,
                                            .add = first > 0,
                                            .rows = l->rows,
                                            .from = dy + first,
                                            .ld_from = l->out,
                                            .to = dx,
                                            .ld_to = l->in});
    }
    if (l->x_type != FR_BF16) return FR_OK;
    return fr__device_convert(k->dev, FR_BF16, a->dx[0], FR_F32, dx, (size_t)(l->rows * l->in));
}

/* Rows first to first + n - 1 of dW; x and dy as floats unless this is a product of bf16. */
static fr_status weight_rows(linear *l, const fr__kernel_args *a, const float *x, const float *dy,
                             int64_t first, int64_t n, float *dw)
{
    fr__prim *p = &l->dw[n < FR_PANEL_ROWS][a->add_dw];
    if (is_bf16(p)) {
        const fr__source columns = fr__source_at((fr__source){a->dy, FR_BF16}, first);
        return fr__prim_run(&l->k, p, a->scratch, FR_TENSORS(columns.at, a->x[0], dw));
    }
    fr__weight_grad(l->k.dev, &(fr__weight_grad_args){.dy = dy + first,
                                                      .x = x,
                                                      .dw = dw,
                                                      .rows = l->rows,
                                                      .out = n,
                                                      .in = l->in,
                                                      .ld_dy = l->out,
                                                      .ld_dw = l->in,
                                                      .add = a->add_dw});
    return FR_OK;
}

static fr_status linear_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    linear *l = (linear *)k;
    const fr_pass *pass = a->pass;
    const float *x = NULL, *dy = NULL;
    if (l->has_bias)
        fr__column_sums(k->dev, (fr__source){a->dy, l->y_type}, l->rows, l->out, a->dw[1],
                        a->add_dw, in_scratch(a, l->sums_at));
    if (!is_bf16(&l->dw[l->out < FR_PANEL_ROWS][0])) {
        FR_TRY(widen(l, a, (fr__source){a->x[0], l->x_type}, l->x_at, l->rows * l->in, &x));
        FR_TRY(widen_dy(l, a, &dy));
    }
    const bool hands_over = fr__hands_over_now(k, a);
    for (int64_t first = 0; first < l->out; first += FR_PANEL_ROWS) {
        const int64_t n = least(l->out - first, FR_PANEL_ROWS);
        float *dw = hands_over ? in_scratch(a, l->panel_at) : a->dw[0] + first * l->in;
        FR_TRY(weight_rows(l, a, x, dy, first, n, dw));
        if (hands_over)
            pass->grad_ready(pass->user, a->w_at[0] + (size_t)(first * l->in), (size_t)(n * l->in),
                             dw);
    }
    return FR_OK;
}

static void linear_destroy(fr__kernel *k)
{
    linear *l = (linear *)k;
    fr__prim_fini(&l->forward);
    fr__prim_fini(&l->dx);
    for (int i = 0; i < 4; i++) fr__prim_fini(&l->dw[i / 2][i % 2]);
}

static const fr__kernel_ops plain_ops = {.forward = linear_forward,
                                         .backward_input = linear_backward_input,
                                         .backward_weight = linear_backward_weight,
                                         .destroy = linear_destroy};
static const fr__kernel_ops active_ops = {.forward = linear_forward,
                                          .prepare_dy = linear_prepare_dy,
                                          .backward_input = linear_backward_input,
                                          .backward_weight = linear_backward_weight,
                                          .destroy = linear_destroy};

/* --- making ------------------------------------------------------------------------------- */

/* Row-major, rows `row_step` apart. */
static fr__matrix_md matrix(fr_dtype type, int64_t rows, int64_t columns, int64_t row_step)
{
    return (fr__matrix_md){.type = type == FR_BF16 ? dnnl_bf16 : dnnl_f32,
                           .rows = rows,
                           .columns = columns,
                           .row_step = row_step,
                           .column_step = 1};
}

static fr__matrix_md transposed(fr__matrix_md m)
{
    return (fr__matrix_md){m.type, m.columns, m.rows, m.column_step, m.row_step};
}

/* A panel of one row is left to the products of floats, and then all of them are: oneDNN 3 differs
 * from the reference there. */
static fr_status make_weight_grads(linear *l, fr_arena *arena)
{
    if (l->out % FR_PANEL_ROWS == 1) return FR_OK;
    for (int i = 0; i < 4; i++) {
        const int64_t n = i < 2 ? FR_PANEL_ROWS : l->out % FR_PANEL_ROWS;
        if (n == 0 || n > l->out) continue;
        const fr__matmul_op op = {.a = transposed(matrix(FR_BF16, l->rows, n, l->out)),
                                  .b = matrix(FR_BF16, l->rows, l->in, l->in),
                                  .c = matrix(FR_F32, n, l->in, l->in),
                                  .add = i % 2};
        FR_TRY(fr__matmul_init(&l->k, arena, "gradient of weights", &op, &l->dw[i / 2][i % 2]));
    }
    return FR_OK;
}

static fr_status make_products(linear *l, const fr__kernel_spec *spec, fr_arena *arena)
{
    if (!fr__cpu(l->k.dev)->multiplies_bf16) return FR_OK;
    const bool is_x = l->x_type == FR_BF16, is_w = l->w_type == FR_BF16,
               is_y = l->y_type == FR_BF16;
    const fr__matrix_md x = matrix(l->x_type, l->rows, l->in, l->in);
    const fr__matrix_md y = matrix(l->y_type, l->rows, l->out, l->out);
    const fr__matrix_md w = matrix(l->w_type, l->out, l->in, l->in);
    const fr__matmul_op forward = {
        .a = x, .b = transposed(w), .c = y, .bias = matrix(l->w_type, l->has_bias, l->out, l->out)};
    const fr__matmul_op dx = {.a = y, .b = w, .c = x};
    if (is_x && is_w) FR_TRY(fr__matmul_init(&l->k, arena, "product", &forward, &l->forward));
    if (!spec->training) return FR_OK;
    if (is_y && is_w && spec->need_dx[0])
        FR_TRY(fr__matmul_init(&l->k, arena, "gradient of the input", &dx, &l->dx));
    return is_x && is_y ? make_weight_grads(l, arena) : FR_OK;
}

/* Space for n floats, behind the rest. */
static size_t reserve(linear *l, int64_t n)
{
    const size_t at = fr__align_up(l->k.scratch_bytes);
    l->k.scratch_bytes = at + (size_t)n * sizeof(float);
    return at;
}

static void place_scratch(linear *l, const fr__kernel_spec *spec)
{
    const fr__prim *prims[] = {&l->forward,  &l->dx,       &l->dw[0][0],
                               &l->dw[0][1], &l->dw[1][0], &l->dw[1][1]};
    bool has_floats = !is_bf16(&l->forward);
    for (size_t i = 0; i < sizeof prims / sizeof *prims; i++)
        if (prims[i]->scratch_bytes > l->k.scratch_bytes)
            l->k.scratch_bytes = prims[i]->scratch_bytes;
    if (spec->training) {
        has_floats |= spec->need_dx[0] && !is_bf16(&l->dx);
        has_floats |= !is_bf16(&l->dw[l->out < FR_PANEL_ROWS][0]);
        if (l->has_bias) l->sums_at = reserve(l, l->out * FR_ROW_BLOCKS);
        if (l->k.reports_ready) l->panel_at = reserve(l, FR_PANEL_ROWS * l->in);
    }
    if (!has_floats) return;
    if (l->x_type == FR_BF16) l->x_at = reserve(l, l->rows * l->in);
    if (l->w_type == FR_BF16)
        l->w_at = reserve(l, least(l->out, WIDE_ROWS) * fr__padded_row(l->in));
    l->y_at = reserve(l, l->rows * l->out);
}

fr_status fr__cpu_linear_bf16(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    const fr__tail tail = fr__tail_of(spec);
    const bool is_active = tail == FR_TAIL_RELU || tail == FR_TAIL_GELU;
    linear *l =
        (linear *)fr__kernel_new(spec, arena, sizeof *l, is_active ? &active_ops : &plain_ops);
    if (!l) return FR_NO_MEMORY;
    fr__kernel *k = *out = &l->k; /* from here on `destroy` cleans up */
    l->tail = tail;
    l->rows = fr__rows(k->node, spec->batch);
    l->out = fr__cols(k->node);
    l->in = fr__cols(fr_graph_node(spec->graph, spec->inputs[0]));
    l->has_bias = !k->node->attrs.linear.no_bias;
    l->x_type = spec->x[0]->dtype, l->w_type = spec->w_type, l->y_type = spec->y_type;
    k->reports_ready = fr__hands_over_panels(spec, l->out, l->in);
    FR_TRY(make_products(l, spec, arena));
    place_scratch(l, spec);
    if (tail == FR_TAIL_GELU && spec->training) k->saved_bytes = k->y.bytes;
    k->needs_x = 1;
    k->needs_y = tail == FR_TAIL_RELU;
    if (tail == FR_TAIL_ADD) k->pass_dx = 2;
    return FR_OK;
}
