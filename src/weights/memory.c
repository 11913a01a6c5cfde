/* memory.c -- what a store must carry over from one run to the next, or take in from outside,
 * beside the newest weights and the optimizer's state.
 *
 * At a drain nothing is in flight, and predictions can be made again from what is saved anyway. Two
 * things cannot: the version before the newest, where a policy reads that, and a running mean of
 * weight differences. */
#include "weights/store.h"

bool fr__store_needs_drift(const fr_store_desc *d)
{
    return d->policy->extrapolation == FR_EXTRAPOLATE_DRIFT && d->n_blocks > 1;
}

bool fr__store_looks_back(const fr_store_desc *d)
{
    for (int micro = 0; micro < d->context.n_micro; micro++) {
        fr_want f, b;
        d->policy->forward(&d->context, micro, &f);
        d->policy->backward(&d->context, micro, &b);
        if (f.base == FR_PREVIOUS || b.base == FR_PREVIOUS) return true;
    }
    return false;
}

const char *fr_store_memory_name(const fr_store_desc *d)
{
    fr_store_desc any = *d;
    if (any.context.n_stages == 0) {
        any.context = (fr_policy_context){.n_stages = 2, .lead = 1, .n_micro = 2};
        any.n_blocks = 2;
    }
    if (fr__store_looks_back(&any)) return "previous";
    return fr__store_needs_drift(&any) ? "drift" : NULL;
}

/* The block of the version before the newest, or the one that the next update would fill. */
static int previous_block(const fr_store *s, bool *is_valid)
{
    int b = fr__store_find(s, fr_store_version(s) - 1, 0);
    *is_valid = b >= 0;
    return b >= 0 ? b : fr__store_free_block(s, -1, 0);
}

float *fr_store_memory(fr_store *s, bool *is_valid)
{
    *is_valid = s->d.drift != NULL;
    if (!s->keeps_previous) return s->d.drift;
    int b = previous_block(s, is_valid);
    return b < 0 ? NULL : s->blocks[b].at;
}

void fr_store_set_memory(fr_store *s)
{
    bool is_valid;
    int b = s->keeps_previous ? previous_block(s, &is_valid) : -1;
    if (b >= 0) fr__store_label(s, b, fr_store_version(s) - 1, 0);
    if (s->d.drift) fr_store_changed(s);
}

void fr_store_renumber(fr_store *s, int64_t version)
{
    bool is_valid = false;
    int previous = s->keeps_previous ? previous_block(s, &is_valid) : -1;
    fr__store_forget(s, version);
    if (is_valid) fr__store_label(s, previous, version - 1, 0);
}

void fr_store_changed(fr_store *s)
{
    int64_t version = fr_store_version(s);
    for (int b = 0; b < s->n_blocks; b++)
        if (s->blocks[b].version == version && s->blocks[b].ahead > 0)
            s->blocks[b].is_valid = false;
    fr__watch_drop(&s->watch, version);
    fr__store_label(s, s->newest, version, 0);
}
