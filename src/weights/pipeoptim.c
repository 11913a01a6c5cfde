/* pipeoptim.c -- PipeOptim (Guan et al., 2023): the forward reads the weights that its backward is
 * expected to find, s = N - 1 - k updates on along the direction the optimizer applies; the
 * backward reads the newest. Forward and backward then agree as far as the prediction is good. */
#include "weights/policy.h"

const fr_policy fr__policy_pipeoptim = {
    .name = "pipeoptim",
    .summary = "forward predicted to its backward's version, backward newest; two copies",
    .extrapolation = FR_EXTRAPOLATE_APPLIED,
    .forward = fr__want_gap,
    .backward = fr__want_newest,
    .after = fr__after_gap,
};
