/* eval.h -- loss and accuracy over the evaluation part of the data. */
#ifndef FR_RUN_EVAL_H
#define FR_RUN_EVAL_H

#include "config/setup.h"

/* Evaluates `batch` samples at a time, the size of the engine. Both results are NaN if no target
 * counted, if *stop (may be NULL) was set, and on ranks other than 0. All ranks call it together.
 */
fr_status fr__evaluate(fr__setup *s, fr_engine *e, int batch, const volatile int *stop,
                       double *loss, double *accuracy);

/* Loads weights: `from` is a run's folder, its checkpoint folder, or one step's folder; NULL: the
 * config's run.out or, if that has no checkpoint, its model.weights. */
fr_status fr__load_weights(fr__setup *s, fr_engine *e, const char *from);

/* An engine that evaluates only, `batch` samples at a time, all on one worker. want_logits: it can
 * return them. */
fr_status fr__eval_engine(fr__setup *s, int batch, bool want_logits, fr_engine **out);

#endif
