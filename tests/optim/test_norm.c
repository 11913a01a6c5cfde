/* test_norm.c -- the sum of squares: correct, and the same bits for any split into blocks. */
#include "optim/optim.h"

#include "base/philox.h"

#include <math.h>

#include "support/test.h"

#define N (3 * FR_NORM_BLOCK + 1717)
static float x[N + 1];

static int fill(void **unused)
{
    (void)unused;
    for (int i = 0; i < N + 1; i++) {
        uint32_t r[4];
        fr__random4(3, FR_STREAM_SYNTHETIC, 0, (uint64_t)i, 0, r);
        x[i] = (2 * fr__unit_float(r[0]) - 1) * (i % 5 ? 1e-3f : 1e3f);
    }
    return 0;
}

static void right_for_any_size(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < N; n += n < 100 ? 1 : 991) {
        long double expected = 0;
        for (size_t i = 0; i < n; i++) expected += (long double)x[i] * (long double)x[i];
        double found = fr__sum_squares(x, n);
        assert_true(fabsl(found - expected) <= 1e-14L * expected);
    }
}

/* Compute blocks from last to first, as another thread might, then add them in order. */
static void blocks_add_up(void **unused)
{
    (void)unused;
    for (size_t shift = 0; shift < 2; shift++) {
        const float *at = x + shift; /* unaligned too */
        double sums[N / FR_NORM_BLOCK + 1], sum = 0;
        for (size_t b = N / FR_NORM_BLOCK + 1; b-- > 0;) {
            size_t left = N - b * FR_NORM_BLOCK;
            sums[b] = fr__sum_squares_block(at + b * FR_NORM_BLOCK,
                                            left < FR_NORM_BLOCK ? left : FR_NORM_BLOCK);
        }
        for (size_t b = 0; b < N / FR_NORM_BLOCK + 1; b++) sum += sums[b];
        assert_true(sum == fr__sum_squares(at, N));
    }
}

/* The documented order, one addition at a time. */
static void order_is_fixed(void **unused)
{
    (void)unused;
    const size_t sizes[] = {1, 15, 16, 17, 255, 1000, 4095, 4096};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double lane[16] = {0};
        for (size_t i = 0; i < sizes[s]; i++) lane[i % 16] += (double)x[i] * (double)x[i];
        for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; l++) lane[l] += lane[l + half];
        assert_true(lane[0] == fr__sum_squares_block(x, sizes[s]));
    }
}

/* A norm must show overflow and NaN. */
static void keeps_infinity_and_nan(void **unused)
{
    (void)unused;
    float bad[20] = {0};
    bad[17] = INFINITY;
    assert_true(isinf(fr__sum_squares(bad, 20)));
    bad[17] = NAN;
    assert_true(isnan(fr__sum_squares(bad, 20)));
    bad[17] = 1e38f; /* its square overflows a float */
    assert_true(isfinite(fr__sum_squares(bad, 20)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_for_any_size),
        cmocka_unit_test(blocks_add_up),
        cmocka_unit_test(order_is_fixed),
        cmocka_unit_test(keeps_infinity_and_nan),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
