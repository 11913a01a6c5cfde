/* worker.c -- walks a worker's list, instruction by instruction, and records times and events.
 *
 * The list covers one segment and is walked again until the call's mini-batches are done. An
 * instruction of a mini-batch beyond the limit (a run that ends early) moves its messages and takes
 * part in sums, but computes nothing. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>

enum { SHORT_WAIT_NS = 2000 }; /* not worth a slice in a trace */

/* The mini-batch and micro-batch of an instruction. */
typedef struct task {
    const fr_instr *instr;
    fr__part *part;
    int64_t batch;  /* of the run */
    int micro;      /* in the mini-batch */
    int in_segment; /* micro-batch of the segment */
    bool is_dead;   /* beyond the limit */
} task;

/* --- transfers ------------------------------------------------------------------------------ */

static fr__link_buffers *link_of(fr_engine *e, const fr_instr *i, int *link)
{
    const fr_schedule *s = fr__schedule(e);
    bool is_send = i->action == FR_DO_SEND_F || i->action == FR_DO_SEND_B;
    int from = is_send ? i->stage : i->peer, to = is_send ? i->peer : i->stage;
    if (i->action == FR_DO_SEND_F || i->action == FR_DO_RECV_F) {
        *link = fr_schedule_find_link(s->n_forward, s->forward, from, to);
        return *link < 0 ? NULL : &e->forward[e->mode][*link];
    }
    *link = fr_schedule_find_link(s->n_backward, s->backward, from, to);
    return *link < 0 ? NULL : &e->backward[*link];
}

/* A message of a mini-batch beyond the limit is empty, so that its receiver lowers its limit too.
 */
static fr_status send(fr__worker *w, const task *t, const fr__link_buffers *r,
                      fr__link_channel *channel, int buffer)
{
    fr_engine *e = w->engine;
    bool is_forward = t->instr->action == FR_DO_SEND_F;
    /* The pass has acquired the buffer; if it did not run, acquire it here. */
    if (t->is_dead)
        FR_TRY(fr__acquire(w, channel, buffer));
    else
        FR_TRY(is_forward ? fr__exec_wait_forward(t->part->exec, e->mode, t->in_segment)
                          : fr__exec_wait_backward(t->part->exec, t->in_segment));
    e->transport->send(channel->handle, buffer, t->is_dead ? 0 : r->bytes);
    if (!t->is_dead && e->mode == FR_MODE_TRAIN)
        *(is_forward ? &w->traffic.forward : &w->traffic.backward) += r->bytes;
    return FR_OK;
}

static fr_status receive(fr__worker *w, const task *t, fr__link_channel *channel, int buffer)
{
    fr_engine *e = w->engine;
    size_t bytes;
    fr__wait_begin(w);
    fr_status status =
        e->transport->receive(channel->handle, buffer, &channel->data[buffer], &bytes);
    fr__wait_end(w);
    if (status == FR_OK && bytes == 0) fr__lower_limit(e, t->batch);
    return status;
}

static fr_status transfer(fr__worker *w, const task *t)
{
    fr_engine *e = w->engine;
    const fr_schedule *s = fr__schedule(e);
    int link;
    const fr__link_buffers *r = link_of(e, t->instr, &link);
    fr__link_channel *channel = r ? fr__channel_of(r, t->in_segment) : NULL;
    if (!channel || !channel->handle)
        return fr_fail(e->ctx, FR_INTERNAL, "a transfer over a link that does not exist");
    bool is_forward = t->instr->action == FR_DO_SEND_F || t->instr->action == FR_DO_RECV_F;
    int buffer = is_forward ? fr_schedule_slot(s, r->from, t->in_segment)
                            : fr_schedule_buffer(s, link, t->in_segment);
    if (t->instr->action == FR_DO_SEND_F || t->instr->action == FR_DO_SEND_B)
        return send(w, t, r, channel, buffer);
    return receive(w, t, channel, buffer);
}

/* Emulation: let this part of the modelled duration of an instruction pass. */
void fr__spend(const fr__part *p, fr_action action, double share)
{
    fr__emulation *m = p->engine->emulation;
    int worker = p->worker->index;
    if (fr__is_emulated(p->engine))
        fr__emulation_spend(m, worker, share * fr__emulation_seconds(m, worker, p->stage, action));
}

/* --- one instruction ------------------------------------------------------------------------ */

static fr_status forward(const task *t, fr_event *event)
{
    fr__part *p = t->part;
    fr_engine *e = p->engine;
    bool is_dead = t->is_dead;
    FR_TRY(fr__tie_borrow(p, t->batch, &is_dead));
    if (!is_dead) FR_TRY(fr__pass_forward(p, t->batch, t->micro, t->in_segment, event));
    if (!is_dead) fr__spend(p, FR_DO_F, 1);
    if (is_dead) FR_TRY(fr__tie_lend(p, t->batch, NULL));
    if (e->mode != FR_MODE_EVAL) return FR_OK;
    if (!t->is_dead) FR_TRY(fr__exec_wait_forward(p->exec, e->mode, t->in_segment));
    fr__release_inputs(p, e->mode, t->in_segment);
    if (t->micro / p->n_replicas != p->n_micro - 1 || t->is_dead) return FR_OK;
    fr__record_close(p, t->batch);
    fr__record_stepped(p, t->batch, NAN);
    return FR_OK;
}

/* Emulation: gradients become final during the modelled duration. */
static fr_status emulate_backward(const task *t, int what, fr_event *event)
{
    fr__part *p = t->part;
    fr__emulation *m = p->engine->emulation;
    fr_action action = (fr_action)t->instr->action;
    int worker = p->worker->index;
    fr__emulation_set_backward(m, worker, p->stage,
                               fr__emulation_seconds(m, worker, p->stage, action));
    FR_TRY(fr__pass_backward(p, t->batch, t->micro, t->in_segment, what, event));
    fr__spend(p, action, 1);
    fr__emulation_set_backward(m, worker, p->stage, 0);
    return FR_OK;
}

static fr_status alive_backward(const task *t, int what, fr_event *event)
{
    if (fr__is_emulated(t->part->engine)) return emulate_backward(t, what, event);
    return fr__pass_backward(t->part, t->batch, t->micro, t->in_segment, what, event);
}

/* The emulated time of B and I is without it. */
static fr_status recompute(const task *t, fr_event *event)
{
    if (t->is_dead) return FR_OK;
    FR_TRY(fr__pass_recompute(t->part, t->batch, t->micro, t->in_segment, event));
    fr__spend(t->part, FR_DO_R, 1);
    return FR_OK;
}

static fr_status backward(const task *t, int what, fr_event *event)
{
    fr__part *p = t->part;
    if (!t->is_dead) FR_TRY(alive_backward(t, what, event));
    if (!t->is_dead) FR_TRY(fr__exec_wait_backward(p->exec, t->in_segment));
    if (what & FR_GRAD_INPUT) fr__release_grads(p, t->in_segment);
    if (what & FR_GRAD_WEIGHT) fr__release_inputs(p, FR_MODE_TRAIN, t->in_segment);
    return FR_OK;
}

static fr_status reduce(const task *t)
{
    FR_TRY(fr__update_reduce(t->part, t->batch, t->is_dead));
    fr__spend(t->part, FR_DO_REDUCE, 1);
    return FR_OK;
}

static fr_status step(const task *t, fr_event *event)
{
    fr__part *p = t->part;
    if (!t->is_dead) fr__record_close(p, t->batch);
    FR_TRY(t->is_dead ? fr__update_skip(p, t->batch) : fr__update_step(p, t->batch, event));
    return fr__replicas_stepped(p, t->batch);
}

static fr_status execute(fr__worker *w, const task *t, fr_event *event)
{
    switch (t->instr->action) {
    case FR_DO_F: return forward(t, event);
    case FR_DO_B: return backward(t, FR_GRAD_BOTH, event);
    case FR_DO_I: return backward(t, FR_GRAD_INPUT, event);
    case FR_DO_W: return backward(t, FR_GRAD_WEIGHT, event);
    case FR_DO_REDUCE: return reduce(t);
    case FR_DO_STEP: return step(t, event);
    case FR_DO_R: return recompute(t, event);
    default: return transfer(w, t);
    }
}

/* --- notes ---------------------------------------------------------------------------------- */

static fr_spent spent_on(fr_action action)
{
    static const fr_spent on[FR_N_ACTIONS] = {
        [FR_DO_F] = FR_SPENT_FORWARD,       [FR_DO_B] = FR_SPENT_BACKWARD,
        [FR_DO_I] = FR_SPENT_BACKWARD,      [FR_DO_W] = FR_SPENT_WEIGHT,
        [FR_DO_SEND_F] = FR_SPENT_TRANSFER, [FR_DO_RECV_F] = FR_SPENT_TRANSFER,
        [FR_DO_SEND_B] = FR_SPENT_TRANSFER, [FR_DO_RECV_B] = FR_SPENT_TRANSFER,
        [FR_DO_REDUCE] = FR_SPENT_TRANSFER, [FR_DO_STEP] = FR_SPENT_STEP,
        [FR_DO_R] = FR_SPENT_BACKWARD,
    };
    return on[action];
}

static fr_spent waited_on(fr_action action)
{
    if (action == FR_DO_RECV_F) return FR_SPENT_WAIT_FORWARD;
    if (action == FR_DO_RECV_B) return FR_SPENT_WAIT_BACKWARD;
    return FR_SPENT_WAIT_OTHER;
}

static void add_time(fr_stage_times *t, fr_action action, uint64_t ns, uint64_t fused,
                     uint64_t fetch)
{
    t->step_ns += fused;
    switch (action) {
    case FR_DO_F: t->forward_ns += ns, t->fetch_forward_ns += fetch, t->n_micro++; break;
    case FR_DO_R:
    case FR_DO_B:
    case FR_DO_I: t->back_input_ns += ns, t->fetch_backward_ns += fetch; break;
    case FR_DO_W: t->back_weight_ns += ns; break;
    case FR_DO_STEP: t->step_ns += ns, t->n_steps++; break;
    default: break;
    }
}

static void add_stage_time(const task *t, uint64_t ns, uint64_t fused)
{
    fr__part *p = t->part;
    fr_action action = (fr_action)t->instr->action;
    if (p->cold_batch < 0) p->cold_batch = t->batch;
    uint64_t fetch_ns = fr__exec_fetch_ns(p->exec), fetch = fetch_ns < ns ? fetch_ns : ns;
    if (p->cold_batch == t->batch) add_time(&p->cold, action, ns, fused, fetch);
    add_time(&p->times, action, ns, fused, fetch);
}

void fr__push_event(fr__worker *w, const fr_event *event)
{
    if (w->n_events < w->engine->desc.n_events) w->events[w->n_events++] = *event;
}

/* Time of a backward that the update took; in emulation STEP takes it. */
static uint64_t take_fused_ns(const task *t)
{
    fr__part *p = t->part;
    if (t->instr->action != FR_DO_B && t->instr->action != FR_DO_W) return 0;
    uint64_t ns = fr__exec_take_fused_ns(p->exec);
    return fr__is_emulated(p->engine) ? 0 : ns;
}

static void note(fr__worker *w, const task *t, fr_event *event)
{
    if (w->engine->mode != FR_MODE_TRAIN || t->is_dead) return;
    fr_action action = (fr_action)t->instr->action;
    uint64_t busy = event->end_ns - event->start_ns, fused = take_fused_ns(t);
    uint64_t wait = w->wait_ns;
    if (fr__is_emulated(w->engine))
        wait = fr__emulation_take_waited(w->engine->emulation, w->index);
    wait = wait < busy ? wait : busy;
    busy -= wait;
    fused = fused < busy ? fused : busy;
    w->times.ns[FR_SPENT_STEP] += fused;
    w->times.ns[spent_on(action)] += busy - fused;
    w->times.ns[waited_on(action)] += wait;
    add_stage_time(t, busy - fused, fused);
    if (wait > SHORT_WAIT_NS) {
        fr_event waiting = *event;
        waiting.is_wait = true;
        waiting.end_ns = event->start_ns + wait;
        event->start_ns = waiting.end_ns;
        fr__push_event(w, &waiting);
    }
    fr__push_event(w, event);
}

/* --- the walk ------------------------------------------------------------------------------- */

static fr_status do_one(fr__worker *w, const fr_instr *i, int64_t base)
{
    fr_engine *e = w->engine;
    int n_micro = e->desc.n_micro;
    bool per_batch = fr_is_of_batch(i->action);
    int first = e->eval_schedule->worker_of[i->stage];
    task t = {.instr = i, .part = fr__part_at(e, i->stage, w->index - first)};
    int64_t in_call = base + (per_batch ? i->micro : i->micro / n_micro);
    if (in_call >= e->n) return FR_OK;
    t.batch = e->first + in_call;
    t.micro = per_batch ? -1 : i->micro % n_micro;
    t.in_segment = i->micro;
    atomic_store(&w->doing_batch, t.batch);
    fr_event event = {.action = i->action,
                      .stage = i->stage,
                      .peer = i->peer,
                      .batch = t.batch,
                      .micro = t.micro,
                      .start_ns = fr__worker_now(w)};
    w->wait_ns = 0;
    if (fr__is_emulated(e)) (void)fr__emulation_take_waited(e->emulation, w->index);
    if (e->fault.kind != FR_FAULT_NONE) FR_TRY(fr__fault_now(w, i, t.batch));
    FR_TRY(fr__record_open(w, t.batch, &t.is_dead));
    FR_TRY(execute(w, &t, &event));
    event.end_ns = fr__worker_now(w);
    note(w, &t, &event);
    atomic_fetch_add(&w->n_beats, 1);
    return FR_OK;
}

static fr_status recompute_before(fr__worker *w, const fr_instr_list *list, int i, int64_t base)
{
    fr_engine *e = w->engine;
    fr_instr again;
    if (e->mode != FR_MODE_TRAIN || !fr_schedule_recompute(list, i, &again)) return FR_OK;
    int first = e->eval_schedule->worker_of[again.stage];
    if (!fr__exec_recomputes(fr__part_at(e, again.stage, w->index - first)->exec)) return FR_OK;
    return do_one(w, &again, base);
}

static fr_status walk(fr__worker *w)
{
    fr_engine *e = w->engine;
    const fr_schedule *s = fr__schedule(e);
    const fr_instr_list *list = &s->lists[w->index];
    for (int64_t base = 0; base < e->n && fr__segment_enter(w, base); base += s->n_batches) {
        for (int i = 0; i < list->n; i++) {
            atomic_store(&w->doing_at, i);
            FR_TRY(recompute_before(w, list, i, base));
            FR_TRY(do_one(w, &list->at[i], base));
        }
    }
    atomic_store(&w->doing_at, -1);
    return FR_OK;
}

fr_status fr__worker_walk(fr__worker *w, void *arg)
{
    (void)arg;
    fr_engine *e = w->engine;
    w->opened = 0;
    w->summed = -1;
    w->n_late = 0;
    for (int i = 0; i < w->n_parts; i++) w->parts[i]->borrowed = w->parts[i]->lent = -1;
    uint64_t start = fr__worker_now(w);
    fr_ctx_clear(NULL);
    fr__emulation_enter(e->emulation);
    fr_status status = fr__replicas_begin(w);
    if (status == FR_OK) status = walk(w);
    if (status == FR_OK) status = fr__update_close(w);
    if (e->mode == FR_MODE_TRAIN) w->times.wall_ns += fr__worker_now(w) - start;
    if (status != FR_OK) fr__give_up(e, w->index);
    return status;
}

/* --- the thread ----------------------------------------------------------------------------- */

void fr__job_start(fr__worker *w, fr__job job)
{
    w->job = job;
    w->job_arg = NULL;
    w->job_status = FR_OK;
    w->engine->n_running++;
    pthread_cond_signal(&w->wakes);
}

/* With the lock held. */
static void wait_for_jobs(fr_engine *e)
{
    while (e->n_running > 0) pthread_cond_wait(&e->caller_wakes, &e->lock);
}

fr_status fr__jobs_run(fr_engine *e, fr__job job, bool one_by_one)
{
    fr_status status = FR_OK;
    fr__worker *mine = &e->workers[e->first_worker];
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_local && status == FR_OK; i++) {
        fr__job_start(&mine[i], job);
        if (!one_by_one) continue;
        wait_for_jobs(e);
        status = mine[i].job_status;
    }
    wait_for_jobs(e);
    for (int i = 0; i < e->n_local && status == FR_OK; i++) status = mine[i].job_status;
    pthread_mutex_unlock(&e->lock);
    return status;
}

void *fr__worker_main(void *worker)
{
    fr__worker *w = worker;
    fr_engine *e = w->engine;
    char name[16];
    snprintf(name, sizeof name, "worker %d", w->index);
    fr__thread_name(name);
    pthread_mutex_lock(&e->lock);
    while (!e->must_quit) {
        if (!w->job) {
            pthread_cond_wait(&w->wakes, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        fr_status status = w->job(w, w->job_arg);
        pthread_mutex_lock(&e->lock);
        w->job_status = status;
        w->job = NULL;
        e->n_running--;
        pthread_cond_broadcast(&e->caller_wakes);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}
