/* dnnl.c -- oneDNN behind one header: errors, layouts, primitives with reorders. */
#include "backend/cpu/dnnl.h"

#include <string.h>

/* An argument in another layout than the primitive requires. */
struct fr__detour {
    fr__prim reorder;
    size_t offset; /* of the copy in scratch */
    bool is_output;
};

fr_status fr__dnnl_fail(const fr__kernel *k, const char *what, dnnl_status_t status)
{
    fr_status mine = status == dnnl_out_of_memory   ? FR_NO_MEMORY
                     : status == dnnl_unimplemented ? FR_UNSUPPORTED
                                                    : FR_INTERNAL;
    return fr_fail(k->ctx, mine,
                   "node %s (%s): oneDNN failed at the %s: %s; backend ref can run this node",
                   k->node->name, fr_operator_name(k->node->op), what, dnnl_status2str(status));
}

/* ---- Layouts ---- */

/* Takes ownership of md; *out is the device's description equal to it. */
static fr_status intern(const fr__kernel *k, fr__md md, fr__md *out)
{
    fr__cpu_device *cpu = fr__cpu(k->dev);
    *out = NULL;
    pthread_mutex_lock(&cpu->lock);
    for (int i = 0; i < cpu->n_mds && !*out; i++) {
        if (dnnl_memory_desc_equal(cpu->mds[i], md)) *out = cpu->mds[i];
    }
    bool is_new = !*out;
    if (is_new && cpu->n_mds == cpu->room) {
        int room = cpu->room ? 2 * cpu->room : 64;
        fr__md *more =
            fr__realloc(cpu->mds, (size_t)cpu->room * sizeof *more, (size_t)room * sizeof *more);
        if (more) cpu->mds = more, cpu->room = room;
    }
    if (is_new && cpu->n_mds < cpu->room) *out = cpu->mds[cpu->n_mds++] = md;
    pthread_mutex_unlock(&cpu->lock);
    if (*out != md) fr__md_drop(md);
    return *out ? FR_OK : fr__no_memory(k->ctx, sizeof md, "a layout");
}

void fr__md_fini(fr__cpu_device *cpu)
{
    for (int i = 0; i < cpu->n_mds; i++) fr__md_drop(cpu->mds[i]);
    fr__free(cpu->mds);
    pthread_mutex_destroy(&cpu->lock);
}

fr_status fr__md_keep(const fr__kernel *k, fr__md md, fr__md *out)
{
    fr__md copy;
    FR_TRY_DNNL(k, "description of a tensor", fr__md_copy(md, &copy));
    return intern(k, copy, out);
}

fr_status fr__md_as(const fr__kernel *k, fr_dtype type, fr__md *md)
{
    fr__md copy;
    FR_TRY_DNNL(k, "description of a tensor",
                fr__md_copy_as(*md, type == FR_BF16 ? dnnl_bf16 : dnnl_f32, &copy));
    return intern(k, copy, md);
}

fr_status fr__md_new(const fr__kernel *k, int n_dims, const dnnl_dim_t *dims, dnnl_format_tag_t tag,
                     const dnnl_dim_t *strides, fr__md *md)
{
    fr__md made;
    FR_TRY_DNNL(k, "description of a tensor", fr__md_make(n_dims, dims, tag, strides, &made));
    return intern(k, made, md);
}

fr_status fr__md_row_major(const fr__kernel *k, int n_dims, const dnnl_dim_t *dims, fr__md *md)
{
    return fr__md_new(k, n_dims, dims, dnnl_format_tag_undef, NULL, md);
}

static fr_status md_by_tag(const fr__kernel *k, const fr_node *node, dnnl_format_tag_t tag,
                           fr__md *md)
{
    dnnl_dims_t dims = {k->batch};
    for (int i = 0; i < node->shape.n_dims; i++) dims[i + 1] = node->shape.dim[i];
    return fr__md_new(k, node->shape.n_dims + 1, dims, tag, NULL, md);
}

fr_status fr__md_plain(const fr__kernel *k, const fr_node *node, fr__md *md)
{
    return md_by_tag(k, node, dnnl_format_tag_undef, md);
}

static dnnl_format_tag_t tag_of_lanes(int lanes)
{
    return lanes == 1 ? dnnl_nchw : lanes == 8 ? dnnl_nChw8c : dnnl_nChw16c;
}

fr_status fr__md_any(const fr__kernel *k, const fr_node *node, fr__md *md)
{
    const fr__cpu_device *cpu = fr__cpu(k->dev);
    return md_by_tag(k, node, cpu->forces_lanes ? tag_of_lanes(cpu->lanes) : dnnl_format_tag_any,
                     md);
}

fr_status fr__md_any_weights(const fr__kernel *k, int n_dims, const dnnl_dim_t *dims, fr__md *md)
{
    static const dnnl_format_tag_t forced[2][3] = {{dnnl_oihw, dnnl_OIhw8i8o, dnnl_OIhw16i16o},
                                                   {dnnl_goihw, dnnl_gOIhw8i8o, dnnl_gOIhw16i16o}};
    const fr__cpu_device *cpu = fr__cpu(k->dev);
    dnnl_format_tag_t tag =
        cpu->forces_lanes ? forced[n_dims == 5][cpu->lanes / 8] : dnnl_format_tag_any;
    return fr__md_new(k, n_dims, dims, tag, NULL, md);
}

fr_status fr__md_blocked(const fr__kernel *k, const fr_node *node, fr__md *md)
{
    const int lanes = fr__cpu(k->dev)->lanes;
    if (lanes == 1 || node->shape.n_dims != 3 || node->shape.dim[0] % lanes != 0)
        return fr__md_plain(k, node, md);
    return md_by_tag(k, node, tag_of_lanes(lanes), md);
}

fr_status fr__md_of_layout(const fr__kernel *k, const fr__layout *layout, const fr_node *node,
                           fr__md *md)
{
    if (layout->desc)
        *md = layout->desc;
    else
        FR_TRY(fr__md_plain(k, node, md));
    return fr__md_as(k, layout->dtype, md);
}

fr_status fr__layout_of_md(const fr__kernel *k, fr__md md, fr__layout *layout)
{
    fr__md plain;
    const fr__md_view v = fr__md_view_of(md);
    FR_TRY(fr__md_row_major(k, v.n_dims, v.dims, &plain));
    FR_TRY(fr__md_as(k, FR_F32, &md));
    const size_t count = dnnl_memory_desc_get_size(md) / sizeof(float);
    *layout = (fr__layout){.bytes = count * fr_dtype_bytes(layout->dtype),
                           .dtype = layout->dtype,
                           .desc = dnnl_memory_desc_equal(md, plain) ? NULL : md};
    return FR_OK;
}

int fr__layout_lanes(const fr__layout *layout)
{
    if (!layout->desc) return 1;
    const fr__md_view v = fr__md_view_of(layout->desc);
    if (v.n_dims != 4 || v.n_blocks != 1 || v.block_dim != 1) return 0;
    const dnnl_dim_t n_blocks = (v.dims[1] + v.block - 1) / v.block, row = v.dims[3] * v.block;
    const dnnl_dims_t strides = {n_blocks * v.dims[2] * row, v.dims[2] * row, row, v.block};
    bool is_known = v.block == 8 || v.block == 16;
    return is_known && memcmp(strides, v.strides, 4 * sizeof *strides) == 0 ? (int)v.block : 0;
}

fr_status fr__layout_with_lanes(const fr__kernel *k, const fr_node *node, int lanes,
                                fr__layout *layout)
{
    fr__md md;
    FR_TRY(md_by_tag(k, node, tag_of_lanes(lanes), &md));
    return fr__layout_of_md(k, md, layout);
}

fr__window fr__window_of(const fr_shape *in, const fr_shape *out, const int size[2],
                         const int stride[2], const int pad[2])
{
    fr__window w = {0};
    for (int i = 0; i < 2; i++) {
        w.size[i] = size[i];
        w.stride[i] = stride[i];
        w.before[i] = pad[i];
        /* Padding that the last step reads: it may be less than `pad`, or negative. */
        w.after[i] = (out->dim[i + 1] - 1) * stride[i] + size[i] - in->dim[i + 1] - pad[i];
    }
    return w;
}

/* ---- Primitives ---- */

int fr__impl_rank(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name) || !name)
        return FR_IMPL_NONE;
    if (strstr(name, "ref")) return FR_IMPL_REF;
    return strstr(name, "gemm") && !strstr(name, "brgemm") ? FR_IMPL_GEMM : FR_IMPL_JIT;
}

static fr_status add_memory(const fr__kernel *k, const char *what, int id, fr__md md,
                            dnnl_exec_arg_t *arg)
{
    arg->arg = id;
    FR_TRY_DNNL(k, what,
                dnnl_memory_create(&arg->memory, md, fr__cpu(k->dev)->engine, DNNL_MEMORY_NONE));
    return FR_OK;
}

/* Scratch of a primitive: its scratchpad, which its reorders share (they run at other times), then
 * the copies. */
static fr_status add_detour(const fr__kernel *k, fr_arena *arena, const fr__arg *arg, fr__md wanted,
                            struct fr__detour **out)
{
    struct fr__detour *d = FR_ARENA_NEW(arena, struct fr__detour);
    if (!d) return fr__no_memory(k->ctx, sizeof *d, "a kernel");
    *out = d;
    d->is_output = arg->is_output;
    return arg->is_output ? fr__reorder_init(k, arena, wanted, arg->md, &d->reorder)
                          : fr__reorder_init(k, arena, arg->md, wanted, &d->reorder);
}

static void place_detours(fr__prim *p)
{
    size_t at = fr__align_up(p->scratchpad_bytes);
    for (int i = 0; i < p->n_args; i++) {
        if (p->via[i] && fr__align_up(p->via[i]->reorder.scratch_bytes) > at)
            at = fr__align_up(p->via[i]->reorder.scratch_bytes);
    }
    for (int i = 0; i < p->n_args; i++) {
        if (!p->via[i]) continue;
        p->via[i]->offset = at;
        at += fr__align_up(dnnl_memory_desc_get_size(fr__prim_md(p, p->exec[i].arg)));
    }
    p->scratch_bytes = at;
}

fr__md fr__prim_md(const fr__prim *p, int arg_id)
{
    return dnnl_primitive_desc_query_md(p->desc, dnnl_query_exec_arg_md, arg_id);
}

fr_status fr__prim_init(const fr__kernel *k, fr_arena *arena, const char *what,
                        dnnl_primitive_desc_t desc, int n_args, const fr__arg *args, fr__prim *p)
{
    dnnl_status_t status = dnnl_primitive_create(&p->handle, desc);
    dnnl_primitive_desc_destroy(desc);
    if (status != dnnl_success) return fr__dnnl_fail(k, what, status);
    FR_TRY_DNNL(k, what, dnnl_primitive_get_primitive_desc(p->handle, &p->desc));
    for (int i = 0; i < n_args; i++) {
        fr__md wanted = fr__prim_md(p, args[i].id);
        if (fr__md_view_of(wanted).n_dims == 0)
            return fr_fail(k->ctx, FR_INTERNAL, "node %s: %s has no argument %d", k->node->name,
                           what, args[i].id);
        FR_TRY(add_memory(k, what, args[i].id, wanted, &p->exec[i]));
        p->n_args = i + 1;
        if (args[i].md && !dnnl_memory_desc_equal(args[i].md, wanted))
            FR_TRY(add_detour(k, arena, &args[i], wanted, &p->via[i]));
    }
    fr__md pad = fr__prim_md(p, DNNL_ARG_SCRATCHPAD);
    p->scratchpad_bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
    if (p->scratchpad_bytes)
        FR_TRY(add_memory(k, what, DNNL_ARG_SCRATCHPAD, pad, &p->exec[n_args]));
    place_detours(p);
    return FR_OK;
}

fr_status fr__reorder_init(const fr__kernel *k, fr_arena *arena, fr__md from, fr__md to,
                           fr__prim *p)
{
    const fr__cpu_device *cpu = fr__cpu(k->dev);
    dnnl_primitive_desc_t desc;
    FR_TRY_DNNL(
        k, "change of layout",
        dnnl_reorder_primitive_desc_create(&desc, from, cpu->engine, to, cpu->engine, cpu->attr));
    const fr__arg args[] = {{.id = DNNL_ARG_FROM}, {.id = DNNL_ARG_TO, .is_output = true}};
    return fr__prim_init(k, arena, "change of layout", desc, 2, args, p);
}

static dnnl_status_t describe_matmul(const fr__cpu_device *cpu, const fr__matmul_op *op,
                                     dnnl_primitive_desc_t *desc)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_primitive_attr_clone(&attr, cpu->attr);
    if (!status) status = dnnl_post_ops_create(&after);
    if (!status && op->add) status = fr__append_sum(after);
    if (!status) status = dnnl_primitive_attr_set_post_ops(attr, after);
    if (!status) status = fr__matmul_desc(cpu, op, attr, desc);
    if (after) dnnl_post_ops_destroy(after);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

fr_status fr__matmul_init(const fr__kernel *k, fr_arena *arena, const char *what,
                          const fr__matmul_op *op, fr__prim *p)
{
    const fr__arg args[] = {{.id = DNNL_ARG_SRC},
                            {.id = DNNL_ARG_WEIGHTS},
                            {.id = DNNL_ARG_DST, .is_output = true},
                            {.id = DNNL_ARG_BIAS}};
    dnnl_primitive_desc_t desc;
    FR_TRY_DNNL(k, what, describe_matmul(fr__cpu(k->dev), op, &desc));
    return fr__prim_init(k, arena, what, desc, op->bias.rows ? 4 : 3, args, p);
}

void fr__prim_fini(fr__prim *p)
{
    for (int i = 0; i <= FR_PRIM_ARGS; i++) {
        if (p->exec[i].memory) dnnl_memory_destroy(p->exec[i].memory);
        if (i < FR_PRIM_ARGS && p->via[i]) fr__prim_fini(&p->via[i]->reorder);
    }
    if (p->handle) dnnl_primitive_destroy(p->handle);
    *p = (fr__prim){0};
}

/* oneDNN expects the padding of its inputs to be zero, and does not zero it here (2.6.3): the
 * kernel that wrote the tensor must. */
static dnnl_status_t point(fr__prim *p, int i, const void *at)
{
    if (p->at[i] == at) return dnnl_success;
    p->at[i] = at;
    return dnnl_memory_set_data_handle(p->exec[i].memory, (void *)(uintptr_t)at);
}

fr_status fr__prim_run(const fr__kernel *k, fr__prim *p, void *scratch, const void *const *tensors)
{
    char *space = scratch;
    for (int i = 0; i < p->n_args; i++) {
        struct fr__detour *d = p->via[i];
        const void *at = d ? space + d->offset : tensors[i];
        if (d && !d->is_output)
            FR_TRY(fr__prim_run(k, &d->reorder, space, FR_TENSORS(tensors[i], at)));
        FR_TRY_DNNL(k, "pointer to a tensor", point(p, i, at));
    }
    int n = p->n_args;
    if (p->scratchpad_bytes) FR_TRY_DNNL(k, "pointer to scratch", point(p, n++, space));
    FR_TRY_DNNL(k, "execution",
                dnnl_primitive_execute(p->handle, fr__cpu(k->dev)->stream, n, p->exec));
    for (int i = 0; i < p->n_args; i++) {
        struct fr__detour *d = p->via[i];
        if (d && d->is_output)
            FR_TRY(fr__prim_run(k, &d->reorder, space, FR_TENSORS(space + d->offset, tensors[i])));
    }
    return FR_OK;
}
