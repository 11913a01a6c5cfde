/* passes.c -- one forward or backward of one micro-batch on one stage: which weights, which
 * memory, then the program. */
#include "engine/engine.h"

#include <math.h>

/* --- wires ---------------------------------------------------------------------------------- */

fr_status fr__acquire(fr_worker *w, fr_wire *wire, int buffer)
{
    const fr_transport *t = w->engine->transport;
    uint64_t start = fr__now_ns();
    atomic_store(&w->is_waiting, 1);
    fr_status status = t->acquire(wire->channel, buffer);
    atomic_store(&w->is_waiting, 0);
    w->wait_ns += fr__now_ns() - start;
    if (w->engine->paced && status == FR_OK) fr__pace_wait(w, wire->freed[buffer]);
    return status;
}

static void release(fr_worker *w, fr_wire *wire, int buffer)
{
    if (!wire->channel) return;
    if (w->engine->paced) wire->freed[buffer] = w->clock;
    w->engine->transport->release(wire->channel, buffer);
}

/* The readers of this slot's last micro-batch must be through with it, whichever replica read it.
 */
static fr_status acquire_slot(fr_part *p, fr_mode mode, int slot)
{
    fr_engine *e = p->engine;
    for (int i = 0; i < e->schedule[mode]->n_forward; i++) {
        const fr_route *r = &e->forward[mode][i];
        for (int q = 0; q < r->n_to && r->from == p->stage; q++) {
            fr_wire *wire = &r->wires[p->replica * r->n_to + q];
            if (wire->channel) FR_TRY(fr__acquire(p->worker, wire, slot));
        }
    }
    return FR_OK;
}

static fr_status acquire_grads(fr_part *p, int in_segment)
{
    fr_engine *e = p->engine;
    for (int i = 0; i < e->desc.schedule->n_backward; i++) {
        if (e->backward[i].from != p->stage) continue;
        fr_wire *wire = fr__wire(&e->backward[i], in_segment);
        if (!wire->channel) continue;
        FR_TRY(fr__acquire(p->worker, wire, fr_schedule_buffer(e->desc.schedule, i, in_segment)));
    }
    return FR_OK;
}

void fr__release_inputs(fr_part *p, fr_mode mode, int in_segment)
{
    fr_engine *e = p->engine;
    const fr_schedule *s = e->schedule[mode];
    for (int i = 0; i < s->n_forward; i++) {
        const fr_route *r = &e->forward[mode][i];
        if (r->to != p->stage) continue;
        release(p->worker, fr__wire(r, in_segment), fr_schedule_slot(s, r->from, in_segment));
    }
}

void fr__release_grads(fr_part *p, int in_segment)
{
    fr_engine *e = p->engine;
    for (int i = 0; i < e->desc.schedule->n_backward; i++) {
        if (e->backward[i].to != p->stage) continue;
        release(p->worker, fr__wire(&e->backward[i], in_segment),
                fr_schedule_buffer(e->desc.schedule, i, in_segment));
    }
}

static const void *grad_at(const fr_engine *e, fr_tap tap, int in_segment)
{
    int buffer = fr_schedule_buffer(e->desc.schedule, tap.route, in_segment);
    return (const char *)fr__wire(&e->backward[tap.route], in_segment)->data[buffer] + tap.offset;
}

/* The sender's own view of a gradient buffer. */
static void *grad_out(const fr_engine *e, fr_tap tap, int in_segment)
{
    const fr_route *r = &e->backward[tap.route];
    size_t buffer = (size_t)fr_schedule_buffer(e->desc.schedule, tap.route, in_segment);
    return fr__wire(r, in_segment)->memory + buffer * r->stride + tap.offset;
}

/* --- pointers ------------------------------------------------------------------------------- */

/* Data for an input port: where the source has it, or, where the host's memory is not the device's,
 * in the copy that the slot has from the forward to the last backward. */
static fr_status aim_data(fr_part *p, fr_mode mode, int port, const char *from, int slot,
                          bool is_forward)
{
    fr_bound *b = &p->bound[mode];
    const fr_in_port *in = &b->in[port];
    b->inputs[port] = from;
    if (b->data_bytes == 0) return FR_OK;
    char *copy = p->data + (size_t)slot * b->data_bytes + in->copy_offset;
    b->inputs[port] = copy;
    return is_forward ? fr_device_upload(p->worker->dev, copy, from, in->bytes) : FR_OK;
}

static fr_status aim_inputs(fr_part *p, fr_mode mode, const fr_feed *feed, int micro,
                            int in_segment, bool is_forward)
{
    const fr_engine *e = p->engine;
    fr_bound *b = &p->bound[mode];
    const char *base[FR_ROLE_WIRE] = {[FR_ROLE_INPUT] = feed->input,
                                      [FR_ROLE_TARGET] = (const char *)feed->target,
                                      [FR_ROLE_LENGTH] = (const char *)feed->length};
    int own_slot = fr_schedule_slot(e->schedule[mode], p->stage, in_segment);
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        const fr_in_port *in = &b->in[i];
        if (in->role == FR_ROLE_WIRE) {
            const fr_route *r = &e->forward[mode][in->value.route];
            int slot = fr_schedule_slot(e->schedule[mode], r->from, in_segment);
            b->inputs[i] = (const char *)fr__wire(r, in_segment)->data[slot] + in->value.offset;
            continue;
        }
        if (!base[in->role])
            return fr_fail(
                e->ctx, FR_INVALID, "the graph's input %s is not in the data",
                fr_graph_node(e->desc.graph, fr_program_input(b->program, i)->node)->name);
        FR_TRY(
            aim_data(p, mode, i, base[in->role] + (size_t)micro * in->bytes, own_slot, is_forward));
    }
    return FR_OK;
}

static char *area_at(const fr_bound *b, int area)
{
    return b->areas.at + (size_t)area * b->areas.stride;
}

static void aim_outputs(fr_bound *b, char *base)
{
    for (int i = 0; i < fr_program_n_outputs(b->program); i++)
        b->outputs[i] = base + b->out[i].offset;
}

static fr_pass make_pass(fr_part *p, fr_mode mode, const fr_view *view, int64_t batch, int micro,
                         char *area)
{
    const fr_engine *e = p->engine;
    const fr_bound *b = &p->bound[mode];
    int64_t n_targets = fr__record(p->engine, batch)->feed.n_targets;
    bool adds = false;
    float *grads = mode == FR_MODE_TRAIN ? fr__gather_block(p, micro / p->n_replicas, &adds) : NULL;
    return (fr_pass){.weights = view->weights,
                     .grads = grads,
                     .buffers = p->buffers,
                     .slot = area,
                     .workspace = p->worker->workspace,
                     .inputs = b->inputs,
                     .outputs = b->outputs,
                     .output_grads = b->output_grads,
                     .input_grads = b->input_grads,
                     .weights_id = view->id,
                     .seed = e->desc.seed,
                     .step = batch,
                     .first_sample = (int64_t)micro * e->desc.micro_batch,
                     .loss_scale = 1 / (float)(n_targets > 0 ? n_targets : 1),
                     .accumulate = adds};
}

/* --- forward -------------------------------------------------------------------------------- */

/* Add what the loss said of a micro-batch, sample by sample. */
static fr_status count_loss(fr_part *p, fr_mode mode, int64_t batch, int micro)
{
    const fr_bound *b = &p->bound[mode];
    const float *row = b->loss_rows;
    FR_TRY(fr_device_download(p->worker->dev, b->loss_rows, b->outputs[b->loss_port],
                              fr_program_output(b->program, b->loss_port)->bytes));
    fr_tally *tally = &fr__record(p->engine, batch)->tally[micro];
    for (int i = 0; i < p->engine->desc.micro_batch; i++, row += 3) {
        tally->loss += (double)row[0];
        tally->targets += (int64_t)row[1];
        tally->correct += (int64_t)row[2];
    }
    /* Before any backward of this micro-batch: no stage has made this mini-batch's update. */
    if (mode == FR_MODE_TRAIN && !isfinite(tally->loss))
        fr__diverge(p->engine, batch, micro, "loss", tally->loss);
    return FR_OK;
}

/* Running statistics as they were before the mini-batch, should it turn out to diverge. */
static fr_status snap_buffers(fr_part *p, int64_t batch)
{
    p->begun = batch + 1;
    if (p->n_buffers == 0) return FR_OK;
    float *snap = p->buffers + p->n_buffers * (size_t)(1 + batch % p->n_snaps);
    return fr__device_copy(p->worker->dev, snap, p->buffers, p->n_buffers * sizeof(float));
}

static fr_status take_logits(fr_part *p, int64_t batch, int micro)
{
    const fr_engine *e = p->engine;
    const fr_bound *b = &p->bound[FR_MODE_EVAL];
    size_t bytes = fr_program_output(b->program, b->logits_port)->bytes;
    int64_t nth = (batch - e->first) * e->desc.n_micro + micro;
    return fr_device_download(p->worker->dev, (char *)e->logits + (size_t)nth * bytes,
                              b->outputs[b->logits_port], bytes);
}

static fr_status weights_for_forward(fr_part *p, fr_mode mode, int64_t batch, int micro,
                                     fr_view *view)
{
    if (mode != FR_MODE_TRAIN) {
        *view = (fr_view){.weights = p->store ? fr_store_newest(p->store) : p->weights};
        return FR_OK;
    }
    uint64_t start = fr__now_ns();
    FR_TRY(fr_store_forward(p->store, batch, micro / p->n_replicas, view));
    p->fetch_ns = fr__now_ns() - start;
    return FR_OK;
}

fr_status fr__pass_forward(fr_part *p, int64_t batch, int micro, int in_segment, fr_event *event)
{
    fr_engine *e = p->engine;
    fr_mode mode = e->mode;
    fr_bound *b = &p->bound[mode];
    int slot = fr_schedule_slot(e->schedule[mode], p->stage, in_segment);
    fr_view view;
    FR_TRY(acquire_slot(p, mode, slot));
    FR_TRY(weights_for_forward(p, mode, batch, micro, &view));
    FR_TRY(aim_inputs(p, mode, &fr__record(e, batch)->feed, micro, in_segment, true));
    aim_outputs(b, b->outputs_at + (size_t)slot * b->stride);
    if (mode == FR_MODE_TRAIN && micro < p->n_replicas) FR_TRY(snap_buffers(p, batch));
    char *area = area_at(b, b->areas.of_forward[in_segment]);
    fr_pass pass = make_pass(p, mode, &view, batch, micro, area);
    FR_TRY(fr_program_forward(b->program, &pass));
    FR_TRY(fr_device_sync(p->worker->dev));
    if (fr__fault_is_nan(p, batch, micro))
        FR_TRY(fr_device_upload(p->worker->dev, b->outputs[0], &(float){NAN}, sizeof(float)));
    if (b->loss_port >= 0) FR_TRY(count_loss(p, mode, batch, micro));
    if (mode == FR_MODE_TRAIN) fr__record_row(p, batch, micro, 'F', &view);
    if (mode == FR_MODE_EVAL && e->logits && b->logits_port >= 0)
        FR_TRY(take_logits(p, batch, micro));
    event->version = view.version, event->ahead = view.ahead;
    return FR_OK;
}

/* --- backward ------------------------------------------------------------------------------- */

/* Of type fr_grad_ready_fn; user: the part. */
static void step_range(void *part, size_t offset, size_t count, const float *grad)
{
    fr_part *p = part;
    uint64_t start = fr__now_ns();
    fr_store_range(p->store, offset, count, grad);
    atomic_fetch_add_explicit(&p->fused_update_ns, fr__now_ns() - start, memory_order_relaxed);
}

static void aim_grads(fr_part *p, int in_segment)
{
    const fr_engine *e = p->engine;
    fr_bound *b = &p->bound[FR_MODE_TRAIN];
    for (int i = 0; i < fr_program_n_outputs(b->program); i++) {
        fr_tap tap = b->out[i].grad;
        b->output_grads[i] = tap.route < 0 ? NULL : grad_at(e, tap, in_segment);
    }
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        const fr_in_port *in = &b->in[i];
        b->input_grads[i] = in->grad.route < 0 ? NULL : grad_out(e, in->grad, in_segment);
    }
}

/* Gradients from later readers of this stage's inputs: this stage adds its own to them. */
static fr_status copy_seeds(fr_part *p, int in_segment)
{
    fr_bound *b = &p->bound[FR_MODE_TRAIN];
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        const fr_in_port *in = &b->in[i];
        if (in->seed.route < 0) continue;
        FR_TRY(fr__device_copy(p->worker->dev, b->input_grads[i],
                               grad_at(p->engine, in->seed, in_segment), in->bytes));
    }
    return FR_OK;
}

/* The forward of a micro-batch whose activations were not kept, for the backward that follows: its
 * inputs are still there, dropout draws the same numbers, and nobody but the backward sees what
 * comes out, nor that statistics were taken a second time. */
static fr_status run_again(fr_part *p, const fr_pass *pass)
{
    fr_pass again = *pass;
    again.buffers = p->buffers + p->n_buffers * (size_t)(1 + p->n_snaps);
    return fr_program_forward(p->bound[FR_MODE_TRAIN].program, &again);
}

fr_status fr__pass_backward(fr_part *p, int64_t batch, int micro, int in_segment, int what,
                            fr_event *event)
{
    fr_engine *e = p->engine;
    fr_bound *b = &p->bound[FR_MODE_TRAIN];
    char *area = area_at(b, b->areas.of_backward[in_segment]);
    int j = micro / p->n_replicas; /* of the part's own */
    bool is_last = j == p->n_micro - 1;
    fr_view view;
    if (what & FR_GRAD_INPUT) FR_TRY(acquire_grads(p, in_segment));
    uint64_t start = fr__now_ns();
    FR_TRY(fr_store_backward(p->store, batch, j, &view));
    p->fetch_ns = fr__now_ns() - start;
    FR_TRY(aim_inputs(p, FR_MODE_TRAIN, &fr__record(e, batch)->feed, micro, in_segment, false));
    aim_outputs(b, area + b->slot_bytes);
    aim_grads(p, in_segment);
    if (what & FR_GRAD_INPUT) FR_TRY(copy_seeds(p, in_segment));
    fr_pass pass = make_pass(p, FR_MODE_TRAIN, &view, batch, micro, area);
    if (p->recomputes && (what & FR_GRAD_INPUT)) FR_TRY(run_again(p, &pass));
    if ((what & FR_GRAD_WEIGHT) && is_last && p->update_in_backward) {
        fr_store_begin(p->store, batch, fr__peers_scale(p));
        pass.grad_ready = step_range;
        pass.transient_grads = true;
        pass.user = p;
    } else if ((what & FR_GRAD_WEIGHT) && is_last && p->gather.sum && !p->gather.has_tree) {
        pass.grad_ready = fr__gather_ready;
        pass.user = p;
    }
    FR_TRY(fr_program_backward(b->program, &pass, what));
    if (what & FR_GRAD_WEIGHT) fr__gather_add(p, j);
    FR_TRY(fr_device_sync(p->worker->dev));
    if (what & FR_GRAD_INPUT) fr__record_row(p, batch, micro, 'B', &view);
    if (what & FR_GRAD_WEIGHT) fr_store_done(p->store, batch, j);
    event->version = view.version, event->ahead = view.ahead;
    return FR_OK;
}
