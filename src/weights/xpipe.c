/* xpipe.c -- XPipe (Guan et al., 2019): in each pass the first micro-batch of a mini-batch, the
 * bellwether, predicts; the others reuse its prediction.
 *
 *     s_f = round((N + T - k/2 - 2) / T)     the paper's, halves to even; for T = 1, where that
 *                                            is not always SpecTrain's count, SpecTrain's
 *     s_f = s_b + ceil((N - 1 - k) / T)      exact
 *     s_b = floor((T - 1 + floor(k/2)) / T)
 *
 * where N - 1 - k is the lead w: N + T - k/2 - 2 = w + T + k/2 - 1.
 *
 * A single stage predicts nothing, regardless of rounding.
 *
 * Three copies: the newest, the forward's and the backward's prediction. No update falls between
 * the backwards of a mini-batch, so the update before them always writes theirs. An update falls
 * between its forwards unless T divides N - 1 - k. Only if T divides it is the next forward a
 * bellwether, and the update writes its prediction too; otherwise the bellwether makes it in a
 * separate sweep. */
#include "weights/policy.h"

#include <math.h>

static int forward_distance(const fr_policy_context *context)
{
    if (context->n_stages == 1) return 0;
    if (context->exact || context->n_micro == 1)
        return fr__round_trip(context) + fr__gap(context, 0);
    double above = context->lead + context->n_micro + context->stage / 2.0 - 1;
    return (int)nearbyint(above / context->n_micro);
}

static void forward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)micro;
    *want = (fr_want){.base = FR_AS_FIRST, .ahead = forward_distance(context)};
}

static void backward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)micro;
    *want = (fr_want){.base = FR_AS_FIRST, .ahead = fr__round_trip(context)};
}

static int after(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    int n = 0;
    ahead[n++] = fr__round_trip(context);
    if (context->lead % context->n_micro == 0 && forward_distance(context) != ahead[0])
        ahead[n++] = forward_distance(context);
    return n;
}

const fr_policy fr__policy_xpipe = {
    .name = "xpipe",
    .summary = "both passes predicted by the first micro-batch for all of them; three copies",
    .extrapolation = FR_EXTRAPOLATE_CONSTANT,
    .forward = forward,
    .backward = backward,
    .after = after,
};
