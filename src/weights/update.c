/* update.c -- updates, with predictions written in the same sweep, and predictions alone.
 *
 * An update is written in place unless the newest weights are still needed, by a micro-batch in
 * flight or by a policy that reads the previous version. In that case it is written to a free
 * block. Blocks kept for the mini-batch that is being applied count as free: its backwards have all
 * begun, and a range is submitted only when they no longer read it. */
#include "weights/store.h"

#include "backend/device.h"

double fr_store_lr(const fr_store *s, int64_t batch)
{
    double lr = fr_lr_at(&s->d.lr, s->d.options.lr, batch);
    return s->d.policy->lr_factor ? lr * s->d.policy->lr_factor(&s->d.context, batch) : lr;
}

/* Prediction j of a sweep: `ahead` updates past a version. */
static void prepare_prediction(fr_store *s, int64_t version, int ahead, int j,
                               fr_prediction_coef *out)
{
    if (s->counts) return;
    for (int i = 0; i < ahead; i++) s->rates[i] = fr_store_lr(s, version + i);
    fr_optim_prepare_prediction(s->d.optimizer, &s->d.options, s->d.policy->extrapolation, version,
                                ahead, s->rates, j, out);
    out->keep = s->drift_keep;
}

/* Floats [at, at + n) of all blocks, as every pass needs them. */
static fr_sweep range_of(const fr_store *s, size_t at, size_t n)
{
    fr_sweep w = {.n = n, .from = s->blocks[s->newest].at + at};
    for (int i = 0; i < s->d.optimizer->n_state; i++) w.state[i] = s->d.state[i] + at;
    if (s->d.drift) w.drift = s->d.drift + at;
    return w;
}

void fr__store_predict(fr_store *s, int b, int ahead)
{
    if (s->counts || s->d.n == 0) return;
    fr_sweep w = range_of(s, 0, s->d.n);
    w.n_ahead = 1;
    w.ahead[0] = s->blocks[b].at;
    prepare_prediction(s, fr_store_version(s), ahead, 0, &w.ahead_coef);
    fr__device_sweep(s->d.device, s->d.optimizer, NULL, &w);
}

/* --- updates --- */

void fr_store_begin(fr_store *s, int64_t batch, double grad_scale)
{
    s->batch = batch;
    s->is_open = true;
    s->n_ahead = 0;
    atomic_init(&s->n_done, 0);
    if (!s->counts)
        fr_optim_prepare(s->d.optimizer, &s->d.options, batch + 1, fr_store_lr(s, batch),
                         grad_scale, &s->coef);
    s->to = s->newest;
    if (s->keeps_previous || fr__store_is_kept(s, s->newest, batch))
        s->to = fr__store_take_block(s, batch);
    if (s->to < 0) return; /* fr_store_end reports it */

    uint64_t taken = (uint64_t)1 << s->to;
    int after[FR_MAX_AHEAD], n = s->d.policy->after(&s->d.context, after);
    for (int i = 0; i < n; i++) {
        int b = after[i] > 0 ? fr__store_free_block(s, batch, taken) : -1;
        if (b < 0) continue; /* no prediction, or no free block: then the pass predicts by itself */
        taken |= (uint64_t)1 << b;
        s->blocks[b].is_valid = false;
        s->ahead_block[s->n_ahead] = b;
        s->ahead[s->n_ahead] = after[i];
        prepare_prediction(s, batch + 1, after[i], s->n_ahead++, &s->ahead_coef);
    }
    s->ahead_coef.keep = s->drift_keep;
    if (s->to != s->newest) s->blocks[s->to].is_valid = false;
}

/* Several threads may submit ranges concurrently. */
void fr_store_range(fr_store *s, size_t offset, size_t count, const float *grad)
{
    if (s->to < 0 || count == 0) return;
    fr_sweep w = range_of(s, offset, count);
    w.to = s->blocks[s->to].at + offset;
    w.grad = grad;
    w.n_ahead = s->n_ahead;
    w.ahead_coef = s->ahead_coef;
    for (int j = 0; j < s->n_ahead; j++) w.ahead[j] = s->blocks[s->ahead_block[j]].at + offset;
    fr__device_sweep(s->d.device, s->d.optimizer, &s->coef, &w);
    atomic_fetch_add_explicit(&s->n_done, count, memory_order_relaxed);
}

static fr_status check_end(fr_store *s, size_t expected)
{
    int stage = s->d.context.stage;
    long long version = fr_store_version(s), batch = s->batch;
    size_t done = atomic_load(&s->n_done);
    if (!s->is_open)
        return fr_fail(s->ctx, FR_INTERNAL, "stage %d: an update ended that never began", stage);
    if (batch != version)
        return fr_fail(s->ctx, FR_INTERNAL,
                       "stage %d: the update of mini-batch %lld came at version %lld, expected "
                       "mini-batch %lld; is a step missing or was the store not reset?",
                       stage, batch, version, version);
    if (s->to < 0)
        return fr_fail(
            s->ctx, FR_INTERNAL,
            "stage %d, update of mini-batch %lld: no free block for the new weights: all "
            "%d of policy %s are kept for %d micro-batches in flight",
            stage, batch, s->n_blocks, s->d.policy->name, s->n_flights);
    if (done != expected)
        return fr_fail(s->ctx, FR_INTERNAL,
                       "stage %d, update of mini-batch %lld: %zu weights were updated, expected "
                       "%zu",
                       stage, batch, done, expected);
    return FR_OK;
}

fr_status fr_store_end(fr_store *s, size_t expected)
{
    FR_TRY(check_end(s, expected));
    s->is_open = false;
    s->newest = s->to;
    fr__store_label(s, s->to, s->batch + 1, 0);
    for (int j = 0; j < s->n_ahead; j++)
        fr__store_label(s, s->ahead_block[j], s->batch + 1, s->ahead[j]);
    if (s->counts) return FR_OK; /* there is nothing to compare */
    FR_TRY(fr_device_sync(s->d.device));
    return fr__error_samples_compare(s);
}
