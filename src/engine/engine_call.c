/* engine_call.c -- one call of train or eval: start the workers, report finished mini-batches,
 * detect stalls, end. */
#include "engine/engine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TICK_MS = 50, GRACE_MS = 2000 };

/* The caller's callback and stop flag. */
typedef struct listener {
    fr_batch_fn report;
    void *user;
    const volatile int *stop;
    bool is_stopping;
} listener;

/* Wait for a change, a tick at most; with the lock held. */
static void wait_a_tick(fr_engine *e)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)TICK_MS * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    pthread_cond_timedwait(&e->caller_wakes, &e->lock, &until);
}

/* --- reports -------------------------------------------------------------------------------- */

static void add_tally(fr_tally *sum, const fr_tally *t)
{
    sum->loss += t->loss;
    sum->targets += t->targets;
    sum->correct += t->correct;
    sum->error += t->error;
}

static fr_batch_report make_report(const fr_engine *e, const fr__record *r)
{
    double norm_sq = 0;
    fr_tally tally = {0};
    for (int k = 0; k < e->n_stages; k++) norm_sq += r->part_sq[e->first_part[k]];
    for (int m = 0; m < e->desc.n_micro; m++) add_tally(&tally, &r->tally[m]);
    bool has_ledger = e->desc.want_ledger && e->mode == FR_MODE_TRAIN;
    return (fr_batch_report){
        .step = r->batch,
        .tally = tally,
        .grad_norm = sqrt(norm_sq),
        .done_ns =
            fr__is_emulated(e) ? fr__emulation_report_ns(e->emulation, r->done_ns) : r->done_ns,
        .ledger = has_ledger ? r->rows : NULL,
        .n_ledger = has_ledger ? (size_t)e->n_stages * 2 * (size_t)e->desc.n_micro : 0};
}

/* Report finished mini-batches in order. With the lock held, which is released during the callback.
 */
static void report_all(fr_engine *e, listener *l)
{
    for (fr__record *r; (r = fr__record_through(e)) != NULL; fr__record_reported(e)) {
        pthread_mutex_unlock(&e->lock);
        fr_batch_report report = make_report(e, r);
        add_tally(&e->tally, &report.tally);
        if (l->report && !l->report(l->user, &report)) l->is_stopping = true;
        pthread_mutex_lock(&e->lock);
    }
}

/* --- stall detection --------------------------------------------------------------------- */

static uint64_t count_beats(fr_engine *e)
{
    uint64_t n = 0;
    for (int i = 0; i < e->n_workers; i++) n += atomic_load(&e->workers[i].n_beats);
    return n;
}

/* Abort all workers; detach those that do not return within GRACE_MS. */
static void abandon(fr_engine *e)
{
    e->is_broken = true;
    pthread_mutex_unlock(&e->lock);
    fr__give_up(e, -1);
    pthread_mutex_lock(&e->lock);
    for (int ms = 0; e->n_running > 0 && ms < GRACE_MS; ms += TICK_MS) wait_a_tick(e);
    for (int i = 0; i < e->n_workers; i++) {
        fr__worker *w = &e->workers[i];
        if (!w->is_local || !w->job) continue;
        w->is_lost = true;
        pthread_detach(w->thread);
    }
}

/* Time without progress of any worker. A tick counts for at most four TICK_MS: if the watching loop
 * itself did not run (the process was stopped, or the caller's callback took long), the workers may
 * not have run either. */
typedef struct silence {
    uint64_t beats, last_ns, ns;
} silence;

static double silent_s(fr_engine *e, silence *s)
{
    const uint64_t longest = 4 * (uint64_t)TICK_MS * 1000000;
    uint64_t now = fr__clock_ns(&e->watch), more = count_beats(e);
    s->ns += now - s->last_ns < longest ? now - s->last_ns : longest;
    s->last_ns = now;
    if (more != s->beats || fr__emulation_sleeps(e->emulation)) s->beats = more, s->ns = 0;
    return (double)s->ns * 1e-9;
}

/* Rank 0 watches all workers. It waits longer than the team, which detects a stopped or ended
 * process first and names it. */
static double patience(const fr_engine *e)
{
    return e->coordinator ? e->desc.stall_s + 1 : e->desc.stall_s;
}

/* With the lock held: wait until all workers have returned or have stalled. */
static void watch(fr_engine *e, listener *l)
{
    silence s = {.beats = count_beats(e), .last_ns = fr__clock_ns(&e->watch)};
    while (e->n_running > 0 || !fr__coordinator_is_over(e)) {
        wait_a_tick(e);
        report_all(e, l);
        if (l->stop && __atomic_load_n(l->stop, __ATOMIC_RELAXED)) l->is_stopping = true;
        if (e->coordinator)
            fr__coordinator_tick(e, l->is_stopping);
        else if (l->is_stopping)
            fr__stop_soon(e);
        double seconds = silent_s(e, &s);
        if (seconds < patience(e) || (e->rank > 0 && !e->transport->is_aborted(e->group))) continue;
        if (!e->transport->is_aborted(e->group)) fr__blame_stall(e, seconds);
        abandon(e);
        return;
    }
    report_all(e, l);
}

/* --- a call --------------------------------------------------------------------------------- */

static void begin(fr_engine *e, fr__mode mode, int64_t first, int64_t n, const fr_source *source)
{
    e->mode = mode;
    e->first = first;
    e->n = n;
    e->source = source;
    e->failed_worker = -1;
    fr__emulation_end(e->emulation);
    if (e->emulation && mode == FR_MODE_TRAIN) fr__emulation_begin(e->emulation);
    e->transport->reset(e->group);
    fr__tie_links_begin(e);
    fr__records_begin(e);
    fr__coordinator_reset(e);
    for (int i = 0; i < e->n_parts && mode == FR_MODE_TRAIN; i++)
        if (e->parts[i].worker->is_local) fr__exec_begin_call(e->execs[i], first);
}

/* The call failed: the engine can only be freed. Other processes receive the reason. */
static fr_status break_off(fr_engine *e)
{
    fr_status status = FR_PEER;
    if (e->failed_worker >= 0 && !e->is_broken) status = fr__blame_failure(e);
    e->is_broken = true;
    fr__coordinator_failed(e);
    return status;
}

static fr_status walk_all(fr_engine *e, listener *l)
{
    if (fr__coordinator_begin(e) != FR_OK) return break_off(e);
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_local; i++)
        fr__job_start(&e->workers[e->first_worker + i], fr__worker_walk);
    watch(e, l);
    pthread_mutex_unlock(&e->lock);
    for (; e->n_held > 0 && !e->is_broken; e->n_held--)
        if (e->source->release) e->source->release(e->source->user);
    if (e->is_broken || e->failed_worker >= 0 || e->transport->is_aborted(e->group))
        return break_off(e);
    return FR_OK;
}

static fr_status check_usable(fr_engine *e, fr__mode mode)
{
    if (e->is_broken)
        return fr_fail(e->ctx, FR_PEER, "a worker was lost: this engine can only be freed");
    if (!e->schedule[mode])
        return fr_fail(e->ctx, FR_INVALID, "an engine that only evaluates cannot train");
    return FR_OK;
}

static fr_status fail_diverged(fr_engine *e)
{
    const char *value = isnan(e->diverged.value) ? "not a number" : "infinite";
    char micro[48] = "";
    if (e->diverged.micro >= 0)
        snprintf(micro, sizeof micro, ", micro-batch %d of %d", e->diverged.micro, e->desc.n_micro);
    return fr_fail(e->ctx, FR_DIVERGED,
                   "mini-batch %lld%s: the %s is %s; the weights are still those after %lld "
                   "updates; try a smaller lr (now %g), a warm-up or clip_norm",
                   (long long)e->diverged.batch, micro, e->diverged.what, value,
                   (long long)e->diverged.batch,
                   fr_lr_at(&e->desc.lr, e->desc.options.lr, e->diverged.batch));
}

fr_status fr_engine_train(fr_engine *e, int64_t first_step, int64_t n, const fr_source *source,
                          fr_batch_fn report, void *user, const volatile int *stop, int64_t *n_done)
{
    listener l = {.report = report, .user = user, .stop = stop};
    *n_done = 0;
    FR_TRY(check_usable(e, FR_MODE_TRAIN));
    if (n <= 0) return FR_OK;
    begin(e, FR_MODE_TRAIN, first_step, n, source);
    fr_status status = walk_all(e, &l);
    *n_done = e->n_reported;
    if (status != FR_OK) return status;
    fr__emulation_end(e->emulation);
    FR_TRY(fr__parts_undo(e));
    FR_TRY(fr__parts_drain(e));
    return e->diverged.is_set ? fail_diverged(e) : FR_OK;
}

fr_status fr_engine_eval(fr_engine *e, int64_t n, const fr_source *source, fr_tally *tally,
                         void *logits)
{
    listener l = {0};
    *tally = (fr_tally){0};
    FR_TRY(check_usable(e, FR_MODE_EVAL));
    if (logits && e->desc.logits_node <= 0)
        return fr_fail(e->ctx, FR_INVALID,
                       "cannot read logits: the engine was created without logits_node");
    if (n <= 0) return FR_OK;
    e->logits = logits;
    begin(e, FR_MODE_EVAL, 0, n, source);
    fr_status status = walk_all(e, &l);
    e->logits = NULL;
    if (status == FR_OK) *tally = e->tally;
    return status;
}
