/* bubble.h -- where the time went that no worker computed: the idle share of a run, split by cause.
 *
 * The workers' wall time per mini-batch is taken apart as
 *
 *     measured = C + (P0 - C) + (P1 - P0) + (measured - P1)
 *
 * C: computing and stepping, on the mean over workers. P0: what the virtual clock says when every
 * stage costs the mean, so that P0 - C is what the schedule itself leaves idle (fill and drain).
 * P1: what it says with the stages' own measured costs; more than P0 because they are uneven. The
 * rest is what the clock does not know: handing over, waiting for data, jitter. */
#ifndef FR_FORECAST_BUBBLE_H
#define FR_FORECAST_BUBBLE_H

#include <forerun/events.h>
#include <forerun/sched.h>

/* Shares of wall time. A part can be a little below 0: the clock runs on means, the run did not. */
typedef struct fr__bubble {
    double bubble;                               /* mean over workers: not in F, B, I, W or STEP */
    double fill_drain, imbalance, communication; /* add up to it */
    double optimizer; /* not part of it: STEP on the busiest worker, the update that is fused into a
                         backward included */
    int busiest;      /* worker */
    double scheduled_s_per_batch, measured_s_per_batch; /* P1; wall clock */
} fr__bubble;

typedef struct fr__bubble_input {
    const fr_schedule *schedule;
    const fr_worker_times *workers; /* [worker] */
    const fr_stage_times *stages;   /* [stage] */
    int64_t n_batches;              /* that the times are about */
    int64_t n_calls; /* of fr_engine_train: the pipeline filled and drained so often; 0 = 1 */
} fr__bubble_input;

/* All NaN (busiest -1) if nothing has run. */
fr_status fr__bubble_split(fr_ctx *ctx, const fr__bubble_input *in, fr__bubble *out);

#endif
