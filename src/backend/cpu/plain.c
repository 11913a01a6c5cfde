/* plain.c -- wraps a kernel for row-major inputs so that it accepts any layout.
 *
 * The inner kernel is made as if all inputs were row-major. Before each of its calls, inputs in
 * another layout are reordered into scratch; input gradients that it writes there are reordered
 * back. Tensors that it passes on unchanged (y_is_x0, pass_dx) become a reorder. */
#include "backend/cpu/cpu.h"

typedef struct wrap {
    fr__kernel base;
    fr__kernel_ops ops;
    fr__kernel *inner;
    int n_inputs;
    uint64_t blocked;                /* bit i: input i is not row-major */
    fr__layout plain[FR_MAX_INPUTS]; /* what the inner kernel sees */
    fr__prim to_plain[FR_MAX_INPUTS], from_plain[FR_MAX_INPUTS];
    size_t x_at[FR_MAX_INPUTS], dx_at[FR_MAX_INPUTS]; /* in scratch */
    size_t inner_at;                                  /* in scratch: that of the inner kernel */
} wrap;

/* Arguments for the inner kernel, with the inputs of `mask` reordered to row-major. */
static fr_status enter(wrap *w, const fr__kernel_args *a, uint64_t mask, fr__kernel_args *inner)
{
    *inner = *a;
    inner->scratch = (char *)a->scratch + w->inner_at;
    for (int i = 0; i < w->n_inputs; i++) {
        if (!(w->blocked >> i & 1)) continue;
        void *x = (char *)a->scratch + w->x_at[i];
        if (mask >> i & 1)
            FR_TRY(fr__prim_run(&w->base, &w->to_plain[i], inner->scratch, FR_TENSORS(a->x[i], x)));
        inner->x[i] = x;
        if (a->dx[i]) inner->dx[i] = (char *)a->scratch + w->dx_at[i];
    }
    return FR_OK;
}

static fr_status wrap_forward(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    if (w->inner->y_is_x0)
        return fr__prim_run(k, &w->to_plain[0], a->scratch, FR_TENSORS(a->x[0], a->y));
    fr__kernel_args inner;
    FR_TRY(enter(w, a, UINT64_MAX, &inner));
    return w->inner->ops->forward(w->inner, &inner);
}

static fr_status wrap_prepare_dy(fr__kernel *k, const fr__kernel_args *a, void *dz)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter(w, a, k->needs_x, &inner));
    return w->inner->ops->prepare_dy(w->inner, &inner, dz);
}

static fr_status wrap_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter(w, a, k->needs_x, &inner));
    if (w->inner->ops->backward_input) FR_TRY(w->inner->ops->backward_input(w->inner, &inner));
    for (int i = 0; i < w->n_inputs; i++) {
        if (!(w->blocked >> i & 1) || !a->dx[i]) continue;
        const void *dx = w->inner->pass_dx >> i & 1 ? a->dy : inner.dx[i];
        FR_TRY(fr__prim_run(k, &w->from_plain[i], inner.scratch, FR_TENSORS(dx, a->dx[i])));
    }
    return FR_OK;
}

static fr_status wrap_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    wrap *w = (wrap *)k;
    fr__kernel_args inner;
    FR_TRY(enter(w, a, k->needs_x, &inner));
    return w->inner->ops->backward_weight(w->inner, &inner);
}

static void wrap_destroy(fr__kernel *k)
{
    wrap *w = (wrap *)k;
    if (w->inner && w->inner->ops->destroy) w->inner->ops->destroy(w->inner);
    for (int i = 0; i < FR_MAX_INPUTS; i++) {
        fr__prim_fini(&w->to_plain[i]);
        fr__prim_fini(&w->from_plain[i]);
    }
}

/* Fields for the program: the inner kernel's needs, without its options on blocked inputs. */
static void take_over(wrap *w)
{
    fr__kernel *k = &w->base;
    const fr__kernel *in = w->inner;
    const bool is_x0_plain = !(w->blocked & 1);
    k->y = in->y;
    k->w = in->w;
    k->saved_bytes = in->saved_bytes;
    k->cache_bytes = in->cache_bytes;
    k->needs_x = in->needs_x;
    k->needs_y = in->needs_y;
    k->dw_reads_w = in->dw_reads_w;
    k->reports_ready = in->reports_ready;
    k->can_add_dx = in->can_add_dx & ~w->blocked;
    k->pass_dx = in->pass_dx & ~w->blocked;
    k->y_is_x0 = in->y_is_x0 && is_x0_plain;
    k->can_overwrite_x0 = in->can_overwrite_x0 && is_x0_plain;
    k->can_overwrite_dy = in->can_overwrite_dy && is_x0_plain;
    w->ops =
        (fr__kernel_ops){.forward = wrap_forward,
                         .prepare_dy = in->ops->prepare_dy ? wrap_prepare_dy : NULL,
                         .backward_input = wrap_backward_input,
                         .backward_weight = in->ops->backward_weight ? wrap_backward_weight : NULL,
                         .destroy = wrap_destroy};
}

static fr_status make_reorders(wrap *w, const fr__kernel_spec *spec, fr_arena *arena)
{
    fr__kernel *k = &w->base;
    size_t at = 0, most = w->inner->scratch_bytes;
    for (int i = 0; i < spec->n_inputs; i++) {
        if (!spec->x[i]->desc) continue;
        fr__md blocked = spec->x[i]->desc, plain;
        const fr__md_view v = fr__md_view_of(blocked);
        FR_TRY(fr__md_row_major(k, v.n_dims, v.dims, &plain));
        FR_TRY(fr__reorder_init(k, arena, blocked, plain, &w->to_plain[i]));
        FR_TRY(fr__reorder_init(k, arena, plain, blocked, &w->from_plain[i]));
        if (w->to_plain[i].scratch_bytes > most) most = w->to_plain[i].scratch_bytes;
        if (w->from_plain[i].scratch_bytes > most) most = w->from_plain[i].scratch_bytes;
        w->x_at[i] = at;
        at += fr__align_up(w->plain[i].bytes);
        w->dx_at[i] = at;
        if (spec->need_dx[i]) at += fr__align_up(w->plain[i].bytes);
    }
    w->inner_at = at;
    k->scratch_bytes = at + most;
    return FR_OK;
}

fr_status fr__cpu_wrap_plain(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel_maker make,
                             fr__kernel **out)
{
    if (fr__spec_has_bf16(spec)) return fr__kernel_in_floats(spec, arena, make, out);
    static const fr__kernel_ops unfinished = {.destroy = wrap_destroy};
    fr__kernel *k = fr__kernel_new(spec, arena, sizeof(wrap), &unfinished);
    if (!k) return FR_NO_MEMORY;
    *out = k; /* from here on `destroy` cleans up */
    wrap *w = (wrap *)k;
    w->n_inputs = spec->n_inputs;
    fr__kernel_spec plain = *spec;
    for (int i = 0; i < spec->n_inputs; i++) {
        if (spec->x[i]->desc) w->blocked |= UINT64_C(1) << i;
        /* The node may be stored in another type than what this kernel gets. */
        const fr_node *node = fr_graph_node(spec->graph, spec->inputs[i]);
        const fr_dtype type = spec->x[i]->dtype;
        w->plain[i] = (fr__layout){.bytes = (size_t)fr_shape_count(&node->shape) *
                                            (size_t)spec->batch * fr_dtype_bytes(type),
                                   .dtype = type};
        plain.x[i] = &w->plain[i];
    }
    FR_TRY(make(&plain, arena, &w->inner));
    FR_TRY(make_reorders(w, spec, arena));
    take_over(w);
    k->ops = &w->ops;
    return FR_OK;
}
