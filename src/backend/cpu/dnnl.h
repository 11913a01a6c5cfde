/* dnnl.h -- the only header that includes oneDNN (its C API; 2.x and 3.x differ in dnnl_v2.c and
 * dnnl_v3.c).
 *
 * A primitive is made once, always with the user's scratchpad (one with the library's own
 * scratchpad gives wrong results when two threads run it), together with memory objects that hold
 * no data; a run points them at the caller's tensors and executes. A tensor may have another layout
 * than the primitive requires: then the primitive has a reorder, and a run uses a copy in scratch.
 * The padding of blocked tensors is zero between kernels: each kernel zeroes the padding of its
 * output, as oneDNN's own primitives do. Everything here belongs to the thread of its device. */
#ifndef FR_BACKEND_CPU_DNNL_H
#define FR_BACKEND_CPU_DNNL_H

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <pthread.h>

#include "backend/kernel.h"

/* Layout of a tensor. The device owns one description of each kind until it is closed. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t fr__md;
#else
typedef const dnnl_memory_desc_t *fr__md;
#endif

/* dev->impl of a cpu device. */
typedef struct fr__cpu_device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* user scratchpad */
    int lanes; /* channels per block of images: 16 with AVX-512, else 8. Tests may set others */
    bool multiplies_bf16; /* the processor has instructions for it; else floats are faster */
    bool forces_lanes;    /* for tests: convolutions too use `lanes` (1: row-major) */
    pthread_mutex_t lock; /* guards `mds`: any thread may request layouts of parameters */
    fr__md *mds;
    int n_mds, room;
} fr__cpu_device;

static inline fr__cpu_device *fr__cpu(const fr_device *dev) { return (fr__cpu_device *)dev->impl; }

/* "node conv1 (conv2d): oneDNN failed at the forward convolution: out_of_memory; ..." */
fr_status fr__dnnl_fail(const fr__kernel *k, const char *what, dnnl_status_t status);
#define FR_TRY_DNNL(k, what, call)                                                             \
    do {                                                                                       \
        dnnl_status_t fr_dnnl_status = (call);                                                 \
        if (fr_dnnl_status != dnnl_success) return fr__dnnl_fail((k), (what), fr_dnnl_status); \
    } while (0)

/* ---- Layouts ---- */

/* Descriptions are of floats where nothing else is said. *md becomes that of the same order for
 * elements of `type`. */
fr_status fr__md_as(const fr__kernel *k, fr_dtype type, fr__md *md);
/* A micro-batch of a node's output, batch first. plain: row-major; any: for oneDNN to choose. */
fr_status fr__md_plain(const fr__kernel *k, const fr_node *node, fr__md *md);
fr_status fr__md_any(const fr__kernel *k, const fr_node *node, fr__md *md);
/* Weights of a convolution, (out, in, height, width), or split by groups: for oneDNN to choose. */
fr_status fr__md_any_weights(const fr__kernel *k, int n_dims, const dnnl_dim_t *dims, fr__md *md);
/* The layout in which sums over (C, H, W) are taken: channels in blocks of the vector length if it
 * divides them, otherwise row-major. It depends on the shape alone and not on the layout of the
 * actual tensor, which is row-major behind a cut. So a cut does not change the order of a sum. */
fr_status fr__md_blocked(const fr__kernel *k, const fr_node *node, fr__md *md);
/* The layout of the tensor, its type included; a row-major one is created in *md. */
fr_status fr__md_of_layout(const fr__kernel *k, const fr__layout *layout, const fr_node *node,
                           fr__md *md);
/* A layout for fr__kernel.y or .w, whose type stays: the order of md, whatever its type. desc NULL
 * where it is the row-major one of its dims. */
fr_status fr__layout_of_md(const fr__kernel *k, fr__md md, fr__layout *layout);
/* Channels that are adjacent at each pixel of an image: 1 for row-major, 8 or 16 for blocks of
 * channels (the last one padded with zeros), 0 for other layouts. */
int fr__layout_lanes(const fr__layout *layout);
fr_status fr__layout_with_lanes(const fr__kernel *k, const fr_node *node, int lanes,
                                fr__layout *layout);
/* The device's own description equal to md, which may be destroyed. */
fr_status fr__md_keep(const fr__kernel *k, fr__md md, fr__md *out);
fr_status fr__md_new(const fr__kernel *k, int n_dims, const dnnl_dim_t *dims, dnnl_format_tag_t tag,
                     const dnnl_dim_t *strides, fr__md *md); /* see fr__md_make */
void fr__md_fini(fr__cpu_device *cpu);
fr_status fr__md_row_major(const fr__kernel *k, int n_dims, const dnnl_dim_t *dims, fr__md *md);

/* A kernel that slides over height and width. */
typedef struct fr__window {
    dnnl_dims_t size, stride, before, after; /* padding before and after */
} fr__window;
fr__window fr__window_of(const fr_shape *in, const fr_shape *out, const int size[2],
                         const int stride[2], const int pad[2]);

/* ---- Primitives ---- */

#define FR_PRIM_ARGS 12

typedef struct fr__matmul_op fr__matmul_op;

typedef struct fr__arg {
    int id;    /* DNNL_ARG_... */
    fr__md md; /* layout of the caller's tensor; NULL: that of the primitive */
    bool is_output;
} fr__arg;

typedef struct fr__prim {
    dnnl_primitive_t handle; /* NULL: not made */
    const_dnnl_primitive_desc_t desc;
    int n_args; /* the scratchpad, if there is one, is behind them */
    dnnl_exec_arg_t exec[FR_PRIM_ARGS + 1];
    const void *at[FR_PRIM_ARGS + 1];     /* where the memory objects point */
    struct fr__detour *via[FR_PRIM_ARGS]; /* copy in another layout, or NULL */
    size_t scratchpad_bytes;
    size_t scratch_bytes; /* for a whole run */
} fr__prim;

/* The rank of an implementation, by its name. */
enum { FR_IMPL_JIT, FR_IMPL_GEMM, FR_IMPL_REF, FR_IMPL_NONE };
int fr__impl_rank(const_dnnl_primitive_desc_t desc);

/* Takes ownership of `desc`, also on failure. Call fr__prim_fini even after a failure. */
fr_status fr__prim_init(const fr__kernel *k, fr_arena *arena, const char *what,
                        dnnl_primitive_desc_t desc, int n_args, const fr__arg *args, fr__prim *p);
fr_status fr__reorder_init(const fr__kernel *k, fr_arena *arena, fr__md from, fr__md to,
                           fr__prim *p);
/* Arguments: a, b, c, then bias if there is one. */
fr_status fr__matmul_init(const fr__kernel *k, fr_arena *arena, const char *what,
                          const fr__matmul_op *op, fr__prim *p);
void fr__prim_fini(fr__prim *p); /* zero allowed */
fr__md fr__prim_md(const fr__prim *p, int arg_id);
/* tensors[i] for args[i] of fr__prim_init (a reorder: from, to). */
fr_status fr__prim_run(const fr__kernel *k, fr__prim *p, void *scratch, const void *const *tensors);
#define FR_TENSORS(...) ((const void *const[]){__VA_ARGS__})

/* ---- Differences between oneDNN 2.x and 3.x: dnnl_v2.c, dnnl_v3.c ---- */

/* tag 0: by strides, NULL for row-major. The caller owns *out. */
dnnl_status_t fr__md_make(int n_dims, const dnnl_dim_t *dims, dnnl_format_tag_t tag,
                          const dnnl_dim_t *strides, fr__md *out);
dnnl_status_t fr__md_copy(fr__md md, fr__md *out);
/* The same order for another type; md has a format tag, and so do all that oneDNN chooses. */
dnnl_status_t fr__md_copy_as(fr__md md, dnnl_data_type_t type, fr__md *out);
void fr__md_drop(fr__md md);

typedef struct fr__md_view {
    int n_dims; /* 0: there is no such tensor */
    dnnl_dims_t dims;
    /* For a layout by strides: the number of blocks of each dim, and the innermost block. */
    int n_blocks, block_dim;
    dnnl_dim_t block;
    dnnl_dims_t strides;
} fr__md_view;
fr__md_view fr__md_view_of(fr__md md);

typedef struct fr__conv_op {
    dnnl_prop_kind_t pass; /* forward_..., backward_data or backward_weights */
    fr__md x, w, b, y;     /* or their gradients; b NULL: none */
    const fr__window *window;
} fr__conv_op;

typedef struct fr__pool_op {
    dnnl_prop_kind_t pass; /* forward_... or backward_data */
    dnnl_alg_kind_t kind;
    fr__md x, y;
    const fr__window *window;
} fr__pool_op;

/* A matrix (rows, columns) of either type, by the distance of its rows and columns. */
typedef struct fr__matrix_md {
    dnnl_data_type_t type;
    int64_t rows, columns, row_step, column_step;
} fr__matrix_md;

/* c = a b + bias, plus c if add. */
struct fr__matmul_op {
    fr__matrix_md a, b, c, bias; /* bias: of one row, or of none */
    bool add;
};

/* hint: of the forward primitive, NULL for itself. nth: of oneDNN's implementations, the best
 * first. On dnnl_success the caller owns *out. */
dnnl_status_t fr__conv_desc(const fr__cpu_device *cpu, const fr__conv_op *op, int nth,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out);
dnnl_status_t fr__pool_desc(const fr__cpu_device *cpu, const fr__pool_op *op,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out);
dnnl_status_t fr__matmul_desc(const fr__cpu_device *cpu, const fr__matmul_op *op,
                              const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out);
dnnl_status_t fr__append_sum(dnnl_post_ops_t after); /* the result is added to what is there */

#endif
