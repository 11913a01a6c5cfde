/* eltwise.c -- activations, and add with or without a following relu.
 *
 * They work on any layout, padding included. An activation's gradient is its dy times the slope,
 * computed in place if dy has no other user, and passed on: no kernel computes a dx. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/vmath.h"
#include "backend/dropout.h"

#define SELU_SCALE ((float)FR_SELU_SCALE)
#define SELU_ALPHA ((float)FR_SELU_ALPHA)

typedef struct sweep {
    fr__source a, b;
    fr__sink out;
    float alpha; /* of leaky_relu and elu */
} sweep;

#define RELU6(x) ((x) < 0.0f ? 0.0f : (x) > 6.0f ? 6.0f : (x))
#define SIXTH 0.16666667f

/* An output is its input (in place) or does not overlap it. `omp simd` asserts this; a check at run
 * time would find them equal and take the scalar loop. X(name, value at x, slope given y, or given
 * x as y where `sweeps` says so) */
#define ACTIVATIONS(X)                                                                \
    X(relu, x<0.0f ? 0.0f : x, y> 0.0f ? 1.0f : 0.0f)                                 \
    X(gelu, fr__gelu(x), fr__gelu_slope(y))                                           \
    X(gelu_exact, fr__gelu_exact(x), fr__gelu_exact_slope(y))                         \
    X(silu, x *fr__sigmoid(x), fr__silu_slope(y))                                     \
    X(relu6, RELU6(x), ((y > 0.0f) & (y < 6.0f)) ? 1.0f : 0.0f)                       \
    X(hardswish, x *(RELU6(x + 3.0f) * SIXTH),                                        \
      y <= -3.0f  ? 0.0f                                                              \
      : y >= 3.0f ? 1.0f                                                              \
                  : y / 3.0f + 0.5f)                                                  \
    X(hardsigmoid, RELU6(x + 3.0f) * SIXTH, ((y > 0.0f) & (y < 1.0f)) ? SIXTH : 0.0f) \
    X(leaky_relu, x<0.0f ? alpha * x : x, y> 0.0f ? 1.0f : alpha)                     \
    X(elu, x > 0.0f ? x : alpha * (fr__exp(x) - 1.0f), y > 0.0f ? 1.0f : y + alpha)   \
    X(selu, SELU_SCALE *(x > 0.0f ? x : SELU_ALPHA * (fr__exp(x) - 1.0f)),            \
      y > 0.0f ? SELU_SCALE : y + SELU_SCALE * SELU_ALPHA)                            \
    X(tanh, fr__tanh(x), 1.0f - y * y)                                                \
    X(sigmoid, fr__sigmoid(x), y *(1.0f - y))

#define DEFINE(name, value, slope)                                     \
    FR_SIMD_RANGE(name##_forward)                                      \
    {                                                                  \
        const sweep *s = arg;                                          \
        const float alpha = s->alpha;                                  \
        (void)alpha;                                                   \
        float in_room[FR_PIECE], out_room[FR_PIECE];                   \
        for (size_t i = begin, n; i < end; i += n) {                   \
            n = fr__piece(i, end);                                     \
            const float *in = fr__read(s->a, i, n, in_room);           \
            float *out = fr__place(s->out, i, out_room);               \
            _Pragma("omp simd") for (size_t j = 0; j < n; j++)         \
            {                                                          \
                float x = in[j];                                       \
                out[j] = (value);                                      \
            }                                                          \
            fr__store(s->out, i, n, out);                              \
        }                                                              \
    }                                                                  \
    FR_SIMD_RANGE(name##_backward)                                     \
    {                                                                  \
        const sweep *s = arg;                                          \
        const float alpha = s->alpha;                                  \
        (void)alpha;                                                   \
        float dy_room[FR_PIECE], at_room[FR_PIECE], dz_room[FR_PIECE]; \
        for (size_t i = begin, n; i < end; i += n) {                   \
            n = fr__piece(i, end);                                     \
            const float *dy = fr__read(s->a, i, n, dy_room);           \
            const float *at = fr__read(s->b, i, n, at_room);           \
            float *dz = fr__place(s->out, i, dz_room);                 \
            _Pragma("omp simd") for (size_t j = 0; j < n; j++)         \
            {                                                          \
                float y = at[j];                                       \
                dz[j] = dy[j] * (slope);                               \
            }                                                          \
            fr__store(s->out, i, n, dz);                               \
        }                                                              \
    }
ACTIVATIONS(DEFINE)
#undef DEFINE

static const struct {
    fr_range_fn forward, backward;
    bool from_x; /* the slope needs x; otherwise y is enough */
} sweeps[FR_OPERATOR_COUNT] = {
    [FR_OP_RELU] = {relu_forward, relu_backward, false},
    [FR_OP_GELU] = {gelu_forward, gelu_backward, true},
    [FR_OP_SELU] = {selu_forward, selu_backward, false},
    [FR_OP_TANH] = {tanh_forward, tanh_backward, false},
    [FR_OP_SIGMOID] = {sigmoid_forward, sigmoid_backward, false},
    [FR_OP_SILU] = {silu_forward, silu_backward, true},
    [FR_OP_GELU_EXACT] = {gelu_exact_forward, gelu_exact_backward, true},
    [FR_OP_RELU6] = {relu6_forward, relu6_backward, false},
    [FR_OP_HARDSWISH] = {hardswish_forward, hardswish_backward, true},
    [FR_OP_HARDSIGMOID] = {hardsigmoid_forward, hardsigmoid_backward, false},
    [FR_OP_LEAKY_RELU] = {leaky_relu_forward, leaky_relu_backward, false},
    [FR_OP_ELU] = {elu_forward, elu_backward, false},
};

void fr__cpu_activate(fr_device *dev, fr_operator op, fr__source x, fr__sink y, size_t n)
{
    fr__cpu_parallel(dev, n, 1024, sweeps[op].forward, &(sweep){.a = x, .out = y});
}

void fr__cpu_slope(fr_device *dev, fr_operator op, fr__source dy, fr__source at, fr__sink dz,
                   size_t n)
{
    fr__cpu_parallel(dev, n, 1024, sweeps[op].backward, &(sweep){.a = dy, .b = at, .out = dz});
}

/* Whether the gradient of an input is that of the output, type included. */
static bool has_one_type(const fr__kernel_spec *spec)
{
    bool is_one = true;
    for (int i = 0; i < spec->n_inputs; i++) is_one &= spec->x[i]->dtype == spec->y_type;
    return is_one;
}

typedef struct activation {
    fr__kernel k;
    fr_operator op; /* of the slope: relu for an add with a relu */
    bool from_x;    /* its slope needs x */
    float alpha;
    size_t n;
} activation;

static fr_status activation_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const activation *act = (const activation *)k;
    const fr_dtype type = k->y.dtype;
    fr__cpu_parallel(k->dev, act->n, 1024, sweeps[act->op].forward,
                     &(sweep){.a = {a->x[0], type}, .out = {a->y, type}, .alpha = act->alpha});
    return FR_OK;
}

/* dz = dy * slope, and the input's gradient is dz. */
static fr_status activation_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    const activation *act = (const activation *)k;
    const fr_dtype type = k->y.dtype;
    fr__cpu_parallel(k->dev, act->n, 1024, sweeps[act->op].backward,
                     &(sweep){.a = {a->dy, type},
                              .b = {act->from_x ? a->x[0] : a->y, type},
                              .out = {dz, type},
                              .alpha = act->alpha});
    return FR_OK;
}

static const fr__kernel_ops activation_ops = {.forward = activation_forward,
                                              .prepare_dy = activation_prepare_dy};

fr_status fr__cpu_activation(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    if (!has_one_type(spec)) return fr__kernel_in_floats(spec, arena, fr__cpu_activation, out);
    /* The padding of a blocked tensor must stay zero, and sigmoid(0) is not. */
    const fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    bool must_be_plain = spec->plain_output || op == FR_OP_SIGMOID || op == FR_OP_HARDSIGMOID;
    if (must_be_plain && spec->x[0]->desc)
        return fr__cpu_wrap_plain(spec, arena, fr__cpu_activation, out);
    activation *act = (activation *)fr__kernel_new(spec, arena, sizeof *act, &activation_ops);
    if (!act) return FR_NO_MEMORY;
    fr__kernel *k = &act->k;
    k->y = *spec->x[0];
    act->n = fr__layout_count(&k->y);
    act->op = op;
    act->from_x = sweeps[op].from_x;
    act->alpha = k->node->attrs.activation.alpha;
    k->needs_x = act->from_x;
    k->needs_y = !act->from_x;
    k->pass_dx = 1;
    k->can_overwrite_x0 = true;
    *out = k;
    return FR_OK;
}

/* --- add, and add with a relu ----------------------------------------------------------------- */

FR_SIMD_RANGE(add_forward)
{
    const sweep *s = arg;
    float a_room[FR_PIECE], b_room[FR_PIECE], out_room[FR_PIECE];
    for (size_t i = begin, n; i < end; i += n) {
        n = fr__piece(i, end);
        const float *a = fr__read(s->a, i, n, a_room), *b = fr__read(s->b, i, n, b_room);
        float *out = fr__place(s->out, i, out_room);
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = a[j] + b[j];
        fr__store(s->out, i, n, out);
    }
}

FR_SIMD_RANGE(add_relu_forward)
{
    const sweep *s = arg;
    float a_room[FR_PIECE], b_room[FR_PIECE], out_room[FR_PIECE];
    for (size_t i = begin, n; i < end; i += n) {
        n = fr__piece(i, end);
        const float *a = fr__read(s->a, i, n, a_room), *b = fr__read(s->b, i, n, b_room);
        float *out = fr__place(s->out, i, out_room);
#pragma omp simd
        for (size_t j = 0; j < n; j++) {
            float sum = a[j] + b[j];
            out[j] = sum < 0.0f ? 0.0f : sum; /* NaN stays */
        }
        fr__store(s->out, i, n, out);
    }
}

void fr__cpu_add(fr_device *dev, fr__source a, fr__source b, fr__sink sum, size_t n)
{
    fr__cpu_parallel(dev, n, 1024, add_forward, &(sweep){.a = a, .b = b, .out = sum});
}

static fr_status sum_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const activation *act = (const activation *)k;
    const fr_dtype type = k->y.dtype;
    const bool has_relu = act->op == FR_OP_RELU;
    fr__cpu_parallel(k->dev, act->n, 1024, has_relu ? add_relu_forward : add_forward,
                     &(sweep){.a = {a->x[0], type}, .b = {a->x[1], type}, .out = {a->y, type}});
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
    if (!has_one_type(spec)) return fr__kernel_in_floats(spec, arena, fr__cpu_sum, out);
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
    act->op = has_relu ? FR_OP_RELU : FR_OP_ADD;
    k->needs_y = has_relu;
    k->pass_dx = 3;
    k->can_overwrite_x0 = true;
    *out = k;
    return FR_OK;
}
