/* gen_v_half.c -- two stages per worker in a V, with half the activations of 1F1B or a third of
 * them (V-Half, V-Min; Qi et al., Pipeline Parallelism with Controllable Memory, 2024).
 *
 * A pattern of 6 slots repeats: one forward, one input and one weight gradient of each stage. The
 * slots of micro-batch 0 on worker w of p say where the others are, 6 slots apart each:
 *
 *              Fa    Fb          Ib               Ia              gap
 *     v-half   2w    3p - 2 - w  3p - 1 + g + 2w  6p - 2 + g - w  3 if p is even
 *     v-min    w     2p - 1 - w  2p + g + w       4p - 1 + g - w  2 if 3 divides p
 *
 * The gap g keeps them apart. Every slot that is left takes the weight gradient of the oldest I.
 * The slots only give the order: workers run it without gaps of their own. desc.reorder changes the
 * order of fill and drain (v_reorder.c). */
#include "sched/v_list.h"

/* Slots of micro-batch 0. */
typedef struct pattern {
    int at[4]; /* of Fa, Fb, Ib, Ia */
} pattern;

static bool emit_pattern(const fr_schedule_desc *d, int w, pattern first, fr_schedule *s)
{
    static const char *const what[] = {"Fa", "Fb", "Ib", "Ia"};
    enum { EVERY = 6 };
    fr__v_list v = {.s = s, .w = w, .n_micro = d->n_micro};
    int end = first.at[3] + EVERY * d->n_micro;
    for (int slot = 0; slot < end; slot++) {
        const char *next = "W";
        for (int i = 0; i < 4; i++) {
            int after = slot - first.at[i];
            if (after >= 0 && after % EVERY == 0 && after / EVERY < d->n_micro) next = what[i];
        }
        fr__v_put(&v, 1, next);
    }
    fr__v_put(&v, 2 * d->n_micro, "W"); /* those that are left */
    bool is_last = w == s->n_workers - 1;
    return d->reorder && is_last ? fr__v_reorder(s, d->n_micro) : !fr__emit_failed(s);
}

static bool emit_half(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int p = s->n_workers, gap = p % 2 == 0 ? 3 : 0;
    pattern first = {{2 * w, 3 * p - 2 - w, 3 * p - 1 + gap + 2 * w, 6 * p - 2 + gap - w}};
    return emit_pattern(d, w, first, s);
}

static bool emit_min(const fr_schedule_desc *d, int w, fr_schedule *s)
{
    int p = s->n_workers, gap = p % 3 == 0 ? 2 : 0;
    pattern first = {{w, 2 * p - 1 - w, 2 * p + gap + w, 4 * p - 1 + gap - w}};
    return emit_pattern(d, w, first, s);
}

const fr_generator fr__gen_v_half = {
    .name = "v-half",
    .summary = "two stages per worker in a V, half the activations of 1f1b; flush",
    .is_flush = true,
    .is_split = true,
    .has_chunks = true,
    .is_v = true,
    .has_reorder = true,
    .emit = emit_half,
};

const fr_generator fr__gen_v_min = {
    .name = "v-min",
    .summary = "two stages per worker in a V, a third of the activations of 1f1b; flush",
    .is_flush = true,
    .is_split = true,
    .has_chunks = true,
    .is_v = true,
    .has_reorder = true,
    .emit = emit_min,
};
