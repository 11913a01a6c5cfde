/* op_loss.c -- softmax cross entropy. The output is three numbers per sample: the sum of the losses
 * of its counted targets, their number, and how many of them equal the arg max. */
#include "graph/op.h"

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
