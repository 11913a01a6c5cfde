/* gen_gpipe.c -- all forwards, then all backwards (GPipe, Huang et al., 2019).
 *
 *     w0  F0 F1 F2 .  .  B0 B1 B2
 *     w1  .  F0 F1 F2 B0 B1 B2 .
 *
 * Backwards run in the order of the forwards, not reversed as in the paper: the time is the same,
 * and gradients are summed in the same order as in every other schedule. */
#include "sched/sched.h"

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    for (int m = 0; m < d->n_micro; m++) fr__emit(s, w, FR_DO_F, w, m);
    for (int m = 0; m < d->n_micro; m++) fr__emit(s, w, FR_DO_B, w, m);
    return !fr__emit_failed(s);
}

const fr_generator fr__gen_gpipe = {
    .name = "gpipe",
    .summary = "all forwards of a mini-batch, then all backwards",
    .is_flush = true,
    .any_replicas = true,
    .ahead = FR_AHEAD_BATCH,
    .emit = emit,
};
