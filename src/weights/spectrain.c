/* spectrain.c -- SpecTrain (Chen et al., 2018): both passes read weights predicted for the update
 * at the end of the mini-batch's round trip.
 *
 *     s_b = floor(k / 2)   updates from the backward until the round trip ends
 *     s_f = s_b + N - 1 - k   the same from the forward
 *
 * With T micro-batches in an update both are counted in updates: s_b rounds up over the
 * micro-batches still to come, and the forward adds the gap of its micro-batch.
 *
 * Two copies: the newest and one prediction. The update writes the prediction that the next
 * forward reads. If the backward reads another one (2 <= k < N - 1), a separate sweep rewrites the
 * block; a third copy would avoid this sweep. */
#include "weights/policy.h"

static void forward(const fr_policy_context *context, int micro, fr_want *want)
{
    *want =
        (fr_want){.base = FR_NEWEST, .ahead = fr__round_trip(context) + fr__gap(context, micro)};
}

static void backward(const fr_policy_context *context, int micro, fr_want *want)
{
    (void)micro;
    *want = (fr_want){.base = FR_NEWEST, .ahead = fr__round_trip(context)};
}

static int after(const fr_policy_context *context, int ahead[FR_MAX_AHEAD])
{
    ahead[0] = fr__round_trip(context) + fr__next_gap(context);
    return 1;
}

const fr_policy fr__policy_spectrain = {
    .name = "spectrain",
    .summary = "both passes predicted to the end of the round trip; two copies",
    .extrapolation = FR_EXTRAPOLATE_APPLIED,
    .forward = forward,
    .backward = backward,
    .after = after,
};
