/* policy.h -- inside the module: the policies of the registry and the counts they share.
 *
 * All counts are local updates on one worker of a schedule without flush. The worker has w
 * micro-batches in flight when the first forward of a mini-batch begins, and steps after the last
 * of its T backwards. w is context.lead: N - 1 - k for stage k of N in 1F1B without replicas, and
 * (N - 1 - k) T if the backwards of a mini-batch run together (nF1B). Replicas share the
 * micro-batches of an update: T is the share of one. The number of blocks is counted along the
 * lists of the schedule (src/methods). */
#ifndef FR_WEIGHTS_POLICY_H
#define FR_WEIGHTS_POLICY_H

#include <forerun/weights.h>

extern const fr_policy fr__policy_live, fr__policy_stash, fr__policy_double_buffer,
    fr__policy_spectrain, fr__policy_spectrain_v2, fr__policy_xpipe, fr__policy_pipeoptim,
    fr__policy_decay_aware, fr__policy_pipemare, fr__policy_lookahead;

static inline int fr__ceil_div(int a, int b) { return a > 0 ? (a + b - 1) / b : 0; }

/* Updates between forward and backward of micro-batch `micro` of a mini-batch: the forward sees
 * floor((j - w) / T) updates and the backward floor(j / T), j = micro. */
static inline int fr__gap(const fr_policy_context *s, int micro)
{
    return fr__ceil_div(s->lead - micro, s->n_micro);
}

/* The gap of the first forward after an update: that one is micro-batch w mod T. */
static inline int fr__next_gap(const fr_policy_context *s) { return s->lead / s->n_micro; }

/* SpecTrain's count from a backward until the end of the round trip of its mini-batch. */
static inline int fr__round_trip(const fr_policy_context *s)
{
    return (s->n_micro - 1 + s->stage / 2) / s->n_micro;
}

/* Slots of policies that read the newest weights, write no predictions and keep nothing. */
void fr__want_newest(const fr_policy_context *context, int micro, fr_want *want);
void fr__want_as_forward(const fr_policy_context *context, int micro, fr_want *want);
int fr__after_nothing(const fr_policy_context *context, int ahead[FR_MAX_AHEAD]);

/* Forward predicted to the version its own backward will see: pipeoptim, decay-aware. */
void fr__want_gap(const fr_policy_context *context, int micro, fr_want *want);
int fr__after_gap(const fr_policy_context *context, int ahead[FR_MAX_AHEAD]);

#endif
