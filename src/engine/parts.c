/* parts.c -- the stages of this process on their workers: executors made, measured, filled; their
 * replicas, and the traffic and waits of the sums between these. One job per worker each: devices
 * and programs belong to the worker's thread. */
#include "engine/engine.h"
#include "exec/sync.h"

#include <stdio.h>
#include <string.h>

/* --- replicas ------------------------------------------------------------------------------- */

static fr_status fail_name(fr_engine *e)
{
    char names[128] = "";
    for (const fr_sync *const *s = fr_sync_list(); *s; s++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "", (*s)->name);
    }
    return fr_fail(e->ctx, FR_INVALID, "unknown parallel.sync '%s'; there are: %s",
                   e->desc.sync.name, names);
}

fr_status fr__replicas_plan(fr_engine *e)
{
    const fr_sync_options *o = &e->desc.sync;
    const fr__sync_rule *rule = fr__sync_find(o->name);
    if (!rule) return fail_name(e);
    const char *wrong = fr__sync_check(rule, o);
    if (wrong) return fr_fail(e->ctx, FR_INVALID, "sync %s: %s", rule->about.name, wrong);
    bool is_loose = e->has_replicas && !e->plan->sums_replicas;
    e->sync_slack = is_loose ? rule->slack(o) : 0;
    return FR_OK;
}

/* --- hooks of the executor ----------------------------------------------------------------------
 */

void fr__wait_begin(fr__worker *w)
{
    w->wait_from_ns = fr__now_ns();
    atomic_store(&w->is_waiting, 1);
}

void fr__wait_end(fr__worker *w)
{
    atomic_store(&w->is_waiting, 0);
    w->wait_ns += fr__now_ns() - w->wait_from_ns;
}

static void waits(void *part, bool begins)
{
    fr__worker *w = ((fr__part *)part)->worker;
    if (begins)
        fr__wait_begin(w);
    else
        fr__wait_end(w);
}

static void posted(void *part, fr__sum_kind kind, int k, double share, size_t bytes, bool is_alive)
{
    fr__part *p = part;
    const fr_engine *e = p->engine;
    int worker = p->worker->index;
    (void)is_alive;
    p->worker->traffic.sums += bytes;
    if (kind == FR__SUM_GRADS)
        p->posted_ns[k] =
            fr__is_emulated(e) ? fr__emulation_post_ns(e->emulation, worker, share) : fr__now_ns();
}

static void taken(void *part, fr__sum_kind kind, int k, bool is_alive)
{
    fr__part *p = part;
    fr__worker *w = p->worker;
    if (kind != FR__SUM_GRADS || !is_alive) return;
    fr_event event = {.action = FR_DO_REDUCE,
                      .is_beside = true,
                      .stage = p->stage,
                      .peer = -1,
                      .batch = atomic_load(&w->doing_batch),
                      .micro = k,
                      .version = fr__exec_version(p->exec),
                      .start_ns = p->posted_ns[k],
                      .end_ns = fr__worker_now(w)};
    fr__push_event(w, &event);
}

static void stepped(void *part, double share)
{
    fr__part *p = part;
    if (fr__is_emulated(p->engine))
        fr__emulation_advance(p->engine->emulation, p->worker->index,
                              share * fr__emulation_seconds(p->engine->emulation, p->worker->index,
                                                            p->stage, FR_DO_STEP));
}

fr__exec_hooks fr__part_hooks(fr__part *p)
{
    return (fr__exec_hooks){
        .user = p, .waits = waits, .posted = posted, .taken = taken, .stepped = stepped};
}

fr_status fr__replicas_open(fr_engine *e)
{
    for (int i = 0; i < e->n_parts; i++) {
        fr__part *p = &e->parts[i];
        if (!p->worker->is_local) continue;
        p->posted_ns = FR_ARENA_ARRAY(&e->arena, uint64_t, fr__exec_n_buckets(p->exec) + 1);
        if (!p->posted_ns) return fr__no_memory(e->ctx, 0, "replicas");
    }
    return FR_OK;
}

/* --- a call ------------------------------------------------------------------------------------
 */

fr_status fr__replicas_begin(fr__worker *w)
{
    for (int i = 0; i < w->n_parts && w->engine->mode == FR_MODE_TRAIN; i++)
        FR_TRY(fr__exec_begin_sync(w->parts[i]->exec));
    return FR_OK;
}

fr_status fr__replicas_stepped(fr__part *p, int64_t batch)
{
    bool all_alive;
    FR_TRY(fr__exec_after_step(p->exec, batch, &all_alive));
    if (!all_alive) fr__lower_limit(p->engine, batch + 1);
    return FR_OK;
}

/* --- executors ------------------------------------------------------------------------------ */

static fr__slot_plan slots_of(const fr_schedule *s, const fr__part *p)
{
    if (!s) return (fr__slot_plan){0};
    int n = s->n_batches * s->n_micro;
    return (fr__slot_plan){.n_slots = s->n_slots[p->stage],
                           .n_micro = n,
                           .slot_of = s->slot_of + (size_t)p->stage * (size_t)n,
                           .list = &s->lists[p->worker->index]};
}

static fr__exec_desc describe(fr__part *p)
{
    fr_engine *e = p->engine;
    const fr_engine_desc *d = &e->desc;
    fr__exec_desc x = {.arena = &e->arena,
                       .graph = d->graph,
                       .bounds = e->stages[p->stage],
                       .stage = p->stage,
                       .worker = p->worker->index,
                       .replica = p->replica,
                       .n_replicas = p->n_replicas,
                       .replicas = fr__replicas(e, p->stage),
                       .device = p->worker->device,
                       .transport = e->transport,
                       .group = e->group,
                       .hooks = fr__part_hooks(p),
                       .micro_batch = d->micro_batch,
                       .n_micro = p->n_micro,
                       .logits_node = d->logits_node,
                       .seed = d->seed,
                       .policy = d->policy,
                       .optimizer = d->optimizer,
                       .options = d->options,
                       .lr = d->lr,
                       .groups = d->groups,
                       .n_samples = d->n_samples,
                       .exact_sum = d->exact_sum,
                       .sync = d->sync};
    for (int mode = 0; mode < FR_N_MODES; mode++) x.slots[mode] = slots_of(e->schedule[mode], p);
    if (!e->plan) return x;
    x.context = e->plan->context[p->stage];
    x.n_weight_blocks = e->plan->n_weight_blocks[p->stage];
    x.is_flush = d->schedule->is_flush;
    x.is_split = d->schedule->is_split;
    x.recompute = d->recompute;
    x.update_in_backward = e->plan->update_in_backward[p->stage];
    x.sums_replicas = e->plan->sums_replicas;
    return x;
}

static fr_status create(fr__part *p)
{
    fr__exec_desc d = describe(p);
    fr_status status = fr__exec_create(p->engine->ctx, &d, &p->exec);
    p->engine->execs[p->index] = p->exec;
    return status;
}

static fr_status create_local(fr__worker *w, void *arg)
{
    (void)arg;
    const fr_engine *e = w->engine;
    fr_exec_cores cores =
        fr_exec_share_cores(e->desc.team, e->n_local, e->desc.n_threads, e->desc.pin);
    int nth = w->index - e->first_worker;
    int first_cpu = fr_exec_first_cpu(&cores, e->n_local, nth);
    fr_device_desc device = {.index = fr_exec_device(e->desc.team, e->n_local, nth,
                                                     fr_backend_n_devices(e->desc.backend)),
                             .n_threads = cores.n_threads,
                             .pin = first_cpu >= 0,
                             .first_cpu = first_cpu};
    FR_TRY(fr__exec_device_open(e->ctx, e->desc.backend, &device, &w->device));
    for (int i = 0; i < w->n_parts; i++) {
        FR_TRY(create(w->parts[i]));
        w->engine->reads_data |= fr__exec_reads_data(w->parts[i]->exec);
    }
    return FR_OK;
}

fr_status fr__parts_create(fr_engine *e)
{
    for (int i = 0; i < e->n_parts; i++)
        if (!e->parts[i].worker->is_local) FR_TRY(create(&e->parts[i]));
    return fr__jobs_run(e, create_local, true);
}

fr_status fr__parts_measure(fr_engine *e)
{
    for (int i = 0; i < e->n_workers; i++) {
        fr__worker *w = &e->workers[i];
        fr_memory_use *use = &w->predicted;
        if (!w->is_local) continue;
        for (int k = 0; k < w->n_parts; k++) FR_TRY(fr__exec_measure(w->parts[k]->exec, use));
        use->workspace = fr__exec_device_workspace_bytes(w->device);
        use->io += e->tie_room[i];
        use->total = use->weights + use->grads + use->optimizer + use->buffers + use->slots +
                     use->workspace + use->cache + use->io;
    }
    return FR_OK;
}

static fr_status allocate(fr__worker *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < w->n_parts; i++) FR_TRY(fr__exec_allocate(w->parts[i]->exec));
    return fr__exec_device_take_workspace(w->device);
}

/* Every process opens the sums of all stages, even those without a replica here. */
static fr_status open_sums(fr_engine *e, fr_status (*open)(fr__exec *const *replicas))
{
    for (int k = 0; k < e->n_stages; k++) FR_TRY(open(fr__replicas(e, k)));
    return FR_OK;
}

fr_status fr__parts_allocate(fr_engine *e)
{
    FR_TRY(fr__jobs_run(e, allocate, false));
    for (int i = 0; i < e->n_parts; i++)
        if (e->parts[i].worker->is_local) FR_TRY(fr__exec_open(e->execs[i]));
    return FR_OK;
}

fr_status fr__parts_open_sums(fr_engine *e)
{
    FR_TRY(open_sums(e, fr__exec_open_reduction));
    FR_TRY(open_sums(e, fr__exec_open_statistics));
    return open_sums(e, fr__exec_open_sync);
}

void fr__parts_release(fr__worker *w)
{
    for (int i = 0; i < w->n_parts; i++) fr__exec_free(w->parts[i]->exec);
    fr__exec_device_close(w->device);
    w->device = NULL;
}

/* --- after a call ----------------------------------------------------------------------------- */

/* Undo the effects of forwards beyond the limit on the executors. */
fr_status fr__parts_undo(fr_engine *e)
{
    int64_t limit = atomic_load(&e->limit);
    for (int i = 0; i < e->n_parts; i++)
        if (e->parts[i].worker->is_local) FR_TRY(fr__exec_undo(e->execs[i], limit));
    return FR_OK;
}

static fr_status drain(fr__worker *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < w->n_parts; i++) FR_TRY(fr__exec_mean_statistics(w->parts[i]->exec));
    for (int i = 0; i < w->n_parts; i++)
        FR_TRY(fr__exec_drain_sync(w->parts[i]->exec, atomic_load(&w->engine->limit)));
    return fr_device_sync(fr__exec_device_of(w->device)); /* memory of others has been read */
}

fr_status fr__parts_drain(fr_engine *e)
{
    if (!e->has_replicas) return FR_OK;
    fr_status status = fr__jobs_run(e, drain, false);
    if (status != FR_OK) e->is_broken = true;
    return status;
}
