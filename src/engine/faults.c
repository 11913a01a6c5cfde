/* faults.c -- injected faults, and the messages that name the worker of a failure or a stall. */
#include "engine/engine.h"

#include "base/philox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- injected faults --------------------------------------------------------------------- */

static const struct {
    const char *name;
    fr_fault_kind kind;
} kinds[] = {{"none", FR_FAULT_NONE}, {"error", FR_FAULT_ERROR}, {"hang", FR_FAULT_HANG},
             {"slow", FR_FAULT_SLOW}, {"nan", FR_FAULT_NAN},     {"jitter", FR_FAULT_JITTER}};

static bool set_field(fr_fault *f, const char *key, size_t n, double value)
{
    if (n == 6 && memcmp(key, "worker", n) == 0)
        f->worker = (int)value;
    else if (n == 4 && memcmp(key, "step", n) == 0)
        f->step = (int64_t)value;
    else if (n == 2 && memcmp(key, "ms", n) == 0)
        f->ms = value;
    else if (n == 4 && memcmp(key, "seed", n) == 0)
        f->seed = (uint64_t)value;
    else
        return false;
    return true;
}

const char *fr__fault_parse(const char *text, fr_fault *out)
{
    *out = (fr_fault){.ms = 1};
    size_t n = strcspn(text, ":");
    const char *at = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].name) != n || memcmp(text, kinds[i].name, n) != 0) continue;
        out->kind = kinds[i].kind;
        at = text + n;
    }
    if (!at) return "a fault is one of none, error, hang, slow, nan, jitter";
    if (*at == ':') at++;
    while (*at) {
        size_t key = strcspn(at, "=");
        if (at[key] != '=') return "fields of a fault are worker=, step=, ms=, seed=";
        char *end;
        double value = strtod(at + key + 1, &end);
        if (end == at + key + 1 || !(value >= 0 && value < 1e15) || (*end && *end != ','))
            return "a field of a fault needs a number that is not negative";
        if (!set_field(out, at, key, value))
            return "fields of a fault are worker=, step=, ms=, seed=";
        at = *end ? end + 1 : end;
    }
    return NULL;
}

static void jitter(fr__worker *w)
{
    const fr_fault *f = &w->engine->fault;
    uint32_t words[4];
    uint64_t nth = atomic_load(&w->n_beats);
    fr__random4(f->seed, FR_STREAM_SYNTHETIC, (uint32_t)w->index, nth, 0, words);
    if (words[0] % 4 != 0) return; /* most instructions are not delayed */
    fr__sleep_ns((uint64_t)(f->ms * 1e6 * (double)words[1] / 4294967296.0));
}

fr_status fr__fault_now(fr__worker *w, const fr_instr *i, int64_t batch)
{
    fr_engine *e = w->engine;
    const fr_fault *f = &e->fault;
    if (e->mode != FR_MODE_TRAIN) return FR_OK;
    if (f->kind == FR_FAULT_JITTER) jitter(w);
    if (f->worker != w->index || batch < f->step) return FR_OK;
    if (f->kind == FR_FAULT_SLOW) fr__sleep_ns((uint64_t)(f->ms * 1e6));
    if (batch != f->step || i->action != FR_DO_F) return FR_OK;
    if (f->kind == FR_FAULT_ERROR) return fr_fail(e->ctx, FR_PEER, "fault injected");
    while (f->kind == FR_FAULT_HANG) (void)pause();
    return FR_OK;
}

bool fr__fault_is_nan(const fr__part *p, int64_t batch, int micro)
{
    const fr_engine *e = p->engine;
    const fr_fault *f = &e->fault;
    return f->kind == FR_FAULT_NAN && e->mode == FR_MODE_TRAIN && f->worker == p->worker->index &&
           f->step == batch && micro / p->n_replicas == p->n_micro - 1;
}

/* --- failures and stalls ----------------------------------------------------------------- */

void fr__give_up(fr_engine *e, int worker)
{
    pthread_mutex_lock(&e->lock);
    /* A worker that fails after the abort is not the cause. */
    if (e->failed_worker < 0 && !e->transport->is_aborted(e->group)) {
        e->failed_worker = worker;
        snprintf(e->failure, sizeof e->failure, "%s", fr_ctx_error(NULL));
    }
    pthread_mutex_unlock(&e->lock);
    e->transport->abort(e->group);
    pthread_mutex_lock(&e->feed_lock);
    fr__feed_changed(e);
    pthread_mutex_unlock(&e->feed_lock);
}

/* "worker 1 (stage 1), mini-batch 3, micro-batch 0, 1RECV_F12 from worker 0 (stage 0)" */
static void describe(const fr_engine *e, fr__worker *w, char *text, size_t room)
{
    char name[48];
    int at = atomic_load(&w->doing_at);
    const fr_schedule *s = fr__schedule(e);
    if (at < 0) {
        snprintf(text, room, "worker %d has nothing left to do", w->index);
        return;
    }
    const fr_instr *i = &s->lists[w->index].at[at];
    int64_t batch = atomic_load(&w->doing_batch);
    bool per_batch = fr_is_of_batch(i->action);
    int n = snprintf(text, room, "worker %d (stage %d), mini-batch %lld", w->index, i->stage,
                     (long long)batch);
    if (!per_batch)
        n += snprintf(text + n, room - (size_t)n, ", micro-batch %d", i->micro % s->n_micro);
    n += snprintf(text + n, room - (size_t)n, ", instruction %s", fr_instr_text(i, name));
    if (i->peer >= 0)
        snprintf(text + n, room - (size_t)n, ", peer worker %d (stage %d)",
                 fr_schedule_worker(s, i->peer, i->micro), i->peer);
}

/* The state of a worker in another process is that of its last message. */
static bool is_busy(fr__worker *w)
{
    return (!w->is_local || w->job) && atomic_load(&w->doing_at) >= 0;
}

/* The cause is the worker that is busy but not waiting for another. */
void fr__blame_stall(fr_engine *e, double seconds)
{
    char text[256], others[512] = "";
    int culprit = -1, n_named = 0;
    for (int i = 0; i < e->n_workers; i++) {
        fr__worker *w = &e->workers[i];
        if (is_busy(w) && !atomic_load(&w->is_waiting) && culprit < 0) culprit = i;
    }
    for (int i = 0; i < e->n_workers && n_named < 3; i++) {
        fr__worker *w = &e->workers[i];
        if (i == culprit || !is_busy(w)) continue;
        describe(e, w, text, sizeof text);
        size_t n = strlen(others);
        snprintf(others + n, sizeof others - n, "; %s waits", text);
        n_named++;
    }
    if (culprit < 0) {
        fr_fail(e->ctx, FR_PEER, "no progress for %.1f s: every worker is waiting%s", seconds,
                others);
        return;
    }
    describe(e, &e->workers[culprit], text, sizeof text);
    fr_fail(e->ctx, FR_PEER,
            "%s: no progress for %.1f s%s; if its kernels need longer, raise run.stall_timeout",
            text, seconds, others);
}

/* Names the instruction of the worker that failed first. An error of the data source is reported
 * without a worker. */
fr_status fr__blame_failure(fr_engine *e)
{
    fr__worker *w = &e->workers[e->failed_worker];
    char where[256];
    if (e->feed_status != FR_OK && e->feed_status != FR_PEER)
        return fr_fail(e->ctx, e->feed_status, "%s", e->feed_error);
    describe(e, w, where, sizeof where);
    return fr_fail(e->ctx, e->n_workers > 1 ? FR_PEER : w->job_status, "%s failed: %s", where,
                   e->failure[0] ? e->failure : "no reason given");
}
