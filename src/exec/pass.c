/* pass.c -- one forward or backward of one micro-batch on one stage: its weights, its memory, then
 * the program. */
#include "exec/stage.h"

#include "base/bf16.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

/* --- pointers ------------------------------------------------------------------------------- */

int fr__exec_slot(const fr__exec *x, fr__mode mode, int in_segment)
{
    return x->d.slots[mode].slot_of[in_segment];
}

/* Data for an input port: where the source has it, or, if the host's memory is not the device's, in
 * the copy that the slot has from the forward to the last backward. */
static fr_status aim_data(fr__exec *x, fr__mode mode, int i, const char *from, int slot,
                          bool is_forward)
{
    fr__compiled *c = &x->compiled[mode];
    const fr__in_port *in = &c->in[i];
    c->inputs[i] = from;
    if (c->data_bytes == 0) return FR_OK;
    char *copy = x->data + (size_t)slot * c->data_bytes + in->copy_offset;
    c->inputs[i] = copy;
    return is_forward ? fr_device_upload(x->dev, copy, from, in->port->bytes) : FR_OK;
}

static fr_status aim_inputs(fr__exec *x, fr__mode mode, const fr__micro *m, bool is_forward)
{
    fr__compiled *c = &x->compiled[mode];
    const char *base[FR__ROLE_LINK] = {[FR__ROLE_INPUT] = m->feed->input,
                                       [FR__ROLE_TARGET] = m->feed->target,
                                       [FR__ROLE_LENGTH] = (const char *)m->feed->length};
    int slot = fr__exec_slot(x, mode, m->in_segment);
    for (int i = 0; i < c->n_in; i++) {
        const fr__in_port *in = &c->in[i];
        if (in->role == FR__ROLE_LINK) {
            c->inputs[i] = (const char *)m->values[in->value.link] + in->value.offset;
            continue;
        }
        if (!base[in->role])
            return fr_fail(x->ctx, FR_INVALID, "the graph's input %s is not in the data",
                           fr_graph_node(x->d.graph, in->port->node)->name);
        FR_TRY(aim_data(x, mode, i, base[in->role] + (size_t)m->micro * in->port->bytes, slot,
                        is_forward));
    }
    return FR_OK;
}

/* Memory of a micro-batch's activations. */
typedef struct home {
    char *slot;
    char *area; /* NULL: nothing is recomputed */
} home;

static home home_of(const fr__exec *x, fr__mode mode, const fr__micro *m, const int *areas)
{
    const fr__compiled *c = &x->compiled[mode];
    size_t slot = (size_t)fr__exec_slot(x, mode, m->in_segment);
    home at = {.slot = c->slots_at + slot * c->stride};
    if (c->areas.n > 0) at.area = c->areas.at + (size_t)areas[m->in_segment] * c->areas.stride;
    return at;
}

static void aim_outputs(fr__compiled *c, const home *at)
{
    for (int i = 0; i < c->n_out; i++) c->outputs[i] = at->slot + c->slot_bytes + c->out[i].offset;
}

/* Other stages may read the outputs of a slot at any time, so recomputed ones are beside them. */
static void aim_recomputed(fr__compiled *c, const home *at)
{
    aim_outputs(c, at);
    for (int i = 0; i < c->n_out && at->area; i++)
        if (c->out[i].port->recomputed)
            c->outputs[i] = at->area + c->area_bytes + c->out[i].area_offset;
}

static void aim_grads(fr__exec *x, const fr__micro *m)
{
    fr__compiled *c = &x->compiled[FR_MODE_TRAIN];
    for (int i = 0; i < c->n_out; i++) {
        fr__tensor_ref grad = c->out[i].grad;
        c->output_grads[i] = grad.link < 0 ? NULL : (const char *)m->grads[grad.link] + grad.offset;
    }
    for (int i = 0; i < c->n_in; i++) {
        fr__tensor_ref grad = c->in[i].grad;
        c->input_grads[i] = grad.link < 0 ? NULL : (char *)m->sent_grads[grad.link] + grad.offset;
    }
}

static fr_pass make_pass(fr__exec *x, fr__mode mode, const fr_view *view, const fr__micro *m,
                         const home *at)
{
    const fr__compiled *c = &x->compiled[mode];
    bool adds = false;
    float *grads =
        mode == FR_MODE_TRAIN ? fr__reduction_block(x, m->micro / x->d.n_replicas, &adds) : NULL;
    return (fr_pass){.weights = view->weights,
                     .grads = grads,
                     .buffers = x->buffers,
                     .slot = at->slot,
                     .area = at->area,
                     .workspace = x->d.device->workspace,
                     .inputs = c->inputs,
                     .outputs = c->outputs,
                     .output_grads = c->output_grads,
                     .input_grads = c->input_grads,
                     .weights_id = view->id,
                     .seed = x->d.seed,
                     .step = m->batch,
                     .first_sample = (int64_t)m->micro * x->d.micro_batch,
                     .loss_scale = 1 / (float)(m->feed->n_targets > 0 ? m->feed->n_targets : 1),
                     .accumulate = adds};
}

/* --- forward -------------------------------------------------------------------------------- */

/* Running statistics as they were before the mini-batch, in case it diverges. */
static fr_status snap_buffers(fr__exec *x, int64_t batch)
{
    x->begun = batch + 1;
    if (x->n_buffers == 0) return FR_OK;
    float *snap = x->buffers + x->n_buffers * (size_t)(1 + batch % x->n_snaps);
    return fr__device_copy(x->dev, snap, x->buffers, x->n_buffers * sizeof(float));
}

/* For an evaluation. Without a store the newest weights change rarely. */
static fr_status fetch_newest(fr__exec *x, fr_view *view)
{
    *view = (fr_view){.weights = x->weights};
    if (x->store) FR_TRY(fr_store_look(x->store, view));
    view->id = 0; /* programs for training and evaluation derive other things from weights */
    if (x->store || x->has_image || x->weight_type == FR_F32) return FR_OK;
    x->has_image = true;
    return fr__device_convert(x->dev, x->weight_type, x->weights, FR_F32, x->newest, x->n_weights);
}

static fr_status fetch_forward(fr__exec *x, fr__mode mode, const fr__micro *m, fr_view *view)
{
    if (mode != FR_MODE_TRAIN) return fetch_newest(x, view);
    uint64_t start = fr__now_ns();
    if (m->fills) fr_store_drained(x->store);
    FR_TRY(fr_store_forward(x->store, m->batch, m->micro / x->d.n_replicas, view));
    FR_TRY(fr__exec_apply_loan(x, m->batch, view));
    x->fetch_ns = fr__now_ns() - start;
    return FR_OK;
}

fr_status fr__exec_forward(fr__exec *x, fr__mode mode, const fr__micro *m, fr_view *view)
{
    fr__compiled *c = &x->compiled[mode];
    FR_TRY(fetch_forward(x, mode, m, view));
    FR_TRY(aim_inputs(x, mode, m, true));
    home at = home_of(x, mode, m, c->areas.of_forward);
    aim_outputs(c, &at);
    if (mode == FR_MODE_TRAIN && m->micro < x->d.n_replicas) FR_TRY(snap_buffers(x, m->batch));
    fr_pass pass = make_pass(x, mode, view, m, &at);
    FR_TRY(fr_program_forward(c->program, &pass));
    c->forward_done[fr__exec_slot(x, mode, m->in_segment)] = fr__device_mark(x->dev);
    return FR_OK;
}

fr_status fr__exec_wait_forward(fr__exec *x, fr__mode mode, int in_segment)
{
    return fr__device_wait(x->dev,
                           x->compiled[mode].forward_done[fr__exec_slot(x, mode, in_segment)]);
}

fr_status fr__exec_wait_backward(fr__exec *x, int in_segment)
{
    const fr__compiled *c = &x->compiled[FR_MODE_TRAIN];
    return fr__device_wait(x->dev, c->backward_done[fr__exec_slot(x, FR_MODE_TRAIN, in_segment)]);
}

fr_status fr__exec_spoil_output(fr__exec *x, fr__mode mode)
{
    const fr__compiled *c = &x->compiled[mode];
    const fr_dtype type = c->out[0].port->dtype;
    const uint16_t bf16 = fr__bf16_of(NAN);
    const float f32 = NAN;
    const void *nan = type == FR_BF16 ? (const void *)&bf16 : &f32;
    return fr_device_upload(x->dev, c->outputs[0], nan, fr_dtype_bytes(type));
}

bool fr__exec_has_loss(const fr__exec *x, fr__mode mode)
{
    return x->compiled[mode].loss_port >= 0;
}

fr_status fr__exec_add_loss(fr__exec *x, fr__mode mode, fr_tally *tally)
{
    const fr__compiled *c = &x->compiled[mode];
    const float *row = c->loss_rows;
    FR_TRY(fr_device_download(x->dev, c->loss_rows, c->outputs[c->loss_port],
                              c->out[c->loss_port].port->bytes));
    for (int i = 0; i < x->d.micro_batch; i++, row += 3) {
        tally->loss += (double)row[0];
        tally->targets += (int64_t)row[1];
        if (c->counts_errors)
            tally->error += (double)row[2];
        else
            tally->correct += (int64_t)row[2];
    }
    return FR_OK;
}

bool fr__exec_has_logits(const fr__exec *x)
{
    return x->compiled[FR_MODE_EVAL].program && x->compiled[FR_MODE_EVAL].logits_port >= 0;
}

static size_t n_logits(const fr__exec *x)
{
    const fr__compiled *c = &x->compiled[FR_MODE_EVAL];
    const fr_port *port = c->out[c->logits_port].port;
    return port->bytes / fr_dtype_bytes(port->dtype);
}

size_t fr__exec_logits_bytes(const fr__exec *x) { return n_logits(x) * sizeof(float); }

/* bf16 goes to the end of the room: a float is written behind all that is still to be read. */
fr_status fr__exec_read_logits(fr__exec *x, void *host)
{
    const fr__compiled *c = &x->compiled[FR_MODE_EVAL];
    const fr_port *port = c->out[c->logits_port].port;
    const size_t n = n_logits(x);
    float *to = host;
    char *from = (char *)(to + n) - port->bytes;
    FR_TRY(fr_device_download(x->dev, from, c->outputs[c->logits_port], port->bytes));
    for (size_t i = 0; i < n && port->dtype == FR_BF16; i++) {
        uint16_t bf16;
        memcpy(&bf16, from + i * sizeof bf16, sizeof bf16);
        to[i] = fr__bf16_value(bf16);
    }
    return FR_OK;
}

/* --- backward ------------------------------------------------------------------------------- */

/* A fr_grad_ready_fn; user: the executor. */
static void step_range(void *exec, size_t offset, size_t count, const float *grad)
{
    fr__exec *x = exec;
    uint64_t start = fr__now_ns();
    fr_store_range(x->store, offset, count, grad);
    atomic_fetch_add_explicit(&x->fused_update_ns, fr__now_ns() - start, memory_order_relaxed);
}

/* Gradients from later readers of this stage's inputs: this stage adds its own to them. */
static fr_status copy_seeds(fr__exec *x, const fr__micro *m)
{
    fr__compiled *c = &x->compiled[FR_MODE_TRAIN];
    uint64_t start = fr__now_ns();
    x->seed_ns = 0;
    for (int i = 0; i < c->n_in; i++) {
        fr__tensor_ref seed = c->in[i].seed;
        if (seed.link < 0) continue;
        FR_TRY(fr__device_copy(x->dev, c->input_grads[i],
                               (const char *)m->grads[seed.link] + seed.offset,
                               c->in[i].port->bytes));
        x->seed_ns = fr__now_ns() - start;
    }
    return FR_OK;
}

/* The last weight gradient of a mini-batch: gradients are used as they become final. */
static void follow_grads(fr__exec *x, fr_pass *pass, int64_t batch)
{
    if (x->d.update_in_backward) {
        fr_store_begin(x->store, batch, fr__exec_grad_scale(x));
        pass->grad_ready = step_range;
        pass->transient_grads = true;
        pass->user = x;
    } else if (x->reduction.sum && !x->reduction.has_tree) {
        pass->grad_ready = fr__reduction_ready;
        pass->user = x;
    }
}

static fr_status fetch_backward(fr__exec *x, const fr__micro *m, fr_view *view)
{
    uint64_t start = fr__now_ns();
    FR_TRY(fr_store_backward(x->store, m->batch, m->micro / x->d.n_replicas, view));
    FR_TRY(fr__exec_apply_loan(x, m->batch, view));
    x->fetch_ns = fr__now_ns() - start;
    return FR_OK;
}

/* Inputs and kept values of the micro-batch are still there, and dropout draws the same numbers.
 * Running statistics are updated in a copy, since the forward has updated them already. */
fr_status fr__exec_recompute(fr__exec *x, const fr__micro *m, fr_view *view)
{
    fr__compiled *c = &x->compiled[FR_MODE_TRAIN];
    home at = home_of(x, FR_MODE_TRAIN, m, c->areas.of_backward);
    FR_TRY(fetch_backward(x, m, &x->again));
    *view = x->again;
    FR_TRY(aim_inputs(x, FR_MODE_TRAIN, m, false));
    aim_recomputed(c, &at);
    fr_pass pass = make_pass(x, FR_MODE_TRAIN, view, m, &at);
    pass.buffers = x->buffers + x->n_buffers * (size_t)(1 + x->n_snaps);
    return fr_program_recompute(c->program, &pass);
}

fr_status fr__exec_backward(fr__exec *x, const fr__micro *m, int what, fr_view *view)
{
    fr__compiled *c = &x->compiled[FR_MODE_TRAIN];
    home at = home_of(x, FR_MODE_TRAIN, m, c->areas.of_backward);
    int j = m->micro / x->d.n_replicas; /* of the executor's own */
    x->fetch_ns = 0;
    if (at.area && (what & FR_GRAD_INPUT)) {
        *view = x->again;
        FR_TRY(fr__exec_apply_loan(x, m->batch, view)); /* they are still there, or come again */
    } else {
        FR_TRY(fetch_backward(x, m, view));
    }
    FR_TRY(aim_inputs(x, FR_MODE_TRAIN, m, false));
    aim_recomputed(c, &at);
    aim_grads(x, m);
    if (what & FR_GRAD_INPUT) FR_TRY(copy_seeds(x, m));
    fr_pass pass = make_pass(x, FR_MODE_TRAIN, view, m, &at);
    if ((what & FR_GRAD_WEIGHT) && j == x->d.n_micro - 1) follow_grads(x, &pass, m->batch);
    FR_TRY(fr_program_backward(c->program, &pass, what));
    if (what & FR_GRAD_WEIGHT) fr__reduction_add(x, j);
    c->backward_done[fr__exec_slot(x, FR_MODE_TRAIN, m->in_segment)] = fr__device_mark(x->dev);
    if (what & FR_GRAD_WEIGHT) fr_store_done(x->store, m->batch, j);
    return FR_OK;
}

/* --- times and calls ------------------------------------------------------------------------ */

uint64_t fr__exec_fetch_ns(const fr__exec *x) { return x->fetch_ns; }
uint64_t fr__exec_seed_ns(const fr__exec *x) { return x->seed_ns; }

uint64_t fr__exec_take_fused_ns(fr__exec *x)
{
    return atomic_exchange(&x->fused_update_ns, 0) / (uint64_t)fr_device_n_threads(x->dev);
}

void fr__exec_begin_call(fr__exec *x, int64_t first)
{
    x->begun = first;
    if (fr_store_version(x->store) != first) fr_store_renumber(x->store, first);
}

/* Forwards beyond the limit have changed running statistics and hold weights in the store. */
fr_status fr__exec_undo(fr__exec *x, int64_t limit)
{
    fr_store_abandon(x->store);
    if (x->begun <= limit || x->n_buffers == 0) return FR_OK;
    const float *snap = x->buffers + x->n_buffers * (size_t)(1 + limit % x->n_snaps);
    return fr__device_copy(x->dev, x->buffers, snap, x->n_buffers * sizeof(float));
}
