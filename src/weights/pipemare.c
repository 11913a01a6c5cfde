/* pipemare.c -- PipeMare-style (Yang et al., MLSys 2021): the forward reads the newest weights; the
 * backward extrapolates from the newest weights at its time back to approximately those of its
 * forward, by delta, a running mean of weight differences.
 *
 *     T1   lr_k(t) = lr / tau_k^(1 - min(t / K, 1)), tau_k = max(N - 1 - k, 1)
 *     T2   backward on W - (tau_f - tau_b) * delta, tau_f - tau_b = N - 1 - k
 *          delta = d * delta + (1 - d) * (W_new - W_old), d = 0.135^(1 / (tau_f - tau_b))
 *
 * Delays are counted in updates: ceil(w / T), w = N - 1 - k the lead. 0.135 is about exp(-2). */
#include "weights/policy.h"

#include <math.h>

static void backward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)micro;
    *want = (fr_want){.base = FR_NEWEST, .ahead = fr__gap(context, 0)};
}

static int after(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    ahead[0] = fr__gap(context, 0);
    return 1;
}

static double lr_factor(const fr_policy_context *context, int64_t t)
{
    int tau = fr__gap(context, 0);
    if (tau <= 1 || t >= context->lr_warmup) return 1;
    return pow(tau, (double)t / (double)context->lr_warmup - 1);
}

static double drift_keep(const fr_policy_context *context)
{
    int tau = fr__gap(context, 0);
    return tau > 0 ? pow(0.135, 1.0 / tau) : 0;
}

const fr_policy fr__policy_pipemare = {
    .name = "pipemare",
    .summary = "forward newest, backward walked back by the drift; two copies, lower early rates",
    .extrapolation = FR_EXTRAPOLATE_DRIFT,
    .forward = fr__want_newest,
    .backward = backward,
    .after = after,
    .lr_factor = lr_factor,
    .drift_keep = drift_keep,
};
