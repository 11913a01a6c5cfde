/* shape.c -- add and concat: operators that only move numbers. (flatten is the identity.) */
#include "backend/ref/ref.h"

static fr_status add_forward(fr_kernel *k, const fr_kernel_args *a)
{
    const float *left = a->x[0], *right = a->x[1];
    float *y = a->y;
    int64_t n = fr__ref_count(k, k->node);
    for (int64_t i = 0; i < n; i++) y[i] = left[i] + right[i];
    return FR_OK;
}

fr_status fr__ref_add(const fr_kernel_spec *spec, fr_arena *arena, fr_kernel **out)
{
    static const fr_kernel_ops ops = {.forward = add_forward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr_kernel), &ops, out));
    (*out)->pass_dx = 3;
    (*out)->can_overwrite_x0 = true;
    return FR_OK;
}

static fr_status concat_forward(fr_kernel *k, const fr_kernel_args *a)
{
    float *y = a->y;
    for (int64_t s = 0; s < k->batch; s++)
        for (int i = 0; i < k->node->n_inputs; i++) {
            int64_t n = fr_shape_count(&fr__ref_input(k, i)->shape);
            memcpy(y, (const float *)a->x[i] + s * n, (size_t)n * sizeof(float));
            y += n;
        }
    return FR_OK;
}

static fr_status concat_backward(fr_kernel *k, const fr_kernel_args *a)
{
    const float *dy = a->dy;
    for (int64_t s = 0; s < k->batch; s++)
        for (int i = 0; i < k->node->n_inputs; i++) {
            int64_t n = fr_shape_count(&fr__ref_input(k, i)->shape);
            float *dx = a->dx[i];
            for (int64_t e = 0; dx && e < n; e++)
                fr__ref_put(&dx[s * n + e], (double)dy[e], a->add_dx[i]);
            dy += n;
        }
    return FR_OK;
}

fr_status fr__ref_concat(const fr_kernel_spec *spec, fr_arena *arena, fr_kernel **out)
{
    static const fr_kernel_ops ops = {.forward = concat_forward, .backward_input = concat_backward};
    return fr__ref_kernel(spec, arena, sizeof(fr_kernel), &ops, out);
}
