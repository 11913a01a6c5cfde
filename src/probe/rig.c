/* rig.c -- mini-batches of one stage, one forward, one backward, as the engine's passes make them:
 * weights from a store, as many micro-batches in flight as the context says, each with memory of
 * its own that is as cold as in the pipeline, the update fused into the last backward or after it.
 */
#include "probe/rig.h"

#include "backend/device.h"
#include "base/alloc.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

enum { N_GRAD_BUFFERS = 2 }; /* that come from above, in turn */

/* --- memory ----------------------------------------------------------------------------------- */

static fr_status take(fr_rig *r, size_t bytes, const char *what, void **out)
{
    *out = NULL;
    if (bytes == 0) return FR_OK;
    if (r->n_blocks == FR_RIG_BLOCKS)
        return fr_fail(r->ctx, FR_INTERNAL, "a probe holds more than %d blocks", FR_RIG_BLOCKS);
    FR_TRY(fr_device_alloc(r->dev, bytes, what, out));
    r->blocks[r->n_blocks].at = *out;
    r->blocks[r->n_blocks++].bytes = bytes;
    return FR_OK;
}

static fr_status take_floats(fr_rig *r, size_t n, const char *what, float **out)
{
    void *at;
    FR_TRY(take(r, n * sizeof(float), what, &at));
    *out = at;
    return FR_OK;
}

static fr_status no_memory(const fr_rig *r) { return fr__no_memory(r->ctx, 0, "a probe"); }

static const fr_policy *policy_of(const fr_rig *r)
{
    return r->d->policy ? r->d->policy : fr_policy_find("live");
}

/* What the blocks of a rig come to; inputs and gradients of outputs are small beside them. */
static size_t count_bytes(const fr_rig *r)
{
    const fr_program_sizes *sizes = fr_program_sizes_of(r->program);
    size_t n_copies = (size_t)r->n_weight_blocks + (size_t)r->d->optimizer->n_state +
                      (policy_of(r)->course == FR_COURSE_DRIFT);
    size_t floats = n_copies * sizes->n_weights + sizes->n_grads + sizes->n_buffers;
    return floats * sizeof(float) + (size_t)r->n_slots * sizes->slot_bytes +
           sizes->workspace_bytes + sizes->cache_bytes;
}

static fr_status check_room(const fr_rig *r, fr_rig_room *room)
{
    uint64_t own = count_bytes(r), wanted = atomic_fetch_add(&room->wanted, own) + own;
    if (wanted <= room->left) return FR_OK;
    return fr_fail(
        r->ctx, FR_NO_MEMORY,
        "measuring nodes %d to %d takes %.3g GB, all that is measured at once %.3g GB at "
        "least, and %.3g GB are available; use fewer workers or smaller micro-batches, "
        "or a profile that was made on a larger machine",
        r->stage.first, r->stage.last - 1, (double)own * 1e-9, (double)wanted * 1e-9,
        (double)room->left * 1e-9);
}

static fr_status take_weights(fr_rig *r)
{
    const fr_program_sizes *sizes = fr_program_sizes_of(r->program);
    size_t stride = fr__align_up(sizes->n_weights * sizeof(float)) / sizeof(float);
    const fr_policy *policy = policy_of(r);
    FR_TRY(take_floats(r, (size_t)r->n_weight_blocks * stride, "weights", &r->weights));
    FR_TRY(take_floats(r, sizes->n_grads, "gradients", &r->grads));
    FR_TRY(take_floats(r, sizes->n_buffers, "running statistics", &r->buffers));
    fr_store_desc s = {.policy = policy,
                       .context = r->context,
                       .n_blocks = r->n_weight_blocks,
                       .device = r->dev,
                       .optimizer = r->d->optimizer,
                       .options = r->d->options,
                       .n = sizes->n_weights,
                       .blocks = r->weights,
                       .stride = stride};
    for (int i = 0; i < r->d->optimizer->n_state; i++) {
        FR_TRY(take_floats(r, stride, r->d->optimizer->state_names[i], &r->state[i]));
        s.state[i] = r->state[i];
    }
    if (policy->course == FR_COURSE_DRIFT) FR_TRY(take_floats(r, stride, "drift", &r->drift));
    s.drift = r->drift;
    s.options.lr = 1e-6; /* dummy data teaches nothing: the weights stay about where they are */
    fr_lr_defaults(&s.lr);
    return fr_store_create(r->ctx, &s, &r->store);
}

static fr_status init_params(fr_rig *r)
{
    const fr_graph *g = r->d->graph;
    size_t n_weights = fr_program_sizes_of(r->program)->n_weights;
    for (int i = 0; i < fr_program_n_placements(r->program); i++) {
        const fr_placement *at = fr_program_placement(r->program, i);
        const fr_param *param = fr_graph_param(g, at->param);
        if (!param->is_buffer && at->offset >= n_weights) continue; /* tied: no values of its own */
        float *plain = FR_NEW_ARRAY(float, fr_shape_count(&param->shape));
        if (!plain) return no_memory(r);
        const fr_param *owner = param->tied_to >= 0 ? fr_graph_param(g, param->tied_to) : param;
        if (owner->init.kind == FR_INIT_ZEROS || owner->init.kind == FR_INIT_ONES)
            fr_graph_init_param(g, at->param, 1, plain);
        else /* as large as a run's, and made faster */
            fr__dummy_noise(plain, (size_t)fr_shape_count(&param->shape), (float)owner->init.scale);
        fr_status status = fr_program_write_param(
            r->program, param->is_buffer ? r->buffers : r->weights, i, plain);
        fr__free(plain);
        if (status != FR_OK) return status;
        if (!param->is_buffer) r->n_updated += at->count;
    }
    return FR_OK;
}

/* Dummy data for an input node, or, node -1, small numbers for a gradient, on the device. */
static fr_status fill(fr_rig *r, void *to, size_t bytes, int node)
{
    void *host = fr__alloc_raw(bytes);
    if (!host) return no_memory(r);
    if (node < 0)
        fr__dummy_noise(host, bytes / sizeof(float), 1e-3f);
    else
        fr__dummy_fill(r->d->graph, node, r->d->batch, host);
    fr_status status = fr_device_upload(r->dev, to, host, bytes);
    fr__free(host);
    return status;
}

static fr_status take_inputs(fr_rig *r)
{
    int n = fr_program_n_inputs(r->program);
    size_t bytes = 0, grad_bytes = 0, seed_bytes = 0;
    for (int i = 0; i < n; i++) {
        const fr_port *port = fr_program_input(r->program, i);
        bytes += fr__align_up(port->bytes);
        if (port->has_grad) grad_bytes += fr__align_up(port->bytes);
        if (port->has_seed) seed_bytes += fr__align_up(port->bytes);
    }
    void *at, *grads, *seeds;
    FR_TRY(take(r, bytes * (size_t)r->n_slots, "inputs", &at));
    FR_TRY(take(r, grad_bytes, "gradients of inputs", &grads));
    FR_TRY(take(r, seed_bytes, "gradients of later stages", &seeds));
    for (int k = 0; k < r->n_slots * n; k++) {
        const fr_port *port = fr_program_input(r->program, k % n);
        FR_TRY(fill(r, at, port->bytes, port->node));
        r->inputs[k] = at;
        at = (char *)at + fr__align_up(port->bytes);
    }
    for (int i = 0; i < n; i++) {
        const fr_port *port = fr_program_input(r->program, i);
        if (port->has_grad) {
            r->input_grads[i] = grads;
            grads = (char *)grads + fr__align_up(port->bytes);
        }
        if (port->has_seed) {
            FR_TRY(fill(r, seeds, port->bytes, -1));
            r->seeds[i] = seeds;
            seeds = (char *)seeds + fr__align_up(port->bytes);
        }
    }
    return FR_OK;
}

/* Slots with the outputs behind them, and gradients of the outputs. */
static fr_status take_slots(fr_rig *r)
{
    int n = fr_program_n_outputs(r->program);
    const fr_program_sizes *sizes = fr_program_sizes_of(r->program);
    size_t slot_bytes = fr__align_up(sizes->slot_bytes), bytes = 0, grad_bytes = 0;
    for (int i = 0; i < n; i++) {
        const fr_port *port = fr_program_output(r->program, i);
        bytes += fr__align_up(port->bytes);
        if (port->has_grad) grad_bytes += fr__align_up(port->bytes);
    }
    void *at;
    r->slot_stride = slot_bytes + bytes;
    FR_TRY(take(r, (size_t)r->n_slots * r->slot_stride, "activations", &at));
    r->slots = at;
    FR_TRY(take(r, sizes->workspace_bytes, "workspace", &at));
    r->workspace = at;
    FR_TRY(take(r, N_GRAD_BUFFERS * grad_bytes, "gradients of outputs", &at));
    for (int k = 0; k < r->n_slots; k++) {
        char *out = r->slots + (size_t)k * r->slot_stride + slot_bytes;
        for (int i = 0; i < n; i++) {
            r->outputs[k * n + i] = out;
            out += fr__align_up(fr_program_output(r->program, i)->bytes);
        }
    }
    for (int k = 0; k < N_GRAD_BUFFERS * n; k++) {
        const fr_port *port = fr_program_output(r->program, k % n);
        if (!port->has_grad) continue;
        FR_TRY(fill(r, at, port->bytes, -1));
        r->output_grads[k] = at;
        at = (char *)at + fr__align_up(port->bytes);
    }
    return FR_OK;
}

static fr_status take_lists(fr_rig *r)
{
    int n_in = fr_program_n_inputs(r->program), n_out = fr_program_n_outputs(r->program);
    r->inputs = FR_ARENA_ARRAY(&r->arena, const void *, r->n_slots *n_in + 1);
    r->outputs = FR_ARENA_ARRAY(&r->arena, void *, r->n_slots *n_out + 1);
    r->output_grads = FR_ARENA_ARRAY(&r->arena, const void *, N_GRAD_BUFFERS *n_out + 1);
    r->input_grads = FR_ARENA_ARRAY(&r->arena, void *, n_in + 1);
    r->seeds = FR_ARENA_ARRAY(&r->arena, const void *, n_in + 1);
    r->times = FR_ARENA_ARRAY(&r->arena, fr_node_time, fr_graph_n_nodes(r->d->graph));
    r->last_s = FR_ARENA_ARRAY(&r->arena, double, 2 * r->d->n_micro);
    bool has_all = r->inputs && r->outputs && r->output_grads && r->input_grads && r->seeds &&
                   r->times && r->last_s;
    return has_all ? FR_OK : no_memory(r);
}

/* --- life ------------------------------------------------------------------------------------- */

static void take_context(fr_rig *r)
{
    r->context = r->d->context;
    if (r->context.n_stages < 1) r->context.n_stages = 1;
    r->context.n_micro = r->d->n_micro;
    r->n_slots = r->context.n_slots = r->context.lead + 1;
}

/* Blocks of weights that the passes of a rig need, by a store that only counts: as many
 * mini-batches as it takes until the starting weights are gone. */
static fr_status count_blocks(fr_rig *r)
{
    fr_store *store;
    int lead = r->context.lead, n = r->context.n_micro;
    int total = (2 * ((lead + n - 1) / n) + 3) * n;
    fr_view view;
    FR_TRY(fr_store_create(r->ctx, &(fr_store_desc){.policy = policy_of(r), .context = r->context},
                           &store));
    fr_status status = FR_OK;
    for (int i = 0; i < total && status == FR_OK; i++) {
        int back = i - lead;
        status = fr_store_forward(store, i / n, i % n, &view);
        if (back < 0 || status != FR_OK) continue;
        status = fr_store_backward(store, back / n, back % n, &view);
        fr_store_done(store, back / n, back % n);
        if (back % n != n - 1 || status != FR_OK) continue;
        fr_store_begin(store, back / n, 1);
        status = fr_store_end(store, 0);
    }
    r->n_weight_blocks = fr_store_n_blocks(store);
    fr_store_free(store);
    return status;
}

static fr_status set_up(fr_rig *r, fr_rig_room *room)
{
    const fr_probe_desc *d = r->d;
    const fr_policy *policy = policy_of(r);
    if (d->batch < 1 || d->n_micro < 1 || !d->optimizer || !d->backend)
        return fr_fail(r->ctx, FR_INVALID,
                       "a probe of %d micro-batches of %d samples: at least one of each, a backend "
                       "and an optimizer are needed",
                       d->n_micro, d->batch);
    take_context(r);
    const char *wrong = policy->check ? policy->check(&r->context) : NULL;
    if (wrong) return fr_fail(r->ctx, FR_INVALID, "weights %s: %s", policy->name, wrong);
    FR_TRY(count_blocks(r));
    fr_device_desc device = {.n_threads = d->n_threads, .first_cpu = d->first_cpu};
    FR_TRY(fr_device_open(r->ctx, d->backend, &device, &r->dev));
    fr_program_desc program = {.graph = d->graph,
                               .stage = d->stage,
                               .batch = d->batch,
                               .training = true,
                               .split_backward = d->split_backward,
                               .extra_output = -1,
                               .is_plan = true};
    FR_TRY(fr_program_create(r->ctx, r->dev, &program, &r->program));
    FR_TRY(check_room(r, room));
    FR_TRY(fr_program_reserve(r->program));
    const fr_program_sizes *sizes = fr_program_sizes_of(r->program);
    r->update_in_backward = d->update_in_backward && sizes->n_grads == sizes->n_weights;
    FR_TRY(take_lists(r));
    FR_TRY(take_weights(r));
    FR_TRY(init_params(r));
    FR_TRY(take_inputs(r));
    FR_TRY(take_slots(r));
    fr_program_time(r->program, r->times);
    return FR_OK;
}

fr_status fr__rig_create(fr_ctx *ctx, const fr_probe_desc *d, fr_rig_room *room, fr_rig **out)
{
    *out = NULL;
    fr_rig *r = FR_NEW(fr_rig);
    if (!r) return fr__no_memory(ctx, sizeof *r, "a probe");
    r->ctx = ctx;
    r->d = d;
    r->stage = d->stage ? *d->stage : (fr_stage){.last = fr_graph_n_nodes(d->graph)};
    fr_status status = set_up(r, room);
    if (status == FR_OK)
        *out = r;
    else
        fr__rig_free(r);
    return status;
}

void fr__rig_free(fr_rig *r)
{
    if (!r) return;
    fr_store_free(r->store);
    for (int i = 0; i < r->n_blocks; i++)
        fr_device_release(r->dev, r->blocks[i].at, r->blocks[i].bytes);
    fr_program_free(r->program);
    fr_device_close(r->dev);
    fr__arena_fini(&r->arena);
    fr__free(r);
}

/* --- passes ----------------------------------------------------------------------------------- */

static double since(uint64_t start) { return 1e-9 * (double)(fr__now_ns() - start); }

/* What the store does is left out: it may differ from one micro-batch to the next by right. */
static void note_time(fr_rig *r, bool is_backward, int micro, double seconds)
{
    double *last = &r->last_s[is_backward * r->d->n_micro + micro];
    if (*last > 0) r->pass_s += seconds, r->change_s += fabs(seconds - *last);
    *last = seconds;
}

static fr_pass make_pass(fr_rig *r, const fr_view *view, int64_t nth)
{
    int slot = (int)(nth % r->n_slots), n_micro = r->d->n_micro;
    int64_t micro = nth % n_micro, batch = nth / n_micro;
    return (fr_pass){.weights = view->weights,
                     .grads = r->grads,
                     .buffers = r->buffers,
                     .slot = r->slots + (size_t)slot * r->slot_stride,
                     .workspace = r->workspace,
                     .inputs = r->inputs + slot * fr_program_n_inputs(r->program),
                     .outputs = r->outputs + slot * fr_program_n_outputs(r->program),
                     .output_grads =
                         r->output_grads + nth % N_GRAD_BUFFERS * fr_program_n_outputs(r->program),
                     .input_grads = r->input_grads,
                     .weights_id = view->id,
                     .seed = 1,
                     .step = batch,
                     .first_sample = micro * r->d->batch,
                     .loss_scale = 1 / ((float)r->d->batch * (float)n_micro),
                     .accumulate = micro > 0};
}

static fr_status forward(fr_rig *r)
{
    int64_t nth = r->n_forward++;
    uint64_t start = fr__now_ns();
    fr_view view;
    int micro = (int)(nth % r->d->n_micro);
    FR_TRY(fr_store_forward(r->store, nth / r->d->n_micro, micro, &view));
    r->fetch_forward_s += since(start);
    fr_pass pass = make_pass(r, &view, nth);
    start = fr__now_ns();
    FR_TRY(fr_program_forward(r->program, &pass));
    note_time(r, false, micro, since(start));
    return FR_OK;
}

/* Of type fr_grad_ready_fn; user: the rig. */
static void step_range(void *rig, size_t offset, size_t count, const float *grad)
{
    fr_store_range(((fr_rig *)rig)->store, offset, count, grad);
}

/* What later readers of the inputs say, to which the stage adds its own. */
static fr_status copy_seeds(fr_rig *r)
{
    uint64_t start = fr__now_ns();
    bool has_any = false;
    for (int i = 0; i < fr_program_n_inputs(r->program); i++) {
        if (!r->seeds[i]) continue;
        FR_TRY(fr__device_copy(r->dev, r->input_grads[i], r->seeds[i],
                               fr_program_input(r->program, i)->bytes));
        has_any = true;
    }
    if (has_any) r->times[r->stage.first].back_input += since(start);
    return FR_OK;
}

static fr_status sweep(fr_rig *r, int64_t batch)
{
    const fr_program_sizes *sizes = fr_program_sizes_of(r->program);
    if (!r->update_in_backward) {
        fr_program_sum_ties(r->program, r->grads);
        fr_store_begin(r->store, batch, 1);
        fr_store_range(r->store, 0, sizes->n_weights, r->grads);
    }
    return fr_store_end(r->store, r->update_in_backward ? r->n_updated : sizes->n_weights);
}

static fr_status backward(fr_rig *r)
{
    int64_t nth = r->n_backward++, batch = nth / r->d->n_micro;
    int micro = (int)(nth % r->d->n_micro);
    bool is_last = micro == r->d->n_micro - 1;
    uint64_t start = fr__now_ns();
    fr_view view;
    FR_TRY(fr_store_backward(r->store, batch, micro, &view));
    r->fetch_backward_s += since(start);
    start = fr__now_ns();
    fr_pass pass = make_pass(r, &view, nth);
    if (is_last && r->update_in_backward) {
        fr_store_begin(r->store, batch, 1);
        pass.grad_ready = step_range;
        pass.transient_grads = true;
        pass.user = r;
    }
    r->store_s += since(start);
    start = fr__now_ns();
    FR_TRY(copy_seeds(r));
    if (r->d->split_backward) {
        FR_TRY(fr_program_backward(r->program, &pass, FR_GRAD_INPUT));
        FR_TRY(fr_program_backward(r->program, &pass, FR_GRAD_WEIGHT));
    } else {
        FR_TRY(fr_program_backward(r->program, &pass, FR_GRAD_BOTH));
    }
    note_time(r, true, micro, since(start));
    start = fr__now_ns();
    fr_store_done(r->store, batch, micro);
    if (is_last) FR_TRY(sweep(r, batch));
    r->store_s += since(start);
    return FR_OK;
}

fr_status fr__rig_step(fr_rig *r)
{
    int64_t last = (r->n_backward / r->d->n_micro + 1) * r->d->n_micro;
    memset(r->times, 0, (size_t)fr_graph_n_nodes(r->d->graph) * sizeof *r->times);
    r->fetch_forward_s = r->fetch_backward_s = r->store_s = 0;
    while (r->n_backward < last) {
        while (r->n_forward - r->n_backward < r->n_slots) FR_TRY(forward(r));
        FR_TRY(backward(r));
    }
    return FR_OK;
}
