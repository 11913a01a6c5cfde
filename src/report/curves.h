/* curves.h -- metrics.jsonl as curves with a limited number of points, for any number of
 * mini-batches. */
#ifndef FR_REPORT_CURVES_H
#define FR_REPORT_CURVES_H

#include "base/vec.h"
#include "io/json.h"

/* Values that are averaged over the mini-batches of a point. */
typedef enum fr__mean { FR_MEAN_LOSS, FR_MEAN_LR, FR_MEAN_RATE, FR_MEAN_NORM, FR_N_MEANS } fr__mean;

/* A range of consecutive mini-batches. */
typedef struct fr__point {
    int64_t n_steps;
    double step, samples, elapsed_s; /* at its end */
    double sum[FR_N_MEANS];
    int64_t n[FR_N_MEANS]; /* numbers in the sum; missing ones do not count */
    double low, high;      /* of the loss; NaN: none */
} fr__point;

typedef struct fr__evaluation {
    double step, elapsed_s, loss, accuracy;
} fr__evaluation;

typedef struct fr__curves {
    int64_t n_steps;   /* lines of the file */
    fr__point *points; /* (max_points) */
    int n_points, max_points;
    int64_t stretch; /* mini-batches per point */
    FR_VEC(fr__evaluation) evals;
    int64_t n_evals, eval_stride; /* one of this many is kept, and the last */
} fr__curves;

/* A missing file gives no points. The last line may be incomplete, because a run may be writing
 * it. */
fr_status fr__curves_read(fr_ctx *ctx, const char *path, int max_points, fr__curves *c);
void fr__curves_write(const fr__curves *c, fr__json *j); /* n_steps, metrics, eval */
void fr__curves_fini(fr__curves *c);

#endif
