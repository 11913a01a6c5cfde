/* op.c -- the registry of operators, and helpers of their rules. */
#include "graph/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const fr__op_rule rules[FR_OPERATOR_COUNT] = {
    [FR_OP_INPUT] = {0, 0, fr__infer_input},
    [FR_OP_LINEAR] = {1, 1, fr__infer_linear},
    [FR_OP_MATMUL] = {2, 2, fr__infer_matmul},
    [FR_OP_CONV2D] = {1, 1, fr__infer_conv2d},
    [FR_OP_BATCH_NORM] = {1, 1, fr__infer_batch_norm},
    [FR_OP_LAYER_NORM] = {1, 1, fr__infer_layer_norm},
    [FR_OP_RELU] = {1, 1, fr__infer_activation},
    [FR_OP_GELU] = {1, 1, fr__infer_activation},
    [FR_OP_SELU] = {1, 1, fr__infer_activation},
    [FR_OP_TANH] = {1, 1, fr__infer_activation},
    [FR_OP_SIGMOID] = {1, 1, fr__infer_activation},
    [FR_OP_SILU] = {1, 1, fr__infer_activation},
    [FR_OP_GELU_EXACT] = {1, 1, fr__infer_activation},
    [FR_OP_RELU6] = {1, 1, fr__infer_activation},
    [FR_OP_HARDSWISH] = {1, 1, fr__infer_activation},
    [FR_OP_HARDSIGMOID] = {1, 1, fr__infer_activation},
    [FR_OP_LEAKY_RELU] = {1, 1, fr__infer_activation},
    [FR_OP_ELU] = {1, 1, fr__infer_activation},
    [FR_OP_MUL] = {2, 2, fr__infer_binary},
    [FR_OP_SUBTRACT] = {2, 2, fr__infer_binary},
    [FR_OP_SOFTMAX] = {1, 1, fr__infer_softmax},
    [FR_OP_RMS_NORM] = {1, 1, fr__infer_layer_norm},
    [FR_OP_GROUP_NORM] = {1, 1, fr__infer_group_norm},
    [FR_OP_ROPE] = {1, 1, fr__infer_rope},
    [FR_OP_STOCHASTIC_DEPTH] = {1, 1, fr__infer_dropout},
    [FR_OP_DROPOUT] = {1, 1, fr__infer_dropout},
    [FR_OP_ALPHA_DROPOUT] = {1, 1, fr__infer_dropout},
    [FR_OP_MAX_POOL] = {1, 1, fr__infer_pool},
    [FR_OP_AVG_POOL] = {1, 1, fr__infer_pool},
    [FR_OP_GLOBAL_POOL] = {1, 1, fr__infer_global_pool},
    [FR_OP_ADD] = {2, 2, fr__infer_add},
    [FR_OP_CONCAT] = {2, FR_MAX_INPUTS, fr__infer_concat},
    [FR_OP_SLICE] = {1, 1, fr__infer_slice},
    [FR_OP_SELECT] = {1, 1, fr__infer_select},
    [FR_OP_TRANSPOSE] = {1, 1, fr__infer_transpose},
    [FR_OP_RESHAPE] = {1, 1, fr__infer_reshape},
    [FR_OP_PAD] = {1, 1, fr__infer_pad},
    [FR_OP_FLATTEN] = {1, 1, fr__infer_flatten},
    [FR_OP_EMBEDDING] = {1, 1, fr__infer_embedding},
    [FR_OP_ATTENTION] = {1, 2, fr__infer_attention},
    [FR_OP_CROSS_ATTENTION] = {2, 3, fr__infer_cross_attention},
    [FR_OP_SDPA] = {3, 5, fr__infer_sdpa},
    [FR_OP_LSTM] = {1, 1, fr__infer_lstm},
    [FR_OP_REVERSE_TIME] = {1, 2, fr__infer_reverse_time},
    [FR_OP_MEAN_TIME] = {1, 2, fr__infer_time},
    [FR_OP_LAST_TIME] = {1, 2, fr__infer_time},
    [FR_OP_CROSS_ENTROPY] = {2, 2, fr__infer_cross_entropy},
    [FR_OP_MSE] = {2, 2, fr__infer_distance},
    [FR_OP_SMOOTH_L1] = {2, 2, fr__infer_distance},
    [FR_OP_BCE] = {2, 2, fr__infer_distance},
    [FR_OP_COSINE] = {2, 2, fr__infer_distance},
};

static const struct {
    const char *name, *about;
} texts[] = {
#define FR_X(name, text, about) {text, about},
    FR_OPERATOR_LIST(FR_X)
#undef FR_X
};

const fr__op_rule *fr__op_rule_of(fr_operator op) { return &rules[op]; }

const char *fr__op_about(fr_operator op) { return texts[op].about; }

const char *fr_operator_name(fr_operator op)
{
    return (unsigned)op < FR_OPERATOR_COUNT ? texts[op].name : "unknown operator";
}

bool fr_operator_parse(const char *name, fr_operator *op)
{
    for (unsigned i = 0; i < FR_OPERATOR_COUNT; i++) {
        if (strcmp(texts[i].name, name) != 0) continue;
        *op = (fr_operator)i;
        return true;
    }
    return false;
}

/* Where the operators that may have a length have it. */
static int length_at(fr_operator op)
{
    switch (op) {
    case FR_OP_ATTENTION:
    case FR_OP_REVERSE_TIME:
    case FR_OP_MEAN_TIME:
    case FR_OP_LAST_TIME: return 1;
    case FR_OP_CROSS_ATTENTION: return 2;
    case FR_OP_SDPA: return 3; /* or behind the mask */
    default: return -1;
    }
}

int fr_graph_length_input(const fr_graph *g, const fr_node *node)
{
    int at = length_at(node->op), last = node->n_inputs - 1;
    bool has_length =
        at >= 0 && last >= at && fr_graph_node(g, node->inputs[last])->shape.n_dims == 0;
    return has_length ? last : -1;
}

bool fr_operator_is_loss(fr_operator op)
{
    switch (op) {
    case FR_OP_CROSS_ENTROPY:
    case FR_OP_MSE:
    case FR_OP_SMOOTH_L1:
    case FR_OP_BCE:
    case FR_OP_COSINE: return true;
    default: return false;
    }
}

fr_status fr__op_fail(const fr__infer *t, const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fr_fail(t->ctx, FR_INVALID, "node %s (%s): %s", t->node->name,
                   fr_operator_name(t->node->op), text);
}

fr_status fr__op_size(const fr__infer *t, const char *attr, int64_t value)
{
    if (value >= 1 && value <= FR_MAX_SIZE) return FR_OK;
    return fr__op_fail(t, "%s is %lld; it must be between 1 and %d", attr, (long long)value,
                       FR_MAX_SIZE);
}

fr_status fr__op_input(const fr__infer *t, int i, fr_dtype dtype, int min_dims, int max_dims)
{
    const fr_node *in = t->in[i];
    char shape[96];
    fr_shape_text(&in->shape, shape, sizeof shape);
    if ((in->dtype == FR_I32) != (dtype == FR_I32))
        return fr__op_fail(t, "input %s holds %s; it takes %s: %s", in->name,
                           in->dtype == FR_I32 ? "integers" : "floats",
                           dtype == FR_I32 ? "integers" : "floats", fr__op_about(t->node->op));
    if (in->shape.n_dims < min_dims || in->shape.n_dims > max_dims)
        return fr__op_fail(t, "input %s has %d dimensions, %s; it takes %s", in->name,
                           in->shape.n_dims, shape, fr__op_about(t->node->op));
    return FR_OK;
}

fr_status fr__op_length(const fr__infer *t, int i)
{
    return i < t->node->n_inputs ? fr__op_input(t, i, FR_I32, 0, 0) : FR_OK;
}

fr_status fr__op_init(const fr__infer *t)
{
    fr_init init = t->node->attrs.weight_init;
    bool has_scale = init.kind == FR_INIT_NORMAL || init.kind == FR_INIT_UNIFORM;
    if ((unsigned)init.kind > FR_INIT_LECUN)
        return fr__op_fail(t, "weight_init.kind is %d; it must be between 0 and %d", (int)init.kind,
                           FR_INIT_LECUN);
    if (has_scale && !(isfinite(init.scale) && init.scale >= 0))
        return fr__op_fail(t, "weight_init.scale is %g; it must be finite and not negative",
                           (double)init.scale);
    return FR_OK;
}

fr_init fr__op_uniform_init(double fan_in)
{
    return (fr_init){FR_INIT_UNIFORM, (float)(1 / sqrt(fan_in))};
}

fr_init fr__op_weight_init(const fr__infer *t, fr_init preset, double fan_in, double fan_out)
{
    fr_init init = t->node->attrs.weight_init;
    switch (init.kind) {
    case FR_INIT_DEFAULT: return preset;
    case FR_INIT_HE_OUT: return (fr_init){FR_INIT_NORMAL, (float)sqrt(2 / fan_out)};
    case FR_INIT_LECUN: return (fr_init){FR_INIT_NORMAL, (float)sqrt(1 / fan_in)};
    default: return init;
    }
}

fr_init fr__op_bias_init(const fr__infer *t, double fan_in)
{
    return t->node->attrs.weight_init.kind == FR_INIT_DEFAULT ? fr__op_uniform_init(fan_in)
                                                              : (fr_init){FR_INIT_ZEROS, 0};
}

void fr__op_param(fr__infer *t, const char *suffix, fr_shape shape, fr_init init, bool is_buffer)
{
    t->params[t->n_params++] = (fr__param_rule){suffix, shape, init, is_buffer};
}

void fr__op_output(fr__infer *t, fr_shape shape)
{
    t->node->shape = shape;
    t->node->dtype = FR_F32;
}

void fr__op_flops(fr__infer *t, double forward, double back_input, double back_weight)
{
    t->node->flops_forward = forward;
    t->node->flops_back_input = back_input;
    t->node->flops_back_weight = back_weight;
}

fr_status fr__infer_input(fr__infer *t)
{
    const fr_attrs *a = &t->node->attrs;
    if (a->input.shape.n_dims < 0 || a->input.shape.n_dims > FR_MAX_DIMS)
        return fr__op_fail(t, "shape has %d dimensions; at most %d are possible",
                           a->input.shape.n_dims, FR_MAX_DIMS);
    if (a->input.dtype != FR_F32 && a->input.dtype != FR_I32)
        return fr__op_fail(t, "dtype is %d, which is neither float nor int32", (int)a->input.dtype);
    t->node->shape = a->input.shape;
    t->node->dtype = a->input.dtype;
    return FR_OK;
}
