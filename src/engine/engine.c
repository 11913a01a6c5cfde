/* engine.c -- creates and frees an engine: stages and schedules, start the workers, then create
 * everything in the order in which sizes are known: programs, channels and slots, memory, values.
 */
#include "engine/engine.h"

#include <string.h>

/* --- create --------------------------------------------------------------------------------- */

static fr_status check_stages(fr_ctx *ctx, const fr_engine_desc *d)
{
    int end = 0;
    for (int k = 0; k < d->n_stages && end >= 0; k++)
        end = d->stages && d->stages[k].first == end && d->stages[k].n_outputs > 0
                  ? d->stages[k].last
                  : -1;
    if (d->n_stages == 0 || end == fr_graph_n_nodes(d->graph)) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "engine: %d stages that are no cut of graph %s", d->n_stages,
                   fr_graph_name(d->graph));
}

static fr_status check_desc(fr_ctx *ctx, const fr_engine_desc *d)
{
    const fr_schedule *s = d->schedule;
    if (!d->graph || !d->backend) return fr_fail(ctx, FR_INVALID, "engine: no graph or no backend");
    if (fr_graph_find_loss(d->graph) < 0)
        return fr_fail(ctx, FR_INVALID, "graph %s does not end in a loss: nothing to train",
                       fr_graph_name(d->graph));
    if (d->micro_batch < 1 || (!s && d->n_micro < 1))
        return fr_fail(ctx, FR_INVALID, "engine: micro-batch of %d samples, %d micro-batches",
                       d->micro_batch, d->n_micro);
    FR_TRY(check_stages(ctx, d));
    if (!s) return FR_OK;
    int n_stages = d->n_stages ? d->n_stages : 1;
    if (!s->is_lowered || s->is_forward_only || s->n_stages != n_stages)
        return fr_fail(ctx, FR_INVALID,
                       "engine: schedule %s is for %d stages%s, the model is cut into %d", s->name,
                       s->n_stages, s->is_lowered ? "" : " and not lowered", n_stages);
    if (!d->optimizer) return fr_fail(ctx, FR_INVALID, "engine: no optimizer given");
    if (!(d->clip_norm >= 0)) return fr_fail(ctx, FR_INVALID, "clip_norm must be 0 or more");
    const char *wrong = d->optimizer->check(&d->options);
    if (wrong) return fr_fail(ctx, FR_INVALID, "optimizer %s: %s", d->optimizer->name, wrong);
    return FR_OK;
}

/* Recover the placement of stages that the schedule was made from. Workers that hold replicas of
 * the same stages count as one. */
static void logical_workers(const fr_schedule *s, int n_stages, int *worker_of, int *replicas)
{
    int n_workers = 0;
    for (int k = 0; k < n_stages; k++) {
        worker_of[k] = k;
        replicas[k] = s ? s->replicas[k] : 1;
    }
    /* In the order of their numbers. */
    for (int w = 0; s && w < s->n_workers; w++) {
        bool is_first = false;
        for (int k = 0; k < n_stages; k++)
            if (s->worker_of[k] == w) worker_of[k] = n_workers, is_first = true;
        n_workers += is_first;
    }
}

/* Links of an engine that only evaluates. */
static fr_status find_links(fr_engine *e, fr_schedule_desc *d)
{
    int n = e->n_stages, room = n * (n - 1) / 2 + 1, n_backward;
    fr_link *forward = FR_ARENA_ARRAY(&e->arena, fr_link, room);
    fr_link *backward = FR_ARENA_ARRAY(&e->arena, fr_link, room);
    if (!forward || !backward) return fr__no_memory(e->ctx, (size_t)room, "an engine");
    d->forward = forward;
    return fr_graph_links(e->desc.graph, n, e->stages, &d->n_forward, forward, &n_backward,
                          backward);
}

/* Evaluation uses the forward links of training. */
static fr_status make_eval_schedule(fr_engine *e)
{
    int n = e->n_stages;
    const fr_schedule *train = e->desc.schedule;
    int *worker_of = FR_ARENA_ARRAY(&e->arena, int, n);
    int *replicas = FR_ARENA_ARRAY(&e->arena, int, n);
    if (!worker_of || !replicas) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    logical_workers(train, n, worker_of, replicas);
    fr_schedule_desc d = {.n_stages = n,
                          .n_micro = e->desc.n_micro,
                          .n_batches = 1,
                          .worker_of = worker_of,
                          .replicas = replicas};
    if (train)
        d.n_forward = train->n_forward, d.forward = train->forward;
    else
        FR_TRY(find_links(e, &d));
    FR_TRY(fr_schedule_create(e->ctx, fr_generator_find("forward"), &d, &e->eval_schedule));
    e->schedule[FR_MODE_EVAL] = e->eval_schedule;
    return FR_OK;
}

static fr_status make_stages(fr_engine *e)
{
    const fr_engine_desc *d = &e->desc;
    e->n_stages = d->n_stages ? d->n_stages : 1;
    e->stages = FR_ARENA_ARRAY(&e->arena, fr_stage, e->n_stages);
    if (!e->stages) return fr__no_memory(e->ctx, (size_t)e->n_stages, "an engine");
    if (d->n_stages)
        memcpy(e->stages, d->stages, (size_t)e->n_stages * sizeof *e->stages);
    else
        FR_TRY(fr_graph_cut(d->graph, 0, NULL, e->stages));
    e->schedule[FR_MODE_TRAIN] = d->schedule;
    if (d->schedule) e->desc.n_micro = d->schedule->n_micro;
    FR_TRY(make_eval_schedule(e));
    e->n_workers = e->eval_schedule->n_workers;
    if (e->n_workers % e->n_ranks != 0)
        return fr_fail(e->ctx, FR_INVALID, "%d workers do not divide evenly among %d processes",
                       e->n_workers, e->n_ranks);
    e->n_local = e->n_workers / e->n_ranks;
    e->first_worker = e->rank * e->n_local;
    return FR_OK;
}

/* All refusals happen here, before anything is compiled, except that of an unknown parallel.sync
 * (parts.c). */
static fr_status make_plan(fr_engine *e)
{
    const fr_engine_desc *d = &e->desc;
    const fr_sync *sync = fr_sync_find(d->sync.name);
    const fr_exec_desc plan = {.schedule = d->schedule,
                               .policy = d->policy,
                               .policy_options = d->policy_options,
                               .graph = d->graph,
                               .stages = e->stages,
                               .lone_sync = sync && sync->steps_alone ? sync->name : NULL,
                               .clip_norm = d->clip_norm,
                               .clip_late = d->clip_late,
                               .want_norm = d->want_norm,
                               .keep_grads = d->keep_grads,
                               .exact_sum = d->exact_sum};
    return d->schedule ? fr_exec_plan_create(e->ctx, &plan, &e->plan, NULL) : FR_OK;
}

/* Stages on workers. */
static fr_status make_parts(fr_engine *e)
{
    const fr_schedule *s = e->eval_schedule;
    e->first_part = FR_ARENA_ARRAY(&e->arena, int, e->n_stages + 1);
    if (!e->first_part) return fr__no_memory(e->ctx, 0, "an engine");
    for (int k = 0; k < e->n_stages; k++) {
        e->first_part[k] = e->n_parts;
        e->n_parts += s->replicas[k];
        e->has_replicas |= s->replicas[k] > 1;
    }
    e->parts = FR_ARENA_ARRAY(&e->arena, fr__part, e->n_parts);
    e->execs = FR_ARENA_ARRAY(&e->arena, fr__exec *, e->n_parts);
    if (!e->parts || !e->execs)
        return fr__no_memory(e->ctx, sizeof(fr__part) * (size_t)e->n_parts, "an engine");
    for (int k = 0; k < e->n_stages; k++) {
        for (int q = 0; q < s->replicas[k]; q++) {
            fr__worker *w = &e->workers[s->worker_of[k] + q];
            *fr__part_at(e, k, q) = (fr__part){.engine = e,
                                               .worker = w,
                                               .index = e->first_part[k] + q,
                                               .stage = k,
                                               .replica = q,
                                               .n_replicas = s->replicas[k],
                                               .n_micro = e->desc.n_micro / s->replicas[k],
                                               .cold_batch = -1};
            w->parts[w->n_parts++] = fr__part_at(e, k, q);
            e->n_local_parts += w->is_local;
        }
    }
    return FR_OK;
}

static fr_status start_workers(fr_engine *e)
{
    for (int i = 0; i < e->n_local; i++) {
        fr__worker *w = &e->workers[e->first_worker + i];
        int code = pthread_create(&w->thread, NULL, fr__worker_main, w);
        if (code != 0)
            return fr_fail(e->ctx, FR_NO_MEMORY, "worker %d: cannot start a thread: %s", w->index,
                           strerror(code));
        w->has_thread = true;
    }
    return FR_OK;
}

static fr_status make_workers(fr_engine *e)
{
    e->workers = FR_ARENA_ARRAY(&e->arena, fr__worker, e->n_workers);
    if (!e->workers)
        return fr__no_memory(e->ctx, sizeof(fr__worker) * (size_t)e->n_workers, "an engine");
    for (int i = 0; i < e->n_workers; i++) {
        pthread_cond_init(&e->workers[i].wakes, NULL);
        pthread_cond_init(&e->workers[i].fed, NULL);
    }
    for (int i = 0; i < e->n_workers; i++) {
        fr__worker *w = &e->workers[i];
        w->engine = e;
        w->index = i;
        w->is_local = i >= e->first_worker && i < e->first_worker + e->n_local;
        w->doing_at = -1;
        w->parts = FR_ARENA_ARRAY(&e->arena, fr__part *, e->n_stages);
        w->events = FR_ARENA_ARRAY(&e->arena, fr_event, e->desc.n_events + 1);
        if (!w->parts || !w->events)
            return fr__no_memory(e->ctx, sizeof(fr_event) * (size_t)e->desc.n_events, "a trace");
    }
    return FR_OK;
}

/* Sizes of the blocks of stages in other processes, from their programs. */
static fr_status share_sizes(fr_engine *e)
{
    fr_team *team = e->desc.team;
    fr__exec_sizes *all = FR_ARENA_ARRAY(&e->arena, fr__exec_sizes, e->n_parts);
    if (e->n_ranks == 1) return FR_OK;
    if (!all) return fr__no_memory(e->ctx, sizeof *all * (size_t)e->n_parts, "stages");
    for (int i = 0; i < e->n_parts; i++) {
        int rank = fr_engine_rank_of(e, e->parts[i].worker->index);
        if (rank == e->rank) all[i] = fr__exec_sizes_of(e->execs[i]);
        if (rank > 0 && rank == e->rank) FR_TRY(fr_team_send(team, 0, &all[i], sizeof *all));
        if (rank > 0 && e->rank == 0) FR_TRY(fr_team_recv(team, rank, &all[i], sizeof *all));
    }
    FR_TRY(fr_team_share(team, all, sizeof *all * (size_t)e->n_parts));
    for (int i = 0; i < e->n_parts; i++) fr__exec_set_sizes(e->execs[i], all[i]);
    return FR_OK;
}

/* At this point all sizes are known and nothing is allocated. */
static fr_status measure(fr_engine *e)
{
    if (!e->transport)
        return fr_fail(e->ctx, FR_UNSUPPORTED, "this build has no transport for several processes");
    FR_TRY(make_stages(e));
    FR_TRY(make_plan(e));
    FR_TRY(make_workers(e));
    FR_TRY(make_parts(e));
    FR_TRY(start_workers(e));
    FR_TRY(e->transport->open(e->ctx, e->desc.team, e->n_workers, &e->inner_group));
    e->group = e->inner_group;
    FR_TRY(fr_team_agree(e->desc.team, fr__parts_create(e)));
    FR_TRY(share_sizes(e));
    FR_TRY(fr__links_plan(e));
    FR_TRY(fr__params_find(e));
    FR_TRY(fr__update_plan(e));
    FR_TRY(fr__parts_measure(e));
    fr__records_plan(e);
    return fr__snapshot_plan(e);
}

/* Decorate the transport, also for the executors. */
static fr_status emulate(fr_engine *e)
{
    fr__emulation_desc d = {.timing = e->desc.timing,
                            .scale = e->desc.scale,
                            .n_workers = e->n_workers,
                            .n_stages = e->n_stages,
                            .transport = e->transport,
                            .clock = &e->clock};
    FR_TRY(fr__emulation_create(e->ctx, &d, &e->emulation));
    FR_TRY(fr__emulation_wrap(e->emulation, e->inner_group, &e->group));
    e->transport = &fr__emulated_transport;
    for (int i = 0; i < e->n_parts; i++)
        fr__exec_set_transport(e->execs[i], e->transport, e->group);
    return FR_OK;
}

static fr_status build(fr_engine *e)
{
    if (e->desc.timing) FR_TRY(emulate(e));
    FR_TRY(fr__parts_allocate(e));
    FR_TRY(fr__links_open(e));
    FR_TRY(fr__parts_open_sums(e));
    FR_TRY(fr__replicas_open(e));
    FR_TRY(fr__update_open(e));
    FR_TRY(fr__params_init(e));
    if (e->desc.want_snapshots) FR_TRY(fr__snapshot_take(e));
    return fr__records_create(e);
}

/* An empty engine. */
static fr_status make_empty(fr_ctx *ctx, const fr_engine_desc *desc, fr_engine **out)
{
    *out = NULL;
    FR_TRY(check_desc(ctx, desc));
    fr_engine *e = *out = FR_NEW(fr_engine);
    if (!e) return fr__no_memory(ctx, sizeof *e, "an engine");
    e->ctx = ctx;
    e->desc = *desc;
    if (desc->fault) e->fault = *desc->fault;
    e->rank = fr_team_rank(desc->team);
    e->n_ranks = fr_team_size(desc->team);
    e->transport = e->inner_transport =
        desc->transport ? desc->transport : fr_transport_find(desc->team ? "mpi" : "threads");
    if (!e->desc.policy) e->desc.policy = fr_policy_find("live");
    if (!(e->desc.stall_s > 0)) e->desc.stall_s = 30;
    e->clock = e->watch = fr__machine_clock;
    e->failed_worker = -1;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->feed_lock, NULL);
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&e->caller_wakes, &steady);
    pthread_condattr_destroy(&steady);
    return FR_OK;
}

fr_status fr_engine_plan(fr_ctx *ctx, const fr_engine_desc *desc, fr_engine **out)
{
    FR_TRY(make_empty(ctx, desc, out));
    fr_status status = fr_team_agree(desc->team, measure(*out));
    if (status == FR_OK) return FR_OK;
    fr_engine_free(*out);
    *out = NULL;
    return status;
}

fr_status fr_engine_take(fr_engine *e, const fr_timing *timing, double scale)
{
    e->desc.timing = timing;
    e->desc.scale = scale == 0 ? 1 : scale;
    FR_TRY(fr_team_agree(e->desc.team, build(e)));
    return fr__coordinator_create(e);
}

fr_status fr_engine_create(fr_ctx *ctx, const fr_engine_desc *desc, fr_engine **out)
{
    FR_TRY(fr_engine_plan(ctx, desc, out));
    fr_status status = fr_engine_take(*out, desc->timing, desc->scale);
    if (status == FR_OK) return FR_OK;
    fr_engine_free(*out);
    *out = NULL;
    return status;
}

fr_status fr_engine_forecast(fr_ctx *ctx, const fr_engine_desc *desc, fr_memory_use *out)
{
    fr_engine *e;
    fr_engine_desc d = *desc;
    d.n_events = 0;
    d.pin = false;
    if (d.team) return fr_fail(ctx, FR_UNSUPPORTED, "a memory forecast needs a single process");
    FR_TRY(fr_engine_plan(ctx, &d, &e));
    for (int i = 0; i < e->n_workers; i++) out[i] = e->workers[i].predicted;
    fr_engine_free(e);
    return FR_OK;
}

/* A device may still read memory of another one: synchronise all before closing any. */
static fr_status rest(fr__worker *w, void *arg)
{
    (void)arg;
    return w->device ? fr_device_sync(fr__exec_device_of(w->device)) : FR_OK;
}

/* Devices are closed on the threads that opened them. */
static fr_status close_worker(fr__worker *w, void *arg)
{
    (void)arg;
    fr__parts_release(w);
    return FR_OK;
}

static void stop_threads(fr_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->must_quit = true;
    for (int i = 0; i < e->n_workers; i++) pthread_cond_signal(&e->workers[i].wakes);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_workers; i++)
        if (e->workers[i].has_thread) pthread_join(e->workers[i].thread, NULL);
}

static bool has_lost_worker(const fr_engine *e)
{
    for (int i = 0; e->workers && i < e->n_workers; i++)
        if (e->workers[i].is_lost) return true;
    return false;
}

void fr_engine_free(fr_engine *e)
{
    if (!e) return;
    /* A hanging thread may still use this memory: do not free it. */
    if (has_lost_worker(e)) return;
    if (e->workers) {
        bool all = true;
        for (int i = 0; i < e->n_local; i++) all &= e->workers[e->first_worker + i].has_thread;
        if (all) (void)fr__jobs_run(e, rest, false);
        if (all) (void)fr__jobs_run(e, close_worker, false);
        stop_threads(e);
    }
    fr__coordinator_free(e);
    fr__snapshot_free(e);
    if (e->inner_group) e->inner_transport->close(e->inner_group);
    fr__emulation_free(e->emulation);
    fr_schedule_free(e->eval_schedule);
    fr_exec_plan_free(e->plan);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->feed_lock);
    for (int i = 0; e->workers && i < e->n_workers; i++) {
        pthread_cond_destroy(&e->workers[i].wakes);
        pthread_cond_destroy(&e->workers[i].fed);
    }
    pthread_cond_destroy(&e->caller_wakes);
    fr__arena_fini(&e->arena);
    fr__free(e);
}

/* --- queries ----------------------------------------------------------------------------- */

int fr_engine_n_workers(const fr_engine *e) { return e->n_workers; }
int fr_engine_n_stages(const fr_engine *e) { return e->n_stages; }
const fr_stage *fr_engine_stage(const fr_engine *e, int stage) { return &e->stages[stage]; }
int fr_engine_worker_of(const fr_engine *e, int stage, int replica)
{
    return e->eval_schedule->worker_of[stage] + replica;
}
int fr_engine_n_replicas(const fr_engine *e, int stage)
{
    return e->eval_schedule->replicas[stage];
}
int fr_engine_rank_of(const fr_engine *e, int worker)
{
    return e->transport->rank_of(e->group, worker);
}
bool fr_engine_reads_data(const fr_engine *e) { return e->reads_data; }
int fr_engine_window(const fr_engine *e) { return e->window; }
const char *fr_engine_about(const fr_engine *e)
{
    return fr_device_about(fr__exec_device_of(e->workers[e->first_worker].device));
}

const fr_memory_use *fr_engine_predicted(const fr_engine *e, int worker)
{
    return &e->workers[worker].predicted;
}

/* Records of mini-batches and lists are small beside these. */
size_t fr_engine_host_bytes(const fr_engine *e)
{
    size_t bytes = fr_engine_snapshot_bytes(e) + (e->rank > 0 ? fr__params_largest(e) : 0) +
                   fr__tie_copies_bytes(e);
    for (int i = 0; i < e->n_workers; i++) bytes += fr__tie_scratch_bytes(&e->workers[i]);
    return bytes;
}

size_t fr_engine_peak_bytes(const fr_engine *e, int worker)
{
    const fr__worker *w = &e->workers[worker];
    size_t board = e->tie_board || e->n_tie_links ? e->tie_room[worker] : 0;
    if (!w->is_local) return w->peak_bytes;
    return fr_device_peak_bytes(fr__exec_device_of(w->device)) + board;
}

const fr_worker_times *fr_engine_times(const fr_engine *e, int worker)
{
    return &e->workers[worker].times;
}

const fr_stage_times *fr_engine_stage_times(const fr_engine *e, int stage)
{
    return &fr__part_at(e, stage, 0)->times;
}

fr_stage_times fr_engine_warm_times(const fr_engine *e, int stage)
{
    const fr__part *p = fr__part_at(e, stage, 0);
    fr_stage_times t = p->times;
    const fr_stage_times *cold = &p->cold;
    if (t.n_steps <= cold->n_steps) return t;
    t.forward_ns -= cold->forward_ns, t.back_input_ns -= cold->back_input_ns;
    t.back_weight_ns -= cold->back_weight_ns, t.step_ns -= cold->step_ns;
    t.fetch_forward_ns -= cold->fetch_forward_ns, t.fetch_backward_ns -= cold->fetch_backward_ns;
    t.n_micro -= cold->n_micro, t.n_steps -= cold->n_steps;
    return t;
}

const fr_prediction_error *fr_engine_prediction(const fr_engine *e, int stage)
{
    const fr__part *p = fr__part_at(e, stage, 0);
    if (!p->worker->is_local) return p->has_error ? &p->error : NULL;
    return fr__exec_prediction_error(p->exec);
}

const fr_event *fr_engine_events(const fr_engine *e, int worker, int *n)
{
    *n = e->workers[worker].n_events;
    return e->workers[worker].events;
}

uint64_t fr_engine_now(const fr_engine *e)
{
    uint64_t now = fr__clock_ns(&e->clock);
    return e->emulation ? fr__emulation_report_ns(e->emulation, now) : now;
}

fr_overrun fr_engine_overrun(const fr_engine *e) { return fr__emulation_overrun(e->emulation); }
