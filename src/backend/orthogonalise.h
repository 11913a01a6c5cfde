/* orthogonalise.h -- the Newton-Schulz iteration of fr__device_orthogonalise: its constants, and
 * the use of its scratch.
 *
 * The coefficients are those of Jordan et al. 2024: the odd polynomial a x + b x^3 + c x^5, applied
 * five times, takes [0.01, 1] to about [0.7, 1.2], with the steepest possible slope at 0. */
#ifndef FR_BACKEND_ORTHOGONALISE_H
#define FR_BACKEND_ORTHOGONALISE_H

#include <forerun/optim.h>

#include "base/alloc.h"

enum { FR_ORTHO_STEPS = 5 }; /* odd: from y to x and back, the last result is in x */
#define FR_ORTHO_A 3.4445f
#define FR_ORTHO_B (-4.7750f)
#define FR_ORTHO_C 2.0315f
#define FR_ORTHO_EPS 1e-7

typedef struct fr__ortho {
    bool is_tall;
    int64_t side;  /* min(rows, cols) */
    float *a, *b;  /* (side, side): A; then a + b A + c A A */
    float *y;      /* (rows, ld) */
    size_t floats; /* of all three */
} fr__ortho;

static inline fr__ortho fr__ortho_room(const fr_matrix *m, float *scratch)
{
    fr__ortho o = {.is_tall = m->rows > m->cols};
    o.side = o.is_tall ? m->cols : m->rows;
    size_t square = fr__align_up((size_t)(o.side * o.side) * sizeof(float)) / sizeof(float);
    o.floats = 2 * square + (size_t)(m->rows * m->ld);
    if (scratch) o.a = scratch, o.b = scratch + square, o.y = scratch + 2 * square;
    return o;
}

#endif
