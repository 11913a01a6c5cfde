/* stage.h -- inside the module: the members of a stage executor. */
#ifndef FR_EXEC_STAGE_H
#define FR_EXEC_STAGE_H

#include "base/vec.h"
#include "exec/exact_sum.h"
#include "exec/sync.h"
#include "exec/update.h"

#include <stdatomic.h>

typedef struct fr__device_block {
    void *at;
    size_t bytes;
} fr__device_block;

/* Memory of a worker's device. */
struct fr__exec_device {
    fr_ctx *ctx;
    fr_device *dev;
    FR_VEC(fr__device_block) blocks;
    size_t workspace_bytes; /* the most of any program */
    void *workspace;
};
/* Memory for the recomputed values of a program, their outputs behind them (activation_slots.c). */
typedef struct fr__areas {
    int n; /* 0: nothing is recomputed */
    size_t stride;
    char *at;
    const int *of_forward, *of_backward; /* [micro-batch of the segment]: area of F; of B, I, W */
} fr__areas;

/* A program with its ports bound to links, and room for the pointers of one pass. */
typedef struct fr__compiled {
    fr_program *program; /* NULL: none */
    int n_in, n_out;
    fr__in_port *in;
    fr__out_port *out;
    int loss_port, logits_port; /* -1: not here */
    bool counts_errors;         /* the third number of a loss is an error, else hits */
    const void **inputs, **output_grads;
    void **outputs, **input_grads;
    size_t slot_bytes;   /* of the program, aligned: outputs follow */
    size_t area_bytes;   /* likewise */
    size_t output_bytes; /* of all outputs */
    size_t data_bytes;   /* of a micro-batch's data, copied to the device; 0: read in place */
    float *loss_rows;    /* (micro_batch, 3) in host memory: loss, targets, hits or error */
    int n_slots;
    size_t stride; /* of slots, their outputs included */
    char *slots_at;
    fr__areas areas;
    size_t memory_bytes;                    /* of slots and areas */
    fr__mark *forward_done, *backward_done; /* [slot]: of its last pass */
} fr__compiled;

/* The gradient of a mini-batch: of the micro-batches of an executor, then of its replicas. */
typedef struct fr__grad_reduction {
    fr__tree tree; /* exact_sum: the block that a micro-batch writes, and the order of additions */
    bool has_tree; /* else gradients are added one after the other, into the one block */
    fr_sum *sum;   /* of the replicas; NULL: none */
    size_t room_bytes;
    void *room;
    int n_buckets;
    size_t *edge;   /* [n_buckets + 1] floats */
    size_t *n_due;  /* [bucket] floats that a backward reports as final */
    size_t *n_left; /* [bucket] of them not yet final in this mini-batch */
    int next;       /* buckets are posted from the last to the first: this one is next */
} fr__grad_reduction;

/* A parameter that is tied across stages. */
typedef struct fr__tie {
    int param, placement;
    float *plain; /* in host memory: the gradient itself, or a copy */
    bool is_copy;
    const void **lent; /* [loan]: values of the owner that passes read; NULL: its own */
} fr__tie;

/* The loan in a weight block. */
typedef struct fr__loan_in {
    uint64_t id; /* of the block's content; 0: none */
    fr__loan loan;
} fr__loan_in;

/* Weights of owners in other stages that passes read, of the mini-batches in flight in turn. */
typedef struct fr__loans {
    bool is_on;
    int n;
    fr__loan *at;       /* [n] */
    fr__loan_in *block; /* [weight block] */
    fr__loan read;      /* by the last pass */
} fr__loans;

struct fr__exec {
    fr_ctx *ctx;
    fr__exec_desc d;
    fr_device *dev; /* NULL: of another process */
    fr__compiled compiled[FR_N_MODES];
    fr_program *layout; /* the order of parameters in the blocks */
    fr_store *store;    /* NULL: evaluation only */
    size_t n_weights, n_grads, n_buffers;
    fr_dtype weight_type;
    void *weights; /* of that type: the store's blocks, or the only one */
    size_t weight_stride;
    float *newest;  /* without a store: the newest weights; FR_F32: the only block */
    bool has_image; /* without a store, FR_BF16: the block has their image */
    float *grads;   /* n_grad_blocks of them; the sum is in the first */
    size_t grad_stride;
    int n_grad_blocks;
    float *state[FR_MAX_OPTIM_STATE];
    float *drift;
    int n_matrices; /* that the optimizer needs whole */
    fr_matrix *matrices;
    /* Running statistics, then n_snaps copies: at the start of a mini-batch; then, with recompute,
     * one that nodes which run again may change. */
    float *buffers;
    int n_snaps;
    int64_t begun; /* mini-batches whose first forward has begun */
    fr__grad_reduction reduction;
    fr__syncing sync;       /* replicas that step alone */
    fr_sum *statistics_sum; /* NULL: no replicas, or no running statistics */
    size_t statistics_room_bytes;
    void *statistics_room;
    size_t n_updated;     /* floats that an update must cover */
    size_t n_norm_blocks; /* pieces whose squares are summed in one call */
    fr__span *norm_blocks;
    int *norm_owners;  /* [norm block] nth of the stage's own parameters */
    double *norm_sums; /* (n_norm_blocks) */
    int n_own;
    int n_ties, max_ties;
    fr__tie *ties;
    fr__loans loans;
    size_t grad_link_bytes, landing_bytes;
    void *grad_links, *landing;
    char *data;    /* [slot] of the mode: copies of the data, where the device needs them */
    fr_view again; /* weights of the last recompute */
    uint64_t fetch_ns, seed_ns; /* of the last pass */
    _Atomic uint64_t fused_update_ns;
};

static inline bool fr__exec_trains(const fr__exec *x)
{
    return x->d.slots[FR_MODE_TRAIN].n_slots > 0;
}

/* stage.c */
fr_status fr__exec_no_memory(const fr__exec *x);
/* The workspace has room for the floats of a parameter: while no pass runs, they may be there. */
void fr__exec_make_room(fr__exec *x, int placement);

/* ties.c: write the values of owners in other stages, as lent for a mini-batch, into the weights
 * that a pass of it will read. */
fr_status fr__exec_apply_loan(fr__exec *x, int64_t batch, fr_view *view);

/* matrices.c: the stage's matrices for the optimizer, and room for them in the workspace. */
fr_status fr__exec_list_matrices(fr__exec *x);

/* activation_slots.c: slots and areas, how many and how large, after the program; where, after
 * allocation. */
fr_status fr__activation_slots_plan(fr__exec *x, fr__mode mode);
void fr__activation_slots_place(fr__exec *x, fr__mode mode, char *memory);

/* The sum of a stage's replicas: memory_of gives a replica's block and the room for its sum, both
 * NULL before the allocation. Lists go to the arena. */
typedef float *(*fr__replica_memory_fn)(const fr__exec *x, char **room);
fr_status fr__describe_sum(const fr__exec *x, int n_buckets, const size_t *edge,
                           fr__replica_memory_fn memory_of, fr_sum_desc *d);

/* grad_reduction.c: blocks; then, for the room of the sum, sizes of all replicas. */
fr_status fr__reduction_plan(fr__exec *x);
fr_status fr__reduction_measure(fr__exec *x);
/* The block that the backward of the executor's micro-batch j writes, and whether it adds to it. */
float *fr__reduction_block(const fr__exec *x, int j, bool *adds);
/* Gradients of micro-batch j are in its block. */
void fr__reduction_add(fr__exec *x, int j);
/* During the last backward of a mini-batch: a range is final (of type fr_grad_ready_fn). */
void fr__reduction_ready(void *exec, size_t offset, size_t count, const float *grad);

/* replica_statistics.c */
fr_status fr__statistics_measure(fr__exec *x);

/* replica_sync.c */
fr_status fr__exec_measure_sync(fr__exec *x);

#endif
