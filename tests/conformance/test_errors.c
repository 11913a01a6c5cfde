/* test_errors.c -- every backend refuses invalid data with a text that names the place, and accepts
 * edge cases that are not errors. */
#include <math.h>
#include <string.h>

#include "support/backend.h"
#include "support/cases.h"
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

/* In bf16 too, with inputs of bf16 and of floats, whose NaN has the bits that a rounding would
 * carry away. */
static void expect_nan(const fr_backend *b, const char *line, fr_dtype type, uint64_t others)
{
    static const uint32_t nans[] = {0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF};
    harness_options options = {.backend = b, .batch = 2};
    net n;
    harness h;
    net_build(&n, line);
    net_set_types(&n, type, others);
    assert_int_equal(harness_open(&h, &n, &options), FR_OK);
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        bool found = false;
        harness_fill(&h, &n, 1);
        memcpy((float *)h.x[0] + 2, &nans[i], sizeof nans[i]);
        fr_status status = harness_forward(&h);
        if (status != FR_OK) fail_msg("%s: %s", line, fr_ctx_error(h.ctx));
        for (size_t j = 0; j < h.n_y[0]; j++) found |= isnan(h.y[0][j]);
        if (!found)
            fail_msg("%s, %s, %s: the NaN %x is gone", fr_backend_name(b),
                     type == FR_BF16 ? "bf16" : "f32", line, (unsigned)nans[i]);
    }
    harness_close(&h);
    net_free(&n);
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
        "a = x 2,4,4; y = silu a",
        "a = x 2,4,4; y = gelu_exact a",
        "a = x 2,4,4; y = relu6 a",
        "a = x 2,4,4; y = hardswish a",
        "a = x 2,4,4; y = hardsigmoid a",
        "a = x 2,4,4; y = leaky_relu a",
        "a = x 2,4,4; y = elu a",
        "a = x 4; b = x 4; y = mul a b",
        "a = x 4; b = x 3,4; y = subtract b a",
        "a = x 2,4,4; y = softmax a",
        "a = x 2,4,4; y = rms_norm a",
        "a = x 2,4,4; y = group_norm a groups=2",
        "a = x 4,4; y = rope a heads=1",
        "a = x 2,4,4; y = stochastic_depth a p=0.01",
        "a = x 2,4,4; y = dropout a p=0.01",
        "a = x 2,4,4; y = alpha_dropout a p=0.01",
        "a = x 2,4,4; y = avg_pool a kernel=2,2",
        "a = x 2,4,4; y = global_pool a",
        "a = x 2,4,4; y = batch_norm a",
        "a = x 2,4,4; y = layer_norm a",
        "a = x 2,4,4; y = conv2d a out=3 kernel=3,3 pad=1,1",
        "a = x 16,4,4; y = conv2d a out=16 kernel=3,3 pad=1,1",
        "a = x 2,4,4; b = flatten a; y = linear b out=3",
        "a = x 32; y = linear a out=3",
        "a = x 4; b = x 4; y = add a b",
        "a = x 4,3; b = x 3,2; y = matmul a b",
        "a = x 4,3; b = x 4,2; y = concat a b axis=1",
        "a = x 4,3; y = slice a to=2",
        "a = x 4,3; y = slice a axis=1 from=1 to=3",
        "a = x 4,3; y = select a index=0",
        "a = x 4,3; y = transpose a order=1,0",
        "a = x 4,3; y = reshape a shape=2,6",
        "a = x 4,3; y = pad a before=1,1 after=1,1",
        "a = x 4,3; y = reverse_time a",
        "a = x 4,3; y = mean_time a",
        "a = x 1,3; y = last_time a",
        "a = x 4,12; y = attention a heads=2",
        "q = x 4,6; k = x 5,12; y = cross_attention q k heads=2",
        "q = x 4,6; k = x 5,6; v = x 5,6; y = sdpa q k v heads=2",
        "q = x 4,6; k = x 4,6; v = x 4,6; y = sdpa q k v heads=2 causal=1 window=2",
        "q = x 4,6; k = x 5,6; v = x 5,6; m = data 4,5; y = sdpa q k v m heads=2",
        "m = x 1,4,5; q = x 4,6; k = x 5,6; v = x 5,6; y = sdpa q k v m heads=1",
        "a = x 4,12; y = lstm a hidden=3",
        "a = x 5; t = ids - 0 4; y = cross_entropy a t",
    };
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        expect_nan(*b, lines[i], FR_F32, 0);
        expect_nan(*b, lines[i], FR_BF16, 0);
        expect_nan(*b, lines[i], FR_BF16, 0x3); /* a is node 1: of floats */
    }
}

/* What a mask has set to minus infinity gets no share, and the others share the whole. */
static void masked_numbers_have_no_share(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(b)
    for (int i = 0; i < 2; i++) {
        net n;
        harness h;
        harness_options options = {.backend = *b, .batch = 1};
        net_build(&n, "a = x 2,35; y = softmax a");
        net_set_types(&n, i ? FR_BF16 : FR_F32, 0);
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        for (int j = 0; j < 70; j++) ((float *)h.x[0])[j] = j % 5 ? -INFINITY : 3;
        assert_int_equal(harness_forward(&h), FR_OK);
        for (int j = 0; j < 70; j++)
            assert_true(j % 5 ? h.y[0][j] == 0 : fabsf(h.y[0][j] - 1 / 7.0f) < (i ? 1e-3f : 1e-6f));
        harness_close(&h);
        net_free(&n);
    }
}

static void run_wild(harness *h, const net *n, const harness_options *o, float value)
{
    if (harness_open(h, n, o) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
    harness_fill(h, n, 1);
    for (int i = 0; i < h->n_in; i++) {
        const fr_port *in = fr_program_input(h->program, i);
        if (in->dtype != FR_I32 && !n->is_share[in->node]) ((float *)h->x[i])[1] = value;
    }
    harness_round(h);
    if (harness_forward(h) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
}

static int kind_of(float v) { return isnan(v) ? 2 : isinf(v) ? (v > 0 ? 1 : -1) : 0; }

/* What is infinite or NaN in floats, is in bf16. */
static void wild_values_stay(void **state)
{
    (void)state;
    static const float wild[] = {INFINITY, -INFINITY, NAN};
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < 3 * n_operator_cases; i++) {
        const net_case *c = &operator_cases[i / 3];
        const harness_options o = {.backend = *b, .batch = c->batch};
        net in_floats, in_bf16;
        harness f, h;
        net_build(&in_floats, c->line), net_build(&in_bf16, c->line);
        net_set_types(&in_bf16, FR_BF16, 0);
        run_wild(&f, &in_floats, &o, wild[i % 3]), run_wild(&h, &in_bf16, &o, wild[i % 3]);
        for (size_t j = 0; j < f.n_y[0]; j++)
            if (kind_of(f.y[0][j]) != kind_of(h.y[0][j]))
                fail_msg("%s, %s, with %g: y[%zu] is %g in floats, %g in bf16", fr_backend_name(*b),
                         c->line, (double)wild[i % 3], j, (double)f.y[0][j], (double)h.y[0][j]);
        harness_close(&f), harness_close(&h);
        net_free(&in_floats), net_free(&in_bf16);
    }
}

/* Targets of bce are in 0..1, or NaN. */
static void shares_are_checked(void **state)
{
    (void)state;
    static const struct {
        float target;
        bool is_fine;
    } targets[] = {{0, true}, {1, true}, {NAN, true}, {1.5f, false}, {-0.25f, false}};
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        net n;
        harness h;
        harness_options options = {.backend = *b, .batch = 2};
        net_build(&n, "a = x 3; t = share 3; y = bce a t");
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        harness_fill(&h, &n, 1);
        ((float *)h.x[1])[4] = targets[i].target;
        assert_int_equal(harness_forward(&h), targets[i].is_fine ? FR_OK : FR_INVALID);
        if (!targets[i].is_fine)
            assert_non_null(strstr(fr_ctx_error(h.ctx), "sample 1, position 1: target"));
        harness_close(&h);
        net_free(&n);
    }
}

/* Sums beyond the largest number of bf16 become infinite, as those beyond that of floats. */
static void bf16_overflows(void **state)
{
    (void)state;
    static const float from[] = {0x1.fep126f, 0x1.fep127f}, to[] = {0x1.fep127f, INFINITY};
    FOR_EACH_BACKEND(b)
    for (int i = 0; i < 2; i++) {
        net n;
        harness h;
        harness_options options = {.backend = *b, .batch = 2};
        net_build(&n, "a = x 20; y = add a a");
        net_set_types(&n, FR_BF16, 0);
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        for (size_t j = 0; j < h.n_x[0]; j++) ((float *)h.x[0])[j] = j % 2 ? from[i] : -from[i];
        assert_int_equal(harness_forward(&h), FR_OK);
        for (size_t j = 0; j < h.n_y[0]; j++) assert_true(h.y[0][j] == (j % 2 ? to[i] : -to[i]));
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
        cmocka_unit_test(masked_numbers_have_no_share),
        cmocka_unit_test(wild_values_stay),
        cmocka_unit_test(bf16_overflows),
        cmocka_unit_test(shares_are_checked),
    };
    return cmocka_run_group_tests_name("conformance/errors", tests, NULL, NULL);
}
