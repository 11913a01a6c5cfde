/* weights.h -- which weights a forward and a backward see: weight policies.
 *
 * A policy determines the weights of a forward, those of a backward, and the predictions that are
 * written during an update. It is a const record without state. The store does the rest for one
 * stage: it keeps the blocks (the newest weights, kept older ones, predicted ones), knows what is
 * in each, updates in place or into another block, predicts in the optimizer's own sweep where it
 * can and by a sweep of its own where it must.
 *
 * Blocks of floats are themselves what is updated. Blocks of bf16 are images: the newest weights
 * are the master, floats beside them that no pass reads. An update is made in the master, and the
 * same sweep writes the images that the next passes read. */
#ifndef FORERUN_WEIGHTS_H
#define FORERUN_WEIGHTS_H

#include <forerun/backend.h>
#include <forerun/groups.h>
#include <forerun/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of a policy. */
typedef struct fr_policy_options {
    bool exact;         /* as in fr_policy_context */
    int64_t lr_warmup;  /* likewise */
    bool bounded_steps; /* the optimizer bounds_steps */
} fr_policy_options;

/* Context of a policy: one stage of a schedule. The execution plan makes it (exec_plan.h). */
typedef struct fr_policy_context {
    int stage, n_stages;
    int lead;           /* micro-batches in flight as a mini-batch begins (fr_schedule_lead) */
    int n_micro;        /* micro-batches of an update, on this worker */
    int max_delay;      /* ceil(lead / n_micro) of the stage where it is largest, in updates */
    bool exact;         /* xpipe: exact counts instead of the paper's rounding */
    int64_t lr_warmup;  /* pipemare: updates until the full rate (K) */
    bool is_robust;     /* lookahead: weights far ahead do no harm, because the optimizer bounds
                           its steps or a batch norm follows every layer */
    bool is_scale_free; /* lookahead: by a batch norm alone; the rate adapts to the weights */
    int n_slots;        /* micro-batches the stage holds at most */
} fr_policy_context;

typedef enum fr_base {
    FR_NEWEST,
    FR_AS_FORWARD, /* the very block that the forward of this micro-batch read, kept for it */
    FR_AS_FIRST,   /* the block that the first forward (backward) of the mini-batch read */
    FR_PREVIOUS    /* one update older than the newest that a flush would have: version b - 1 */
} fr_base;

typedef struct fr_want {
    fr_base base;
    int ahead; /* updates to predict; 0 = none */
    /* While the pipeline fills after it was empty, stages are less than their delay apart: the
     * first mini-batch predicts 1 update at most, the next 2, ... */
    bool grows;
} fr_want;

typedef struct fr_policy {
    const char *name, *summary;
    fr_extrapolation extrapolation;
    bool needs_micro; /* a mini-batch has as many micro-batches as stages, at least */
    const char *(*check)(
        const fr_policy_context *context); /* NULL, or what is wrong; no slot: never */
    /* micro: in the mini-batch, 0 .. n_micro - 1 */
    void (*forward)(const fr_policy_context *context, int micro, fr_want *want);
    void (*backward)(const fr_policy_context *context, int micro, fr_want *want);
    /* Distances worth writing during an update, 0 = none; returns how many. */
    int (*after)(const fr_policy_context *context, int ahead[FR_MAX_AHEAD]);
    double (*lr_factor)(const fr_policy_context *context, int64_t t); /* t from 0; no slot: 1 */
    /* The stage's own options of the optimizer, from those of the run; no slot: the same. */
    void (*adapt)(const fr_policy_context *context, fr_optim_options *o);
    double (*drift_keep)(
        const fr_policy_context *context); /* FR_EXTRAPOLATE_DRIFT: decay of the running mean */
} fr_policy;

FR_API const fr_policy *const *fr_policy_list(void); /* NULL-terminated */
FR_API const fr_policy *fr_policy_find(const char *name);

#define FR_MAX_WEIGHT_BLOCKS 64

typedef struct fr_store fr_store;

typedef struct fr_weight_range {
    size_t at, n; /* floats */
} fr_weight_range;

typedef struct fr_store_desc {
    const fr_policy *policy;
    fr_policy_context context;
    fr_device *device; /* does the sweeps */
    const fr_optimizer *optimizer;
    fr_optim_options options;
    fr_lr_options lr; /* base rate in options.lr */
    int n_groups, n_ranges;
    const fr_param_group *groups;
    const fr_group_range *ranges; /* disjoint, by place; weights outside have no group */
    fr_dtype type;                /* of the weights that passes read: FR_F32 or FR_BF16 */
    /* Weight blocks that passes read, with FR_F32 the newest included: as the execution plan counts
     * them. 0: there are no weights, device and optimizer, and the store counts the blocks that its
     * passes need. */
    int n_blocks;
    size_t n; /* weights in a block */
    /* Blocks are memory of the device. */
    void *blocks; /* n_blocks of them, `stride` weights apart; FR_F32: block 0 is the newest at
                     first */
    size_t stride;
    float *master; /* (n) the newest weights, FR_BF16 only */
    float *state[FR_MAX_OPTIM_STATE];
    /* Matrices of an optimizer with a rule for them: disjoint, by offset. Scratch is memory of the
     * device, too: the most of fr_store_scratch_floats; it is used inside fr_store_end only. */
    int n_matrices;
    const fr_matrix *matrices;
    float *scratch;
    float *drift;  /* (n), only with FR_EXTRAPOLATE_DRIFT and more than one block */
    int n_samples; /* weights watched for the prediction error; 0 = none */
    /* Ranges of them that do not count: copies of weights that another stage updates. */
    int n_copies;
    const fr_weight_range *copies;
} fr_store_desc;

/* Weights of a pass. Valid until the next call on the store (an update's ranges aside), or, if
 * the backward is promised the same, until then. */
typedef struct fr_view {
    const void *weights; /* (n) of fr_store_desc.type */
    uint64_t id;         /* equal ids promise equal weights */
    int64_t version;     /* updates contained in them, before prediction */
    int ahead;           /* updates predicted on top */
    int block;           /* that holds them, from 0 */
} fr_view;

/* Sum over predictions checked so far; RMSE = sqrt(sum / n_values). */
typedef struct fr_prediction_error {
    int64_t n_values;
    double predicted, stale; /* sums of squared differences from the actual weights */
    double ahead;            /* mean distance */
} fr_prediction_error;

/* Bytes that a weight takes in n_blocks blocks of a type, its master included. */
FR_API size_t fr_weight_bytes(fr_dtype type, int n_blocks);

/* Floats of scratch that the update of a matrix needs. */
FR_API size_t fr_store_scratch_floats(const fr_matrix *m);
FR_API FR_MUST_USE fr_status fr_store_create(fr_ctx *ctx, const fr_store_desc *d, fr_store **out);
FR_API void fr_store_free(fr_store *s);
FR_API int fr_store_n_blocks(const fr_store *s);
FR_API float *fr_store_newest(const fr_store *s); /* one of fr_store_desc.blocks, or the master */
/* The newest weights as passes read them, for evaluation: nothing is in flight. */
FR_API FR_MUST_USE fr_status fr_store_look(fr_store *s, fr_view *out);
FR_API int64_t fr_store_version(const fr_store *s);
/* State of a policy beside the newest weights and the optimizer's state: "previous", "drift",
 * or NULL (a context without stages: on any stage of a pipeline). set: it has been written, for the
 * newest version, after a reset. */
typedef struct fr_policy_state {
    void *at; /* (n) of the type; NULL: none */
    fr_dtype type;
    bool is_valid; /* it means something now */
} fr_policy_state;
FR_API const char *fr_store_policy_state_name(const fr_store_desc *d);
FR_API fr_policy_state fr_store_policy_state(const fr_store *s);
FR_API void fr_store_set_policy_state(fr_store *s);
/* Between fr_store_end and the next pass: the newest weights were changed in place (a mean over
 * replicas) and count as the same version; predictions and images of them are made anew. */
FR_API void fr_store_changed(fr_store *s);
/* The caller overwrites some of the weights of a view: where they are. The view gets a new id. */
FR_API void *fr_store_rewrite(fr_store *s, fr_view *v);
/* The newest weights (and the optimizer's state) were changed from outside, or a run starts at
 * another update: nothing else that the store holds is valid any more. A drift starts from zero. */
FR_API FR_MUST_USE fr_status fr_store_reset(fr_store *s, int64_t version);
/* The run continues at another update, with the newest weights and the memory as they are. */
FR_API void fr_store_renumber(fr_store *s, int64_t version);
/* The pipeline is empty: the next mini-batch begins to fill it. */
FR_API void fr_store_drained(fr_store *s);

/* batch: number of the mini-batch, from 0, of the whole run (its own update makes version
 * batch + 1); micro: in the mini-batch. A forward is followed, later, by a backward and a done. */
FR_API FR_MUST_USE fr_status fr_store_forward(fr_store *s, int64_t batch, int micro, fr_view *out);
FR_API FR_MUST_USE fr_status fr_store_backward(fr_store *s, int64_t batch, int micro, fr_view *out);
FR_API void fr_store_done(fr_store *s, int64_t batch, int micro);
/* All micro-batches in flight are given up (a run that ends early): nothing is kept for them. */
FR_API void fr_store_abandon(fr_store *s);

/* The update of mini-batch `batch`: begin, ranges (disjoint, from any thread; a range may be handed
 * in while the last backward still reads other ranges), end. fr_store_end fails unless `expected`
 * floats were handed in (block padding is not counted by some callers). */
FR_API void fr_store_begin(fr_store *s, int64_t batch, double grad_scale);
FR_API void fr_store_range(fr_store *s, size_t offset, size_t count, const float *grad);
FR_API FR_MUST_USE fr_status fr_store_end(fr_store *s, size_t expected);
FR_API double fr_store_lr(const fr_store *s, int64_t batch); /* this stage's rate of that update */

FR_API const fr_prediction_error *fr_store_error(const fr_store *s);

#ifdef __cplusplus
}
#endif
#endif
