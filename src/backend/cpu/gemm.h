/* gemm.h -- row-major matrix products on plain floats, and sums over columns. */
#ifndef FR_BACKEND_CPU_GEMM_H
#define FR_BACKEND_CPU_GEMM_H

#include "backend/cpu/dnnl.h"
#include "backend/cpu/floats.h"

typedef struct fr__matrix {
    const float *at; /* as stored, row by row */
    int64_t ld;      /* floats from row to row */
    bool is_transposed;
} fr__matrix;

/* c (m, n) = a (m, k) * b (k, n), plus c if add; shapes are those after transposition. Runs on
 * the device's threads, or on one if called from within a parallel sweep. */
static inline void fr__gemm(int64_t m, int64_t n, int64_t k, fr__matrix a, fr__matrix b, float *c,
                            int64_t ldc, bool add)
{
    (void)dnnl_sgemm(a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N', m, n, k, 1.0f, a.at,
                     a.ld, b.at, b.ld, add ? 1.0f : 0.0f, c, ldc);
}

/* Weights of a layer (out, in), rows ld floats apart. */
typedef struct fr__weights {
    const float *at;
    int64_t out, in, ld;
} fr__weights;

/* y (rows, out) = x W^T, or dx (rows, in) = dy W; added to the present value if add. */
typedef struct fr__product {
    fr__weights w;
    bool is_dx, add;
    int64_t rows;
    const float *from; /* x or dy */
    float *to;         /* y or dx */
    int64_t ld_from, ld_to;
} fr__product;
void fr__multiply(fr_device *dev, const fr__product *p);
/* The same with the kernels for few rows; false: there is none for this shape. */
bool fr__multiply_few(fr_device *dev, const fr__product *p);

/* dW (out, in) = dy^T x, plus dW if add. */
typedef struct fr__weight_grad_args {
    const float *dy, *x; /* (rows, out) with rows ld_dy floats apart; (rows, in) */
    float *dw;           /* (out, in), rows ld_dw floats apart */
    int64_t rows, out, in, ld_dy, ld_dw;
    bool add;
} fr__weight_grad_args;
void fr__weight_grad(fr_device *dev, const fr__weight_grad_args *g);
bool fr__weight_grad_few(fr_device *dev, const fr__weight_grad_args *g);

/* Rows are summed in this many blocks for any number of threads, so that the order of a sum does
 * not depend on it. */
#define FR_ROW_BLOCKS 16

static inline int64_t fr__row_block(int64_t rows, size_t block)
{
    return rows * (int64_t)block / FR_ROW_BLOCKS;
}

static inline size_t fr__column_sums_bytes(int64_t cols)
{
    return sizeof(float) * (size_t)cols * FR_ROW_BLOCKS;
}

/* sums (cols) = column sums of x (rows, cols), plus sums if add. */
void fr__column_sums(fr_device *dev, fr__source x, int64_t rows, int64_t cols, float *sums,
                     bool add, float *scratch);
/* sums (cols) = the FR_ROW_BLOCKS rows of partials added in order, plus sums if add. */
void fr__add_partials(const float *partials, int64_t cols, float *sums, bool add);

#endif
