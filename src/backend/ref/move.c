/* move.c -- slice, select, transpose, pad: each number of the output is one of the input, or, in
 * padding, a constant.
 *
 * No two come from the same one. So the gradient goes back the same way, and numbers that are not
 * used have a zero gradient. */
#include "backend/ref/ref.h"

/* The place in a sample of the input of number i of a sample of the output; -1: padding. */
static int64_t source_of(const fr__kernel *k, int64_t i)
{
    const fr_node *node = k->node;
    const fr_attrs *a = &node->attrs;
    const fr_shape *in = &fr__ref_input(k, 0)->shape;
    int64_t at[FR_MAX_DIMS] = {0}, from[FR_MAX_DIMS] = {0}, flat = 0;
    for (int d = node->shape.n_dims - 1; d >= 0; d--) {
        at[d] = i % node->shape.dim[d];
        i /= node->shape.dim[d];
    }
    for (int d = 0; d < node->shape.n_dims; d++) {
        switch (node->op) {
        case FR_OP_TRANSPOSE: from[a->transpose.order[d]] = at[d]; break;
        case FR_OP_SELECT: from[d + (d >= a->select.axis)] = at[d]; break;
        case FR_OP_PAD: from[d] = at[d] - a->pad.before[d]; break;
        default: from[d] = at[d] + (d == a->slice.axis ? a->slice.from : 0);
        }
    }
    if (node->op == FR_OP_SELECT) from[a->select.axis] = a->select.index;
    for (int d = 0; d < in->n_dims; d++) {
        if (from[d] < 0 || from[d] >= in->dim[d]) return -1;
        flat = flat * in->dim[d] + from[d];
    }
    return flat;
}

static fr_status move_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_in = fr_shape_count(&fr__ref_input(k, 0)->shape), n = fr_shape_count(&k->node->shape);
    for (int64_t s = 0; s < k->batch; s++)
        for (int64_t i = 0; i < n; i++) {
            int64_t from = source_of(k, i);
            const float *x =
                from < 0 ? &k->node->attrs.pad.value : (const float *)a->x[0] + s * n_in + from;
            memcpy((float *)a->y + s * n + i, x, sizeof(float)); /* or an id */
        }
    return FR_OK;
}

static fr_status move_backward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_in = fr_shape_count(&fr__ref_input(k, 0)->shape), n = fr_shape_count(&k->node->shape);
    for (int64_t s = 0; s < k->batch; s++) {
        float *dx = (float *)a->dx[0] + s * n_in;
        const float *dy = (const float *)a->dy + s * n;
        if (!a->add_dx[0]) memset(dx, 0, (size_t)n_in * sizeof(float));
        for (int64_t i = 0; i < n; i++) {
            int64_t from = source_of(k, i);
            if (from >= 0) fr__ref_put(&dx[from], (double)dy[i], true);
        }
    }
    return FR_OK;
}

fr_status fr__ref_move(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = move_forward, .backward_input = move_backward};
    return fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out);
}
