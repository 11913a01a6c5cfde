/* scorer.h -- metrics that need the outputs of every sample: top-5 accuracy, F1, R squared. */
#ifndef FR_RUN_SCORER_H
#define FR_RUN_SCORER_H

#include "config/setup.h"

/* Classes of samples (not of tokens), or numbers. */
typedef struct fr__scorer {
    const fr__setup *s;
    int64_t batch, n_piece;    /* mini-batches of a call of the engine */
    size_t n_out, target_size; /* floats and bytes of a sample */
    float *outputs;            /* (n_piece, batch, n_out) */
    char *targets;             /* (n_piece, batch, target_size) */
    fr_source source;          /* of the mini-batches; its targets are kept */
    int64_t n_kept;            /* mini-batches of this call */
    int64_t n, n_top5;
    int64_t *hits, *chosen, *real;           /* [class] */
    double *shift, *sum, *squares, *residue; /* [output] of numbers; shift: the first target */
    int64_t *count;                          /* [output] */
} fr__scorer;

/* Whether the loss has such metrics. */
bool fr__scorer_fits(const fr__setup *s);
fr_status fr__scorer_open(const fr__setup *s, int64_t batch, fr__scorer *k);
void fr__scorer_close(fr__scorer *k); /* a zeroed one is fine */
/* A source that keeps the targets that it passes on. */
fr_source fr__scorer_tap(fr__scorer *k, fr_source source);
void fr__scorer_add(fr__scorer *k); /* after a call of the engine */
/* NaN: there is none. F1 is the mean over classes that occur; R squared over outputs that vary. */
void fr__scorer_result(const fr__scorer *k, double *top5, double *f1, double *r2);

#endif
