/* replicas.c -- replicas of a stage in the engine: their sync method, and the transfers and waits
 * of their sums. The executor computes the sums. */
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
