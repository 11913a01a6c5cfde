/* summary.h -- summary.json: settings and results of a run. */
#ifndef FR_RUNLOG_SUMMARY_H
#define FR_RUNLOG_SUMMARY_H

#include "checkpoint/folder.h"
#include "forecast/bubble.h"
#include "forecast/forecast.h"

typedef struct fr__summary {
    const fr_run_result *result;
    const char *config;     /* path as the user gave it */
    const char *status;     /* "done", "interrupted", "diverged", "failed" */
    const char *checkpoint; /* last one written or resumed from */
    const fr__time_forecast *forecast;
    const fr__footprint *footprint;
    const fr__bubble *bubble;
    int64_t started;   /* start of this session: seconds since 1970 */
    int64_t n_samples; /* trained in this session */
    double best;       /* evaluation by train.stop.metric, if one was judged: */
    int64_t best_step; /* 0: none */
    bool has_ended_early;
    double data_wait_s; /* time that workers waited for data */
} fr__summary;

fr_status fr__summary_write(const fr__setup *s, const fr_engine *e, const fr__folder *f,
                            const fr__summary *sum);

#endif
