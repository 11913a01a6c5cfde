/* linear.c -- y = x W' + b over the last dimension; all dimensions before it are rows. */
#include "backend/ref/ref.h"

static fr_status linear_forward(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), n_out = fr__cols(k->node);
    int64_t n_in = fr__cols(fr__ref_input(k, 0));
    const float *x = a->x[0], *w = a->w[0];                  /* (rows, in), (out, in) */
    const float *b = k->node->n_params > 1 ? a->w[1] : NULL; /* (out) */
    float *y = a->y;                                         /* (rows, out) */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < n_out; o++) {
            double sum = b ? (double)b[o] : 0;
            for (int64_t i = 0; i < n_in; i++)
                sum += (double)x[r * n_in + i] * (double)w[o * n_in + i];
            y[r * n_out + o] = (float)sum;
        }
    return FR_OK;
}

static fr_status linear_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), n_out = fr__cols(k->node);
    int64_t n_in = fr__cols(fr__ref_input(k, 0));
    const float *dy = a->dy, *w = a->w[0];
    float *dx = a->dx[0];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n_in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < n_out; o++)
                sum += (double)dy[r * n_out + o] * (double)w[o * n_in + i];
            fr__ref_put(&dx[r * n_in + i], sum, a->add_dx[0]);
        }
    return FR_OK;
}

static fr_status linear_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    int64_t rows = fr__rows(k->node, k->batch), n_out = fr__cols(k->node);
    int64_t n_in = fr__cols(fr__ref_input(k, 0));
    const float *dy = a->dy, *x = a->x[0];
    for (int64_t o = 0; o < n_out; o++) {
        for (int64_t i = 0; i < n_in; i++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += (double)dy[r * n_out + o] * (double)x[r * n_in + i];
            fr__ref_put(&a->dw[0][o * n_in + i], sum, a->add_dw);
        }
        if (k->node->n_params < 2) continue;
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)dy[r * n_out + o];
        fr__ref_put(&a->dw[1][o], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_linear(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = linear_forward,
                                       .backward_input = linear_backward_input,
                                       .backward_weight = linear_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = 1;
    return FR_OK;
}
