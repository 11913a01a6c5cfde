/* softmax.c -- y = exp(x) / sum(exp(x)) over the last dimension; dx = y * (dy - sum(dy * y)). The
 * largest number of a row is subtracted first. */
#include <math.h>

#include "backend/ref/ref.h"

static fr_status softmax_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x[0] + r * n;
        float *y = (float *)a->y + r * n;
        double largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, (double)x[i]);
        for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - largest);
        for (int64_t i = 0; i < n; i++) y[i] = (float)(exp((double)x[i] - largest) / sum);
    }
    return FR_OK;
}

static fr_status softmax_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    for (int64_t r = 0; r < rows; r++) {
        const float *y = (const float *)a->y + r * n, *dy = (const float *)a->dy + r * n;
        float *dx = (float *)a->dx[0] + r * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)dy[i] * (double)y[i];
        for (int64_t i = 0; i < n; i++)
            fr__ref_put(&dx[i], (double)y[i] * ((double)dy[i] - sum), a->add_dx[0]);
    }
    return FR_OK;
}

fr_status fr__ref_softmax(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = softmax_forward,
                                       .backward_input = softmax_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_y = true;
    (*out)->can_overwrite_x0 = true;
    (*out)->can_overwrite_dy = true;
    return FR_OK;
}
