/* gen_dualpipev.c -- two stages per worker in a V, most backwards whole (DualPipeV; the V half of
 * DualPipe, DeepSeek-V3, 2024).
 *
 * Backwards are split only in the fill and the drain, where a weight gradient has a gap to fill, so
 * the schedule suits networks in which the two halves take longer than a whole backward. In small
 * letters the second stage of the worker:
 *
 *     w0  F0 F1 F2 f0 i0 w0 f1 F3 b1--- f2 B0--- b2--- f3 .  B1--- b3--- I2 W2 I3 W3
 *     w1  .  F0 f0 F1 f1 F2 b0--- f2 B0--- F3 b1--- f3 B1--- b2--- B2--- i3 I3 w3 W3 */
#include "sched/v_list.h"

#include <stdio.h>

static bool emit(const fr_schedule_desc *d, int r, fr_schedule *s)
{
    int p = s->n_workers, below = p - r - 1;
    fr__v_list v = {.s = s, .w = r, .n_micro = d->n_micro};
    fr__v_put(&v, 2 * below, "Fa");
    fr__v_put(&v, r + 1, "Fa Fb");
    fr__v_put(&v, below, "Ib W Fb");
    fr__v_put(&v, d->n_micro - 2 * p + r + 1, "Fa Bb Fb Ba");
    fr__v_put(&v, below, "Bb Fb Ba");
    /* r + 1 backwards of each stage. The second half of them is split; its W come last. */
    fr__v_put(&v, (r + 1) / 2, "Bb Ba");
    if (r % 2 == 0) fr__v_put(&v, 1, "Bb Ia");
    fr__v_put(&v, (r + 1) / 2, "Ib Ia");
    fr__v_put(&v, below, "W Ia");
    fr__v_put(&v, r + 1, "W");
    return !fr__emit_failed(s);
}

static const char *check(const fr_schedule_desc *d)
{
    static _Thread_local char text[160];
    int p = d->n_stages / 2;
    if (d->n_micro >= 2 * p) return NULL;
    snprintf(
        text, sizeof text,
        "%d micro-batch%s on %d worker%s; it needs two for each worker, at least %d (zbv takes "
        "any number)",
        d->n_micro, d->n_micro == 1 ? "" : "es", p, p == 1 ? "" : "s", 2 * p);
    return text;
}

const fr_generator fr__gen_dualpipev = {
    .name = "dualpipev",
    .summary = "two stages per worker in a V, backwards split in fill and drain only; flush",
    .is_flush = true,
    .is_split = true,
    .has_chunks = true,
    .is_v = true,
    .check = check,
    .emit = emit,
};
