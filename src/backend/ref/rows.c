/* rows.c -- slice and reverse_time: operators that move whole steps, of numbers or of ids.
 *
 * Step t of the output is step source(t) of the input; no two come from the same one. So the
 * gradient goes back the same way, and unused steps have a zero gradient. */
#include "backend/ref/ref.h"

static int64_t source_of(const fr__kernel *k, int64_t t, int64_t length)
{
    if (k->node->op == FR_OP_SLICE) return t + k->node->attrs.slice.from;
    return t < length ? length - 1 - t : t;
}

static int64_t step_size(const fr_node *node)
{
    return fr_shape_count(&node->shape) / node->shape.dim[0];
}

static fr_status rows_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_in = fr__ref_input(k, 0)->shape.dim[0], n = k->node->shape.dim[0];
    int64_t width = step_size(k->node);
    for (int64_t s = 0; s < k->batch; s++) {
        int64_t length = fr__ref_length(k, a, s, n_in);
        for (int64_t t = 0; t < n; t++)
            memcpy((float *)a->y + (s * n + t) * width,
                   (const float *)a->x[0] + (s * n_in + source_of(k, t, length)) * width,
                   (size_t)width * sizeof(float));
    }
    return FR_OK;
}

static fr_status rows_backward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n_in = fr__ref_input(k, 0)->shape.dim[0], n = k->node->shape.dim[0];
    int64_t width = step_size(k->node);
    for (int64_t s = 0; s < k->batch; s++) {
        int64_t length = fr__ref_length(k, a, s, n_in);
        float *dx = (float *)a->dx[0] + s * n_in * width;
        if (!a->add_dx[0]) memset(dx, 0, (size_t)(n_in * width) * sizeof(float));
        for (int64_t t = 0; t < n; t++) {
            const float *dy = (const float *)a->dy + (s * n + t) * width;
            float *to = dx + source_of(k, t, length) * width;
            for (int64_t i = 0; i < width; i++) fr__ref_put(&to[i], (double)dy[i], true);
        }
    }
    return FR_OK;
}

fr_status fr__ref_rows(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = rows_forward, .backward_input = rows_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = (*out)->node->n_inputs > 1 ? 2 : 0;
    return FR_OK;
}
