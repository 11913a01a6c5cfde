/* predict.h -- what a trained network says about samples, into a file. */
#ifndef FORERUN_PREDICT_H
#define FORERUN_PREDICT_H

#include <forerun/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_predict_options {
    const char *input; /* .npy, or .csv for data of tables; NULL: the evaluation data */
    const char *node;  /* whose values; NULL: the output that the loss reads */
    const char *out;   /* .npy (fp32), .csv or .jsonl; replaced as a whole at the end */
    void (*progress)(void *user, int64_t n_done, int64_t n); /* NULL allowed */
    void *user;
} fr_predict_options;

/* Samples in order pass through the stages of the config, in one process, with the weights of
 * o->checkpoint. *n (may be NULL) is their number. FR_INTERRUPTED: o->stop was set, and no file was
 * written. */
FR_API FR_MUST_USE fr_status fr_predict(fr_ctx *ctx, const fr_run_options *o,
                                        const fr_predict_options *p, int64_t *n);

#ifdef __cplusplus
}
#endif
#endif
