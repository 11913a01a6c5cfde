/* sums.c -- sums of gradients or weights over replicas, and the steps that wait for them, as in the
 * executor and the engine's update.c.
 *
 * A block is divided into buckets, which are submitted from its end, each as soon as the last
 * backward has made it final. A bucket goes to the links when all replicas have submitted it and
 * the one before it is complete, so that messages of the pipeline wait for at most one bucket and
 * not for all submitted ones. It is stepped when its sum arrives. One place in the queue is enough
 * for a stage. */
#include "sim/sim.h"

#include <math.h>

static bool sum_init(fr__sim *m, int stage)
{
    const fr_schedule *s = m->s;
    fr__sim_sum *sum = &m->sums[stage];
    int64_t bytes = m->d->timing.cost[stage].param_bytes;
    int r = s->replicas[stage];
    *sum = (fr__sim_sum){.batch = -1};
    if (r == 1 || bytes == 0 || s->is_forward_only) return true;
    /* Weights are complete at once, and submitted as one bucket. */
    sum->n = m->d->sync_every > 0 ? 1 : (int)((bytes + FR_BUCKET_BYTES - 1) / FR_BUCKET_BYTES);
    sum->last_bytes = (size_t)bytes - (size_t)(sum->n - 1) * FR_BUCKET_BYTES;
    sum->ready = FR_ARENA_ARRAY(m->arena, double, sum->n);
    sum->done = FR_ARENA_ARRAY(m->arena, double, sum->n);
    sum->devices = FR_ARENA_ARRAY(m->arena, int, r);
    if (m->d->n_events > 0) {
        sum->posted = FR_ARENA_ARRAY(m->arena, double, (size_t)sum->n *(size_t)r);
        if (!sum->posted) return false;
    }
    for (int q = 0; sum->devices && q < r; q++)
        sum->devices[q] = fr__sim_device(&m->d->timing, s->worker_of[stage] + q);
    return sum->ready && sum->done && sum->devices;
}

fr_status fr__sim_sums_init(fr__sim *m)
{
    const fr_schedule *s = m->s;
    m->sums = FR_ARENA_ARRAY(m->arena, fr__sim_sum, s->n_stages);
    bool is_ok = m->sums != NULL;
    for (int k = 0; is_ok && k < s->n_stages; k++) is_ok = sum_init(m, k);
    return is_ok ? FR_OK : fr__no_memory(m->ctx, (size_t)s->n_stages * 64, "sums of replicas");
}

/* The replica of worker w submits bucket k when that share of its last backward is over. */
static void submit(fr__sim_sum *sum, int replica, int k, double time)
{
    sum->ready[k] = sum->n_posted > 0 ? fmax(sum->ready[k], time) : time;
    if (sum->posted) sum->posted[(size_t)replica * (size_t)sum->n + (size_t)k] = time;
}

/* One more replica has submitted all buckets, at times that are final. */
static void submitted(fr__sim *m, int stage, int64_t batch)
{
    fr__sim_sum *sum = &m->sums[stage];
    sum->batch = batch;
    if (++sum->n_posted < m->s->replicas[stage]) return;
    sum->n_posted = sum->next = 0;
    fr__sim_push(m, m->s->n_workers + stage, sum->ready[0]);
}

void fr__sim_post(fr__sim *m, const fr__sim_task *t, double start, double end)
{
    int stage = t->i->stage;
    fr__sim_sum *sum = &m->sums[stage];
    const fr_stage_cost *c = &m->d->timing.cost[stage];
    if (sum->n == 0 || m->d->sync_every > 0) return;
    size_t bytes = 0;
    for (int k = 0; k < sum->n; k++) {
        bytes += fr__sim_bucket_bytes(sum, k);
        double share = fr_curve_time(&c->final, (double)bytes / (double)c->param_bytes);
        submit(sum, t->worker - m->s->worker_of[stage], k,
               m->d->overlaps ? start + share * (end - start) : end);
    }
    submitted(m, stage, t->batch);
}

void fr__sim_sum_next(fr__sim *m, int stage)
{
    fr__sim_sum *sum = &m->sums[stage];
    int k = sum->next++;
    double ready = m->now;
    sum->done[k] = m->links ? fr_links_sum(m->links, m->s->replicas[stage], sum->devices,
                                           fr__sim_bucket_bytes(sum, k), ready)
                            : ready;
    if (sum->next < sum->n)
        fr__sim_push(m, m->s->n_workers + stage, fmax(sum->ready[sum->next], sum->done[k]));
    else
        fr__sim_happen(m, fr__sim_event_of(m, FR__SUMMED, stage, 0), (int)sum->batch, sum->done[k]);
}

/* --- steps ------------------------------------------------------------------------------------*/

/* The sums of a stage's gradients have arrived; each bucket is stepped on arrival unless the worker
 * was busy with sums. */
static bool take_sum(fr__sim *m, const fr__sim_task *t, int stage, double *start, double *end)
{
    const fr__sim_sum *sum = &m->sums[stage];
    double bytes = (double)m->d->timing.cost[stage].param_bytes, at = *start, last = *start;
    double seconds = *end;
    if (!fr__sim_after(m, t->worker, fr__sim_event_of(m, FR__SUMMED, stage, 0), (int)t->batch,
                       &last))
        return false;
    for (int k = 0; k < sum->n; k++) {
        last = fmax(last, sum->done[k]);
        at = fmax(at, sum->done[k]) + seconds * ((double)fr__sim_bucket_bytes(sum, k) / bytes);
    }
    if (m->d->adds_itself) at = last + seconds;
    *start = last;
    *end = at;
    return true;
}

/* All workers have their sums: norms and tied parameters are exchanged before any worker steps. */
static bool take_board(fr__sim *m, const fr__sim_task *t, double *start)
{
    const fr_schedule *s = m->s;
    int w = t->worker, n;
    const int *own = fr__stages_of(s, w, &n);
    for (int i = 0; i < n; i++) {
        double unused = 0;
        if (m->sums[own[i]].n > 0 && m->d->sync_every == 0 &&
            !take_sum(m, t, own[i], start, &unused))
            return false;
    }
    if (m->boarded[w] != t->batch) {
        m->boarded[w] = t->batch;
        m->boarded_at = m->n_boarded > 0 ? fmax(m->boarded_at, *start) : *start;
        if (++m->n_boarded == s->n_workers) {
            m->n_boarded = 0;
            fr__sim_happen(m, fr__sim_event_of(m, FR__BOARDED, 0, 0), (int)t->batch, m->boarded_at);
        }
    }
    return fr__sim_after(m, w, fr__sim_event_of(m, FR__BOARDED, 0, 0), (int)t->batch, start);
}

/* Weights are averaged after this update. */
static bool has_mean(const fr__sim *m, const fr__sim_task *t)
{
    int every = m->d->sync_every;
    return every > 0 && m->sums[t->i->stage].n > 0 && (t->batch + 1) % every == 0;
}

static bool take_mean(fr__sim *m, const fr__sim_task *t, double *end)
{
    int stage = t->i->stage, w = t->worker;
    fr__sim_sum *sum = &m->sums[stage];
    if (!m->has_stepped[w]) {
        m->has_stepped[w] = true;
        for (int k = 0; k < sum->n; k++) submit(sum, w - m->s->worker_of[stage], k, *end);
        submitted(m, stage, t->batch);
    }
    if (!fr__sim_after(m, w, fr__sim_event_of(m, FR__SUMMED, stage, 0), (int)t->batch, end))
        return false;
    m->has_stepped[w] = false;
    return true;
}

bool fr__sim_step(fr__sim *m, const fr__sim_task *t, double *start, double *end)
{
    int stage = t->i->stage;
    double seconds = fr__sim_seconds(m, t);
    bool is_summed = m->sums[stage].n > 0 && m->d->sync_every == 0;
    bool has_board = m->d->steps_together && m->s->is_flush;
    if (has_board && !take_board(m, t, start)) return false;
    if (is_summed && !has_board) {
        *end = seconds;
        if (!take_sum(m, t, stage, start, end)) return false;
    } else {
        *end = *start + seconds;
    }
    return !has_mean(m, t) || take_mean(m, t, end);
}

double fr__sim_sum_bytes(const fr__sim *m)
{
    double bytes = 0, every = m->d->sync_every > 0 ? m->d->sync_every : 1;
    for (int k = 0; k < m->s->n_stages; k++)
        if (m->sums[k].n > 0)
            bytes += 2. * (m->s->replicas[k] - 1) * (double)m->d->timing.cost[k].param_bytes;
    return bytes / every;
}
