/* backend.h -- devices, memory on them, and programs: a stage compiled for a device.
 *
 * Life of a program: create (compiles; allocates no tensor) -> read its sizes -> the caller
 * allocates the blocks on the device -> forward / backward any number of times. Blocks: weights
 * (one float block, all trained parameters), grads (same layout), buffers (running statistics), one
 * slot per micro-batch in flight (what a backward needs from its forward), one workspace per
 * program in use; for recomputed nodes an area instead of the slot: any free one in the forward,
 * one of the micro-batch's own from fr_program_recompute to the end of its backward.
 *
 * A device and its programs belong to one thread (the worker). A program is immutable once created
 * except for a cache of derived weights. */
#ifndef FORERUN_BACKEND_H
#define FORERUN_BACKEND_H

#include <forerun/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_backend fr_backend;
typedef struct fr_device fr_device;
typedef struct fr_program fr_program;

/* NULL-terminated; the first one that is available is the default. */
FR_API const fr_backend *const *fr_backend_list(void);
FR_API const fr_backend *fr_backend_find(const char *name); /* NULL: none of that name */
FR_API const char *fr_backend_name(const fr_backend *b);
FR_API const char *fr_backend_summary(const fr_backend *b);
/* The library it is built on: "oneDNN 2.6.3"; "" for plain C. */
FR_API void fr_backend_library(const fr_backend *b, char *text, size_t room);
/* The instruction set it computes with here: "avx2"; the architecture of plain C: "x86-64". */
FR_API void fr_backend_instructions(const fr_backend *b, char *text, size_t room);
/* Whether it has instructions here for products of this type, or just stores it. */
FR_API bool fr_backend_computes(const fr_backend *b, fr_dtype type);
/* Devices of this machine, at least 1: a processor is one. */
FR_API int fr_backend_n_devices(const fr_backend *b);

typedef struct fr_device_desc {
    int index;     /* of the backend's devices, from 0 */
    int n_threads; /* kernel threads; 0 = all cores of this process */
    bool pin;      /* the threads, to cores from first_cpu on; else the system places them */
    int first_cpu; /* counted from 0 among the cores that the process may use */
} fr_device_desc;

/* Opened on the thread that will use it: thread counts are per thread. */
FR_API FR_MUST_USE fr_status fr_device_open(fr_ctx *ctx, const fr_backend *b,
                                            const fr_device_desc *desc, fr_device **out);
FR_API void fr_device_close(fr_device *dev);
FR_API int fr_device_index(const fr_device *dev);
FR_API int fr_device_n_threads(const fr_device *dev);
FR_API const char *fr_device_about(const fr_device *dev); /* "oneDNN 2.6.3, avx2, 2 threads" */

/* Memory on the device: zeroed, aligned to 64 bytes. Counted in fr_device_bytes. Only for calls
 * that take it: the host need not be able to read it. */
FR_API FR_MUST_USE fr_status fr_device_alloc(fr_device *dev, size_t bytes, const char *what,
                                             void **out);
FR_API void fr_device_release(fr_device *dev, void *block, size_t bytes);
FR_API size_t fr_device_bytes(const fr_device *dev);      /* held now */
FR_API size_t fr_device_peak_bytes(const fr_device *dev); /* most ever held */
FR_API FR_MUST_USE fr_status fr_device_upload(fr_device *dev, void *to, const void *host,
                                              size_t bytes);
FR_API FR_MUST_USE fr_status fr_device_download(fr_device *dev, void *host, const void *from,
                                                size_t bytes);
FR_API FR_MUST_USE fr_status fr_device_sync(fr_device *dev); /* all work issued so far is done */

/* Run body(arg, begin, end) over [0, n) split in blocks of a multiple of `grain`, on the device's
 * threads. For work on host memory; the split must not change results. */
typedef void (*fr_range_fn)(void *arg, size_t begin, size_t end);
FR_API void fr_device_parallel(fr_device *dev, size_t n, size_t grain, fr_range_fn body, void *arg);

typedef struct fr_program_desc {
    const fr_graph *graph;
    const fr_stage *stage; /* of a cut, or first and last alone; NULL: the whole graph */
    int batch;             /* samples in a micro-batch */
    bool training;         /* false: forward only, dropout off, running statistics used */
    bool split_backward;   /* input and weight gradients will be asked for apart */
    const bool *recompute; /* [node], NULL: none; not kept; with it the others of its kernel */
    int extra_output;      /* node whose value is an output too (logits); 0, an INPUT: none */
    bool is_plan;          /* sizes only, as yet: fr_program_reserve goes before the first pass */
} fr_program_desc;

/* A tensor at the border of a program. */
typedef struct fr_port {
    int node;
    fr_dtype dtype;  /* the node's */
    size_t bytes;    /* of a whole micro-batch, plain row-major, batch first */
    bool has_grad;   /* inputs: a gradient is written; outputs: a gradient is read */
    bool has_seed;   /* inputs read by later stages too: a backward adds to their input_grads */
    bool kept;       /* the caller must keep the value unchanged until the backward is done */
    bool recomputed; /* outputs: the backward reads what fr_program_recompute writes */
} fr_port;

/* Place of a parameter in the weights (or, for buffers, the buffers) block. */
typedef struct fr_placement {
    int param;
    size_t offset, count; /* floats; count may exceed the plain size (padding, always zero) */
} fr_placement;

typedef struct fr_program_sizes {
    size_t n_weights; /* floats in the weights block: what an optimizer steps */
    size_t n_grads;   /* floats in the grads block: n_weights, then gradients of tied parameters */
    size_t n_buffers; /* floats in the buffers block */
    size_t slot_bytes, area_bytes, workspace_bytes;
    int n_recomputed;   /* kernels that run again */
    size_t cache_bytes; /* held by the program itself (derived weights) */
} fr_program_sizes;

FR_API FR_MUST_USE fr_status fr_program_create(fr_ctx *ctx, fr_device *dev,
                                               const fr_program_desc *desc, fr_program **out);
FR_API void fr_program_free(fr_program *p);
/* Takes what the program itself holds (cache_bytes), unless it has it already. */
FR_API FR_MUST_USE fr_status fr_program_reserve(fr_program *p);
FR_API const fr_program_sizes *fr_program_sizes_of(const fr_program *p);
FR_API int fr_program_n_inputs(const fr_program *p);
FR_API int fr_program_n_outputs(const fr_program *p);
FR_API const fr_port *fr_program_input(const fr_program *p, int i);
FR_API const fr_port *fr_program_output(const fr_program *p, int i);
FR_API int fr_program_find_output(const fr_program *p, int node); /* -1: none */
FR_API int fr_program_find_input(const fr_program *p, int node);
/* Trained parameters in graph order, then buffers. A parameter tied to another of the same stage
 * has no values of its own: its placement is in the grads block, behind n_weights. */
FR_API int fr_program_n_placements(const fr_program *p);
FR_API const fr_placement *fr_program_placement(const fr_program *p, int i);
FR_API int fr_program_find_placement(const fr_program *p, int param); /* -1: not of this stage */

/* Move one parameter between the device's layout and plain row-major floats. `block` is a
 * weights, grads or optimizer state block (buffers: the buffers block). */
FR_API FR_MUST_USE fr_status fr_program_read_param(fr_program *p, const float *block, int placement,
                                                   float *plain);
FR_API FR_MUST_USE fr_status fr_program_write_param(fr_program *p, float *block, int placement,
                                                    const float *plain);
/* True if the device's layout is plain row-major. */
FR_API bool fr_program_is_plain(const fr_program *p, int placement);
/* Floats from row to row of a matrix that the device stores by rows; 0: it does not. */
FR_API int64_t fr_program_row_stride(const fr_program *p, int placement);

/* Called when the gradient of weights [offset, offset + count) of the block is final for this
 * micro-batch, with the weights no longer needed by this backward. `grad` holds it for the time of
 * the call: usually grads + offset, but see transient_grads. Unless it is transient, other devices
 * may read it from then on. */
typedef void (*fr_grad_ready_fn)(void *user, size_t offset, size_t count, const float *grad);

/* Everything one forward or backward of one micro-batch touches. */
typedef struct fr_pass {
    const void *weights; /* elements of the graph's precision, at the places of fr_placement */
    float *grads;
    float *buffers;
    void *slot, *area, *workspace;
    const void *const *inputs; /* per input port, plain layout; the same in the backward */
    void *const *outputs;      /* per output port */
    const void *const *output_grads;
    void *const *input_grads;
    uint64_t weights_id; /* equal ids promise equal weights: layouts are reused; 0 = unknown */
    uint64_t seed;
    int64_t step;         /* mini-batch number: with seed, node and sample it fixes dropout */
    int64_t first_sample; /* index of sample 0 of this micro-batch in the mini-batch */
    float loss_scale;     /* 1 / targets that count in the mini-batch */
    bool accumulate;      /* add to grads (micro-batches after the first) instead of setting them */
    fr_grad_ready_fn grad_ready; /* may be NULL */
    bool transient_grads;        /* nobody reads grads after grad_ready (set only in the last
                                    micro-batch): a kernel may hand over a panel still in cache */
    void *user;
} fr_pass;

/* Add the gradients of tied parameters to their owners'. Once, before the update. */
FR_API void fr_program_sum_ties(fr_program *p, float *grads);

FR_API FR_MUST_USE fr_status fr_program_forward(fr_program *p, const fr_pass *pass);
/* Before the backward, with slot and inputs as the forward left them. */
FR_API FR_MUST_USE fr_status fr_program_recompute(fr_program *p, const fr_pass *pass);
enum { FR_GRAD_INPUT = 1, FR_GRAD_WEIGHT = 2, FR_GRAD_BOTH = 3 };
/* what: FR_GRAD_BOTH, or INPUT and later WEIGHT for a program with split_backward. */
FR_API FR_MUST_USE fr_status fr_program_backward(fr_program *p, const fr_pass *pass, int what);

/* Seconds that a node has taken, added up over passes. Of nodes that run as one kernel, the first
 * has the time of all; copies and sums of gradients count for the backward that needs them. */
typedef struct fr_node_time {
    double forward, back_input, back_weight;
    double ready; /* in calls of grad_ready, and not in back_weight */
} fr_node_time;
/* From now on passes add to times[node of the graph]; NULL: without a clock, as at first. */
FR_API void fr_program_time(fr_program *p, fr_node_time *times);
/* Bytes of a slot that are there for a node of the graph; over all nodes they are slot_bytes. */
FR_API size_t fr_program_kept_bytes(const fr_program *p, int node);
/* Bytes of the workspace: for values while the node's kernels run, and for its kernels' scratch.
 * The largest of each over all nodes are workspace_bytes, but for gaps. */
FR_API size_t fr_program_values_bytes(const fr_program *p, int node);
FR_API size_t fr_program_scratch_bytes(const fr_program *p, int node);
/* Bytes of its output where that is not row-major, as a port has to be: what a cut behind the node
 * makes the kernels on both sides of it copy. */
FR_API size_t fr_program_edge_bytes(const fr_program *p, int node);
/* Bytes of buffers and cache that are a node's. */
FR_API size_t fr_program_fixed_bytes(const fr_program *p, int node);

#ifdef __cplusplus
}
#endif
#endif
