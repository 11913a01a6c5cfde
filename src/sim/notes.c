/* notes.c -- records of a walk about its workers: busy and waiting times, and events like those of
 * the engine, in nanoseconds of virtual time. */
#include "sim/sim.h"

#include <math.h>

static uint64_t to_ns(double seconds) { return (uint64_t)llround(seconds * 1e9); }

fr_status fr__sim_notes_init(fr__sim *m)
{
    const fr_schedule *s = m->s;
    fr_sim_result *out = m->out;
    fr_arena *a = out->arena;
    int64_t n_rounds = (m->d->n_batches + s->n_batches - 1) / s->n_batches;
    out->n_workers = s->n_workers;
    out->workers = FR_ARENA_ARRAY(a, fr_sim_worker, s->n_workers);
    out->done = FR_ARENA_ARRAY(a, double, m->d->n_batches);
    m->max_events = FR_ARENA_ARRAY(m->arena, int, s->n_workers);
    m->first_start = FR_ARENA_ARRAY(m->arena, double, s->n_workers);
    bool is_ok = out->workers && out->done && m->max_events && m->first_start;
    for (int w = 0; is_ok && w < s->n_workers; w++) {
        m->first_start[w] = NAN;
        if (m->d->n_events <= 0) continue;
        int n;
        const int *own = fr__stages_of(s, w, &n);
        double most = 3. * s->lists[w].n * (double)n_rounds; /* with a wait and an R before it */
        for (int i = 0; i < n; i++) most += (double)m->sums[own[i]].n * (double)m->d->n_batches;
        m->max_events[w] = (int)fmin(most, m->d->n_events);
        out->workers[w].events = FR_ARENA_ARRAY(a, fr_event, m->max_events[w]);
        is_ok = out->workers[w].events != NULL;
    }
    return is_ok ? FR_OK : fr__no_memory(m->ctx, (size_t)s->n_workers * sizeof(fr_event), "events");
}

static fr_event *push(fr__sim *m, int w)
{
    fr_sim_worker *to = &m->out->workers[w];
    return to->n_events < m->max_events[w] ? &to->events[to->n_events++] : NULL;
}

static fr_event event_of(const fr__sim *m, const fr__sim_task *t)
{
    const fr_instr *i = t->i;
    bool is_of_batch = fr_is_of_batch(i->action);
    int part = m->first_part[i->stage] + t->worker - m->s->worker_of[i->stage];
    return (fr_event){.action = i->action,
                      .stage = i->stage,
                      .peer = i->peer,
                      .batch = t->batch,
                      .micro = is_of_batch ? -1 : i->micro % m->s->n_micro,
                      .version = m->n_stepped[part]};
}

void fr__sim_note(fr__sim *m, const fr__sim_task *t, double came, double busy, double end)
{
    int w = t->worker;
    fr_sim_worker *to = &m->out->workers[w];
    bool computes = !fr__is_transfer(t->i->action) && t->i->action != FR_DO_REDUCE;
    if (computes) {
        to->busy += busy;
        if (isnan(m->first_start[w])) m->first_start[w] = end - busy;
        to->wait = end - m->first_start[w]; /* less busy, in the end */
    }
    if (m->max_events[w] == 0) return;
    fr_event event = event_of(m, t), *at;
    event.start_ns = to_ns(came);
    event.end_ns = to_ns(end - busy);
    event.is_wait = true;
    if (event.end_ns > event.start_ns && (at = push(m, w))) *at = event;
    event.start_ns = event.end_ns;
    event.end_ns = to_ns(end);
    event.is_wait = false;
    if ((at = push(m, w))) *at = event;
}

void fr__sim_note_sums(fr__sim *m, const fr__sim_task *t)
{
    int stage = t->i->stage, replica = t->worker - m->s->worker_of[stage];
    const fr__sim_sum *sum = &m->sums[stage];
    if (m->max_events[t->worker] == 0 || sum->batch != t->batch) return;
    for (int k = 0; k < sum->n; k++) {
        fr_event *at = push(m, t->worker);
        if (!at) return;
        *at = event_of(m, t);
        at->action = FR_DO_REDUCE;
        at->is_beside = true;
        at->micro = sum->n - 1 - k; /* buckets are counted from the beginning of the block */
        at->start_ns = to_ns(sum->posted[(size_t)replica * (size_t)sum->n + (size_t)k]);
        at->end_ns = to_ns(sum->done[k]);
    }
}
