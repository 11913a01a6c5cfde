/* worker.h -- inside the engine: what a worker holds.
 *
 * Made by worker.c; memory.c decides sizes and takes the blocks, params.c moves parameters in and
 * out, update.c applies gradients, worker.c walks the micro-batches. */
#ifndef FR_ENGINE_WORKER_H
#define FR_ENGINE_WORKER_H

#include <forerun/engine.h>

#include "base/arena.h"

#include <stdatomic.h>

/* What a program wants at an input port. */
typedef enum fr_role { FR_ROLE_INPUT, FR_ROLE_TARGET, FR_ROLE_LENGTH, FR_ROLE_COUNT } fr_role;

/* A program with its ports tied to roles and to places in the io block. */
typedef struct fr_bound {
    fr_program *program;        /* NULL: none (training, of a worker that only evaluates) */
    fr_role *roles;             /* [input port] */
    const void **inputs;        /* [input port], set for each micro-batch */
    void **outputs;             /* [output port], in the io block */
    int loss_port, logits_port; /* logits: -1 if not wanted */
} fr_bound;

/* A piece of a parameter's gradient whose squares are summed at one go. */
typedef struct fr_norm_block {
    size_t offset, count; /* floats */
} fr_norm_block;

#define FR_MAX_BLOCKS (6 + FR_MAX_OPTIM_STATE)

struct fr_worker {
    fr_ctx *ctx;
    fr_worker_desc desc;
    fr_arena arena;
    fr_device *dev;
    fr_bound train, eval;
    fr_program *layout; /* train's or eval's: how parameters lie in the blocks */
    int *placement_of;  /* [param of the graph]: of its owner if tied; -1: not in this stage */
    fr_memory_use predicted;

    float *weights;                   /* (n_weights) */
    float *grads;                     /* (n_grads) */
    float *state[FR_MAX_OPTIM_STATE]; /* (n_weights) each */
    float *buffers, *buffers_before;  /* (n_buffers): now, and at the start of the mini-batch */
    char *slots;                      /* n_slots of them, then the workspace: one block */
    char *workspace;
    char *io; /* outputs of a micro-batch */
    struct {
        void *at;
        size_t bytes;
    } blocks[FR_MAX_BLOCKS];
    int n_blocks;

    size_t n_norm_blocks;
    fr_norm_block *norm_blocks;
    uint64_t weights_id; /* changes whenever the weights do */
    uint64_t busy_ns;
};

/* One update: its coefficients and how far it got. */
typedef struct fr_update {
    fr_worker *w;
    fr_optim_coef coef;
    atomic_size_t n_done; /* floats updated */
} fr_update;

/* Sizes into w->predicted and norm_blocks; then the weights and buffers, then the rest. */
fr_status fr__worker_predict(fr_worker *w);
fr_status fr__worker_take_weights(fr_worker *w);
fr_status fr__worker_take_rest(fr_worker *w);
void fr__worker_release(fr_worker *w);

/* Starting values of every parameter; fails if evaluation reads other values than were written. */
fr_status fr__worker_init_params(fr_worker *w);

void fr__update_begin(fr_update *u, fr_worker *w, const fr_feed *feed, double grad_scale);
/* Of type fr_grad_ready_fn; user: an fr_update. Disjoint ranges may come from several threads. */
void fr__update_range(void *update, size_t offset, size_t count, const float *grad);
/* Floats that an update must reach. */
size_t fr__update_size(const fr_worker *w);
/* Root of the sum of squares of all gradients, in a fixed order. */
double fr__grad_norm(fr_worker *w);

#endif
