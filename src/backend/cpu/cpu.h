/* cpu.h -- shared by the files of the cpu backend.
 *
 * A maker accepts inputs in any layout, unless the table of cpu.c marks it as row-major only;
 * then fr__cpu_wrap_plain adds reorders around it. A maker that the table marks accepts bf16 in any
 * of its tensors and weights; other ones are wrapped by fr__kernel_in_floats. */
#ifndef FR_BACKEND_CPU_CPU_H
#define FR_BACKEND_CPU_CPU_H

#include "backend/cpu/dnnl.h"
#include "backend/cpu/floats.h"

/* Makers, one file each. */
fr_status fr__cpu_matmul(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_conv2d(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
bool fr__cpu_conv2d_is_small(const fr__kernel_spec *spec);
fr_status fr__cpu_conv2d_small(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_batch_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_max_pool(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_concat(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_flatten(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_linear(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_linear_bf16(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_layer_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_activation(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_binary(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_softmax(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_rms_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_group_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_rope(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_depth(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_dropout(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_sum(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_embedding(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_attention(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_move(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_rows(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_lstm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_time(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_loss(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);
fr_status fr__cpu_distance(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out);

/* A kernel of `make` that gets row-major inputs only: tensors in other layouts are reordered to
 * row-major in scratch before each call, and gradients back after it. */
fr_status fr__cpu_wrap_plain(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel_maker make,
                             fr__kernel **out);

/* The backend's fuse entry. */
int fr__cpu_fuse(const fr_graph *g, const fr_stage *stage, bool training, int node,
                 int nodes[FR_MAX_GROUP]);
/* Whether the group ends in this operator, after the first node. */
static inline bool fr__group_has(const fr__kernel_spec *spec, fr_operator op)
{
    return spec->n_nodes > 1 &&
           fr_graph_node(spec->graph, spec->nodes[spec->n_nodes - 1])->op == op;
}

/* The backend's orthogonalise entry. */
void fr__cpu_orthogonalise(fr_device *dev, float *x, const fr_matrix *shape, float *scratch);

/* The name of an instruction set, a value of dnnl_cpu_isa_t, e.g. "avx2" or "sve256". */
void fr__isa_name(unsigned bits, char *text, size_t room);
void fr__cpu_instructions(char *text, size_t room); /* of the one in use */
bool fr__cpu_computes_bf16(void);                   /* AMX has it, too */

/* Sweeps on the device's threads. n elements of FR_F32 or FR_BF16; the padding of blocked tensors
 * is included. */
void fr__cpu_parallel(fr_device *dev, size_t n, size_t grain, fr_range_fn body, void *arg);
/* The number of the thread that runs a body of fr__cpu_parallel, from 0. */
int fr__cpu_thread(void);
/* y = y < 0 ? 0 : y; a NaN stays, as in a separate relu. (oneDNN's relu turns it into 0, which
 * would hide a diverged run.) */
void fr__cpu_relu(fr_device *dev, fr_dtype type, void *y, size_t n);
/* Gradient of a relu from its output: dz = y > 0 ? dy : 0. dz == dy allowed. */
void fr__cpu_relu_back(fr_device *dev, fr_dtype type, void *dz, const void *dy, const void *y,
                       size_t n);

/* The sweeps of activations and of add between tensors of either type, each of which is another one
 * of its type or does not overlap it. A slope is that at y, for gelu at x. */
void fr__cpu_activate(fr_device *dev, fr_operator op, fr__source x, fr__sink y, size_t n);
void fr__cpu_slope(fr_device *dev, fr_operator op, fr__source dy, fr__source at, fr__sink dz,
                   size_t n);
void fr__cpu_add(fr_device *dev, fr__source a, fr__source b, fr__sink sum, size_t n);

#endif
