/* matmul.c -- products of two inputs, matrix by matrix: c (M, N) = a (M, K) b (K, N).
 *
 * Dimensions in front of the last two are those of a list of matrices. Gradients: da = dc b',
 * db = a' dc. */
#include "backend/ref/ref.h"

typedef struct sizes {
    int64_t count, m, n, k; /* matrices of a micro-batch, and their sizes */
} sizes;

static sizes find_sizes(const fr__kernel *kernel)
{
    const fr_shape *a = &fr__ref_input(kernel, 0)->shape, *y = &kernel->node->shape;
    sizes s = {.m = y->dim[y->n_dims - 2], .n = y->dim[y->n_dims - 1], .k = a->dim[a->n_dims - 1]};
    s.count = fr__ref_count(kernel, kernel->node) / (s.m * s.n);
    return s;
}

static fr_status matmul_forward(fr__kernel *kernel, const fr__kernel_args *args)
{
    const sizes s = find_sizes(kernel);
    const float *a = args->x[0], *b = args->x[1];
    float *y = args->y;
    for (int64_t i = 0; i < s.count; i++, a += s.m * s.k, b += s.k * s.n, y += s.m * s.n)
        for (int64_t r = 0; r < s.m; r++)
            for (int64_t c = 0; c < s.n; c++) {
                double sum = 0;
                for (int64_t j = 0; j < s.k; j++)
                    sum += (double)a[r * s.k + j] * (double)b[j * s.n + c];
                y[r * s.n + c] = (float)sum;
            }
    return FR_OK;
}

static void left_backward(const sizes *s, const float *b, const float *dy, float *da, bool add)
{
    for (int64_t r = 0; r < s->m; r++)
        for (int64_t j = 0; j < s->k; j++) {
            double sum = 0;
            for (int64_t c = 0; c < s->n; c++)
                sum += (double)dy[r * s->n + c] * (double)b[j * s->n + c];
            fr__ref_put(&da[r * s->k + j], sum, add);
        }
}

static void right_backward(const sizes *s, const float *a, const float *dy, float *db, bool add)
{
    for (int64_t j = 0; j < s->k; j++)
        for (int64_t c = 0; c < s->n; c++) {
            double sum = 0;
            for (int64_t r = 0; r < s->m; r++)
                sum += (double)a[r * s->k + j] * (double)dy[r * s->n + c];
            fr__ref_put(&db[j * s->n + c], sum, add);
        }
}

static fr_status matmul_backward(fr__kernel *kernel, const fr__kernel_args *args)
{
    const sizes s = find_sizes(kernel);
    const float *a = args->x[0], *b = args->x[1], *dy = args->dy;
    float *da = args->dx[0], *db = args->dx[1];
    for (int64_t i = 0; i < s.count; i++) {
        const float *dc = dy + i * s.m * s.n;
        if (da) left_backward(&s, b + i * s.k * s.n, dc, da + i * s.m * s.k, args->add_dx[0]);
        if (db) right_backward(&s, a + i * s.m * s.k, dc, db + i * s.k * s.n, args->add_dx[1]);
    }
    return FR_OK;
}

fr_status fr__ref_matmul(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {.forward = matmul_forward,
                                       .backward_input = matmul_backward};
    FR_TRY(fr__ref_kernel(spec, arena, sizeof(fr__kernel), &ops, out));
    (*out)->needs_x = 3;
    return FR_OK;
}
