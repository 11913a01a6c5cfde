/* orthogonalise.c -- Newton-Schulz steps by sgemm.
 *
 * Products are cut into blocks of BLOCK rows of the result, and one thread computes a block: the
 * bits do not depend on the number of threads. A and A A are symmetric: only blocks at and below
 * the diagonal are computed, and their rows are copied to the columns above. */
#include "backend/orthogonalise.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "base/simd.h"
#include "optim/optim.h"

#include <math.h>

enum { BLOCK = 64 };

typedef struct job {
    const fr_matrix *m;
    fr__ortho o;
    const float *from; /* (rows, ld) */
    float *to;         /* (rows, ld) */
    float inverse;     /* of the norm */
} job;

/* The body for each block of rows [begin, end) of n; sgemm runs on one thread inside it. */
static void by_blocks(fr_device *dev, int64_t n, fr_range_fn body, job *j)
{
    int64_t n_blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static, 1) if (dev->n_threads > 1)
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t end = (b + 1) * BLOCK < n ? (b + 1) * BLOCK : n;
        body(j, (size_t)(b * BLOCK), (size_t)end);
    }
}

/* Rows [begin, end) of a symmetric matrix, up to the diagonal, to the columns above it. */
static void mirror(float *a, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < r; c++) a[c * n + r] = a[r * n + c];
}

FR_SIMD_RANGE(normalise_rows)
{
    const job *j = arg;
    size_t first = begin * (size_t)j->m->ld, last = end * (size_t)j->m->ld;
    for (size_t i = first; i < last; i++) j->to[i] = j->from[i] * j->inverse;
}

/* A = x x^T, or x^T x. */
static void square_rows(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    int64_t ld = j->m->ld, n = j->o.side, r = (int64_t)begin, last = (int64_t)end;
    bool tall = j->o.is_tall;
    const float *x = j->from + (tall ? r : r * ld);
    fr__gemm(last - r, last, tall ? j->m->rows : j->m->cols, (fr__matrix){x, ld, tall},
             (fr__matrix){j->from, ld, !tall}, j->o.a + r * n, n, false);
    mirror(j->o.a, n, r, last);
}

/* B = a + b A + c A A. */
static void polynomial_rows(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    int64_t n = j->o.side, r = (int64_t)begin, last = (int64_t)end;
    fr__gemm(last - r, last, n, (fr__matrix){j->o.a + r * n, n, false},
             (fr__matrix){j->o.a, n, false}, j->o.b + r * n, n, false);
    for (int64_t i = r; i < last; i++) {
        const float *restrict a = j->o.a + i * n;
        float *restrict b = j->o.b + i * n;
        for (int64_t c = 0; c < last; c++) b[c] = FR_ORTHO_B * a[c] + FR_ORTHO_C * b[c];
        b[i] += FR_ORTHO_A;
    }
    mirror(j->o.b, n, r, last);
}

/* B x, or x B. */
static void apply_rows(void *arg, size_t begin, size_t end)
{
    const job *j = arg;
    int64_t ld = j->m->ld, n = j->o.side, r = (int64_t)begin, last = (int64_t)end;
    fr__matrix b = {j->o.is_tall ? j->o.b : j->o.b + r * n, n, false};
    fr__matrix x = {j->o.is_tall ? j->from + r * ld : j->from, ld, false};
    fr__gemm(last - r, j->m->cols, n, j->o.is_tall ? x : b, j->o.is_tall ? b : x, j->to + r * ld,
             ld, false);
}

void fr__cpu_orthogonalise(fr_device *dev, float *x, const fr_matrix *m, float *scratch)
{
    job j = {.m = m, .o = fr__ortho_room(m, scratch), .from = x};
    double norm = sqrt(fr__sum_squares(x, (size_t)(m->rows * m->ld)));
    j.to = j.o.y;
    j.inverse = (float)(1 / fmax(norm, FR_ORTHO_EPS));
    by_blocks(dev, m->rows, normalise_rows, &j);
    for (int step = 0; step < FR_ORTHO_STEPS; step++) {
        j.from = step % 2 ? x : j.o.y;
        j.to = step % 2 ? j.o.y : x;
        by_blocks(dev, j.o.side, square_rows, &j);
        by_blocks(dev, j.o.side, polynomial_rows, &j);
        by_blocks(dev, m->rows, apply_rows, &j);
    }
}
