/* program.c -- compile a stage: groups of nodes, their kernels, ports and parameters.
 *
 * A group runs at the position of its last node, when all its inputs exist; because every
 * other node of a group has one consumer, inside the group, only last nodes make values. */
#include "backend/program.h"

#include <string.h>

fr__layout fr__plain_layout(const fr_graph *g, int node, int batch)
{
    const fr_node *n = fr_graph_node(g, node);
    return (fr__layout){.bytes = fr_node_bytes(n) * (size_t)batch, .dtype = n->dtype};
}

int64_t fr__cols(const fr_node *node)
{
    return node->shape.n_dims ? node->shape.dim[node->shape.n_dims - 1] : 1;
}

int64_t fr__rows(const fr_node *node, int batch)
{
    return fr_shape_count(&node->shape) / fr__cols(node) * batch;
}

int fr__sole_consumer(const fr_graph *g, const fr_stage *stage, int node)
{
    int reader = fr_graph_sole_reader(g, node);
    return reader < stage->last ? reader : -1;
}

/* Parameters of the nodes, buffers included. */
static int count_params(const fr_graph *g, int n_nodes, const int *nodes)
{
    int n = 0;
    for (int i = 0; i < n_nodes; i++) n += fr_graph_node(g, nodes[i])->n_params;
    return n < FR_MAX_PARAMS ? n : FR_MAX_PARAMS;
}

fr__kernel *fr__kernel_new(const fr__kernel_spec *spec, fr_arena *arena, size_t bytes,
                           const fr__kernel_ops *ops)
{
    int n_params = count_params(spec->graph, spec->n_nodes, spec->nodes), n = 0;
    size_t whole = bytes + (size_t)n_params * sizeof(fr__layout);
    fr__kernel *k = fr__arena_pack(arena, whole);
    if (!k) {
        fr__no_memory(spec->ctx, whole, "a kernel");
        return NULL;
    }
    k->ops = ops;
    k->ctx = spec->ctx;
    k->dev = spec->dev;
    k->graph = spec->graph;
    k->node = fr_graph_node(spec->graph, spec->nodes[0]);
    k->batch = spec->batch;
    k->training = spec->training;
    k->w_type = spec->w_type;
    const fr_node *last = fr_graph_node(spec->graph, spec->nodes[spec->n_nodes - 1]);
    k->y = (fr__layout){.bytes = (size_t)fr_shape_count(&last->shape) * (size_t)spec->batch *
                                 fr_dtype_bytes(spec->y_type),
                        .dtype = spec->y_type};
    k->w = (fr__layout *)(void *)((char *)k + bytes); /* sizes of structs with pointers: aligned */
    for (int i = 0; i < spec->n_nodes; i++) {
        const fr_node *node = fr_graph_node(spec->graph, spec->nodes[i]);
        for (int j = 0; j < node->n_params && n < n_params; j++, n++) {
            const fr_param *param = fr_graph_param(spec->graph, node->params[j]);
            k->w[n] = (fr__layout){.bytes = (size_t)fr_shape_count(&param->shape) * sizeof(float),
                                   .dtype = FR_F32};
        }
    }
    return k;
}

/* A port of a node. *is_read_later: its value has readers behind the stage. */
static fr_port make_port(const fr_program *p, int node, bool *is_read_later)
{
    const fr__layout plain = fr__plain_layout(p->graph, node, p->desc.batch);
    *is_read_later = fr_graph_last_reader(p->graph, node) >= p->stage.last;
    return (fr_port){.node = node,
                     .dtype = plain.dtype,
                     .bytes = plain.bytes,
                     .has_grad = p->desc.training && fr_graph_node(p->graph, node)->needs_grad};
}

/* Ports are the inputs and outputs of the stage, and the extra output, in order of nodes. */
static fr_status find_ports(fr_program *p)
{
    const fr_stage *s = &p->stage;
    int extra = p->desc.extra_output, k = 0;
    bool is_read_later;
    p->inputs = FR_ARENA_ARRAY(&p->arena, fr_port, s->n_inputs);
    p->outputs = FR_ARENA_ARRAY(&p->arena, fr_port, s->n_outputs + 1);
    if (!p->inputs || !p->outputs) return fr__no_memory(p->ctx, (size_t)s->n_inputs, "a program");
    for (int i = 0; i < s->n_inputs; i++) {
        fr_port *port = &p->inputs[p->n_inputs++];
        *port = make_port(p, s->inputs[i], &is_read_later);
        port->has_seed = port->has_grad && is_read_later;
    }
    for (int i = s->first; i < s->last; i++) {
        bool is_output = k < s->n_outputs && s->outputs[k] == i;
        k += is_output;
        if (!is_output && (extra <= 0 || i != extra || !fr__in_stage(p, i))) continue;
        fr_port *port = &p->outputs[p->n_outputs++];
        *port = make_port(p, i, &is_read_later);
        port->has_grad &= is_read_later;
    }
    p->n_local = s->last - s->first + p->n_inputs;
    return FR_OK;
}

static int find_port(const fr_port *ports, int n, int node)
{
    int low = 0;
    while (low < n) {
        int middle = low + (n - low) / 2;
        if (ports[middle].node == node) return middle;
        if (ports[middle].node < node)
            low = middle + 1;
        else
            n = middle;
    }
    return -1;
}

int fr_program_find_output(const fr_program *p, int node)
{
    return find_port(p->outputs, p->n_outputs, node);
}

int fr_program_find_input(const fr_program *p, int node)
{
    return find_port(p->inputs, p->n_inputs, node);
}

static bool reads(const fr_program *p, int node, int value)
{
    const fr_node *n = fr_graph_node(p->graph, node);
    for (int i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i] == value) return true;
    }
    return false;
}

/* A group runs at the position of its first node. A later node may join if its other inputs exist
 * by then, and if no node in between reads them: fused or not, the terms of a gradient are added in
 * the order of nodes. */
static bool may_join(const fr_program *p, const int nodes[FR_MAX_GROUP], int place)
{
    const fr_node *node = fr_graph_node(p->graph, nodes[place]);
    for (int i = 0; i < node->n_inputs; i++) {
        const int input = node->inputs[i];
        if (input == nodes[place - 1]) continue;
        if (input > nodes[0]) return false;
        for (int k = nodes[0] + 1; k < nodes[place]; k++) {
            if (reads(p, k, input)) return false;
        }
    }
    return true;
}

/* Let the backend fuse, unless that would hide a requested node or change bits. */
static int make_group(fr_program *p, int node, int nodes[FR_MAX_GROUP])
{
    nodes[0] = node;
    if (!p->dev->backend->fuse) return 1;
    int n = p->dev->backend->fuse(p->graph, &p->stage, p->desc.training, node, nodes);
    for (int i = 1; i < n; i++) {
        if (nodes[i - 1] == p->desc.extra_output || !may_join(p, nodes, i)) return i;
    }
    return n;
}

/* Number the groups by their first node: fills home_of. */
static void find_groups(fr_program *p)
{
    int first = p->stage.first, nodes[FR_MAX_GROUP];
    for (int i = 0; i < p->n_local; i++) p->unit_of[i] = p->home_of[i] = -1;
    for (int i = first; i < p->stage.last; i++) {
        if (!fr__in_stage(p, i) || p->home_of[i - first] >= 0) continue;
        int n = make_group(p, i, nodes);
        for (int k = 0; k < n; k++) p->home_of[nodes[k] - first] = p->n_units;
        p->n_units++;
    }
}

static fr_status make_units(fr_program *p)
{
    p->home_of = FR_ARENA_ARRAY(&p->arena, int, p->n_local);
    p->unit_of = FR_ARENA_ARRAY(&p->arena, int, p->n_local);
    p->kept = FR_ARENA_ARRAY(&p->arena, size_t, p->n_local);
    p->values = FR_ARENA_ARRAY(&p->arena, size_t, p->n_local);
    p->scratches = FR_ARENA_ARRAY(&p->arena, size_t, p->n_local);
    if (!p->home_of || !p->unit_of || !p->kept || !p->values || !p->scratches)
        return fr__no_memory(p->ctx, (size_t)p->n_local, "a program");
    find_groups(p);
    p->units = FR_ARENA_ARRAY(&p->arena, fr__unit, p->n_units);
    if (!p->units) {
        p->n_units = 0;
        return fr__no_memory(p->ctx, (size_t)p->n_local, "a program");
    }
    for (int i = 0; i < p->stage.last - p->stage.first; i++) {
        if (p->home_of[i] < 0) continue;
        fr__unit *u = &p->units[p->home_of[i]];
        u->nodes[u->n_nodes++] = p->stage.first + i;
    }
    for (int i = 0; i < p->n_units; i++)
        p->unit_of[fr__unit_out(&p->units[i]) - p->stage.first] = i;
    return FR_OK;
}

/* Inputs come in order of nodes; those made inside are left out. */
static fr_status find_inputs(fr_program *p, fr__unit *u)
{
    int inputs[FR_MAX_INPUTS];
    for (int i = 0; i < u->n_nodes; i++) {
        const fr_node *node = fr_graph_node(p->graph, u->nodes[i]);
        for (int k = 0; k < node->n_inputs; k++) {
            if (i > 0 && node->inputs[k] == u->nodes[i - 1]) continue;
            if (u->n_inputs == FR_MAX_INPUTS)
                return fr_fail(p->ctx, FR_UNSUPPORTED, "node %s: more than %d inputs", node->name,
                               FR_MAX_INPUTS);
            inputs[u->n_inputs++] = node->inputs[k];
        }
    }
    u->inputs = fr__arena_pack(&p->arena, u->n_inputs * sizeof *u->inputs);
    if (!u->inputs) return fr__no_memory(p->ctx, sizeof inputs, "a program");
    for (int i = 0; i < u->n_inputs; i++) {
        bool need_dx = p->desc.training && fr_graph_node(p->graph, inputs[i])->needs_grad;
        u->inputs[i] = (fr__unit_input){.node = inputs[i], .need_dx = need_dx};
    }
    return FR_OK;
}

static fr__kernel_spec spec_of(const fr_program *p, const fr__unit *u)
{
    fr__kernel_spec s = {.ctx = p->ctx,
                         .dev = p->dev,
                         .graph = p->graph,
                         .n_nodes = u->n_nodes,
                         .batch = p->desc.batch,
                         .training = p->desc.training,
                         .y_type = fr_graph_node(p->graph, fr__unit_out(u))->dtype,
                         .w_type = fr_graph_precision(p->graph),
                         .n_inputs = u->n_inputs,
                         .plain_output = fr_program_find_output(p, fr__unit_out(u)) >= 0};
    memcpy(s.nodes, u->nodes, sizeof s.nodes);
    for (int i = 0; i < s.n_inputs; i++) {
        s.inputs[i] = u->inputs[i].node;
        s.need_dx[i] = u->inputs[i].need_dx;
        s.x[i] = p->layout[fr__local(p, s.inputs[i])];
    }
    return s;
}

/* A group stores its output only; inputs may come from a stage on another device. */
static fr_status check_types(fr_program *p, const fr__unit *u)
{
    const fr_node *bf16 = NULL, *out = fr_graph_node(p->graph, fr__unit_out(u));
    if (out->dtype == FR_BF16) bf16 = out;
    for (int i = 0; i < u->n_inputs; i++) {
        const fr_node *in = fr_graph_node(p->graph, u->inputs[i].node);
        if (in->dtype == FR_BF16) bf16 = in;
    }
    if (fr_graph_precision(p->graph) == FR_BF16) bf16 = out;
    if (!bf16 || p->dev->backend->has_bf16) return FR_OK;
    return fr_fail(p->ctx, FR_UNSUPPORTED, "backend %s does not compute with bf16 (node %s)",
                   p->dev->backend->name, bf16->name);
}

/* A tensor that leaves the program is as the other side expects it. */
static fr_status check_output(fr_program *p, const fr__unit *u)
{
    const fr__layout *y = &u->kernel->y;
    const fr_node *out = fr_graph_node(p->graph, fr__unit_out(u));
    if (!y->desc && y->dtype == out->dtype) return FR_OK;
    return fr_fail(p->ctx, FR_INTERNAL, "node %s leaves the program in a layout of the backend",
                   out->name);
}

/* Some parameter of the unit is not frozen. */
static bool trains(const fr_program *p, const fr__unit *u)
{
    bool any = false;
    for (int i = 0; i < u->n_nodes; i++) {
        const fr_node *node = fr_graph_node(p->graph, u->nodes[i]);
        for (int k = 0; k < node->n_params; k++) {
            const fr_param *param = fr_graph_param(p->graph, node->params[k]);
            any |= !param->is_buffer && !param->is_frozen;
        }
    }
    return any;
}

static fr_status make_kernels(fr_program *p)
{
    p->layout = FR_ARENA_ARRAY(&p->arena, const fr__layout *, p->n_local);
    fr__layout *plain = FR_ARENA_ARRAY(&p->arena, fr__layout, p->n_inputs + 1);
    if (!p->layout || !plain) return fr__no_memory(p->ctx, (size_t)p->n_local, "a program");
    for (int i = 0; i < p->n_inputs; i++) {
        plain[i] = (fr__layout){.bytes = p->inputs[i].bytes, .dtype = p->inputs[i].dtype};
        p->layout[fr__local(p, p->inputs[i].node)] = &plain[i];
    }
    for (int i = 0; i < p->n_units; i++) {
        fr__unit *u = &p->units[i];
        FR_TRY(find_inputs(p, u));
        FR_TRY(check_types(p, u));
        const fr__kernel_spec spec = spec_of(p, u);
        fr_operator op = fr_graph_node(p->graph, u->nodes[0])->op;
        fr__kernel_maker make = p->dev->backend->makers[op];
        if (!make)
            return fr_fail(p->ctx, FR_UNSUPPORTED, "backend %s has no %s (node %s)",
                           p->dev->backend->name, fr_operator_name(op),
                           fr_graph_node(p->graph, u->nodes[0])->name);
        FR_TRY(make(&spec, &p->arena, &u->kernel));
        u->trained = u->kernel->ops->backward_weight && trains(p, u);
        if (spec.plain_output) FR_TRY(check_output(p, u));
        p->layout[fr__unit_out(u) - p->stage.first] = &u->kernel->y;
    }
    return FR_OK;
}

/* The layout that the unit's kernel chose for a parameter. */
static fr__layout layout_of_param(fr_program *p, int param, fr__unit **unit, int *index)
{
    int home = p->home_of[fr_graph_param(p->graph, param)->node - p->stage.first], n = 0;
    for (int i = 0; home >= 0 && i < p->units[home].n_nodes; i++) {
        const fr_node *node = fr_graph_node(p->graph, p->units[home].nodes[i]);
        for (int j = 0; j < node->n_params; j++, n++) {
            if (node->params[j] != param) continue;
            *unit = &p->units[home];
            *index = n;
            return p->units[home].kernel->w[n];
        }
    }
    return (fr__layout){0};
}

static size_t advance(size_t *at, const fr__layout *layout)
{
    size_t offset = *at;
    *at += fr__align_up(layout->bytes) / fr_dtype_bytes(layout->dtype);
    return offset;
}

/* Parameters are in the order of nodes, so those of a stage are contiguous. Returns their number.
 */
static int find_params(fr_program *p)
{
    int n = 0;
    for (int i = p->stage.last - 1; i >= p->stage.first; i--) {
        const fr_node *node = fr_graph_node(p->graph, i);
        if (node->n_params > 0) p->first_param = node->params[0];
        n += node->n_params;
    }
    return n;
}

/* Trained parameters in graph order, then buffers; tied ones get gradients behind the weights. */
static fr_status place_params(fr_program *p)
{
    int n = find_params(p);
    p->params = FR_ARENA_ARRAY(&p->arena, fr__placed_param, n);
    p->placed = FR_ARENA_ARRAY(&p->arena, int, n);
    if (!p->params || !p->placed) return fr__no_memory(p->ctx, (size_t)n, "a program");
    for (int i = 0; i < n; i++) p->placed[i] = -1;
    for (int round = 0; round < 3; round++) { /* trained, tied, buffers */
        for (int i = p->first_param; i < p->first_param + n; i++) {
            const fr_param *param = fr_graph_param(p->graph, i);
            int owner =
                param->tied_to >= p->first_param ? p->placed[param->tied_to - p->first_param] : -1;
            int kind = param->is_buffer ? 2 : owner >= 0 ? 1 : 0;
            if (kind != round) continue;
            fr__unit *unit = NULL;
            int index = 0;
            fr__layout layout = layout_of_param(p, i, &unit, &index);
            if (!unit || layout.dtype != FR_F32)
                return fr_fail(p->ctx, FR_INTERNAL, "%s has no kernel, or not of floats",
                               param->name);
            fr__placed_param *at = &p->params[p->n_params];
            p->placed[i - p->first_param] = p->n_params;
            *at = (fr__placed_param){.pub = {.param = i, .count = fr__layout_count(&layout)},
                                     .layout = layout,
                                     .is_tied = kind == 1,
                                     .is_buffer = kind == 2,
                                     .owner = owner};
            if (kind == 1 && (layout.desc || p->params[owner].layout.desc))
                return fr_fail(p->ctx, FR_UNSUPPORTED, "%s: tied weights must be plain",
                               param->name);
            size_t *end = kind == 2 ? &p->sizes.n_buffers : &p->sizes.n_grads;
            at->pub.offset = advance(end, &layout);
            at->weight_offset = kind == 1 ? p->params[owner].pub.offset : at->pub.offset;
            unit->params[index] = p->n_params++;
            if (unit->n_params <= index) unit->n_params = (uint8_t)(index + 1);
        }
        if (round == 0) p->sizes.n_weights = p->sizes.n_grads;
    }
    return FR_OK;
}

fr__tensor_place fr__slot_take(fr_program *p, int node, size_t bytes, bool again)
{
    size_t *end = again ? &p->sizes.area_bytes : &p->sizes.slot_bytes, offset = *end;
    *end += fr__align_up(bytes);
    if (!again) p->kept[node - p->stage.first] += fr__align_up(bytes);
    return fr__place_at(again ? FR_AREA_AGAIN : FR_AREA_SLOT, offset);
}

fr_status fr__note_values(fr_program *p, const fr__lease *leases, int n, int n_steps,
                          const fr__step *steps)
{
    size_t *live = FR_ARENA_ARRAY(&p->making, size_t, n_steps + 1);
    if (!live) return fr__no_memory(p->ctx, (size_t)n_steps, "a program");
    fr__memplan_live(leases, n, n_steps, live);
    for (int i = 0; i < n_steps; i++) {
        const fr__unit *unit = &p->units[steps ? steps[i].unit : i];
        size_t *most = &p->values[unit->nodes[0] - p->stage.first];
        if (live[i] > *most) *most = live[i];
    }
    return FR_OK;
}

static fr_status place_saved(fr_program *p)
{
    p->cache_ids = FR_ARENA_ARRAY(&p->arena, uint64_t, p->n_units + 1);
    if (!p->cache_ids) return fr__no_memory(p->ctx, (size_t)p->n_units, "a program");
    for (int i = 0; i < p->n_units; i++) {
        fr__unit *u = &p->units[i];
        u->saved = fr__slot_take(p, u->nodes[0], u->kernel->saved_bytes, u->again).offset;
        u->cache = p->sizes.cache_bytes;
        p->sizes.cache_bytes += fr__align_up(u->kernel->cache_bytes);
    }
    return p->desc.is_plan ? FR_OK : fr_program_reserve(p);
}

fr_status fr_program_reserve(fr_program *p)
{
    if (p->sizes.cache_bytes == 0 || p->cache) return FR_OK;
    return fr_device_alloc(p->dev, p->sizes.cache_bytes, "derived weights", &p->cache);
}

static fr_status compile(fr_program *p)
{
    FR_TRY(find_ports(p));
    FR_TRY(make_units(p));
    FR_TRY(make_kernels(p));
    FR_TRY(fr__plan_again(p));
    FR_TRY(place_params(p));
    FR_TRY(place_saved(p));
    size_t forward_bytes = 0, backward_bytes = 0, scratch_bytes = 0;
    FR_TRY(fr__plan_forward(p, &forward_bytes));
    fr__arena_fini(&p->making);
    if (p->desc.training) FR_TRY(fr__plan_backward(p, &backward_bytes));
    fr__arena_fini(&p->making);
    if (!fr__vec_fit(&p->back_input, p->back_input.n))
        return fr__no_memory(p->ctx, p->back_input.n, "steps");
    for (int i = 0; i < p->n_units; i++) {
        size_t bytes = fr__align_up(p->units[i].kernel->scratch_bytes);
        p->scratches[p->units[i].nodes[0] - p->stage.first] = bytes;
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    p->scratch = forward_bytes > backward_bytes ? forward_bytes : backward_bytes;
    p->sizes.workspace_bytes = p->scratch + scratch_bytes;
    return FR_OK;
}

fr_status fr_program_create(fr_ctx *ctx, fr_device *dev, const fr_program_desc *desc,
                            fr_program **out)
{
    *out = NULL;
    fr_program *p = FR_NEW(fr_program);
    if (!p) return fr__no_memory(ctx, sizeof *p, "a program");
    p->ctx = ctx;
    p->dev = dev;
    p->graph = desc->graph;
    p->desc = *desc;
    p->stage = desc->stage ? *desc->stage : (fr_stage){.last = fr_graph_n_nodes(desc->graph)};
    fr_status status = FR_OK;
    if (desc->batch < 1) status = fr_fail(ctx, FR_INVALID, "program: batch %d", desc->batch);
    if (status == FR_OK && p->stage.n_outputs == 0) /* a range of nodes, not a stage of a cut */
        status = fr_graph_stage(ctx, desc->graph, p->stage.first, p->stage.last, &p->stage);
    if (status == FR_OK) status = compile(p);
    fr__arena_fini(&p->making);
    if (status != FR_OK) {
        fr_program_free(p);
        return status;
    }
    *out = p;
    return FR_OK;
}

void fr_program_free(fr_program *p)
{
    if (!p) return;
    for (int i = 0; i < p->n_units; i++) {
        fr__kernel *k = p->units[i].kernel;
        if (k && k->ops->destroy) k->ops->destroy(k);
    }
    fr_device_release(p->dev, p->cache, p->sizes.cache_bytes);
    fr__vec_fini(&p->forward);
    fr__vec_fini(&p->again);
    fr__vec_fini(&p->back_input);
    fr__vec_fini(&p->back_weight);
    fr__arena_fini(&p->arena);
    fr__free(p);
}

const fr_program_sizes *fr_program_sizes_of(const fr_program *p) { return &p->sizes; }

/* An entry of an array by node; 0 for nodes of other stages. */
static size_t entry_of(const fr_program *p, const size_t *array, int node)
{
    int at = fr__local(p, node);
    return at < 0 ? 0 : array[at];
}

size_t fr_program_kept_bytes(const fr_program *p, int node) { return entry_of(p, p->kept, node); }

size_t fr_program_values_bytes(const fr_program *p, int node)
{
    return entry_of(p, p->values, node);
}

size_t fr_program_scratch_bytes(const fr_program *p, int node)
{
    return entry_of(p, p->scratches, node);
}

size_t fr_program_edge_bytes(const fr_program *p, int node)
{
    int at = fr__local(p, node);
    const fr__layout *layout = at >= 0 && p->unit_of[at] >= 0 ? p->layout[at] : NULL;
    return layout && layout->desc ? fr__align_up(layout->bytes) : 0;
}

size_t fr_program_fixed_bytes(const fr_program *p, int node)
{
    size_t bytes = 0;
    int at = fr__local(p, node), home = at >= 0 ? p->home_of[at] : -1;
    if (home < 0) return 0;
    const fr__unit *unit = &p->units[home];
    const fr_node *n = fr_graph_node(p->graph, node);
    if (unit->nodes[0] == node) bytes += fr__align_up(unit->kernel->cache_bytes);
    for (int i = 0; i < n->n_params; i++) {
        const fr__placed_param *param = &p->params[p->placed[n->params[i] - p->first_param]];
        if (param->is_buffer) bytes += fr__align_up(param->layout.bytes);
    }
    return bytes;
}

int fr_program_n_inputs(const fr_program *p) { return p->n_inputs; }
int fr_program_n_outputs(const fr_program *p) { return p->n_outputs; }
const fr_port *fr_program_input(const fr_program *p, int i) { return &p->inputs[i]; }
const fr_port *fr_program_output(const fr_program *p, int i) { return &p->outputs[i]; }
int fr_program_n_placements(const fr_program *p) { return p->n_params; }
const fr_placement *fr_program_placement(const fr_program *p, int i) { return &p->params[i].pub; }
int fr_program_find_placement(const fr_program *p, int param)
{
    int i = param - p->first_param;
    return i >= 0 && i < p->n_params ? p->placed[i] : -1;
}
