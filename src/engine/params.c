/* params.c -- parameters, gradients and optimizer state in and out, as plain floats, wherever
 * their stage is. A parameter tied across stages has a copy in each; all are written alike. Called
 * while no worker runs. */
#include "engine/engine.h"

#include <string.h>

/* Where every parameter's values (or its copy, or its gradient) lie. */
fr_status fr__params_find(fr_engine *e)
{
    int n = fr_graph_n_params(e->desc.graph);
    e->home_of = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    e->placement_of = FR_ARENA_ARRAY(&e->arena, int, n + 1);
    if (!e->home_of || !e->placement_of) return fr__no_memory(e->ctx, (size_t)n, "an engine");
    for (int i = 0; i < n; i++) e->home_of[i] = -1;
    for (int k = 0; k < e->n_stages; k++) {
        const fr_program *layout = e->parts[k].layout;
        for (int i = 0; i < fr_program_n_placements(layout); i++) {
            int param = fr_program_placement(layout, i)->param;
            e->home_of[param] = k;
            e->placement_of[param] = i;
        }
    }
    for (int i = 0; i < n; i++)
        if (e->home_of[i] < 0)
            return fr_fail(e->ctx, FR_INTERNAL, "parameter %s is in no stage",
                           fr_graph_param(e->desc.graph, i)->name);
    return FR_OK;
}

typedef enum what { VALUE, GRADIENT, STATE } what;

static float *block_of(fr_part *p, what kind, int which, bool is_buffer)
{
    if (is_buffer) return kind == VALUE ? p->buffers : NULL;
    if (kind == GRADIENT) return p->grads;
    if (kind == STATE) return p->state[which];
    return p->store ? fr_store_newest(p->store) : p->weights;
}

static fr_status check(fr_engine *e, int param, what kind, int which)
{
    int n = fr_graph_n_params(e->desc.graph);
    if (param < 0 || param >= n)
        return fr_fail(e->ctx, FR_INVALID, "parameter %d: the graph has 0..%d", param, n - 1);
    const fr_param *p = fr_graph_param(e->desc.graph, param);
    if (kind != VALUE && p->is_buffer)
        return fr_fail(e->ctx, FR_INVALID, "%s is not trained: it has no %s", p->name,
                       kind == GRADIENT ? "gradient" : "optimizer state");
    if (kind != VALUE && !e->desc.schedule)
        return fr_fail(e->ctx, FR_INVALID, "an engine that only evaluates has no %s",
                       kind == GRADIENT ? "gradients" : "optimizer state");
    if (kind == GRADIENT && !e->desc.keep_grads)
        return fr_fail(e->ctx, FR_INVALID,
                       "gradients are not kept: create the engine with keep_grads");
    if (kind == STATE && (which < 0 || which >= e->desc.optimizer->n_state))
        return fr_fail(e->ctx, FR_INVALID, "optimizer state %d: %s has %d", which,
                       e->desc.optimizer->name, e->desc.optimizer->n_state);
    return FR_OK;
}

static fr_status get(fr_engine *e, int param, what kind, int which, float *plain)
{
    FR_TRY(check(e, param, kind, which));
    param = fr__owner_of(e, param);
    fr_part *p = &e->parts[e->home_of[param]];
    bool is_buffer = fr_graph_param(e->desc.graph, param)->is_buffer;
    return fr_program_read_param(p->layout, block_of(p, kind, which, is_buffer),
                                 e->placement_of[param], plain);
}

static fr_status put(fr_engine *e, int param, what kind, int which, const float *plain)
{
    fr_part *p = &e->parts[e->home_of[param]];
    bool is_buffer = fr_graph_param(e->desc.graph, param)->is_buffer;
    FR_TRY(fr_program_write_param(p->layout, block_of(p, kind, which, is_buffer),
                                  e->placement_of[param], plain));
    if (p->store) fr_store_reset(p->store, fr_store_version(p->store));
    return FR_OK;
}

static fr_status set(fr_engine *e, int param, what kind, int which, const float *plain)
{
    FR_TRY(check(e, param, kind, which));
    int owner = fr__owner_of(e, param);
    FR_TRY(put(e, owner, kind, which, plain));
    for (int i = 0; i < e->n_tied; i++)
        if (e->tied[i] != owner && fr__owner_of(e, e->tied[i]) == owner)
            FR_TRY(put(e, e->tied[i], kind, which, plain));
    return FR_OK;
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

/* --- starting values ------------------------------------------------------------------------ */

/* Training and evaluation read the one weights block, so they must agree on how a parameter lies in
 * it. `seen`: room for the largest parameter. */
static fr_status compare_layouts(fr_engine *e, int param, const float *values, float *seen)
{
    fr_part *p = &e->parts[e->home_of[param]];
    fr_program *eval = p->bound[FR_MODE_EVAL].program;
    if (p->layout == eval) return FR_OK;
    bool is_buffer = fr_graph_param(e->desc.graph, param)->is_buffer;
    FR_TRY(fr_program_read_param(eval, block_of(p, VALUE, 0, is_buffer), e->placement_of[param],
                                 seen));
    if (memcmp(values, seen, fr__plain_bytes(e, param)) == 0) return FR_OK;
    return fr_fail(e->ctx, FR_INTERNAL,
                   "parameter %s: training and evaluation lay it out differently",
                   fr_graph_param(e->desc.graph, param)->name);
}

fr_status fr__params_init(fr_engine *e)
{
    const fr_graph *g = e->desc.graph;
    size_t largest = 64;
    for (int i = 0; i < fr_graph_n_params(g); i++)
        if (fr__plain_bytes(e, i) > largest) largest = fr__plain_bytes(e, i);
    float *values = fr__alloc(largest), *seen = fr__alloc(largest);
    fr_status status =
        values && seen ? FR_OK : fr__no_memory(e->ctx, 2 * largest, "starting values");
    for (int i = 0; i < fr_graph_n_params(g) && status == FR_OK; i++) {
        if (fr_graph_param(g, i)->tied_to >= 0) continue;
        fr_graph_init_param(g, i, e->desc.seed, values);
        status = set(e, i, VALUE, 0, values);
        if (status == FR_OK) status = compare_layouts(e, i, values, seen);
    }
    fr__free(values);
    fr__free(seen);
    return status;
}
