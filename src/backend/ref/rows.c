/* rows.c -- reverse_time, which moves whole steps, of numbers or of ids.
 *
 * Step t of the output is step source(t) of the input; no two come from the same one. So the
 * gradient goes back the same way. */
#include "backend/ref/ref.h"

static int64_t source_of(int64_t t, int64_t length) { return t < length ? length - 1 - t : t; }

static int64_t step_size(const fr_node *node)
{
    return fr_shape_count(&node->shape) / node->shape.dim[0];
}

static fr_status rows_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n = k->node->shape.dim[0];
    int64_t width = step_size(k->node);
    for (int64_t s = 0; s < k->batch; s++) {
        int64_t length = fr__ref_length(k, a, s, n);
        for (int64_t t = 0; t < n; t++)
            memcpy((float *)a->y + (s * n + t) * width,
                   (const float *)a->x[0] + (s * n + source_of(t, length)) * width,
                   (size_t)width * sizeof(float));
    }
    return FR_OK;
}

static fr_status rows_backward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t n = k->node->shape.dim[0];
    int64_t width = step_size(k->node);
    for (int64_t s = 0; s < k->batch; s++) {
        int64_t length = fr__ref_length(k, a, s, n);
        float *dx = (float *)a->dx[0] + s * n * width;
        if (!a->add_dx[0]) memset(dx, 0, (size_t)(n * width) * sizeof(float));
        for (int64_t t = 0; t < n; t++) {
            const float *dy = (const float *)a->dy + (s * n + t) * width;
            float *to = dx + source_of(t, length) * width;
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
