/* live.c -- whatever is newest, in both passes.
 *
 * Under a flush that is the only version there is; without one the backward sees weights up to
 * N - 1 - k updates newer than its forward did. Memory of one copy, gradients of mixed versions. */
#include "weights/policy.h"

const fr_policy fr__policy_live = {
    .name = "live",
    .summary = "the newest weights in both passes; one copy",
    .forward = fr__want_newest,
    .backward = fr__want_newest,
    .after = fr__after_nothing,
};
