/* stage_io.c -- the tensors that stages exchange, and their offsets. Computed from the graph alone,
 * so that a process has the stage_io of stages in other processes too.
 *
 * Values: the outputs of a stage, in order of nodes, contiguous behind its slot. Gradients: if a
 * value has several readers, its gradient is relayed from the highest reader down to the stage that
 * made it, and each reader adds its own. One worker would add them in the same order, so the bits
 * are the same. */
#include "engine/engine.h"

static size_t node_bytes(const fr_engine *e, int node)
{
    return fr_node_bytes(fr_graph_node(e->desc.graph, node)) * (size_t)e->desc.micro_batch;
}

/* --- readers ----------------------------------------------------------------------------- */

static int find_input(const fr_stage *s, int node)
{
    for (int i = 0; i < s->n_inputs; i++)
        if (s->inputs[i] == node) return i;
    return -1;
}

int fr__maker_of(const fr_engine *e, int node)
{
    for (int k = 0; k < e->n_stages; k++)
        if (node >= e->stages[k].first && node < e->stages[k].last) return k;
    return -1;
}

/* The nearest stage below that reads `node`, or the stage that makes it. */
static int reader_below(const fr_engine *e, int stage, int node, int maker)
{
    for (int k = stage - 1; k > maker; k--)
        if (find_input(&e->stages[k], node) >= 0) return k;
    return maker;
}

int fr__reader_above(const fr_engine *e, int stage, int node)
{
    for (int k = stage + 1; k < e->n_stages; k++)
        if (find_input(&e->stages[k], node) >= 0) return k;
    return -1;
}

fr__tensor_ref fr__grad_ref(const fr_engine *e, int reader, int node)
{
    int i = reader < 0 ? -1 : find_input(&e->stages[reader], node);
    return i < 0 ? (fr__tensor_ref){.link = -1} : e->stage_io[FR_MODE_TRAIN][reader].grad[i];
}

/* --- offsets ----------------------------------------------------------------------------- */

static fr_status find_values(fr_engine *e, fr__mode mode, int stage)
{
    const fr_stage *s = &e->stages[stage];
    fr__stage_io *b = &e->stage_io[mode][stage];
    b->value_offset = FR_ARENA_ARRAY(&e->arena, size_t, s->last - s->first + 1);
    if (!b->value_offset) return fr__no_memory(e->ctx, 0, "stages");
    for (int i = s->first; i < s->last; i++) {
        bool is_output = mode == FR_MODE_EVAL && i > 0 && i == e->desc.logits_node;
        for (int k = 0; k < s->n_outputs; k++) is_output |= s->outputs[k] == i;
        b->value_offset[i - s->first] = is_output ? b->output_bytes : SIZE_MAX;
        if (is_output) b->output_bytes += fr__align_up(node_bytes(e, i));
    }
    return FR_OK;
}

/* Assign offsets on links to the gradients that leave this stage. */
static fr_status place_grads(fr_engine *e, int stage)
{
    const fr_stage *s = &e->stages[stage];
    const fr_schedule *plan = e->desc.schedule;
    fr__stage_io *b = &e->stage_io[FR_MODE_TRAIN][stage];
    b->grad = FR_ARENA_ARRAY(&e->arena, fr__tensor_ref, s->n_inputs + 1);
    if (!b->grad) return fr__no_memory(e->ctx, 0, "stages");
    for (int i = 0; i < s->n_inputs; i++) {
        int node = s->inputs[i];
        b->grad[i].link = -1;
        if (!fr_graph_node(e->desc.graph, node)->needs_grad) continue;
        int to = reader_below(e, stage, node, fr__maker_of(e, node));
        int link = fr_schedule_find_link(plan->n_backward, plan->backward, stage, to);
        if (link < 0)
            return fr_fail(e->ctx, FR_INVALID,
                           "schedule %s: stage %d needs a gradient of stage %d, but the schedule "
                           "has no such link",
                           plan->name, to, stage);
        b->grad[i] = (fr__tensor_ref){link, e->backward[link].bytes};
        e->backward[link].bytes += fr__align_up(node_bytes(e, node));
    }
    return FR_OK;
}

fr_status fr__stage_io_find(fr_engine *e)
{
    for (int mode = 0; mode < FR_N_MODES; mode++) {
        if (!e->schedule[mode]) continue;
        e->stage_io[mode] = FR_ARENA_ARRAY(&e->arena, fr__stage_io, e->n_stages);
        if (!e->stage_io[mode]) return fr__no_memory(e->ctx, 0, "stages");
        for (int k = 0; k < e->n_stages; k++) FR_TRY(find_values(e, (fr__mode)mode, k));
    }
    for (int k = 0; e->desc.schedule && k < e->n_stages; k++) FR_TRY(place_grads(e, k));
    return FR_OK;
}
