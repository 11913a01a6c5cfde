/* live.c -- the newest weights in both passes.
 *
 * With a flush there is only one version. Without one the backward reads weights up to N - 1 - k
 * updates newer than its forward. One copy of the weights; gradients of mixed versions. */
#include "weights/policy.h"

const fr_policy fr__policy_live = {
    .name = "live",
    .summary = "the newest weights in both passes; one copy",
    .forward = fr__want_newest,
    .backward = fr__want_newest,
    .after = fr__after_nothing,
};
