/* stash.c -- weight stashing (PipeDream, SOSP 2019): the forward reads the newest weights, the
 * backward of the same micro-batch reads the same block again.
 *
 * A block is kept while a micro-batch in flight needs it. In 1F1B N - k consecutive micro-batches
 * are in flight; every T-th of them reads a new version. */
#include "weights/policy.h"

const fr_policy fr__policy_stash = {
    .name = "stash",
    .summary = "forward newest, backward the same block again; up to N - k copies",
    .forward = fr__want_newest,
    .backward = fr__want_as_forward,
    .after = fr__after_nothing,
};
