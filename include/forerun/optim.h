/* optim.h -- optimizers, weights predicted from their state, and learning-rate schedules.
 *
 * An optimizer is a const record: how many state blocks it has, and two linear sweeps over
 * any range of a stage's blocks: `step` applies an update and, in the same pass, writes weights
 * predicted for updates to come; `predict` writes predictions alone, with the same bits. Records
 * are immutable; sweeps on disjoint ranges may run on several threads. Rules and names follow
 * PyTorch 1.13; muon is that of PyTorch 2.9.
 *
 * A rule that needs whole matrices has a second pair of sweeps for them (fr_matrix_rule), with the
 * orthogonalisation in between; all other weights go by `step`. */
#ifndef FORERUN_OPTIM_H
#define FORERUN_OPTIM_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FR_MAX_OPTIM_STATE 2
#define FR_MAX_AHEAD 2 /* predictions written by one sweep */

/* Values of all optimizers; each reads its own. Zero is zero here: fr_optimizer.defaults fills
 * them, then the caller changes what differs. */
typedef struct fr_optim_options {
    double lr;
    double weight_decay;
    double momentum, dampening; /* sgd */
    bool nesterov;              /* sgd, muon; muon has momentum, too */
    bool dampens_first;         /* sgd: the first update too, unlike PyTorch */
    double beta1, beta2, eps;   /* adam family, muon */
    double momentum_decay;      /* nadam */
    double adamw_factor;        /* muon: rate of weights outside of matrices, as a multiple of lr */
    bool match_rms_adamw;       /* muon: matrices move as far as with adamw */
} fr_optim_options;

/* Coefficients of one update; filled by fr_optim_prepare. Plain numbers, computed in
 * double. */
typedef struct fr_optim_coef {
    float grad_scale; /* from clipping; 1 = none */
    float lr;
    float l2;                   /* weight decay as part of the gradient: g + l2 * w */
    float keep;                 /* decoupled weight decay: w * keep first */
    float momentum, fresh;      /* sgd: buffer = momentum * buffer + fresh * g */
    float use_grad, use_buffer; /* sgd, muon: applied is use_grad * g + use_buffer * buffer */
    float gain1, gain2;         /* adam family: 1 - beta1, 1 - beta2; muon: 1 - momentum */
    float eps, unbias2;         /* denominator: sqrt(v) * unbias2 + eps */
    float rate_grad, rate_mean; /* numerator: rate_grad * g + rate_mean * m, lr included */
} fr_optim_coef;

/* The quantity that a prediction extrapolates. */
typedef enum fr_extrapolation {
    FR_EXTRAPOLATE_APPLIED,  /* the update direction the optimizer applies */
    FR_EXTRAPOLATE_CONSTANT, /* adam family: bias corrections of update 1, for ever (XPipe) */
    FR_EXTRAPOLATE_DECAY,    /* future gradients are zero: momentum dies away (FTPipe-style) */
    FR_EXTRAPOLATE_DRIFT     /* a running mean of past weight differences (PipeMare) */
} fr_extrapolation;

/* Coefficients of a sweep's predictions: ahead[j] = w - by[j] * toward. `toward` is the drift if
 * there is one; otherwise sgd takes v, and the adam family m / (sqrt(v) * unbias2 + eps). */
typedef struct fr_prediction_coef {
    float by[FR_MAX_AHEAD];
    float unbias2, eps;
    float keep; /* drift = keep * drift + (1 - keep) * (w after - w before) */
} fr_prediction_coef;

/* One pass over a range of a stage's blocks; pointers to its first float, (n) each. No block
 * overlaps another, save that `to` may be `from`. */
typedef struct fr_sweep {
    size_t n;
    const float *from; /* weights before the update */
    float *to;         /* weights after it; predict: not used */
    const float *grad; /* predict: not used */
    float *state[FR_MAX_OPTIM_STATE];
    float *drift; /* NULL: predictions go by the optimizer's state */
    int n_ahead;
    /* Floats; or bf16, rounded to the nearest: then `to` is `from`, and by[j] = 0 gives the image
     * of the weights themselves. */
    void *ahead[FR_MAX_AHEAD];
    bool ahead_is_bf16;
    fr_prediction_coef ahead_coef;
} fr_sweep;

typedef struct fr_optimizer fr_optimizer;

/* A matrix in a stage's blocks: row-major, rows `ld` floats apart; the floats between are zero. */
typedef struct fr_matrix {
    size_t offset; /* floats */
    int64_t rows, cols, ld;
} fr_matrix;

/* The rule of a matrix: `gather` sweeps ranges as their gradients arrive and leaves the matrix to
 * orthogonalise in the last state block; it is orthogonalised in place; `apply` sweeps the whole
 * matrix. Of the two records only sweeps, and of `apply` also prepare and distance, are used. */
typedef struct fr_matrix_rule {
    const fr_optimizer *gather, *apply;
    /* Factor of the coefficients lr and by for a matrix of this size. */
    double (*scale)(const fr_optim_options *o, int64_t rows, int64_t cols);
} fr_matrix_rule;

struct fr_optimizer {
    const char *name, *summary;
    bool
        bounds_steps; /* a step of a weight is about the rate at most, however large its gradient */
    int n_state;
    const char *state_names[FR_MAX_OPTIM_STATE]; /* "momentum"; "exp_avg", "exp_avg_sq" */
    /* Keys this optimizer reads beside lr, NULL-terminated: "momentum", ... */
    const char *const *keys;
    void (*defaults)(fr_optim_options *o);
    /* NULL if fine, else what is wrong: "momentum must be in [0, 1)". */
    const char *(*check)(const fr_optim_options *o);
    /* Coefficients of update t = 1, 2, ...: a pure function of its arguments, so a resumed run
     * needs nothing but t. o->lr is the rate of this very update. */
    void (*prepare)(const fr_optim_options *o, int64_t t, fr_optim_coef *c);
    void (*step)(const fr_optim_coef *c, const fr_sweep *s);
    /* The n_ahead predictions from the weights `from`: the bits that the step which made them and
     * the state writes. */
    void (*predict)(const fr_sweep *s);
    /* Distance that the weights move in n updates after update t: see
     * fr_optim_prepare_prediction. */
    double (*distance)(const fr_optim_options *o, fr_extrapolation extrapolation, int64_t t, int n,
                       const double *lr);
    const fr_matrix_rule *matrices; /* NULL: none, `step` serves all weights */
};

FR_API const fr_optimizer *const *fr_optim_list(void); /* NULL-terminated */
FR_API const fr_optimizer *fr_optim_find(const char *name);

/* Coefficients of update t = 1, 2, ... with learning rate lr (o->lr is not read). */
FR_API void fr_optim_prepare(const fr_optimizer *opt, const fr_optim_options *o, int64_t t,
                             double lr, double grad_scale, fr_optim_coef *c);

/* Coefficients of prediction j of a sweep: n updates past update t (0: before the first one), with
 * the rates lr[0 .. n - 1]. All predictions of a sweep have the same extrapolation and t. Weight
 * decay is left out, because it is not part of the direction. */
FR_API void fr_optim_prepare_prediction(const fr_optimizer *opt, const fr_optim_options *o,
                                        fr_extrapolation extrapolation, int64_t t, int n,
                                        const double *lr, int j, fr_prediction_coef *coef);

/* Learning rate by update number. */
typedef struct fr_lr_options {
    const char *name;   /* as fr_lr_list has it; NULL: constant */
    int64_t warmup;     /* updates of linear rise before the schedule starts, from lr/warmup */
    int64_t total;      /* updates of the whole run */
    int64_t every;      /* step: updates between falls; 0 = 1000 */
    double gamma;       /* step: factor of a fall; 0 = 0.1 */
    double power;       /* polynomial; 0 = 1 */
    double min_ratio;   /* schedules with an end: final lr / lr */
    double decay;       /* wsd: share of the run, at its end, in which the rate falls; 0 = 0.1 */
    double rise;        /* one-cycle: share of the run until the full rate; 0 = 0.3 */
    double start_ratio; /* one-cycle: first lr / lr; 0 = 0.04 */
    const char *shape;  /* of the descent: linear, cosine, sqrt; NULL: the schedule's */
    int64_t timescale;  /* inverse-sqrt: updates; 0 = the warm-up, without one 10000 */
} fr_lr_options;

typedef struct fr_lr_schedule {
    const char *name, *summary;
    bool is_endless;         /* the length of a run does not matter */
    const char *shape;       /* default of fr_lr_options.shape; NULL: not read */
    const char *const *keys; /* NULL-terminated */
    double (*factor)(const fr_lr_options *o,
                     int64_t t); /* t = 0 for the first update after warm-up */
} fr_lr_schedule;

FR_API const fr_lr_schedule *const *fr_lr_list(void);
FR_API const fr_lr_schedule *fr_lr_find(const char *name);
/* The defaults in numbers, for those who show them; never needed before a call. */
FR_API void fr_lr_defaults(fr_lr_options *o);
/* NULL if fine, else what is wrong: "every must be at least 1". */
FR_API const char *fr_lr_check(const fr_lr_options *o);
/* Learning rate of update t (first is 0), warm-up included. */
FR_API double fr_lr_at(const fr_lr_options *o, double base_lr, int64_t t);

#ifdef __cplusplus
}
#endif
#endif
