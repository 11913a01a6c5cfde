/* params.c -- reads and writes parameters, gradients, optimizer state and policy state as plain
 * floats, on whichever worker their stage is. A parameter tied across stages has a copy in each
 * stage and replica; all receive the same values. Called while no worker runs.
 *
 * With a team, rank 0 has the values; the other ranks make the same calls and transfer those of
 * their own stages. */
#include "engine/engine.h"

/* The stage of every parameter. */
fr_status fr__params_find(fr_engine *e)
{
    const fr_graph *g = e->desc.graph;
    int n = fr_graph_n_params(g);
    e->home_of = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->n_own = FR_ARENA_ARRAY(&e->arena, int, e->n_stages + 1);
    if (!e->home_of || !e->n_own) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++) {
        const fr_param *param = fr_graph_param(g, i);
        int home = e->home_of[i] = fr__maker_of(e, param->node);
        if (home < 0)
            return fr_fail(e->ctx, FR_INTERNAL, "parameter %s is in no stage", param->name);
        if (param->tied_to < 0 && !param->is_buffer && !param->is_frozen) e->n_own[home]++;
    }
    return FR_OK;
}

static fr_status check(fr_engine *e, int param, fr__value_kind kind, int which)
{
    static const char *const names[] = {"value", "gradient", "optimizer state", "memory"};
    int n = fr_graph_n_params(e->desc.graph);
    if (param < 0 || param >= n)
        return fr_fail(e->ctx, FR_INVALID, "parameter %d: the graph has 0..%d", param, n - 1);
    const fr_param *p = fr_graph_param(e->desc.graph, param);
    if (kind != FR__VALUE_PARAM && p->is_buffer)
        return fr_fail(e->ctx, FR_INVALID, "%s is not trained: it has no %s", p->name, names[kind]);
    if (kind != FR__VALUE_PARAM && !e->desc.schedule)
        return fr_fail(e->ctx, FR_INVALID, "an engine that only evaluates has no %s%s", names[kind],
                       kind == FR__VALUE_GRAD ? "s" : "");
    if (kind == FR__VALUE_GRAD && !e->desc.keep_grads)
        return fr_fail(e->ctx, FR_INVALID,
                       "gradients are not kept: create the engine with keep_grads");
    if (kind == FR__VALUE_STATE && (which < 0 || which >= e->desc.optimizer->n_state))
        return fr_fail(e->ctx, FR_INVALID, "optimizer state %d: %s has %d", which,
                       e->desc.optimizer->name, e->desc.optimizer->n_state);
    if (kind == FR__VALUE_MEMORY && !fr_engine_memory_name(e))
        return fr_fail(e->ctx, FR_INVALID, "weights %s have no state", e->desc.policy->name);
    return FR_OK;
}

/* All parts of the parameter's stage in this process. */
static fr_status write_here(fr_engine *e, int param, fr__value_kind kind, int which,
                            const void *plain)
{
    int stage = e->home_of[param];
    for (int q = 0; q < fr_engine_n_replicas(e, stage); q++) {
        fr__part *p = fr__part_at(e, stage, q);
        if (p->worker->is_local) FR_TRY(fr__exec_write(p->exec, kind, which, param, plain));
    }
    return FR_OK;
}

/* --- all processes ---------------------------------------------------------------------------- */

static bool is_copy(const fr_engine *e, int param, int owner)
{
    return param != owner && fr__owner_of(e, param) == owner;
}

/* Whether a process holds the parameter or a copy of it in another stage. */
static bool holds(const fr_engine *e, int rank, int owner)
{
    for (int i = -1; i < e->n_copies; i++) {
        if (i >= 0 && !is_copy(e, e->copies[i], owner)) continue;
        int stage = e->home_of[i < 0 ? owner : e->copies[i]];
        for (int q = 0; q < fr_engine_n_replicas(e, stage); q++)
            if (fr_engine_rank_of(e, fr_engine_worker_of(e, stage, q)) == rank) return true;
    }
    return false;
}

static fr_status set_here(fr_engine *e, int owner, fr__value_kind kind, int which,
                          const void *plain)
{
    FR_TRY(write_here(e, owner, kind, which, plain));
    for (int i = 0; i < e->n_copies; i++)
        if (is_copy(e, e->copies[i], owner))
            FR_TRY(write_here(e, e->copies[i], kind, which, plain));
    return FR_OK;
}

static fr_status set(fr_engine *e, int param, fr__value_kind kind, int which, const void *plain)
{
    FR_TRY(check(e, param, kind, which));
    int owner = fr__owner_of(e, param);
    size_t bytes = fr__plain_bytes(e, owner);
    for (int r = 1; r < e->n_ranks && e->rank == 0; r++)
        if (holds(e, r, owner)) FR_TRY(fr_team_send(e->desc.team, r, plain, bytes));
    if (!holds(e, e->rank, owner)) return FR_OK;
    if (e->rank > 0) {
        FR_TRY(fr_team_recv(e->desc.team, 0, e->scratch, bytes));
        plain = e->scratch;
    }
    return set_here(e, owner, kind, which, plain);
}

static fr_status get(fr_engine *e, int param, fr__value_kind kind, int which, void *plain)
{
    FR_TRY(check(e, param, kind, which));
    int owner = fr__owner_of(e, param);
    size_t bytes = fr__plain_bytes(e, owner);
    fr__part *p = fr__part_at(e, e->home_of[owner], 0);
    int rank = fr_engine_rank_of(e, p->worker->index);
    if (rank == e->rank)
        FR_TRY(fr__exec_read(p->exec, kind, which, owner, rank ? e->scratch : plain));
    if (rank == 0) return FR_OK;
    if (rank == e->rank) return fr_team_send(e->desc.team, 0, e->scratch, bytes);
    return e->rank == 0 ? fr_team_recv(e->desc.team, rank, plain, bytes) : FR_OK;
}

fr_status fr_engine_get_param(fr_engine *e, int param, void *plain)
{
    return get(e, param, FR__VALUE_PARAM, 0, plain);
}
fr_status fr_engine_set_param(fr_engine *e, int param, const void *plain)
{
    return set(e, param, FR__VALUE_PARAM, 0, plain);
}
fr_status fr_engine_get_grad(fr_engine *e, int param, void *plain)
{
    return get(e, param, FR__VALUE_GRAD, 0, plain);
}
fr_status fr_engine_get_state(fr_engine *e, int which, int param, void *plain)
{
    return get(e, param, FR__VALUE_STATE, which, plain);
}
fr_status fr_engine_set_state(fr_engine *e, int which, int param, const void *plain)
{
    return set(e, param, FR__VALUE_STATE, which, plain);
}

const char *fr_engine_memory_name(const fr_engine *e)
{
    fr_store_desc d = {.policy = e->desc.policy};
    return e->desc.schedule ? fr_store_policy_state_name(&d) : NULL;
}

fr_status fr_engine_set_memory(fr_engine *e, int param, const void *plain)
{
    return set(e, param, FR__VALUE_MEMORY, 0, plain);
}

/* --- items ------------------------------------------------------------------------------------ */

fr__part *fr__item_part(const fr_engine *e, const fr_item *item)
{
    return fr__part_at(e, e->home_of[item->param], 0);
}

bool fr__item_is_there(const fr_engine *e, const fr_item *item)
{
    return item->kind != FR_ITEM_MEMORY || fr__exec_has_memory(fr__item_part(e, item)->exec);
}

fr_status fr__item_read(fr_engine *e, const fr_item *item, void *plain)
{
    static const fr__value_kind kinds[] = {[FR_ITEM_PARAM] = FR__VALUE_PARAM,
                                           [FR_ITEM_STATE] = FR__VALUE_STATE,
                                           [FR_ITEM_MEMORY] = FR__VALUE_MEMORY};
    return fr__exec_read(fr__item_part(e, item)->exec, kinds[item->kind], item->which, item->param,
                         plain);
}

/* --- starting values ------------------------------------------------------------------------ */

static void fill(void *engine, int param, size_t first, size_t n, void *to)
{
    const fr_engine *e = engine;
    fr_graph_init_range(e->desc.graph, param, e->desc.seed, (int64_t)first, (int64_t)n, to);
}

static fr_status init_worker(fr__worker *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < w->n_parts; i++) FR_TRY(fr__exec_init(w->parts[i]->exec, fill, w->engine));
    return FR_OK;
}

size_t fr__params_largest(const fr_engine *e)
{
    size_t largest = 64;
    for (int i = 0; i < fr_graph_n_params(e->desc.graph); i++)
        if (fr__plain_bytes(e, i) > largest) largest = fr__plain_bytes(e, i);
    return largest;
}

fr_status fr__params_init(fr_engine *e)
{
    FR_TRY(fr__jobs_run(e, init_worker, false));
    if (e->rank == 0) return FR_OK;
    size_t largest = fr__params_largest(e);
    e->scratch = fr__arena_alloc(&e->arena, largest);
    return e->scratch ? FR_OK : fr__no_memory(e->ctx, largest, "parameters");
}
