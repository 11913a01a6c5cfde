/* gen_nf1b.c -- n forwards, one joint backward (nF1B, TiMePReSt style).
 *
 * 1F1B over mini-batches: a mini-batch's forwards run one by one, its backwards all together, and
 * worker w is n - 1 - w mini-batches ahead. Two micro-batches A and B a mini-batch:
 *
 *     w0  F0A F0B F1A F1B .   B0  F2A F2B B1 ...
 *     w1  .   F0A F0B B0  F1A F1B B1  ... */
#include "sched/sched.h"

static void emit_batch(fr_schedule *s, int w, fr_action action, int batch, int n_micro)
{
    for (int m = 0; m < n_micro; m++) fr__emit(s, w, action, w, batch * n_micro + m);
}

static int lead(const fr_schedule_desc *d, int stage)
{
    return (d->n_stages - 1 - stage) * d->n_micro;
}

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int ahead = d->n_stages - 1 - w;
    for (int b = 0; b < d->n_batches + ahead; b++) {
        if (b < d->n_batches) emit_batch(s, w, FR_DO_F, b, d->n_micro);
        if (b >= ahead) emit_batch(s, w, FR_DO_B, b - ahead, d->n_micro);
    }
    return !fr__emit_failed(s);
}

const fr_generator fr__gen_nf1b = {
    .name = "nf1b",
    .summary = "a mini-batch's forwards one by one, then its backwards together, on and on",
    .ahead = FR_AHEAD_BATCHES,
    .lead = lead,
    .emit = emit,
};
