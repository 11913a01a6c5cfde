/* op_pool.c -- max, average and global average pooling over (C, H, W). */
#include "graph/op.h"

fr_status fr__infer_pool(fr__infer *t)
{
    fr_attrs *a = &t->node->attrs;
    FR_TRY(fr__op_input(t, 0, FR_F32, 3, 3));
    fr_shape y = t->in[0]->shape;
    for (int i = 0; i < 2; i++) {
        if (a->pool.stride[i] == 0) a->pool.stride[i] = a->pool.kernel[i];
        FR_TRY(fr__op_window(t, i, y.dim[1 + i], a->pool.kernel, a->pool.stride, a->pool.pad,
                             &y.dim[1 + i]));
        /* Otherwise a window could be entirely in the padding, which has no maximum. */
        if (a->pool.pad[i] > a->pool.kernel[i] / 2)
            return fr__op_fail(t, "pad %d is more than half of the kernel %d", a->pool.pad[i],
                               a->pool.kernel[i]);
    }
    fr__op_output(t, y);
    double n = (double)y.dim[0] * (double)y.dim[1] * (double)y.dim[2];
    double window = (double)a->pool.kernel[0] * a->pool.kernel[1];
    fr__op_flops(t, n * window, t->node->op == FR_OP_MAX_POOL ? n : n * window, 0);
    return FR_OK;
}

fr_status fr__infer_global_pool(fr__infer *t)
{
    FR_TRY(fr__op_input(t, 0, FR_F32, 3, 3));
    fr__op_output(t, FR_SHAPE(t->in[0]->shape.dim[0]));
    double n = (double)fr_shape_count(&t->in[0]->shape);
    fr__op_flops(t, n + (double)t->in[0]->shape.dim[0], n, 0);
    return FR_OK;
}
