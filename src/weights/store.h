/* store.h -- inside the module: the members of a store.
 *
 * store.c serves passes, update.c applies updates and predicts, rules.c has the coefficients of
 * groups of parameters, matrices.c updates and predicts whole matrices, policy_state.c saves and
 * restores the state of a policy, prediction_error.c compares predictions with the later weights. A
 * store belongs to one thread; only fr_store_range may be called from several at once. */
#ifndef FR_WEIGHTS_STORE_H
#define FR_WEIGHTS_STORE_H

#include <forerun/weights.h>

#include <stdatomic.h>

/* A block of weights and the label of its content. */
typedef struct fr__weight_block {
    void *at; /* (n) of d.type */
    bool is_valid;
    int64_t version; /* updates contained in it ... */
    int ahead;       /* ... and predicted on top */
    uint64_t id;     /* new whenever the content is */
} fr__weight_block;

/* A micro-batch between forward and done. */
typedef struct fr__in_flight {
    int64_t batch;
    int micro;
    int block; /* kept for its backward; -1: none */
} fr__in_flight;

/* A block that all micro-batches of a mini-batch read in one of the passes. */
typedef struct fr__shared_block {
    int64_t batch;
    int block;    /* -1: none */
    bool is_last; /* the last micro-batch has read it */
} fr__shared_block;

/* Sampled weights of a prediction whose version does not exist yet. */
typedef struct fr__sampled_prediction {
    bool is_open;
    int64_t version;
    int ahead;
    float *predicted, *stale; /* (n_samples) */
} fr__sampled_prediction;

typedef struct fr__prediction_samples {
    size_t n_samples, stride; /* every stride-th weight */
    int n_predictions;
    fr__sampled_prediction *predictions;
    float *truth; /* (n_samples) of the newest weights */
    int64_t n_checked;
    fr_prediction_error error;
} fr__prediction_samples;

/* Coefficients of a group of parameters: of the open update, and of predictions. */
typedef struct fr__rule {
    fr_optim_options options; /* with its own weight decay */
    double lr_factor;
    fr_optim_coef coef, matrix_coef;
    fr_prediction_coef ahead, matrix_ahead; /* written by the open update */
    fr_prediction_coef alone, matrix_alone; /* written by a sweep of their own */
} fr__rule;

/* Weights that are swept alike. */
typedef struct fr__piece {
    size_t n;                /* floats */
    const fr_matrix *matrix; /* they belong to; NULL: to none */
    fr__rule *rule;          /* NULL: frozen */
} fr__piece;

struct fr_store {
    fr_ctx *ctx;
    fr_store_desc d;
    int n_blocks;
    int64_t version; /* of the newest weights */
    fr__weight_block *blocks;
    uint64_t last_id;
    int64_t first;          /* mini-batch that began to fill the pipeline */
    fr__in_flight *flights; /* (d.context.n_slots), the first n_flights in use */
    int n_flights;
    fr__shared_block shared[2]; /* FR_AS_FIRST: forward, backward */
    bool keeps_previous;        /* the policy reads FR_PREVIOUS */
    bool reads_newest;          /* some pass reads weights without prediction */
    bool counts;                /* no weights: blocks are added as they are needed */
    double *rates;              /* (farthest prediction) */
    float drift_keep;

    /* The update between begin and end. */
    int64_t batch;
    int n_rules;
    fr__rule *rules; /* (n_rules) */
    int to;          /* block of the new weights, FR_BF16: of their image; -1: none */
    int n_ahead, ahead_block[FR_MAX_AHEAD], ahead[FR_MAX_AHEAD];
    bool is_open;
    atomic_size_t n_done; /* floats */

    fr__prediction_samples samples;
};

/* The newest weights are floats apart from the blocks. */
static inline bool fr__store_has_master(const fr_store *s) { return s->d.type == FR_BF16; }

/* The block with the oldest content that may be overwritten: not the newest (but an image that no
 * pass reads), not kept except for mini-batch `batch` (-1: not kept at all), not marked in `taken`;
 * -1: none. */
int fr__store_free_block(const fr_store *s, int64_t batch, uint64_t taken);
/* The same, but a store that counts blocks adds one if none is free. */
int fr__store_take_block(fr_store *s, int64_t batch);
/* The block with that label; -1: none. */
int fr__store_find(const fr_store *s, int64_t version, int ahead);
/* That of the newest weights; FR_BF16: of their image, -1 if there is none. */
int fr__store_newest_block(const fr_store *s);
bool fr__store_is_kept(const fr_store *s, int block, int64_t batch);
/* Label a block whose content is new. */
void fr__store_label(fr_store *s, int block, int64_t version, int ahead);
/* Drop all but the newest weights, which become that version. */
void fr__store_forget(fr_store *s, int64_t version);
/* Weights predicted `ahead` updates past the newest, into block b; 0: their image. */
fr_status fr__store_predict(fr_store *s, int b, int ahead);

/* update.c: floats [at, at + n) of all blocks, as every sweep needs them; as the step of the open
 * update needs them, without coefficients of predictions. */
fr_sweep fr__store_sweep(const fr_store *s, size_t at, size_t n);
fr_sweep fr__store_step(const fr_store *s, size_t at, size_t n);

/* rules.c: the rules of all groups; their coefficients of an update; of its prediction j, `ahead`
 * updates past it; of a prediction alone, past the newest weights. */
fr_status fr__rules_create(fr_store *s);
void fr__rules_begin(fr_store *s, int64_t batch, double grad_scale);
void fr__rules_aim(fr_store *s, int ahead, int j);
void fr__rules_aim_alone(fr_store *s, int ahead);
/* The weights from `at` on, n at most. */
fr__piece fr__store_piece(fr_store *s, size_t at, size_t n);

/* matrices.c: the number of floats from `at` on, at most n, that belong to one matrix, or to none
 * (*m NULL). */
size_t fr__store_matrix_at(const fr_store *s, size_t at, size_t n, const fr_matrix **m);
/* The update of all matrices, whose gradients have been gathered. */
void fr__store_step_matrices(fr_store *s);
/* Predictions alone of a matrix; ahead_coef is that of a matrix of scale 1. */
void fr__store_predict_matrix(const fr_store *s, const fr_matrix *m, fr_sweep *w);

/* policy_state.c: whether some pass of a mini-batch wants weights of a kind. */
bool fr__any_want(const fr_store_desc *d, bool (*is)(const fr_want *want));
bool fr__store_needs_drift(const fr_store_desc *d);
bool fr__store_looks_back(const fr_store_desc *d);

fr_status fr__error_samples_init(fr_store *s, int farthest);
void fr__error_samples_fini(fr__prediction_samples *w);
void fr__error_samples_drop(fr__prediction_samples *w,
                            int64_t version); /* those made from that version on */
fr_status fr__error_samples_record(fr_store *s, const fr__weight_block *predicted);
fr_status fr__error_samples_compare(fr_store *s); /* after an update */

#endif
