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
#define FR_TARGET_IGNORE (-1) /* a target that counts for nothing */

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
    X(SDPA, "sdpa", "q (T, D), k (S, E), v (S, E) [, mask (..., S)] [, length of k ()] -> (T, D)") \
    X(LSTM, "lstm", "(T, D) -> (T, H), or (T, P) with a projection")                               \
    X(REVERSE_TIME, "reverse_time", "(T, ...) [, length ()] -> same")                              \
    X(MEAN_TIME, "mean_time", "(T, D) [, length ()] -> (D)")                                       \
    X(LAST_TIME, "last_time", "(T, D) [, length ()] -> (D)")                                       \
    X(CROSS_ENTROPY, "cross_entropy", "logits (..., K), target (...) -> (3)")

typedef enum fr_operator {
#define FR_X(name, text, about) FR_OP_##name,
    FR_OPERATOR_LIST(FR_X)
#undef FR_X
        FR_OPERATOR_COUNT
} fr_operator;

/* How a parameter starts. DEFAULT: uniform in +-1/sqrt(fan_in) for weights and biases
 * of linear, conv2d and lstm; N(0,1)*0.02 for embeddings; ones and zeros for norms. */
typedef enum fr_init_kind {
    FR_INIT_DEFAULT,
    FR_INIT_ZEROS,
    FR_INIT_ONES,
    FR_INIT_NORMAL,  /* mean 0, standard deviation `scale` */
    FR_INIT_UNIFORM, /* in (-scale, scale) */
    FR_INIT_HE_OUT,  /* normal, sqrt(2 / fan_out): convolutions before a relu */
    FR_INIT_LECUN    /* normal, sqrt(1 / fan_in): self-normalising networks */
} fr_init_kind;

typedef struct fr_init {
    fr_init_kind kind;
    float scale;
} fr_init;

/* Attributes of a node; zero means the default given in the comment.
 * weight_init applies to the weight (matrices); with one other than DEFAULT, biases start at zero.
 */
typedef struct fr_attrs {
    fr_init weight_init;
    union {
        struct {
            fr_shape shape;
            fr_dtype dtype;
        } input;
        struct {
            int64_t out;
            bool no_bias;
        } linear;
        struct {
            int64_t out;
            int kernel[2]; /* height, width; required */
            int stride[2]; /* 1 */
            int pad[2];    /* 0 */
            int groups;    /* 1 */
            bool no_bias;
        } conv2d;
        struct {
            int kernel[2]; /* required */
            int stride[2]; /* kernel */
            int pad[2];    /* 0; avg_pool counts padding as zeros unless count_valid */
            bool count_valid;
        } pool;
        struct {
            float eps;      /* 1e-5 */
            float momentum; /* batch_norm: 0.1, weight of the new value in running statistics */
        } norm;
        struct {
            float p; /* probability to drop, 0 <= p < 1 */
        } dropout;
        struct {
            int64_t vocab, width;
            int64_t positions; /* 0: none; else at least T */
        } embedding;
        struct {
            int heads;   /* required, divides D */
            bool causal; /* not of cross_attention */
            /* Of sdpa: */
            int kv_heads; /* heads of k and v, each for heads / kv_heads of q; heads */
            int window;   /* with causal: keys that a query sees, itself included; 0: all */
            float scale;  /* of scores; 1/sqrt(D / heads) */
        } attention;
        struct {
            int64_t hidden;
            int64_t projection; /* 0: none; else the output is this wide, and fed back so */
        } lstm;
        struct {
            int axis; /* dimension of a sample along which inputs are put side by side */
        } concat;
        struct {
            int axis;
            int64_t from, to; /* steps of the axis; from < to */
        } slice;
        struct {
            int axis;
            int64_t index; /* negative: from the end */
        } select;
        struct {
            int order[FR_MAX_DIMS]; /* dimension i of the output is order[i] of the input */
        } transpose;
        struct {
            fr_shape shape; /* one dimension may be -1: the rest */
        } reshape;
        struct {
            int64_t before[FR_MAX_DIMS], after[FR_MAX_DIMS]; /* numbers added to each dimension */
            float value;
        } pad;
        struct {
            float label_smoothing; /* 0 <= e < 1 */
            bool has_ignore;       /* skip targets equal to ignore_index too */
            int32_t ignore_index;
        } loss;
    };
} fr_attrs;

FR_API size_t fr_dtype_bytes(fr_dtype type);      /* of one element */
FR_API int64_t fr_shape_count(const fr_shape *s); /* product of dimensions; 1 for n_dims 0 */
FR_API bool fr_shape_equal(const fr_shape *a, const fr_shape *b);
/* "(3, 32, 32)" into text. Returns text. */
FR_API const char *fr_shape_text(const fr_shape *s, char *text, size_t room);
FR_API const char *fr_operator_name(fr_operator op);
FR_API bool fr_operator_parse(const char *name, fr_operator *op);

#ifdef __cplusplus
}
#endif
#endif
