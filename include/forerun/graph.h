/* graph.h -- a model as a DAG of named operators.
 *
 * Nodes are added in topological order (an input must exist before its consumer),
 * so node indices are a topological order and any contiguous range of indices is a
 * convex part: a pipeline stage. Shapes are those of ONE sample; the batch is a
 * property of a program that runs the graph, not of the graph. A graph is built by
 * one thread; after fr_graph_finish it is immutable and may be read by any thread. */
#ifndef FORERUN_GRAPH_H
#define FORERUN_GRAPH_H

#include <forerun/attrs.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FR_MAX_INPUTS 64 /* of a node */
#define FR_MAX_PARAMS 5  /* of a node, buffers included */

typedef struct fr_param {
    const char
        *name; /* node name + ".weight", ".bias", ".weight_ih", ".position", ".running_mean"... */
    fr_shape shape;
    fr_init init; /* resolved: never DEFAULT, HE_OUT or LECUN */
    int node;
    int tied_to;    /* parameter that holds the values, or -1 */
    bool has_ties;  /* others are tied to it */
    bool is_buffer; /* running statistics: saved, not trained */
    bool is_frozen; /* never updated (fr_graph_freeze); a tied one is as its owner */
} fr_param;

typedef struct fr_node {
    const char *name;
    fr_operator op;
    int n_inputs, n_params;
    const int *inputs;    /* node indices, all smaller than this node's */
    const int *params;    /* parameter indices: trained ones first, then buffers */
    fr_attrs attrs;       /* defaults filled in */
    fr_shape shape;       /* of one sample of the output */
    fr_dtype dtype;       /* of the stored values; their gradients have the same */
    bool needs_grad;      /* a parameter that is trained and not frozen is at or above it */
    double flops_forward; /* of one sample; a multiply-add counts 2 */
    double flops_back_input;
    double flops_back_weight;
} fr_node;

typedef struct fr_graph fr_graph;

FR_API FR_MUST_USE fr_status fr_graph_create(fr_ctx *ctx, const char *name, fr_graph **out);
FR_API void fr_graph_free(fr_graph *g);
FR_API const char *fr_graph_name(const fr_graph *g);

/* Add a node; shape inference happens here, and an error names the node, what it got
 * and what it needs. attrs may be NULL. Returns the new index, or -1 with the error in the
 * context; a -1 among the inputs is passed on as -1, so a builder may check once, at finish. */
FR_API int fr_graph_add(fr_graph *g, fr_operator op, const char *name, const fr_attrs *attrs,
                        int n_inputs, const int *inputs);

/* Let parameter `name` of a later node share the values of an earlier one of the same
 * shape. Gradients are kept apart and summed at the update. Before fr_graph_finish, which
 * fails if this did. */
FR_API fr_status fr_graph_tie(fr_graph *g, const char *name, const char *owner);

/* Store the values of a node, and their gradients, as `type`: FR_F32, which all have at first, or
 * FR_BF16. INPUT nodes, integers and the loss keep their types. Whether a program can be made of it
 * depends on the backend. Before fr_graph_finish, which fails if this did. */
FR_API fr_status fr_graph_store(fr_graph *g, int node, fr_dtype type);

/* The type of the weights that passes read, and that every node stores its values as which has a
 * choice: FR_F32, as at first, or FR_BF16. Weights are updated, kept and exchanged in FR_F32, and
 * so are their gradients; bf16 is a copy of them. Nodes added later follow; fr_graph_store may
 * change single ones afterwards. */
FR_API fr_status fr_graph_set_precision(fr_graph *g, fr_dtype type);
FR_API fr_dtype fr_graph_precision(const fr_graph *g);

/* The same nodes and ties with this precision and, if types is not NULL, node i stored as types[i]
 * (its own type where it has no choice). g is finished, and so is *out, which the caller owns.
 * Failures go to ctx. */
FR_API FR_MUST_USE fr_status fr_graph_retype(fr_ctx *ctx, const fr_graph *g, fr_dtype precision,
                                             const fr_dtype *types, fr_graph **out);

/* The same graph, in which the parameters with frozen[param] keep their values: a training step
 * computes no gradients for them, and none that only they would need. Those tied to another and
 * running statistics are as they are without it; fr_graph_retype keeps what is frozen. */
FR_API FR_MUST_USE fr_status fr_graph_freeze(fr_ctx *ctx, const fr_graph *g, const bool *frozen,
                                             fr_graph **out);

/* No more changes. Fails if anything failed before. */
FR_API FR_MUST_USE fr_status fr_graph_finish(fr_graph *g);

FR_API int fr_graph_n_nodes(const fr_graph *g);
FR_API const fr_node *fr_graph_node(const fr_graph *g, int node);
/* Bytes of the values of one sample, row-major, as they are stored. */
FR_API size_t fr_node_bytes(const fr_node *node);
FR_API int fr_graph_find(const fr_graph *g, const char *name); /* -1: none */
FR_API int fr_graph_n_params(const fr_graph *g);
FR_API const fr_param *fr_graph_param(const fr_graph *g, int param);
FR_API int fr_graph_find_param(const fr_graph *g, const char *name);
/* The node of this operator with the highest index, or -1 (for the last attention...). */
FR_API int fr_graph_find_op(const fr_graph *g, fr_operator op);
/* Which input of a node is the number of valid steps of each sample; -1: none. */
FR_API int fr_graph_length_input(const fr_graph *g, const fr_node *node);
FR_API int fr_graph_find_loss(const fr_graph *g); /* likewise, of any loss */
/* Numbers trained, ties counted once, buffers left out. */
FR_API int64_t fr_graph_param_count(const fr_graph *g);

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
FR_API FR_MUST_USE fr_status fr_graph_cut(const fr_graph *g, int n_cuts, const int *cuts,
                                          fr_stage *out);
/* The stage of nodes first .. last - 1 alone. Failures go to ctx, not to that of the graph. */
FR_API FR_MUST_USE fr_status fr_graph_stage(fr_ctx *ctx, const fr_graph *g, int first, int last,
                                            fr_stage *out);

/* Cuts for n_stages stages (n_stages - 1 of them) that make the largest stage's work as small as it
 * can be; among such, those that fewer bytes cross. Work: FLOPs of forward and backward, and some
 * for the memory that a node moves. Stages without trained parameters are avoided where possible.
 * Names how many stages are possible if there are fewer. */
FR_API FR_MUST_USE fr_status fr_graph_balance(const fr_graph *g, int n_stages, int *cuts);
/* The same for a V, where stages s and n_stages - 1 - s are on one worker: workers are balanced. */
FR_API FR_MUST_USE fr_status fr_graph_balance_v(const fr_graph *g, int n_stages, int *cuts);
/* Cuts before the named nodes, in the order of the model. */
FR_API FR_MUST_USE fr_status fr_graph_find_cuts(const fr_graph *g, int n, const char *const *names,
                                                int *cuts);

typedef struct fr_stage_link {
    int from, to; /* stages */
} fr_stage_link;
/* Which stages of a cut talk to which. Forward: `to` reads a value that is made in `from` (INPUT
 * nodes are fed, not sent). Backward, for each value that needs a gradient: from its last reader to
 * the one before it, and so on, from its first reader to its maker. Sorted, each pair once; room
 * for n * (n - 1) / 2 links in either list. */
FR_API FR_MUST_USE fr_status fr_graph_links(const fr_graph *g, int n_stages, const fr_stage *stages,
                                            int *n_forward, fr_stage_link *forward, int *n_backward,
                                            fr_stage_link *backward);

/* Bytes of one sample that cross from nodes < cut to nodes >= cut (INPUT nodes not counted); -1
 * before fr_graph_finish. */
FR_API int64_t fr_graph_cut_bytes(const fr_graph *g, int cut);

/* The last node that reads a node, and the one node that reads it, and reads it once; -1: none (or
 * several), or before fr_graph_finish. */
FR_API int fr_graph_last_reader(const fr_graph *g, int node);
FR_API int fr_graph_sole_reader(const fr_graph *g, int node);

/* True if the only reader of every layer with weights is a batch norm, the last layer excepted: the
 * scale of such weights makes no difference. Layers: nodes with parameters of two or more
 * dimensions. */
FR_API bool fr_graph_is_batch_normed(const fr_graph *g);

/* Does stage_of[node] (any labelling) make every stage convex, i.e. is the graph of stages acyclic?
 * INPUT nodes do not count. False before fr_graph_finish. */
FR_API bool fr_graph_is_convex(const fr_graph *g, const int *stage_of);

/* Starting values of a parameter, a pure function of seed and parameter: plain layout,
 * fr_shape_count(&param->shape) floats. */
FR_API void fr_graph_init_param(const fr_graph *g, int param, uint64_t seed, float *values);
/* Numbers first .. first + n - 1 of them, for threads that share the work. `first` is a multiple of
 * 4; values[0] is number `first`. */
FR_API void fr_graph_init_range(const fr_graph *g, int param, uint64_t seed, int64_t first,
                                int64_t n, float *values);

#ifdef __cplusplus
}
#endif
#endif
