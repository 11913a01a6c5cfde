/* engine.h -- a worker: one device, one stage, its blocks and its optimizer.
 *
 * The worker executes instructions: forward, backward, step on micro-batches in slots. What a
 * training run with one worker does by a fixed loop, a schedule does later by a list. One thread
 * owns a worker. */
#ifndef FORERUN_ENGINE_H
#define FORERUN_ENGINE_H

#include <forerun/backend.h>
#include <forerun/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_worker fr_worker;

typedef struct fr_worker_desc {
    const fr_graph *graph;
    const fr_stage *stage; /* NULL: all of it */
    const fr_backend *backend;
    fr_device_desc device;
    int micro_batch, n_micro; /* samples in a micro-batch; micro-batches in an update */
    int n_slots;              /* micro-batches in flight: 1 for one worker */
    const fr_optimizer *optimizer;
    fr_optim_options options;
    double clip_norm; /* 0 = none */
    uint64_t seed;
    bool keep_grads;    /* gradients survive the update (for dumps): no update on the fly */
    bool evaluate_only; /* no grads, no optimizer */
    int logits_node;    /* -1, or the node whose value evaluation returns */
} fr_worker_desc;

/* What the loss said, summed over samples. */
typedef struct fr_tally {
    double loss;     /* sum over targets that count */
    int64_t targets; /* that counted */
    int64_t correct; /* argmax hits among them */
} fr_tally;

/* predicted: from sizes alone, before anything is allocated. */
typedef struct fr_memory_use {
    size_t weights, grads, optimizer, buffers, slots, workspace, cache, io, total;
} fr_memory_use;

fr_status fr_worker_create(fr_ctx *ctx, const fr_worker_desc *desc, fr_worker **out);
void fr_worker_free(fr_worker *w);
const fr_memory_use *fr_worker_predicted(const fr_worker *w);
size_t fr_worker_peak_bytes(const fr_worker *w); /* what the device really gave out */
const char *fr_worker_about(const fr_worker *w);

/* One mini-batch: n_micro forwards and backwards in order, then the update number `step` (from 0)
 * at rate lr. Host tensors, batch first: n_micro * micro_batch samples. n_targets counts the whole
 * mini-batch. *tally is set, not added to. *grad_norm (may be NULL): of the whole gradient before
 * clipping, or NaN if nobody needs it (no clipping asked and want_norm false). FR_DIVERGED: the
 * loss, or a norm that was computed, is not finite; parameters are as they were before the call. */
typedef struct fr_feed {
    int64_t step;
    const void *input;
    const int32_t *target;
    const int32_t *length; /* NULL where the model has none */
    int64_t n_targets;
    double lr;
    bool want_norm;
} fr_feed;
fr_status fr_worker_train(fr_worker *w, const fr_feed *feed, fr_tally *tally, double *grad_norm);
/* Forward only, running statistics used, the same number of samples. logits (host, may be NULL):
 * batch x the logits node's shape. */
fr_status fr_worker_eval(fr_worker *w, const fr_feed *feed, fr_tally *tally, float *logits);

/* Plain copies of parameters, gradients (keep_grads), optimizer state `which`: fr_shape_count
 * floats. Parameter indices are the graph's. A tied parameter reads its owner. */
fr_status fr_worker_get_param(fr_worker *w, int param, float *plain);
fr_status fr_worker_set_param(fr_worker *w, int param, const float *plain);
fr_status fr_worker_get_grad(fr_worker *w, int param, float *plain);
fr_status fr_worker_get_state(fr_worker *w, int which, int param, float *plain);
fr_status fr_worker_set_state(fr_worker *w, int which, int param, const float *plain);

uint64_t fr_worker_busy_ns(const fr_worker *w); /* inside kernels and sweeps */

#ifdef __cplusplus
}
#endif
#endif
