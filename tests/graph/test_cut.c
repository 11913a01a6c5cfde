/* test_cut.c -- stages of a branching graph:
 *
 *     0 x ----> 1 a --> 2 b --> 3 c --> 5 d(add 1) --> 7 e --> 8 loss
 *                 \----------------------/    4 unused (reads b)   6 target (input) */
#include "graph/common.h"

static world branching(void)
{
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(4), FR_F32);
    int a = add_linear(w.g, "a", 8, x), b = add_linear(w.g, "b", 6, a);
    int c = add_linear(w.g, "c", 8, b);
    ADD(w.g, FR_OP_RELU, "unused", NULL, b);
    int d = ADD(w.g, FR_OP_ADD, "d", NULL, c, a);
    int target = add_input(w.g, "target", (fr_shape){0}, FR_I32);
    int e = add_linear(w.g, "e", 10, d);
    assert_int_equal(ADD(w.g, FR_OP_CROSS_ENTROPY, "loss", NULL, e, target), 8);
    return w;
}

static void assert_list(int n, const int *list, const char *expected)
{
    char text[64] = "", *at = text;
    for (int i = 0; i < n; i++) *at++ = (char)('0' + list[i]);
    assert_string_equal(text, expected);
}

static void borders(void **state)
{
    (void)state;
    const struct {
        int n_cuts, cuts[3];
        const char *in[4], *out[4];
    } cases[] = {
        {0, {0}, {"06"}, {"48"}},
        {1, {2}, {"0", "16"}, {"1", "48"}},
        {1, {3}, {"0", "126"}, {"12", "48"}},
        {2, {2, 4}, {"0", "1", "1236"}, {"1", "23", "48"}},
        {3, {2, 5, 8}, {"0", "1", "13", "67"}, {"1", "34", "7", "8"}},
        {1, {6}, {"0", "56"}, {"45", "8"}},
        {1, {7}, {"0", "56"}, {"45", "8"}},
    };
    world w = branching();
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_stage s[4];
        assert_int_equal(fr_graph_cut(w.g, cases[i].n_cuts, cases[i].cuts, s), FR_OK);
        for (int k = 0; k <= cases[i].n_cuts; k++) {
            assert_int_equal(s[k].first, k ? cases[i].cuts[k - 1] : 0);
            assert_int_equal(s[k].last, k < cases[i].n_cuts ? cases[i].cuts[k] : 9);
            assert_list(s[k].n_inputs, s[k].inputs, cases[i].in[k]);
            assert_list(s[k].n_outputs, s[k].outputs, cases[i].out[k]);
        }
    }
    world_free(&w);
}

/* Stages of no cut, and the readers that their borders follow from; failures are the caller's. */
static void any_range(void **state)
{
    (void)state;
    static const int bad[][2] = {{-1, 3}, {3, 3}, {4, 3}, {2, 10}};
    world w = branching();
    fr_ctx *ctx = fr_ctx_create();
    fr_stage s;
    assert_int_equal(fr_graph_last_reader(w.g, 1), -1);
    assert_int_equal(fr_graph_stage(ctx, w.g, 2, 5, &s), FR_INVALID);
    assert_says(ctx, "before it is finished", "");
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    assert_int_equal(fr_graph_stage(ctx, w.g, 2, 5, &s), FR_OK);
    assert_true(s.first == 2 && s.last == 5);
    assert_list(s.n_inputs, s.inputs, "1");
    assert_list(s.n_outputs, s.outputs, "34");
    static const int last[9] = {1, 5, 4, 5, -1, 7, 8, 8, -1};
    for (int i = 0; i < 9; i++) assert_int_equal(fr_graph_last_reader(w.g, i), last[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_ctx_clear(ctx);
        assert_int_equal(fr_graph_stage(ctx, w.g, bad[i][0], bad[i][1], &s), FR_INVALID);
        assert_says(ctx, "are no stage", "");
    }
    assert_int_equal(fr_ctx_status(w.ctx), FR_OK);
    fr_ctx_free(ctx);
    world_free(&w);
}

static void bytes_across(void **state)
{
    (void)state;
    world w = branching();
    assert_int_equal(fr_graph_cut_bytes(w.g, 2), -1);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    const int64_t expected[] = {0, 0, 8, 8 + 6, 8 + 6 + 8, 8 + 8, 8, 8, 10};
    for (int cut = 0; cut < 9; cut++)
        assert_int_equal(fr_graph_cut_bytes(w.g, cut), 4 * expected[cut]);
    world_free(&w);
}

static void bad_cuts(void **state)
{
    (void)state;
    const struct {
        int n, cuts[2];
        const char *says;
    } cases[] = {
        {1, {0}, "between 1 and 8"},
        {1, {9}, "between 1 and 8"},
        {2, {4, 4}, "must ascend"},
        {2, {5, 3}, "must ascend"},
        {1, {1}, "stage 0 (nodes 0 to 0) holds inputs only"},
        {2, {6, 7}, "inputs only"},
        {-1, {0}, "-1 cuts"},
    };
    world w = branching();
    fr_stage s[3];
    assert_int_equal(fr_graph_cut(w.g, 0, NULL, s), FR_INVALID);
    assert_says(w.ctx, "must be finished", "");
    fr_ctx_clear(w.ctx);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(fr_graph_cut(w.g, cases[i].n, cases[i].cuts, s), FR_INVALID);
        assert_says(w.ctx, cases[i].says, "");
        fr_ctx_clear(w.ctx);
    }
    world_free(&w);
}

static void convexity(void **state)
{
    (void)state;
    const struct {
        int stage_of[9];
        bool is_convex;
    } cases[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0, 0}, true},
        {{0, 0, 0, 1, 1, 1, 1, 2, 2}, true},
        {{9, 9, 9, -4, -4, -4, -4, 7, 7}, true}, /* labels are only names */
        {{0, 0, 1, 1, 2, 0, 0, 0, 0}, false},    /* a -> b, c -> d: leaves and comes back */
        {{0, 0, 1, 2, 3, 4, 4, 4, 4}, true},
        {{0, 0, 1, 2, 1, 1, 1, 1, 1}, false}, /* b -> c -> d */
        {{5, 0, 0, 0, 1, 0, 8, 0, 0}, true},  /* a separate side branch; inputs anywhere */
        {{0, 1, 2, 3, 1, 3, 1, 3, 3}, false}, /* a -> b -> unused, which shares a stage with a */
        {{2, 0, 0, 1, 1, 1, 0, 2, 2}, true},  /* x is used in 0 but belongs to no stage */
    };
    world w = branching();
    assert_false(fr_graph_is_convex(w.g, cases[0].stage_of));
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (fr_graph_is_convex(w.g, cases[i].stage_of) != cases[i].is_convex)
            fail_msg("labelling %zu is judged wrongly", i);
    world_free(&w);
}

/* Three layers; between the first two there is what the letters say: b batch norm, r relu. If
 * is_read_twice, the second layer has two readers. */
static bool is_normed(const char *between, bool is_read_twice)
{
    world w = world_create();
    int x = add_linear(w.g, "a", 4, add_input(w.g, "x", FR_SHAPE(4), FR_F32));
    for (const char *c = between; *c; c++)
        x = *c == 'b' ? ADD(w.g, FR_OP_BATCH_NORM, "first_norm", NULL, x)
                      : ADD(w.g, FR_OP_RELU, "relu", NULL, x);
    int y = add_linear(w.g, "b", 4, x);
    int z = ADD(w.g, FR_OP_BATCH_NORM, "norm", NULL, y);
    if (is_read_twice) z = ADD(w.g, FR_OP_ADD, "sum", NULL, y, z);
    add_linear(w.g, "head", 4, z);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    bool normed = fr_graph_is_batch_normed(w.g);
    world_free(&w);
    return normed;
}

static void batch_normed(void **state)
{
    (void)state;
    assert_true(is_normed("b", false) && is_normed("br", false));
    assert_false(is_normed("", false) || is_normed("r", false) || is_normed("rb", false));
    assert_false(is_normed("b", true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borders),  cmocka_unit_test(any_range), cmocka_unit_test(bytes_across),
        cmocka_unit_test(bad_cuts), cmocka_unit_test(convexity), cmocka_unit_test(batch_normed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
