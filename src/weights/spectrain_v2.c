/* spectrain_v2.c -- the formula of the SpecTrain authors' repository: the forward reads weights
 * predicted N - 1 - k updates ahead, to the version of its backward, and the backward reads that
 * same prediction again.
 *
 * Predictions are kept for micro-batches in flight as stash keeps versions: up to N - k of them.
 * The newest weights come on top, since no prediction stands for them. */
#include "weights/policy.h"

/* Different predictions among w + 1 micro-batches in a row, at worst. Micro-batch j predicts from
 * floor((j - w) / T) to floor(j / T); where these are the same it reads the newest weights. */
static int n_blocks(const fr_policy_context *context)
{
    int w = fr__lead(context), n = context->n_micro, most = 0;
    int base = fr__ceil_div(w, n) * n; /* so that j - w >= 0 */
    for (int first = base; first < base + n; first++) {
        int different = 0;
        for (int j = first; j <= first + w; j++) {
            bool same = j > first && (j - w) % n && j % n;
            if (!same && j / n != (j - w) / n) different++;
        }
        if (different > most) most = different;
    }
    return most + 1;
}

const fr_policy fr__policy_spectrain_v2 = {
    .name = "spectrain-v2",
    .summary = "forward predicted to its backward's version, kept for it; up to N - k + 1 copies",
    .course = FR_COURSE_APPLIED,
    .n_blocks = n_blocks,
    .forward = fr__want_gap,
    .backward = fr__want_as_forward,
    .after = fr__after_gap,
};
