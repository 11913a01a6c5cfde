/* op_norm.c -- normalisation followed by scale and shift: batch_norm, layer_norm, rms_norm and
 * group_norm; softmax; and rope. */
#include "graph/op.h"

#include <math.h>

static const fr_init ones = {FR_INIT_ONES, 0}, zeros = {FR_INIT_ZEROS, 0};

static fr_status fill_eps(fr__infer *t)
{
    fr_attrs *a = &t->node->attrs;
    if (a->norm.eps == 0) a->norm.eps = 1e-5f;
    if (!(isfinite(a->norm.eps) && a->norm.eps > 0))
        return fr__op_fail(t, "eps is %g; it must be positive and finite", (double)a->norm.eps);
    return FR_OK;
}

/* Operations per number. Forward: mean 1, variance 3, normalise 2, scale and shift 2. Backward: two
 * sums for the parameters, which the input gradient also needs, then 5. */
static void norm_flops(fr__infer *t)
{
    double n = (double)fr_shape_count(&t->node->shape);
    fr__op_flops(t, 8 * n, 9 * n, 4 * n);
}

fr_status fr__infer_batch_norm(fr__infer *t)
{
    fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, 3));
    if (t->in[0]->shape.n_dims == 2) return fr__op_input(t, 0, FR_F32, 3, 3);
    FR_TRY(fill_eps(t));
    if (a->norm.momentum == 0) a->norm.momentum = 0.1f;
    if (!(a->norm.momentum > 0 && a->norm.momentum <= 1))
        return fr__op_fail(t, "momentum is %g; it must be in (0, 1]", (double)a->norm.momentum);
    fr__op_output(t, t->in[0]->shape);
    fr_shape channels = FR_SHAPE(t->in[0]->shape.dim[0]);
    fr__op_param(t, "weight", channels, ones, false);
    fr__op_param(t, "bias", channels, zeros, false);
    fr__op_param(t, "running_mean", channels, zeros, true);
    fr__op_param(t, "running_var", channels, ones, true);
    norm_flops(t);
    return FR_OK;
}

/* And rms_norm: without a mean, and without a shift. */
fr_status fr__infer_layer_norm(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    FR_TRY(fill_eps(t));
    fr__op_output(t, t->in[0]->shape);
    fr_shape features = FR_SHAPE(t->in[0]->shape.dim[t->in[0]->shape.n_dims - 1]);
    fr__op_param(t, "weight", features, ones, false);
    if (t->node->op == FR_OP_RMS_NORM) {
        double n = (double)fr_shape_count(&t->node->shape);
        fr__op_flops(t, 4 * n, 6 * n, 3 * n);
        return FR_OK;
    }
    fr__op_param(t, "bias", features, zeros, false);
    norm_flops(t);
    return FR_OK;
}

fr_status fr__infer_group_norm(fr__infer *t)
{
    const fr_node *x = t->in[0];
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    FR_TRY(fill_eps(t));
    const int groups = t->node->attrs.norm.groups;
    if (groups < 1 || x->shape.dim[0] % groups != 0)
        return fr__op_fail(t, "groups is %d; it must divide the %lld channels of input %s", groups,
                           (long long)x->shape.dim[0], x->name);
    fr__op_output(t, x->shape);
    fr__op_param(t, "weight", FR_SHAPE(x->shape.dim[0]), ones, false);
    fr__op_param(t, "bias", FR_SHAPE(x->shape.dim[0]), zeros, false);
    norm_flops(t);
    return FR_OK;
}

/* Operations per number: largest 1, difference 1, exponential 4, sum 1, product 1. */
fr_status fr__infer_softmax(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    fr__op_output(t, t->in[0]->shape);
    double n = (double)fr_shape_count(&t->node->shape);
    fr__op_flops(t, 8 * n, 4 * n, 0);
    return FR_OK;
}

static fr_status check_rope(const fr__infer *t, int64_t width)
{
    const fr_attrs *a = &t->node->attrs;
    if (a->rope.heads < 1 || width % a->rope.heads != 0)
        return fr__op_fail(t, "heads is %d; it must divide the width %lld of input %s",
                           a->rope.heads, (long long)width, t->in[0]->name);
    const int64_t head = width / a->rope.heads, rotated = a->rope.rotated_width;
    if (a->rope.rotated_heads < 0 || a->rope.rotated_heads > a->rope.heads)
        return fr__op_fail(t, "rotated_heads is %d; it must be between 1 and the %d heads",
                           a->rope.rotated_heads, a->rope.heads);
    if (rotated < 0 || rotated > head || (rotated == 0 ? head : rotated) % 2 != 0)
        return fr__op_fail(t,
                           "rotated_width is %lld; it must be even and at most %lld, the width of "
                           "a head (by default it is that)",
                           (long long)(rotated == 0 ? head : rotated), (long long)head);
    if (a->rope.base != 0 && !(isfinite(a->rope.base) && a->rope.base >= 1))
        return fr__op_fail(t, "base is %g; it must be finite and at least 1", (double)a->rope.base);
    return FR_OK;
}

fr_status fr__infer_rope(fr__infer *t)
{
    fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_input(t, 0, FR_F32, 2, 2));
    const fr_shape *x = &t->in[0]->shape;
    FR_TRY(check_rope(t, x->dim[1]));
    const int head = (int)(x->dim[1] / a->rope.heads);
    if (a->rope.rotated_heads == 0) a->rope.rotated_heads = a->rope.heads;
    if (a->rope.rotated_width == 0) a->rope.rotated_width = head;
    if (a->rope.base == 0) a->rope.base = 10000;
    fr__op_output(t, *x);
    double n = (double)x->dim[0] * a->rope.rotated_heads * (double)a->rope.rotated_width;
    fr__op_flops(t, 3 * n, 3 * n, 0);
    return FR_OK;
}
