/* policy.h -- inside the module: the policies of the registry and the counts they share.
 *
 * All counts are of local updates on one worker, in 1F1B without flush, where the worker runs w
 * forwards more than backwards before each backward, and steps after the last of its T backwards.
 * Stage k of N has w = N - 1 - k, unless stages have different numbers of replicas: then the
 * schedule says (context.lead). Replicas share the micro-batches of an update: T is one's share. */
#ifndef FR_WEIGHTS_POLICY_H
#define FR_WEIGHTS_POLICY_H

#include <forerun/weights.h>

extern const fr_policy fr__policy_live, fr__policy_stash, fr__policy_double_buffer,
    fr__policy_spectrain, fr__policy_spectrain_v2, fr__policy_xpipe, fr__policy_pipeoptim,
    fr__policy_decay_aware, fr__policy_pipemare;

/* w: forwards that the worker is ahead of its backwards. */
static inline int fr__lead(const fr_policy_context *s)
{
    return s->lead > 0 ? s->lead : s->n_stages - 1 - s->stage;
}

static inline int fr__ceil_div(int a, int b) { return a > 0 ? (a + b - 1) / b : 0; }

/* Updates between forward and backward of micro-batch `micro` of a mini-batch: the forward sees
 * floor((j - w) / T) updates and the backward floor(j / T), j = micro. */
static inline int fr__gap(const fr_policy_context *s, int micro)
{
    return fr__ceil_div(fr__lead(s) - micro, s->n_micro);
}

/* The gap of the first forward after an update: that one is micro-batch w mod T. */
static inline int fr__next_gap(const fr_policy_context *s) { return fr__lead(s) / s->n_micro; }

/* SpecTrain's count from a backward until its mini-batch has gone all the way round. */
static inline int fr__round_trip(const fr_policy_context *s)
{
    return (s->n_micro - 1 + s->stage / 2) / s->n_micro;
}

/* Slots of policies that want the newest weights, write nothing and keep nothing. */
void fr__want_newest(const fr_policy_context *context, int micro, fr_want *want);
void fr__want_as_forward(const fr_policy_context *context, int micro, fr_want *want);
int fr__after_nothing(const fr_policy_context *context, int ahead[FR_MAX_AHEAD]);

/* Forward predicted to the version its own backward will see: pipeoptim, decay-aware. */
void fr__want_gap(const fr_policy_context *context, int micro, fr_want *want);
int fr__after_gap(const fr_policy_context *context, int ahead[FR_MAX_AHEAD]);
int fr__gap_blocks(
    const fr_policy_context *context); /* the newest, and one prediction where there is any */

#endif
