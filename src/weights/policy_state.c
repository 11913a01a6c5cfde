/* policy_state.c -- the state of a policy that a checkpoint saves, in addition to the newest
 * weights and the optimizer's state.
 *
 * After a drain nothing is in flight, and predictions are recomputed from the saved weights. Two
 * things cannot be recomputed: the version before the newest, if a policy reads it, and a running
 * mean of weight differences. */
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

const char *fr_store_policy_state_name(const fr_store_desc *d)
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

float *fr_store_policy_state(fr_store *s, bool *is_valid)
{
    *is_valid = s->d.drift != NULL;
    if (!s->keeps_previous) return s->d.drift;
    int b = previous_block(s, is_valid);
    return b < 0 ? NULL : s->blocks[b].at;
}

void fr_store_set_policy_state(fr_store *s)
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
    fr__error_samples_drop(&s->samples, version);
    fr__store_label(s, s->newest, version, 0);
}
