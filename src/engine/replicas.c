/* replicas.c -- replicas of a stage in the engine: the rule by which they agree, and what their
 * sums cost in traffic, waits and emulated time. The sums are the executor's. */
#include "engine/engine.h"
#include "exec/sync.h"

#include <stdio.h>
#include <string.h>

static fr_status fail_name(fr_engine *e)
{
    char names[128] = "";
    for (const fr_sync *const *s = fr_sync_list(); *s; s++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "", (*s)->name);
    }
    return fr_fail(e->ctx, FR_INVALID, "no rule of replicas is called %s; there are %s",
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

/* A bucket is final in the course of the emulated backward, not when it was computed. */
static double emulated_post(const fr__part *p, double share)
{
    const fr_timing *timing = p->engine->desc.timing;
    double span = p->worker->span > 0 ? p->worker->span + timing->overhead_s : 0;
    return p->worker->clock + span * fr_curve_time(&timing->cost[p->stage].final, share);
}

static void posted(void *part, fr__sum_kind kind, int k, double share, size_t bytes, bool is_alive)
{
    fr__part *p = part;
    const fr__emulation *emulated = p->engine->emulated;
    p->worker->traffic.sums += bytes;
    if (kind == FR__SUM_SYNC) {
        if (emulated)
            fr__emulation_post(p->worker, p->sync_reductions[k], p->worker->clock, is_alive);
        return;
    }
    double at = emulated ? emulated_post(p, share) : 0;
    p->posted_ns[k] = emulated ? fr__emulation_ns(emulated, at) : fr__now_ns();
    if (emulated) fr__emulation_post(p->worker, p->reductions[k], at, is_alive);
}

static void taken(void *part, fr__sum_kind kind, int k, bool is_alive)
{
    fr__part *p = part;
    fr__worker *w = p->worker;
    bool is_grads = kind == FR__SUM_GRADS;
    if (p->engine->emulated)
        fr__emulation_take(w, (is_grads ? p->reductions : p->sync_reductions)[k]);
    if (!is_grads || !is_alive) return;
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
    if (p->engine->emulated)
        fr__emulation_advance(p->worker, fr__emulation_seconds(p, FR_DO_STEP) * share);
}

fr__exec_hooks fr__part_hooks(fr__part *p)
{
    return (fr__exec_hooks){
        .user = p, .waits = waits, .posted = posted, .taken = taken, .stepped = stepped};
}

/* --- emulation ---------------------------------------------------------------------------------
 */

static fr_status add_meetings(fr_engine *e, int stage, int n, const int *members, size_t *bytes,
                              bool in_order, fr__emulated_reduction ***out)
{
    fr__emulated_reduction **m = *out = FR_ARENA_ARRAY(&e->arena, fr__emulated_reduction *, n + 1);
    if (!m) return fr__no_memory(e->ctx, 0, "emulation");
    for (int i = 0; i < n; i++) {
        FR_TRY(fr__emulation_add_reduction(e, fr_engine_n_replicas(e, stage), members, bytes[i],
                                           &m[i]));
        if (in_order && i > 0) fr__emulation_follow(m[i - 1], m[i]);
    }
    return FR_OK;
}

/* The replicas of a stage meet for each sum. */
static fr_status emulate_sums(fr_engine *e, int stage)
{
    fr__part *first = fr__part_at(e, stage, 0);
    int n_buckets = fr__exec_n_buckets(first->exec), n_sums = fr__exec_n_sums(first->exec);
    int n = n_buckets > n_sums ? n_buckets : n_sums;
    int *members = FR_ARENA_ARRAY(&e->arena, int, first->n_replicas);
    size_t *bytes = FR_ARENA_ARRAY(&e->arena, size_t, n + 1);
    if (!members || !bytes) return fr__no_memory(e->ctx, 0, "emulation");
    for (int q = 0; q < first->n_replicas; q++) members[q] = first[q].worker->index;
    for (int i = 0; i < n_buckets; i++) bytes[i] = fr__exec_bucket_bytes(first->exec, i);
    FR_TRY(add_meetings(e, stage, n_buckets, members, bytes, true, &first->reductions));
    for (int i = 0; i < n_sums; i++)
        bytes[i] = fr__exec_sizes_of(first->exec).n_weights * sizeof(float);
    FR_TRY(add_meetings(e, stage, n_sums, members, bytes, false, &first->sync_reductions));
    for (int q = 1; q < first->n_replicas; q++) {
        first[q].reductions = first->reductions;
        first[q].sync_reductions = first->sync_reductions;
    }
    return FR_OK;
}

fr_status fr__replicas_open(fr_engine *e)
{
    for (int i = 0; i < e->n_parts; i++) {
        fr__part *p = &e->parts[i];
        if (!p->worker->is_local) continue;
        p->posted_ns = FR_ARENA_ARRAY(&e->arena, uint64_t, fr__exec_n_buckets(p->exec) + 1);
        if (!p->posted_ns) return fr__no_memory(e->ctx, 0, "replicas");
    }
    for (int k = 0; k < e->n_stages && e->emulation; k++) FR_TRY(emulate_sums(e, k));
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
