/* gen_zbv.c -- zero bubble with two stages per worker in a V (ZB-V; Qi et al., Pipeline Parallelism
 * with Controllable Memory, 2024).
 *
 * The last worker turns a micro-batch around on itself, and the loss is on worker 0, which holds
 * its forward for the shortest time. So each worker holds 2p stages' activations, as much as the
 * first worker of 1F1B, and the pipeline has no gap between mini-batches if F = I = W and m >=
 * 2p - 1. In small letters the second stage of the worker:
 *
 *     w0  F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3
 *     w1  .  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3 */
#include "sched/v_list.h"

/* The lists are those of at least 2p - 1 micro-batches, without the ones that do not exist. */
static bool emit(const fr_schedule_desc *d, int r, fr_schedule *s)
{
    int p = s->n_workers, n = d->n_micro < 2 * p - 1 ? 2 * p - 1 : d->n_micro;
    fr__v_list v = {.s = s, .w = r, .n_micro = d->n_micro};
    const int *forwards = v.n[FR_DO_F];
    fr__v_put(&v, 2 * (p - r) - 1, "Fa");
    fr__v_put(&v, r, "Fb Fa");
    fr__v_put(&v, p - r, "Fb Ib Wb");
    while (forwards[1] < forwards[0] || forwards[0] < n) {
        if (forwards[0] < n) fr__v_put(&v, 1, "Fa");
        fr__v_put(&v, 1, "Ia Wa Fb Ib Wb");
    }
    fr__v_put(&v, r, "Ia Ib");
    fr__v_put(&v, p - r, "Ia Wa");
    fr__v_put(&v, n - v.n[FR_DO_W][1], "Wb");
    fr__v_put(&v, n - v.n[FR_DO_W][0], "Wa");
    return !fr__emit_failed(s);
}

const fr_generator fr__gen_zbv = {
    .name = "zbv",
    .summary = "two stages per worker in a V, no gap between mini-batches; flush",
    .is_flush = true,
    .is_split = true,
    .has_chunks = true,
    .is_v = true,
    .emit = emit,
};
