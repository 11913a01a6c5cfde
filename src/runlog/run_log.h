/* run_log.h -- what a run says of itself in the log, at its start and at its end. */
#ifndef FR_RUNLOG_RUN_LOG_H
#define FR_RUNLOG_RUN_LOG_H

#include "forecast/bubble.h"
#include "forecast/forecast.h"

/* The model, the memory it will take, how it is cut. */
void fr__log_start(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f,
                   const fr__footprint *footprint);
/* How long a mini-batch takes, by the first ones of the run; n_left are to come. */
void fr__log_late_forecast(const fr__setup *s, const fr__time_forecast *f, int64_t n_left);
/* Predicted against measured: time and memory of the workers, where they were idle, and how good
 * predicted weights were. */
void fr__log_end(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f,
                 const fr__bubble *b, const fr_run_result *r);

#endif
