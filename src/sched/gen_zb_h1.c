/* gen_zb_h1.c -- 1F1B with the backward split (ZB-H1; Qi et al., Zero Bubble Pipeline Parallelism,
 * 2023).
 *
 * Upstream stages wait for the input gradient I only; the weight gradient W can fill the drain. I
 * follows its forward at the distance of 1F1B. W follows at distance p - 1 on every worker. Each
 * worker holds at most p micro-batches and fills the bubble at its end with deferred W.
 *
 *     w0  F0 F1 .  I0 W0 F2 I1 W1 F3 I2 W2 I3 W3
 *     w1  .  F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3 */
#include "sched/sched.h"

bool fr__emit_zero_bubble(const fr_schedule_desc *d, int w, int times, fr_schedule *s)
{
    int total = d->n_micro, last = d->n_stages - 1;
    for (int i = 0; i < total + times * last; i++) {
        int input = i - times * (last - w), weight = i - times * last;
        if (i < total) fr__emit(s, w, FR_DO_F, w, i);
        if (input >= 0 && input < total) fr__emit(s, w, FR_DO_I, w, input);
        if (weight >= 0) fr__emit(s, w, FR_DO_W, w, weight);
    }
    return !fr__emit_failed(s);
}

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    return fr__emit_zero_bubble(d, w, 1, s);
}

const fr_generator fr__gen_zb_h1 = {
    .name = "zb-h1",
    .summary = "1f1b with weight gradients deferred to fill the drain; flush",
    .is_flush = true,
    .is_split = true,
    .emit = emit,
};
