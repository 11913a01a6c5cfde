/* update.c -- updates, with predictions written in the same sweep, and predictions alone.
 *
 * An update is written in place unless the newest weights are still needed, by a micro-batch in
 * flight or by a policy that reads the previous version. In that case it is written to a free
 * block. Blocks kept for the mini-batch that is being applied count as free: its backwards have all
 * begun, and a range is submitted only when they no longer read it.
 *
 * A master is always updated in place. Then all this is said of the image of the newest weights,
 * which the sweep writes like a prediction of no updates, and only if passes read it.
 *
 * Ranges of a matrix that its rule needs whole only gather gradients; fr_store_end steps it
 * (matrices.c). */
#include "weights/store.h"

#include "backend/device.h"
#include "optim/optim.h"

double fr_store_lr(const fr_store *s, int64_t batch)
{
    double lr = fr_lr_at(&s->d.lr, s->d.options.lr, batch);
    return s->d.policy->lr_factor ? lr * s->d.policy->lr_factor(&s->d.context, batch) : lr;
}

fr_sweep fr__store_sweep(const fr_store *s, size_t at, size_t n)
{
    fr_sweep w = {
        .n = n, .from = fr_store_newest(s) + at, .ahead_is_bf16 = fr__store_has_master(s)};
    for (int i = 0; i < s->d.optimizer->n_state; i++) w.state[i] = s->d.state[i] + at;
    if (s->d.drift) w.drift = s->d.drift + at;
    return w;
}

/* Weight `at` of a block. */
static void *weight_at(const fr_store *s, int block, size_t at)
{
    return (char *)s->blocks[block].at + at * fr_dtype_bytes(s->d.type);
}

fr_sweep fr__store_step(const fr_store *s, size_t at, size_t n)
{
    fr_sweep w = fr__store_sweep(s, at, n);
    w.to = fr__store_has_master(s) ? s->d.master + at : weight_at(s, s->to, at);
    w.n_ahead = s->n_ahead;
    for (int j = 0; j < s->n_ahead; j++) w.ahead[j] = weight_at(s, s->ahead_block[j], at);
    return w;
}

fr_status fr__store_predict(fr_store *s, int b, int ahead)
{
    if (s->counts || s->d.n == 0) return FR_OK;
    if (ahead == 0)
        return fr__device_convert(s->d.device, s->d.type, s->blocks[b].at, FR_F32, s->d.master,
                                  s->d.n);
    fr__rules_aim_alone(s, ahead);
    for (size_t at = 0; at < s->d.n;) {
        const fr__piece p = fr__store_piece(s, at, s->d.n - at);
        fr_sweep w = fr__store_sweep(s, at, p.n);
        w.n_ahead = 1;
        w.ahead[0] = weight_at(s, b, at);
        if (p.rule) w.ahead_coef = p.matrix ? p.rule->matrix_alone : p.rule->alone;
        if (!p.rule)
            fr__device_sweep(s->d.device, &fr__optim_hold, NULL, &w);
        else if (p.matrix)
            fr__store_predict_matrix(s, p.matrix, &w);
        else
            fr__device_sweep(s->d.device, s->d.optimizer, NULL, &w);
        at += p.n;
    }
    return FR_OK;
}

/* --- updates --- */

/* Of the new weights; with a master, of their image. -1: none. */
static int choose_block(fr_store *s, int64_t batch)
{
    if (fr__store_has_master(s) && !s->reads_newest) return -1;
    int newest = fr__store_newest_block(s);
    if (newest < 0 || s->keeps_previous || fr__store_is_kept(s, newest, batch))
        return fr__store_take_block(s, batch);
    return newest;
}

/* The sweep will also write weights `ahead` updates past the new ones into block b. */
static void add_ahead(fr_store *s, int b, int ahead)
{
    int j = s->n_ahead++;
    s->blocks[b].is_valid = false;
    s->ahead_block[j] = b;
    s->ahead[j] = ahead;
    fr__rules_aim(s, ahead, j);
}

/* There is no block for the new weights. */
static bool is_stuck(const fr_store *s) { return s->to < 0 && !fr__store_has_master(s); }

void fr_store_begin(fr_store *s, int64_t batch, double grad_scale)
{
    s->batch = batch;
    s->is_open = true;
    s->n_ahead = 0;
    atomic_init(&s->n_done, 0);
    fr__rules_begin(s, batch, grad_scale);
    s->to = choose_block(s, batch);
    if (is_stuck(s)) return; /* fr_store_end reports it */

    uint64_t taken = s->to < 0 ? 0 : (uint64_t)1 << s->to;
    int after[FR_MAX_AHEAD], n = s->d.policy->after(&s->d.context, after);
    if (s->to >= 0 && fr__store_has_master(s)) add_ahead(s, s->to, 0);
    for (int i = 0; i < n && s->n_ahead < FR_MAX_AHEAD; i++) {
        int b = after[i] > 0 ? fr__store_free_block(s, batch, taken) : -1;
        if (b < 0) continue; /* no prediction, or no free block: then the pass predicts by itself */
        taken |= (uint64_t)1 << b;
        add_ahead(s, b, after[i]);
    }
    if (s->to >= 0 && s->to != fr__store_newest_block(s)) s->blocks[s->to].is_valid = false;
}

static void step_piece(const fr_store *s, const fr__piece *p, fr_sweep *w, const float *grad)
{
    const fr_optimizer *opt = s->d.optimizer;
    w->grad = grad;
    if (!p->rule) {
        const bool changes = w->from != w->to || w->n_ahead > 0;
        if (changes) fr__device_sweep(s->d.device, &fr__optim_hold, &s->rules[0].coef, w);
        return;
    }
    w->ahead_coef = p->rule->ahead;
    if (p->matrix)
        fr__device_sweep(s->d.device, opt->matrices->gather, &p->rule->matrix_coef, w);
    else
        fr__device_sweep(s->d.device, opt, &p->rule->coef, w);
}

/* Several threads may submit ranges concurrently. */
void fr_store_range(fr_store *s, size_t offset, size_t count, const float *grad)
{
    if (count == 0 || is_stuck(s)) return;
    for (size_t done = 0; done < count;) {
        const fr__piece p = fr__store_piece(s, offset + done, count - done);
        fr_sweep w = fr__store_step(s, offset + done, p.n);
        step_piece(s, &p, &w, grad + done);
        done += p.n;
    }
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
    if (is_stuck(s))
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
    fr__store_step_matrices(s);
    s->is_open = false;
    s->version = s->batch + 1;
    if (!fr__store_has_master(s)) fr__store_label(s, s->to, s->version, 0);
    for (int j = 0; j < s->n_ahead; j++)
        fr__store_label(s, s->ahead_block[j], s->version, s->ahead[j]);
    if (s->counts) return FR_OK; /* there is nothing to compare */
    FR_TRY(fr_device_sync(s->d.device));
    return fr__error_samples_compare(s);
}
