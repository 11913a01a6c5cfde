/* dnnl_v3.c -- the calls of oneDNN 3.x that differ from 2.x (dnnl_v2.c): layouts are opaque and on
 * the heap, and a primitive is described in one step. */
#include "backend/cpu/dnnl.h"

#if DNNL_VERSION_MAJOR >= 3

#include <string.h>

dnnl_status_t fr__md_make(int n_dims, const dnnl_dim_t *dims, dnnl_format_tag_t tag,
                          const dnnl_dim_t *strides, fr__md *out)
{
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t status =
        tag ? dnnl_memory_desc_create_with_tag(&md, n_dims, dims, dnnl_f32, tag)
            : dnnl_memory_desc_create_with_strides(&md, n_dims, dims, dnnl_f32, strides);
    *out = md;
    return status;
}

dnnl_status_t fr__md_copy(fr__md md, fr__md *out)
{
    dnnl_memory_desc_t copy = NULL;
    dnnl_status_t status = dnnl_memory_desc_clone(&copy, md);
    *out = copy;
    return status;
}

/* The type of a description cannot be changed: its tag is searched for. */
dnnl_status_t fr__md_copy_as(fr__md md, dnnl_data_type_t type, fr__md *out)
{
    dnnl_data_type_t given;
    dnnl_memory_desc_t as_given, made = NULL;
    dnnl_status_t status = dnnl_memory_desc_query(md, dnnl_query_data_type, &given);
    if (status || given == type) return status ? status : fr__md_copy(md, out);
    const fr__md_view v = fr__md_view_of(md);
    for (int tag = dnnl_format_tag_any; tag < dnnl_format_tag_last; tag++) {
        if (dnnl_memory_desc_create_with_tag(&as_given, v.n_dims, v.dims, given,
                                             (dnnl_format_tag_t)tag))
            continue;
        const bool is_it = dnnl_memory_desc_equal(as_given, md);
        dnnl_memory_desc_destroy(as_given);
        if (!is_it) continue;
        status =
            dnnl_memory_desc_create_with_tag(&made, v.n_dims, v.dims, type, (dnnl_format_tag_t)tag);
        *out = made;
        return status;
    }
    return dnnl_unimplemented;
}

void fr__md_drop(fr__md md) { (void)dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)md); }

static void query_dims(fr__md md, dnnl_query_t what, int n, dnnl_dims_t out)
{
    dnnl_dims_t *at = NULL;
    if (dnnl_memory_desc_query(md, what, (void *)&at) == dnnl_success && at)
        memcpy(out, *at, sizeof(dnnl_dim_t) * (size_t)n);
}

fr__md_view fr__md_view_of(fr__md md)
{
    fr__md_view v = {0};
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    if (!md || dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &v.n_dims)) return v;
    query_dims(md, dnnl_query_dims, v.n_dims, v.dims);
    if (dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) || kind != dnnl_blocked) return v;
    query_dims(md, dnnl_query_strides, v.n_dims, v.strides);
    dnnl_dims_t blocks, indices;
    if (dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &v.n_blocks) || !v.n_blocks)
        return v;
    query_dims(md, dnnl_query_inner_blks, v.n_blocks, blocks);
    query_dims(md, dnnl_query_inner_idxs, v.n_blocks, indices);
    v.block = blocks[v.n_blocks - 1];
    v.block_dim = (int)indices[v.n_blocks - 1];
    return v;
}

static const dnnl_dims_t no_gaps; /* dilation */

dnnl_status_t fr__conv_desc(const fr__cpu_device *cpu, const fr__conv_op *op, int nth,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const fr__window *v = op->window;
    const dnnl_alg_kind_t how = dnnl_convolution_direct;
    dnnl_status_t status;
    if (op->pass == dnnl_backward_data)
        status = dnnl_convolution_backward_data_primitive_desc_create(
            out, cpu->engine, how, op->x, op->w, op->y, v->stride, no_gaps, v->before, v->after,
            hint, cpu->attr);
    else if (op->pass == dnnl_backward_weights)
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            out, cpu->engine, how, op->x, op->w, op->b, op->y, v->stride, no_gaps, v->before,
            v->after, hint, cpu->attr);
    else
        status = dnnl_convolution_forward_primitive_desc_create(
            out, cpu->engine, op->pass, how, op->x, op->w, op->b, op->y, v->stride, no_gaps,
            v->before, v->after, cpu->attr);
    if (status) return status;
    for (; nth > 0 && !status; nth--) status = dnnl_primitive_desc_next_impl(*out);
    if (status) dnnl_primitive_desc_destroy(*out);
    return status;
}

dnnl_status_t fr__pool_desc(const fr__cpu_device *cpu, const fr__pool_op *op,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const fr__window *v = op->window;
    if (op->pass == dnnl_backward_data)
        return dnnl_pooling_backward_primitive_desc_create(out, cpu->engine, op->kind, op->x, op->y,
                                                           v->stride, v->size, no_gaps, v->before,
                                                           v->after, hint, cpu->attr);
    return dnnl_pooling_forward_primitive_desc_create(out, cpu->engine, op->pass, op->kind, op->x,
                                                      op->y, v->stride, v->size, no_gaps, v->before,
                                                      v->after, cpu->attr);
}

static dnnl_status_t matrix_md(const fr__matrix_md *m, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_create_with_strides(out, 2, (dnnl_dims_t){m->rows, m->columns}, m->type,
                                                (dnnl_dims_t){m->row_step, m->column_step});
}

dnnl_status_t fr__matmul_desc(const fr__cpu_device *cpu, const fr__matmul_op *op,
                              const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t a = NULL, b = NULL, c = NULL, bias = NULL;
    dnnl_status_t status = matrix_md(&op->a, &a);
    if (!status) status = matrix_md(&op->b, &b);
    if (!status) status = matrix_md(&op->c, &c);
    if (!status && op->bias.rows) status = matrix_md(&op->bias, &bias);
    if (!status) status = dnnl_matmul_primitive_desc_create(out, cpu->engine, a, b, bias, c, attr);
    const dnnl_memory_desc_t made[] = {a, b, c, bias};
    for (int i = 0; i < 4; i++)
        if (made[i]) dnnl_memory_desc_destroy(made[i]);
    return status;
}

dnnl_status_t fr__append_sum(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_sum(after, 1.0f, 0, dnnl_data_type_undef);
}

#else
typedef int fr__not_empty; /* ISO C requires a declaration in every file */
#endif
