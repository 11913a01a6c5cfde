/* records.c -- mini-batches in flight: fetch data once for all workers of the process, note losses
 * and steps, and keep the limit from which nothing is computed.
 *
 * The limit ends a run early. Beyond it transfers and sums still take place until the end of the
 * segment, so that no worker waits for a message in vain, but no forward, backward or step does.
 * After the drain every stage has applied exactly the updates below the limit.
 *
 * In several processes each has records of its own parts; those of rank 0 are complete when every
 * process has reported. Rank 0 decides ahead of time which mini-batches may be opened
 * (coordinator.c), so that all processes walk the same segments. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REPORT_SLACK = 64 }; /* mini-batches by which workers may be ahead of a slow caller */

void fr__records_plan(fr_engine *e)
{
    const fr_schedule *s = e->schedule[FR_MODE_TRAIN];
    int n_micro = e->desc.n_micro, held = e->schedule[FR_MODE_EVAL]->n_slots[0];
    for (int k = 0; k < e->n_stages; k++)
        if (e->eval_schedule->n_slots[k] > held) held = e->eval_schedule->n_slots[k];
    held += e->n_stages; /* each reader may hold a micro-batch */
    if (s && s->n_slots[0] > held) held = s->n_slots[0];
    e->window = held / n_micro + 3 + e->sync_slack;
    e->n_records = e->window + REPORT_SLACK;
}

fr_status fr__records_create(fr_engine *e)
{
    int n_micro = e->desc.n_micro;
    e->records = FR_ARENA_ARRAY(&e->arena, fr__record, e->n_records);
    if (!e->records) return fr__no_memory(e->ctx, sizeof(fr__record), "mini-batches");
    size_t n_rows = e->desc.want_ledger ? (size_t)e->n_stages * 2 * (size_t)n_micro : 0;
    for (int i = 0; i < e->n_records; i++) {
        fr__record *r = &e->records[i];
        r->tally = FR_ARENA_ARRAY(&e->arena, fr_tally, n_micro);
        r->part_sq = FR_ARENA_ARRAY(&e->arena, double, e->n_parts);
        r->n_rows = FR_ARENA_ARRAY(&e->arena, int, e->n_parts);
        r->rows = FR_ARENA_ARRAY(&e->arena, fr_ledger_row, n_rows + 1);
        if (!r->tally || !r->part_sq || !r->n_rows || !r->rows)
            return fr__no_memory(e->ctx, n_rows * sizeof(fr_ledger_row), "the ledger");
    }
    return FR_OK;
}

static void clear_record(fr_engine *e, int64_t index)
{
    fr__record *r = &e->records[index % e->n_records];
    r->batch = e->first + index;
    r->n_open = r->n_unstepped = e->n_local_parts;
    r->n_missing = e->n_ranks;
    memset(r->tally, 0, sizeof(fr_tally) * (size_t)e->desc.n_micro);
    for (int i = 0; i < e->n_parts; i++) r->part_sq[i] = NAN;
    r->done_ns = 0;
    memset(r->n_rows, 0, sizeof(int) * (size_t)e->n_parts);
}

void fr__records_begin(fr_engine *e)
{
    e->n_fed = e->n_held = e->n_opened = e->n_entered = 0;
    e->n_reported = 0;
    e->tally = (fr_tally){0};
    e->is_feeding = false;
    e->feed_status = FR_OK;
    for (int i = 0; i < e->n_records; i++) clear_record(e, i);
    atomic_store(&e->limit, e->first + e->n);
    memset(&e->diverged, 0, sizeof e->diverged);
}

void fr__feed_changed(fr_engine *e)
{
    for (int i = 0; i < e->n_local; i++) pthread_cond_signal(&e->workers[e->first_worker + i].fed);
}

bool fr__feed_wait(fr__worker *w)
{
    fr_engine *e = w->engine;
    if (e->transport->is_aborted(e->group)) return false;
    atomic_store(&w->is_waiting, 1);
    uint64_t start = fr__now_ns();
    pthread_cond_wait(&w->fed, &e->feed_lock);
    w->wait_ns += fr__now_ns() - start;
    atomic_store(&w->is_waiting, 0);
    return !e->transport->is_aborted(e->group);
}

/* In one process: if one worker has begun a segment, all walk it; no worker begins a segment that
 * is entirely beyond the limit. So a stopped run ends after the current segment. */
static bool enter_here(fr_engine *e, int64_t base)
{
    if (base >= e->n_entered && e->first + base < atomic_load(&e->limit)) e->n_entered = base + 1;
    return base < e->n_entered;
}

/* In several: all granted segments are walked. */
static bool enter_with_crew(fr__worker *w, int64_t base)
{
    bool is_final;
    while (base >= fr__coordinator_granted(w->engine, &is_final))
        if (is_final || !fr__feed_wait(w)) return false;
    return true;
}

/* All workers walk the same segments, because each message needs a sender and a receiver. */
bool fr__segment_enter(fr__worker *w, int64_t base)
{
    fr_engine *e = w->engine;
    pthread_mutex_lock(&e->feed_lock);
    bool is_walked = e->coordinator ? enter_with_crew(w, base) : enter_here(e, base);
    pthread_mutex_unlock(&e->feed_lock);
    return is_walked;
}

/* With feed_lock held: mini-batch number n_fed of this call, from the source. */
static fr_status feed_one(fr__worker *w)
{
    fr_engine *e = w->engine;
    fr_feed feed = {0};
    e->is_feeding = true;
    pthread_mutex_unlock(&e->feed_lock);
    atomic_store(&w->is_waiting, 1);
    uint64_t start = fr__now_ns();
    fr_status status = e->source->next(e->source->user, &feed);
    w->wait_ns += fr__now_ns() - start;
    atomic_store(&w->is_waiting, 0);
    pthread_mutex_lock(&e->feed_lock);
    e->is_feeding = false;
    fr__feed_changed(e);
    if (status != FR_OK) {
        snprintf(e->feed_error, sizeof e->feed_error, "%s", fr_ctx_error(NULL));
        return e->feed_status = status;
    }
    e->records[e->n_fed % e->n_records].feed = feed;
    e->n_fed++, e->n_held++;
    return FR_OK;
}

static bool may_open(const fr_engine *e)
{
    bool is_final;
    if (e->coordinator) return e->n_opened < fr__coordinator_granted(e, &is_final);
    return e->n_opened - e->n_reported < e->n_records;
}

static fr_status open_one(fr__worker *w, int64_t index, bool *is_dead)
{
    fr_engine *e = w->engine;
    while (index >= e->n_opened) {
        if (e->first + index >= atomic_load(&e->limit)) {
            *is_dead = true;
            return FR_OK;
        }
        if (may_open(e))
            e->n_opened++;
        else if (!fr__feed_wait(w))
            return FR_PEER;
    }
    while (e->reads_data && index >= e->n_fed) {
        if (e->feed_status != FR_OK) return e->feed_status;
        if (!e->is_feeding && e->n_held < e->window)
            FR_TRY(feed_one(w));
        else if (!fr__feed_wait(w))
            return FR_PEER;
    }
    return FR_OK;
}

fr_status fr__record_open(fr__worker *w, int64_t batch, bool *is_dead)
{
    fr_engine *e = w->engine;
    int64_t index = batch - e->first;
    *is_dead = batch >= atomic_load(&e->limit);
    if (*is_dead || index < w->opened) return FR_OK;
    pthread_mutex_lock(&e->feed_lock);
    fr_status status = open_one(w, index, is_dead);
    pthread_mutex_unlock(&e->feed_lock);
    if (status == FR_OK && !*is_dead) w->opened = index + 1;
    return status;
}

void fr__record_close(fr__part *p, int64_t batch)
{
    fr_engine *e = p->engine;
    pthread_mutex_lock(&e->feed_lock);
    if (--fr__record_of(e, batch)->n_open == 0 && e->reads_data) {
        if (e->source->release) e->source->release(e->source->user);
        e->n_held--;
        fr__feed_changed(e);
    }
    pthread_mutex_unlock(&e->feed_lock);
}

/* With feed_lock held. */
void fr__record_arrived(fr_engine *e, fr__record *r)
{
    if (--r->n_missing == 0) r->done_ns = fr__clock_ns(&e->clock);
}

void fr__record_stepped(fr__part *p, int64_t batch, double norm_sq)
{
    fr_engine *e = p->engine;
    fr__record *r = fr__record_of(e, batch);
    pthread_mutex_lock(&e->feed_lock);
    r->part_sq[p->index] = norm_sq;
    bool is_done = --r->n_unstepped == 0;
    if (is_done && e->rank == 0) fr__record_arrived(e, r);
    if (is_done && e->rank > 0) {
        fr__coordinator_done(e, r);
        clear_record(e, e->n_reported++ + e->n_records);
    }
    bool is_through = is_done && r->n_missing == 0;
    pthread_mutex_unlock(&e->feed_lock);
    if (!is_through) return;
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->caller_wakes);
    pthread_mutex_unlock(&e->lock);
}

fr__record *fr__record_through(fr_engine *e)
{
    pthread_mutex_lock(&e->feed_lock);
    fr__record *r = &e->records[e->n_reported % e->n_records];
    bool is_through = r->n_missing == 0 && e->rank == 0;
    pthread_mutex_unlock(&e->feed_lock);
    return is_through ? r : NULL;
}

void fr__record_reported(fr_engine *e)
{
    pthread_mutex_lock(&e->feed_lock);
    clear_record(e, e->n_reported++ + e->n_records);
    fr__feed_changed(e);
    pthread_mutex_unlock(&e->feed_lock);
}

fr_ledger_row *fr__record_rows(const fr__record *r, const fr__part *p)
{
    /* Replicas of a stage share its 2 * n_micro rows. */
    const fr_engine *e = p->engine;
    return r->rows + (size_t)p->stage * 2 * (size_t)e->desc.n_micro +
           (size_t)p->replica * 2 * (size_t)p->n_micro;
}

void fr__record_row(fr__part *p, int64_t batch, int micro, char pass, const fr_view *v)
{
    fr_engine *e = p->engine;
    if (!e->desc.want_ledger) return;
    fr__record *r = fr__record_of(e, batch);
    const fr__loan *loan = fr__exec_read_loan(p->exec);
    fr__record_rows(r, p)[r->n_rows[p->index]++] =
        (fr_ledger_row){.stage = p->stage,
                        .replica = p->replica,
                        .micro = batch * e->desc.n_micro + micro,
                        .pass = pass,
                        .version = v->version,
                        .ahead = v->ahead,
                        .live = -1,
                        .tied = loan ? loan->version : -1,
                        .tied_ahead = loan ? loan->ahead : 0};
}

void fr__record_live(fr__part *p, int64_t batch, int64_t version)
{
    fr_engine *e = p->engine;
    if (!e->desc.want_ledger) return;
    fr__record *r = fr__record_of(e, batch);
    fr_ledger_row *rows = fr__record_rows(r, p);
    for (int i = 0; i < r->n_rows[p->index]; i++)
        if (rows[i].pass == 'B') rows[i].live = version;
}

/* With feed_lock held. */
static void lower_limit(fr_engine *e, int64_t batch)
{
    if (batch < atomic_load(&e->limit)) atomic_store(&e->limit, batch);
    fr__feed_changed(e);
}

void fr__lower_limit(fr_engine *e, int64_t batch)
{
    pthread_mutex_lock(&e->feed_lock);
    lower_limit(e, batch);
    pthread_mutex_unlock(&e->feed_lock);
}

void fr__stop_soon(fr_engine *e)
{
    pthread_mutex_lock(&e->feed_lock);
    lower_limit(e, e->first + e->n_opened);
    pthread_mutex_unlock(&e->feed_lock);
}

void fr__diverge(fr_engine *e, int64_t batch, int micro, const char *what, double value)
{
    pthread_mutex_lock(&e->feed_lock);
    if (!e->diverged.is_set || batch < e->diverged.batch) {
        e->diverged.is_set = true;
        e->diverged.batch = batch;
        e->diverged.micro = micro;
        e->diverged.what = what;
        e->diverged.value = value;
        fr__coordinator_diverged(e);
    }
    lower_limit(e, batch);
    pthread_mutex_unlock(&e->feed_lock);
}
