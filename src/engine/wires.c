/* wires.c -- links of a schedule turned into memory.
 *
 * Values: a stage writes its outputs into its own slot, and readers read them there, so the buffers
 * of a forward wire are the slots of its sender. Gradients: with several readers of a value
 * the gradient is relayed from the highest reader down, each adding its own, to the stage
 * that made it. That is the order in which one worker would add them, so the bits are the same. */
#include "engine/engine.h"

static bool reads(const fr_engine *e, int stage, int node)
{
    const fr_stage *s = &e->stages[stage];
    for (int i = 0; i < s->n_inputs; i++)
        if (s->inputs[i] == node) return true;
    return false;
}

/* The nearest stage below that reads `node`, or the one that makes it; the nearest above, or -1. */
static int reader_below(const fr_engine *e, int stage, int node, int maker)
{
    for (int k = stage - 1; k > maker; k--)
        if (reads(e, k, node)) return k;
    return maker;
}
static int reader_above(const fr_engine *e, int stage, int node)
{
    for (int k = stage + 1; k < e->n_stages; k++)
        if (reads(e, k, node)) return k;
    return -1;
}

static int maker_of(const fr_engine *e, int node)
{
    for (int k = 0; k < e->n_stages; k++)
        if (node >= e->stages[k].first && node < e->stages[k].last) return k;
    return -1;
}

static fr_status find_wire(const fr_engine *e, fr_mode mode, bool is_forward, int from, int to,
                           int *wire)
{
    const fr_schedule *s = e->schedule[mode];
    *wire = is_forward ? fr_schedule_find_link(s->n_forward, s->forward, from, to)
                       : fr_schedule_find_link(s->n_backward, s->backward, from, to);
    if (*wire >= 0) return FR_OK;
    return fr_fail(e->ctx, FR_INVALID,
                   "schedule %s: stage %d needs %s of stage %d, but the schedule has no such link",
                   s->name, to, is_forward ? "a value" : "a gradient", from);
}

static fr_status tap_values(fr_part *p, fr_mode mode)
{
    const fr_engine *e = p->engine;
    fr_bound *b = &p->bound[mode];
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        if (b->in[i].role != FR_ROLE_WIRE) continue;
        int node = fr_program_input(b->program, i)->node, maker = maker_of(e, node);
        const fr_bound *its = &e->parts[maker].bound[mode];
        FR_TRY(find_wire(e, mode, true, maker, p->stage, &b->in[i].value.wire));
        int port = fr_program_find_output(its->program, node);
        if (port < 0)
            return fr_fail(e->ctx, FR_INTERNAL, "stage %d does not put out %s", maker,
                           fr_graph_node(e->desc.graph, node)->name);
        b->in[i].value.offset = its->out[port].offset;
    }
    return FR_OK;
}

/* Gradients that leave this stage get their place on a wire. */
static fr_status place_grads(fr_part *p)
{
    const fr_engine *e = p->engine;
    fr_bound *b = &p->bound[FR_MODE_TRAIN];
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        const fr_port *port = fr_program_input(b->program, i);
        if (!port->has_grad) continue;
        int to = reader_below(e, p->stage, port->node, maker_of(e, port->node));
        fr_tap *tap = &b->in[i].grad;
        FR_TRY(find_wire(e, FR_MODE_TRAIN, false, p->stage, to, &tap->wire));
        fr_wire *wire = &e->backward[tap->wire];
        tap->offset = wire->bytes;
        wire->bytes += fr__align_up(port->bytes);
    }
    return FR_OK;
}

static fr_tap grad_tap(const fr_engine *e, int reader, int node)
{
    const fr_bound *b = &e->parts[reader].bound[FR_MODE_TRAIN];
    return b->in[fr_program_find_input(b->program, node)].grad;
}

/* Gradients that come to this stage: for its outputs, or to be added to for its inputs. */
static void tap_grads(fr_part *p)
{
    const fr_engine *e = p->engine;
    fr_bound *b = &p->bound[FR_MODE_TRAIN];
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        const fr_port *port = fr_program_input(b->program, i);
        if (port->has_seed)
            b->in[i].seed = grad_tap(e, reader_above(e, p->stage, port->node), port->node);
    }
    for (int i = 0; i < fr_program_n_outputs(b->program); i++) {
        const fr_port *port = fr_program_output(b->program, i);
        if (port->has_grad)
            b->out[i].grad = grad_tap(e, reader_above(e, p->stage, port->node), port->node);
    }
}

static fr_status make_wires(fr_engine *e, int n, const fr_link *links, fr_wire **out)
{
    fr_wire *wires = *out = FR_ARENA_ARRAY(&e->arena, fr_wire, n + 1);
    if (!wires) return fr__no_memory(e->ctx, (size_t)n * sizeof *wires, "links");
    for (int i = 0; i < n; i++) {
        wires[i].from = &e->parts[links[i].from];
        wires[i].to = &e->parts[links[i].to];
    }
    return FR_OK;
}

static void size_forward(fr_engine *e, fr_mode mode)
{
    for (int i = 0; i < e->schedule[mode]->n_forward; i++) {
        fr_wire *wire = &e->forward[mode][i];
        const fr_bound *b = &wire->from->bound[mode];
        wire->n_buffers = b->n_slots;
        wire->bytes = b->output_bytes;
        wire->stride = b->stride;
    }
}

fr_status fr__wires_plan(fr_engine *e)
{
    for (int mode = 0; mode < FR_N_MODES; mode++) {
        const fr_schedule *s = e->schedule[mode];
        if (!s) continue;
        FR_TRY(make_wires(e, s->n_forward, s->forward, &e->forward[mode]));
        size_forward(e, (fr_mode)mode);
        for (int k = 0; k < e->n_stages; k++) FR_TRY(tap_values(&e->parts[k], (fr_mode)mode));
    }
    const fr_schedule *s = e->schedule[FR_MODE_TRAIN];
    if (!s) return FR_OK;
    FR_TRY(make_wires(e, s->n_backward, s->backward, &e->backward));
    for (int k = 0; k < e->n_stages; k++) FR_TRY(place_grads(&e->parts[k]));
    for (int k = 0; k < e->n_stages; k++) tap_grads(&e->parts[k]);
    for (int i = 0; i < s->n_backward; i++) {
        fr_wire *wire = &e->backward[i];
        wire->n_buffers = s->n_buffers[i];
        wire->stride = wire->bytes;
        wire->from->grad_wire_bytes += (size_t)wire->n_buffers * wire->stride;
    }
    return FR_OK;
}

static fr_status open_wire(fr_engine *e, fr_wire *wire)
{
    wire->data = FR_ARENA_ARRAY(&e->arena, const void *, wire->n_buffers + 1);
    if (!wire->data) return fr__no_memory(e->ctx, (size_t)wire->n_buffers * 8, "links");
    for (int b = 0; b < wire->n_buffers; b++)
        wire->data[b] = wire->memory + (size_t)b * wire->stride;
    if (wire->from->worker == wire->to->worker) return FR_OK;
    fr_channel_desc d = {.from = wire->from->worker->index,
                         .to = wire->to->worker->index,
                         .n_buffers = wire->n_buffers,
                         .bytes = wire->bytes,
                         .stride = wire->stride,
                         .memory = wire->memory};
    return e->transport->add_channel(e->group, &d, &wire->channel);
}

fr_status fr__wires_open(fr_engine *e)
{
    for (int mode = 0; mode < FR_N_MODES; mode++) {
        for (int i = 0; e->schedule[mode] && i < e->schedule[mode]->n_forward; i++) {
            fr_wire *wire = &e->forward[mode][i];
            const fr_bound *b = &wire->from->bound[mode];
            wire->memory = b->slots + b->slot_bytes;
            FR_TRY(open_wire(e, wire));
        }
    }
    const fr_schedule *s = e->schedule[FR_MODE_TRAIN];
    for (int k = 0; s && k < e->n_stages; k++) {
        char *at = e->parts[k].grad_wires;
        for (int i = 0; i < s->n_backward; i++) {
            fr_wire *wire = &e->backward[i];
            if (wire->from->stage != k) continue;
            wire->memory = at;
            at += (size_t)wire->n_buffers * wire->stride;
            FR_TRY(open_wire(e, wire));
        }
    }
    return FR_OK;
}
