/* gen_zb_h2.c -- ZB-H1 with twice the memory and no bubble between mini-batches (ZB-H2; Qi et al.,
 * Zero Bubble Pipeline Parallelism, 2023).
 *
 * The distances of zb-h1 are doubled: on worker w of p, I follows its forward at distance
 * 2(p - 1 - w) and W at distance 2(p - 1). Each worker holds up to 2p - 1 micro-batches, and is
 * busy from its first forward to its last W: worker w begins and ends w slots after worker 0, so
 * mini-batches follow each other without a gap (m >= 2p - 1).
 *
 *     w0  F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
 *     w1  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 */
#include "sched/sched.h"

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    return fr__emit_zero_bubble(d, w, 2, s);
}

const fr_generator fr__gen_zb_h2 = {
    .name = "zb-h2",
    .summary = "zb-h1 with twice the memory: no gap between mini-batches; flush",
    .is_flush = true,
    .is_split = true,
    .emit = emit,
};
