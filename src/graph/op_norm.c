/* op_norm.c -- batch_norm and layer_norm: scale and shift after normalisation. */
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

fr_status fr__infer_layer_norm(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    FR_TRY(fill_eps(t));
    fr__op_output(t, t->in[0]->shape);
    fr_shape features = FR_SHAPE(t->in[0]->shape.dim[t->in[0]->shape.n_dims - 1]);
    fr__op_param(t, "weight", features, ones, false);
    fr__op_param(t, "bias", features, zeros, false);
    norm_flops(t);
    return FR_OK;
}
