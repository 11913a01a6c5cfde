/* in_floats.c -- a kernel of floats between tensors and weights of bf16.
 *
 * Before each of its calls the operands are widened into scratch; what it writes there is rounded
 * to bf16 afterwards. Gradients of weights, running statistics and what a kernel saves stay floats.
 * Layouts pass through: a description is about the order of elements, not about their type. */
#include "backend/kernel.h"

/* A tensor or the weights of a parameter; in scratch only if it is bf16. */
typedef struct operand {
    fr_dtype dtype;
    size_t count;
    size_t at; /* in scratch */
} operand;

typedef struct wrap {
    fr__kernel base; /* what inner says of itself, as far as it holds between these types */
    fr__kernel *inner;
    fr__kernel_ops ops;
    int n_inputs, n_params;
    bool is_dz_dx; /* dz is the gradient of an input of floats: not rounded, made by backward_input
                    */
    operand x[FR_MAX_INPUTS], dx[FR_MAX_INPUTS], y, dy, dz, w[FR_MAX_PARAMS];
    fr__layout seen[FR_MAX_INPUTS];
} wrap;

static float *in_scratch(const fr__kernel_args *a, const operand *t)
{
    return (float *)(void *)((char *)a->scratch + t->at);
}

/* *value becomes the operand as floats. */
static fr_status widen(const wrap *w, const fr__kernel_args *a, const operand *t,
                       const void **value)
{
    const void *from = *value;
    if (!from || t->dtype != FR_BF16) return FR_OK;
    *value = in_scratch(a, t);
    return fr__device_convert(w->base.dev, FR_F32, in_scratch(a, t), FR_BF16, from, t->count);
}

static fr_status widen_weights(const wrap *w, const fr__kernel_args *a, fr__kernel_args *inner)
{
    for (int i = 0; i < w->n_params; i++) FR_TRY(widen(w, a, &w->w[i], &inner->w[i]));
    return FR_OK;
}

static fr_status round_to(const wrap *w, const operand *t, void *to, const void *from)
{
    if (t->dtype != FR_BF16) return FR_OK;
    return fr__device_convert(w->base.dev, FR_BF16, to, FR_F32, from, t->count);
}

static fr_status forward(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner = *a;
    if (w->inner->y_is_x0)
        return fr__device_convert(k->dev, w->y.dtype, a->y, w->x[0].dtype, a->x[0], w->y.count);
    for (int i = 0; i < w->n_inputs; i++) FR_TRY(widen(w, a, &w->x[i], &inner.x[i]));
    FR_TRY(widen_weights(w, a, &inner));
    if (w->y.dtype == FR_BF16) inner.y = in_scratch(a, &w->y);
    FR_TRY(w->inner->ops->forward(w->inner, &inner));
    return round_to(w, &w->y, a->y, inner.y);
}

/* Arguments of the inner kernel's backward. */
static fr_status enter_backward(const wrap *w, const fr__kernel_args *a, fr__kernel_args *inner)
{
    const void *y = a->y;
    *inner = *a;
    for (int i = 0; i < w->n_inputs; i++) {
        if (w->base.needs_x >> i & 1) FR_TRY(widen(w, a, &w->x[i], &inner->x[i]));
        if (a->dx[i] && w->dx[i].dtype == FR_BF16) inner->dx[i] = in_scratch(a, &w->dx[i]);
    }
    if (w->base.needs_y) FR_TRY(widen(w, a, &w->y, &y));
    inner->y = (void *)(uintptr_t)y;
    return widen(w, a, &w->dy, &inner->dy);
}

static fr_status prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter_backward(w, a, &inner));
    void *to = w->dz.dtype == FR_BF16 ? in_scratch(a, &w->dz) : dz;
    FR_TRY(w->inner->ops->prepare_dy(w->inner, &inner, to));
    return round_to(w, &w->dz, dz, to);
}

static fr_status backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter_backward(w, a, &inner));
    FR_TRY(widen_weights(w, a, &inner));
    if (w->is_dz_dx) {
        float *dz = in_scratch(a, &w->dz);
        FR_TRY(w->inner->ops->prepare_dy(w->inner, &inner, dz));
        inner.dy = dz;
    }
    if (w->inner->ops->backward_input) FR_TRY(w->inner->ops->backward_input(w->inner, &inner));
    for (int i = 0; i < w->n_inputs; i++) {
        bool is_passed = w->inner->pass_dx >> i & 1;
        const void *dx = is_passed ? inner.dy : inner.dx[i];
        if (!a->dx[i] || dx == a->dx[i]) continue;
        FR_TRY(fr__device_convert(k->dev, w->dx[i].dtype, a->dx[i], FR_F32, dx, w->dx[i].count));
    }
    return FR_OK;
}

static fr_status backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter_backward(w, a, &inner));
    if (k->dw_reads_w) FR_TRY(widen_weights(w, a, &inner));
    return w->inner->ops->backward_weight(w->inner, &inner);
}

static void destroy(fr__kernel *k)
{
    fr__kernel *inner = ((wrap *)k)->inner;
    if (inner->ops->destroy) inner->ops->destroy(inner);
}

static operand place(fr_dtype dtype, size_t count, size_t *scratch)
{
    operand t = {.dtype = dtype, .count = count, .at = *scratch};
    if (dtype == FR_BF16) *scratch += fr__align_up(count * sizeof(float));
    return t;
}

/* Which of inner's shortcuts hold: the gradient of an input is that of the output only if both have
 * one type, and nothing is added in place, since a sum is one of rounded terms. */
static void take_over(wrap *w, const fr__kernel_spec *spec)
{
    fr__kernel *k = &w->base;
    const fr_dtype type = spec->y_type;
    *k = *w->inner;
    const size_t n_y = fr__layout_count(&k->y);
    size_t scratch = fr__align_up(k->scratch_bytes), count = 0;
    k->y.dtype = type;
    k->y.bytes = n_y * fr_dtype_bytes(type);
    w->y = place(type, n_y, &scratch);
    for (int i = 0; i < spec->n_inputs; i++)
        w->x[i] = place(spec->x[i]->dtype, fr__layout_count(spec->x[i]), &scratch);
    for (int i = 0; i < spec->n_nodes; i++) {
        const fr_node *node = fr_graph_node(spec->graph, spec->nodes[i]);
        for (int j = 0; j < node->n_params && w->n_params < FR_MAX_PARAMS; j++, w->n_params++) {
            const bool is_buffer = fr_graph_param(spec->graph, node->params[j])->is_buffer;
            w->w[w->n_params] = place(is_buffer ? FR_F32 : spec->w_type,
                                      fr__layout_count(&k->w[w->n_params]), &scratch);
        }
    }
    if (spec->training) {
        count = type == FR_BF16 ? n_y : 0;
        w->dy = w->dz = place(type, count, &scratch);
        if (w->inner->ops->prepare_dy) w->dz = place(type, count, &scratch);
        for (int i = 0; i < spec->n_inputs; i++)
            w->dx[i] = place(spec->x[i]->dtype, spec->need_dx[i] ? w->x[i].count : 0, &scratch);
    }
    k->scratch_bytes = scratch;
    k->can_add_dx = 0;
    for (int i = 0; i < spec->n_inputs; i++)
        if (spec->x[i]->dtype != type) k->pass_dx &= ~(UINT64_C(1) << i);
    const bool is_same = spec->n_inputs > 0 && spec->x[0]->dtype == type;
    k->y_is_x0 &= is_same, k->can_overwrite_x0 &= is_same, k->can_overwrite_dy &= is_same;
    const fr__kernel_ops *ops = w->inner->ops;
    w->is_dz_dx =
        ops->prepare_dy && spec->n_nodes == 1 && w->x[0].dtype == FR_F32 && w->dz.dtype == FR_BF16;
    w->ops = (fr__kernel_ops){
        .forward = forward,
        .prepare_dy = ops->prepare_dy && !w->is_dz_dx ? prepare_dy : NULL,
        .backward_input =
            ops->backward_input || w->inner->pass_dx != k->pass_dx ? backward_input : NULL,
        .backward_weight = ops->backward_weight ? backward_weight : NULL,
        .destroy = destroy};
    k->ops = &w->ops;
}

bool fr__spec_has_bf16(const fr__kernel_spec *spec)
{
    bool found = spec->y_type == FR_BF16;
    for (int i = 0; i < spec->n_inputs; i++) found |= spec->x[i]->dtype == FR_BF16;
    for (int i = 0; i < spec->n_nodes && spec->w_type == FR_BF16; i++)
        found |= fr_graph_node(spec->graph, spec->nodes[i])->n_params > 0;
    return found;
}

fr_status fr__kernel_in_floats(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel_maker make,
                               fr__kernel **out)
{
    if (!fr__spec_has_bf16(spec)) return make(spec, arena, out);
    wrap *w = FR_ARENA_NEW(arena, wrap);
    fr__kernel_spec inner = *spec;
    *out = NULL;
    if (!w) return fr__no_memory(spec->ctx, sizeof *w, "a kernel");
    w->n_inputs = spec->n_inputs;
    inner.y_type = inner.w_type = FR_F32;
    for (int i = 0; i < spec->n_inputs; i++) {
        w->seen[i] = *spec->x[i];
        if (w->seen[i].dtype == FR_BF16) w->seen[i].dtype = FR_F32, w->seen[i].bytes *= 2;
        inner.x[i] = &w->seen[i];
    }
    FR_TRY(make(&inner, arena, &w->inner));
    take_over(w, spec);
    *out = &w->base;
    return FR_OK;
}
