/* decay_aware.c -- FTPipe-style prediction (Eliad et al., ATC 2021): as pipeoptim, but nothing is
 * assumed of gradients to come, so the momentum dies away: (g - g^(s+1)) / (1 - g) in place of s
 * for sgd with momentum g. Careful where gradients are noisy; the same as live without momentum. */
#include "weights/policy.h"

const fr_policy fr__policy_decay_aware = {
    .name = "decay-aware",
    .summary = "as pipeoptim, momentum dying away without new gradients; two copies",
    .extrapolation = FR_EXTRAPOLATE_DECAY,
    .forward = fr__want_gap,
    .backward = fr__want_newest,
    .after = fr__after_gap,
};
