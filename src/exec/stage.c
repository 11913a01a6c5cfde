/* stage.c -- a stage executor up to its first pass: compile programs, add up sizes, allocate
 * memory.
 *
 * No micro-batch is in flight when an evaluation begins, so it borrows slots and workspace.
 * fr__exec_allocate allocates exactly what fr__exec_measure adds up. */
#include "exec/stage.h"

#include "optim/optim.h"

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

fr_status fr__exec_no_memory(const fr__exec *x)
{
    return fr__no_memory(x->ctx, sizeof *x, "a stage");
}

/* --- programs ------------------------------------------------------------------------------- */

/* The role of an INPUT node, by its use: the loss reads the target, and operators over time the
 * length. */
static fr__role role_of(const fr_graph *g, int node)
{
    if (fr_graph_node(g, node)->op != FR_OP_INPUT) return FR__ROLE_LINK;
    for (int i = node + 1; i < fr_graph_n_nodes(g); i++) {
        const fr_node *user = fr_graph_node(g, i);
        int length = fr_graph_length_input(g, user);
        if (fr_operator_is_loss(user->op) && user->inputs[1] == node) return FR__ROLE_TARGET;
        if (length >= 0 && user->inputs[length] == node) return FR__ROLE_LENGTH;
    }
    return FR__ROLE_INPUT;
}

static const fr__tensor_ref nowhere = {.link = -1};

static fr_status list_inputs(fr__exec *x, fr__compiled *c)
{
    const fr_graph *g = x->d.graph;
    int of_role[FR__ROLE_LINK] = {0};
    for (int i = 0; i < c->n_in; i++) {
        const fr_port *port = fr_program_input(c->program, i);
        fr__role role = role_of(g, port->node);
        c->in[i] = (fr__in_port){
            .port = port, .role = role, .value = nowhere, .grad = nowhere, .seed = nowhere};
        if (role == FR__ROLE_LINK) continue;
        if (!fr__device_is_host(x->dev)) {
            c->in[i].copy_offset = c->data_bytes;
            c->data_bytes += fr__align_up(port->bytes);
        }
        int other = of_role[role] - 1;
        if (other >= 0)
            return fr_fail(x->ctx, FR_UNSUPPORTED,
                           "inputs %s and %s need the same tensor of the data",
                           fr_graph_node(g, other)->name, fr_graph_node(g, port->node)->name);
        of_role[role] = port->node + 1;
    }
    return FR_OK;
}

static fr_status list_outputs(fr__exec *x, fr__compiled *c)
{
    int loss = fr_graph_find_loss(x->d.graph);
    c->output_bytes = 0;
    for (int i = 0; i < c->n_out; i++) {
        const fr_port *port = fr_program_output(c->program, i);
        c->out[i] = (fr__out_port){.port = port, .offset = c->output_bytes, .grad = nowhere};
        c->output_bytes += fr__align_up(port->bytes);
    }
    c->loss_port = loss < 0 ? -1 : fr_program_find_output(c->program, loss);
    const fr_operator op = loss < 0 ? FR_OP_INPUT : fr_graph_node(x->d.graph, loss)->op;
    c->counts_errors = op == FR_OP_MSE || op == FR_OP_SMOOTH_L1;
    c->logits_port =
        x->d.logits_node <= 0 ? -1 : fr_program_find_output(c->program, x->d.logits_node);
    return FR_OK;
}

static fr_status make_lists(fr__exec *x, fr__mode mode)
{
    fr__compiled *c = &x->compiled[mode];
    fr_arena *a = x->d.arena;
    c->n_in = fr_program_n_inputs(c->program), c->n_out = fr_program_n_outputs(c->program);
    c->in = FR_ARENA_ARRAY(a, fr__in_port, c->n_in + 1);
    c->out = FR_ARENA_ARRAY(a, fr__out_port, c->n_out + 1);
    c->inputs = FR_ARENA_ARRAY(a, const void *, c->n_in + 1);
    c->input_grads = FR_ARENA_ARRAY(a, void *, c->n_in + 1);
    c->outputs = FR_ARENA_ARRAY(a, void *, c->n_out + 1);
    c->output_grads = FR_ARENA_ARRAY(a, const void *, c->n_out + 1);
    if (!c->in || !c->out || !c->inputs || !c->input_grads || !c->outputs || !c->output_grads)
        return fr__exec_no_memory(x);
    FR_TRY(list_inputs(x, c));
    FR_TRY(list_outputs(x, c));
    c->forward_done = FR_ARENA_ARRAY(a, fr__mark, x->d.slots[mode].n_slots);
    c->backward_done = FR_ARENA_ARRAY(a, fr__mark, x->d.slots[mode].n_slots);
    c->loss_rows = FR_ARENA_ARRAY(a, float, c->loss_port < 0 ? 1 : 3 * x->d.micro_batch);
    bool has_all = c->forward_done && c->backward_done && c->loss_rows;
    return has_all ? FR_OK : fr__exec_no_memory(x);
}

static fr_status compile(fr__exec *x, fr__mode mode)
{
    const fr__exec_desc *d = &x->d;
    fr__compiled *c = &x->compiled[mode];
    bool has_logits = d->logits_node >= d->bounds.first && d->logits_node < d->bounds.last;
    fr_program_desc p = {.graph = d->graph,
                         .stage = &x->d.bounds,
                         .batch = d->micro_batch,
                         .training = mode == FR_MODE_TRAIN,
                         .split_backward = mode == FR_MODE_TRAIN && d->is_split,
                         .recompute = mode == FR_MODE_TRAIN ? d->recompute : NULL,
                         .extra_output = mode == FR_MODE_EVAL && has_logits ? d->logits_node : 0,
                         .is_plan = true};
    FR_TRY(fr_program_create(x->ctx, x->dev, &p, &c->program));
    FR_TRY(make_lists(x, mode));
    const fr_program_sizes *sizes = fr_program_sizes_of(c->program);
    c->slot_bytes = fr__align_up(sizes->slot_bytes);
    c->area_bytes = fr__align_up(sizes->area_bytes);
    d->device->workspace_bytes = most(d->device->workspace_bytes, sizes->workspace_bytes);
    return fr__activation_slots_plan(x, mode);
}

void fr__exec_make_room(fr__exec *x, int placement)
{
    const size_t bytes = fr_program_placement(x->layout, placement)->count * sizeof(float);
    if (x->weight_type == FR_F32) return;
    x->d.device->workspace_bytes = most(x->d.device->workspace_bytes, bytes);
}

/* Weights of a policy's state may be bf16, and are read and written as floats. */
static void make_room_for_state(fr__exec *x)
{
    const fr_store_desc s = {.policy = x->d.policy, .context = x->d.context};
    const int n = fr_store_policy_state_name(&s) ? fr_program_n_placements(x->layout) : 0;
    for (int i = 0; i < n; i++) fr__exec_make_room(x, i);
}

static fr_status compile_all(fr__exec *x)
{
    for (int mode = 0; mode < FR_N_MODES; mode++)
        if (x->d.slots[mode].n_slots > 0) FR_TRY(compile(x, (fr__mode)mode));
    x->layout = x->compiled[fr__exec_trains(x) ? FR_MODE_TRAIN : FR_MODE_EVAL].program;
    const fr_program_sizes *sizes = fr_program_sizes_of(x->layout);
    fr__exec_set_sizes(x, (fr__exec_sizes){sizes->n_weights, sizes->n_grads, sizes->n_buffers});
    if (!fr__exec_trains(x)) return FR_OK;
    make_room_for_state(x);
    FR_TRY(fr__exec_list_matrices(x));
    return fr__reduction_plan(x);
}

fr_status fr__exec_create(fr_ctx *ctx, const fr__exec_desc *desc, fr__exec **out)
{
    fr__exec *x = *out = FR_ARENA_NEW(desc->arena, fr__exec);
    if (!x) return fr__no_memory(ctx, sizeof *x, "a stage");
    x->ctx = ctx;
    x->d = *desc;
    x->dev = desc->device ? desc->device->dev : NULL;
    x->weight_type = fr_graph_precision(desc->graph);
    fr_status status = desc->device ? compile_all(x) : FR_OK;
    x->d.recompute = NULL;
    return status;
}

void fr__exec_free(fr__exec *x)
{
    if (!x) return;
    fr_store_free(x->store);
    for (int mode = 0; mode < FR_N_MODES; mode++) fr_program_free(x->compiled[mode].program);
}

fr__exec_sizes fr__exec_sizes_of(const fr__exec *x)
{
    return (fr__exec_sizes){x->n_weights, x->n_grads, x->n_buffers};
}

void fr__exec_set_sizes(fr__exec *x, fr__exec_sizes sizes)
{
    x->n_weights = sizes.n_weights;
    x->n_grads = sizes.n_grads;
    x->n_buffers = sizes.n_buffers;
}

/* --- ports ---------------------------------------------------------------------------------- */

fr__in_port *fr__exec_inputs(fr__exec *x, fr__mode mode, int *n)
{
    *n = x->compiled[mode].n_in;
    return x->compiled[mode].in;
}

fr__out_port *fr__exec_outputs(fr__exec *x, fr__mode mode, int *n)
{
    *n = x->compiled[mode].n_out;
    return x->compiled[mode].out;
}

bool fr__exec_reads_data(const fr__exec *x)
{
    for (int mode = 0; mode < FR_N_MODES; mode++)
        for (int i = 0; i < x->compiled[mode].n_in; i++)
            if (x->compiled[mode].in[i].role != FR__ROLE_LINK) return true;
    return false;
}

size_t fr__exec_output_stride(const fr__exec *x, fr__mode mode) { return x->compiled[mode].stride; }
void *fr__exec_output_memory(const fr__exec *x, fr__mode mode)
{
    return x->compiled[mode].slots_at + x->compiled[mode].slot_bytes;
}

void fr__exec_add_link_bytes(fr__exec *x, size_t grads, size_t landing)
{
    x->grad_link_bytes += grads;
    x->landing_bytes += landing;
}
void *fr__exec_grad_links(const fr__exec *x) { return x->grad_links; }
void *fr__exec_landing(const fr__exec *x) { return x->landing; }

void fr__exec_set_transport(fr__exec *x, const fr_transport *transport, fr_group *group)
{
    x->d.transport = x->sync.transport = transport;
    x->d.group = x->sync.group = group;
}

bool fr__exec_recomputes(const fr__exec *x) { return x->compiled[FR_MODE_TRAIN].areas.n > 0; }

fr_program *fr__exec_program(const fr__exec *x, fr__mode mode) { return x->compiled[mode].program; }

/* --- sizes ---------------------------------------------------------------------------------- */

/* Floats of the running statistics and their copies. */
static size_t n_statistics(const fr__exec *x)
{
    return x->n_buffers * (size_t)(1 + x->n_snaps + fr__exec_recomputes(x));
}

static size_t data_bytes(const fr__exec *x)
{
    size_t bytes = 0;
    for (int mode = 0; mode < FR_N_MODES; mode++)
        bytes = most(bytes, (size_t)x->compiled[mode].n_slots * x->compiled[mode].data_bytes);
    return bytes;
}

static size_t activation_bytes(const fr__exec *x)
{
    return most(x->compiled[FR_MODE_TRAIN].memory_bytes, x->compiled[FR_MODE_EVAL].memory_bytes);
}

static bool has_drift(const fr__exec *x)
{
    return x->d.policy->extrapolation == FR_EXTRAPOLATE_DRIFT;
}

fr_status fr__exec_measure(fr__exec *x, fr_memory_use *use)
{
    const fr__exec_desc *d = &x->d;
    bool trains = fr__exec_trains(x);
    if (trains) x->n_snaps = d->is_flush ? 1 : d->slots[FR_MODE_TRAIN].n_slots / d->n_micro + 2;
    if (!trains) x->d.n_weight_blocks = 1;
    const size_t each = fr_dtype_bytes(x->weight_type);
    x->weight_stride = fr__align_up(x->n_weights * each) / each;
    use->weights += x->weight_stride * fr_weight_bytes(x->weight_type, d->n_weight_blocks);
    if (d->n_weight_blocks > use->weight_copies) use->weight_copies = d->n_weight_blocks;
    use->buffers += n_statistics(x) * sizeof(float);
    for (int mode = 0; mode < FR_N_MODES; mode++)
        if (x->compiled[mode].program)
            use->cache += fr_program_sizes_of(x->compiled[mode].program)->cache_bytes;
    use->io += x->landing_bytes + data_bytes(x);
    use->slots += activation_bytes(x);
    if (!trains) return FR_OK;
    FR_TRY(fr__reduction_measure(x));
    FR_TRY(fr__statistics_measure(x));
    FR_TRY(fr__exec_measure_sync(x));
    use->grads += (size_t)x->n_grad_blocks * x->grad_stride * sizeof(float);
    use->optimizer +=
        (size_t)(d->optimizer->n_state + has_drift(x)) * x->weight_stride * sizeof(float);
    use->io +=
        x->grad_link_bytes + x->reduction.room_bytes + x->statistics_room_bytes + x->sync.bytes;
    return FR_OK;
}

/* --- memory --------------------------------------------------------------------------------- */

static fr_status take(fr__exec *x, size_t bytes, const char *what, void **out)
{
    return fr__exec_device_take(x->d.device, bytes, what, out);
}

static fr_status take_floats(fr__exec *x, size_t n, const char *what, float **out)
{
    void *at;
    FR_TRY(take(x, n * sizeof(float), what, &at));
    *out = at;
    return FR_OK;
}

static fr_status allocate_training(fr__exec *x)
{
    const fr__exec_desc *d = &x->d;
    void *at;
    FR_TRY(take_floats(x, (size_t)x->n_grad_blocks * x->grad_stride, "gradients", &x->grads));
    FR_TRY(take(x, x->reduction.room_bytes, "sums of replicas", &x->reduction.room));
    FR_TRY(
        take(x, x->statistics_room_bytes, "running statistics of replicas", &x->statistics_room));
    FR_TRY(take(x, x->sync.bytes, "weights that replicas exchange", &at));
    if (at) fr__sync_place(&x->sync, at);
    for (int i = 0; i < d->optimizer->n_state; i++)
        FR_TRY(take_floats(x, x->weight_stride, d->optimizer->state_names[i], &x->state[i]));
    if (has_drift(x)) FR_TRY(take_floats(x, x->weight_stride, "drift", &x->drift));
    return take(x, x->grad_link_bytes, "gradients in flight", &x->grad_links);
}

fr_status fr__exec_allocate(fr__exec *x)
{
    void *at;
    for (int mode = 0; mode < FR_N_MODES; mode++)
        if (x->compiled[mode].program) FR_TRY(fr_program_reserve(x->compiled[mode].program));
    FR_TRY(take(x, x->weight_stride * fr_weight_bytes(x->weight_type, x->d.n_weight_blocks),
                "weights", &at));
    x->newest = x->weights = at;
    if (x->weight_type != FR_F32) x->weights = x->newest + x->weight_stride;
    FR_TRY(take_floats(x, n_statistics(x), "running statistics", &x->buffers));
    FR_TRY(take(x, activation_bytes(x), "activations", &at));
    for (int mode = 0; mode < FR_N_MODES; mode++) fr__activation_slots_place(x, (fr__mode)mode, at);
    FR_TRY(take(x, x->landing_bytes, "messages from other processes", &x->landing));
    FR_TRY(take(x, data_bytes(x), "data of micro-batches", &at));
    x->data = at;
    return fr__exec_trains(x) ? allocate_training(x) : FR_OK;
}

/* Each parameter begins a new block of a sum of squares, so that the sum does not depend on its
 * neighbours. A copy of a parameter that another stage owns is updated but not summed; a frozen one
 * is neither. */
static fr_status list_norm_blocks(fr__exec *x)
{
    const fr_graph *g = x->d.graph;
    int n = fr_program_n_placements(x->layout);
    size_t n_blocks = 0;
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(x->layout, i);
        n_blocks += (at->count + FR_NORM_BLOCK - 1) / FR_NORM_BLOCK;
    }
    x->norm_blocks = FR_ARENA_ARRAY(x->d.arena, fr__span, n_blocks + 1);
    x->norm_owners = FR_ARENA_ARRAY(x->d.arena, int, n_blocks + 1);
    x->norm_sums = FR_ARENA_ARRAY(x->d.arena, double, n_blocks + 1);
    if (!x->norm_blocks || !x->norm_owners || !x->norm_sums) return fr__exec_no_memory(x);
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(x->layout, i);
        const fr_param *param = fr_graph_param(g, at->param);
        if (param->is_buffer || at->offset >= x->n_weights) continue;
        x->n_updated += at->count;
        if (param->tied_to >= 0 || param->is_frozen) continue;
        for (size_t done = 0; done < at->count; done += FR_NORM_BLOCK) {
            size_t left = at->count - done;
            x->norm_owners[x->n_norm_blocks] = x->n_own;
            x->norm_blocks[x->n_norm_blocks++] = (fr__span){
                .offset = at->offset + done, .count = left < FR_NORM_BLOCK ? left : FR_NORM_BLOCK};
        }
        x->n_own++;
    }
    return FR_OK;
}

/* Copies of weights that another stage updates. */
static fr_status list_copies(fr__exec *x, fr_store_desc *s)
{
    int n = fr_program_n_placements(x->layout);
    fr_weight_range *copies = FR_ARENA_ARRAY(x->d.arena, fr_weight_range, n + 1);
    if (!copies) return fr__exec_no_memory(x);
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(x->layout, i);
        const fr_param *param = fr_graph_param(x->d.graph, at->param);
        if (param->tied_to >= 0 && at->offset < x->n_weights)
            copies[s->n_copies++] = (fr_weight_range){at->offset, at->count};
    }
    s->copies = copies;
    return FR_OK;
}

/* Weights of groups, and frozen ones. */
static fr_status list_ranges(fr__exec *x, fr_store_desc *s)
{
    int n = fr_program_n_placements(x->layout);
    fr_group_range *ranges = FR_ARENA_ARRAY(x->d.arena, fr_group_range, n + 1);
    if (!ranges) return fr__exec_no_memory(x);
    for (int i = 0; i < n; i++) {
        const fr_placement *at = fr_program_placement(x->layout, i);
        const fr_param *param = fr_graph_param(x->d.graph, at->param);
        const int group = x->d.groups.of ? x->d.groups.of[at->param] : -1;
        if (param->is_buffer || at->offset >= x->n_weights) continue;
        if (param->is_frozen || group >= 0)
            ranges[s->n_ranges++] = (fr_group_range){
                .at = at->offset, .n = at->count, .group = param->is_frozen ? FR_FROZEN : group};
    }
    s->ranges = ranges;
    s->n_groups = x->d.groups.n, s->groups = x->d.groups.at;
    return FR_OK;
}

fr_status fr__exec_open(fr__exec *x)
{
    const fr__exec_desc *d = &x->d;
    if (!fr__exec_trains(x)) return FR_OK;
    FR_TRY(list_norm_blocks(x));
    fr_store_desc s = {.policy = d->policy,
                       .context = d->context,
                       .type = x->weight_type,
                       .n_blocks = d->n_weight_blocks,
                       .device = x->dev,
                       .optimizer = d->optimizer,
                       .options = d->options,
                       .lr = d->lr,
                       .n = x->n_weights,
                       .blocks = x->weights,
                       .stride = x->weight_stride,
                       .master = x->newest,
                       .n_matrices = x->n_matrices,
                       .matrices = x->matrices,
                       .scratch = d->device->workspace,
                       .drift = x->drift,
                       .n_samples = d->n_samples};
    for (int i = 0; i < FR_MAX_OPTIM_STATE; i++) s.state[i] = x->state[i];
    FR_TRY(list_copies(x, &s));
    FR_TRY(list_ranges(x, &s));
    return fr_store_create(x->ctx, &s, &x->store);
}
