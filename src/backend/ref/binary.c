/* binary.c -- mul and subtract of two inputs, of which the second may be repeated: counted from the
 * last, each of its dimensions is that of the first, 1 or absent. */
#include "backend/ref/ref.h"

/* The number of input 1 that element e of a sample meets, within the sample. */
static int64_t partner(const fr__kernel *k, int64_t e)
{
    const fr_shape *a = &k->node->shape, *b = &fr__ref_input(k, 1)->shape;
    int64_t at = 0, step = 1;
    for (int i = 1; i <= b->n_dims; i++) {
        const int64_t size = a->dim[a->n_dims - i], dim = b->dim[b->n_dims - i];
        at += dim == 1 ? 0 : e % size * step;
        step *= dim;
        e /= size;
    }
    return at;
}

static fr_status binary_forward(fr__kernel *k, const fr__kernel_args *a)
{
    const int64_t n = fr_shape_count(&k->node->shape);
    const int64_t n_b = fr_shape_count(&fr__ref_input(k, 1)->shape);
    for (int64_t s = 0; s < k->batch; s++)
        for (int64_t e = 0; e < n; e++) {
            const float x = ((const float *)a->x[0])[s * n + e];
            const float b = ((const float *)a->x[1])[s * n_b + partner(k, e)];
            ((float *)a->y)[s * n + e] = k->node->op == FR_OP_MUL ? x * b : x - b;
        }
    return FR_OK;
}

static fr_status binary_backward(fr__kernel *k, const fr__kernel_args *a)
{
    const bool is_mul = k->node->op == FR_OP_MUL;
    const int64_t n = fr_shape_count(&k->node->shape);
    const int64_t n_b = fr_shape_count(&fr__ref_input(k, 1)->shape);
    const float *x = a->x[0], *b = a->x[1], *dy = a->dy;
    float *dx = a->dx[0], *db = a->dx[1];
    double *sums = a->scratch; /* (n_b) */
    for (int64_t s = 0; s < k->batch; s++) {
        for (int64_t i = 0; i < n_b; i++) sums[i] = 0;
        for (int64_t e = 0; e < n; e++) {
            const int64_t at = s * n + e, other = partner(k, e);
            sums[other] += (double)dy[at] * (is_mul ? (double)x[at] : -1);
            const double slope = is_mul ? (double)b[s * n_b + other] : 1;
            if (dx) fr__ref_put(&dx[at], (double)dy[at] * slope, a->add_dx[0]);
        }
        for (int64_t i = 0; db && i < n_b; i++)
            fr__ref_put(&db[s * n_b + i], sums[i], a->add_dx[1]);
    }
    return FR_OK;
}

fr_status fr__ref_binary(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = binary_forward,
                                       .backward_input = binary_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    fr__kernel *k = *out;
    k->needs_x = k->node->op == FR_OP_MUL ? 3 : 0;
    k->can_overwrite_x0 = true;
    if (k->training)
        k->scratch_bytes = (size_t)fr_shape_count(&fr__ref_input(k, 1)->shape) * sizeof(double);
    return FR_OK;
}
