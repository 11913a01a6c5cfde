/* store.c -- the weight blocks of a stage, and the choice of the block that a pass reads.
 *
 * Each block has a label: the number of updates in it, and the number predicted on top. A pass
 * requests a label. If a block has it, the pass reads that block; otherwise a prediction is written
 * into a free block. Blocks are kept for micro-batches in flight (FR_AS_FORWARD) and for
 * mini-batches that read one block throughout a pass (FR_AS_FIRST); all other blocks are free. */
#include "weights/store.h"

#include "backend/device.h"
#include "base/alloc.h"

enum { FORWARD, BACKWARD };

static uint64_t bit(int block) { return (uint64_t)1 << block; }

void fr__store_label(fr_store *s, int block, int64_t version, int ahead)
{
    fr__weight_block *b = &s->blocks[block];
    b->is_valid = true, b->version = version, b->ahead = ahead, b->id = ++s->last_id;
}

/* --- life --- */

static fr_status check_desc(fr_ctx *ctx, const fr_store_desc *d)
{
    const fr_policy_context *context = &d->context;
    bool counts = d->n_blocks == 0 && d->n == 0;
    if (!d->policy || (!counts && (!d->optimizer || !d->device || d->n_blocks < 1)))
        return fr_fail(ctx, FR_INTERNAL,
                       "weights: a policy, an optimizer, a device and a block are needed");
    if (context->n_stages < 1 || context->stage < 0 || context->stage >= context->n_stages ||
        context->n_micro < 1 || context->n_slots < 1)
        return fr_fail(ctx, FR_INTERNAL,
                       "weights of stage %d of %d: %d micro-batches in an update and %d slots; at "
                       "least one of each is needed",
                       context->stage, context->n_stages, context->n_micro, context->n_slots);
    const char *wrong = d->policy->check ? d->policy->check(context) : NULL;
    if (wrong)
        return fr_fail(ctx, FR_INVALID, "stage %d of %d, %d micro-batches in an update: %s",
                       context->stage, context->n_stages, context->n_micro, wrong);
    if (counts) return FR_OK;
    wrong = d->optimizer->check(&d->options);
    if (wrong) return fr_fail(ctx, FR_INVALID, "optimizer %s: %s", d->optimizer->name, wrong);
    bool is_whole = d->n == 0 || (d->blocks && d->stride >= d->n);
    is_whole &= d->n == 0 || d->type != FR_BF16 || d->master;
    for (int i = 0; i < d->optimizer->n_state; i++) is_whole &= d->n == 0 || d->state[i];
    is_whole &= d->n == 0 || !fr__store_needs_drift(d) || d->drift;
    is_whole &= d->n_matrices == 0 || (d->optimizer->matrices && d->matrices && d->scratch);
    if (!is_whole)
        return fr_fail(ctx, FR_INTERNAL, "weights of stage %d: a block is missing", context->stage);
    return FR_OK;
}

static bool is_unpredicted(const fr_want *w) { return w->ahead == 0 && w->base != FR_AS_FORWARD; }

/* The farthest prediction of any micro-batch in either pass. */
static int survey(const fr_store *s, int *farthest_forward)
{
    const fr_policy *p = s->d.policy;
    int farthest = 0, after[FR_MAX_AHEAD];
    for (int micro = 0; micro < s->d.context.n_micro; micro++) {
        fr_want f, b;
        p->forward(&s->d.context, micro, &f);
        p->backward(&s->d.context, micro, &b);
        if (f.ahead > *farthest_forward) *farthest_forward = f.ahead;
        if (b.ahead > farthest) farthest = b.ahead;
    }
    for (int n = p->after(&s->d.context, after); n-- > 0;)
        if (after[n] > farthest) farthest = after[n];
    return *farthest_forward > farthest ? *farthest_forward : farthest;
}

static fr_status place_blocks(fr_store *s)
{
    const size_t bytes = fr_dtype_bytes(s->d.type);
    for (int b = 0; b < s->n_blocks && s->d.n > 0; b++) {
        s->blocks[b].at = (char *)s->d.blocks + (size_t)b * s->d.stride * bytes;
        /* Updates skip the padding, which must be zero in every block. */
        if (b > 0 || fr__store_has_master(s))
            FR_TRY(fr__device_copy(s->d.device, s->blocks[b].at, NULL, s->d.n * bytes));
    }
    return FR_OK;
}

fr_status fr_store_create(fr_ctx *ctx, const fr_store_desc *d, fr_store **out)
{
    *out = NULL;
    FR_TRY(check_desc(ctx, d));
    fr_store *s = FR_NEW(fr_store);
    if (!s) return fr__no_memory(ctx, sizeof *s, "a weight store");
    s->ctx = ctx;
    s->d = *d;
    if (d->policy->adapt) d->policy->adapt(&d->context, &s->d.options);
    if (!fr__store_needs_drift(d)) s->d.drift = NULL;
    s->counts = d->n_blocks == 0;
    s->n_blocks = s->counts ? !fr__store_has_master(s) : d->n_blocks;
    s->keeps_previous = fr__store_looks_back(d);
    s->reads_newest = fr__any_want(d, is_unpredicted);
    int farthest_forward = 0, farthest = survey(s, &farthest_forward);
    s->blocks = FR_NEW_ARRAY(fr__weight_block, s->counts ? FR_MAX_WEIGHT_BLOCKS : s->n_blocks);
    s->flights = FR_NEW_ARRAY(fr__in_flight, d->context.n_slots);
    s->rates = FR_NEW_ARRAY(double, farthest > 0 ? farthest : 1);
    fr_status status = FR_OK;
    if (s->n_blocks > FR_MAX_WEIGHT_BLOCKS)
        status = fr_fail(ctx, FR_UNSUPPORTED,
                         "policy %s would hold %d weight blocks on stage %d; %d is the most",
                         d->policy->name, s->n_blocks, d->context.stage, FR_MAX_WEIGHT_BLOCKS);
    else if (!s->blocks || !s->flights || !s->rates)
        status = fr__no_memory(ctx, sizeof *s->rates * (size_t)(farthest + 1), "a weight store");
    if (status == FR_OK) status = fr__rules_create(s);
    if (status == FR_OK) status = fr__error_samples_init(s, farthest_forward);
    if (status == FR_OK) status = place_blocks(s);
    if (status == FR_OK && !fr__store_has_master(s)) fr__store_label(s, 0, 0, 0);
    if (d->policy->drift_keep) s->drift_keep = (float)d->policy->drift_keep(&d->context);
    if (status == FR_OK) status = fr_store_reset(s, 0);
    if (status != FR_OK) {
        fr_store_free(s);
        return status;
    }
    *out = s;
    return FR_OK;
}

void fr_store_free(fr_store *s)
{
    if (!s) return;
    fr__error_samples_fini(&s->samples);
    fr__free(s->rules);
    fr__free(s->rates);
    fr__free(s->flights);
    fr__free(s->blocks);
    fr__free(s);
}

int fr_store_n_blocks(const fr_store *s) { return s->n_blocks; }

size_t fr_weight_bytes(fr_dtype type, int n_blocks)
{
    size_t master = type == FR_BF16 ? sizeof(float) : 0;
    return master + (size_t)n_blocks * fr_dtype_bytes(type);
}

float *fr_store_newest(const fr_store *s)
{
    return fr__store_has_master(s) ? s->d.master : s->blocks[fr__store_newest_block(s)].at;
}

int64_t fr_store_version(const fr_store *s) { return s->version; }

void fr_store_abandon(fr_store *s)
{
    s->n_flights = 0;
    s->is_open = false;
    for (int pass = 0; pass < 2; pass++)
        s->shared[pass] = (fr__shared_block){.batch = -1, .block = -1};
}

void fr__store_forget(fr_store *s, int64_t version)
{
    const int newest = fr__store_newest_block(s);
    fr_store_abandon(s);
    fr__error_samples_drop(&s->samples, INT64_MIN);
    for (int b = 0; b < s->n_blocks; b++) s->blocks[b].is_valid = false;
    s->version = version;
    if (!fr__store_has_master(s)) fr__store_label(s, newest, version, 0);
}

void fr_store_drained(fr_store *s) { s->first = fr_store_version(s); }

fr_status fr_store_reset(fr_store *s, int64_t version)
{
    fr__store_forget(s, version);
    fr_store_drained(s);
    if (!s->d.drift) return FR_OK;
    return fr__device_copy(s->d.device, s->d.drift, NULL, s->d.n * sizeof(float));
}

/* --- which block --- */

/* A block shared by a mini-batch is needed until its last micro-batch has read it. A store that
 * counts blocks keeps a predicted block of each pass until the next mini-batch replaces it, so that
 * the update can write both. */
static bool is_shared(const fr_store *s, int block, int64_t batch)
{
    for (int pass = 0; pass < 2; pass++) {
        const fr__shared_block *shared = &s->shared[pass];
        bool is_reserved = s->counts && shared->batch != batch && s->blocks[block].ahead > 0;
        if (shared->block == block && (!shared->is_last || is_reserved)) return true;
    }
    return false;
}

bool fr__store_is_kept(const fr_store *s, int block, int64_t batch)
{
    for (int i = 0; i < s->n_flights; i++)
        if (s->flights[i].block == block && s->flights[i].batch != batch) return true;
    return is_shared(s, block, batch);
}

int fr__store_free_block(const fr_store *s, int64_t batch, uint64_t taken)
{
    int best = -1, newest = fr__store_newest_block(s);
    if (newest >= 0 && (s->reads_newest || !fr__store_has_master(s))) taken |= bit(newest);
    for (int b = 0; b < s->n_blocks; b++) {
        if (taken & bit(b) || fr__store_is_kept(s, b, batch)) continue;
        const fr__weight_block *x = &s->blocks[b], *y = best < 0 ? NULL : &s->blocks[best];
        if (!y || x->is_valid < y->is_valid ||
            (x->is_valid && y->is_valid && x->version < y->version))
            best = b;
    }
    return best;
}

int fr__store_take_block(fr_store *s, int64_t batch)
{
    int b = fr__store_free_block(s, batch, 0);
    if (b >= 0 || !s->counts || s->n_blocks == FR_MAX_WEIGHT_BLOCKS) return b;
    return s->n_blocks++;
}

int fr__store_find(const fr_store *s, int64_t version, int ahead)
{
    for (int b = 0; b < s->n_blocks; b++)
        if (s->blocks[b].is_valid && s->blocks[b].version == version && s->blocks[b].ahead == ahead)
            return b;
    return -1;
}

int fr__store_newest_block(const fr_store *s) { return fr__store_find(s, s->version, 0); }

/* The block of weights `ahead` updates past the newest, which are made if no block has them. */
static fr_status ahead_of_newest(fr_store *s, int ahead, int *out)
{
    *out = fr__store_find(s, s->version, ahead);
    if (*out >= 0) return FR_OK;
    int b = fr__store_take_block(s, -1);
    if (b < 0)
        return fr_fail(s->ctx, FR_INTERNAL,
                       "stage %d at version %lld: no free block for weights %d updates ahead: all "
                       "%d of policy %s are kept for %d micro-batches in flight",
                       s->d.context.stage, (long long)s->version, ahead, s->n_blocks,
                       s->d.policy->name, s->n_flights);
    FR_TRY(fr__store_predict(s, b, ahead));
    fr__store_label(s, b, s->version, ahead);
    *out = b;
    return FR_OK;
}

/* The version before that of mini-batch `batch`, or the oldest one. The image of the newest cannot
 * be made after the next update, so it is made now. */
static fr_status find_previous(fr_store *s, int64_t batch, int *out)
{
    FR_TRY(ahead_of_newest(s, 0, out));
    int previous = fr__store_find(s, batch - 1, 0);
    if (previous >= 0) *out = previous;
    for (int b = 0; b < s->n_blocks && previous < 0; b++)
        if (s->blocks[b].is_valid && s->blocks[b].ahead == 0 &&
            s->blocks[b].version < s->blocks[*out].version)
            *out = b;
    return FR_OK;
}

static fr__in_flight *find_flight(fr_store *s, int64_t batch, int micro)
{
    for (int i = 0; i < s->n_flights; i++)
        if (s->flights[i].batch == batch && s->flights[i].micro == micro) return &s->flights[i];
    return NULL;
}

/* FR_AS_FIRST in pass `which`. */
static fr_status as_first(fr_store *s, int which, int64_t batch, int micro, int ahead, int *out)
{
    fr__shared_block *shared = &s->shared[which];
    if (shared->block < 0 || shared->batch != batch) {
        *shared = (fr__shared_block){.batch = -1, .block = -1};
        FR_TRY(ahead_of_newest(s, ahead, out));
        *shared = (fr__shared_block){.batch = batch, .block = *out};
    }
    *out = shared->block;
    if (micro == s->d.context.n_micro - 1) shared->is_last = true;
    return FR_OK;
}

static fr_status choose(fr_store *s, int which, int64_t batch, int micro, fr__in_flight *f,
                        int *out)
{
    const fr_policy *p = s->d.policy;
    fr_want want;
    (which == FORWARD ? p->forward : p->backward)(&s->d.context, micro, &want);
    if (want.grows && want.ahead > batch - s->first + 1) want.ahead = (int)(batch - s->first + 1);
    switch (want.base) {
    case FR_NEWEST: return ahead_of_newest(s, want.ahead, out);
    case FR_AS_FORWARD: *out = f->block; return FR_OK;
    case FR_AS_FIRST: return as_first(s, which, batch, micro, want.ahead, out);
    case FR_PREVIOUS: return find_previous(s, batch, out);
    }
    return fr_fail(s->ctx, FR_INTERNAL, "policy %s: no such base %d", p->name, (int)want.base);
}

static void show(const fr_store *s, int block, fr_view *out)
{
    const fr__weight_block *b = &s->blocks[block];
    *out = (fr_view){
        .weights = b->at, .id = b->id, .version = b->version, .ahead = b->ahead, .block = block};
}

void *fr_store_rewrite(fr_store *s, fr_view *v)
{
    v->id = s->blocks[v->block].id = ++s->last_id;
    return s->blocks[v->block].at;
}

/* Predictions that the image overwrites are made anew, with the same bits. */
fr_status fr_store_look(fr_store *s, fr_view *out)
{
    int block;
    FR_TRY(ahead_of_newest(s, 0, &block));
    show(s, block, out);
    return FR_OK;
}

/* --- passes --- */

fr_status fr_store_forward(fr_store *s, int64_t batch, int micro, fr_view *out)
{
    int block;
    if (find_flight(s, batch, micro) || s->n_flights == s->d.context.n_slots)
        return fr_fail(s->ctx, FR_INTERNAL,
                       "stage %d, forward of mini-batch %lld, micro-batch %d: %d micro-batches are "
                       "in flight, of at most %d; is one of them not done?",
                       s->d.context.stage, (long long)batch, micro, s->n_flights,
                       s->d.context.n_slots);
    FR_TRY(choose(s, FORWARD, batch, micro, NULL, &block));
    fr_want backward;
    s->d.policy->backward(&s->d.context, micro, &backward);
    s->flights[s->n_flights++] = (fr__in_flight){
        .batch = batch, .micro = micro, .block = backward.base == FR_AS_FORWARD ? block : -1};
    if (s->blocks[block].ahead > 0) FR_TRY(fr__error_samples_record(s, &s->blocks[block]));
    show(s, block, out);
    return FR_OK;
}

fr_status fr_store_backward(fr_store *s, int64_t batch, int micro, fr_view *out)
{
    int block;
    fr__in_flight *f = find_flight(s, batch, micro);
    if (!f)
        return fr_fail(s->ctx, FR_INTERNAL,
                       "stage %d, backward of mini-batch %lld, micro-batch %d: it had no forward",
                       s->d.context.stage, (long long)batch, micro);
    FR_TRY(choose(s, BACKWARD, batch, micro, f, &block));
    show(s, block, out);
    return FR_OK;
}

void fr_store_done(fr_store *s, int64_t batch, int micro)
{
    fr__in_flight *f = find_flight(s, batch, micro);
    if (f) *f = s->flights[--s->n_flights];
}

const fr_prediction_error *fr_store_error(const fr_store *s) { return &s->samples.error; }
