/* pipeoptim.c -- PipeOptim (Guan et al., 2023): the forward reads the weights predicted for its
 * backward, s = N - 1 - k updates ahead along the direction that the optimizer applies; the
 * backward reads the newest. Both passes read the same weights up to the prediction error. */
#include "weights/policy.h"

const fr_policy fr__policy_pipeoptim = {
    .name = "pipeoptim",
    .summary = "forward predicted to its backward's version, backward newest; two copies",
    .extrapolation = FR_EXTRAPOLATE_APPLIED,
    .forward = fr__want_gap,
    .backward = fr__want_newest,
    .after = fr__after_gap,
};
