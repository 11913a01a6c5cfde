/* simulate.c -- the engine's walk on a virtual clock.
 *
 * Each worker walks its list in order, repeatedly, until the mini-batches are done. Instructions
 * of mini-batches beyond the end are skipped, as in the engine. A worker waits for events with a
 * time (queue.c). Workers share nothing else but the links, which get messages and sums in the
 * order of virtual time. So the run time is linear in the number of instructions, except for the
 * heap of workers that are about to send. */
#include "sim/sim.h"

#include "base/philox.h"

#include <math.h>
#include <stdio.h>

/* --- arguments --------------------------------------------------------------------------- */

int fr__sim_device(const fr_timing *t, int worker)
{
    return t->device_of ? t->device_of[worker] : worker;
}

static fr_status check_timing(fr_ctx *ctx, const fr_sim_desc *d)
{
    const fr_schedule *s = d->schedule;
    const fr_timing *t = &d->timing;
    for (int k = 0; k < s->n_stages; k++) {
        const fr_stage_cost *c = &t->cost[k];
        const double seconds[] = {c->forward,        c->backward,  c->back_input,
                                  c->back_weight,    c->step,      c->fetch_forward,
                                  c->fetch_backward, c->recompute, c->backward - c->recompute};
        for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
            if (!(seconds[i] >= 0) || isinf(seconds[i]))
                return fr_fail(ctx, FR_INVALID,
                               "simulation: stage %d has a cost of %g s; expected one that is "
                               "finite and not below 0",
                               k, seconds[i]);
        if (c->param_bytes < 0 || c->param_bytes > (int64_t)INT32_MAX * FR_BUCKET_BYTES)
            return fr_fail(ctx, FR_INVALID, "simulation: stage %d has %lld bytes of parameters", k,
                           (long long)c->param_bytes);
    }
    for (int w = 0; w < s->n_workers; w++) {
        double speed = fr__sim_speed(t, w);
        int device = fr__sim_device(t, w);
        if (!(speed > 0) || isinf(speed))
            return fr_fail(ctx, FR_INVALID,
                           "simulation: worker %d has speed %g; give its device a speed, or "
                           "flops together with a profile that has flops",
                           w, speed);
        if (t->cluster && (device < 0 || device >= t->cluster->n_devices))
            return fr_fail(ctx, FR_INVALID,
                           "simulation: worker %d is on device %d, and cluster %s has %d devices",
                           w, device, t->cluster->name, t->cluster->n_devices);
    }
    return FR_OK;
}

/* Without reductions some steps come before the gradients of other stages: all would wait for each
 * other. */
static fr_status check_reductions(fr_ctx *ctx, const fr_sim_desc *d)
{
    const fr_schedule *s = d->schedule;
    if (!d->steps_together || !s->is_flush) return FR_OK;
    for (int i = 0; i < s->lists[0].n; i++)
        if (s->lists[0].at[i].action == FR_DO_REDUCE) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "simulation: steps wait for all stages, but schedule %s has no reductions; make "
                   "it with must_reduce",
                   s->name);
}

fr_status fr__sim_check(fr_ctx *ctx, const fr_sim_desc *d)
{
    const fr_schedule *s = d->schedule;
    if (!s || !s->is_lowered || !d->timing.cost)
        return fr_fail(ctx, FR_INVALID,
                       "a simulation needs a lowered schedule and the cost of its "
                       "stages");
    if (d->n_batches < 1 || d->n_batches > INT32_MAX - s->n_batches || d->sync_every < 0 ||
        !(d->timing.overhead_s >= 0) || !(d->jitter >= 0 && d->jitter <= 1))
        return fr_fail(ctx, FR_INVALID,
                       "simulation: %lld mini-batches, a mean every %d updates, %g s beside an "
                       "instruction, jitter %g; expected at least one mini-batch, nothing below "
                       "0, a jitter of at most 1",
                       (long long)d->n_batches, d->sync_every, d->timing.overhead_s, d->jitter);
    FR_TRY(check_reductions(ctx, d));
    return check_timing(ctx, d);
}

/* Mean 1, never below 1 - jitter: most instructions are a little faster, some much slower. */
static double disturb(const fr__sim *m, int worker)
{
    uint32_t words[4];
    fr__random4((uint64_t)m->d->draw, FR_STREAM_JITTER, (uint32_t)worker,
                (uint64_t)m->round[worker], (uint32_t)m->at[worker], words);
    double late = -log1p(-(double)fr__unit_float(words[0])); /* exponential */
    return 1 + m->d->jitter * (late - 1);
}

/* Evaluation reads the newest weights. */
static bool is_first_of_batch(const fr_schedule *s, const fr_instr *i)
{
    return !s->is_forward_only && i->micro % s->n_micro < s->replicas[i->stage];
}

double fr__sim_seconds(const fr__sim *m, const fr__sim_task *t)
{
    const fr_stage_cost *c = &m->d->timing.cost[t->i->stage];
    const bool *fused = m->d->update_in_backward;
    bool is_fused = fused && fused[t->i->stage], is_first = fused && is_first_of_batch(m->s, t->i);
    double seconds = 0, fetch = is_first && c->recompute <= 0 ? c->fetch_backward : 0;
    switch (t->i->action) {
    case FR_DO_F: seconds = c->forward + (is_first ? c->fetch_forward : 0); break;
    case FR_DO_R: seconds = c->recompute + (is_first ? c->fetch_backward : 0); break;
    case FR_DO_B: seconds = c->backward - c->recompute + fetch; break;
    case FR_DO_I: seconds = c->back_input - c->recompute + fetch; break;
    case FR_DO_W: seconds = c->back_weight; break;
    case FR_DO_STEP:
        seconds = is_fused ? 0 : c->step;
        if (!fused) seconds += c->fetch_forward + c->fetch_backward;
        break;
    default: return 0;
    }
    if (is_fused && fr__sim_is_last_gradient(m->s, t->i)) seconds += c->step;
    if (m->d->jitter > 0) seconds *= disturb(m, t->worker);
    return seconds / fr__sim_speed(&m->d->timing, t->worker);
}

/* --- slots and buffers ------------------------------------------------------------------------*/

static fr__sim_who *slot_holder(const fr__sim *m, int stage, int micro)
{
    int replica = micro % m->s->replicas[stage];
    return &m->slot_holder[stage]
                          [replica * m->s->n_slots[stage] + fr_schedule_slot(m->s, stage, micro)];
}

static fr__sim_who *buffer_holder(const fr__sim *m, int link, int micro)
{
    int pair = micro % m->x.backward.pairs[link];
    return &m->buffer_holder[link]
                            [pair * m->s->n_buffers[link] + fr_schedule_buffer(m->s, link, micro)];
}

static bool is_far(const fr__sim *m, const fr_link *l)
{
    return m->s->worker_of[l->from] != m->s->worker_of[l->to];
}

/* The readers of the slot's last micro-batch have finished. */
static bool after_slot(fr__sim *m, const fr__sim_task *t, double *start)
{
    const fr__direction *d = &m->x.forward;
    fr__sim_who *holder = slot_holder(m, t->i->stage, t->i->micro);
    for (int j = d->out.first[t->i->stage]; j < d->out.first[t->i->stage + 1]; j++) {
        const fr_link *l = &d->links[d->out.link[j]];
        if (holder->round < 0 || !is_far(m, l)) continue;
        if (!fr__sim_after(m, t->worker, fr__sim_event_of(m, FR__FREED, l->to, holder->micro),
                           holder->round, start))
            return false;
    }
    *holder = (fr__sim_who){t->i->micro, m->round[t->worker]};
    return true;
}

/* The buffers for the gradients have been read. */
static bool after_buffers(fr__sim *m, const fr__sim_task *t, double *start)
{
    const fr__direction *d = &m->x.backward;
    int first = d->out.first[t->i->stage], last = d->out.first[t->i->stage + 1];
    for (int j = first; j < last; j++) {
        const fr_link *l = &d->links[d->out.link[j]];
        const fr__sim_who *holder = buffer_holder(m, d->out.link[j], t->i->micro);
        if (holder->round < 0 || !is_far(m, l)) continue;
        if (!fr__sim_after(m, t->worker, fr__sim_event_of(m, FR__GRADS, l->to, holder->micro),
                           holder->round, start))
            return false;
    }
    for (int j = first; j < last; j++)
        *buffer_holder(m, d->out.link[j], t->i->micro) =
            (fr__sim_who){t->i->micro, m->round[t->worker]};
    return true;
}

/* --- instructions: false if the worker waits; then try again ----------------------------- */

static bool compute(fr__sim *m, const fr__sim_task *t, double *start, double *end)
{
    const fr_instr *i = t->i;
    int w = t->worker, round = m->round[w];
    if (i->action == FR_DO_F && !after_slot(m, t, start)) return false;
    if (fr__makes_gradients(i->action) && !after_buffers(m, t, start)) return false;
    *end = *start + fr__sim_seconds(m, t) + fr__sim_overhead(m);
    if (i->action == FR_DO_F && ++m->live[w] > m->out->workers[w].peak_live)
        m->out->workers[w].peak_live = m->live[w];
    if (fr__makes_gradients(i->action))
        fr__sim_happen(m, fr__sim_event_of(m, FR__GRADS, i->stage, i->micro), round, *end);
    if (fr__is_last_use(m->s, i->action)) {
        m->live[w]--;
        fr__sim_happen(m, fr__sim_event_of(m, FR__FREED, i->stage, i->micro), round, *end);
    }
    if (fr__sim_is_last_gradient(m->s, i)) fr__sim_post(m, t, *start, *end);
    return true;
}

/* The message is sent now: no worker can send an earlier one. */
static void send(fr__sim *m, const fr__sim_task *t, double ready)
{
    const fr_instr *i = t->i;
    const fr_timing *timing = &m->d->timing;
    bool is_forward = i->action == FR_DO_SEND_F;
    int link = fr__transfer_link(&m->x, i);
    const size_t *sizes = is_forward ? timing->forward_bytes : timing->backward_bytes;
    size_t bytes = sizes ? sizes[link] : 0;
    int to = fr_schedule_worker(m->s, i->peer, i->micro);
    double there = m->links ? fr_links_send(m->links, fr__sim_device(timing, t->worker),
                                            fr__sim_device(timing, to), bytes, ready)
                            : ready;
    m->message_bytes += (double)bytes;
    fr__sim_happen(m,
                   fr__sim_event_of(m, is_forward ? FR__ARRIVED_F : FR__ARRIVED_B, link, i->micro),
                   m->round[t->worker], there);
}

static bool receive(fr__sim *m, const fr__sim_task *t, double *start)
{
    fr__sim_event kind = t->i->action == FR_DO_RECV_F ? FR__ARRIVED_F : FR__ARRIVED_B;
    return fr__sim_after(m, t->worker,
                         fr__sim_event_of(m, kind, fr__transfer_link(&m->x, t->i), t->i->micro),
                         m->round[t->worker], start);
}

static void stepped(fr__sim *m, const fr__sim_task *t, double end)
{
    m->out->done[t->batch] = fmax(m->out->done[t->batch], end);
    if (t->i->action != FR_DO_STEP) return;
    fr__sim_note_sums(m, t);
    m->n_stepped[m->first_part[t->i->stage] + t->worker - m->s->worker_of[t->i->stage]]++;
}

/* False: it waits for an event, or in the queue for its turn to send. */
static bool perform(fr__sim *m, const fr__sim_task *t)
{
    int w = t->worker;
    double came = m->clock[w], start = came, overhead = fr__sim_overhead(m), end = came + overhead;
    switch (t->i->action) {
    case FR_DO_SEND_F:
    case FR_DO_SEND_B:
        if (end > m->now) {
            fr__sim_push(m, w, end);
            return false;
        }
        send(m, t, end);
        break;
    case FR_DO_RECV_F:
    case FR_DO_RECV_B:
        if (!receive(m, t, &start)) return false;
        end = start + overhead;
        break;
    case FR_DO_REDUCE: break;
    case FR_DO_STEP:
        if (!fr__sim_step(m, t, &start, &end)) return false;
        end += overhead;
        break;
    default:
        if (!compute(m, t, &start, &end)) return false;
    }
    m->clock[w] = end;
    if (t->i->action == FR_DO_STEP || m->s->is_forward_only) stepped(m, t, end);
    fr__sim_note(m, t, came, fr__sim_seconds(m, t) + overhead, end);
    return true;
}

static bool do_one(fr__sim *m, int w, const fr_instr *i)
{
    const fr_schedule *s = m->s;
    int batch = fr_is_of_batch(i->action) ? i->micro : i->micro / s->n_micro;
    fr__sim_task t = {i, w, (int64_t)m->round[w] * s->n_batches + batch};
    return t.batch >= m->d->n_batches || perform(m, &t);
}

/* An R does not wait. An instruction that waits comes here again. */
static void recompute_before(fr__sim *m, int w)
{
    fr_instr again;
    if (m->has_recomputed[w]) return;
    m->has_recomputed[w] = true;
    if (fr_schedule_recompute(&m->s->lists[w], m->at[w], &again) &&
        m->d->timing.cost[again.stage].recompute > 0)
        (void)do_one(m, w, &again);
}

static void walk(fr__sim *m, int w)
{
    const fr_schedule *s = m->s;
    const fr_instr_list *list = &s->lists[w];
    for (; (int64_t)m->round[w] * s->n_batches < m->d->n_batches; m->round[w]++, m->at[w] = 0)
        for (; m->at[w] < list->n; m->at[w]++) {
            recompute_before(m, w);
            if (!do_one(m, w, &list->at[m->at[w]])) return;
            m->has_recomputed[w] = false;
        }
}

/* --- the whole --------------------------------------------------------------------------------*/

static fr__sim_who **holders_init(fr_arena *a, int n_rows, const int *n, const int *shares)
{
    fr__sim_who **rows = FR_ARENA_ARRAY(a, fr__sim_who *, n_rows);
    for (int k = 0; rows && k < n_rows; k++) {
        size_t all = (size_t)n[k] * (size_t)shares[k];
        rows[k] = FR_ARENA_ARRAY(a, fr__sim_who, all);
        if (!rows[k]) return NULL;
        for (size_t i = 0; i < all; i++) rows[k][i].round = -1;
    }
    return rows;
}

static bool events_init(fr__sim *m)
{
    const fr_schedule *s = m->s;
    const size_t rows[FR__N_SIM_EVENTS] = {
        [FR__ARRIVED_F] = (size_t)s->n_forward, [FR__ARRIVED_B] = (size_t)s->n_backward,
        [FR__FREED] = (size_t)s->n_stages,      [FR__GRADS] = (size_t)s->n_stages,
        [FR__SUMMED] = (size_t)s->n_stages,     [FR__BOARDED] = 1,
    };
    for (int kind = 0; kind < FR__N_SIM_EVENTS; kind++)
        m->first[kind + 1] =
            m->first[kind] + rows[kind] * (kind < FR__SUMMED ? (size_t)m->n_micro : 1);
    size_t n = m->first[FR__N_SIM_EVENTS];
    m->when = FR_ARENA_ARRAY(m->arena, double, n);
    m->nth = FR_ARENA_ARRAY(m->arena, int, n);
    m->sleeper = FR_ARENA_ARRAY(m->arena, int, n);
    for (size_t e = 0; m->nth && m->sleeper && e < n; e++) m->nth[e] = m->sleeper[e] = -1;
    return m->when && m->nth && m->sleeper;
}

static bool workers_init(fr__sim *m)
{
    const fr_schedule *s = m->s;
    fr_arena *a = m->arena;
    int n = s->n_workers, n_parts = 0;
    m->next_sleeper = FR_ARENA_ARRAY(a, int, n);
    m->awake = FR_ARENA_ARRAY(a, int, n);
    m->heap = FR_ARENA_ARRAY(a, fr__sim_item, n + s->n_stages);
    m->clock = FR_ARENA_ARRAY(a, double, n);
    m->at = FR_ARENA_ARRAY(a, int, n);
    m->round = FR_ARENA_ARRAY(a, int, n);
    m->has_stepped = FR_ARENA_ARRAY(a, bool, n);
    m->has_recomputed = FR_ARENA_ARRAY(a, bool, n);
    m->boarded = FR_ARENA_ARRAY(a, int64_t, n);
    m->live = FR_ARENA_ARRAY(a, int, n);
    m->first_part = FR_ARENA_ARRAY(a, int, s->n_stages + 1);
    for (int k = 0; m->first_part && k < s->n_stages; k++) {
        m->first_part[k] = n_parts;
        n_parts += s->replicas[k];
    }
    m->n_stepped = FR_ARENA_ARRAY(a, int64_t, n_parts + 1);
    m->slot_holder = holders_init(a, s->n_stages, s->n_slots, s->replicas);
    m->buffer_holder = holders_init(a, s->n_backward, s->n_buffers, m->x.backward.pairs);
    for (int w = 0; m->boarded && w < n; w++) m->boarded[w] = -1;
    return m->next_sleeper && m->awake && m->heap && m->clock && m->at && m->round &&
           m->has_stepped && m->has_recomputed && m->boarded && m->live && m->first_part &&
           m->n_stepped && m->slot_holder && m->buffer_holder;
}

static fr_status init(fr__sim *m)
{
    FR_TRY(fr__link_index_init(m->ctx, m->arena, m->s, &m->x));
    if (!events_init(m) || !workers_init(m))
        return fr__no_memory(m->ctx, m->first[FR__N_SIM_EVENTS] * sizeof(double), "a simulation");
    if (m->d->timing.cluster) FR_TRY(fr_links_create(m->ctx, m->d->timing.cluster, &m->links));
    FR_TRY(fr__sim_sums_init(m));
    return fr__sim_notes_init(m);
}

static fr_status run_all(fr__sim *m)
{
    const fr_schedule *s = m->s;
    fr__sim_item item;
    for (int w = 0; w < s->n_workers; w++) fr__sim_push(m, w, 0);
    while (fr__sim_pop(m, &item)) {
        m->now = item.time;
        if (item.who < s->n_workers)
            walk(m, item.who);
        else
            fr__sim_sum_next(m, item.who - s->n_workers);
        while (m->n_awake > 0) walk(m, m->awake[--m->n_awake]);
    }
    for (int w = 0; w < s->n_workers; w++)
        if (m->at[w] < s->lists[w].n && (int64_t)m->round[w] * s->n_batches < m->d->n_batches)
            return fr__instr_fail(m->ctx, s, w, m->at[w],
                                  "waits forever for an event that never happens");
    return FR_OK;
}

static void finish(fr__sim *m)
{
    fr_sim_result *out = m->out;
    int64_t n = m->d->n_batches, tenth = (n + 9) / 10;
    double busy = 0;
    for (int w = 0; w < out->n_workers; w++) {
        fr_sim_worker *at = &out->workers[w];
        out->makespan = fmax(out->makespan, m->clock[w]);
        at->wait = fmax(at->wait - at->busy, 0);
        busy += at->busy;
    }
    out->s_per_batch = tenth < n ? (out->done[n - 1] - out->done[tenth - 1]) / (double)(n - tenth)
                                 : out->makespan / (double)n;
    out->bubble = out->makespan > 0 ? 1 - busy / out->n_workers / out->makespan : 0;
    out->sum_bytes = fr__sim_sum_bytes(m);
    out->message_bytes = m->message_bytes / (double)n;
}

fr_status fr_simulate(fr_ctx *ctx, const fr_sim_desc *d, fr_sim_result *out)
{
    fr_arena scratch = {0};
    *out = (fr_sim_result){0};
    FR_TRY(fr__sim_check(ctx, d));
    fr__sim m = {.ctx = ctx,
                 .d = d,
                 .s = d->schedule,
                 .arena = &scratch,
                 .n_micro = fr__n_micro(d->schedule),
                 .out = out};
    fr_status status;
    if ((out->arena = FR_NEW(fr_arena)))
        status = init(&m);
    else
        status = fr__no_memory(ctx, sizeof(fr_arena), "a simulation");
    if (status == FR_OK) status = run_all(&m);
    if (status == FR_OK)
        finish(&m);
    else
        fr_sim_free(out);
    fr_links_free(m.links);
    fr__arena_fini(&scratch);
    return status;
}

void fr_sim_free(fr_sim_result *r)
{
    fr__arena_free(r->arena);
    *r = (fr_sim_result){0};
}
