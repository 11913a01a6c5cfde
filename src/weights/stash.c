/* stash.c -- weight stashing (PipeDream, SOSP 2019): the forward reads the newest weights, the
 * backward of the same micro-batch reads the same block again.
 *
 * A block is kept while a micro-batch in flight needs it. In flight are N - k micro-batches in a
 * row; every T-th of them meets a new version. */
#include "weights/policy.h"

static int n_blocks(const fr_policy_context *context)
{
    int in_flight = fr__lead(context) + 1, versions = fr__gap(context, 0) + 1;
    return in_flight < versions ? in_flight : versions;
}

const fr_policy fr__policy_stash = {
    .name = "stash",
    .summary = "forward newest, backward the same block again; up to N - k copies",
    .n_blocks = n_blocks,
    .forward = fr__want_newest,
    .backward = fr__want_as_forward,
    .after = fr__after_nothing,
};
