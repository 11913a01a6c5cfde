/* program_run.c -- walk the step lists of a program: pointers from places, then kernels. */
#include "backend/program.h"

#include "base/thread.h"

#include <string.h>

static void *address(const fr_program *p, const fr_pass *pass, fr__tensor_place place)
{
    (void)p;
    switch ((fr__area)place.area) {
    case FR_AREA_NONE: return NULL;
    case FR_AREA_SLOT: return (char *)pass->slot + place.offset;
    case FR_AREA_AGAIN: return (char *)pass->area + place.offset;
    case FR_AREA_WORK: return (char *)pass->workspace + place.offset;
    /* Kernels take inputs and output gradients as const; the cast only stores them here. */
    case FR_AREA_INPUT: return (void *)(uintptr_t)pass->inputs[place.offset];
    case FR_AREA_OUTPUT_GRAD: return (void *)(uintptr_t)pass->output_grads[place.offset];
    case FR_AREA_OUTPUT: return pass->outputs[place.offset];
    case FR_AREA_INPUT_GRAD: return pass->input_grads[place.offset];
    }
    return NULL;
}

static void fill_args(fr_program *p, const fr_pass *pass, fr__unit *u, fr__kernel_args *a)
{
    const size_t w_bytes = fr_dtype_bytes(fr_graph_precision(p->graph));
    memset(a, 0, sizeof *a);
    for (int i = 0; i < u->n_inputs; i++)
        a->x[i] = address(p, pass, p->value[fr__local(p, u->inputs[i].node)]);
    a->y = address(p, pass, p->value[fr__local(p, fr__unit_out(u))]);
    for (int i = 0; i < u->n_params; i++) {
        const fr__placed_param *param = &p->params[u->params[i]];
        if (param->is_buffer) {
            a->buffers[i] = pass->buffers + param->pub.offset;
            a->w[i] = a->buffers[i];
        } else {
            a->w_at[i] = param->weight_offset;
            a->w[i] = (const char *)pass->weights + param->weight_offset * w_bytes;
            a->dw[i] = pass->grads ? pass->grads + param->pub.offset : NULL;
        }
    }
    a->saved = (char *)(u->again ? pass->area : pass->slot) + u->saved;
    a->scratch = (char *)pass->workspace + p->scratch;
    a->cache = p->cache ? (char *)p->cache + u->cache : NULL;
    a->add_dw = pass->accumulate;
    a->pass = pass;
}

static void fill_back_args(fr_program *p, const fr_pass *pass, fr__unit *u, fr__kernel_args *a)
{
    fill_args(p, pass, u, a);
    a->dy = address(p, pass, u->dz);
    for (int i = 0; i < u->n_inputs; i++) {
        a->dx[i] = address(p, pass, u->inputs[i].dx);
        a->add_dx[i] = u->inputs[i].add_dx;
    }
}

static fr_status run_input(fr_program *p, const fr_pass *pass, int unit, fr__kernel_args *a)
{
    fr__unit *u = &p->units[unit];
    a->cache_valid = pass->weights_id && p->cache_ids[unit] == pass->weights_id;
    FR_TRY(u->kernel->ops->backward_input(u->kernel, a));
    p->cache_ids[unit] = pass->weights_id;
    return FR_OK;
}

/* Tied and frozen: the weights are the owner's, and there is no gradient to be added to its. */
static bool is_owners(const fr_program *p, const fr__placed_param *param)
{
    return param->is_tied && fr_graph_param(p->graph, param->pub.param)->is_frozen;
}

/* The callback may let other devices read gradients that are not transient, so complete them first.
 */
static fr_status report_ready(fr_program *p, const fr_pass *pass, const fr__unit *u, bool has_run)
{
    if (!pass->grad_ready) return FR_OK;
    if (!pass->transient_grads) FR_TRY(fr_device_sync(p->dev));
    unsigned done =
        has_run && pass->transient_grads && !pass->accumulate ? u->kernel->reports_ready : 0;
    for (int i = 0; i < u->n_params; i++) {
        const fr__placed_param *param = &p->params[u->params[i]];
        if (param->is_buffer || (done >> i & 1) || is_owners(p, param)) continue;
        size_t offset = param->pub.offset;
        pass->grad_ready(pass->user, offset, param->pub.count, pass->grads + offset);
    }
    return FR_OK;
}

static fr_status clear_grads(fr_program *p, const fr_pass *pass, const fr__unit *u)
{
    for (int i = 0; i < u->n_params && !pass->accumulate; i++) {
        const fr__placed_param *param = &p->params[u->params[i]];
        if (param->is_buffer) continue;
        FR_TRY(fr__device_copy(p->dev, pass->grads + param->pub.offset, NULL, param->layout.bytes));
    }
    return FR_OK;
}

static fr_status run_step(fr_program *p, const fr_pass *pass, const fr__step *s)
{
    const fr_backend *backend = p->dev->backend;
    fr__unit *u = &p->units[s->unit];
    fr__kernel_args a;
    switch (s->kind) {
    case FR_STEP_FORWARD: fill_args(p, pass, u, &a); return u->kernel->ops->forward(u->kernel, &a);
    case FR_STEP_PREPARE:
        fill_back_args(p, pass, u, &a);
        a.dy = address(p, pass, s->from);
        return u->kernel->ops->prepare_dy(u->kernel, &a, address(p, pass, s->to));
    case FR_STEP_INPUT: fill_back_args(p, pass, u, &a); return run_input(p, pass, s->unit, &a);
    case FR_STEP_WEIGHT:
        fill_back_args(p, pass, u, &a);
        FR_TRY(u->kernel->ops->backward_weight(u->kernel, &a));
        return report_ready(p, pass, u, true);
    case FR_STEP_NO_GRAD: FR_TRY(clear_grads(p, pass, u)); return report_ready(p, pass, u, false);
    case FR_STEP_FROZEN: return report_ready(p, pass, u, false);
    case FR_STEP_COPY:
        return backend->copy(p->dev, address(p, pass, s->to), address(p, pass, s->from), s->bytes);
    case FR_STEP_ADD:
        backend->add(p->dev, s->dtype, address(p, pass, s->to), address(p, pass, s->from),
                     s->bytes / fr_dtype_bytes(s->dtype));
        return FR_OK;
    }
    return FR_INTERNAL;
}

/* --- timed passes ------------------------------------------------------------------------ */

void fr_program_time(fr_program *p, fr_node_time *times) { p->meter.times = times; }

/* A fr_grad_ready_fn; user: the meter. */
static void clock_ready(void *meter, size_t offset, size_t count, const float *grad)
{
    fr__meter *m = meter;
    uint64_t start = fr__now_ns();
    m->pass->grad_ready(m->pass->user, offset, count, grad);
    atomic_fetch_add_explicit(&m->ready_ns, fr__now_ns() - start, memory_order_relaxed);
}

static void note_time(fr_program *p, const fr__step *s, uint64_t ns)
{
    fr_node_time *t = &p->meter.times[p->units[s->unit].nodes[0]];
    double ready = 1e-9 * (double)atomic_exchange(&p->meter.ready_ns, 0);
    double own = 1e-9 * (double)ns - ready;
    bool is_forward = s >= p->forward.at && s < p->forward.at + p->forward.n;
    bool is_weight =
        s->kind == FR_STEP_WEIGHT || s->kind == FR_STEP_NO_GRAD || s->kind == FR_STEP_FROZEN;
    *(is_forward ? &t->forward : is_weight ? &t->back_weight : &t->back_input) += own;
    t->ready += ready;
}

/* The clock is read once between steps, so overhead between them is counted too. */
static fr_status run_clocked(fr_program *p, const fr_pass *caller, const fr__step_list *list)
{
    fr_pass pass = *caller;
    uint64_t before = fr__now_ns(), after;
    p->meter.pass = caller;
    if (pass.grad_ready) pass.grad_ready = clock_ready, pass.user = &p->meter;
    for (size_t i = 0; i < list->n; i++, before = after) {
        FR_TRY(run_step(p, &pass, &list->at[i]));
        FR_TRY(fr_device_sync(p->dev));
        after = fr__now_ns();
        note_time(p, &list->at[i], after - before);
    }
    return FR_OK;
}

static fr_status run_list(fr_program *p, const fr_pass *pass, const fr__step_list *list)
{
    if (p->meter.times) return run_clocked(p, pass, list);
    for (size_t i = 0; i < list->n; i++) FR_TRY(run_step(p, pass, &list->at[i]));
    return FR_OK;
}

/* ---------------------------------------------------------------------------------------------- */

fr_status fr_program_forward(fr_program *p, const fr_pass *pass)
{
    return run_list(p, pass, &p->forward);
}

fr_status fr_program_recompute(fr_program *p, const fr_pass *pass)
{
    return run_list(p, pass, &p->again);
}

fr_status fr_program_backward(fr_program *p, const fr_pass *pass, int what)
{
    if (!p->desc.training || (what != FR_GRAD_BOTH && !p->desc.split_backward))
        return fr_fail(p->ctx, FR_INTERNAL, "program was not made for this backward");
    if (what & FR_GRAD_INPUT) FR_TRY(run_list(p, pass, &p->back_input));
    if (what & FR_GRAD_WEIGHT) FR_TRY(run_list(p, pass, &p->back_weight));
    return FR_OK;
}

void fr_program_sum_ties(fr_program *p, float *grads)
{
    for (int i = 0; i < p->n_params; i++) {
        const fr__placed_param *param = &p->params[i];
        if (!param->is_tied) continue;
        fr__device_add(p->dev, param->layout.dtype, grads + param->weight_offset,
                       grads + param->pub.offset, param->pub.count);
    }
}

static fr__layout plain_param(const fr_program *p, const fr__placed_param *param)
{
    const fr_shape *shape = &fr_graph_param(p->graph, param->pub.param)->shape;
    const fr_dtype dtype = param->layout.dtype;
    return (fr__layout){.bytes = (size_t)fr_shape_count(shape) * fr_dtype_bytes(dtype),
                        .dtype = dtype};
}

/* at: where the parameter is. */
static fr_status read_at(fr_program *p, const fr__placed_param *param, const float *at,
                         float *plain)
{
    const fr__layout to = plain_param(p, param);
    if (!param->layout.desc) return fr_device_download(p->dev, plain, at, to.bytes);
    return p->dev->backend->relayout(p->dev, &param->layout, at, &to, plain);
}

static fr_status write_at(fr_program *p, const fr__placed_param *param, float *at,
                          const float *plain)
{
    const fr__layout from = plain_param(p, param);
    if (!param->layout.desc) return fr_device_upload(p->dev, at, plain, from.bytes);
    return p->dev->backend->relayout(p->dev, &from, plain, &param->layout, at);
}

fr_status fr_program_read_param(fr_program *p, const float *block, int placement, float *plain)
{
    const fr__placed_param *param = &p->params[placement];
    return read_at(p, param, block + param->pub.offset, plain);
}

fr_status fr_program_write_param(fr_program *p, float *block, int placement, const float *plain)
{
    const fr__placed_param *param = &p->params[placement];
    return write_at(p, param, block + param->pub.offset, plain);
}

fr_status fr__program_read_typed(fr_program *p, fr_dtype type, const void *block, int placement,
                                 float *plain, float *scratch)
{
    if (type == FR_F32) return fr_program_read_param(p, block, placement, plain);
    const fr__placed_param *param = &p->params[placement];
    const char *at = (const char *)block + param->pub.offset * fr_dtype_bytes(type);
    FR_TRY(fr__device_convert(p->dev, FR_F32, scratch, type, at, param->pub.count));
    return read_at(p, param, scratch, plain);
}

fr_status fr__program_write_typed(fr_program *p, fr_dtype type, void *block, int placement,
                                  const float *plain, float *scratch)
{
    if (type == FR_F32) return fr_program_write_param(p, block, placement, plain);
    const fr__placed_param *param = &p->params[placement];
    char *at = (char *)block + param->pub.offset * fr_dtype_bytes(type);
    if (param->layout.desc) /* leaves the padding, which is zero */
        FR_TRY(fr__device_copy(p->dev, scratch, NULL, param->pub.count * sizeof(float)));
    FR_TRY(write_at(p, param, scratch, plain));
    return fr__device_convert(p->dev, type, at, FR_F32, scratch, param->pub.count);
}

bool fr_program_is_plain(const fr_program *p, int placement)
{
    return !p->params[placement].layout.desc;
}

int64_t fr_program_row_stride(const fr_program *p, int placement)
{
    const fr_shape *shape = &fr_graph_param(p->graph, p->params[placement].pub.param)->shape;
    if (shape->n_dims != 2) return 0;
    return fr_program_is_plain(p, placement) ? shape->dim[1] : p->params[placement].layout.ld;
}
