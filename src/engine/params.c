/* params.c -- parameters, gradients, optimizer state and what the weight policy remembers, in and
 * out as plain floats, wherever their stage is. A parameter tied across stages has a copy in each,
 * and every replica of a stage one; all are written alike. Called while no worker runs.
 *
 * With a team rank 0 gives and gets; the others make the same calls and move what is theirs. */
#include "engine/engine.h"

#include <string.h>

/* Where every parameter's values (or its copy, or its gradient) lie: the stage follows from the
 * graph, the place in its blocks from the program, where that is here. */
fr_status fr__params_find(fr_engine *e)
{
    const fr_graph *g = e->desc.graph;
    int n = fr_graph_n_params(g);
    e->home_of = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->placement_of = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->nth_own = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->n_own = FR_ARENA_ARRAY(&e->arena, int, e->n_stages + 1);
    if (!e->home_of || !e->placement_of || !e->nth_own || !e->n_own)
        return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++) {
        const fr_param *param = fr_graph_param(g, i);
        int home = e->home_of[i] = fr__maker_of(e, param->node);
        e->placement_of[i] = e->nth_own[i] = -1;
        if (home < 0)
            return fr_fail(e->ctx, FR_INTERNAL, "parameter %s is in no stage", param->name);
        if (param->tied_to < 0 && !param->is_buffer) e->nth_own[i] = e->n_own[home]++;
    }
    for (int i = 0; i < e->n_parts; i++) {
        const fr_program *layout = e->parts[i].layout;
        for (int k = 0; layout && k < fr_program_n_placements(layout); k++)
            e->placement_of[fr_program_placement(layout, k)->param] = k;
    }
    return FR_OK;
}

typedef enum what { VALUE, GRADIENT, STATE, MEMORY } what;

static float *block_of(fr_part *p, what kind, int which, bool is_buffer)
{
    bool is_valid;
    if (is_buffer) return kind == VALUE ? p->buffers : NULL;
    if (kind == GRADIENT) return p->grads;
    if (kind == STATE) return p->state[which];
    if (kind == MEMORY) return fr_store_memory(p->store, &is_valid);
    return p->store ? fr_store_newest(p->store) : p->weights;
}

static fr_status check(fr_engine *e, int param, what kind, int which)
{
    static const char *const names[] = {"value", "gradient", "optimizer state", "memory"};
    int n = fr_graph_n_params(e->desc.graph);
    if (param < 0 || param >= n)
        return fr_fail(e->ctx, FR_INVALID, "parameter %d: the graph has 0..%d", param, n - 1);
    const fr_param *p = fr_graph_param(e->desc.graph, param);
    if (kind != VALUE && p->is_buffer)
        return fr_fail(e->ctx, FR_INVALID, "%s is not trained: it has no %s", p->name, names[kind]);
    if (kind != VALUE && !e->desc.schedule)
        return fr_fail(e->ctx, FR_INVALID, "an engine that only evaluates has no %s%s", names[kind],
                       kind == GRADIENT ? "s" : "");
    if (kind == GRADIENT && !e->desc.keep_grads)
        return fr_fail(e->ctx, FR_INVALID,
                       "gradients are not kept: create the engine with keep_grads");
    if (kind == STATE && (which < 0 || which >= e->desc.optimizer->n_state))
        return fr_fail(e->ctx, FR_INVALID, "optimizer state %d: %s has %d", which,
                       e->desc.optimizer->name, e->desc.optimizer->n_state);
    if (kind == MEMORY && !fr_engine_memory_name(e))
        return fr_fail(e->ctx, FR_INVALID, "weights %s remember nothing", e->desc.policy->name);
    return FR_OK;
}

/* --- one part --------------------------------------------------------------------------------- */

static fr_status read_part(fr_part *p, int param, what kind, int which, float *plain)
{
    const fr_engine *e = p->engine;
    bool is_buffer = fr_graph_param(e->desc.graph, param)->is_buffer;
    return fr_program_read_param(p->layout, block_of(p, kind, which, is_buffer),
                                 e->placement_of[param], plain);
}

static fr_status write_part(fr_part *p, int param, what kind, int which, const float *plain)
{
    const fr_engine *e = p->engine;
    bool is_buffer = fr_graph_param(e->desc.graph, param)->is_buffer;
    float *block = block_of(p, kind, which, is_buffer);
    if (kind == MEMORY && !block) return FR_OK; /* this stage has none */
    FR_TRY(fr_program_write_param(p->layout, block, e->placement_of[param], plain));
    if (kind == MEMORY)
        fr_store_set_memory(p->store);
    else if (p->store)
        FR_TRY(fr_store_reset(p->store, fr_store_version(p->store)));
    return FR_OK;
}

/* All parts of the parameter's stage that are here. */
static fr_status write_here(fr_engine *e, int param, what kind, int which, const float *plain)
{
    int stage = e->home_of[param];
    for (int q = 0; q < fr_engine_n_replicas(e, stage); q++) {
        fr_part *p = fr__part(e, stage, q);
        if (p->worker->is_local) FR_TRY(write_part(p, param, kind, which, plain));
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
    for (int i = -1; i < e->n_tied; i++) {
        if (i >= 0 && !is_copy(e, e->tied[i], owner)) continue;
        int stage = e->home_of[i < 0 ? owner : e->tied[i]];
        for (int q = 0; q < fr_engine_n_replicas(e, stage); q++)
            if (fr_engine_rank_of(e, fr_engine_worker_of(e, stage, q)) == rank) return true;
    }
    return false;
}

static fr_status set_here(fr_engine *e, int owner, what kind, int which, const float *plain)
{
    FR_TRY(write_here(e, owner, kind, which, plain));
    for (int i = 0; i < e->n_tied; i++)
        if (is_copy(e, e->tied[i], owner)) FR_TRY(write_here(e, e->tied[i], kind, which, plain));
    return FR_OK;
}

static fr_status set(fr_engine *e, int param, what kind, int which, const float *plain)
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

static fr_status get(fr_engine *e, int param, what kind, int which, float *plain)
{
    FR_TRY(check(e, param, kind, which));
    int owner = fr__owner_of(e, param);
    size_t bytes = fr__plain_bytes(e, owner);
    fr_part *p = fr__part(e, e->home_of[owner], 0);
    int rank = fr_engine_rank_of(e, p->worker->index);
    if (rank == e->rank) FR_TRY(read_part(p, owner, kind, which, rank ? e->scratch : plain));
    if (rank == 0) return FR_OK;
    if (rank == e->rank) return fr_team_send(e->desc.team, 0, e->scratch, bytes);
    return e->rank == 0 ? fr_team_recv(e->desc.team, rank, plain, bytes) : FR_OK;
}

fr_status fr_engine_get_param(fr_engine *e, int param, float *plain)
{
    return get(e, param, VALUE, 0, plain);
}
fr_status fr_engine_set_param(fr_engine *e, int param, const float *plain)
{
    return set(e, param, VALUE, 0, plain);
}
fr_status fr_engine_get_grad(fr_engine *e, int param, float *plain)
{
    return get(e, param, GRADIENT, 0, plain);
}
fr_status fr_engine_get_state(fr_engine *e, int which, int param, float *plain)
{
    return get(e, param, STATE, which, plain);
}
fr_status fr_engine_set_state(fr_engine *e, int which, int param, const float *plain)
{
    return set(e, param, STATE, which, plain);
}

const char *fr_engine_memory_name(const fr_engine *e)
{
    fr_store_desc d = {.policy = e->desc.policy};
    return e->desc.schedule ? fr_store_memory_name(&d) : NULL;
}

fr_status fr_engine_set_memory(fr_engine *e, int param, const float *plain)
{
    return set(e, param, MEMORY, 0, plain);
}

/* --- items ------------------------------------------------------------------------------------ */

fr_part *fr__item_part(const fr_engine *e, const fr_item *item)
{
    return fr__part(e, e->home_of[item->param], 0);
}

bool fr__item_is_there(const fr_engine *e, const fr_item *item)
{
    bool is_there = true;
    if (item->kind == FR_ITEM_MEMORY && !fr_store_memory(fr__item_part(e, item)->store, &is_there))
        is_there = false;
    return is_there;
}

fr_status fr__item_read(fr_engine *e, const fr_item *item, float *plain)
{
    static const what kinds[] = {
        [FR_ITEM_PARAM] = VALUE, [FR_ITEM_STATE] = STATE, [FR_ITEM_MEMORY] = MEMORY};
    return read_part(fr__item_part(e, item), item->param, kinds[item->kind], item->which, plain);
}

/* --- starting values ------------------------------------------------------------------------ */

enum { INIT_GRAIN = 1 << 16 }; /* numbers; a multiple of 4 */

typedef struct filling {
    const fr_engine *engine;
    int param;
    float *values;
} filling;

static void fill_range(void *arg, size_t begin, size_t end)
{
    const filling *f = arg;
    fr_graph_init_range(f->engine->desc.graph, f->param, f->engine->desc.seed, (int64_t)begin,
                        (int64_t)(end - begin), f->values + begin);
}

/* Training and evaluation read the one weights block, so they must agree on how a parameter lies in
 * it. `seen`: room for the parameter. */
static fr_status compare_layouts(fr_part *p, float *block, int placement, const float *values,
                                 float *seen)
{
    const fr_engine *e = p->engine;
    int param = fr_program_placement(p->layout, placement)->param;
    FR_TRY(fr_program_read_param(p->bound[FR_MODE_EVAL].program, block, placement, seen));
    if (memcmp(values, seen, fr__plain_bytes(e, param)) == 0) return FR_OK;
    return fr_fail(e->ctx, FR_INTERNAL,
                   "parameter %s: training and evaluation lay it out differently",
                   fr_graph_param(e->desc.graph, param)->name);
}

/* Where the values are plain, and the host may write there, they are made in place: nothing is held
 * twice. */
static fr_status init_param(fr_part *p, float *block, int placement)
{
    const fr_engine *e = p->engine;
    fr_program *eval = p->bound[FR_MODE_EVAL].program;
    const fr_placement *at = fr_program_placement(p->layout, placement);
    size_t bytes = fr__plain_bytes(e, at->param);
    bool is_plain = fr_program_is_plain(p->layout, placement);
    bool in_place = is_plain && fr__device_is_host(p->worker->dev);
    bool is_same =
        p->layout == eval || (is_plain && fr_program_is_plain(eval, placement) &&
                              at->offset == fr_program_placement(eval, placement)->offset);
    float *values = in_place ? block + at->offset : fr__alloc(bytes);
    float *seen = is_same ? NULL : fr__alloc(bytes);
    fr_status status = FR_OK;
    if (!values || !(seen || is_same)) status = fr__no_memory(e->ctx, bytes, "starting values");
    if (status == FR_OK)
        fr_device_parallel(p->worker->dev, bytes / sizeof(float), INIT_GRAIN, fill_range,
                           &(filling){e, at->param, values});
    if (status == FR_OK && !in_place)
        status = fr_program_write_param(p->layout, block, placement, values);
    if (status == FR_OK && !is_same) status = compare_layouts(p, block, placement, values, seen);
    fr__free(seen);
    if (!in_place) fr__free(values);
    return status;
}

static fr_status init_worker(fr_worker *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < w->n_parts; i++) {
        fr_part *p = w->parts[i];
        for (int k = 0; k < fr_program_n_placements(p->layout); k++) {
            const fr_placement *at = fr_program_placement(p->layout, k);
            bool is_buffer = fr_graph_param(w->engine->desc.graph, at->param)->is_buffer;
            if (!is_buffer && at->offset >= p->n_weights) continue; /* tied: no values of its own */
            FR_TRY(init_param(p, block_of(p, VALUE, 0, is_buffer), k));
        }
        if (p->store) FR_TRY(fr_store_reset(p->store, fr_store_version(p->store)));
    }
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
