/* decay_aware.c -- FTPipe-style prediction (Eliad et al., ATC 2021): as pipeoptim, but future
 * gradients are assumed to be zero, so the momentum decays: (g - g^(s+1)) / (1 - g) replaces s for
 * sgd with momentum g. More cautious than pipeoptim with noisy gradients; without momentum the same
 * as live. */
#include "weights/policy.h"

const fr_policy fr__policy_decay_aware = {
    .name = "decay-aware",
    .summary = "as pipeoptim, momentum dying away without new gradients; two copies",
    .extrapolation = FR_EXTRAPOLATE_DECAY,
    .forward = fr__want_gap,
    .backward = fr__want_newest,
    .after = fr__after_gap,
};
