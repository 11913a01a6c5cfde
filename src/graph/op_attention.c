/* op_attention.c -- attention over packed q|k|v, across two sequences, and of separate q, k, v. */
#include "graph/op.h"

#include <math.h>

/* Scores and their softmax for each pair of positions that attend to each other. The backward has
 * four products, the forward two. */
static void attention_work(fr__infer *t, double pairs)
{
    double product = 2 * pairs * (double)t->node->shape.dim[1];
    double softmax = pairs * t->node->attrs.attention.heads;
    fr__op_flops(t, 2 * product + 5 * softmax, 4 * product + 4 * softmax, 0);
}

fr_status fr__infer_attention(fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_input(t, 0, FR_F32, 2, 2));
    FR_TRY(fr__op_length(t, 1));
    FR_TRY(fr__op_size(t, "heads", a->attention.heads));
    int64_t time = t->in[0]->shape.dim[0], wide = t->in[0]->shape.dim[1];
    if (wide % 3 || wide / 3 % a->attention.heads)
        return fr__op_fail(t,
                           "input %s is %lld wide; it must hold q, k and v of %d heads, so it must "
                           "be a multiple of %lld",
                           t->in[0]->name, (long long)wide, a->attention.heads,
                           3 * (long long)a->attention.heads);
    fr__op_output(t, FR_SHAPE(time, wide / 3));
    double n = (double)time;
    attention_work(t, a->attention.causal ? n * (n + 1) / 2 : n * n);
    return FR_OK;
}

fr_status fr__infer_cross_attention(fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    for (int i = 0; i < 2; i++) FR_TRY(fr__op_input(t, i, FR_F32, 2, 2));
    FR_TRY(fr__op_length(t, 2));
    FR_TRY(fr__op_size(t, "heads", a->attention.heads));
    int64_t time = t->in[0]->shape.dim[0], width = t->in[0]->shape.dim[1];
    if (a->attention.causal)
        return fr__op_fail(t, "causal is set, but queries and keys belong to different sequences");
    if (width % a->attention.heads)
        return fr__op_fail(t, "input %s is %lld wide, which %d heads do not divide", t->in[0]->name,
                           (long long)width, a->attention.heads);
    if (t->in[1]->shape.dim[1] != 2 * width)
        return fr__op_fail(t,
                           "input %s is %lld wide; it must hold k and v, each as wide as the "
                           "queries of input %s: %lld",
                           t->in[1]->name, (long long)t->in[1]->shape.dim[1], t->in[0]->name,
                           2 * (long long)width);
    fr__op_output(t, FR_SHAPE(time, width));
    attention_work(t, (double)time * (double)t->in[1]->shape.dim[0]);
    return FR_OK;
}

/* Pairs of a query and a key that it sees; each query sees itself and those before it. */
static double causal_pairs(double time, double window)
{
    double growing = window > 0 && window < time ? window : time;
    return growing * (growing + 1) / 2 + (time - growing) * growing;
}

static fr_status check_heads(fr__infer *t)
{
    fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_size(t, "heads", a->attention.heads));
    if (a->attention.kv_heads == 0) a->attention.kv_heads = a->attention.heads;
    int heads = a->attention.heads, kv_heads = a->attention.kv_heads;
    if (kv_heads < 1 || heads % kv_heads)
        return fr__op_fail(t, "kv_heads is %d; it must divide the %d heads", kv_heads, heads);
    int64_t width = t->in[0]->shape.dim[1];
    if (width % heads)
        return fr__op_fail(t, "input %s is %lld wide, which %d heads do not divide", t->in[0]->name,
                           (long long)width, heads);
    for (int i = 1; i < 3; i++)
        if (t->in[i]->shape.dim[1] != width / heads * kv_heads)
            return fr__op_fail(t,
                               "input %s is %lld wide; %d heads as wide as the %lld of input %s "
                               "have %lld",
                               t->in[i]->name, (long long)t->in[i]->shape.dim[1], kv_heads,
                               (long long)(width / heads), t->in[0]->name,
                               (long long)(width / heads * kv_heads));
    if (!(a->attention.scale >= 0 && isfinite(a->attention.scale)))
        return fr__op_fail(t, "scale is %g; it must be positive", (double)a->attention.scale);
    if (a->attention.scale == 0) a->attention.scale = 1.0f / sqrtf((float)(width / heads));
    return FR_OK;
}

static fr_status check_order(const fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    int64_t time = t->in[0]->shape.dim[0], keys = t->in[1]->shape.dim[0];
    if (t->in[2]->shape.dim[0] != keys)
        return fr__op_fail(t, "input %s has %lld steps and input %s %lld; a key has one value",
                           t->in[1]->name, (long long)keys, t->in[2]->name,
                           (long long)t->in[2]->shape.dim[0]);
    if (a->attention.causal && time != keys)
        return fr__op_fail(t, "causal is set, but there are %lld queries and %lld keys",
                           (long long)time, (long long)keys);
    if (a->attention.window < 0 || (a->attention.window > 0 && !a->attention.causal))
        return fr__op_fail(t, "window is %d; it must be 0 (none), or positive with causal set",
                           a->attention.window);
    return FR_OK;
}

/* The mask of a sample: (S), (T, S) or (heads, T, S). Each thread has one head, so a gradient that
 * several heads share is not computed. */
static fr_status check_mask(const fr__infer *t, const fr_node *mask)
{
    const fr_shape *m = &mask->shape;
    const int64_t all[] = {t->node->attrs.attention.heads, t->in[0]->shape.dim[0],
                           t->in[1]->shape.dim[0]};
    char text[96];
    bool fits = m->n_dims >= 1 && m->n_dims <= 3;
    for (int i = 1; fits && i <= m->n_dims; i++) fits = m->dim[m->n_dims - i] == all[3 - i];
    if (!fits)
        return fr__op_fail(
            t,
            "mask %s is %s; it must be (%lld) or (%lld, %lld) or (%lld, %lld, %lld): "
            "keys, queries and keys, or heads, queries and keys",
            mask->name, fr_shape_text(m, text, sizeof text), (long long)all[2], (long long)all[1],
            (long long)all[2], (long long)all[0], (long long)all[1], (long long)all[2]);
    if (mask->needs_grad && m->n_dims < 3)
        return fr__op_fail(
            t,
            "mask %s has trained parameters above it and is %s; its gradient needs a "
            "mask of each head, (%lld, %lld, %lld)",
            mask->name, fr_shape_text(m, text, sizeof text), (long long)all[0], (long long)all[1],
            (long long)all[2]);
    return FR_OK;
}

fr_status fr__infer_sdpa(fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    int n = t->node->n_inputs;
    for (int i = 0; i < 3; i++) FR_TRY(fr__op_input(t, i, FR_F32, 2, 2));
    FR_TRY(check_heads(t));
    FR_TRY(check_order(t));
    bool has_length = n > 3 && t->in[n - 1]->shape.n_dims == 0;
    if (has_length) FR_TRY(fr__op_length(t, n - 1));
    if (n == 5 && !has_length)
        return fr__op_fail(t, "of 5 inputs the last one must be a length; it takes %s",
                           fr__op_about(t->node->op));
    if (n - has_length > 3) FR_TRY(check_mask(t, t->in[3]));
    fr__op_output(t, t->in[0]->shape);
    double time = (double)t->in[0]->shape.dim[0], keys = (double)t->in[1]->shape.dim[0];
    attention_work(t, a->attention.causal ? causal_pairs(time, a->attention.window) : time * keys);
    return FR_OK;
}
