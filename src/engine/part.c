/* part.c -- a stage on its worker: programs compiled, sizes added up, blocks taken.
 *
 * No micro-batch is in flight when an evaluation begins, so it borrows slots and workspace. What is
 * predicted here is exactly what is then taken. */
#include "engine/engine.h"

#include <string.h>

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* --- programs ------------------------------------------------------------------------------- */

static fr_status bind_inputs(fr_part *p, fr_bound *b)
{
    const fr_graph *g = p->engine->desc.graph;
    int n = fr_program_n_inputs(b->program), of_role[FR_ROLE_WIRE] = {0};
    for (int i = 0; i < n; i++) {
        const fr_port *port = fr_program_input(b->program, i);
        fr_role role = fr__role_of(g, port->node);
        b->in[i] = (fr_in_port){.role = role,
                                .value.route = -1,
                                .grad.route = -1,
                                .seed.route = -1,
                                .bytes = port->bytes};
        if (role == FR_ROLE_WIRE) continue;
        p->engine->reads_data = true;
        if (!fr__device_is_host(p->worker->dev)) {
            b->in[i].copy_offset = b->data_bytes;
            b->data_bytes += fr__align_up(port->bytes);
        }
        int other = of_role[role] - 1;
        if (other >= 0)
            return fr_fail(p->engine->ctx, FR_UNSUPPORTED,
                           "inputs %s and %s want the same tensor of the data",
                           fr_graph_node(g, other)->name, fr_graph_node(g, port->node)->name);
        of_role[role] = port->node + 1;
    }
    return FR_OK;
}

static void bind_outputs(fr_part *p, fr_bound *b)
{
    const fr_engine *e = p->engine;
    int loss = fr_graph_find_op(e->desc.graph, FR_OP_CROSS_ENTROPY);
    b->output_bytes = 0;
    for (int i = 0; i < fr_program_n_outputs(b->program); i++) {
        b->out[i] = (fr_out_port){.offset = b->output_bytes, .grad.route = -1};
        b->output_bytes += fr__align_up(fr_program_output(b->program, i)->bytes);
    }
    b->loss_port = loss < 0 ? -1 : fr_program_find_output(b->program, loss);
    b->logits_port =
        e->desc.logits_node < 0 ? -1 : fr_program_find_output(b->program, e->desc.logits_node);
}

static fr_status make_program(fr_part *p, fr_mode mode)
{
    fr_engine *e = p->engine;
    fr_bound *b = &p->bound[mode];
    bool is_mine = e->desc.logits_node >= p->bounds.first && e->desc.logits_node < p->bounds.last;
    fr_program_desc d = {.graph = e->desc.graph,
                         .stage = &p->bounds,
                         .batch = e->desc.micro_batch,
                         .training = mode == FR_MODE_TRAIN,
                         .split_backward = mode == FR_MODE_TRAIN && e->schedule[mode]->is_split,
                         .extra_output = mode == FR_MODE_EVAL && is_mine ? e->desc.logits_node : -1,
                         .is_plan = true};
    FR_TRY(fr_program_create(e->ctx, p->worker->dev, &d, &b->program));
    int n_in = fr_program_n_inputs(b->program), n_out = fr_program_n_outputs(b->program);
    b->in = FR_ARENA_ARRAY(&e->arena, fr_in_port, n_in + 1);
    b->out = FR_ARENA_ARRAY(&e->arena, fr_out_port, n_out + 1);
    b->inputs = FR_ARENA_ARRAY(&e->arena, const void *, n_in + 1);
    b->input_grads = FR_ARENA_ARRAY(&e->arena, void *, n_in + 1);
    b->outputs = FR_ARENA_ARRAY(&e->arena, void *, n_out + 1);
    b->output_grads = FR_ARENA_ARRAY(&e->arena, const void *, n_out + 1);
    if (!b->in || !b->out || !b->inputs || !b->input_grads || !b->outputs || !b->output_grads)
        return fr__no_memory(e->ctx, (size_t)n_in, "a stage");
    FR_TRY(bind_inputs(p, b));
    bind_outputs(p, b);
    b->loss_rows = FR_ARENA_ARRAY(&e->arena, float, b->loss_port < 0 ? 1 : 3 * d.batch);
    if (!b->loss_rows) return fr__no_memory(e->ctx, (size_t)d.batch * 12, "a stage");
    b->slot_bytes = fr__align_up(fr_program_sizes_of(b->program)->slot_bytes);
    return fr__areas_plan(p, mode);
}

static fr_status open_device(fr_worker *w)
{
    const fr_engine *e = w->engine;
    fr_exec_cores cores =
        fr_exec_share_cores(e->desc.team, e->n_local, e->desc.n_threads, e->desc.pin);
    fr_device_desc device = {.n_threads = cores.n_threads,
                             .first_cpu =
                                 fr_exec_first_cpu(&cores, e->n_local, w->index - e->first_worker)};
    return fr_device_open(e->ctx, e->desc.backend, &device, &w->dev);
}

fr_status fr__part_compile(fr_worker *w, void *arg)
{
    (void)arg;
    FR_TRY(open_device(w));
    for (int i = 0; i < w->n_parts; i++) {
        fr_part *p = w->parts[i];
        for (int mode = 0; mode < FR_N_MODES; mode++)
            if (w->engine->schedule[mode]) FR_TRY(make_program(p, (fr_mode)mode));
        bool trains = p->bound[FR_MODE_TRAIN].program != NULL;
        p->layout = p->bound[trains ? FR_MODE_TRAIN : FR_MODE_EVAL].program;
        const fr_program_sizes *sizes = fr_program_sizes_of(p->layout);
        p->n_weights = sizes->n_weights;
        p->n_grads = sizes->n_grads;
        p->n_buffers = sizes->n_buffers;
        if (trains) FR_TRY(fr__gather_plan(p));
    }
    return FR_OK;
}

/* --- sizes ---------------------------------------------------------------------------------- */

/* Floats of the running statistics and their copies. */
static size_t n_statistics(const fr_part *p)
{
    return p->n_buffers * (size_t)(1 + p->n_snaps + p->recomputes);
}

static size_t data_bytes(const fr_part *p)
{
    const fr_bound *train = &p->bound[FR_MODE_TRAIN], *eval = &p->bound[FR_MODE_EVAL];
    return most((size_t)train->n_slots * train->data_bytes,
                (size_t)eval->n_slots * eval->data_bytes);
}

static fr_status measure_part(fr_part *p, fr_memory_use *use)
{
    const fr_engine *e = p->engine;
    const fr_bound *train = &p->bound[FR_MODE_TRAIN], *eval = &p->bound[FR_MODE_EVAL];
    bool trains = train->program != NULL;
    p->n_weight_blocks = 1;
    if (trains) {
        p->n_weight_blocks = e->plan->n_weight_blocks[p->stage];
        p->n_snaps = e->desc.schedule->is_flush ? 1 : train->n_slots / p->n_micro + 2;
    }
    size_t bytes = fr__align_up(p->n_weights * sizeof(float));
    p->weight_stride = bytes / sizeof(float);
    use->weights += (size_t)p->n_weight_blocks * bytes;
    if (p->n_weight_blocks > use->weight_copies) use->weight_copies = p->n_weight_blocks;
    use->buffers += n_statistics(p) * sizeof(float);
    use->cache += fr_program_sizes_of(eval->program)->cache_bytes;
    use->io += p->landing_bytes + data_bytes(p);
    use->slots += most(train->memory_bytes, eval->memory_bytes);
    if (!trains) return FR_OK;
    use->cache += fr_program_sizes_of(train->program)->cache_bytes;
    FR_TRY(fr__gather_measure(p));
    FR_TRY(fr__drain_measure(p));
    FR_TRY(fr__peers_measure(p));
    use->grads += (size_t)p->n_grad_blocks * p->grad_stride * sizeof(float);
    use->optimizer += (size_t)e->desc.optimizer->n_state * bytes;
    if (e->desc.policy->course == FR_COURSE_DRIFT) use->optimizer += bytes;
    use->io += p->grad_wire_bytes + p->gather.room_bytes + p->buffer_room_bytes + p->sync.bytes;
    return FR_OK;
}

fr_status fr__part_measure(fr_engine *e)
{
    for (int i = 0; i < e->n_workers; i++) {
        fr_worker *w = &e->workers[i];
        fr_memory_use *use = &w->predicted;
        if (!w->is_local) continue;
        for (int k = 0; k < w->n_parts; k++) {
            FR_TRY(measure_part(w->parts[k], use));
            for (int mode = 0; mode < FR_N_MODES; mode++) {
                const fr_program *program = w->parts[k]->bound[mode].program;
                if (program)
                    w->workspace_bytes =
                        most(w->workspace_bytes, fr_program_sizes_of(program)->workspace_bytes);
            }
        }
        use->workspace = w->workspace_bytes;
        use->io += e->tie_room[i];
        use->total = use->weights + use->grads + use->optimizer + use->buffers + use->slots +
                     use->workspace + use->cache + use->io;
    }
    return FR_OK;
}

/* --- blocks --------------------------------------------------------------------------------- */

static fr_status take(fr_worker *w, size_t bytes, const char *what, void **out)
{
    *out = NULL;
    if (bytes == 0) return FR_OK;
    FR_TRY(fr_device_alloc(w->dev, bytes, what, out));
    w->blocks[w->n_blocks].at = *out;
    w->blocks[w->n_blocks++].bytes = bytes;
    return FR_OK;
}

static fr_status take_floats(fr_worker *w, size_t n, const char *what, float **out)
{
    void *at;
    FR_TRY(take(w, n * sizeof(float), what, &at));
    *out = at;
    return FR_OK;
}

static fr_status allocate_part(fr_part *p)
{
    fr_worker *w = p->worker;
    const fr_engine_desc *d = &p->engine->desc;
    fr_bound *train = &p->bound[FR_MODE_TRAIN], *eval = &p->bound[FR_MODE_EVAL];
    void *at;
    for (int mode = 0; mode < FR_N_MODES; mode++)
        if (p->bound[mode].program) FR_TRY(fr_program_reserve(p->bound[mode].program));
    FR_TRY(take_floats(w, (size_t)p->n_weight_blocks * p->weight_stride, "weights", &p->weights));
    FR_TRY(take_floats(w, n_statistics(p), "running statistics", &p->buffers));
    FR_TRY(take(w, most(train->memory_bytes, eval->memory_bytes), "activations", &at));
    for (int mode = 0; mode < FR_N_MODES; mode++) fr__areas_place(p, (fr_mode)mode, at);
    FR_TRY(take(w, p->landing_bytes, "messages from other processes", &at));
    p->landing = at;
    FR_TRY(take(w, data_bytes(p), "data of micro-batches", &at));
    p->data = at;
    if (!train->program) return FR_OK;
    FR_TRY(take_floats(w, (size_t)p->n_grad_blocks * p->grad_stride, "gradients", &p->grads));
    FR_TRY(take(w, p->gather.room_bytes, "sums of replicas", &at));
    p->gather.room = at;
    FR_TRY(take(w, p->buffer_room_bytes, "running statistics of replicas", &at));
    p->buffer_room = at;
    FR_TRY(take(w, p->sync.bytes, "weights that replicas exchange", &at));
    if (at) fr__sync_place(&p->sync, at);
    for (int i = 0; i < d->optimizer->n_state; i++)
        FR_TRY(take_floats(w, p->weight_stride, d->optimizer->state_names[i], &p->state[i]));
    if (d->policy->course == FR_COURSE_DRIFT)
        FR_TRY(take_floats(w, p->weight_stride, "drift", &p->drift));
    FR_TRY(take(w, p->grad_wire_bytes, "gradients under way", &at));
    p->grad_wires = at;
    return FR_OK;
}

fr_status fr__part_allocate(fr_worker *w, void *arg)
{
    (void)arg;
    void *at;
    for (int i = 0; i < w->n_parts; i++) FR_TRY(allocate_part(w->parts[i]));
    FR_TRY(take(w, w->workspace_bytes, "workspace", &at));
    w->workspace = at;
    return FR_OK;
}

/* Blocks of a sum of squares start anew with every parameter, so that the sum does not depend on
 * its neighbours. A copy of a parameter that another stage owns is updated but not summed. */
static fr_status list_norm_blocks(fr_part *p)
{
    const fr_graph *g = p->engine->desc.graph;
    int n = fr_program_n_placements(p->layout);
    size_t n_blocks = 0;
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(p->layout, i);
        n_blocks += (at->count + FR_NORM_BLOCK - 1) / FR_NORM_BLOCK;
    }
    p->norm_blocks = FR_ARENA_ARRAY(&p->engine->arena, fr_span, n_blocks + 1);
    p->norm_owners = FR_ARENA_ARRAY(&p->engine->arena, int, n_blocks + 1);
    p->norm_sums = FR_ARENA_ARRAY(&p->engine->arena, double, n_blocks + 1);
    p->param_sums = FR_ARENA_ARRAY(&p->engine->arena, double, p->engine->n_own[p->stage] + 1);
    if (!p->norm_blocks || !p->norm_owners || !p->norm_sums || !p->param_sums)
        return fr__no_memory(p->engine->ctx, n_blocks * 16, "a stage");
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(p->layout, i);
        const fr_param *param = fr_graph_param(g, at->param);
        if (param->is_buffer || at->offset >= p->n_weights) continue;
        p->n_updated += at->count;
        for (size_t done = 0; param->tied_to < 0 && done < at->count; done += FR_NORM_BLOCK) {
            size_t left = at->count - done;
            p->norm_owners[p->n_norm_blocks] = p->engine->nth_own[at->param];
            p->norm_blocks[p->n_norm_blocks++] = (fr_span){
                .offset = at->offset + done, .count = left < FR_NORM_BLOCK ? left : FR_NORM_BLOCK};
        }
    }
    return FR_OK;
}

fr_status fr__part_make_store(fr_part *p)
{
    const fr_engine_desc *d = &p->engine->desc;
    FR_TRY(list_norm_blocks(p));
    fr_store_desc s = {.policy = d->policy,
                       .context = p->engine->plan->context[p->stage],
                       .n_blocks = p->n_weight_blocks,
                       .device = p->worker->dev,
                       .optimizer = d->optimizer,
                       .options = d->options,
                       .lr = d->lr,
                       .n = p->n_weights,
                       .blocks = p->weights,
                       .stride = p->weight_stride,
                       .drift = p->drift,
                       .n_samples = d->n_samples};
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++) s.state[i] = p->state[i];
    return fr_store_create(p->engine->ctx, &s, &p->store);
}

void fr__part_release(fr_worker *w)
{
    for (int i = 0; i < w->n_blocks; i++)
        fr_device_release(w->dev, w->blocks[i].at, w->blocks[i].bytes);
    w->n_blocks = 0;
    for (int i = 0; i < w->n_parts; i++) {
        fr_store_free(w->parts[i]->store);
        for (int mode = 0; mode < FR_N_MODES; mode++)
            fr_program_free(w->parts[i]->bound[mode].program);
    }
}
