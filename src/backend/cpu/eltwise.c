/* eltwise.c -- activations, and add with or without a following relu.
 *
 * They work on any layout, padding included. An activation's gradient is its dy times the slope,
 * computed in place if dy has no other user, and passed on: no kernel computes a dx. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "backend/dropout.h"

#define SELU_SCALE ((float)FR_SELU_SCALE)
#define SELU_ALPHA ((float)FR_SELU_ALPHA)

typedef struct sweep {
    const float *a, *b;
    float *out;
} sweep;

/* An output is its input (in place) or does not overlap it. `omp simd` asserts this; a check at run
 * time would find them equal and take the scalar loop. X(name, value at x, slope given x or y) */
#define ACTIVATIONS(X)                                                     \
    X(relu, x<0.0f ? 0.0f : x, y> 0.0f ? 1.0f : 0.0f)                      \
    X(gelu, fr__gelu(x), fr__gelu_slope(y)) /* needs x: passed as y */     \
    X(selu, SELU_SCALE *(x > 0.0f ? x : SELU_ALPHA * (fr__exp(x) - 1.0f)), \
      y > 0.0f ? SELU_SCALE : y + SELU_SCALE * SELU_ALPHA)                 \
    X(tanh, fr__tanh(x), 1.0f - y * y)                                     \
    X(sigmoid, fr__sigmoid(x), y *(1.0f - y))

#define DEFINE(name, value, slope)                               \
    FR_SIMD_RANGE(name##_forward)                                \
    {                                                            \
        const sweep *s = arg;                                    \
        const float *in = s->a;                                  \
        float *out = s->out;                                     \
        _Pragma("omp simd") for (size_t i = begin; i < end; i++) \
        {                                                        \
            float x = in[i];                                     \
            out[i] = (value);                                    \
        }                                                        \
    }                                                            \
    FR_SIMD_RANGE(name##_backward)                               \
    {                                                            \
        const sweep *s = arg;                                    \
        const float *dy = s->a, *at = s->b;                      \
        float *dz = s->out;                                      \
        _Pragma("omp simd") for (size_t i = begin; i < end; i++) \
        {                                                        \
            float y = at[i];                                     \
            dz[i] = dy[i] * (slope);                             \
        }                                                        \
    }
ACTIVATIONS(DEFINE)
#undef DEFINE

typedef struct activation {
    fr__kernel k;
    fr_range_fn forward, backward;
    bool is_gelu; /* its slope needs x; all others need only y */
    size_t n;
} activation;

static fr_status activation_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const activation *act = (const activation *)k;
    sweep s = {.a = a->x[0], .out = a->y};
    fr__cpu_parallel(k->dev, act->n, 1024, act->forward, &s);
    return FR_OK;
}

/* dz = dy * slope, and the input's gradient is dz. */
static fr_status activation_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    const activation *act = (const activation *)k;
    sweep s = {.a = a->dy, .b = act->is_gelu ? a->x[0] : a->y, .out = dz};
    fr__cpu_parallel(k->dev, act->n, 1024, act->backward, &s);
    return FR_OK;
}

static const fr__kernel_ops activation_ops = {.forward = activation_forward,
                                              .prepare_dy = activation_prepare_dy};

static const struct {
    fr_range_fn forward, backward;
} sweeps[FR_OPERATOR_COUNT] = {
    [FR_OP_RELU] = {relu_forward, relu_backward},
    [FR_OP_GELU] = {gelu_forward, gelu_backward},
    [FR_OP_SELU] = {selu_forward, selu_backward},
    [FR_OP_TANH] = {tanh_forward, tanh_backward},
    [FR_OP_SIGMOID] = {sigmoid_forward, sigmoid_backward},
};

fr_status fr__cpu_activation(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    /* The padding of a blocked tensor must stay zero, and sigmoid(0) is not. */
    bool must_be_plain =
        spec->plain_output || fr_graph_node(spec->graph, spec->nodes[0])->op == FR_OP_SIGMOID;
    if (must_be_plain && spec->x[0]->desc)
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_activation, out);
    activation *act = (activation *)fr__kernel_new(spec, arena, sizeof *act, &activation_ops);
    if (!act) return FR_NO_MEMORY;
    fr__kernel *k = &act->k;
    k->y = *spec->x[0];
    act->n = fr__layout_count(&k->y);
    act->is_gelu = k->node->op == FR_OP_GELU;
    act->forward = sweeps[k->node->op].forward;
    act->backward = sweeps[k->node->op].backward;
    k->needs_x = act->is_gelu;
    k->needs_y = !act->is_gelu;
    k->pass_dx = 1;
    k->can_overwrite_x0 = true;
    *out = k;
    return FR_OK;
}

/* --- add, and add with a relu ----------------------------------------------------------------- */

FR_SIMD_RANGE(add_forward)
{
    const sweep *s = arg;
    const float *a = s->a, *b = s->b;
    float *out = s->out;
#pragma omp simd
    for (size_t i = begin; i < end; i++) out[i] = a[i] + b[i];
}

FR_SIMD_RANGE(add_relu_forward)
{
    const sweep *s = arg;
    const float *a = s->a, *b = s->b;
    float *out = s->out;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        float sum = a[i] + b[i];
        out[i] = sum < 0.0f ? 0.0f : sum; /* NaN stays */
    }
}

static fr_status sum_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const activation *act = (const activation *)k;
    sweep s = {.a = a->x[0], .b = a->x[1], .out = a->y};
    fr__cpu_parallel(k->dev, act->n, 1024, act->forward, &s);
    return FR_OK;
}

static const fr__kernel_ops add_ops = {.forward = sum_forward};
static const fr__kernel_ops add_relu_ops = {.forward = sum_forward,
                                            .prepare_dy = activation_prepare_dy};

static bool have_same_layout(const fr__layout *a, const fr__layout *b)
{
    if (!a->desc || !b->desc) return a->desc == b->desc;
    return dnnl_memory_desc_equal(a->desc, b->desc);
}

fr_status fr__cpu_sum(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    bool is_mixed = !have_same_layout(spec->x[0], spec->x[1]);
    if (is_mixed || (spec->plain_output && spec->x[0]->desc))
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_sum, out);
    bool has_relu = fr__group_has(spec, FR_OP_RELU);
    activation *act =
        (activation *)fr__kernel_new(spec, arena, sizeof *act, has_relu ? &add_relu_ops : &add_ops);
    if (!act) return FR_NO_MEMORY;
    fr__kernel *k = &act->k;
    k->y = *spec->x[0];
    act->n = fr__layout_count(&k->y);
    act->forward = has_relu ? add_relu_forward : add_forward;
    act->backward = relu_backward;
    k->needs_y = has_relu;
    k->pass_dx = 3;
    k->can_overwrite_x0 = true;
    *out = k;
    return FR_OK;
}
