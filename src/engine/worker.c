/* worker.c -- a worker's life: programs bound to data, micro-batches in order, one update.
 *
 * The update normally rides on the last backward: as soon as the gradient of a parameter is final
 * its weights are stepped, while the gradient is still in cache. That is not possible where the
 * whole gradient must be seen first (clipping, its norm, tied parameters) or is asked for
 * afterwards; then one sweep follows the last backward. */
#include "engine/worker.h"

#include "base/thread.h"

#include <math.h>
#include <string.h>

/* The role of an INPUT node, by its use: the loss reads the target, and operators over time take
 * the length as their second input. */
static fr_role role_of(const fr_graph *g, int node)
{
    for (int i = node + 1; i < fr_graph_n_nodes(g); i++) {
        const fr_node *user = fr_graph_node(g, i);
        if (user->n_inputs < 2 || user->inputs[1] != node) continue;
        if (user->op == FR_OP_CROSS_ENTROPY) return FR_ROLE_TARGET;
        if (user->op == FR_OP_ATTENTION || user->op == FR_OP_MEAN_TIME ||
            user->op == FR_OP_LAST_TIME)
            return FR_ROLE_LENGTH;
    }
    return FR_ROLE_INPUT;
}

static fr_status bind_inputs(fr_worker *w, fr_bound *b)
{
    static const char *const names[FR_ROLE_COUNT] = {"data", "target", "length"};
    const fr_graph *g = w->desc.graph;
    int n = fr_program_n_inputs(b->program), n_of[FR_ROLE_COUNT] = {0};
    b->roles = FR_ARENA_ARRAY(&w->arena, fr_role, n + 1);
    b->inputs = FR_ARENA_ARRAY(&w->arena, const void *, n + 1);
    if (!b->roles || !b->inputs) return fr__no_memory(w->ctx, (size_t)n, "a worker");
    for (int i = 0; i < n; i++) {
        const fr_node *node = fr_graph_node(g, fr_program_input(b->program, i)->node);
        if (node->op != FR_OP_INPUT)
            return fr_fail(w->ctx, FR_UNSUPPORTED,
                           "stage needs %s from another stage: one worker runs whole graphs",
                           node->name);
        b->roles[i] = role_of(g, fr_program_input(b->program, i)->node);
        if (++n_of[b->roles[i]] > 1)
            return fr_fail(w->ctx, FR_UNSUPPORTED, "input %s: the graph has a %s input already",
                           node->name, names[b->roles[i]]);
    }
    return FR_OK;
}

static fr_status bind_outputs(fr_worker *w, fr_bound *b)
{
    int n = fr_program_n_outputs(b->program);
    int loss = fr_graph_find_op(w->desc.graph, FR_OP_CROSS_ENTROPY);
    b->outputs = FR_ARENA_ARRAY(&w->arena, void *, n + 1);
    if (!b->outputs) return fr__no_memory(w->ctx, (size_t)n, "a worker");
    b->loss_port = loss < 0 ? -1 : fr_program_find_output(b->program, loss);
    b->logits_port = fr_program_find_output(b->program, w->desc.logits_node);
    if (b->loss_port < 0)
        return fr_fail(w->ctx, FR_INVALID, "graph %s ends in no cross_entropy: nothing to train",
                       fr_graph_name(w->desc.graph));
    return FR_OK;
}

static fr_status make_program(fr_worker *w, bool training, fr_bound *b)
{
    fr_program_desc d = {.graph = w->desc.graph,
                         .stage = w->desc.stage,
                         .batch = w->desc.micro_batch,
                         .training = training,
                         .extra_output = training ? -1 : w->desc.logits_node};
    FR_TRY(fr_program_create(w->ctx, w->dev, &d, &b->program));
    FR_TRY(bind_inputs(w, b));
    return bind_outputs(w, b);
}

/* Every parameter's placement, a tied one's being its owner's. */
static fr_status find_placements(fr_worker *w)
{
    const fr_graph *g = w->desc.graph;
    int n = fr_graph_n_params(g);
    w->placement_of = FR_ARENA_ARRAY(&w->arena, int, n + 1);
    if (!w->placement_of) return fr__no_memory(w->ctx, (size_t)n, "a worker");
    for (int i = 0; i < n; i++) w->placement_of[i] = -1;
    for (int i = 0; i < fr_program_n_placements(w->layout); i++)
        w->placement_of[fr_program_placement(w->layout, i)->param] = i;
    for (int i = 0; i < n; i++) {
        int owner = fr_graph_param(g, i)->tied_to;
        if (owner >= 0 && w->placement_of[owner] >= 0) w->placement_of[i] = w->placement_of[owner];
    }
    return FR_OK;
}

static void place_outputs(fr_worker *w, fr_bound *b)
{
    size_t at = 0;
    for (int i = 0; b->program && i < fr_program_n_outputs(b->program); i++) {
        b->outputs[i] = w->io + at;
        at += fr__align_up(fr_program_output(b->program, i)->bytes);
    }
}

static fr_status check_desc(fr_ctx *ctx, const fr_worker_desc *d)
{
    if (d->micro_batch < 1 || d->n_micro < 1 || d->n_slots < 1)
        return fr_fail(ctx, FR_INVALID,
                       "worker: micro-batch of %d, %d of them, %d slots; all must be 1 or more",
                       d->micro_batch, d->n_micro, d->n_slots);
    if (d->evaluate_only) return FR_OK;
    if (!d->optimizer) return fr_fail(ctx, FR_INVALID, "worker: no optimizer given");
    if (!(d->clip_norm >= 0)) return fr_fail(ctx, FR_INVALID, "clip_norm must be 0 or more");
    const char *wrong = d->optimizer->check(&d->options);
    if (wrong) return fr_fail(ctx, FR_INVALID, "optimizer %s: %s", d->optimizer->name, wrong);
    return FR_OK;
}

static fr_status build(fr_worker *w)
{
    FR_TRY(fr_device_open(w->ctx, w->desc.backend, &w->desc.device, &w->dev));
    if (!w->desc.evaluate_only) FR_TRY(make_program(w, true, &w->train));
    FR_TRY(make_program(w, false, &w->eval));
    w->layout = w->train.program ? w->train.program : w->eval.program;
    FR_TRY(find_placements(w));
    FR_TRY(fr__worker_predict(w));
    /* Weights first: what their initialisation needs for a moment is gone before the rest. */
    FR_TRY(fr__worker_take_weights(w));
    FR_TRY(fr__worker_init_params(w));
    FR_TRY(fr__worker_take_rest(w));
    place_outputs(w, &w->train);
    place_outputs(w, &w->eval);
    return FR_OK;
}

fr_status fr_worker_create(fr_ctx *ctx, const fr_worker_desc *desc, fr_worker **out)
{
    *out = NULL;
    FR_TRY(check_desc(ctx, desc));
    fr_worker *w = FR_NEW(fr_worker);
    if (!w) return fr__no_memory(ctx, sizeof *w, "a worker");
    w->ctx = ctx;
    w->desc = *desc;
    w->weights_id = 1;
    fr_status status = build(w);
    if (status != FR_OK) {
        fr_worker_free(w);
        return status;
    }
    *out = w;
    return FR_OK;
}

void fr_worker_free(fr_worker *w)
{
    if (!w) return;
    fr__worker_release(w);
    fr_program_free(w->train.program);
    fr_program_free(w->eval.program);
    fr_device_close(w->dev);
    fr__arena_fini(&w->arena);
    fr__free(w);
}

const fr_memory_use *fr_worker_predicted(const fr_worker *w) { return &w->predicted; }
size_t fr_worker_peak_bytes(const fr_worker *w) { return fr_device_peak_bytes(w->dev); }
const char *fr_worker_about(const fr_worker *w) { return fr_device_about(w->dev); }
uint64_t fr_worker_busy_ns(const fr_worker *w) { return w->busy_ns; }

/* Point the inputs at micro-batch m of the feed. */
static fr_status aim_inputs(fr_worker *w, fr_bound *b, const fr_feed *feed, int m)
{
    const char *base[FR_ROLE_COUNT] = {[FR_ROLE_INPUT] = feed->input,
                                       [FR_ROLE_TARGET] = (const char *)feed->target,
                                       [FR_ROLE_LENGTH] = (const char *)feed->length};
    for (int i = 0; i < fr_program_n_inputs(b->program); i++) {
        const fr_port *port = fr_program_input(b->program, i);
        if (!base[b->roles[i]])
            return fr_fail(w->ctx, FR_INVALID, "the graph's input %s is not in the data",
                           fr_graph_node(w->desc.graph, port->node)->name);
        b->inputs[i] = base[b->roles[i]] + (size_t)m * port->bytes;
    }
    return FR_OK;
}

static fr_pass make_pass(fr_worker *w, fr_bound *b, const fr_feed *feed, int m)
{
    return (fr_pass){.weights = w->weights,
                     .grads = w->grads,
                     .buffers = w->buffers,
                     .inputs = b->inputs,
                     .outputs = b->outputs,
                     .weights_id = w->weights_id,
                     .seed = w->desc.seed,
                     .step = feed->step,
                     .first_sample = (int64_t)m * w->desc.micro_batch,
                     .loss_scale = 1 / (float)(feed->n_targets > 0 ? feed->n_targets : 1),
                     .accumulate = m > 0};
}

/* Add what the loss said of a micro-batch, sample by sample. */
static fr_status count_loss(fr_worker *w, const fr_bound *b, fr_tally *tally)
{
    const float *row = b->outputs[b->loss_port]; /* (micro_batch, 3): loss, targets, correct */
    FR_TRY(fr_device_sync(w->dev));
    for (int i = 0; i < w->desc.micro_batch; i++, row += 3) {
        tally->loss += (double)row[0];
        tally->targets += (int64_t)row[1];
        tally->correct += (int64_t)row[2];
    }
    return FR_OK;
}

static fr_status diverged(fr_worker *w, const fr_feed *feed, int m, const char *what, double value)
{
    if (w->buffers_before)
        memcpy(w->buffers, w->buffers_before, fr_program_sizes_of(w->layout)->n_buffers * 4);
    return fr_fail(w->ctx, FR_DIVERGED,
                   "step %lld, micro-batch %d of %d: the %s is %g; the weights are still those "
                   "before this step; try a smaller lr (now %g), a warm-up or clip_norm",
                   (long long)feed->step, m, w->desc.n_micro, what, value, feed->lr);
}

/* One micro-batch forward and backward. `update`, if not NULL, rides on the backward. */
static fr_status run_micro(fr_worker *w, const fr_feed *feed, int m, fr_update *update,
                           fr_tally *tally)
{
    FR_TRY(aim_inputs(w, &w->train, feed, m));
    fr_pass pass = make_pass(w, &w->train, feed, m);
    size_t slot_bytes = w->predicted.slots / (size_t)w->desc.n_slots;
    pass.slot = w->slots + (size_t)(m % w->desc.n_slots) * slot_bytes;
    pass.workspace = w->workspace;
    FR_TRY(fr_program_forward(w->train.program, &pass));
    FR_TRY(count_loss(w, &w->train, tally));
    /* Before the backward, which may already change weights. */
    if (!isfinite(tally->loss)) return diverged(w, feed, m, "loss", tally->loss);
    if (update) {
        pass.grad_ready = fr__update_range;
        pass.transient_grads = true;
        pass.user = update;
    }
    return fr_program_backward(w->train.program, &pass, FR_GRAD_BOTH);
}

/* The update after the last backward, with all gradients in view. */
static fr_status update_at_end(fr_worker *w, const fr_feed *feed, double *grad_norm)
{
    const fr_program_sizes *sizes = fr_program_sizes_of(w->train.program);
    double scale = 1, clip = w->desc.clip_norm;
    fr_program_sum_ties(w->train.program, w->grads);
    if (clip > 0 || feed->want_norm) {
        double norm = *grad_norm = fr__grad_norm(w);
        if (!isfinite(norm)) return diverged(w, feed, w->desc.n_micro - 1, "gradient norm", norm);
        if (clip > 0) scale = fmin(1, clip / (norm + 1e-6));
    }
    fr_update update;
    fr__update_begin(&update, w, feed, scale);
    fr__update_range(&update, 0, sizes->n_weights, w->grads);
    return FR_OK;
}

static fr_status train_batch(fr_worker *w, const fr_feed *feed, fr_tally *tally, double *grad_norm)
{
    const fr_program_sizes *sizes = fr_program_sizes_of(w->train.program);
    bool on_the_fly = !w->desc.keep_grads && w->desc.clip_norm <= 0 && !feed->want_norm &&
                      sizes->n_grads == sizes->n_weights;
    fr_update update;
    fr__update_begin(&update, w, feed, 1);
    if (w->buffers_before) memcpy(w->buffers_before, w->buffers, sizes->n_buffers * 4);
    for (int m = 0; m < w->desc.n_micro; m++) {
        bool is_last = m == w->desc.n_micro - 1;
        FR_TRY(run_micro(w, feed, m, on_the_fly && is_last ? &update : NULL, tally));
    }
    if (!on_the_fly) return update_at_end(w, feed, grad_norm);
    size_t n_done = atomic_load(&update.n_done);
    if (n_done != fr__update_size(w))
        return fr_fail(w->ctx, FR_INTERNAL, "step %lld updated %zu of %zu weights",
                       (long long)feed->step, n_done, fr__update_size(w));
    return FR_OK;
}

fr_status fr_worker_train(fr_worker *w, const fr_feed *feed, fr_tally *tally, double *grad_norm)
{
    if (!w->train.program)
        return fr_fail(w->ctx, FR_INVALID, "a worker that only evaluates cannot train");
    uint64_t start = fr__now_ns();
    double norm = NAN;
    *tally = (fr_tally){0};
    fr_status status = train_batch(w, feed, tally, &norm);
    w->weights_id++;
    w->busy_ns += fr__now_ns() - start;
    if (grad_norm) *grad_norm = norm;
    return status;
}

static fr_status eval_micro(fr_worker *w, const fr_feed *feed, int m, fr_tally *tally,
                            float *logits)
{
    fr_bound *b = &w->eval;
    FR_TRY(aim_inputs(w, b, feed, m));
    fr_pass pass = make_pass(w, b, feed, m);
    pass.slot = w->slots;
    pass.workspace = w->slots + fr__align_up(fr_program_sizes_of(b->program)->slot_bytes);
    FR_TRY(fr_program_forward(b->program, &pass));
    FR_TRY(count_loss(w, b, tally));
    if (!logits) return FR_OK;
    size_t bytes = fr_program_output(b->program, b->logits_port)->bytes;
    return fr_device_download(w->dev, (char *)logits + (size_t)m * bytes,
                              b->outputs[b->logits_port], bytes);
}

fr_status fr_worker_eval(fr_worker *w, const fr_feed *feed, fr_tally *tally, float *logits)
{
    if (logits && w->eval.logits_port < 0)
        return fr_fail(w->ctx, FR_INVALID, "logits are wanted of a worker without logits_node");
    uint64_t start = fr__now_ns();
    *tally = (fr_tally){0};
    fr_status status = FR_OK;
    for (int m = 0; m < w->desc.n_micro && status == FR_OK; m++)
        status = eval_micro(w, feed, m, tally, logits);
    w->busy_ns += fr__now_ns() - start;
    return status;
}
