/* coordinator.c -- one call of the engine in several processes: the messages between rank 0 and the
 * others.
 *
 *     others -> 0   ready, done (a mini-batch), diverged, stop, state of workers, walked, failed
 *     0 -> others   go, grant, limit, abort, end
 *
 * A call begins when all processes are ready. Rank 0 grants mini-batches a little ahead of the
 * finished ones. Every process walks all granted segments, with or without computing, so all walk
 * the same ones; rank 0 ends a run by granting no more. The call ends when every process has walked
 * and every mini-batch below the limit is finished. END carries the same outcome to all.
 *
 * The transfers between workers report a mini-batch that diverged before any stage can step: they
 * are empty. DIVERGED reports it to the processes that receive no such transfer. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 1024, LEAST_AHEAD = 2, MOST_AHEAD = 64 };
#define AHEAD_S 0.2        /* seconds of work that may be granted ahead */
#define STATE_NS 100000000 /* between two STATES messages */

typedef enum kind {
    READY,
    GO,
    DONE,
    DIVERGED,
    STOP,
    STATES,
    WALKED,
    FAILED,
    GRANT,
    LIMIT,
    ABORT,
    END
} kind;

static const char *const whats[] = {"loss", "gradient norm"};

/* Header of every message; most have nothing else. */
typedef struct message {
    int32_t kind;
    int32_t micro, what; /* DIVERGED, END */
    int32_t status;      /* END */
    int64_t call;
    int64_t number; /* DONE, DIVERGED, LIMIT: mini-batch; GRANT: how many; END: n_done */
    double value;   /* DIVERGED, END */
    fr_tally tally; /* END: of all mini-batches */
} message;

typedef struct text_message {
    message head;
    char text[TEXT];
} text_message;

typedef struct worker_state {
    uint64_t n_beats;
    int64_t batch;
    int32_t at, is_waiting;
} worker_state;

struct fr__coordinator {
    fr_engine *engine;
    fr_team *team;
    int64_t call;
    /* under engine.feed_lock */
    int64_t granted;
    bool is_final; /* no more will be granted */
    /* under engine.lock */
    int n_ready, n_walked;
    bool is_going, has_walked, has_ended, is_cut; /* is_cut: a process gave up */
    message end;
    /* the caller's thread alone */
    bool has_sent_stop, has_sent_failure;
    uint64_t sent_ns;
    int64_t seen_reports;
    uint64_t seen_ns;
    double batch_s; /* smoothed */
    char *buffer;   /* of a DONE, under feed_lock; of states, by the caller's thread */
    char *states;
    size_t room;
};

static void wake_caller(fr_engine *e)
{
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->caller_wakes);
    pthread_mutex_unlock(&e->lock);
}

static void notify(fr__coordinator *c, int rank, const message *l)
{
    (void)fr_team_notify(c->team, rank, l, sizeof *l); /* the team reports the loss of a rank */
}

static void notify_all(fr__coordinator *c, const message *l)
{
    (void)fr_team_notify_all(c->team, l, sizeof *l);
}

/* --- finished mini-batches --------------------------------------------------------------- */

/* This process's results of a mini-batch: losses of the micro-batches that ended here, and for each
 * part its sum of squares and its ledger rows. */
static size_t put(char *to, size_t at, const void *data, size_t bytes)
{
    memcpy(to + at, data, bytes);
    return at + bytes;
}

static bool has_loss(const fr_engine *e)
{
    int stage = fr__maker_of(e, fr_graph_find_loss(e->desc.graph));
    for (int q = 0; q < fr_engine_n_replicas(e, stage); q++)
        if (fr__part_at(e, stage, q)->worker->is_local) return true;
    return false;
}

void fr__coordinator_done(fr_engine *e, const fr__record *r)
{
    fr__coordinator *c = e->coordinator;
    message l = {.kind = DONE, .call = c->call, .number = r->batch, .what = has_loss(e)};
    size_t n = put(c->buffer, 0, &l, sizeof l);
    if (l.what) n = put(c->buffer, n, r->tally, sizeof(fr_tally) * (size_t)e->desc.n_micro);
    for (int i = 0; i < e->n_parts; i++) {
        const fr__part *p = &e->parts[i];
        if (!p->worker->is_local) continue;
        n = put(c->buffer, n, &r->part_sq[i], sizeof r->part_sq[i]);
        n = put(c->buffer, n, &r->n_rows[i], sizeof r->n_rows[i]);
        if (e->desc.want_ledger)
            n = put(c->buffer, n, fr__record_rows(r, p),
                    sizeof(fr_ledger_row) * (size_t)r->n_rows[i]);
    }
    (void)fr_team_notify(c->team, 0, c->buffer, n);
}

/* Inverse of put; false: the message is too short. */
static bool get(const char *from, size_t bytes, size_t *at, void *data, size_t n)
{
    if (bytes - *at < n) return false;
    memcpy(data, from + *at, n);
    *at += n;
    return true;
}

static bool on_done(fr_engine *e, int rank, const message *l, const char *data, size_t bytes)
{
    int64_t index = l->number - e->first;
    if (index < e->n_reported || index >= e->n_reported + e->n_records) return false;
    fr__record *r = fr__record_of(e, l->number);
    size_t at = sizeof *l;
    for (int m = 0; l->what && m < e->desc.n_micro; m++) {
        fr_tally t;
        if (!get(data, bytes, &at, &t, sizeof t)) return false;
        if (t.targets > 0 || t.loss != 0) r->tally[m] = t;
    }
    for (int i = 0; i < e->n_parts; i++) {
        const fr__part *p = &e->parts[i];
        if (fr_engine_rank_of(e, p->worker->index) != rank) continue;
        if (!get(data, bytes, &at, &r->part_sq[i], sizeof r->part_sq[i]) ||
            !get(data, bytes, &at, &r->n_rows[i], sizeof r->n_rows[i]) || r->n_rows[i] < 0 ||
            r->n_rows[i] > 2 * p->n_micro)
            return false;
        if (e->desc.want_ledger && !get(data, bytes, &at, fr__record_rows(r, p),
                                        sizeof(fr_ledger_row) * (size_t)r->n_rows[i]))
            return false;
    }
    fr__record_arrived(e, r);
    return true;
}

/* --- the limit -------------------------------------------------------------------------------- */

int64_t fr__coordinator_granted(const fr_engine *e, bool *is_final)
{
    *is_final = e->coordinator->is_final;
    return e->coordinator->granted;
}

/* Rank 0, with feed_lock held: grant nothing more; compute nothing from `limit` on. */
static void finalize(fr_engine *e, int64_t limit)
{
    fr__coordinator *c = e->coordinator;
    message l = {.kind = LIMIT, .call = c->call, .number = limit, .micro = (int32_t)c->granted};
    c->is_final = true;
    notify_all(c, &l);
}

/* A mini-batch diverged in another process. */
static void on_diverged(fr_engine *e, const message *l)
{
    int what = l->what == 1;
    fr__diverge(e, l->number, l->micro, whats[what], l->value);
}

void fr__coordinator_diverged(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    if (!c) return;
    message l = {.kind = DIVERGED,
                 .call = c->call,
                 .number = e->diverged.batch,
                 .micro = e->diverged.micro,
                 .what = strcmp(e->diverged.what, whats[1]) == 0,
                 .value = e->diverged.value};
    if (e->rank > 0)
        notify(c, 0, &l);
    else
        finalize(e, e->diverged.batch);
}

/* With feed_lock held. */
static void on_limit(fr_engine *e, const message *l)
{
    fr__coordinator *c = e->coordinator;
    c->is_final = true;
    if (l->number < atomic_load(&e->limit)) atomic_store(&e->limit, l->number);
    fr__feed_changed(e);
}

/* Grant mini-batches beyond those reported: enough to fill the pipeline, plus AHEAD_S of work, so
 * that no worker waits for a grant. */
static void grant(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    uint64_t now = fr__now_ns();
    pthread_mutex_lock(&e->feed_lock);
    int64_t n = e->n_reported - c->seen_reports;
    if (n > 0) {
        double each = (double)(now - c->seen_ns) * 1e-9 / (double)n;
        c->batch_s = c->batch_s > 0 ? 0.7 * c->batch_s + 0.3 * each : each;
        c->seen_reports = e->n_reported;
        c->seen_ns = now;
    }
    double ahead = c->batch_s > 0 ? AHEAD_S / c->batch_s : 0;
    int64_t more = (int64_t)fmin(fmax(ahead, (double)LEAST_AHEAD), (double)MOST_AHEAD);
    int64_t upto = e->n_reported + e->window + more;
    if (upto > e->n_reported + e->n_records) upto = e->n_reported + e->n_records;
    if (upto > e->n) upto = e->n;
    if (!c->is_final && upto > c->granted) {
        message l = {.kind = GRANT, .call = c->call, .number = upto};
        c->granted = upto;
        c->is_final = upto == e->n;
        notify_all(c, &l);
        fr__feed_changed(e);
    }
    pthread_mutex_unlock(&e->feed_lock);
}

/* --- incoming messages ------------------------------------------------------------------- */

/* A process gave up or is lost. Only the first text is kept. */
static void cut(fr_engine *e, const char *text)
{
    pthread_mutex_lock(&e->lock);
    bool is_first = !e->coordinator->is_cut;
    e->coordinator->is_cut = true;
    pthread_mutex_unlock(&e->lock);
    if (is_first) fr_fail(e->ctx, FR_PEER, "%s", text);
    fr__give_up(e, -1);
    wake_caller(e);
}

/* Rank 0: forward a failure to all other processes. */
static void pass_on(fr__coordinator *c, const char *text)
{
    text_message t = {.head = {.kind = ABORT, .call = c->call}};
    snprintf(t.text, sizeof t.text, "%s", text);
    (void)fr_team_notify_all(c->team, &t, sizeof t);
}

static void on_states(fr_engine *e, int rank, const char *data, size_t bytes)
{
    size_t at = sizeof(message);
    for (int i = 0; i < e->n_local; i++) {
        worker_state s;
        fr__worker *w = &e->workers[rank * e->n_local + i];
        if (!get(data, bytes, &at, &s, sizeof s)) return;
        atomic_store(&w->n_beats, s.n_beats);
        atomic_store(&w->doing_batch, s.batch);
        atomic_store(&w->doing_at, s.at);
        atomic_store(&w->is_waiting, s.is_waiting);
    }
}

/* Messages that the caller waits for. */
static void on_phase(fr_engine *e, const message *l)
{
    fr__coordinator *c = e->coordinator;
    pthread_mutex_lock(&e->lock);
    if (l->kind == READY) c->n_ready++;
    if (l->kind == WALKED) c->n_walked++;
    if (l->kind == GO) c->is_going = true;
    if (l->kind == END) c->has_ended = true, c->end = *l;
    pthread_cond_signal(&e->caller_wakes);
    pthread_mutex_unlock(&e->lock);
}

static void on_progress(fr_engine *e, int from, const message *l, const char *data, size_t bytes)
{
    fr__coordinator *c = e->coordinator;
    bool is_fine = true;
    pthread_mutex_lock(&e->feed_lock);
    if (l->kind == GRANT) {
        c->granted = l->number;
        c->is_final = c->granted == e->n;
        fr__feed_changed(e);
    } else if (l->kind == LIMIT) {
        on_limit(e, l);
    } else {
        is_fine = on_done(e, from, l, data, bytes);
    }
    pthread_mutex_unlock(&e->feed_lock);
    if (!is_fine)
        cut(e, "invalid message about a mini-batch: do all processes run the same build?");
    if (l->kind == DONE) wake_caller(e);
}

static void on_message(void *user, int from, const void *data, size_t bytes)
{
    fr_engine *e = user;
    message l;
    if (bytes < sizeof l) return;
    memcpy(&l, data, sizeof l);
    pthread_mutex_lock(&e->lock);
    bool is_now = l.call == e->coordinator->call;
    pthread_mutex_unlock(&e->lock);
    if (l.kind != ABORT && l.kind != FAILED && !is_now) return;
    switch ((kind)l.kind) {
    case READY:
    case GO:
    case WALKED:
    case END: on_phase(e, &l); break;
    case GRANT:
    case LIMIT:
    case DONE: on_progress(e, from, &l, data, bytes); break;
    case DIVERGED: on_diverged(e, &l); break;
    case STATES: on_states(e, from, data, bytes); break;
    case STOP: {
        pthread_mutex_lock(&e->lock);
        e->coordinator->has_sent_stop = true; /* rank 0: another process requested it */
        pthread_cond_signal(&e->caller_wakes);
        pthread_mutex_unlock(&e->lock);
        break;
    }
    case FAILED:
    case ABORT: {
        const text_message *t = data;
        char text[TEXT];
        if (bytes < sizeof *t) return;
        memcpy(text, t->text, sizeof text);
        text[TEXT - 1] = '\0';
        if (l.kind == FAILED) pass_on(e->coordinator, text);
        cut(e, text);
        break;
    }
    }
}

static void on_loss(void *user, int rank, const char *text)
{
    fr_engine *e = user;
    char held[256];
    int first = rank * e->n_local, n = snprintf(held, sizeof held, "worker %d", first);
    if (e->n_local > 1)
        n = snprintf(held, sizeof held, "workers %d to %d", first, first + e->n_local - 1);
    const fr__part *p = e->workers[first].n_parts ? e->workers[first].parts[0] : NULL;
    if (p)
        snprintf(held + n, sizeof held - (size_t)n, ", stage %d, replica %d", p->stage, p->replica);
    char all[TEXT + 300];
    snprintf(all, sizeof all, "%s; it held %s", text, held);
    cut(e, all);
}

/* --- a call ----------------------------------------------------------------------------------- */

fr_status fr__coordinator_create(fr_engine *e)
{
    if (e->n_ranks == 1) return FR_OK;
    fr__coordinator *c = FR_ARENA_NEW(&e->arena, fr__coordinator);
    if (!c) return fr__no_memory(e->ctx, sizeof *c, "a coordinator");
    c->engine = e;
    c->team = e->desc.team;
    c->room = sizeof(message) + sizeof(fr_tally) * (size_t)e->desc.n_micro +
              (sizeof(double) + sizeof(int)) * (size_t)e->n_parts +
              sizeof(fr_ledger_row) * (size_t)e->n_stages * 2 * (size_t)e->desc.n_micro;
    c->buffer = fr__arena_alloc(&e->arena, c->room);
    c->states =
        fr__arena_alloc(&e->arena, sizeof(message) + sizeof(worker_state) * (size_t)e->n_local);
    if (!c->buffer || !c->states) return fr__no_memory(e->ctx, c->room, "a coordinator");
    fr_team_callbacks callbacks = {.user = e, .on_message = on_message, .on_loss = on_loss};
    e->coordinator = c;
    fr_team_set_timeout(c->team, e->desc.stall_s);
    fr_team_set_callbacks(c->team, &callbacks);
    return FR_OK;
}

void fr__coordinator_free(fr_engine *e)
{
    if (e->coordinator) fr_team_set_callbacks(e->coordinator->team, NULL);
}

static bool is_cut(const fr__coordinator *c) { return c->is_cut; }

fr_status fr__coordinator_begin(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    if (!c) return FR_OK;
    pthread_mutex_lock(&e->lock);
    message l = {.kind = e->rank > 0 ? READY : GO};
    if (e->rank > 0) {
        l.call = c->call;
        notify(c, 0, &l);
        while (!c->is_going && !is_cut(c)) pthread_cond_wait(&e->caller_wakes, &e->lock);
    } else {
        while (c->n_ready < e->n_ranks - 1 && !is_cut(c))
            pthread_cond_wait(&e->caller_wakes, &e->lock);
        l.call = c->call;
        if (!is_cut(c)) notify_all(c, &l);
    }
    bool is_over = is_cut(c);
    pthread_mutex_unlock(&e->lock);
    return is_over ? FR_PEER : FR_OK;
}

/* Called before the call's state is set up; fr__coordinator_begin waits for messages about it. */
void fr__coordinator_reset(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    if (!c) return;
    pthread_mutex_lock(&e->lock);
    pthread_mutex_lock(&e->feed_lock);
    int64_t ahead = e->window + LEAST_AHEAD;
    c->granted = ahead < e->n_records ? ahead : e->n_records;
    if (c->granted > e->n) c->granted = e->n;
    c->is_final = c->granted == e->n;
    c->n_walked = 0;
    c->has_walked = c->has_ended = c->has_sent_stop = c->has_sent_failure = false;
    c->seen_reports = 0;
    c->seen_ns = c->sent_ns = fr__now_ns();
    pthread_mutex_unlock(&e->feed_lock);
    pthread_mutex_unlock(&e->lock);
}

static void tell_states(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    uint64_t now = fr__now_ns();
    if (e->rank == 0 || now - c->sent_ns < STATE_NS) return;
    c->sent_ns = now;
    message l = {.kind = STATES, .call = c->call};
    size_t n = put(c->states, 0, &l, sizeof l);
    for (int i = 0; i < e->n_local; i++) {
        fr__worker *w = &e->workers[e->first_worker + i];
        worker_state s = {.n_beats = atomic_load(&w->n_beats),
                          .batch = atomic_load(&w->doing_batch),
                          .at = atomic_load(&w->doing_at),
                          .is_waiting = atomic_load(&w->is_waiting)};
        n = put(c->states, n, &s, sizeof s);
    }
    (void)fr_team_notify(c->team, 0, c->states, n);
}

/* With the lock held. */
void fr__coordinator_tick(fr_engine *e, bool is_stopping)
{
    fr__coordinator *c = e->coordinator;
    tell_states(e);
    if (e->rank > 0) {
        message l = {.kind = STOP, .call = c->call};
        if (is_stopping && !c->has_sent_stop) notify(c, 0, &l);
        c->has_sent_stop |= is_stopping;
        return;
    }
    if (is_stopping || c->has_sent_stop) {
        pthread_mutex_lock(&e->feed_lock);
        int64_t limit = e->first + c->granted;
        if (!c->is_final) finalize(e, limit);
        if (limit < atomic_load(&e->limit)) atomic_store(&e->limit, limit);
        fr__feed_changed(e);
        pthread_mutex_unlock(&e->feed_lock);
    }
    grant(e);
}

/* Rank 0: all processes have walked and all mini-batches are reported. */
static bool conclude(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    pthread_mutex_lock(&e->feed_lock);
    bool is_over =
        c->n_walked == e->n_ranks - 1 && (e->first + e->n_reported >= atomic_load(&e->limit));
    pthread_mutex_unlock(&e->feed_lock);
    if (!is_over || c->has_ended) return c->has_ended;
    c->end = (message){.kind = END,
                       .call = c->call,
                       .number = e->n_reported,
                       .tally = e->tally,
                       .status = e->diverged.is_set ? FR_DIVERGED : FR_OK,
                       .micro = e->diverged.micro,
                       .value = e->diverged.value};
    if (e->diverged.is_set) c->end.what = strcmp(e->diverged.what, whats[1]) == 0;
    c->has_ended = true;
    notify_all(c, &c->end);
    return true;
}

/* The outcome, as rank 0 sent it. */
static void take_end(fr_engine *e)
{
    const message *l = &e->coordinator->end;
    e->n_reported = l->number;
    e->tally = l->tally;
    atomic_store(&e->limit, e->first + l->number);
    e->diverged.is_set = l->status == FR_DIVERGED;
    if (!e->diverged.is_set) return;
    e->diverged.batch = e->first + l->number;
    e->diverged.micro = l->micro;
    e->diverged.what = whats[l->what == 1];
    e->diverged.value = l->value;
}

bool fr__coordinator_is_over(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    if (!c) return true;
    if (is_cut(c) || e->transport->is_aborted(e->group)) return true;
    if (e->rank == 0) {
        if (!conclude(e)) return false;
        c->call++;
        c->n_ready = 0;
        return true;
    }
    message l = {.kind = WALKED, .call = c->call};
    if (!c->has_walked) notify(c, 0, &l);
    c->has_walked = true;
    if (!c->has_ended) return false;
    take_end(e);
    c->call++;
    c->is_going = false;
    return true;
}

void fr__coordinator_failed(fr_engine *e)
{
    fr__coordinator *c = e->coordinator;
    if (!c || c->has_sent_failure || is_cut(c)) return;
    c->has_sent_failure = true;
    text_message t = {.head = {.kind = FAILED, .call = c->call}};
    snprintf(t.text, sizeof t.text, "%s: %.900s", fr_team_name(c->team, e->rank),
             fr_ctx_error(e->ctx));
    if (e->rank > 0)
        (void)fr_team_notify(c->team, 0, &t, sizeof t);
    else
        pass_on(c, t.text);
}
