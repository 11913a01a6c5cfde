/* shape.c -- add and concat: operators that only move numbers. (flatten is the identity.) */
#include "backend/ref/ref.h"

static fr_status add_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const float *left = a->x[0], *right = a->x[1];
    float *y = a->y;
    int64_t n = fr__ref_count(k, k->node);
    for (int64_t i = 0; i < n; i++) y[i] = left[i] + right[i];
    return FR_OK;
}

fr_status fr__ref_add(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = add_forward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->pass_dx = 3;
    (*out)->can_overwrite_x0 = true;
    return FR_OK;
}

/* Contiguous numbers of input i: all of a sample from the axis on. */
static int64_t concat_piece(const fr__kernel *k, int i)
{
    const fr_shape *s = &fr__ref_input(k, i)->shape;
    int64_t n = 1;
    for (int d = k->node->attrs.concat.axis; d < s->n_dims; d++) n *= s->dim[d];
    return n;
}

static int64_t concat_rows(const fr__kernel *k)
{
    int64_t n = k->batch;
    for (int d = 0; d < k->node->attrs.concat.axis; d++) n *= k->node->shape.dim[d];
    return n;
}

static fr_status concat_forward(fr__kernel *k, const fr__kernel_args *a)
{
    float *y = a->y;
    int64_t n_rows = concat_rows(k);
    for (int64_t r = 0; r < n_rows; r++)
        for (int i = 0; i < k->node->n_inputs; i++) {
            int64_t n = concat_piece(k, i);
            memcpy(y, (const float *)a->x[i] + r * n, (size_t)n * sizeof(float));
            y += n;
        }
    return FR_OK;
}

static fr_status concat_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const float *dy = a->dy;
    int64_t n_rows = concat_rows(k);
    for (int64_t r = 0; r < n_rows; r++)
        for (int i = 0; i < k->node->n_inputs; i++) {
            int64_t n = concat_piece(k, i);
            float *dx = a->dx[i];
            for (int64_t e = 0; dx && e < n; e++)
                fr__ref_put(&dx[r * n + e], (double)dy[e], a->add_dx[i]);
            dy += n;
        }
    return FR_OK;
}

fr_status fr__ref_concat(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = concat_forward,
                                       .backward_input = concat_backward};
    return fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out);
}
