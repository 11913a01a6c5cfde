/* stability.h -- how sharp a loss may be until an asynchronous pipeline amplifies its own errors:
 * the largest stable (learning rate x curvature) of a plan, in a linear model.
 *
 * The loss is quadratic with curvature L along one direction. A gradient is taken at the weights
 * that the forwards read: a version with updates missing, or predicted ones. Backwards differ from
 * them in second order only. An optimizer is linear: momentum, and for the adam family a
 * denominator that does not change. Weight decay, clipping and noise are left out; rates are those
 * after all warm-up. docs/methods.md#stability says what follows from it and what does not. */
#ifndef FORERUN_STABILITY_H
#define FORERUN_STABILITY_H

#include <forerun/exec_plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Largest stable lr * L; infinite: all are stable. */
typedef struct fr_stability {
    double one_worker; /* without a pipeline */
    double shared;     /* a direction with an equal part of each stage */
    double within;     /* a direction within one stage: the lowest limit of any stage */
    int stage;         /* that stage */
} fr_stability;

/* Of the full pipeline; the plan's replicas step with their mean. options->lr is not read. Fails
 * with FR_UNSUPPORTED if the segment of a schedule file ends before its pipeline is full. */
FR_API FR_MUST_USE fr_status fr_exec_plan_stability(fr_ctx *ctx, const fr_exec_plan *p,
                                                    const fr_optimizer *optimizer,
                                                    const fr_optim_options *options,
                                                    fr_stability *out);
/* How many times smaller the rate must be than that of one worker, in the shared direction. */
FR_API double fr_stability_factor(const fr_stability *s);

#ifdef __cplusplus
}
#endif
#endif
