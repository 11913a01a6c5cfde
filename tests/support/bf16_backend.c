/* bf16_backend.c -- a kernel of floats between tensors of bf16. Before each of its calls the inputs
 * are widened into scratch; what it writes there is rounded to bf16 afterwards. */
#include "support/bf16_backend.h"

typedef struct tensor {
    fr_dtype dtype;
    size_t count;
    size_t value_at, grad_at; /* in scratch, as floats; bf16 only */
} tensor;

typedef struct wrap {
    fr__kernel base; /* what inner says of itself, without its options on tensors in place */
    fr__kernel *inner;
    fr__kernel_ops ops;
    int n_inputs;
    tensor x[FR_MAX_INPUTS], y;
    fr__layout seen[FR_MAX_INPUTS];
} wrap;

static const fr_backend *under; /* the base */
static fr_backend record;

static float *in_scratch(const fr__kernel_args *a, size_t at)
{
    return (float *)(void *)((char *)a->scratch + at);
}

/* A tensor as floats: itself, or its value in scratch. */
static fr_status widen(wrap *w, const fr__kernel_args *a, const tensor *t, size_t at,
                       const void **value)
{
    const void *from = *value;
    if (!from || t->dtype != FR_BF16) return FR_OK;
    *value = in_scratch(a, at);
    return fr__device_convert(w->base.dev, FR_F32, in_scratch(a, at), FR_BF16, from, t->count);
}

/* Arguments of the inner kernel's backward. */
static fr_status enter_backward(wrap *w, const fr__kernel_args *a, fr__kernel_args *inner)
{
    const void *y = a->y;
    *inner = *a;
    for (int i = 0; i < w->n_inputs; i++) {
        if (w->base.needs_x >> i & 1) FR_TRY(widen(w, a, &w->x[i], w->x[i].value_at, &inner->x[i]));
        if (a->dx[i] && w->x[i].dtype == FR_BF16) inner->dx[i] = in_scratch(a, w->x[i].grad_at);
    }
    if (w->base.needs_y) FR_TRY(widen(w, a, &w->y, w->y.value_at, &y));
    inner->y = (void *)(uintptr_t)y;
    return widen(w, a, &w->y, w->y.grad_at, &inner->dy);
}

static fr_status wrap_forward(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner = *a;
    if (w->inner->y_is_x0)
        return fr__device_convert(k->dev, w->y.dtype, a->y, w->x[0].dtype, a->x[0], w->y.count);
    for (int i = 0; i < w->n_inputs; i++)
        FR_TRY(widen(w, a, &w->x[i], w->x[i].value_at, &inner.x[i]));
    if (w->y.dtype == FR_BF16) inner.y = in_scratch(a, w->y.value_at);
    FR_TRY(w->inner->ops->forward(w->inner, &inner));
    if (w->y.dtype != FR_BF16) return FR_OK;
    return fr__device_convert(k->dev, FR_BF16, a->y, FR_F32, inner.y, w->y.count);
}

static fr_status wrap_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter_backward(w, a, &inner));
    if (w->inner->ops->backward_input) FR_TRY(w->inner->ops->backward_input(w->inner, &inner));
    for (int i = 0; i < w->n_inputs; i++) {
        bool is_passed = w->inner->pass_dx >> i & 1;
        const void *dx = is_passed ? inner.dy : inner.dx[i];
        if (!a->dx[i] || dx == a->dx[i]) continue;
        FR_TRY(fr__device_convert(k->dev, w->x[i].dtype, a->dx[i], FR_F32, dx, w->x[i].count));
    }
    return FR_OK;
}

static fr_status wrap_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter_backward(w, a, &inner));
    return w->inner->ops->backward_weight(w->inner, &inner);
}

static void wrap_destroy(fr__kernel *k)
{
    fr__kernel *inner = ((wrap *)k)->inner;
    if (inner->ops->destroy) inner->ops->destroy(inner);
}

static tensor describe(const fr__layout *layout, size_t *scratch)
{
    tensor t = {.dtype = layout->dtype, .count = fr__layout_count(layout)};
    if (t.dtype != FR_BF16) return t;
    t.value_at = *scratch;
    t.grad_at = t.value_at + fr__align_up(t.count * sizeof(float));
    *scratch = t.grad_at + fr__align_up(t.count * sizeof(float));
    return t;
}

static void take_over(wrap *w, const fr__kernel_spec *spec)
{
    fr__kernel *k = &w->base;
    *k = *w->inner;
    size_t scratch = fr__align_up(k->scratch_bytes);
    for (int i = 0; i < spec->n_inputs; i++) w->x[i] = describe(spec->x[i], &scratch);
    w->y = describe(&k->y, &scratch);
    k->scratch_bytes = scratch;
    k->y_is_x0 = k->can_overwrite_x0 = k->can_overwrite_dy = false;
    k->can_add_dx = k->pass_dx = 0;
    const fr__kernel_ops *ops = w->inner->ops;
    w->ops = (fr__kernel_ops){
        .forward = wrap_forward,
        .backward_input = ops->backward_input || w->inner->pass_dx ? wrap_backward_input : NULL,
        .backward_weight = ops->backward_weight ? wrap_backward_weight : NULL,
        .destroy = wrap_destroy};
    k->ops = &w->ops;
}

static fr_status make(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    const fr_node *node = fr_graph_node(spec->graph, spec->nodes[0]);
    bool has_bf16 = node->dtype == FR_BF16;
    for (int i = 0; i < spec->n_inputs; i++) has_bf16 |= spec->x[i]->dtype == FR_BF16;
    if (!has_bf16) return under->makers[node->op](spec, arena, out);
    wrap *w = FR_ARENA_NEW(arena, wrap);
    fr__kernel_spec inner = *spec;
    *out = NULL;
    if (!w) return fr__no_memory(spec->ctx, sizeof *w, "a kernel");
    w->n_inputs = spec->n_inputs;
    for (int i = 0; i < spec->n_inputs; i++) {
        w->seen[i] = *spec->x[i];
        if (w->seen[i].dtype == FR_BF16)
            w->seen[i] = (fr__layout){.bytes = fr__layout_count(spec->x[i]) * sizeof(float),
                                      .dtype = FR_F32};
        inner.x[i] = &w->seen[i];
    }
    FR_TRY(under->makers[node->op](&inner, arena, &w->inner));
    if (w->inner->ops->prepare_dy)
        return fr_fail(spec->ctx, FR_UNSUPPORTED, "%s: prepare_dy behind conversions", node->name);
    take_over(w, spec);
    *out = &w->base;
    return FR_OK;
}

const fr_backend *bf16_backend(const fr_backend *base)
{
    static fr__kernel_maker makers[FR_OPERATOR_COUNT];
    for (int i = 0; i < FR_OPERATOR_COUNT; i++) makers[i] = base->makers[i] ? make : NULL;
    under = base;
    record = *base;
    record.makers = makers;
    record.has_bf16 = true;
    return &record;
}
