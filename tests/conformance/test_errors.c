/* test_errors.c -- every backend refuses invalid data with a text that names the place, and accepts
 * edge cases that are not errors. */
#include <math.h>
#include <string.h>

#include "support/backend.h"
#include "support/harness.h"
#include "support/test.h"

/* Value `bad` at flat index `at` of integer input `port`. NULL text: it is allowed. */
static const struct {
    const char *line;
    int port, at, bad;
    const char *text[4]; /* all must be in the message */
} cases[] = {
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t", 1, 2, 5, {"y", "sample 102", "5", "0..4"}},
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t", 1, 0, -2, {"y", "sample 100", "-2", "0..4"}},
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t", 1, 1, 2147483647, {"sample 101", "21474836"}},
    {"a = x 6,5; t = ids 6 0 4; loss = cross_entropy a t", 1, 9, 7, {"loss", "sample 101", "7"}},
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t has_ignore=1 ignore_index=2", 1, 0, 9, {"9"}},
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t", 1, 2, FR_TARGET_IGNORE, {NULL}},
    {"a = x 5; t = ids - 0 4; y = cross_entropy a t has_ignore=1 ignore_index=-100",
     1,
     2,
     -100,
     {NULL}},
    {"t = ids 4 0 6; words = embedding t vocab=7 width=3", 0, 6, 7, {"words", "sample 101", "7"}},
    {"t = ids 4 0 6; words = embedding t vocab=7 width=3", 0, 11, -1, {"words", "102", "-1"}},
};

static void check_case(const fr_backend *b, size_t i)
{
    net n;
    harness h;
    net_build(&n, cases[i].line);
    harness_options options = {.backend = b, .batch = 3};
    assert_int_equal(harness_open(&h, &n, &options), FR_OK);
    harness_fill(&h, &n, 1);
    h.pass.first_sample = 100;
    ((int32_t *)h.x[cases[i].port])[cases[i].at] = cases[i].bad;
    fr_status status = harness_run(&h);
    if (status != (cases[i].text[0] ? FR_INVALID : FR_OK))
        fail_msg("%s, %s with %d: status %d (%s)", fr_backend_name(b), cases[i].line, cases[i].bad,
                 (int)status, fr_ctx_error(h.ctx));
    for (int k = 0; k < 4 && cases[i].text[k]; k++)
        if (!strstr(fr_ctx_error(h.ctx), cases[i].text[k]))
            fail_msg("%s: \"%s\" is not in \"%s\"", fr_backend_name(b), cases[i].text[k],
                     fr_ctx_error(h.ctx));
    harness_close(&h);
    net_free(&n);
}

static void bad_values_are_named(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(*b, i);
}

static void one_number_has_no_variance(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(b)
    {
        net n;
        harness h;
        net_build(&n, "a = x 8; norm = batch_norm a");
        harness_options options = {.backend = *b, .batch = 1};
        assert_int_equal(harness_open(&h, &n, &options), FR_INVALID);
        assert_non_null(strstr(fr_ctx_error(h.ctx), "norm"));
        harness_close(&h);
        options.eval = true; /* the running statistics will do */
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        harness_fill(&h, &n, 1);
        assert_int_equal(harness_run(&h), FR_OK);
        harness_close(&h);
        net_free(&n);
    }
}

/* Lengths beyond the sequence mean the whole sequence; length 0 gives zeros, for the gradient too.
 */
static void lengths_at_the_edge(void **state)
{
    (void)state;
    static const char *const lines[] = {"a = x 4,6; n = ids - 4 4; y = attention a n heads=2",
                                        "a = x 4,6; n = ids - 4 4; y = mean_time a n",
                                        "a = x 4,6; n = ids - 4 4; y = last_time a n"};
    FOR_EACH_BACKEND(b)
    for (int i = 0; i < 3; i++) {
        net n;
        harness full, odd;
        verdict v;
        net_build(&n, lines[i]);
        harness_options options = {.backend = *b, .batch = 3};
        assert_int_equal(harness_open(&full, &n, &options), FR_OK);
        assert_int_equal(harness_open(&odd, &n, &options), FR_OK);
        harness_fill(&full, &n, 1), harness_fill(&odd, &n, 1);
        ((int32_t *)odd.x[1])[0] = 99;
        ((int32_t *)odd.x[1])[1] = 0;
        ((int32_t *)odd.x[1])[2] = -3;
        assert_int_equal(harness_run(&full), FR_OK);
        assert_int_equal(harness_run(&odd), FR_OK);
        size_t n_y = full.n_y[0] / 3, n_x = full.n_x[0] / 3;
        assert_true(harness_near(&v, "y", odd.y[0], full.y[0], n_y, 0));
        assert_true(harness_near(&v, "dx", odd.dx[0], full.dx[0], n_x, 0));
        for (size_t j = n_y; j < 3 * n_y; j++) assert_true(odd.y[0][j] == 0);
        for (size_t j = n_x; j < 3 * n_x; j++) assert_true(odd.dx[0][j] == 0);
        harness_close(&full), harness_close(&odd);
        net_free(&n);
    }
}

/* A divergence must show in the loss: operators pass on a NaN. (max_pool and a fused relu need not,
 * because of their instructions.) */
static void nan_goes_through(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "a = x 2,4,4; y = relu a",
        "a = x 2,4,4; y = gelu a",
        "a = x 2,4,4; y = selu a",
        "a = x 2,4,4; y = tanh a",
        "a = x 2,4,4; y = sigmoid a",
        "a = x 2,4,4; y = avg_pool a kernel=2,2",
        "a = x 2,4,4; y = global_pool a",
        "a = x 2,4,4; y = batch_norm a",
        "a = x 2,4,4; y = layer_norm a",
        "a = x 2,4,4; y = conv2d a out=3 kernel=3,3 pad=1,1",
        "a = x 2,4,4; b = flatten a; y = linear b out=3",
        "a = x 4,12; y = attention a heads=2",
        "a = x 4,12; y = lstm a hidden=3",
        "a = x 5; t = ids - 0 4; y = cross_entropy a t",
    };
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        net n;
        harness h;
        bool found = false;
        net_build(&n, lines[i]);
        harness_options options = {.backend = *b, .batch = 2};
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        harness_fill(&h, &n, 1);
        ((float *)h.x[0])[2] = NAN;
        fr_status status = harness_forward(&h);
        if (status != FR_OK) fail_msg("%s: %s", lines[i], fr_ctx_error(h.ctx));
        for (size_t j = 0; j < h.n_y[0]; j++) found |= isnan(h.y[0][j]);
        if (!found) fail_msg("%s, %s: the NaN is gone", fr_backend_name(*b), lines[i]);
        harness_close(&h);
        net_free(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(one_number_has_no_variance),
        cmocka_unit_test(lengths_at_the_edge),
        cmocka_unit_test(nan_goes_through),
    };
    return cmocka_run_group_tests_name("conformance/errors", tests, NULL, NULL);
}
