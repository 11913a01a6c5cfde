/* operators.h -- what a node of a model can be: shapes, operators and their attributes.
 *
 * Plain values, free to copy and share. Shapes are those of one sample: the batch belongs to the
 * program that runs a graph. */
#ifndef FORERUN_OPERATORS_H
#define FORERUN_OPERATORS_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FR_MAX_DIMS 4
#define FR_TARGET_IGNORE (-1) /* a class that counts for nothing; of floats, NaN does not count */

/* Element types: of data, of a node's values as they are stored, of memory on a device. */
typedef enum fr_dtype { FR_F32, FR_I32, FR_BF16 } fr_dtype;

typedef struct fr_shape {
    int n_dims; /* 0: one number a sample */
    int64_t dim[FR_MAX_DIMS];
} fr_shape;

#define FR_SHAPE(...)                                                                \
    ((fr_shape){.n_dims = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .dim = {__VA_ARGS__}})

/* X(enumerator, name in files, its inputs and output; T time, D features, C channels) */
#define FR_OPERATOR_LIST(X)                                                                        \
    X(INPUT, "input", "data fed from outside")                                                     \
    X(LINEAR, "linear", "(..., in) -> (..., out)")                                                 \
    X(MATMUL, "matmul", "(..., M, K), (..., K, N) -> (..., M, N)")                                 \
    X(CONV2D, "conv2d", "(C, H, W) -> (out, H', W')")                                              \
    X(BATCH_NORM, "batch_norm", "(C, H, W) or (C) -> same")                                        \
    X(LAYER_NORM, "layer_norm", "(..., D) -> same, over the last dimension")                       \
    X(RELU, "relu", "any -> same")                                                                 \
    X(GELU, "gelu", "any -> same (tanh form)")                                                     \
    X(SELU, "selu", "any -> same")                                                                 \
    X(TANH, "tanh", "any -> same")                                                                 \
    X(SIGMOID, "sigmoid", "any -> same")                                                           \
    X(SILU, "silu", "any -> same")                                                                 \
    X(GELU_EXACT, "gelu_exact", "any -> same (erf form, the default of PyTorch)")                  \
    X(RELU6, "relu6", "any -> same")                                                               \
    X(HARDSWISH, "hardswish", "any -> same")                                                       \
    X(HARDSIGMOID, "hardsigmoid", "any -> same")                                                   \
    X(LEAKY_RELU, "leaky_relu", "any -> same")                                                     \
    X(ELU, "elu", "any -> same")                                                                   \
    X(MUL, "mul", "a, b -> a * b, b repeated where it has 1 or no dimension")                      \
    X(SUBTRACT, "subtract", "a, b -> a - b, b repeated as by mul")                                 \
    X(DROPOUT, "dropout", "any -> same")                                                           \
    X(ALPHA_DROPOUT, "alpha_dropout", "any -> same (for selu networks)")                           \
    X(MAX_POOL, "max_pool", "(C, H, W) -> (C, H', W')")                                            \
    X(AVG_POOL, "avg_pool", "(C, H, W) -> (C, H', W')")                                            \
    X(GLOBAL_POOL, "global_pool", "(C, H, W) -> (C), the mean")                                    \
    X(ADD, "add", "a, b -> a + b")                                                                 \
    X(CONCAT, "concat", "(C1, ...), (C2, ...), ... -> (C1+C2+..., ...)")                           \
    X(SLICE, "slice", "(T, ...) -> steps from .. to-1 of an axis: (to - from, ...)")               \
    X(SELECT, "select", "(T, ...) -> one step of an axis: (...)")                                  \
    X(TRANSPOSE, "transpose", "any -> its dimensions in another order")                            \
    X(RESHAPE, "reshape", "any -> the same numbers in another shape")                              \
    X(PAD, "pad", "any -> more around it, a constant")                                             \
    X(FLATTEN, "flatten", "any -> (all)")                                                          \
    X(EMBEDDING, "embedding", "ids (T) -> (T, D), learned positions added")                        \
    X(ATTENTION, "attention", "q|k|v (T, 3D) [, length ()] -> (T, D)")                             \
    X(CROSS_ATTENTION, "cross_attention", "q (T, D), k|v (S, 2D) [, length of k|v ()] -> (T, D)")  \
    X(LSTM, "lstm", "(T, D) -> (T, H), or (T, P) with a projection")                               \
    X(REVERSE_TIME, "reverse_time", "(T, ...) [, length ()] -> same")                              \
    X(MEAN_TIME, "mean_time", "(T, D) [, length ()] -> (D)")                                       \
    X(LAST_TIME, "last_time", "(T, D) [, length ()] -> (D)")                                       \
    X(SDPA, "sdpa", "q (T, D), k (S, E), v (S, E) [, mask (..., S)] [, length of k ()] -> (T, D)") \
    X(SOFTMAX, "softmax", "(..., D) -> same, over the last dimension")                             \
    X(RMS_NORM, "rms_norm", "(..., D) -> same, over the last dimension")                           \
    X(GROUP_NORM, "group_norm", "(C, ...) -> same, over groups of channels")                       \
    X(ROPE, "rope", "(T, D) -> same, pairs of numbers rotated by their position")                  \
    X(STOCHASTIC_DEPTH, "stochastic_depth", "any -> same, whole samples dropped")                  \
    X(CROSS_ENTROPY, "cross_entropy", "logits (..., K), target (...) -> (3)")                      \
    X(MSE, "mse", "any, target of the same shape -> (3)")                                          \
    X(SMOOTH_L1, "smooth_l1", "any, target of the same shape -> (3)")                              \
    X(BCE, "bce", "logits, target of the same shape in 0 .. 1 -> (3)")                             \
    X(COSINE, "cosine", "(..., D), target (..., D) -> (3)")

typedef enum fr_operator {
#define FR_X(name, text, about) FR_OP_##name,
    FR_OPERATOR_LIST(FR_X)
#undef FR_X
        FR_OPERATOR_COUNT
} fr_operator;

FR_API size_t fr_dtype_bytes(fr_dtype type);      /* of one element */
FR_API int64_t fr_shape_count(const fr_shape *s); /* product of dimensions; 1 for n_dims 0 */
FR_API bool fr_shape_equal(const fr_shape *a, const fr_shape *b);
/* Equal without the ones at their ends: a number may be () or (1). */
FR_API bool fr_shape_fits(const fr_shape *a, const fr_shape *b);
/* "(3, 32, 32)" into text. Returns text. */
FR_API const char *fr_shape_text(const fr_shape *s, char *text, size_t room);
FR_API const char *fr_operator_name(fr_operator op);
FR_API bool fr_operator_parse(const char *name, fr_operator *op);
/* Reads an output and its target: classes (cross_entropy) or floats. */
FR_API bool fr_operator_is_loss(fr_operator op);

#ifdef __cplusplus
}
#endif
#endif
