/* orthogonalise.c -- Newton-Schulz steps as plain loops. A tall matrix is read as its transpose. */
#include "backend/orthogonalise.h"
#include "backend/ref/ref.h"

#include <math.h>

/* Element (i, j) of the matrix, or of its transpose if it is tall: i < side. */
static float *at(const fr__ortho *o, const fr_matrix *m, float *x, int64_t i, int64_t j)
{
    return o->is_tall ? &x[j * m->ld + i] : &x[i * m->ld + j];
}

static void multiply_by_itself(const fr__ortho *o, const fr_matrix *m, float *x)
{
    int64_t n = o->side, length = o->is_tall ? m->rows : m->cols;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < length; k++)
                sum += (double)*at(o, m, x, i, k) * (double)*at(o, m, x, j, k);
            o->a[i * n + j] = (float)sum;
        }
}

static void make_polynomial(const fr__ortho *o)
{
    int64_t n = o->side;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)o->a[i * n + k] * (double)o->a[k * n + j];
            o->b[i * n + j] =
                (float)((i == j ? (double)FR_ORTHO_A : 0) +
                        (double)FR_ORTHO_B * (double)o->a[i * n + j] + (double)FR_ORTHO_C * sum);
        }
}

static void multiply_by_polynomial(const fr__ortho *o, const fr_matrix *m, float *from, float *to)
{
    int64_t n = o->side, length = o->is_tall ? m->rows : m->cols;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < length; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)o->b[i * n + k] * (double)*at(o, m, from, k, j);
            *at(o, m, to, i, j) = (float)sum;
        }
}

void fr__ref_orthogonalise(fr_device *dev, float *x, const fr_matrix *m, float *scratch)
{
    fr__ortho o = fr__ortho_room(m, scratch);
    double squares = 0;
    (void)dev;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++)
            squares += (double)x[i * m->ld + j] * (double)x[i * m->ld + j];
    double norm = fmax(sqrt(squares), FR_ORTHO_EPS);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++)
            o.y[i * m->ld + j] = (float)((double)x[i * m->ld + j] / norm);
    for (int step = 0; step < FR_ORTHO_STEPS; step++) {
        float *from = step % 2 ? x : o.y, *to = step % 2 ? o.y : x;
        multiply_by_itself(&o, m, from);
        make_polynomial(&o);
        multiply_by_polynomial(&o, m, from, to);
    }
}
