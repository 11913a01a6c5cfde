/* graph.h -- a model as a DAG of named operators.
 *
 * Nodes are added in topological order (an input must exist before its consumer),
 * so node indices are a topological order and any contiguous range of indices is a
 * convex part: a pipeline stage. Shapes are those of ONE sample; the batch is a
 * property of a program that runs the graph, not of the graph. A graph is built by
 * one thread; after fr_graph_finish it is immutable and may be read by any thread. */
#ifndef FORERUN_GRAPH_H
#define FORERUN_GRAPH_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FR_MAX_DIMS 4
#define FR_MAX_INPUTS 8       /* of a node */
#define FR_MAX_PARAMS 4       /* of a node, buffers included */
#define FR_TARGET_IGNORE (-1) /* a target that counts for nothing */

typedef enum fr_dtype { FR_F32, FR_I32 } fr_dtype;

typedef struct fr_shape {
    int n_dims; /* 0: one number a sample */
    int64_t dim[FR_MAX_DIMS];
} fr_shape;

#define FR_SHAPE(...)                                                                \
    ((fr_shape){.n_dims = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .dim = {__VA_ARGS__}})

/* X(enumerator, name in files, its inputs and output; T time, D features, C channels) */
#define FR_OPERATOR_LIST(X)                                                  \
    X(INPUT, "input", "data fed from outside")                               \
    X(LINEAR, "linear", "(..., in) -> (..., out)")                           \
    X(CONV2D, "conv2d", "(C, H, W) -> (out, H', W')")                        \
    X(BATCH_NORM, "batch_norm", "(C, H, W) or (C) -> same")                  \
    X(LAYER_NORM, "layer_norm", "(..., D) -> same, over the last dimension") \
    X(RELU, "relu", "any -> same")                                           \
    X(GELU, "gelu", "any -> same (tanh form)")                               \
    X(SELU, "selu", "any -> same")                                           \
    X(TANH, "tanh", "any -> same")                                           \
    X(SIGMOID, "sigmoid", "any -> same")                                     \
    X(DROPOUT, "dropout", "any -> same")                                     \
    X(ALPHA_DROPOUT, "alpha_dropout", "any -> same (for selu networks)")     \
    X(MAX_POOL, "max_pool", "(C, H, W) -> (C, H', W')")                      \
    X(AVG_POOL, "avg_pool", "(C, H, W) -> (C, H', W')")                      \
    X(GLOBAL_POOL, "global_pool", "(C, H, W) -> (C), the mean")              \
    X(ADD, "add", "a, b -> a + b")                                           \
    X(CONCAT, "concat", "(C1, ...), (C2, ...), ... -> (C1+C2+..., ...)")     \
    X(FLATTEN, "flatten", "any -> (all)")                                    \
    X(EMBEDDING, "embedding", "ids (T) -> (T, D), learned positions added")  \
    X(ATTENTION, "attention", "q|k|v (T, 3D) [, length ()] -> (T, D)")       \
    X(LSTM, "lstm", "(T, D) -> (T, H)")                                      \
    X(MEAN_TIME, "mean_time", "(T, D) [, length ()] -> (D)")                 \
    X(LAST_TIME, "last_time", "(T, D) [, length ()] -> (D)")                 \
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
            int heads; /* required, divides D */
            bool causal;
        } attention;
        struct {
            int64_t hidden;
        } lstm;
        struct {
            float label_smoothing; /* 0 <= e < 1 */
            bool has_ignore;       /* skip targets equal to ignore_index too */
            int32_t ignore_index;
        } loss;
    };
} fr_attrs;

typedef struct fr_param {
    const char
        *name; /* node name + ".weight", ".bias", ".weight_ih", ".position", ".running_mean"... */
    fr_shape shape;
    fr_init init; /* resolved: never DEFAULT, HE_OUT or LECUN */
    int node;
    int tied_to;    /* parameter that holds the values, or -1 */
    bool is_buffer; /* running statistics: saved, not trained */
} fr_param;

typedef struct fr_node {
    const char *name;
    fr_operator op;
    fr_attrs attrs; /* defaults filled in */
    int n_inputs;
    int inputs[FR_MAX_INPUTS]; /* node indices, all smaller than this node's */
    int n_params;
    int params[FR_MAX_PARAMS]; /* parameter indices: trained ones first, then buffers */
    fr_shape shape;            /* of one sample of the output */
    fr_dtype dtype;
    bool needs_grad;      /* a trained parameter is at or above it */
    double flops_forward; /* of one sample; a multiply-add counts 2 */
    double flops_back_input;
    double flops_back_weight;
} fr_node;

typedef struct fr_graph fr_graph;

fr_status fr_graph_create(fr_ctx *ctx, const char *name, fr_graph **out);
void fr_graph_free(fr_graph *g);
const char *fr_graph_name(const fr_graph *g);

/* Add a node; shape inference happens here, and an error names the node, what it got
 * and what it needs. attrs may be NULL. Returns the new index, or -1 with the error in the
 * context; a -1 among the inputs is passed on as -1, so a builder may check once, at finish. */
int fr_graph_add(fr_graph *g, fr_operator op, const char *name, const fr_attrs *attrs, int n_inputs,
                 const int *inputs);

/* Let parameter `name` of a later node share the values of an earlier one of the same
 * shape. Gradients are kept apart and summed at the update. Before fr_graph_finish. */
fr_status fr_graph_tie(fr_graph *g, const char *name, const char *owner);

/* No more changes. Fails if anything failed before. */
fr_status fr_graph_finish(fr_graph *g);

int fr_graph_n_nodes(const fr_graph *g);
const fr_node *fr_graph_node(const fr_graph *g, int node);
int fr_graph_find(const fr_graph *g, const char *name); /* -1: none */
int fr_graph_n_params(const fr_graph *g);
const fr_param *fr_graph_param(const fr_graph *g, int param);
int fr_graph_find_param(const fr_graph *g, const char *name);
/* The node of this operator with the highest index, or -1 (for the loss, the last attention...). */
int fr_graph_find_op(const fr_graph *g, fr_operator op);
/* Numbers trained, ties counted once, buffers left out. */
int64_t fr_graph_param_count(const fr_graph *g);

int64_t fr_shape_count(const fr_shape *s); /* product of dimensions; 1 for n_dims 0 */
bool fr_shape_equal(const fr_shape *a, const fr_shape *b);
/* "(3, 32, 32)" into text. Returns text. */
const char *fr_shape_text(const fr_shape *s, char *text, size_t room);
const char *fr_operator_name(fr_operator op);
bool fr_operator_parse(const char *name, fr_operator *op);

/* A stage: nodes first .. last-1, and what crosses its borders (node indices).
 * inputs: made outside and used inside, INPUT nodes included wherever they are used;
 * outputs: made inside and used outside, or used nowhere. */
typedef struct fr_stage {
    int first, last;
    int n_inputs, n_outputs;
    const int *inputs, *outputs; /* owned by the graph */
} fr_stage;

/* Cut before each of n nodes (ascending, 0 < cut < n_nodes), giving n + 1 stages in `out`.
 * INPUT nodes belong to no stage's work; they are fed where they are used. A stage of nothing else
 * is refused. After fr_graph_finish, from any thread. */
fr_status fr_graph_cut(fr_graph *g, int n_cuts, const int *cuts, fr_stage *out);

/* Bytes of one sample that cross from nodes < cut to nodes >= cut (INPUT nodes not counted); -1
 * before fr_graph_finish. */
int64_t fr_graph_cut_bytes(const fr_graph *g, int cut);

/* Does stage_of[node] (any labelling) make every stage convex, i.e. is the graph of stages acyclic?
 * INPUT nodes do not count. False before fr_graph_finish. */
bool fr_graph_is_convex(const fr_graph *g, const int *stage_of);

/* Starting values of a parameter, a pure function of seed and parameter: plain layout,
 * fr_shape_count(&param->shape) floats. */
void fr_graph_init_param(const fr_graph *g, int param, uint64_t seed, float *values);

#ifdef __cplusplus
}
#endif
#endif
