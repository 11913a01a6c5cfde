/* op.h -- the interface between operators and the graph: one const record and one rule each.
 *
 * The rule (infer) receives a node with the caller's operator, inputs and attributes. It checks
 * them, fills in defaults, and writes the output shape, the parameters and the work. Attributes may
 * come from a user's file, so a rule must handle any value. The graph checks the sizes of output
 * and parameters afterwards, so a rule only has to keep its own arithmetic from overflowing: sizes
 * that fr__op_size has accepted fit in 31 bits. */
#ifndef FR_GRAPH_OP_H
#define FR_GRAPH_OP_H

#include <forerun/graph.h>

#define FR_MAX_SIZE INT32_MAX           /* of one dimension */
#define FR_MAX_COUNT ((int64_t)1 << 36) /* numbers in one tensor of one sample */
#define FR_MAX_NODES (1 << 20)          /* limited by the 24 bits of random streams */

/* A parameter that a rule declares; its name is "node.suffix". */
typedef struct fr__param_rule {
    const char *suffix;
    fr_shape shape;
    fr_init init; /* resolved */
    bool is_buffer;
} fr__param_rule;

typedef struct fr__infer {
    fr_ctx *ctx;
    fr_node *node; /* name, op, attrs and inputs are set; the rule fills the rest */
    const fr_node *in[FR_MAX_INPUTS]; /* inputs; entries beyond n_inputs are NULL */
    fr__param_rule params[FR_MAX_PARAMS];
    int n_params;
} fr__infer;

typedef struct fr__op_rule {
    int min_inputs, max_inputs;
    fr_status (*infer)(fr__infer *t);
} fr__op_rule;

/* Rule of an operator; never NULL for a valid one. */
const fr__op_rule *fr__op_rule_of(fr_operator op);
const char *fr__op_about(fr_operator op); /* "(C, H, W) -> (out, H', W')" */

/* FR_INVALID with "node NAME (OPERATOR): text". */
fr_status fr__op_fail(const fr__infer *t, const char *format, ...) FR_PRINTF(2, 3);
/* Is a size attribute in 1 .. FR_MAX_SIZE? */
fr_status fr__op_size(const fr__infer *t, const char *attr, int64_t value);
/* Does input i have this type and between min and max dimensions? */
fr_status fr__op_input(const fr__infer *t, int i, fr_dtype dtype, int min_dims, int max_dims);
/* Is input i, if given, a length: one int32 per sample? */
fr_status fr__op_length(const fr__infer *t, int i);
/* Can weight_init be resolved? */
fr_status fr__op_init(const fr__infer *t);

/* weight_init for a matrix with these fans; `preset` is the meaning of DEFAULT. */
fr_init fr__op_weight_init(const fr__infer *t, fr_init preset, double fan_in, double fan_out);
/* Initial values of its bias: uniform if weight_init is DEFAULT, else zero. */
fr_init fr__op_bias_init(const fr__infer *t, double fan_in);
fr_init fr__op_uniform_init(double fan_in); /* in +-1/sqrt(fan_in) */

void fr__op_param(fr__infer *t, const char *suffix, fr_shape shape, fr_init init, bool is_buffer);
/* Set the output to float with this shape; fr__op_moved: to the type of the first input. */
void fr__op_output(fr__infer *t, fr_shape shape);
void fr__op_moved(fr__infer *t, fr_shape shape);
void fr__op_flops(fr__infer *t, double forward, double back_input, double back_weight);

fr_status fr__infer_input(fr__infer *t);
fr_status fr__infer_linear(fr__infer *t);
fr_status fr__infer_matmul(fr__infer *t);
fr_status fr__infer_conv2d(fr__infer *t);
fr_status fr__infer_embedding(fr__infer *t);
fr_status fr__infer_attention(fr__infer *t);
fr_status fr__infer_cross_attention(fr__infer *t);
fr_status fr__infer_sdpa(fr__infer *t);
fr_status fr__infer_lstm(fr__infer *t);
fr_status fr__infer_batch_norm(fr__infer *t);
fr_status fr__infer_layer_norm(fr__infer *t);
fr_status fr__infer_activation(fr__infer *t);
fr_status fr__infer_binary(fr__infer *t);
fr_status fr__infer_softmax(fr__infer *t);
fr_status fr__infer_group_norm(fr__infer *t);
fr_status fr__infer_rope(fr__infer *t);
fr_status fr__infer_dropout(fr__infer *t);
fr_status fr__infer_pool(fr__infer *t);
fr_status fr__infer_global_pool(fr__infer *t);
fr_status fr__infer_add(fr__infer *t);
fr_status fr__infer_concat(fr__infer *t);
fr_status fr__infer_flatten(fr__infer *t);
fr_status fr__infer_slice(fr__infer *t);
fr_status fr__infer_select(fr__infer *t);
fr_status fr__infer_transpose(fr__infer *t);
fr_status fr__infer_reshape(fr__infer *t);
fr_status fr__infer_pad(fr__infer *t);
fr_status fr__infer_reverse_time(fr__infer *t);
fr_status fr__infer_time(fr__infer *t);
fr_status fr__infer_cross_entropy(fr__infer *t);
fr_status fr__infer_distance(fr__infer *t);

/* Output length of a window that slides over `in` numbers; a failure names the attributes. */
fr_status fr__op_window(const fr__infer *t, int axis, int64_t in, const int kernel[2],
                        const int stride[2], const int pad[2], int64_t *out);

#endif
