/* run.h -- a training run as an object: open, step, evaluate, predict, close.
 *
 * A run is opened from a config (a file or a text) and, where the caller has them, from parts of
 * its own: a graph, a data set, starting weights. It belongs to one thread; callbacks run on that
 * thread. fr_train is a loop over these calls.
 *
 * With a team (team.h) every process opens the run with the same options and makes the same calls
 * in the same order; all get the same status. Rank 0 alone writes files, reports progress and has
 * metrics and the values of parameters. fr_run_predict works in a process alone. */
#ifndef FORERUN_RUN_H
#define FORERUN_RUN_H

#include <forerun/data.h>
#include <forerun/team.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Metrics of one mini-batch. Steps count completed updates: the first report has step 1. */
typedef struct fr_progress {
    int64_t step, n_steps, samples;
    double loss, lr, samples_per_s, elapsed_s, left_s;
    double grad_norm;                /* NaN: not computed */
    double eval_loss, eval_accuracy; /* NaN: no evaluation at this step */
    const char *checkpoint;          /* that has become whole, maybe of an earlier step; or NULL */
    const char *out;                 /* the run's folder; "": none */
    /* NaN likewise, and where the loss is of another kind: mean absolute error (mse, smooth_l1);
     * perplexity (cross_entropy of every token). Accuracy is of cross_entropy and bce. */
    double eval_mae, eval_perplexity;
} fr_progress;

typedef struct fr_run_result {
    int64_t steps, samples;
    double train_loss, eval_loss, eval_accuracy; /* NaN where not computed */
    double samples_per_s, wall_s;
    double stolen; /* share of the processors' time that the host of a virtual machine took */
    char weights_sha256[65]; /* "": no checkpoint was written */
    char out[4096];          /* "": the run has no folder, or did not come so far as to open it */
    bool wants_report;       /* run.report: `over`, whose maker has report.h, may leave one there */
    double eval_mae, eval_perplexity; /* as in fr_progress */
    /* fr_eval; NaN where the loss has none: accuracy of the five best classes; macro F1; R squared,
     * the mean over outputs. */
    double eval_top5, eval_f1, eval_r2;
} fr_run_result;

/* Members are only ever added at the end, so that a program runs with a newer library than it was
 * built with: `size` gives the members it has. A call refuses a size of 0, and members of a newer
 * version that are not zero. */
typedef struct fr_run_options {
    size_t size;        /* required: sizeof(fr_run_options) */
    fr_team *team;      /* train: the processes of the run; NULL: this one alone */
    const char *config; /* path; with config_text: its name in messages, NULL: "config" */
    int n_sets;
    const char *const *sets; /* key=value */
    /* The run's folder. fr_run_open: NULL: the run writes none. Other calls: NULL: run.out of the
     * config. */
    const char *out;
    bool resume;
    bool want_outputs;  /* fr_run_predict will be called: the outputs take memory of their own */
    int64_t dump_step;  /* mini-batch to lay open in step-K.safetensors, from 1; below: none */
    const char *ledger; /* train: file for the weight versions that every pass used; NULL: none */
    /* Folder of a run, a checkpoint folder, or a step folder. eval, generate: NULL: the run's.
     * train: starting weights, unless the run resumes; NULL: from the seed. */
    const char *checkpoint;
    void (*progress)(void *user, const fr_progress *p); /* after each mini-batch; NULL allowed */
    /* train: the run has ended with this status, and no other process can write to its folder yet.
     * NULL allowed */
    void (*over)(void *user, const fr_run_result *r, fr_status status);
    void *user;
    /* Set by a signal handler: finish what is begun, checkpoint, return FR_INTERRUPTED. May be
     * NULL. */
    volatile int *stop;
    const char *config_text; /* the config itself; NULL: `config` is a file */
    /* The caller's, alive until the run is closed: in place of the section `model` or `data`, which
     * the config then has not. NULL: as the config says. */
    fr_graph *graph; /* finished, with a loss */
    fr_dataset *data;
} fr_run_options;

typedef struct fr_run fr_run;

/* Checks everything, allocates everything, loads what the run starts from. The options and their
 * texts may go afterwards; team, graph, data, user and stop are used until the run is closed. The
 * caller owns *out and closes it; NULL after a failure. */
FR_API FR_MUST_USE fr_status fr_run_open(fr_ctx *ctx, const fr_run_options *o, fr_run **out);

/* Train n mini-batches; 0: up to the next evaluation or checkpoint of the config, or its end. On
 * the way the run evaluates and saves as the config says. The pipeline is empty before and after,
 * so that with an asynchronous method the weights depend on where steps end. *n_done (may be NULL)
 * is less than n at the end of the run, and where `stop` was set. A failure ends the run:
 * FR_DIVERGED leaves the last good weights to be read, after others it can only be closed. */
FR_API FR_MUST_USE fr_status fr_run_step(fr_run *r, int64_t n, int64_t *n_done);
/* All updates of the config are done, `stop` was set during the last call, or the run failed. */
FR_API bool fr_run_is_over(const fr_run *r);

/* Loss and accuracy over the evaluation data; NaN: nothing counted there, `stop` was set, or the
 * loss has no accuracy. */
FR_API FR_MUST_USE fr_status fr_run_evaluate(fr_run *r, double *loss, double *accuracy);

/* The network's outputs (logits) for n samples, as after the last update. input: (n, shape of the
 * input node), float or int32_t as that node's dtype; length: (n), NULL where the model has none;
 * outputs: (n, fr_run_output_count). Only with want_outputs and without a team. */
FR_API FR_MUST_USE fr_status fr_run_predict(fr_run *r, int64_t n, const void *input,
                                            const int32_t *length, float *outputs);
FR_API int64_t fr_run_output_count(const fr_run *r); /* floats of one sample */

/* Names and shapes of parameters are the graph's; it belongs to the run, or to the caller who gave
 * it. */
FR_API const fr_graph *fr_run_graph(const fr_run *r);
/* Values of a parameter (or of running statistics) by name, plain layout; n must be its count.
 * With a team `values` is NULL on ranks other than 0. */
FR_API FR_MUST_USE fr_status fr_run_get_param(fr_run *r, const char *name, int64_t n,
                                              float *values);
FR_API FR_MUST_USE fr_status fr_run_set_param(fr_run *r, const char *name, int64_t n,
                                              const float *values);

/* Metrics of the last mini-batch (loss NaN: none yet); texts live until the next call on the run.
 */
FR_API void fr_run_progress(const fr_run *r, fr_progress *out);

/* Save a checkpoint (checkpoint/step-N) into a folder from which `forerun train --resume` and
 * fr_run_options.checkpoint read it. NULL: the run's own. It is whole when the call returns. */
FR_API FR_MUST_USE fr_status fr_run_save(fr_run *r, const char *folder);

/* End the run and free it (NULL allowed). A run with a folder that has not failed leaves a
 * checkpoint and a summary there. *result (may be NULL) is filled as far as the run came.
 * FR_INTERRUPTED: `stop` was set before its end; failures of steps are not repeated. */
FR_API fr_status fr_run_close(fr_run *r, fr_run_result *result);

/* Train by the config: open, step to the end, close; the run has a folder (out, or run.out).
 * *result (may be NULL) is filled as far as the run came. */
FR_API FR_MUST_USE fr_status fr_train(fr_ctx *ctx, const fr_run_options *o, fr_run_result *result);
/* Loss and metrics of a checkpoint on the evaluation data. */
FR_API FR_MUST_USE fr_status fr_eval(fr_ctx *ctx, const fr_run_options *o, fr_run_result *result);

#ifdef __cplusplus
}
#endif
#endif
