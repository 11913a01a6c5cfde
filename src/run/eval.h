/* eval.h -- loss and metrics over the evaluation part of the data. */
#ifndef FR_RUN_EVAL_H
#define FR_RUN_EVAL_H

#include "config/setup.h"

/* Means over the targets that count; NaN where the loss has no such metric (fr_progress). */
typedef struct fr__scores {
    double loss, accuracy, mae, perplexity;
} fr__scores;

/* Evaluates `batch` samples at a time, the size of the engine. All scores are NaN if no target
 * counted, if *stop (may be NULL) was set, and on ranks other than 0. All ranks call it together.
 */
fr_status fr__evaluate(fr__setup *s, fr_engine *e, int batch, const volatile int *stop,
                       fr__scores *out);
/* A result of a run that has not begun. */
fr_run_result fr__no_result(void);
void fr__scores_put(const fr__scores *s, fr_run_result *r);

/* Loads weights: `from` is a run's folder, its checkpoint folder, or one step's folder; NULL: the
 * config's run.out or, if that has no checkpoint, its model.weights. */
fr_status fr__load_weights(fr__setup *s, fr_engine *e, const char *from);

/* An engine that evaluates only, `batch` samples at a time, all on one worker. want_logits: it can
 * return them. */
fr_status fr__eval_engine(fr__setup *s, int batch, bool want_logits, fr_engine **out);

#endif
