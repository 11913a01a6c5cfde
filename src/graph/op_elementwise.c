/* op_elementwise.c -- activations and dropout: one number in, one number out. */
#include "graph/op.h"

/* Nominal operations per number, forward and backward; an exponential counts as 4. */
static const struct {
    double forward, backward;
} work[FR_OPERATOR_COUNT] = {
    [FR_OP_RELU] = {1, 1},          [FR_OP_GELU] = {14, 20},  [FR_OP_SELU] = {7, 4},
    [FR_OP_TANH] = {8, 3},          [FR_OP_SIGMOID] = {6, 3}, [FR_OP_DROPOUT] = {2, 1},
    [FR_OP_ALPHA_DROPOUT] = {3, 1},
};

fr_status fr__infer_activation(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 0, FR_MAX_DIMS));
    fr__op_output(t, t->in[0]->shape);
    double n = (double)fr_shape_count(&t->node->shape);
    fr__op_flops(t, work[t->node->op].forward * n, work[t->node->op].backward * n, 0);
    return FR_OK;
}

fr_status fr__infer_dropout(fr__infer *t)
{
    float p = t->node->attrs.dropout.p;
    if (!(p >= 0 && p < 1)) return fr__op_fail(t, "p is %g; it must be in [0, 1)", (double)p);
    return fr__infer_activation(t);
}
