/* op_elementwise.c -- activations and dropout: one number in, one number out; and products and
 * differences of two inputs. */
#include "graph/op.h"

#include <math.h>

/* Nominal operations per number, forward and backward; an exponential counts as 4. */
static const struct {
    double forward, backward;
} work[FR_OPERATOR_COUNT] = {
    [FR_OP_RELU] = {1, 1},
    [FR_OP_GELU] = {14, 20},
    [FR_OP_SELU] = {7, 4},
    [FR_OP_TANH] = {8, 3},
    [FR_OP_SIGMOID] = {6, 3},
    [FR_OP_SILU] = {7, 11},
    [FR_OP_GELU_EXACT] = {26, 30},
    [FR_OP_RELU6] = {2, 3},
    [FR_OP_HARDSWISH] = {5, 5},
    [FR_OP_HARDSIGMOID] = {4, 3},
    [FR_OP_LEAKY_RELU] = {2, 2},
    [FR_OP_ELU] = {6, 3},
    [FR_OP_DROPOUT] = {2, 1},
    [FR_OP_ALPHA_DROPOUT] = {3, 1},
    [FR_OP_STOCHASTIC_DEPTH] = {1, 1},
};

static fr_status fill_alpha(fr__infer *t)
{
    const bool is_elu = t->node->op == FR_OP_ELU;
    float *alpha = &t->node->attrs.activation.alpha;
    if (*alpha == 0) *alpha = is_elu ? 1.0f : 0.01f;
    if (isfinite(*alpha) && *alpha > 0) return FR_OK;
    return fr__op_fail(t, "%s is %g; it must be positive and finite", is_elu ? "alpha" : "slope",
                       (double)*alpha);
}

fr_status fr__infer_activation(fr__infer *t)
{
    const fr_operator op = t->node->op;
    FR_TRY(fr__op_input(t, 0, FR_F32, 0, FR_MAX_DIMS));
    if (op == FR_OP_LEAKY_RELU || op == FR_OP_ELU) FR_TRY(fill_alpha(t));
    fr__op_output(t, t->in[0]->shape);
    double n = (double)fr_shape_count(&t->node->shape);
    fr__op_flops(t, work[op].forward * n, work[op].backward * n, 0);
    return FR_OK;
}

fr_status fr__infer_dropout(fr__infer *t)
{
    float p = t->node->attrs.dropout.p;
    if (!(p >= 0 && p < 1)) return fr__op_fail(t, "p is %g; it must be in [0, 1)", (double)p);
    return fr__infer_activation(t);
}

/* Whether b can be repeated to the shape of a: from the last dimension backward, each is that of a,
 * 1, or absent. */
static bool can_repeat(const fr_shape *a, const fr_shape *b)
{
    for (int i = 1; i <= b->n_dims && i <= a->n_dims; i++) {
        const int64_t dim = b->dim[b->n_dims - i];
        if (dim != 1 && dim != a->dim[a->n_dims - i]) return false;
    }
    return b->n_dims <= a->n_dims;
}

fr_status fr__infer_binary(fr__infer *t)
{
    char a[96], b[96];
    for (int i = 0; i < 2; i++) FR_TRY(fr__op_input(t, i, FR_F32, 0, FR_MAX_DIMS));
    if (!can_repeat(&t->in[0]->shape, &t->in[1]->shape))
        return fr__op_fail(
            t,
            "input %s is %s and input %s is %s; counted from the last, each dimension of the "
            "second must be that of the first, 1 or absent",
            t->in[0]->name, fr_shape_text(&t->in[0]->shape, a, sizeof a), t->in[1]->name,
            fr_shape_text(&t->in[1]->shape, b, sizeof b));
    fr__op_output(t, t->in[0]->shape);
    double n = (double)fr_shape_count(&t->node->shape);
    fr__op_flops(t, n, t->node->op == FR_OP_MUL ? 3 * n : n, 0);
    return FR_OK;
}
