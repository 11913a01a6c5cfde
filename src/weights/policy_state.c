/* policy_state.c -- the state of a policy that a checkpoint saves, in addition to the newest
 * weights and the optimizer's state.
 *
 * After a drain nothing is in flight, and predictions are recomputed from the saved weights. Two
 * things cannot be recomputed: the version before the newest, if a policy reads it, and a running
 * mean of weight differences. */
#include "weights/store.h"

bool fr__any_want(const fr_store_desc *d, bool (*is)(const fr_want *want))
{
    for (int micro = 0; micro < d->context.n_micro; micro++) {
        fr_want f, b;
        d->policy->forward(&d->context, micro, &f);
        d->policy->backward(&d->context, micro, &b);
        if (is(&f) || is(&b)) return true;
    }
    return false;
}

static bool is_predicted(const fr_want *want) { return want->ahead > 0; }
static bool is_previous(const fr_want *want) { return want->base == FR_PREVIOUS; }

bool fr__store_needs_drift(const fr_store_desc *d)
{
    return d->policy->extrapolation == FR_EXTRAPOLATE_DRIFT && fr__any_want(d, is_predicted);
}

bool fr__store_looks_back(const fr_store_desc *d) { return fr__any_want(d, is_previous); }

const char *fr_store_policy_state_name(const fr_store_desc *d)
{
    fr_store_desc any = *d;
    if (any.context.n_stages == 0)
        any.context = (fr_policy_context){.n_stages = 2, .lead = 1, .n_micro = 2};
    if (fr__store_looks_back(&any)) return "previous";
    return fr__store_needs_drift(&any) ? "drift" : NULL;
}

/* The block of the version before the newest, or the one that the next update would fill. */
static int previous_block(const fr_store *s, bool *is_valid)
{
    int b = fr__store_find(s, s->version - 1, 0);
    *is_valid = b >= 0;
    return b >= 0 ? b : fr__store_free_block(s, -1, 0);
}

fr_policy_state fr_store_policy_state(const fr_store *s)
{
    fr_policy_state state = {.type = s->d.type};
    if (!s->keeps_previous) return (fr_policy_state){s->d.drift, FR_F32, s->d.drift != NULL};
    int b = previous_block(s, &state.is_valid);
    if (b >= 0) state.at = s->blocks[b].at;
    return state;
}

void fr_store_set_policy_state(fr_store *s)
{
    bool is_valid;
    int b = s->keeps_previous ? previous_block(s, &is_valid) : -1;
    if (b >= 0) fr__store_label(s, b, s->version - 1, 0);
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
    const int newest = fr__store_newest_block(s);
    for (int b = 0; b < s->n_blocks; b++)
        if (s->blocks[b].version == s->version) s->blocks[b].is_valid = false;
    fr__error_samples_drop(&s->samples, s->version);
    if (!fr__store_has_master(s)) fr__store_label(s, newest, s->version, 0);
}
