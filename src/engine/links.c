/* links.c -- buffers and channels for the links of a schedule.
 *
 * A stage writes its outputs into its own slot, and readers read them there, so the buffers of a
 * forward channel are the slots of its sender; gradients have buffers of their own. Between
 * processes the receiver has as many buffers of its own, into which messages are received. */
#include "engine/engine.h"

/* --- all ----------------------------------------------------------------------------------- */

static fr_status make_links(fr_engine *e, const fr_schedule *s, int n, const fr_link *links,
                            fr__link_buffers **out)
{
    fr__link_buffers *all = *out = FR_ARENA_ARRAY(&e->arena, fr__link_buffers, n + 1);
    if (!all) return fr__no_memory(e->ctx, (size_t)n * sizeof *all, "links");
    for (int i = 0; i < n; i++) {
        fr__link_buffers *r = &all[i];
        *r = (fr__link_buffers){.from = links[i].from,
                                .to = links[i].to,
                                .n_from = s->replicas[links[i].from],
                                .n_to = s->replicas[links[i].to]};
        r->channels = FR_ARENA_ARRAY(&e->arena, fr__link_channel, r->n_from * r->n_to);
        if (!r->channels) return fr__no_memory(e->ctx, sizeof(fr__link_channel), "links");
        for (int k = 0; k < r->n_from * r->n_to; k++) {
            r->channels[k].from = fr__part_at(e, r->from, k / r->n_to);
            r->channels[k].to = fr__part_at(e, r->to, k % r->n_to);
        }
        for (int m = 0; m < s->n_micro; m++) fr__channel_of(r, m)->is_used = true;
    }
    return FR_OK;
}

static bool crosses(const fr__link_channel *w) { return w->from->worker != w->to->worker; }

static bool crosses_processes(const fr_engine *e, const fr__link_channel *w)
{
    return e->transport->rank_of(e->group, w->from->worker->index) !=
           e->transport->rank_of(e->group, w->to->worker->index);
}

/* Parts at the ends of a link. */
static void count_bytes(fr_engine *e, const fr__link_buffers *r, bool is_forward)
{
    for (int i = 0; i < r->n_from * r->n_to; i++) {
        const fr__link_channel *w = &r->channels[i];
        if (!w->is_used) continue;
        if (!is_forward)
            fr__exec_add_link_bytes(w->from->exec, (size_t)r->n_buffers * r->stride, 0);
        if (crosses_processes(e, w))
            fr__exec_add_link_bytes(w->to->exec, 0, (size_t)r->n_buffers * fr__align_up(r->bytes));
    }
}

/* --- taps ------------------------------------------------------------------------------------- */

static fr_status tap_values(fr__part *p, fr__mode mode)
{
    const fr_engine *e = p->engine;
    const fr_schedule *s = e->schedule[mode];
    int n;
    fr__in_port *in = fr__exec_inputs(p->exec, mode, &n);
    for (int i = 0; i < n; i++) {
        if (in[i].role != FR__ROLE_LINK) continue;
        int node = in[i].port->node, maker = fr__maker_of(e, node);
        int link = fr_schedule_find_link(s->n_forward, s->forward, maker, p->stage);
        if (link < 0)
            return fr_fail(e->ctx, FR_INVALID,
                           "schedule %s: stage %d needs a value of stage %d, but the schedule has "
                           "no such link",
                           s->name, p->stage, maker);
        size_t offset = e->stage_io[mode][maker].value_offset[node - e->stages[maker].first];
        if (offset == SIZE_MAX)
            return fr_fail(e->ctx, FR_INTERNAL, "stage %d has no output %s", maker,
                           fr_graph_node(e->desc.graph, node)->name);
        in[i].value = (fr__tensor_ref){link, offset};
    }
    return FR_OK;
}

/* Gradients that this stage sends, and those that it receives: of its outputs, or of its inputs, to
 * which it adds its own. */
static void tap_grads(fr__part *p)
{
    const fr_engine *e = p->engine;
    int n_in, n_out;
    fr__in_port *in = fr__exec_inputs(p->exec, FR_MODE_TRAIN, &n_in);
    fr__out_port *out = fr__exec_outputs(p->exec, FR_MODE_TRAIN, &n_out);
    for (int i = 0; i < n_in; i++) {
        int node = in[i].port->node;
        if (in[i].port->has_grad) in[i].grad = fr__grad_ref(e, p->stage, node);
        if (in[i].port->has_seed)
            in[i].seed = fr__grad_ref(e, fr__reader_above(e, p->stage, node), node);
    }
    for (int i = 0; i < n_out; i++) {
        int node = out[i].port->node;
        if (out[i].port->has_grad)
            out[i].grad = fr__grad_ref(e, fr__reader_above(e, p->stage, node), node);
    }
}

/* --- planning --------------------------------------------------------------------------------- */

/* Only the sender's process has the stride of its slots. */
static void size_forward(fr_engine *e, fr__mode mode)
{
    const fr_schedule *s = e->schedule[mode];
    for (int i = 0; i < s->n_forward; i++) {
        fr__link_buffers *r = &e->forward[mode][i];
        r->n_buffers = s->n_slots[r->from];
        r->bytes = e->stage_io[mode][r->from].output_bytes;
        r->stride = r->bytes;
        for (int q = 0; q < r->n_from; q++) {
            const fr__part *from = fr__part_at(e, r->from, q);
            if (from->worker->is_local) r->stride = fr__exec_output_stride(from->exec, mode);
        }
        count_bytes(e, r, true);
    }
}

/* Room for the addresses of a micro-batch's buffers. */
static fr_status make_lists(fr__part *p)
{
    fr_engine *e = p->engine;
    const fr_schedule *train = e->schedule[FR_MODE_TRAIN];
    int n_forward = e->eval_schedule->n_forward;
    if (train && train->n_forward > n_forward) n_forward = train->n_forward;
    int n_backward = train ? train->n_backward : 0;
    p->values = FR_ARENA_ARRAY(&e->arena, const void *, n_forward + 1);
    p->grads = FR_ARENA_ARRAY(&e->arena, const void *, n_backward + 1);
    p->sent_grads = FR_ARENA_ARRAY(&e->arena, void *, n_backward + 1);
    return p->values && p->grads && p->sent_grads ? FR_OK : fr__no_memory(e->ctx, 0, "links");
}

static fr_status tap_all(fr_engine *e, fr__mode mode)
{
    for (int i = 0; i < e->n_parts; i++) {
        if (!e->parts[i].worker->is_local) continue;
        if (!e->parts[i].values) FR_TRY(make_lists(&e->parts[i]));
        FR_TRY(tap_values(&e->parts[i], mode));
        if (mode == FR_MODE_TRAIN) tap_grads(&e->parts[i]);
    }
    return FR_OK;
}

/* Routes and stage_io need no program; fr__stage_io_find is called in between. */
fr_status fr__links_plan(fr_engine *e)
{
    const fr_schedule *train = e->schedule[FR_MODE_TRAIN];
    for (int mode = 0; mode < FR_N_MODES; mode++) {
        const fr_schedule *s = e->schedule[mode];
        if (s) FR_TRY(make_links(e, s, s->n_forward, s->forward, &e->forward[mode]));
    }
    if (train) FR_TRY(make_links(e, train, train->n_backward, train->backward, &e->backward));
    FR_TRY(fr__stage_io_find(e));
    for (int mode = 0; mode < FR_N_MODES; mode++) {
        if (!e->schedule[mode]) continue;
        size_forward(e, (fr__mode)mode);
        FR_TRY(tap_all(e, (fr__mode)mode));
    }
    for (int i = 0; train && i < train->n_backward; i++) {
        fr__link_buffers *r = &e->backward[i];
        r->n_buffers = train->n_buffers[i];
        r->stride = r->bytes;
        count_bytes(e, r, false);
    }
    return FR_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Offset of the next channel's buffers, for each part. */
typedef struct cursors {
    char **grads, **landing; /* [part] */
} cursors;

static char *advance(char **at, size_t bytes)
{
    char *here = *at;
    if (here) *at += bytes;
    return here;
}

static fr_status open_channel(fr_engine *e, const fr__link_buffers *r, fr__link_channel *w,
                              char *landing)
{
    w->data = FR_ARENA_ARRAY(&e->arena, const void *, r->n_buffers + 1);
    if (!w->data) return fr__no_memory(e->ctx, (size_t)r->n_buffers * 8, "links");
    for (int b = 0; b < r->n_buffers && w->memory; b++)
        w->data[b] = w->memory + (size_t)b * r->stride;
    if (!crosses(w)) return FR_OK;
    fr_channel_desc d = {
        .from = w->from->worker->index,
        .to = w->to->worker->index,
        .n_buffers = r->n_buffers,
        .bytes = r->bytes,
        .stride = r->stride,
        .memory = w->memory,
        .landing = landing,
        .device = fr__exec_device_of(landing ? w->to->worker->device : w->from->worker->device)};
    return e->transport->add_channel(e->group, &d, &w->handle);
}

/* mode FR_N_MODES: a backward link. */
static fr_status open_link(fr_engine *e, fr__link_buffers *r, int mode, cursors *at)
{
    for (int i = 0; i < r->n_from * r->n_to; i++) {
        fr__link_channel *w = &r->channels[i];
        if (!w->is_used) continue;
        char *landing = NULL;
        if (mode == FR_N_MODES)
            w->memory = advance(&at->grads[w->from->index], (size_t)r->n_buffers * r->stride);
        else if (w->from->worker->is_local)
            w->memory = fr__exec_output_memory(w->from->exec, (fr__mode)mode);
        if (crosses_processes(e, w))
            landing =
                advance(&at->landing[w->to->index], (size_t)r->n_buffers * fr__align_up(r->bytes));
        FR_TRY(open_channel(e, r, w, landing));
    }
    return FR_OK;
}

fr_status fr__links_open(fr_engine *e)
{
    const fr_schedule *train = e->schedule[FR_MODE_TRAIN];
    cursors at = {.grads = FR_ARENA_ARRAY(&e->arena, char *, e->n_parts),
                  .landing = FR_ARENA_ARRAY(&e->arena, char *, e->n_parts)};
    if (!at.grads || !at.landing) return fr__no_memory(e->ctx, 0, "links");
    for (int i = 0; i < e->n_parts; i++) {
        at.grads[i] = fr__exec_grad_links(e->execs[i]);
        at.landing[i] = fr__exec_landing(e->execs[i]);
    }
    for (int mode = 0; mode < FR_N_MODES; mode++)
        for (int i = 0; e->schedule[mode] && i < e->schedule[mode]->n_forward; i++)
            FR_TRY(open_link(e, &e->forward[mode][i], mode, &at));
    for (int i = 0; train && i < train->n_backward; i++)
        FR_TRY(open_link(e, &e->backward[i], FR_N_MODES, &at));
    return FR_OK;
}
