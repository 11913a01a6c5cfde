/* norm.c -- sum of squares in a fixed order.
 *
 * Squares of floats are exact in double, so only the order of the additions matters. Element i of a
 * block is added to lane i % LANES; lanes are added by halves, blocks in order. */
#include "base/simd.h"
#include "optim/optim.h"

enum { LANES = 16 };

FR_SIMD(static, sum_block, (const float *x, size_t n, double *sum), (x, n, sum))
{
    double lane[LANES] = {0};
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t i = whole; i < n; i++) lane[i - whole] += (double)x[i] * (double)x[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    *sum = lane[0];
}

double fr__sum_squares_block(const float *x, size_t n)
{
    double sum;
    sum_block(x, n, &sum);
    return sum;
}

double fr__sum_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t at = 0; at < n; at += FR_NORM_BLOCK)
        sum += fr__sum_squares_block(x + at, n - at < FR_NORM_BLOCK ? n - at : FR_NORM_BLOCK);
    return sum;
}
