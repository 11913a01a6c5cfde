/* dnnl_v2.c -- the same as dnnl_v3.c for oneDNN 2.x, the version of Debian 12: layouts are structs,
 * and an operation is described before its primitive. To be dropped with Debian 12. */
#include "backend/cpu/dnnl.h"

#if DNNL_VERSION_MAJOR < 3

#include <string.h>

dnnl_status_t fr__md_make(int n_dims, const dnnl_dim_t *dims, dnnl_format_tag_t tag,
                          const dnnl_dim_t *strides, fr__md *out)
{
    dnnl_memory_desc_t md;
    dnnl_status_t status =
        tag ? dnnl_memory_desc_init_by_tag(&md, n_dims, dims, dnnl_f32, tag)
            : dnnl_memory_desc_init_by_strides(&md, n_dims, dims, dnnl_f32, strides);
    return status ? status : fr__md_copy(&md, out);
}

dnnl_status_t fr__md_copy(fr__md md, fr__md *out)
{
    dnnl_memory_desc_t *copy = FR_NEW(dnnl_memory_desc_t);
    *out = copy;
    if (!copy) return dnnl_out_of_memory;
    *copy = *md;
    return dnnl_success;
}

dnnl_status_t fr__md_copy_as(fr__md md, dnnl_data_type_t type, fr__md *out)
{
    dnnl_memory_desc_t copy = *md;
    copy.data_type = type;
    return fr__md_copy(&copy, out);
}

void fr__md_drop(fr__md md) { fr__free((void *)(uintptr_t)md); }

fr__md_view fr__md_view_of(fr__md md)
{
    fr__md_view v = {0};
    if (!md) return v;
    v.n_dims = md->ndims;
    memcpy(v.dims, md->dims, sizeof v.dims);
    if (md->format_kind != dnnl_blocked) return v;
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
    v.n_blocks = b->inner_nblks;
    v.block_dim = v.n_blocks ? (int)b->inner_idxs[v.n_blocks - 1] : 0;
    v.block = v.n_blocks ? b->inner_blks[v.n_blocks - 1] : 0;
    memcpy(v.strides, b->strides, sizeof v.strides);
    return v;
}

dnnl_status_t fr__conv_desc(const fr__cpu_device *cpu, const fr__conv_op *op, int nth,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const fr__window *v = op->window;
    const dnnl_alg_kind_t how = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    if (op->pass == dnnl_backward_data)
        status = dnnl_convolution_backward_data_desc_init(&desc, how, op->x, op->w, op->y,
                                                          v->stride, v->before, v->after);
    else if (op->pass == dnnl_backward_weights)
        status = dnnl_convolution_backward_weights_desc_init(&desc, how, op->x, op->w, op->b, op->y,
                                                             v->stride, v->before, v->after);
    else
        status = dnnl_convolution_forward_desc_init(&desc, op->pass, how, op->x, op->w, op->b,
                                                    op->y, v->stride, v->before, v->after);
    dnnl_primitive_desc_iterator_t at;
    if (!status)
        status = dnnl_primitive_desc_iterator_create(&at, &desc, cpu->attr, cpu->engine, hint);
    if (status) return status;
    for (; nth > 0 && !status; nth--) status = dnnl_primitive_desc_iterator_next(at);
    if (!status) *out = dnnl_primitive_desc_iterator_fetch(at);
    dnnl_primitive_desc_iterator_destroy(at);
    return status ? status : *out ? dnnl_success : dnnl_out_of_memory;
}

dnnl_status_t fr__pool_desc(const fr__cpu_device *cpu, const fr__pool_op *op,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    const fr__window *v = op->window;
    dnnl_pooling_desc_t desc;
    dnnl_status_t status =
        op->pass == dnnl_backward_data
            ? dnnl_pooling_backward_desc_init(&desc, op->kind, op->x, op->y, v->stride, v->size,
                                              v->before, v->after)
            : dnnl_pooling_forward_desc_init(&desc, op->pass, op->kind, op->x, op->y, v->stride,
                                             v->size, v->before, v->after);
    return status ? status : dnnl_primitive_desc_create(out, &desc, cpu->attr, cpu->engine, hint);
}

static dnnl_status_t matrix_md(const fr__matrix_md *m, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_init_by_strides(out, 2, (dnnl_dims_t){m->rows, m->columns}, m->type,
                                            (dnnl_dims_t){m->row_step, m->column_step});
}

dnnl_status_t fr__matmul_desc(const fr__cpu_device *cpu, const fr__matmul_op *op,
                              const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = matrix_md(&op->a, &a);
    if (!status) status = matrix_md(&op->b, &b);
    if (!status) status = matrix_md(&op->c, &c);
    if (!status && op->bias.rows) status = matrix_md(&op->bias, &bias);
    if (!status) status = dnnl_matmul_desc_init(&desc, &a, &b, op->bias.rows ? &bias : NULL, &c);
    return status ? status : dnnl_primitive_desc_create(out, &desc, attr, cpu->engine, NULL);
}

dnnl_status_t fr__append_sum(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_sum(after, 1.0f);
}

#else
typedef int fr__not_empty; /* ISO C requires a declaration in every file */
#endif
