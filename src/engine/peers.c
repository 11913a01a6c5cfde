/* peers.c -- replicas that step each for itself: a rule of sync.h in the engine.
 *
 * Such a replica makes its updates without the others, along the gradient of its own micro-batches
 * times the number of replicas. What it then owes the others is the rule's business, after each of
 * its steps and at the end of a call. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

static bool is_loose(const fr_engine *e) { return e->has_replicas && !e->sums_grads; }

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

fr_status fr__peers_plan(fr_engine *e)
{
    const fr_sync_options *o = &e->desc.sync;
    const fr__sync_rule *rule = fr__sync_find(o->name);
    if (!rule) return fail_name(e);
    const char *wrong = fr__sync_check(rule, o);
    if (wrong) return fr_fail(e->ctx, FR_INVALID, "sync %s: %s", rule->about.name, wrong);
    e->sync_rule = rule;
    e->sums_grads = e->plan->sums_replicas;
    return FR_OK;
}

double fr__peers_scale(const fr_part *p)
{
    return p->engine->sums_grads ? 1 : (double)p->n_replicas;
}

int fr__peers_slack(const fr_engine *e)
{
    return e->desc.schedule && is_loose(e) ? e->sync_rule->slack(&e->desc.sync) : 0;
}

/* Known from the graph, wherever the stage is. */
static bool has_weights(const fr_engine *e, int stage)
{
    for (int i = 0; i < fr_graph_n_params(e->desc.graph); i++)
        if (e->home_of[i] == stage && !fr_graph_param(e->desc.graph, i)->is_buffer) return true;
    return false;
}

static fr_status describe(fr_part *p, fr__syncing *s)
{
    fr_engine *e = p->engine;
    int *members = FR_ARENA_ARRAY(&e->arena, int, p->n_replicas);
    if (!members) return fr__no_memory(e->ctx, 0, "replicas");
    for (int q = 0; q < p->n_replicas; q++) members[q] = fr__part(e, p->stage, q)->worker->index;
    *s = (fr__syncing){.rule = e->sync_rule,
                       .options = e->desc.sync,
                       .transport = e->transport,
                       .group = e->group,
                       .nth = p->replica,
                       .n_members = p->n_replicas,
                       .members = members,
                       .n = p->n_weights,
                       .n_state = e->desc.optimizer->n_state,
                       .device = p->worker->dev};
    return FR_OK;
}

fr_status fr__peers_measure(fr_part *p)
{
    fr_engine *e = p->engine;
    if (!is_loose(e) || p->n_replicas == 1 || !has_weights(e, p->stage)) return FR_OK;
    FR_TRY(describe(p, &p->sync));
    if (!fr__sync_plan(&p->sync, &e->arena)) return fr__no_memory(e->ctx, 0, "replicas");
    return FR_OK;
}

/* --- emulation ---------------------------------------------------------------------------------
 */

static void on_post(void *part, int k, bool is_alive)
{
    fr_part *p = part;
    if (p->engine->paced) fr__pace_post(p->worker, p->sync_meetings[k], p->worker->clock, is_alive);
}

static void on_take(void *part, int k)
{
    fr_part *p = part;
    if (p->engine->paced) fr__pace_take(p->worker, p->sync_meetings[k]);
}

/* For all replicas of a stage. */
static fr_status add_meetings(fr_part *first)
{
    fr_engine *e = first->engine;
    const fr__syncing *s = &first->sync;
    first->sync_meetings = FR_ARENA_ARRAY(&e->arena, fr_meeting *, s->n_sums);
    if (!first->sync_meetings) return fr__no_memory(e->ctx, 0, "emulation");
    for (int k = 0; k < s->n_sums; k++)
        FR_TRY(fr__pace_meeting(e, s->n_members, s->members, s->n * sizeof(float),
                                &first->sync_meetings[k]));
    for (int q = 0; q < first->n_replicas; q++) {
        first[q].sync_meetings = first->sync_meetings;
        first[q].sync.on_post = on_post;
        first[q].sync.on_take = on_take;
        first[q].sync.user = &first[q];
    }
    return FR_OK;
}

/* --- sums --------------------------------------------------------------------------------------
 */

static void equip(fr_part *p)
{
    fr__syncing *s = &p->sync;
    s->store = p->store;
    memcpy(s->state, p->state, sizeof s->state);
    s->is_waiting = &p->worker->is_waiting;
    s->wait_ns = &p->worker->wait_ns;
    s->sent_bytes = &p->worker->traffic.sums;
}

fr_status fr__peers_open(fr_engine *e)
{
    for (int k = 0; k < e->n_stages && e->desc.schedule && is_loose(e); k++) {
        fr_part *first = fr__part(e, k, 0);
        fr__syncing elsewhere, *any = NULL;
        fr__syncing **of = FR_ARENA_ARRAY(&e->arena, fr__syncing *, first->n_replicas);
        if (first->n_replicas == 1 || !has_weights(e, k)) continue;
        if (!of) return fr__no_memory(e->ctx, 0, "replicas");
        for (int q = 0; q < first->n_replicas; q++) {
            if (!first[q].worker->is_local) continue;
            any = of[q] = &first[q].sync;
            equip(&first[q]);
        }
        if (!any) FR_TRY(describe(first, any = &elsewhere));
        if (any == &elsewhere && !fr__sync_plan(any, &e->arena))
            return fr__no_memory(e->ctx, 0, "replicas");
        FR_TRY(fr__sync_open(e->ctx, &e->arena, of, any));
        if (e->pace) FR_TRY(add_meetings(first));
    }
    return FR_OK;
}

fr_status fr__peers_begin(fr_worker *w)
{
    for (int i = 0; i < w->n_parts && w->engine->mode == FR_MODE_TRAIN; i++)
        FR_TRY(fr__sync_begin(&w->parts[i]->sync));
    return FR_OK;
}

fr_status fr__peers_stepped(fr_part *p, int64_t batch)
{
    bool has_stepped = fr_store_version(p->store) == batch + 1, all_alive;
    FR_TRY(fr__sync_stepped(&p->sync, batch, has_stepped, &all_alive));
    if (!all_alive) fr__lower_limit(p->engine, batch + 1);
    return FR_OK;
}

fr_status fr__peers_drain(fr_part *p)
{
    return fr__sync_drain(&p->sync, atomic_load(&p->engine->limit));
}
