/* plan_backward.c -- places of gradients, and the order in which they are made and summed.
 *
 * Units are visited from last to first. Each tensor's gradient is a reference to a buffer;
 * several tensors may share one (both inputs of an add receive its dy). A buffer may be written
 * only while one tensor refers to it; otherwise it is copied first. Sums therefore have one order,
 * later consumers first, for any cut of the graph. */
#include "backend/program.h"

typedef struct buffer {
    size_t bytes;
    fr_dtype dtype;
    int first, last; /* steps of back_input that write or read it */
    int refs;        /* tensors whose gradient it is now; held buffers have one more for ever */
    fr__tensor_place place; /* NONE: workspace, to be placed */
} buffer;

typedef struct plan {
    fr_program *p;
    FR_VEC(buffer) buffers;
    int *grad;       /* [local]: buffer of its gradient, or -1 */
    int visited;     /* the unit whose backward is being planned */
    bool has_failed; /* out of memory; checked once at the end */
} plan;

static int now(const plan *b) { return (int)b->p->back_input.n; }

static int *grad_of(const plan *b, int node) { return &b->grad[fr__local(b->p, node)]; }

/* A gradient has the layout of its tensor. */
static const fr__layout *layout_of(const plan *b, int node)
{
    return b->p->layout[fr__local(b->p, node)];
}

static int new_buffer(plan *b, size_t bytes, fr_dtype dtype, fr__tensor_place place)
{
    buffer fresh = {
        .bytes = bytes, .dtype = dtype, .first = now(b), .last = now(b), .place = place};
    if (!fr__vec_push(&b->buffers, fresh)) {
        b->has_failed = true;
        return 0;
    }
    return (int)b->buffers.n - 1;
}

/* A buffer for the gradient of `node`: the caller's own memory if the node is an input port. */
static int new_grad(plan *b, int node)
{
    fr__tensor_place place = {0};
    int port = fr_program_find_input(b->p, node);
    if (port >= 0) place = fr__place_at(FR_AREA_INPUT_GRAD, (size_t)port);
    return new_buffer(b, layout_of(b, node)->bytes, layout_of(b, node)->dtype, place);
}

static void refer(plan *b, int node, int buf)
{
    *grad_of(b, node) = buf;
    b->buffers.at[buf].refs++;
}

static void drop(plan *b, int node)
{
    b->buffers.at[*grad_of(b, node)].refs--;
    *grad_of(b, node) = -1;
}

/* Steps and units refer to buffers by number until places are known; the offset of a workspace
 * place holds the number. */
static fr__tensor_place numbered(int buf)
{
    return buf < 0 ? (fr__tensor_place){0} : fr__place_at(FR_AREA_WORK, (size_t)buf);
}

static int number_of(fr__tensor_place place)
{
    return place.area == FR_AREA_NONE ? -1 : (int)place.offset;
}

static void emit(plan *b, fr__step_kind kind, int to, int from)
{
    fr__step step = {.kind = kind, .unit = b->visited, .to = numbered(to), .from = numbered(from)};
    int at = now(b);
    if (to >= 0) {
        step.bytes = b->buffers.at[to].bytes;
        step.dtype = b->buffers.at[to].dtype;
        b->buffers.at[to].last = at;
    }
    if (from >= 0) b->buffers.at[from].last = at;
    if (!fr__vec_push(&b->p->back_input, step)) b->has_failed = true;
}

static bool is_writable(const plan *b, int buf)
{
    return b->buffers.at[buf].refs == 1 && b->buffers.at[buf].place.area != FR_AREA_OUTPUT_GRAD;
}

/* The gradient buffer of `node`, made its own by copying if it is shared. */
static int own_grad(plan *b, int node)
{
    int buf = *grad_of(b, node);
    if (is_writable(b, buf)) return buf;
    int copy = new_grad(b, node);
    emit(b, FR_STEP_COPY, copy, buf);
    drop(b, node);
    refer(b, node, copy);
    return copy;
}

/* The gradient of input i is dz itself. */
static void hand_on(plan *b, int x, int dz)
{
    if (*grad_of(b, x) >= 0) {
        int sum = own_grad(b, x);
        emit(b, FR_STEP_ADD, sum, dz);
    } else if (fr_program_find_input(b->p, x) >= 0) {
        int copy = new_grad(b, x);
        emit(b, FR_STEP_COPY, copy, dz);
        refer(b, x, copy);
    } else {
        refer(b, x, dz);
    }
}

/* Choose dx of input i, which the kernel computes. Returns a buffer to be added to the gradient of
 * the input after the step, or -1. */
static int choose_dx(plan *b, int u, int i, bool has_params)
{
    fr__unit *unit = &b->p->units[u];
    const fr__kernel *k = unit->kernel;
    fr__unit_input *in = &unit->inputs[i];
    int x = in->node, dz = number_of(unit->dz);
    const fr__layout *like = layout_of(b, x);
    if (*grad_of(b, x) < 0) {
        bool can_overwrite = i == 0 && k->can_overwrite_dy && !has_params && dz >= 0 &&
                             is_writable(b, dz) && b->buffers.at[dz].bytes == like->bytes &&
                             fr_program_find_input(b->p, x) < 0;
        int buf = can_overwrite ? dz : new_grad(b, x);
        refer(b, x, buf);
        in->dx = numbered(buf);
        return -1;
    }
    if (k->can_add_dx >> i & 1) {
        in->dx = numbered(own_grad(b, x));
        in->add_dx = true;
        return -1;
    }
    int own = new_buffer(b, like->bytes, like->dtype, (fr__tensor_place){0});
    in->dx = numbered(own);
    return own;
}

/* dz: dy after prepare_dy, in place if dy belongs to this unit alone. With a split backward the
 * weight gradients are computed later, so their inputs are moved to the slot, or to the area of
 * recomputed values, which a micro-batch has for a shorter time. */
static void make_dz(plan *b, int u, bool is_held)
{
    fr_program *p = b->p;
    fr__unit *unit = &p->units[u];
    int out = fr__unit_out(unit), dy = *grad_of(b, out), dz = dy;
    bool must_prepare = unit->kernel->ops->prepare_dy != NULL;
    bool is_outside = b->buffers.at[dy].place.area == FR_AREA_OUTPUT_GRAD;
    if ((must_prepare && !is_writable(b, dy)) || (is_held && is_outside))
        dz = new_buffer(b, b->buffers.at[dy].bytes, b->buffers.at[dy].dtype, (fr__tensor_place){0});
    unit->dz = numbered(dz);
    if (must_prepare)
        emit(b, FR_STEP_PREPARE, dz, dy);
    else if (dz != dy)
        emit(b, FR_STEP_COPY, dz, dy);
    if (dz != dy) {
        drop(b, out);
        refer(b, out, dz);
    }
    buffer *held = &b->buffers.at[dz];
    if (is_held && held->place.area == FR_AREA_NONE) {
        held->place = fr__slot_take(p, unit->nodes[0], held->bytes, p->sizes.n_recomputed > 0);
    }
    if (is_held) held->refs++;
}

static void visit_inputs(plan *b, int u, bool has_params)
{
    fr__unit *unit = &b->p->units[u];
    int dz = number_of(unit->dz);
    int later[FR_MAX_INPUTS]; /* buffers to add after the step */
    bool must_compute = false;
    for (int i = 0; i < unit->n_inputs; i++) {
        const fr__unit_input *in = &unit->inputs[i];
        if (in->need_dx && (unit->kernel->pass_dx >> i & 1)) hand_on(b, in->node, dz);
    }
    for (int i = 0; i < unit->n_inputs; i++) {
        later[i] = -1;
        if (!unit->inputs[i].need_dx || (unit->kernel->pass_dx >> i & 1)) continue;
        later[i] = choose_dx(b, u, i, has_params);
        must_compute = true;
    }
    if (must_compute) {
        emit(b, FR_STEP_INPUT, -1, dz);
        for (int i = 0; i < unit->n_inputs; i++) {
            int dx = number_of(unit->inputs[i].dx);
            if (dx >= 0) b->buffers.at[dx].last = now(b) - 1;
        }
    }
    for (int i = 0; i < unit->n_inputs; i++) {
        if (later[i] >= 0) emit(b, FR_STEP_ADD, own_grad(b, unit->inputs[i].node), later[i]);
    }
}

static void visit(plan *b, int u)
{
    fr_program *p = b->p;
    fr__unit *unit = &p->units[u];
    bool has_params = unit->kernel->ops->backward_weight != NULL;
    bool is_loss = fr_operator_is_loss(unit->kernel->node->op);
    b->visited = u;
    int out = fr__unit_out(unit);
    bool has_dy = *grad_of(b, out) >= 0;
    fr__step weight = {.kind = FR_STEP_WEIGHT, .unit = u};
    if (fr__unit_goes_back(unit) && (has_dy || is_loss)) {
        if (has_dy) make_dz(b, u, p->desc.split_backward && unit->trained);
        visit_inputs(b, u, unit->trained);
    } else {
        weight.kind = FR_STEP_NO_GRAD;
    }
    if (!unit->trained) weight.kind = FR_STEP_FROZEN;
    if (has_params && p->desc.split_backward) {
        if (!fr__vec_push(&p->back_weight, weight)) b->has_failed = true;
    } else if (has_params) {
        emit(b, weight.kind, -1, unit->trained ? number_of(unit->dz) : -1);
    }
    if (has_dy && *grad_of(b, out) >= 0) drop(b, out);
}

/* Input ports without a gradient: set it to zero. */
static void fill_missing(plan *b)
{
    for (int i = 0; i < b->p->n_inputs; i++) {
        const fr_port *port = &b->p->inputs[i];
        if (port->has_grad && *grad_of(b, port->node) < 0)
            emit(b, FR_STEP_COPY, new_grad(b, port->node), -1);
    }
}

static void set_place(const plan *b, fr__tensor_place *place)
{
    int buf = number_of(*place);
    if (buf >= 0) *place = b->buffers.at[buf].place;
}

/* Pack the buffers that have no place yet, then turn buffer numbers into places. */
static fr_status place_buffers(plan *b, size_t *work_bytes)
{
    fr_program *p = b->p;
    int n = (int)b->buffers.n, n_leases = 0;
    fr__lease *leases = FR_ARENA_ARRAY(&p->making, fr__lease, n + 1);
    int *owner = FR_ARENA_ARRAY(&p->making, int, n + 1);
    if (!leases || !owner) return fr__no_memory(p->ctx, (size_t)n, "a program");
    for (int i = 0; i < n; i++) {
        const buffer *buf = &b->buffers.at[i];
        if (buf->place.area != FR_AREA_NONE) continue;
        owner[n_leases] = i;
        leases[n_leases++] =
            (fr__lease){.bytes = buf->bytes, .first = buf->first, .last = buf->last};
    }
    if (!fr__memplan(leases, n_leases, work_bytes))
        return fr__no_memory(p->ctx, (size_t)n_leases, "a program");
    for (int i = 0; i < n_leases; i++)
        b->buffers.at[owner[i]].place = fr__place_at(FR_AREA_WORK, leases[i].offset);
    FR_TRY(fr__note_values(p, leases, n_leases, (int)p->back_input.n, p->back_input.at));
    for (size_t i = 0; i < p->back_input.n; i++) {
        fr__step *step = &p->back_input.at[i];
        set_place(b, &step->to);
        set_place(b, &step->from);
    }
    for (int u = 0; u < p->n_units; u++) {
        fr__unit *unit = &p->units[u];
        set_place(b, &unit->dz);
        for (int i = 0; i < unit->n_inputs; i++) set_place(b, &unit->inputs[i].dx);
    }
    return FR_OK;
}

static void plan_all(plan *b)
{
    fr_program *p = b->p;
    for (int i = 0; i < p->n_local; i++) b->grad[i] = -1;
    for (int i = 0; i < p->n_outputs; i++) {
        if (!p->outputs[i].has_grad) continue;
        fr__tensor_place outside = fr__place_at(FR_AREA_OUTPUT_GRAD, (size_t)i);
        const fr_port *port = &p->outputs[i];
        refer(b, port->node, new_buffer(b, port->bytes, port->dtype, outside));
        if (b->has_failed) return;
    }
    for (int i = 0; i < p->n_inputs; i++) {
        if (!p->inputs[i].has_seed) continue;
        refer(b, p->inputs[i].node, new_grad(b, p->inputs[i].node));
        if (b->has_failed) return;
    }
    for (int u = p->n_units - 1; u >= 0 && !b->has_failed; u--) visit(b, u);
    if (!b->has_failed) fill_missing(b);
}

fr_status fr__plan_backward(fr_program *p, size_t *work_bytes)
{
    int n = p->n_local;
    plan b = {.p = p, .grad = FR_ARENA_ARRAY(&p->making, int, n)};
    if (!b.grad) return fr__no_memory(p->ctx, (size_t)n, "a program");
    /* One buffer to start with, so that a failed new_buffer has a valid number to return. */
    fr_status status = FR_OK;
    (void)new_buffer(&b, 0, FR_F32, (fr__tensor_place){0});
    if (!b.has_failed) plan_all(&b);
    status = b.has_failed ? fr__no_memory(p->ctx, (size_t)n, "a program")
                          : place_buffers(&b, work_bytes);
    fr__vec_fini(&b.buffers);
    return status;
}
