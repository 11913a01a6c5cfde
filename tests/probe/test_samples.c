/* test_samples.c -- means of repeated measurements: none lost or counted twice, for any number;
 * disturbed ones are excluded. */
#include "probe/samples.h"

#include "support/test.h"

#include <math.h>

enum { N_VALUES = 3 };

static void assert_mean(fr_samples *s, double whole, double part)
{
    double mean[N_VALUES];
    fr__samples_mean(s, mean);
    if (!(fabs(mean[0] - whole) < 1e-9 * whole && fabs(mean[1] - part) < 1e-9 * part))
        fail_msg("%.12g, %.12g; expected %.12g, %.12g", mean[0], mean[1], whole, part);
}

/* 10 + i % 4 for the i-th: in rows of 1, 2, 4 or more that are complete, all but the last ones. */
static void any_number(void **state)
{
    static const int counts[] = {1, 2, 3, 127, 128, 129, 256, 257, 1000, 5001, 100000};
    (void)state;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        fr_arena arena = {0};
        fr_samples s;
        assert_true(fr__samples_init(&s, &arena, N_VALUES));
        double sum = 0, n = 0, whole = 0;
        for (int i = 0; i < counts[k]; i++) {
            double values[N_VALUES] = {10 + i % 4, 2 * (10 + i % 4), 0};
            fr__samples_add(&s, values);
            sum += values[0];
            if (s.n_added == 0) n = i + 1, whole = sum; /* what complete rows hold */
        }
        assert_int_equal(s.n * s.n_each, n);
        assert_true(n > 0.95 * counts[k]);
        assert_mean(&s, whole / n, 2 * whole / n);
        fr__arena_fini(&arena);
    }
}

/* Rows of large models are few, and their bytes bounded. */
static void large_rows(void **state)
{
    enum { LARGE = FR_SAMPLES_BYTES / sizeof(double) / 8, N = 100 };
    (void)state;
    fr_arena arena = {0};
    fr_samples s;
    assert_true(fr__samples_init(&s, &arena, LARGE));
    assert_int_equal(s.room, 8);
    double *values = fr__arena_alloc(&arena, LARGE * sizeof *values);
    double *mean = fr__arena_alloc(&arena, LARGE * sizeof *mean);
    assert_true(values && mean);
    for (int i = 0; i < N; i++) {
        values[0] = 10 + i % 2;
        values[LARGE - 1] = 3 * values[0];
        fr__samples_add(&s, values);
    }
    fr__samples_mean(&s, mean);
    assert_true(s.n * s.n_each > N / 2 && s.n <= s.room);
    assert_true(fabs(mean[0] - 10.5) < 1e-9 && fabs(mean[LARGE - 1] - 31.5) < 1e-9);
    fr__arena_fini(&arena);
    assert_true(fr__samples_init(&s, &arena, 2 * FR_SAMPLES_BYTES / (int)sizeof(double)));
    assert_int_equal(s.room, FR_LEAST_SAMPLES);
    fr__arena_fini(&arena);
}

/* Twice as slow for a third of the time counts as a slow machine, ten times once does not. */
static void disturbed(void **state)
{
    (void)state;
    fr_arena arena = {0};
    fr_samples s;
    assert_true(fr__samples_init(&s, &arena, N_VALUES));
    for (int i = 0; i < 30; i++) {
        double slow = i % 3 == 0 ? 2 : 1;
        fr__samples_add(&s, (const double[]){6 * slow, 3 * slow, 0});
    }
    assert_mean(&s, 8, 4);
    fr__samples_add(&s, (const double[]){60, 3, 0});
    assert_mean(&s, 8, 4);
    fr__arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number),
        cmocka_unit_test(large_rows),
        cmocka_unit_test(disturbed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
