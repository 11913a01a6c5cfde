/* rms_norm.c -- y = x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang and Sennrich,
 * Root Mean Square Layer Normalization, 2019).
 *
 * With s = 1 / sqrt(mean(x^2) + eps) and g = dy * weight, dx = s * (g - x * s^2 * mean(g * x)).
 * Saved from forward to backward: s of each row, in double. */
#include <math.h>

#include "backend/ref/ref.h"

static fr_status rms_norm_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    double *saved = k->training ? a->saved : NULL; /* (rows) */
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x[0] + r * n;
        float *y = (float *)a->y + r * n;
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
        double scale = 1 / sqrt(squares / (double)n + (double)k->node->attrs.norm.eps);
        if (saved) saved[r] = scale;
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((double)x[i] * scale * (double)fr__floats(a, 0)[i]);
    }
    return FR_OK;
}

static fr_status rms_norm_backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    const int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    const float *w = a->w[0];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x[0] + r * n, *dy = (const float *)a->dy + r * n;
        float *dx = (float *)a->dx[0] + r * n;
        const double scale = ((const double *)a->saved)[r];
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)dy[i] * (double)w[i] * (double)x[i];
        for (int64_t i = 0; i < n; i++) {
            double v = (double)dy[i] * (double)w[i];
            v -= (double)x[i] * scale * scale * sum / (double)n;
            fr__ref_put(&dx[i], scale * v, a->add_dx[0]);
        }
    }
    return FR_OK;
}

static fr_status rms_norm_backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    const int64_t rows = fr__rows(k->node, k->batch), n = fr__cols(k->node);
    const float *x = a->x[0], *dy = a->dy;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += (double)dy[r * n + i] * (double)x[r * n + i] * ((const double *)a->saved)[r];
        fr__ref_put(&a->dw[0][i], sum, a->add_dw);
    }
    return FR_OK;
}

fr_status fr__ref_rms_norm(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = rms_norm_forward,
                                       .backward_input = rms_norm_backward_input,
                                       .backward_weight = rms_norm_backward_weight};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    fr__kernel *k = *out;
    k->needs_x = 1;
    if (k->training) k->saved_bytes = (size_t)fr__rows(k->node, k->batch) * sizeof(double);
    return FR_OK;
}
