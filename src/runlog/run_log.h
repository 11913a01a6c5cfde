/* run_log.h -- log lines of a run at its start and at its end. */
#ifndef FR_RUNLOG_RUN_LOG_H
#define FR_RUNLOG_RUN_LOG_H

#include "forecast/bubble.h"
#include "forecast/forecast.h"

/* Model, memory, layout, forecast. */
void fr__log_start(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f,
                   const fr__footprint *footprint);
/* The late forecast of the time of a mini-batch; n_left mini-batches follow. */
void fr__log_late_forecast(const fr__setup *s, const fr__time_forecast *f, int64_t n_left);
/* Forecast against measurement: time and memory of the workers; idle time; the error of predicted
 * weights. */
void fr__log_end(const fr__setup *s, const fr_engine *e, const fr__time_forecast *f,
                 const fr__bubble *b, const fr_run_result *r);

#endif
