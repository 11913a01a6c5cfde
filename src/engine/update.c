/* update.c -- from gradients to weights: REDUCE and STEP.
 *
 * Normally the update is fused into the last backward (exec/pass.c): as soon as the gradient of a
 * parameter is final, its weights are stepped while the gradient is still in cache, and STEP only
 * completes the update. This is not possible if the whole gradient is needed first: for clipping,
 * its norm, tied parameters, or gradients kept for the caller. It is not done if other workers wait
 * for the end of that backward. In these cases one sweep follows.
 *
 * Without a flush a stage clips by the norm of its own gradient. If asked, it also posts this norm
 * and clips by that of the whole model, which it knows norm_lag updates later.
 *
 * Replicas of a stage first add up their gradients (exec/grad_reduction.c): REDUCE posts the
 * buckets that the last backward has not posted; STEP takes the sums bucket by bucket and applies
 * each as it arrives.
 *
 * With a flush stages exchange values through boards and add them in the order of a single worker:
 * the sums of squares of all parameters one after the other, the gradients of tied parameters owner
 * first. Every stage with a copy of a tied parameter makes the same update, so copies stay equal.
 * Replicas stay equal for the same reason. */
#include "engine/engine.h"

#include <math.h>

static bool needs_norm(const fr_engine *e) { return e->plan->needs_norm; }

/* --- set-up --------------------------------------------------------------------------------- */

fr_status fr__update_plan(fr_engine *e)
{
    FR_TRY(fr__ties_find(e));
    if (!e->plan) return FR_OK;
    FR_TRY(fr__replicas_plan(e));
    e->must_sum = e->plan->sums_stages;
    fr__ties_measure(e);
    return e->plan->lends_ties ? fr__tie_links_plan(e) : FR_OK;
}

/* Boards have a part for every replica, because only owners of a part may read. They read the part
 * of replica 0, or their own; all are equal. */
static fr_status add_norm_board(fr_engine *e, fr_board **out)
{
    size_t *bytes = FR_ARENA_ARRAY(&e->arena, size_t, e->n_parts);
    int *owner = FR_ARENA_ARRAY(&e->arena, int, e->n_parts);
    if (!bytes || !owner) return fr__no_memory(e->ctx, (size_t)e->n_parts, "an engine");
    for (int i = 0; i < e->n_parts; i++) {
        int n = e->must_sum ? e->n_own[e->parts[i].stage] : 1;
        bytes[i] = (size_t)n * sizeof(double);
        owner[i] = e->parts[i].worker->index;
    }
    return e->transport->add_board(e->group, e->n_parts, bytes, owner, out);
}

/* A board holds one mini-batch until its owners post for the next one: with norm_lag boards in turn
 * nobody posts before the norm of norm_lag updates ago is there, which the step needs anyway. */
static fr_status add_late_boards(fr_engine *e)
{
    int n = e->plan->norm_lag;
    e->late_boards = FR_ARENA_ARRAY(&e->arena, fr_board *, n);
    if (!e->late_boards) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++) FR_TRY(add_norm_board(e, &e->late_boards[i]));
    return FR_OK;
}

static fr_status make_param_sums(fr_engine *e)
{
    for (int i = 0; i < e->n_parts; i++) {
        fr__part *p = &e->parts[i];
        if (!p->worker->is_local) continue;
        p->param_sums = FR_ARENA_ARRAY(&e->arena, double, fr__exec_n_own(p->exec) + 1);
        if (!p->param_sums) return fr__no_memory(e->ctx, 0, "an engine");
    }
    return FR_OK;
}

fr_status fr__update_open(fr_engine *e)
{
    FR_TRY(make_param_sums(e));
    if (e->plan && e->plan->norm_lag > 0) FR_TRY(add_late_boards(e));
    if (e->n_tie_links > 0) FR_TRY(fr__tie_links_open(e));
    if (!e->must_sum) return FR_OK;
    if (needs_norm(e)) FR_TRY(add_norm_board(e, &e->norm_board));
    return e->n_tied > 0 ? fr__ties_open(e) : FR_OK;
}

/* --- sums ----------------------------------------------------------------------------------- */

fr_status fr__board_wait(fr__worker *w, fr_board *board, int64_t round)
{
    fr__wait_begin(w);
    fr_status status = w->engine->transport->board_wait(board, round, w->index);
    fr__wait_end(w);
    return status;
}

/* A part that computed the last backward of a mini-batch also steps, unless a replica that submits
 * nothing has ended the mini-batch: by then the losses of all of the part's micro-batches are known
 * to be finite, and a stopped run finishes the open mini-batches. */
fr_status fr__update_reduce(fr__part *p, int64_t batch, bool is_dead)
{
    (void)batch;
    return fr__exec_post(p->exec, !is_dead);
}

static bool is_beyond_limit(fr_engine *e, int64_t batch) { return batch >= atomic_load(&e->limit); }

/* The squares of all stages, added as one worker would add them. */
static fr_status sum_norm(fr__worker *w, int64_t batch, bool is_dead)
{
    fr_engine *e = w->engine;
    int64_t round = batch - e->first;
    for (int i = 0; i < w->n_parts; i++) {
        int part = w->parts[i]->index;
        if (!is_dead)
            fr__exec_squares(w->parts[i]->exec,
                             e->transport->board_part(e->norm_board, round, part));
        e->transport->board_post(e->norm_board, round, part);
    }
    FR_TRY(fr__board_wait(w, e->norm_board, round));
    if (is_beyond_limit(e, batch)) return FR_OK;
    w->norm_sq = 0;
    for (int k = 0; k < e->n_stages; k++) {
        const double *sums = e->transport->board_part(e->norm_board, round, e->first_part[k]);
        for (int i = 0; i < e->n_own[k]; i++) w->norm_sq += sums[i];
    }
    return FR_OK;
}

/* Sum the gradients of the replicas of all stages of a worker. *is_dead: some had none. */
static fr_status take_gradients(fr__worker *w, int64_t batch, bool *is_dead)
{
    for (int i = 0; i < w->n_parts; i++) {
        bool is_alive;
        FR_TRY(fr__exec_take(w->parts[i]->exec, batch, FR__TAKE_BACK, &is_alive));
        if (!is_alive) fr__lower_limit(w->engine, batch);
    }
    *is_dead = *is_dead || is_beyond_limit(w->engine, batch);
    for (int i = 0; i < w->n_parts && !*is_dead; i++) fr__exec_sum_own_ties(w->parts[i]->exec);
    return FR_OK;
}

/* Once per worker and mini-batch, when all of its stages have submitted: the sums over all workers.
 * If the limit was lowered meanwhile, some workers submitted nothing and there is no sum. A stage
 * without gradients can come here before the loss of this mini-batch is known. */
static fr_status take_sums(fr__worker *w, int64_t batch, bool is_dead)
{
    fr_engine *e = w->engine;
    if (w->summed == batch) return FR_OK;
    w->summed = batch;
    w->norm_sq = NAN;
    FR_TRY(take_gradients(w, batch, &is_dead));
    if (fr__ties_on(w)) FR_TRY(fr__ties_sum(w, batch, &is_dead));
    return needs_norm(e) ? sum_norm(w, batch, is_dead) : FR_OK;
}

/* The stage's own sums of squares, in the order of its parameters, of the gradient that the step
 * applies. */
static double own_squares(fr__part *p)
{
    double sum = 0, scale = fr__exec_grad_scale(p->exec);
    fr__exec_squares(p->exec, p->param_sums);
    for (int i = 0; i < fr__exec_n_own(p->exec); i++) sum += p->param_sums[i];
    return sum * scale * scale;
}

/* The larger of the stage's own norm and that of the whole model norm_lag updates ago, which does
 * not exist in the first updates of a call. Squares. */
static fr_status exchange_norm(fr__part *p, int64_t batch, double *norm_sq)
{
    fr_engine *e = p->engine;
    int lag = e->plan->norm_lag;
    fr_board *board = e->late_boards[(batch - e->first) % lag];
    int64_t round = (batch - e->first) / lag;
    double own_sq = *norm_sq, whole_sq = 0;
    if (round > 0) {
        FR_TRY(fr__board_wait(p->worker, board, round - 1));
        for (int k = 0; k < e->n_stages; k++)
            whole_sq += *(double *)e->transport->board_part(board, round - 1, e->first_part[k]);
        *norm_sq = fmax(own_sq, whole_sq);
    }
    *(double *)e->transport->board_part(board, round, p->index) = own_sq;
    e->transport->board_post(board, round, p->index);
    p->worker->n_late++;
    return FR_OK;
}

/* The newest weights of ties, and the norms that no step has waited for: the transport is reset
 * when all messages have arrived. */
fr_status fr__update_close(fr__worker *w)
{
    fr_engine *e = w->engine;
    int64_t n = w->n_late, lag = n > 0 ? e->plan->norm_lag : 0;
    for (int64_t i = n > lag ? n - lag : 0; i < n; i++)
        FR_TRY(fr__board_wait(w, e->late_boards[i % lag], i / lag));
    return fr__tie_settle(w);
}

/* --- the step ------------------------------------------------------------------------------- */

/* share: the part of the update that was not emulated yet. */
static fr_status end_step(fr__part *p, int64_t batch, double share, double norm_sq, fr_event *event)
{
    fr__spend(p, FR_DO_STEP, share);
    int64_t version = fr__exec_version(p->exec);
    FR_TRY(fr__exec_end_step(p->exec));
    fr__record_live(p, batch, version);
    event->version = version + 1;
    fr__record_stepped(p, batch, norm_sq);
    return FR_OK;
}

static double grad_scale(const fr__part *p, double norm_sq)
{
    double clip_norm = p->engine->desc.clip_norm, scale = fr__exec_grad_scale(p->exec);
    if (!(clip_norm > 0)) return scale;
    return scale * fmin(1, clip_norm / (sqrt(norm_sq) + 1e-6));
}

/* The whole gradient is not needed: step each bucket as it arrives. */
static fr_status step_by_buckets(fr__part *p, int64_t batch, fr_event *event)
{
    bool is_alive;
    FR_TRY(fr__exec_take(p->exec, batch, FR__TAKE_STEP, &is_alive));
    if (is_alive) return end_step(p, batch, 0, NAN, event);
    fr__lower_limit(p->engine, batch);
    return FR_OK; /* fr_store_abandon resets the store when the call ends */
}

fr_status fr__update_step(fr__part *p, int64_t batch, fr_event *event)
{
    fr_engine *e = p->engine;
    if (e->plan->update_in_backward[p->stage]) return end_step(p, batch, 1, NAN, event);
    if (fr__exec_n_buckets(p->exec) > 0 && !e->plan->needs_whole_gradient[p->stage])
        return step_by_buckets(p, batch, event);
    double norm_sq = NAN, whole_sq = NAN;
    if (e->must_sum) {
        FR_TRY(take_sums(p->worker, batch, false));
        whole_sq = p->worker->norm_sq;
        norm_sq = p->stage == 0 ? whole_sq : 0;
    } else {
        bool is_alive;
        FR_TRY(fr__exec_take(p->exec, batch, FR__TAKE_BACK, &is_alive));
        if (!is_alive) fr__lower_limit(e, batch);
        fr__exec_sum_own_ties(p->exec);
        FR_TRY(fr__tie_grads(p, batch, is_beyond_limit(e, batch)));
        if (needs_norm(e)) norm_sq = whole_sq = own_squares(p);
        if (e->plan->norm_lag > 0) FR_TRY(exchange_norm(p, batch, &whole_sq));
    }
    if (is_beyond_limit(e, batch)) return FR_OK;
    bool is_whole = e->must_sum || e->n_stages == 1;
    if (needs_norm(e) && is_whole && !isfinite(whole_sq)) {
        fr__diverge(e, batch, -1, "gradient norm", sqrt(whole_sq));
        return FR_OK;
    }
    fr__exec_sweep(p->exec, batch, grad_scale(p, whole_sq));
    return end_step(p, batch, 1, norm_sq, event);
}

fr_status fr__update_skip(fr__part *p, int64_t batch)
{
    bool is_alive;
    double none = 0;
    if (p->engine->must_sum) return take_sums(p->worker, batch, true);
    FR_TRY(fr__exec_take(p->exec, batch, FR__TAKE_DROP, &is_alive));
    FR_TRY(fr__tie_grads(p, batch, true));
    return p->engine->plan->norm_lag > 0 ? exchange_norm(p, batch, &none) : FR_OK;
}
