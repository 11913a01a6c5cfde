/* op_loss.c -- losses: softmax cross entropy of classes, and distances to targets of floats. The
 * output is three numbers per sample: the sum of the losses of its counted targets, their number,
 * and what a metric is made of: hits (of the arg max; bce: of the sign), or the sum of absolute
 * errors (mse, smooth_l1), or nothing (cosine). */
#include "graph/op.h"

#include <math.h>

fr_status fr__infer_cross_entropy(fr__infer *t)
{
    float smoothing = t->node->attrs.loss.label_smoothing;
    FR_TRY(fr__op_input(t, 0, FR_F32, 1, FR_MAX_DIMS));
    FR_TRY(fr__op_input(t, 1, FR_I32, 0, FR_MAX_DIMS - 1));
    if (!(smoothing >= 0 && smoothing < 1))
        return fr__op_fail(t, "label_smoothing is %g; it must be in [0, 1)", (double)smoothing);
    fr_shape rows = t->in[0]->shape;
    rows.dim[--rows.n_dims] = 0;
    if (!fr_shape_equal(&rows, &t->in[1]->shape)) {
        char x[96], want[96], got[96];
        return fr__op_fail(t, "logits %s are %s, so targets must be %s; %s is %s", t->in[0]->name,
                           fr_shape_text(&t->in[0]->shape, x, sizeof x),
                           fr_shape_text(&rows, want, sizeof want), t->in[1]->name,
                           fr_shape_text(&t->in[1]->shape, got, sizeof got));
    }
    fr__op_output(t, FR_SHAPE(3));
    double n = (double)fr_shape_count(&t->in[0]->shape); /* maximum, exponential, sum */
    fr__op_flops(t, 6 * n, 2 * n, 0);
    return FR_OK;
}

/* Targets are fed: no gradient flows into them, and no stage but the last has them. */
static fr_status check_target(const fr__infer *t)
{
    const fr_node *x = t->in[0], *y = t->in[1];
    char have[96], want[96];
    if (y->op != FR_OP_INPUT)
        return fr__op_fail(t, "target %s is a node of operator %s; it must be an input", y->name,
                           fr_operator_name(y->op));
    bool fits = t->node->op == FR_OP_COSINE ? fr_shape_equal(&x->shape, &y->shape)
                                            : fr_shape_fits(&x->shape, &y->shape);
    if (fits) return FR_OK;
    return fr__op_fail(t, "output %s is %s, so targets must be %s; %s is %s", x->name,
                       fr_shape_text(&x->shape, want, sizeof want), want, y->name,
                       fr_shape_text(&y->shape, have, sizeof have));
}

fr_status fr__infer_distance(fr__infer *t)
{
    const bool is_cosine = t->node->op == FR_OP_COSINE, is_smooth = t->node->op == FR_OP_SMOOTH_L1;
    float *beta = &t->node->attrs.loss.beta;
    FR_TRY(fr__op_input(t, 0, FR_F32, is_cosine, FR_MAX_DIMS));
    FR_TRY(fr__op_input(t, 1, FR_F32, is_cosine, FR_MAX_DIMS));
    FR_TRY(check_target(t));
    if (is_smooth && *beta == 0) *beta = 1;
    if (is_smooth && !(*beta > 0 && isfinite(*beta)))
        return fr__op_fail(t, "beta is %g; it must be more than 0", (double)*beta);
    fr__op_output(t, FR_SHAPE(3));
    double n = (double)fr_shape_count(&t->in[0]->shape);
    fr__op_flops(t, 6 * n, 4 * n, 0);
    return FR_OK;
}
