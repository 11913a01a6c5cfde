/* bubble.h -- the idle share of the workers' time, split by cause.
 *
 * The wall time per mini-batch is split into
 *
 *     measured = C + (P0 - C) + (P1 - P0) + (measured - P1)
 *
 * C: computation and optimizer steps, the mean over workers. P0: the virtual clock with the mean
 * cost for every stage, so P0 - C is idle time of the schedule itself (fill and drain). P1: the
 * virtual clock with the measured cost of each stage; larger than P0 because the stages are uneven.
 * The rest is not modelled by the clock: transfers, waiting for data, jitter. */
#ifndef FR_FORECAST_BUBBLE_H
#define FR_FORECAST_BUBBLE_H

#include <forerun/events.h>
#include <forerun/sched.h>

/* Shares of wall time. A part can be slightly negative: the clock uses mean times. */
typedef struct fr__bubble {
    double bubble;                               /* mean over workers: not in F, B, I, W or STEP */
    double fill_drain, imbalance, communication; /* add up to it */
    double optimizer; /* not part of bubble: STEP on the busiest worker, including updates fused
                         into a backward */
    int busiest;      /* worker */
    double scheduled_s_per_batch, measured_s_per_batch; /* P1; wall clock */
} fr__bubble;

typedef struct fr__bubble_input {
    const fr_schedule *schedule;
    const fr_worker_times *workers; /* [worker] */
    const fr_stage_times *stages;   /* [stage] */
    int64_t n_batches;              /* covered by the times */
    int64_t n_calls; /* calls of fr_engine_train, each with one fill and one drain; 0 = 1 */
} fr__bubble_input;

/* All NaN (busiest -1) if nothing has run. */
fr_status fr__bubble_split(fr_ctx *ctx, const fr__bubble_input *in, fr__bubble *out);

#endif
