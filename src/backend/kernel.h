/* kernel.h -- the contract between the program (program.c: fusion groups, memory, order)
 * and the kernels of one backend.
 *
 * A backend supplies one maker per operator. The program calls it to make a kernel for a group
 * (one node, or a chain that the backend fuses), reads the kernel's needs from its fields, plans
 * memory, and later calls forward / backward_input / backward_weight with pointers only. Kernels
 * allocate nothing when run; `make` creates what they keep (primitives, descriptors), and `destroy`
 * releases it.
 *
 * Numbers: a fused group must give the bits of its nodes run one by one. */
#ifndef FR_BACKEND_KERNEL_H
#define FR_BACKEND_KERNEL_H

#include "backend/device.h"
#include "base/arena.h"

#define FR_MAX_GROUP 4

/* Layout of a tensor in memory. desc NULL: plain row-major, batch first. Otherwise the backend's
 * own description, owned by the program's arena or the kernel. Gradients of a tensor have the
 * layout of the tensor, element type included. All sizes of tensors come from here: memory plan,
 * slots, ports and messages count these bytes. */
typedef struct fr__layout {
    size_t bytes; /* of a micro-batch, padding included */
    fr_dtype dtype;
    const void *desc;
    int64_t ld; /* floats from row to row, if desc only says that rows of a matrix are padded */
} fr__layout;

/* Elements, padding included. */
static inline size_t fr__layout_count(const fr__layout *layout)
{
    return layout->bytes / fr_dtype_bytes(layout->dtype);
}

/* Arguments of a maker. */
typedef struct fr__kernel_spec {
    fr_ctx *ctx;
    fr_device *dev;
    const fr_graph *graph;
    int n_nodes; /* of the group, in order; nodes[i + 1] consumes nodes[i] and nothing else does */
    int nodes[FR_MAX_GROUP];
    int batch;
    bool training;
    int n_inputs; /* inputs of the group from outside it, in order of nodes, then of their inputs */
    int inputs[FR_MAX_INPUTS];          /* node indices */
    const fr__layout *x[FR_MAX_INPUTS]; /* their layouts, which may differ in element type */
    bool need_dx[FR_MAX_INPUTS];        /* a gradient of this input is needed */
    bool plain_output;                  /* the output leaves the program: must be plain */
    fr_dtype y_type, w_type;            /* of the output, and of trained values in passes */
} fr__kernel_spec;

/* Pointers for one call. Weights and buffers are those of the group's nodes, in order of nodes and
 * of fr_node.params: w[i] trained values, dw[i] their gradients, or w[i] the running statistics. */
typedef struct fr__kernel_args {
    const void *x[FR_MAX_INPUTS];
    void *y;
    const void *dy;               /* NULL for the loss */
    void *dx[FR_MAX_INPUTS];      /* NULL: not needed */
    bool add_dx[FR_MAX_INPUTS];   /* add to dx instead of setting it (only if can_add_dx) */
    const void *w[FR_MAX_PARAMS]; /* of the kernel's w_type; buffers: floats */
    size_t w_at[FR_MAX_PARAMS];   /* of trained values: place in the weights block, in elements */
    float *dw[FR_MAX_PARAMS];
    float *buffers[FR_MAX_PARAMS]; /* buffers[i]: w[i] writable where parameter i is a buffer, else
                                      NULL */
    bool add_dw;                   /* add to dw instead of setting it */
    void *saved;                   /* saved_bytes, kept from forward to backward */
    void *scratch;                 /* scratch_bytes, garbage at entry */
    void *cache;      /* cache_bytes, for backward_input only: weights in a layout of its choice */
    bool cache_valid; /* an earlier backward_input filled it from these same weights */
    const fr_pass *pass;
} fr__kernel_args;

/* Weights, of a kernel that gets floats only, or running statistics. */
static inline const float *fr__floats(const fr__kernel_args *a, int i) { return a->w[i]; }

typedef struct fr__kernel fr__kernel;
typedef struct fr__kernel_ops {
    fr_status (*forward)(fr__kernel *k, const fr__kernel_args *a);
    /* Optional, once per backward before the two below: dz (layout of dy; dz == dy allowed) from
     * dy, for the gradient of a fused or lone activation. From then on a->dy, and the gradient
     * passed on by pass_dx, is dz. */
    fr_status (*prepare_dy)(fr__kernel *k, const fr__kernel_args *a, void *dz);
    fr_status (*backward_input)(fr__kernel *k,
                                const fr__kernel_args *a); /* NULL: no dx to compute */
    fr_status (*backward_weight)(fr__kernel *k, const fr__kernel_args *a); /* NULL: no parameters */
    void (*destroy)(fr__kernel *k); /* optional: release what the arena does not own */
} fr__kernel_ops;

/* Base of every kernel; makers embed it first and fill the fields. */
struct fr__kernel {
    const fr__kernel_ops *ops;
    fr_ctx *ctx;
    fr_device *dev;
    const fr_graph *graph;
    const fr_node *node; /* the group's first node */
    int batch;
    bool training;
    fr_dtype w_type;
    bool needs_y; /* the backward reads y */
    bool y_is_x0; /* the output is input 0, bytes and type: no work in forward, pass_dx bit 0 */
    bool can_overwrite_x0; /* forward works with y == x[0], if nothing else needs x[0] */
    bool can_overwrite_dy; /* backward_input works with dx[0] == dy */
    uint64_t needs_x;      /* bit i: the backward reads x[i] */
    uint64_t can_add_dx;   /* bit i: backward_input can add to dx[i], with the bits of the gradient
                              computed alone and added afterwards */
    uint64_t pass_dx; /* bit i: the gradient of input i IS dy (same layout); nothing is computed */
    bool dw_reads_w;  /* backward_weight reads w */
    uint8_t reports_ready; /* bit i: with transient_grads and no add_dw, backward_weight calls
                              grad_ready for parameter i itself and leaves dw[i] alone */
    fr__layout y;  /* filled with the plain layout in the node's type beforehand; a kernel may
                      choose another, unless the output leaves the program */
    fr__layout *w; /* [parameters of the group]; likewise, but always FR_F32, as the newest weights
                      and gradients; those of w_type have the same order */
    size_t saved_bytes, scratch_bytes, cache_bytes;
};
_Static_assert(FR_MAX_INPUTS <= 64 && FR_MAX_PARAMS <= 8, "a bit for each");

typedef fr_status (*fr__kernel_maker)(const fr__kernel_spec *spec, fr_arena *arena,
                                      fr__kernel **out);

/* Allocates `bytes` (sizeof the embedding struct) and fills ctx .. w[] and y (plain). NULL: no
 * memory. */
fr__kernel *fr__kernel_new(const fr__kernel_spec *spec, fr_arena *arena, size_t bytes,
                           const fr__kernel_ops *ops);
/* A kernel of `make`, which knows floats only, for a group with tensors or weights of bf16: they
 * are widened into scratch before each call, and what it writes there is rounded afterwards
 * (in_floats.c). */
fr_status fr__kernel_in_floats(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel_maker make,
                               fr__kernel **out);
bool fr__spec_has_bf16(const fr__kernel_spec *spec);
/* The plain layout of a micro-batch of a node's output. */
fr__layout fr__plain_layout(const fr_graph *g, int node, int batch);
/* Samples times all dimensions but the last: rows of a matrix view, and the last dimension. */
int64_t fr__rows(const fr_node *node, int batch);
int64_t fr__cols(const fr_node *node);
/* The only consumer of `node`, if it is inside the stage, and node does not leave it; else -1. */
int fr__sole_consumer(const fr_graph *g, const fr_stage *stage, int node);

struct fr_backend {
    const char *name, *summary;
    fr_status (*open)(fr_device *dev,
                      const fr_device_desc *desc); /* sets dev->n_threads, about, impl */
    void (*close)(fr_device *dev);
    int (*n_devices)(void);         /* optional: devices of this machine; without it one */
    const fr__kernel_maker *makers; /* FR_OPERATOR_COUNT of them; NULL for INPUT */
    /* The makers read and write tensors and weights of FR_BF16 too, in any mixture with FR_F32.
     * Without it a program with such a tensor is refused. */
    bool has_bf16;
    /* Memory: zeroed, aligned to FR_ALIGN; NULL: out of memory. */
    bool is_host; /* the host may read and write it */
    void *(*alloc)(fr_device *dev, size_t bytes);
    void (*release)(fr_device *dev, void *block);
    fr_status (*upload)(fr_device *dev, void *to, const void *host, size_t bytes);
    fr_status (*download)(fr_device *dev, void *host, const void *from, size_t bytes);
    fr_status (*sync)(fr_device *dev); /* reports failures of all calls since the last one */
    /* Optional, both or none. Without them every call is complete when it returns. */
    fr__mark (*mark)(fr_device *dev);
    fr_status (*wait)(fr_device *dev, fr__mark mark);
    /* The calls of the same names in device.h, which has their rules. */
    fr_status (*copy)(fr_device *dev, void *to, const void *from, size_t bytes);
    fr_status (*convert)(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                         const void *from, size_t n);
    void (*add)(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n);
    void (*blend)(fr_device *dev, fr__blend kind, float *y, const float *x, float by, size_t n);
    void (*sweep)(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                  const fr_sweep *sweep);
    void (*orthogonalise)(fr_device *dev, float *x, const fr_matrix *shape, float *scratch);
    void (*squares)(fr_device *dev, const float *x, const fr__span *spans, size_t n, double *sums);
    void (*tree_sum)(fr_device *dev, float *to, const float *const *from, int n, size_t count);
    fr_status (*pick)(fr_device *dev, float *host, fr_dtype type, const void *from, size_t n,
                      size_t stride);
    /* Host code on host memory, on the threads that compute here. */
    void (*parallel)(fr_device *dev, size_t n, size_t grain, fr_range_fn body, void *arg);
    /* Optional: nodes to fuse with `node`, written to nodes[1..]; returns their number, node
     * included. */
    int (*fuse)(const fr_graph *g, const fr_stage *stage, bool training, int node,
                int nodes[FR_MAX_GROUP]);
    /* Optional, for backends with layouts of their own: one side is row-major and in host memory,
     * the other one in device memory. Both have the same element type. */
    fr_status (*relayout)(fr_device *dev, const fr__layout *from, const void *src,
                          const fr__layout *to, void *dst);
    /* Optional: name and version of the underlying library. */
    void (*library)(char *text, size_t room);
    /* Optional: the instruction set chosen at run time, for kernels whose last bits depend on it.
     */
    void (*instructions)(char *text, size_t room);
    bool (*computes_bf16)(void); /* optional: has instructions for products of bf16 here */
};

struct fr_device {
    const fr_backend *backend;
    fr_ctx *ctx;
    int index, n_threads;
    char about[96];
    size_t bytes, peak_bytes;
    void *impl; /* the backend's own */
};

/* Slots of struct fr_backend for devices whose memory is the host's; the work is spread by
 * `parallel`. */
void *fr__host_alloc(fr_device *dev, size_t bytes);
void fr__host_release(fr_device *dev, void *block);
fr_status fr__host_copy(fr_device *dev, void *to, const void *from, size_t bytes);
fr_status fr__host_convert(fr_device *dev, fr_dtype to_type, void *to, fr_dtype from_type,
                           const void *from, size_t n);
void fr__host_add(fr_device *dev, fr_dtype type, void *y, const void *x, size_t n);
void fr__host_blend(fr_device *dev, fr__blend kind, float *y, const float *x, float by, size_t n);
void fr__host_sweep(fr_device *dev, const fr_optimizer *opt, const fr_optim_coef *coef,
                    const fr_sweep *sweep);
/* By one thread, in plain loops. */
void fr__ref_orthogonalise(fr_device *dev, float *x, const fr_matrix *shape, float *scratch);
void fr__host_squares(fr_device *dev, const float *x, const fr__span *spans, size_t n,
                      double *sums);
void fr__host_tree_sum(fr_device *dev, float *to, const float *const *from, int n, size_t count);
fr_status fr__host_pick(fr_device *dev, float *host, fr_dtype type, const void *from, size_t n,
                        size_t stride);

extern const fr_backend fr__backend_ref;
extern const fr_backend fr__backend_cpu;

#endif
