/* exec.h -- the stage executor: everything that has a tensor in it, for one stage on one worker.
 *
 * It owns the device memory of the stage: compiled programs, activations, weights with their
 * versions and predictions, optimizer state, gradients and their sums. Its callers, the engine and
 * the probe, decide what runs when; they name micro-batches, links and parameters and hold no
 * tensor.
 *
 *     create -> bind the ports -> sizes -> allocate -> open -> forward, backward, step ... -> free
 *
 * Links: a tensor from or for another stage is in a buffer of a link. Callers number the links
 * and pass the addresses of a micro-batch's buffers with each call; ports refer to them by number
 * and offset.
 *
 * Replicas of a stage are executors with the same description except `replica` and `worker`.
 * Those of other processes are created too: they have sizes, but no device.
 *
 * Passes, steps and reductions are called on the worker's thread. Reads and writes of values may
 * come from another thread while it is idle. */
#ifndef FR_EXEC_EXEC_H
#define FR_EXEC_EXEC_H

#include <forerun/exec.h>
#include <forerun/exec_plan.h>
#include <forerun/transport.h>

#include "backend/device.h"
#include "base/arena.h"
#include "exec/hooks.h"

typedef struct fr__exec fr__exec;
typedef struct fr__exec_device fr__exec_device;

/* Training and evaluation have programs, links and slots of their own. */
typedef enum fr__mode { FR_MODE_TRAIN, FR_MODE_EVAL, FR_N_MODES } fr__mode;

/* --- a worker's device (device.c) ---------------------------------------------------------------
 */

/* Opened, and closed with all of its memory, on the worker's thread. */
fr_status fr__exec_device_open(fr_ctx *ctx, const fr_backend *backend, const fr_device_desc *desc,
                               fr__exec_device **out);
void fr__exec_device_close(fr__exec_device *d);
fr_device *fr__exec_device_of(fr__exec_device *d); /* NULL: NULL */
/* The workspace is one block, which the executors of the device share. */
size_t fr__exec_device_workspace_bytes(const fr__exec_device *d);
fr_status fr__exec_device_take_workspace(fr__exec_device *d);
/* A block that is released with the device; NULL for 0 bytes. */
fr_status fr__exec_device_take(fr__exec_device *d, size_t bytes, const char *what, void **out);

/* --- create (stage.c) ---------------------------------------------------------------------------
 */

/* Slots of a segment of the schedule. list: of the worker. */
typedef struct fr__slot_plan {
    int n_slots, n_micro;      /* n_micro: of the segment */
    const int *slot_of;        /* [n_micro] */
    const fr_instr_list *list; /* recompute only */
} fr__slot_plan;

typedef struct fr__exec_desc {
    fr_arena *arena; /* of the caller; for all lists */
    const fr_graph *graph;
    fr_stage bounds;
    int stage, worker, replica, n_replicas;
    fr__exec *const *replicas; /* [n_replicas] of the stage, this one included */
    fr__exec_device *device;   /* NULL: of another process */
    const fr_transport *transport;
    fr_group *group;
    fr__exec_hooks hooks;

    int micro_batch;                 /* samples */
    int n_micro;                     /* of a mini-batch, on this replica */
    fr__slot_plan slots[FR_N_MODES]; /* n_slots 0: there is no such mode */
    int logits_node;                 /* output of an evaluation; 0: none */
    uint64_t seed;

    /* Training. */
    const fr_policy *policy;
    fr_policy_context context;
    int n_weight_blocks; /* that passes read */
    const fr_optimizer *optimizer;
    fr_optim_options options;
    fr_lr_options lr;
    fr_param_groups groups;
    int n_samples;           /* weights sampled for the prediction error */
    bool is_flush, is_split; /* of the schedule */
    const bool *recompute;   /* [node]: of fr_engine_desc; read by fr__exec_create only */
    bool exact_sum;          /* micro-batches are added along a binary tree */
    bool update_in_backward; /* the update is fused into the last backward */
    bool sums_replicas;      /* replicas step with the sum of their gradients */
    fr_sync_options sync;    /* otherwise they use this sync rule */
} fr__exec_desc;

/* Compiles the programs of a stage of this process; allocates no device memory. */
fr_status fr__exec_create(fr_ctx *ctx, const fr__exec_desc *desc, fr__exec **out);
/* Frees programs and store; the device owns the memory. */
void fr__exec_free(fr__exec *x);

/* Sizes of the blocks in floats. For a stage of another process they are set from there. */
typedef struct fr__exec_sizes {
    uint64_t n_weights, n_grads, n_buffers;
} fr__exec_sizes;
fr__exec_sizes fr__exec_sizes_of(const fr__exec *x);
void fr__exec_set_sizes(fr__exec *x, fr__exec_sizes sizes);

/* --- ports --------------------------------------------------------------------------------------
 */

/* A tensor in the buffers of a link; link -1: none. */
typedef struct fr__tensor_ref {
    int link;
    size_t offset;
} fr__tensor_ref;

typedef enum fr__role { FR__ROLE_INPUT, FR__ROLE_TARGET, FR__ROLE_LENGTH, FR__ROLE_LINK } fr__role;
typedef struct fr__in_port {
    const fr_port *port;
    fr__role role;
    /* FR__ROLE_LINK, set by the caller: */
    fr__tensor_ref value; /* on a forward link */
    fr__tensor_ref grad;  /* where its gradient goes: a backward link */
    fr__tensor_ref seed;  /* where the gradient of later readers comes from */
    size_t copy_offset;   /* other roles: in the copy of a slot's data, where the device needs it */
} fr__in_port;
typedef struct fr__out_port {
    const fr_port *port;
    size_t offset;       /* in the outputs of a slot */
    size_t area_offset;  /* in those of an area, if it is recomputed */
    fr__tensor_ref grad; /* where its gradient comes from, set by the caller */
} fr__out_port;
fr__in_port *fr__exec_inputs(fr__exec *x, fr__mode mode, int *n);
fr__out_port *fr__exec_outputs(fr__exec *x, fr__mode mode, int *n);
bool fr__exec_reads_data(const fr__exec *x);
/* The outputs of slot i begin i * stride bytes behind those of slot 0, whose address is known after
 * the allocation. */
size_t fr__exec_output_stride(const fr__exec *x, fr__mode mode);
void *fr__exec_output_memory(const fr__exec *x, fr__mode mode);
/* Memory for links, allocated with the rest: gradients that the stage sends, messages from other
 * processes. */
void fr__exec_add_link_bytes(fr__exec *x, size_t grads, size_t landing);
void *fr__exec_grad_links(const fr__exec *x);
void *fr__exec_landing(const fr__exec *x);

/* --- memory -------------------------------------------------------------------------------------
 */

/* The matrix of a node that the optimizer needs whole: bytes of the workspace that its update
 * needs, and its multiply-adds. 0: there is none. */
size_t fr__exec_matrix_bytes(const fr__exec *x, int node);
double fr__exec_matrix_work(const fr__exec *x, int node);

/* Add the bytes that the executor will allocate; the workspace belongs to the device. Also plans
 * reductions, so the sizes of all replicas must be known. */
fr_status fr__exec_measure(fr__exec *x, fr_memory_use *use);
fr_status fr__exec_allocate(fr__exec *x); /* on the worker's thread */
/* The weight store, after the allocation. */
fr_status fr__exec_open(fr__exec *x);
/* Reductions of a stage, after the allocation of all of its replicas: every process makes those of
 * all stages, in their order. */
fr_status fr__exec_open_reduction(fr__exec *const *replicas);
fr_status fr__exec_open_statistics(fr__exec *const *replicas);
fr_status fr__exec_open_sync(fr__exec *const *replicas);
/* Before the reductions are opened: another transport and group for the same workers. */
void fr__exec_set_transport(fr__exec *x, const fr_transport *transport, fr_group *group);
fr_program *fr__exec_program(const fr__exec *x, fr__mode mode); /* for sizes by node, and times */

/* Weights of an owner in another stage that a mini-batch reads. */
typedef struct fr__loan {
    int64_t batch, version; /* version: updates contained in them */
    int ahead;              /* updates predicted on top */
} fr__loan;

/* --- passes (pass.c) ----------------------------------------------------------------------------
 */

/* One micro-batch. The lists are indexed by link; entries of links that do not end at the stage are
 * not read. */
typedef struct fr__micro {
    int64_t batch;
    int micro;      /* in the mini-batch */
    int in_segment; /* in the segment of the schedule */
    bool fills;     /* of its first mini-batch: the pipeline was empty */
    const fr_feed *feed;
    const void *const *values; /* forward links: buffers that the stage reads */
    const void *const *grads;  /* backward links: buffers that it reads */
    void *const *sent_grads;   /* backward links: buffers that it writes */
} fr__micro;

int fr__exec_slot(const fr__exec *x, fr__mode mode, int in_segment);
/* Passes are queued on the device. Wait for a pass before others read its outputs or overwrite its
 * inputs. */
fr_status fr__exec_wait_forward(fr__exec *x, fr__mode mode, int in_segment);
fr_status fr__exec_wait_backward(fr__exec *x, int in_segment);
/* view: the weights that were read (may be NULL in evaluation). */
fr_status fr__exec_forward(fr__exec *x, fr__mode mode, const fr__micro *m, fr_view *view);
/* Some node of the stage is recomputed: fr__exec_recompute goes before each backward that makes
 * input gradients, with no other pass of the stage and no update in between. It needs no gradients.
 */
bool fr__exec_recomputes(const fr__exec *x);
fr_status fr__exec_recompute(fr__exec *x, const fr__micro *m, fr_view *view);
/* what: FR_GRAD_BOTH, FR_GRAD_INPUT or FR_GRAD_WEIGHT. */
fr_status fr__exec_backward(fr__exec *x, const fr__micro *m, int what, fr_view *view);
/* After a forward, of that micro-batch: add to the loss; the logits, floats in host memory. */
bool fr__exec_has_loss(const fr__exec *x, fr__mode mode);
fr_status fr__exec_add_loss(fr__exec *x, fr__mode mode, fr_tally *tally);
bool fr__exec_has_logits(const fr__exec *x);
size_t fr__exec_logits_bytes(const fr__exec *x);
fr_status fr__exec_read_logits(fr__exec *x, void *host);
fr_status fr__exec_spoil_output(fr__exec *x, fr__mode mode); /* its first value becomes NaN */
/* Nanoseconds: of the last pass, fetching its weights, and copying the gradients of later readers;
 * of fused updates since the last call. */
uint64_t fr__exec_fetch_ns(const fr__exec *x);
uint64_t fr__exec_seed_ns(const fr__exec *x);
uint64_t fr__exec_take_fused_ns(fr__exec *x);

/* --- a call -------------------------------------------------------------------------------------
 */

/* Training begins with mini-batch `first`. */
void fr__exec_begin_call(fr__exec *x, int64_t first);
/* Give up mini-batches from `limit` on: reset running statistics and store to it. */
fr_status fr__exec_undo(fr__exec *x, int64_t limit);

/* --- values (values.c) --------------------------------------------------------------------------
 */

typedef enum fr__value_kind {
    FR__VALUE_PARAM, /* weights, or running statistics */
    FR__VALUE_GRAD,
    FR__VALUE_STATE,  /* of the optimizer, number `which` */
    FR__VALUE_MEMORY, /* of the weight policy */
} fr__value_kind;
/* Plain row-major fp32 in host memory. */
fr_status fr__exec_read(fr__exec *x, fr__value_kind kind, int which, int param, void *plain);
fr_status fr__exec_write(fr__exec *x, fr__value_kind kind, int which, int param, const void *plain);
bool fr__exec_has_memory(const fr__exec *x); /* it is valid now */
/* Starting values: fill(user, param, first, n, to) writes n floats, on any thread of the device. */
typedef void (*fr__fill_fn)(void *user, int param, size_t first, size_t n, void *to);
fr_status fr__exec_init(fr__exec *x, fr__fill_fn fill, void *user);

#endif
