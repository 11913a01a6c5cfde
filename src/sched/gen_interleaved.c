/* gen_interleaved.c -- interleaved 1F1B (Megatron-LM, Narayanan et al., 2021).
 *
 * Each of p workers owns v chunks: stages w, w + p, w + 2p, ... Micro-batches form groups of p. A
 * group passes chunk 0, then chunk 1, and so on, so its first micro-batch returns to worker 0 when
 * its last one has left. Fill and drain then take the time of p - 1 chunks instead of p - 1
 * workers' whole shares. Stages and micro-batches with p = 2, v = 2:
 *
 *     w0  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 ...
 *     w1  .   1F0 1F1 3F0 3B0 3F1 3B1 ... */
#include "sched/sched.h"

#include <stdio.h>

/* The i-th forward of worker w, or its i-th backward, with chunks in reverse. */
static void emit_nth(fr_schedule *s, int w, fr_action action, int chunks, int i)
{
    int p = s->n_workers, round = i / (p * chunks), chunk = i % (p * chunks) / p;
    if (action == FR_DO_B) chunk = chunks - 1 - chunk;
    fr__emit(s, w, action, chunk * p + w, round * p + i % p);
}

static bool emit(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int p = s->n_workers, total = d->n_micro * d->chunks;
    int ahead = 2 * (p - 1 - w) + (d->chunks - 1) * p;
    for (int i = 0; i < total + ahead; i++) {
        if (i < total) emit_nth(s, w, FR_DO_F, d->chunks, i);
        if (i >= ahead) emit_nth(s, w, FR_DO_B, d->chunks, i - ahead);
    }
    return !fr__emit_failed(s);
}

static const char *check(const fr_schedule_desc *d)
{
    static _Thread_local char text[160];
    int p = d->n_stages / d->chunks;
    if (d->n_micro % p == 0) return NULL;
    snprintf(text, sizeof text,
             "micro must be a multiple of the workers: %d micro-batch%s, %d workers (%d stages in "
             "chunks of %d)",
             d->n_micro, d->n_micro == 1 ? "" : "es", p, d->n_stages, d->chunks);
    return text;
}

const fr_generator fr__gen_interleaved = {
    .name = "interleaved",
    .summary = "one forward, one backward, with several chunks of the model per worker; flush",
    .is_flush = true,
    .has_chunks = true,
    .check = check,
    .emit = emit,
};
