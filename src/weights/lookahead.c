/* lookahead.c -- the forward looks past its backward; stages with delay have slower momentum and a
 * lower rate.
 *
 *     d_k = ceil(w / T), D = the largest d_k       delay in updates, w the lead
 *     forward reads the weights predicted s_k updates ahead, backward the newest
 *     s_k = D + 1 on every stage                   adam, adamw, nadam, muon, lion, or batch norm
 *     s_k = d_k + 1                                sgd without batch norm
 *     1 - beta1_k = (1 - beta1) / (1 + d_k)        sgd: momentum, and 1 - dampening likewise
 *     lr_k = lr / sqrt(1 + d_k)
 *     with sgd and batch norm:                     divided by sqrt(1 + d_k); lr_k = lr
 *
 * Delay makes a direction of high curvature unstable, and a prediction to the version of the
 * backward misses what oscillates in it. Looking further ahead, also where there is no delay,
 * damps the oscillation; slow momentum and a lower rate reduce the gain of the stages whose
 * gradients are late. A step of sgd grows with the gradient, and D + 1 of them lead too far from
 * the weights where there is no delay, unless a batch norm behind every layer makes the scale of
 * its weights irrelevant; adam and muon bound their steps. Behind a batch norm the weights grow
 * until the rate suits them, so that a lower rate costs updates and gains no stability, and
 * momentum is slowed down less. docs/methods/forerun.md has the derivation and what was measured.
 *
 * After the pipeline was empty the stages are less than their delay apart: the distance is 1 for
 * the first mini-batch and grows by 1 to s_k. Two copies: the newest and one prediction, which
 * the update writes. */
#include "weights/policy.h"

#include <math.h>

static int distance(const fr_policy_context *context)
{
    if (context->n_stages == 1) return 0;
    return 1 + (context->is_robust ? context->max_delay : fr__gap(context, 0));
}

static double slowdown(const fr_policy_context *context) { return 1.0 + fr__gap(context, 0); }

static void forward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)micro;
    *want = (fr_want){.base = FR_NEWEST, .ahead = distance(context), .grows = true};
}

static int after(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    ahead[0] = distance(context);
    return 1;
}

static double lr_factor(const fr_policy_context *context, int64_t t)
{
    (void)t;
    return context->is_scale_free ? 1 : 1 / sqrt(slowdown(context));
}

/* A constant gradient makes the same momentum as with the options of the run. */
static void adapt(const fr_policy_context *context, fr_optim_options *o)
{
    const double late = slowdown(context), share = 1 / (context->is_scale_free ? sqrt(late) : late);
    if (share == 1) return;
    o->beta1 = 1 - (1 - o->beta1) * share;
    o->momentum = 1 - (1 - o->momentum) * share;
    o->dampening = 1 - (1 - o->dampening) * share;
    o->dampens_first = true;
}

const fr_policy fr__policy_lookahead = {
    .name = "lookahead",
    .summary =
        "forward predicted past its backward, backward newest, late stages slower; two copies",
    .extrapolation = FR_EXTRAPOLATE_APPLIED,
    .forward = forward,
    .backward = fr__want_newest,
    .after = after,
    .lr_factor = lr_factor,
    .adapt = adapt,
};
