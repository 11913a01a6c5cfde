/* test_dropout.c -- dropout and stochastic depth follow the rule of backend/dropout.h on every
 * backend: the mask depends on seed, step, node, sample of the mini-batch and element, and on
 * nothing else. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "support/backend.h"
#include "support/harness.h"
#include "support/test.h"

#define N 1021 /* numbers in a sample: no multiple of anything */

static const char dropout_line[] = "a = x 1021; y = dropout a p=0.3";
static const char depth_line[] = "a = x 1021; y = stochastic_depth a p=0.3";
static const char alpha_line[] = "a = x 1021; y = alpha_dropout a p=0.2";

/* Run with x and dy all ones (or given) and leave y in h. */
static void run(harness *h, const net *n, const fr_backend *b, int batch, int64_t step,
                int64_t first_sample, uint64_t seed)
{
    harness_options options = {.backend = b, .batch = batch};
    assert_int_equal(harness_open(h, n, &options), FR_OK);
    for (size_t i = 0; i < h->n_x[0]; i++) ((float *)h->x[0])[i] = h->dy[0][i] = 1;
    h->pass.step = step;
    h->pass.first_sample = first_sample;
    h->pass.seed = seed;
    if (harness_run(h) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
}

/* A second implementation of the rule. */
static bool kept(uint64_t seed, int node, uint64_t step, uint32_t sample, uint64_t e, float p)
{
    uint32_t c[4] = {(uint32_t)(e / 4), (uint32_t)step, sample, 2u << 24 ^ (uint32_t)node};
    fr__philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (float)(c[e % 4] >> 8) / 16777216.0f >= p;
}

static bool is_near(float got, double want) { return fabs((double)got - want) < 1e-6; }

static void follows_the_rule(void **state)
{
    (void)state;
    uint64_t seed = 0x123456789ABCDEFu, step = 5000000000u; /* more than 32 bits are cut off */
    FOR_EACH_BACKEND(b)
    {
        net n;
        harness h;
        net_build(&n, dropout_line);
        int node = fr_graph_find(n.graph, "y");
        run(&h, &n, *b, 3, (int64_t)step, 40, seed);
        for (uint64_t i = 0; i < 3 * N; i++) {
            bool is_kept = kept(seed, node, step, 40 + (uint32_t)(i / N), i % N, 0.3f);
            assert_true(is_near(h.y[0][i], is_kept ? 1 / 0.7 : 0));
            assert_true(is_near(h.dx[0][i], is_kept ? 1 / 0.7 : 0));
        }
        harness_close(&h);
        net_free(&n);
    }
}

/* Kept: a x + b; dropped: a alpha' + b. */
static void alpha_dropout_follows_the_rule(void **state)
{
    (void)state;
    double p = 0.2, drop = -1.7580993408473766, a = 1 / sqrt((1 - p) * (1 + p * drop * drop));
    FOR_EACH_BACKEND(b)
    {
        net n;
        harness h;
        net_build(&n, alpha_line);
        int node = fr_graph_find(n.graph, "y");
        run(&h, &n, *b, 2, 7, 0, 11);
        for (uint64_t i = 0; i < 2 * N; i++) {
            bool is_kept = kept(11, node, 7, (uint32_t)(i / N), i % N, 0.2f);
            assert_true(is_near(h.y[0][i], a * (is_kept ? 1 : drop) - a * p * drop));
            assert_true(is_near(h.dx[0][i], is_kept ? a : 0));
        }
        harness_close(&h);
        net_free(&n);
    }
}

/* A sample is kept where dropout keeps its first element; micro-batches do not matter. */
static void stochastic_depth_follows_the_rule(void **state)
{
    (void)state;
    enum { BATCH = 40 };
    FOR_EACH_BACKEND(b)
    {
        net n;
        harness h;
        int n_kept = 0;
        net_build(&n, depth_line);
        int node = fr_graph_find(n.graph, "y");
        for (uint32_t first = 0; first < 2; first++) {
            const int batch = first ? BATCH - 7 : BATCH;
            run(&h, &n, *b, batch, 12, first * 7, 5);
            for (uint64_t i = 0; i < (uint64_t)batch * N; i++) {
                bool is_kept = kept(5, node, 12, first * 7 + (uint32_t)(i / N), 0, 0.3f);
                assert_true(is_near(h.y[0][i], is_kept ? 1 / 0.7 : 0));
                assert_true(is_near(h.dx[0][i], is_kept ? 1 / 0.7 : 0));
                if (!first && i % N == 0) n_kept += is_kept;
            }
            harness_close(&h);
        }
        assert_true(n_kept > 18 && n_kept < 38); /* of 40, 28 expected; three deviations */
        net_free(&n);
    }
}

static size_t count_differences(const float *a, const float *b, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += a[i] != b[i];
    return count;
}

/* Samples 0..3 at once, or 0..1 and 2..3: the same. Another seed, step, sample or node: another
 * mask, unlike the first in about 2 p (1 - p) of its places. */
static void depends_on_what_it_should(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(b)
    {
        net n, later;
        harness whole, half, other;
        net_build(&n, dropout_line);
        net_build(&later, "a = x 1021; b = flatten a; y = dropout b p=0.3");
        run(&whole, &n, *b, 4, 9, 0, 1);
        for (int part = 0; part < 2; part++) {
            run(&half, &n, *b, 2, 9, 2 * part, 1);
            size_t offset = (size_t)part * 2 * N;
            assert_memory_equal(half.y[0], whole.y[0] + offset, 2 * N * sizeof(float));
            assert_memory_equal(half.dx[0], whole.dx[0] + offset, 2 * N * sizeof(float));
            harness_close(&half);
        }
        for (int what = 0; what < 4; what++) {
            run(&other, what == 3 ? &later : &n, *b, 4, what == 0 ? 10 : 9, what == 1 ? 4 : 0,
                what == 2 ? 2 : 1);
            double changed = (double)count_differences(whole.y[0], other.y[0], 4 * N) / (4 * N);
            assert_true(fabs(changed - 2 * 0.3 * 0.7) < 0.04); /* five standard deviations */
            harness_close(&other);
        }
        harness_close(&whole);
        net_free(&n), net_free(&later);
    }
}

static void keeps_its_rate(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(b)
    {
        net n;
        harness h;
        double dropped = 0, mean = 0, square = 0;
        int batch = 64;
        net_build(&n, dropout_line);
        run(&h, &n, *b, batch, 0, 0, 3);
        for (size_t i = 0; i < h.n_y[0]; i++) dropped += h.y[0][i] == 0;
        double sigma = sqrt(0.3 * 0.7 / (double)h.n_y[0]);
        assert_true(fabs(dropped / (double)h.n_y[0] - 0.3) < 5 * sigma);
        harness_close(&h);
        net_free(&n);
        /* alpha_dropout leaves mean 0 and variance 1 as they are. */
        net_build(&n, alpha_line);
        harness_options options = {.backend = *b, .batch = batch};
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        float *x = h.x[0];
        harness_random(5, 0, x, h.n_x[0]);
        for (size_t i = 0; i < h.n_x[0]; i++) x[i] *= 1.7320508f; /* uniform, variance 1 */
        assert_int_equal(harness_run(&h), FR_OK);
        for (size_t i = 0; i < h.n_y[0]; i++) {
            mean += (double)h.y[0][i] / (double)h.n_y[0];
            square += (double)h.y[0][i] * (double)h.y[0][i] / (double)h.n_y[0];
        }
        assert_true(fabs(mean) < 0.02);
        assert_true(fabs(square - mean * mean - 1) < 0.02);
        harness_close(&h);
        net_free(&n);
    }
}

static void evaluation_drops_nothing(void **state)
{
    (void)state;
    static const char *const lines[] = {dropout_line, alpha_line, depth_line};
    FOR_EACH_BACKEND(b)
    for (int i = 0; i < 3; i++) {
        net n;
        harness h;
        net_build(&n, lines[i]);
        harness_options options = {.backend = *b, .batch = 2, .eval = true};
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        harness_fill(&h, &n, 2);
        assert_int_equal(harness_run(&h), FR_OK);
        assert_memory_equal(h.y[0], h.x[0], 2 * N * sizeof(float));
        harness_close(&h);
        net_free(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_rule),
        cmocka_unit_test(alpha_dropout_follows_the_rule),
        cmocka_unit_test(stochastic_depth_follows_the_rule),
        cmocka_unit_test(depends_on_what_it_should),
        cmocka_unit_test(keeps_its_rate),
        cmocka_unit_test(evaluation_drops_nothing),
    };
    return cmocka_run_group_tests_name("conformance/dropout", tests, NULL, NULL);
}
