/* spectrain_v2.c -- the formula of the SpecTrain authors' repository: the forward reads weights
 * predicted N - 1 - k updates ahead, to the version of its backward, and the backward reads that
 * same prediction again.
 *
 * Predictions are kept for micro-batches in flight as stash keeps versions: up to N - k of them
 * in 1F1B, in addition to the newest weights. */
#include "weights/policy.h"

const fr_policy fr__policy_spectrain_v2 = {
    .name = "spectrain-v2",
    .summary = "forward predicted to its backward's version, kept for it; up to N - k + 1 copies",
    .extrapolation = FR_EXTRAPOLATE_APPLIED,
    .forward = fr__want_gap,
    .backward = fr__want_as_forward,
    .after = fr__after_gap,
};
