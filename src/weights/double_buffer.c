/* double_buffer.c -- double-buffered weights (PipeDream-2BW, ICML 2021): both passes of mini-batch
 * b use version b - 1, so every stage has a delay of one update and holds two versions.
 *
 * This works while at most two mini-batches are in flight: T > w on every stage, which is T >= N
 * without replicas. A single stage has no delay. */
#include "weights/policy.h"

static const char *check(const fr_policy_context *context)
{
    if (context->n_stages > 1 && context->n_micro < context->lead + 1)
        return "double-buffer needs at least as many micro-batches per update on each worker as "
               "it has in flight: as there are stages, for every replica of a stage; raise "
               "train.micro or use stash";
    return NULL;
}

static void either(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)micro;
    *want = (fr_want){.base = context->n_stages > 1 ? FR_PREVIOUS : FR_NEWEST};
}

const fr_policy fr__policy_double_buffer = {
    .name = "double-buffer",
    .summary = "the version before the newest in both passes; two copies",
    .needs_micro = true,
    .check = check,
    .forward = either,
    .backward = either,
    .after = fr__after_nothing,
};
