/* eltwise.c -- activations, one number in, one number out.
 *
 * If the slope can be computed from the output, the input is not kept and the forward may
 * overwrite it. NaN is passed on, so that a diverged run is noticed. */
#include <math.h>

#include "backend/dropout.h"
#include "backend/ref/ref.h"

/* slope gets x if from_x, else y. */
typedef struct activation {
    double (*value)(double x);
    double (*slope)(double x_or_y);
    bool from_x;
} activation;

static double relu(double x) { return x < 0 ? 0 : x; }
static double relu_slope(double y) { return y > 0 ? 1 : 0; }

static double relu6(double x) { return x < 0 ? 0 : x > 6 ? 6 : x; }
static double relu6_slope(double y) { return y > 0 && y < 6 ? 1 : 0; }

static double tanh_slope(double y) { return 1 - y * y; }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double sigmoid_slope(double y) { return y * (1 - y); }

/* Straight lines in place of the sigmoid: Howard et al., Searching for MobileNetV3, 2019. */
static double hardsigmoid(double x) { return relu6(x + 3) / 6; }
static double hardsigmoid_slope(double y) { return y > 0 && y < 1 ? 1.0 / 6 : 0; }

static double hardswish(double x) { return x * hardsigmoid(x); }
static double hardswish_slope(double x) { return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5; }

static double silu(double x) { return x * sigmoid(x); }
static double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

static double selu(double x) { return FR_SELU_SCALE * (x > 0 ? x : FR_SELU_ALPHA * expm1(x)); }
static double selu_slope(double y)
{
    return y > 0 ? FR_SELU_SCALE : y + FR_SELU_SCALE * FR_SELU_ALPHA;
}

/* Hendrycks and Gimpel, Gaussian Error Linear Units, 2016: x times the distribution function of the
 * normal distribution. */
static double normal(double x) { return 0.5 * erfc(-x / sqrt(2)); }
static double gelu_exact(double x) { return x * normal(x); }
static double gelu_exact_slope(double x)
{
    return normal(x) + x * exp(-0.5 * x * x) * 0.39894228040143267794; /* 1 / sqrt(2 pi) */
}

/* The same by a tanh. */
static const double gelu_c = 0.79788456080286535588; /* sqrt(2 / pi) */
static double gelu(double x) { return 0.5 * x * (1 + tanh(gelu_c * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x)
{
    double t = tanh(gelu_c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_c * (1 + 3 * 0.044715 * x * x);
}

static const activation activations[FR_OPERATOR_COUNT] = {
    [FR_OP_RELU] = {relu, relu_slope, false},
    [FR_OP_GELU] = {gelu, gelu_slope, true},
    [FR_OP_SELU] = {selu, selu_slope, false},
    [FR_OP_TANH] = {tanh, tanh_slope, false},
    [FR_OP_SIGMOID] = {sigmoid, sigmoid_slope, false},
    [FR_OP_SILU] = {silu, silu_slope, true},
    [FR_OP_GELU_EXACT] = {gelu_exact, gelu_exact_slope, true},
    [FR_OP_RELU6] = {relu6, relu6_slope, false},
    [FR_OP_HARDSWISH] = {hardswish, hardswish_slope, true},
    [FR_OP_HARDSIGMOID] = {hardsigmoid, hardsigmoid_slope, false},
};

/* leaky_relu and elu have a number of their own. */
static double value_at(const fr_node *node, double x)
{
    const double alpha = (double)node->attrs.activation.alpha;
    switch (node->op) {
    case FR_OP_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case FR_OP_ELU: return x > 0 ? x : alpha * expm1(x);
    default: return activations[node->op].value(x);
    }
}

static double slope_at(const fr_node *node, double x_or_y)
{
    const double alpha = (double)node->attrs.activation.alpha;
    switch (node->op) {
    case FR_OP_LEAKY_RELU: return x_or_y > 0 ? 1 : alpha;
    case FR_OP_ELU: return x_or_y > 0 ? 1 : x_or_y + alpha;
    default: return activations[node->op].slope(x_or_y);
    }
}

static fr_status activation_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const float *x = a->x[0];
    float *y = a->y;
    int64_t n = fr__ref_count(k, k->node);
    for (int64_t i = 0; i < n; i++) y[i] = (float)value_at(k->node, (double)x[i]);
    return FR_OK;
}

static fr_status activation_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const float *at = activations[k->node->op].from_x ? a->x[0] : a->y, *dy = a->dy;
    float *dx = a->dx[0];
    int64_t n = fr__ref_count(k, k->node);
    for (int64_t i = 0; i < n; i++)
        fr__ref_put(&dx[i], (double)dy[i] * slope_at(k->node, (double)at[i]), a->add_dx[0]);
    return FR_OK;
}

fr_status fr__ref_activation(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = activation_forward,
                                       .backward_input = activation_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    fr__kernel *k = *out;
    bool from_x = activations[k->node->op].from_x;
    k->needs_x = from_x ? 1 : 0;
    k->needs_y = !from_x;
    k->can_overwrite_x0 = !from_x || !k->training;
    k->can_overwrite_dy = true;
    return FR_OK;
}
