/* ref.h -- shared by the files of the `ref` backend.
 *
 * ref is the oracle: every kernel is the textbook formula in plain loops over plain row-major
 * tensors, sums in double. Nothing is fused, nothing is threaded. Each file holds the kernels of
 * one family, forward and gradients side by side, and the makers that describe them. */
#ifndef FR_BACKEND_REF_REF_H
#define FR_BACKEND_REF_REF_H

#include <string.h>

#include "backend/kernel.h"

/* A kernel of `bytes` whose backward_input can add to any dx. */
fr_status fr__ref_kernel(const fr__kernel_spec *spec, fr_arena *arena, size_t bytes,
                         const fr__kernel_ops *ops, fr__kernel **out);
/* The node does nothing here: its output is its input. */
fr_status fr__ref_identity(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);

fr_status fr__ref_linear(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_matmul(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_conv2d(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_batch_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_layer_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_activation(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_binary(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_softmax(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_rms_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_group_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_rope(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_dropout(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_max_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_avg_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_global_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_add(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_concat(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_embedding(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_attention(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_move(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_rows(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_lstm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_mean_time(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_last_time(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_cross_entropy(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__ref_distance(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);

/* The node that makes input i of a kernel's node. */
static inline const fr_node *fr__ref_input(const fr__kernel *k, int i)
{
    return fr_graph_node(k->graph, k->node->inputs[i]);
}

/* Numbers in the whole micro-batch of a node's output. */
static inline int64_t fr__ref_count(const fr__kernel *k, const fr_node *node)
{
    return k->batch * fr_shape_count(&node->shape);
}

/* Set a gradient, or add to it. */
static inline void fr__ref_put(float *to, double value, bool add)
{
    *to = (float)(add ? (double)*to + value : value);
}

/* Valid time steps of a sample: all of them without a length input, and never more than there are.
 */
static inline int64_t fr__ref_length(const fr__kernel *k, const fr__kernel_args *a, int64_t sample,
                                     int64_t n_steps)
{
    int input = fr_graph_length_input(k->graph, k->node);
    if (input < 0) return n_steps;
    int64_t length = ((const int32_t *)a->x[input])[sample];
    return length < 0 ? 0 : length > n_steps ? n_steps : length;
}

#endif
