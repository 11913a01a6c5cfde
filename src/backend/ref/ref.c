/* ref.c -- the `ref` backend's record: host memory, one thread, a maker for each operator. */
#include "backend/ref/ref.h"

#include <stdio.h>

fr_status fr__ref_kernel(const fr__kernel_spec *spec, fr_arena *arena, size_t bytes,
                         const fr__kernel_ops *ops, fr__kernel **out)
{
    fr__kernel *k = *out = fr__kernel_new(spec, arena, bytes, ops);
    if (!k) return fr__no_memory(spec->ctx, bytes, "a kernel");
    k->can_add_dx = UINT64_MAX;
    return FR_OK;
}

fr_status fr__ref_identity(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {0};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->y_is_x0 = true;
    (*out)->pass_dx = 1;
    return FR_OK;
}

static fr_status ref_open(fr_device *dev, const fr_device_desc *desc)
{
    (void)desc;
    dev->n_threads = 1;
    snprintf(dev->about, sizeof dev->about, "plain C, 1 thread");
    return FR_OK;
}

static void ref_close(fr_device *dev) { (void)dev; }

static fr_status ref_sync(fr_device *dev)
{
    (void)dev;
    return FR_OK;
}

static void ref_parallel(fr_device *dev, size_t n, size_t grain, fr_range_fn body, void *arg)
{
    (void)dev, (void)grain;
    if (n) body(arg, 0, n);
}

#define MAKERS(X)                           \
    X(LINEAR, fr__ref_linear)               \
    X(MATMUL, fr__ref_matmul)               \
    X(CONV2D, fr__ref_conv2d)               \
    X(BATCH_NORM, fr__ref_batch_norm)       \
    X(LAYER_NORM, fr__ref_layer_norm)       \
    X(RELU, fr__ref_activation)             \
    X(GELU, fr__ref_activation)             \
    X(SELU, fr__ref_activation)             \
    X(TANH, fr__ref_activation)             \
    X(SIGMOID, fr__ref_activation)          \
    X(SILU, fr__ref_activation)             \
    X(GELU_EXACT, fr__ref_activation)       \
    X(RELU6, fr__ref_activation)            \
    X(HARDSWISH, fr__ref_activation)        \
    X(HARDSIGMOID, fr__ref_activation)      \
    X(LEAKY_RELU, fr__ref_activation)       \
    X(ELU, fr__ref_activation)              \
    X(MUL, fr__ref_binary)                  \
    X(SUBTRACT, fr__ref_binary)             \
    X(SOFTMAX, fr__ref_softmax)             \
    X(RMS_NORM, fr__ref_rms_norm)           \
    X(GROUP_NORM, fr__ref_group_norm)       \
    X(ROPE, fr__ref_rope)                   \
    X(STOCHASTIC_DEPTH, fr__ref_dropout)    \
    X(DROPOUT, fr__ref_dropout)             \
    X(ALPHA_DROPOUT, fr__ref_dropout)       \
    X(MAX_POOL, fr__ref_max_pool)           \
    X(AVG_POOL, fr__ref_avg_pool)           \
    X(GLOBAL_POOL, fr__ref_global_pool)     \
    X(ADD, fr__ref_add)                     \
    X(CONCAT, fr__ref_concat)               \
    X(SLICE, fr__ref_move)                  \
    X(SELECT, fr__ref_move)                 \
    X(TRANSPOSE, fr__ref_move)              \
    X(PAD, fr__ref_move)                    \
    X(RESHAPE, fr__ref_identity)            \
    X(FLATTEN, fr__ref_identity)            \
    X(EMBEDDING, fr__ref_embedding)         \
    X(ATTENTION, fr__ref_attention)         \
    X(CROSS_ATTENTION, fr__ref_attention)   \
    X(SDPA, fr__ref_attention)              \
    X(LSTM, fr__ref_lstm)                   \
    X(REVERSE_TIME, fr__ref_rows)           \
    X(MEAN_TIME, fr__ref_mean_time)         \
    X(LAST_TIME, fr__ref_last_time)         \
    X(CROSS_ENTROPY, fr__ref_cross_entropy) \
    X(MSE, fr__ref_distance)                \
    X(SMOOTH_L1, fr__ref_distance)          \
    X(BCE, fr__ref_distance)                \
    X(COSINE, fr__ref_distance)

static const fr__kernel_maker of_floats[FR_OPERATOR_COUNT] = {
#define ROW(op, maker) [FR_OP_##op] = maker,
    MAKERS(ROW)
#undef ROW
};

static fr_status make(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    return fr__kernel_in_floats(spec, arena, of_floats[op], out);
}

static const fr__kernel_maker makers[FR_OPERATOR_COUNT] = {
#define ROW(op, maker) [FR_OP_##op] = make,
    MAKERS(ROW)
#undef ROW
};

const fr_backend fr__backend_ref = {
    .name = "ref",
    .summary = "plain C, obvious and slow: the oracle of all others",
    .open = ref_open,
    .close = ref_close,
    .makers = makers,
    .has_bf16 = true,
    .is_host = true,
    .alloc = fr__host_alloc,
    .release = fr__host_release,
    .upload = fr__host_copy,
    .download = fr__host_copy,
    .sync = ref_sync,
    .copy = fr__host_copy,
    .convert = fr__host_convert,
    .add = fr__host_add,
    .blend = fr__host_blend,
    .sweep = fr__host_sweep,
    .orthogonalise = fr__ref_orthogonalise,
    .squares = fr__host_squares,
    .tree_sum = fr__host_tree_sum,
    .pick = fr__host_pick,
    .parallel = ref_parallel,
};
