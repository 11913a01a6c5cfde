/* rig.c -- a separate stage executor: mini-batches on dummy data, with the number of micro-batches
 * in flight of the context. Each has its own memory, which is as cold as in the pipeline. */
#include "probe/rig.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

enum { N_GRAD_BUFFERS = 2 }; /* of gradients from above, used in turn */

static fr_status no_memory(const fr__rig *r) { return fr__no_memory(r->ctx, 0, "a probe"); }

static const fr_policy *policy_of(const fr__rig *r)
{
    return r->d->policy ? r->d->policy : fr_policy_find("live");
}

/* --- the executor ----------------------------------------------------------------------------- */

static void take_context(fr__rig *r)
{
    r->context = r->d->context;
    if (r->context.n_stages < 1) r->context.n_stages = 1;
    r->context.n_micro = r->d->n_micro;
    r->n_slots = r->context.n_slots = r->context.lead + 1;
}

/* Blocks of weights that the passes of a rig need, from a store that only counts: run mini-batches
 * until the starting weights are no longer used. */
static fr_status count_blocks(fr__rig *r, int *n_blocks)
{
    fr_store *store;
    int lead = r->context.lead, n = r->context.n_micro;
    int total = (2 * ((lead + n - 1) / n) + 3) * n;
    fr_view view;
    const fr_store_desc d = {
        .policy = policy_of(r), .context = r->context, .type = fr_graph_precision(r->d->graph)};
    FR_TRY(fr_store_create(r->ctx, &d, &store));
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
    *n_blocks = fr_store_n_blocks(store);
    fr_store_free(store);
    return status;
}

/* Gradients of parameters that are tied inside the stage are added before the update. */
static bool has_ties(const fr__rig *r)
{
    const fr_graph *g = r->d->graph;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        if (p->tied_to < 0 || p->node < r->stage.first || p->node >= r->stage.last) continue;
        int owner = fr_graph_param(g, p->tied_to)->node;
        if (owner >= r->stage.first && owner < r->stage.last) return true;
    }
    return false;
}

static fr_status create_exec(fr__rig *r)
{
    const fr_probe_desc *d = r->d;
    int *slot_of = FR_ARENA_ARRAY(&r->arena, int, r->n_slots);
    if (!slot_of) return no_memory(r);
    for (int i = 0; i < r->n_slots; i++) slot_of[i] = i;
    fr__exec_desc x = {
        .arena = &r->arena,
        .graph = d->graph,
        .bounds = r->stage,
        .n_replicas = 1,
        .replicas = &r->exec,
        .device = r->device,
        .micro_batch = d->batch,
        .n_micro = d->n_micro,
        .slots[FR_MODE_TRAIN] = {.n_slots = r->n_slots, .n_micro = r->n_slots, .slot_of = slot_of},
        .seed = 1,
        .policy = policy_of(r),
        .context = r->context,
        .optimizer = d->optimizer,
        .options = d->options,
        .is_split = d->split_backward,
        .update_in_backward = d->update_in_backward && !has_ties(r),
        .sums_replicas = true};
    FR_TRY(count_blocks(r, &x.n_weight_blocks));
    x.options.lr = 1e-6; /* a small rate: with dummy data the weights stay nearly constant */
    r->update_in_backward = x.update_in_backward;
    return fr__exec_create(r->ctx, &x, &r->exec);
}

static void fill_param(void *rig, int param, size_t first, size_t n, void *to)
{
    const fr_graph *g = ((fr__rig *)rig)->d->graph;
    const fr_param *p = fr_graph_param(g, param);
    const fr_param *owner = p->tied_to >= 0 ? fr_graph_param(g, p->tied_to) : p;
    if (owner->init.kind == FR_INIT_ZEROS || owner->init.kind == FR_INIT_ONES)
        fr_graph_init_range(g, param, 1, (int64_t)first, (int64_t)n, to);
    else /* as large as in a run, and faster to create */
        fr__dummy_noise(to, FR_F32, n, (float)owner->init.scale);
}

/* --- links and data --------------------------------------------------------------------------- */

/* Each port has its own link: first inputs, then outputs. Values are read from a buffer of the
 * slot, gradients of outputs from one of N_GRAD_BUFFERS, gradients of later readers and of inputs
 * have one buffer. */
static size_t bind_ports(fr__rig *r)
{
    size_t bytes = 0;
    r->in = fr__exec_inputs(r->exec, FR_MODE_TRAIN, &r->n_in);
    r->out = fr__exec_outputs(r->exec, FR_MODE_TRAIN, &r->n_out);
    for (int i = 0; i < r->n_in; i++) {
        fr__in_port *in = &r->in[i];
        const fr_port *port = in->port;
        size_t each = fr__align_up(port->bytes);
        if (in->role != FR__ROLE_LINK) continue;
        in->value.link = i;
        if (port->has_grad) in->grad.link = i;
        if (port->has_seed) in->seed.link = i;
        bytes += each * (size_t)(r->n_slots + port->has_grad + port->has_seed);
    }
    for (int i = 0; i < r->n_out; i++) {
        if (!r->out[i].port->has_grad) continue;
        r->out[i].grad.link = r->n_in + i;
        bytes += N_GRAD_BUFFERS * fr__align_up(r->out[i].port->bytes);
    }
    return bytes;
}

/* The next buffer of the block of links: dummy data of a port, or small numbers for its gradient.
 */
static fr_status fill(fr__rig *r, char **at, const fr_port *port, bool is_grad, void **out)
{
    void *host = fr__alloc_raw(port->bytes);
    *out = *at;
    *at += fr__align_up(port->bytes);
    if (!host) return no_memory(r);
    if (is_grad)
        fr__dummy_noise(host, port->dtype, port->bytes / fr_dtype_bytes(port->dtype), 1e-3f);
    else
        fr__dummy_fill(r->d->graph, port->node, r->d->batch, host);
    fr_status status = fr_device_upload(fr__exec_device_of(r->device), *out, host, port->bytes);
    fr__free(host);
    return status;
}

static fr_status fill_links(fr__rig *r, char *at)
{
    int n_links = r->n_in + r->n_out;
    for (int i = 0; i < r->n_in; i++) {
        const fr_port *port = r->in[i].port;
        void *buffer;
        if (r->in[i].role != FR__ROLE_LINK) continue;
        for (int k = 0; k < r->n_slots; k++) {
            FR_TRY(fill(r, &at, port, false, &buffer));
            r->values[k * r->n_in + i] = buffer;
        }
        if (port->has_grad) FR_TRY(fill(r, &at, port, true, &r->sent_grads[i]));
        if (!port->has_seed) continue;
        FR_TRY(fill(r, &at, port, true, &buffer));
        for (int k = 0; k < N_GRAD_BUFFERS; k++) r->grads[k * n_links + i] = buffer;
    }
    for (int k = 0; k < N_GRAD_BUFFERS; k++)
        for (int i = 0; i < r->n_out; i++) {
            const fr_port *port = r->out[i].port;
            void *buffer;
            if (!port->has_grad) continue;
            FR_TRY(fill(r, &at, port, true, &buffer));
            r->grads[k * n_links + r->n_in + i] = buffer;
        }
    return FR_OK;
}

/* Mini-batches of data in host memory, as a loader would have them: those in flight and the next.
 */
static fr_status make_feeds(fr__rig *r)
{
    size_t n_micro = (size_t)r->d->n_micro;
    r->n_feeds = r->n_slots / r->d->n_micro + 1;
    r->feeds = FR_ARENA_ARRAY(&r->arena, fr_feed, r->n_feeds);
    if (!r->feeds) return no_memory(r);
    for (int k = 0; k < r->n_feeds; k++) {
        fr_feed *feed = &r->feeds[k];
        feed->n_targets = (int64_t)r->d->batch * r->d->n_micro;
        for (int i = 0; i < r->n_in; i++) {
            const fr_port *port = r->in[i].port;
            if (r->in[i].role == FR__ROLE_LINK) continue;
            char *data = fr__arena_alloc(&r->arena, n_micro * port->bytes);
            if (!data) return no_memory(r);
            for (size_t m = 0; m < n_micro; m++)
                fr__dummy_fill(r->d->graph, port->node, r->d->batch, data + m * port->bytes);
            if (r->in[i].role == FR__ROLE_INPUT) feed->input = data;
            if (r->in[i].role == FR__ROLE_TARGET) feed->target = data;
            if (r->in[i].role == FR__ROLE_LENGTH) feed->length = (const int32_t *)(void *)data;
        }
    }
    return FR_OK;
}

static fr_status take_lists(fr__rig *r)
{
    int n_links = r->n_in + r->n_out;
    r->values = FR_ARENA_ARRAY(&r->arena, const void *, r->n_slots * r->n_in + 1);
    r->grads = FR_ARENA_ARRAY(&r->arena, const void *, N_GRAD_BUFFERS *n_links + 1);
    r->sent_grads = FR_ARENA_ARRAY(&r->arena, void *, n_links + 1);
    r->times = FR_ARENA_ARRAY(&r->arena, fr_node_time, fr_graph_n_nodes(r->d->graph));
    r->last_s = FR_ARENA_ARRAY(&r->arena, double, 2 * r->d->n_micro);
    bool has_all = r->values && r->grads && r->sent_grads && r->times && r->last_s;
    return has_all ? FR_OK : no_memory(r);
}

/* --- create and free --------------------------------------------------------------------- */

static fr_status check_room(const fr__rig *r, const fr_memory_use *use, size_t link_bytes,
                            fr__rig_room *room)
{
    uint64_t own = use->weights + use->grads + use->optimizer + use->buffers + use->slots +
                   use->cache + use->io + fr__exec_device_workspace_bytes(r->device) + link_bytes;
    uint64_t wanted = atomic_fetch_add(&room->wanted, own) + own;
    if (wanted <= room->left) return FR_OK;
    return fr_fail(r->ctx, FR_NO_MEMORY,
                   "measuring nodes %d to %d takes %.3g GB, all concurrent measurements %.3g GB at "
                   "least, and %.3g GB are available; use fewer workers or smaller micro-batches, "
                   "or a profile that was made on a larger machine",
                   r->stage.first, r->stage.last - 1, (double)own * 1e-9, (double)wanted * 1e-9,
                   (double)room->left * 1e-9);
}

static fr_status check_desc(const fr__rig *r)
{
    const fr_probe_desc *d = r->d;
    if (d->batch < 1 || d->n_micro < 1 || !d->optimizer || !d->backend)
        return fr_fail(r->ctx, FR_INVALID,
                       "a probe of %d micro-batches of %d samples: at least one of each, a backend "
                       "and an optimizer are needed",
                       d->n_micro, d->batch);
    const char *wrong = policy_of(r)->check ? policy_of(r)->check(&r->context) : NULL;
    if (wrong) return fr_fail(r->ctx, FR_INVALID, "weights %s: %s", policy_of(r)->name, wrong);
    return FR_OK;
}

static fr_status set_up(fr__rig *r, fr__rig_room *room)
{
    const fr_probe_desc *d = r->d;
    fr_memory_use use = {0};
    void *links;
    take_context(r);
    FR_TRY(check_desc(r));
    fr_device_desc device = {.n_threads = d->n_threads, .pin = d->pin, .first_cpu = d->first_cpu};
    FR_TRY(fr__exec_device_open(r->ctx, d->backend, &device, &r->device));
    FR_TRY(create_exec(r));
    size_t link_bytes = bind_ports(r);
    FR_TRY(fr__exec_measure(r->exec, &use));
    FR_TRY(check_room(r, &use, link_bytes, room));
    FR_TRY(take_lists(r));
    FR_TRY(fr__exec_allocate(r->exec));
    FR_TRY(fr__exec_device_take_workspace(r->device));
    FR_TRY(fr__exec_open(r->exec));
    FR_TRY(fr__exec_init(r->exec, fill_param, r));
    FR_TRY(fr__exec_device_take(r->device, link_bytes, "links", &links));
    FR_TRY(fill_links(r, links));
    FR_TRY(make_feeds(r));
    fr_program_time(fr__exec_program(r->exec, FR_MODE_TRAIN), r->times);
    fr__exec_begin_call(r->exec, 0);
    return FR_OK;
}

fr_status fr__rig_create(fr_ctx *ctx, const fr_probe_desc *d, fr__rig_room *room, fr__rig **out)
{
    *out = NULL;
    fr__rig *r = FR_NEW(fr__rig);
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

void fr__rig_free(fr__rig *r)
{
    if (!r) return;
    fr__exec_free(r->exec);
    fr__exec_device_close(r->device);
    fr__arena_fini(&r->arena);
    fr__free(r);
}

/* --- passes ----------------------------------------------------------------------------------- */

static double since(uint64_t start) { return 1e-9 * (double)(fr__now_ns() - start); }

/* The store's time is excluded: it may differ between micro-batches. */
static void note_time(fr__rig *r, bool is_backward, int micro, double seconds)
{
    double *last = &r->last_s[is_backward * r->d->n_micro + micro];
    if (*last > 0) r->pass_s += seconds, r->change_s += fabs(seconds - *last);
    *last = seconds;
}

static fr__micro nth_micro(fr__rig *r, int64_t nth)
{
    int slot = (int)(nth % r->n_slots);
    int64_t batch = nth / r->d->n_micro;
    return (fr__micro){.batch = batch,
                       .micro = (int)(nth % r->d->n_micro),
                       .in_segment = slot,
                       .feed = &r->feeds[batch % r->n_feeds],
                       .values = r->values + slot * r->n_in,
                       .grads = r->grads + nth % N_GRAD_BUFFERS * (r->n_in + r->n_out),
                       .sent_grads = r->sent_grads};
}

static fr_status forward(fr__rig *r)
{
    fr__micro m = nth_micro(r, r->n_forward++);
    fr_view view;
    uint64_t start = fr__now_ns();
    FR_TRY(fr__exec_forward(r->exec, FR_MODE_TRAIN, &m, &view));
    double fetch_s = 1e-9 * (double)fr__exec_fetch_ns(r->exec);
    r->fetch_forward_s += fetch_s;
    note_time(r, false, m.micro, since(start) - fetch_s);
    return FR_OK;
}

static fr_status run_backward(fr__rig *r, const fr__micro *m, int what, double *fetch_s)
{
    fr_view view;
    FR_TRY(fr__exec_backward(r->exec, m, what, &view));
    *fetch_s += 1e-9 * (double)fr__exec_fetch_ns(r->exec);
    return FR_OK;
}

static fr_status step(fr__rig *r, int64_t batch)
{
    if (!r->update_in_backward) {
        fr__exec_sum_own_ties(r->exec);
        fr__exec_sweep(r->exec, batch, 1);
    }
    return fr__exec_end_step(r->exec);
}

static fr_status backward(fr__rig *r)
{
    fr__micro m = nth_micro(r, r->n_backward++);
    double fetch_s = 0;
    uint64_t start = fr__now_ns();
    FR_TRY(run_backward(r, &m, r->d->split_backward ? FR_GRAD_INPUT : FR_GRAD_BOTH, &fetch_s));
    r->times[r->stage.first].back_input += 1e-9 * (double)fr__exec_seed_ns(r->exec);
    if (r->d->split_backward) FR_TRY(run_backward(r, &m, FR_GRAD_WEIGHT, &fetch_s));
    r->fetch_backward_s += fetch_s;
    note_time(r, true, m.micro, since(start) - fetch_s);
    start = fr__now_ns();
    if (m.micro == r->d->n_micro - 1) FR_TRY(step(r, m.batch));
    r->store_s += since(start);
    return FR_OK;
}

fr_status fr__rig_step(fr__rig *r)
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
