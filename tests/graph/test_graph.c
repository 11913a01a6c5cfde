/* test_graph.c -- building: names, order, ties, what happens after a failure, and memory. */
#include "base/alloc.h"
#include "graph/common.h"

#include <stdio.h>

static void shapes_have_text(void **state)
{
    (void)state;
    char text[96];
    fr_shape s = FR_SHAPE(3, 32, 32), one = FR_SHAPE(5), none = {0};
    assert_string_equal(fr_shape_text(&s, text, sizeof text), "(3, 32, 32)");
    assert_string_equal(fr_shape_text(&one, text, sizeof text), "(5)");
    assert_string_equal(fr_shape_text(&none, text, sizeof text), "()");
    assert_string_equal(fr_shape_text(&s, text, 6), "(3, 3"); /* cut, never overrun */
    assert_int_equal(fr_shape_count(&s), 3072);
    assert_int_equal(fr_shape_count(&none), 1);
    assert_true(fr_shape_equal(&s, &FR_SHAPE(3, 32, 32)));
    assert_false(fr_shape_equal(&s, &FR_SHAPE(3, 32)));
}

static void nodes_are_found(void **state)
{
    (void)state;
    world w = world_create();
    char name[32];
    int last = add_input(w.g, "x", FR_SHAPE(4), FR_F32);
    const fr_node *x = fr_graph_node(w.g, last);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        last = add_linear(w.g, name, 4, last);
        assert_int_equal(last, i + 1);
    }
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    assert_ptr_equal(x, fr_graph_node(w.g, 0)); /* pointers survive growth */
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        assert_int_equal(fr_graph_find(w.g, name), i + 1);
        snprintf(name, sizeof name, "h.%d.bias", i);
        int p = fr_graph_find_param(w.g, name);
        assert_int_equal(p, 2 * i + 1);
        assert_int_equal(fr_graph_node(w.g, i + 1)->params[1], p);
    }
    assert_int_equal(fr_graph_find(w.g, "h.300"), -1);
    assert_int_equal(fr_graph_find_param(w.g, "h.0"), -1);
    assert_int_equal(fr_graph_find_op(w.g, FR_OP_LINEAR), 300);
    assert_int_equal(fr_graph_find_op(w.g, FR_OP_LSTM), -1);
    assert_int_equal(fr_graph_n_params(w.g), 600);
    assert_int_equal(fr_graph_param_count(w.g), 300 * 20);
    assert_string_equal(fr_graph_name(w.g), "test");
    assert_int_equal(ADD(w.g, FR_OP_RELU, "late", NULL, last), -1);
    assert_says(w.ctx, "node late", "finished");
    assert_int_equal(fr_graph_n_nodes(w.g), 301);
    world_free(&w);
}

static void bad_requests(void **state)
{
    (void)state;
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const struct {
        fr_operator op;
        const char *name;
        int input;
        const char *says;
    } cases[] = {
        {FR_OP_RELU, "x", 0, "already has a node of this name"},
        {FR_OP_RELU, "", 0, "the name must have"},
        {FR_OP_RELU, NULL, 0, "the name must have"},
        {FR_OP_RELU, "a b", 0, "the name must have"},
        {FR_OP_RELU, "a\n", 0, "the name must have"},
        {FR_OP_RELU, longest, 0, "the name must have"},
        {FR_OP_RELU, "y", 1, "only nodes 0 to 0 exist"},
        {FR_OP_RELU, "y", -1, "input 0 is node -1"},
        {FR_OP_RELU, "y", INT32_MAX, "only nodes 0 to 0 exist"},
        {FR_OPERATOR_COUNT, "y", 0, "no operator"},
        {(fr_operator)-1, "y", 0, "no operator"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w = world_create();
        add_input(w.g, "x", FR_SHAPE(4), FR_F32);
        int y = fr_graph_add(w.g, cases[i].op, cases[i].name, NULL, 1, &cases[i].input);
        assert_int_equal(y, -1);
        assert_says(w.ctx, cases[i].says, "");
        /* The failure is passed on and is unchanged at the end. */
        assert_int_equal(ADD(w.g, FR_OP_RELU, "z", NULL, y), -1);
        assert_int_equal(fr_graph_tie(w.g, "a", "b"), FR_INVALID);
        assert_int_equal(fr_graph_finish(w.g), FR_INVALID);
        assert_says(w.ctx, cases[i].says, "");
        world_free(&w);
    }
    world w = world_create();
    assert_int_equal(fr_graph_finish(w.g), FR_INVALID);
    assert_says(w.ctx, "no nodes", "");
    world_free(&w);
}

/* token embedding, two square layers and a head, as far as ties are concerned */
static world tied_world(void)
{
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(6), FR_I32);
    fr_attrs e = {.embedding = {50, 8, 0}}, head = {.linear = {50, true}};
    int h = ADD(w.g, FR_OP_EMBEDDING, "wte", &e, x);
    h = add_linear(w.g, "a", 8, h);
    h = ADD(w.g, FR_OP_LINEAR, "mid", &head, h);
    h = add_linear(w.g, "b", 8, h);
    h = ADD(w.g, FR_OP_LINEAR, "head", &head, h);
    ADD(w.g, FR_OP_BATCH_NORM, "norm", NULL, add_input(w.g, "y", FR_SHAPE(8), FR_F32));
    return w;
}

static void ties_point_to_the_owner(void **state)
{
    (void)state;
    world w = tied_world();
    int64_t n = fr_graph_param_count(w.g);
    assert_int_equal(fr_graph_tie(w.g, "head.weight", "mid.weight"), FR_OK);
    assert_int_equal(fr_graph_tie(w.g, "mid.weight", "wte.weight"), FR_OK);
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    int owner = fr_graph_find_param(w.g, "wte.weight");
    assert_int_equal(fr_graph_param(w.g, fr_graph_find_param(w.g, "head.weight"))->tied_to, owner);
    assert_int_equal(fr_graph_param(w.g, fr_graph_find_param(w.g, "mid.weight"))->tied_to, owner);
    assert_int_equal(fr_graph_param(w.g, owner)->tied_to, -1);
    assert_int_equal(fr_graph_param_count(w.g), n - 2 * 400);
    assert_int_equal(fr_graph_tie(w.g, "b.bias", "a.bias"), FR_INVALID);
    assert_says(w.ctx, "finished", "");
    world_free(&w);
}

static void bad_ties(void **state)
{
    (void)state;
    const char *cases[][3] = {
        {"head.weight", "nowhere.weight", "no parameter nowhere.weight"},
        {"nowhere.weight", "wte.weight", "no parameter nowhere.weight"},
        {"wte.weight", "head.weight", "earlier node"},
        {"wte.weight", "wte.weight", "earlier node"},
        {"head.weight", "a.weight", "shapes (50, 8) and (8, 8) differ"},
        {"norm.running_var", "a.bias", "running statistics"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w = tied_world();
        assert_int_equal(fr_graph_tie(w.g, cases[i][0], cases[i][1]), FR_INVALID);
        assert_says(w.ctx, cases[i][0], cases[i][2]);
        assert_int_equal(fr_graph_finish(w.g), FR_INVALID);
        world_free(&w);
    }
}

/* All operations of a graph, for the out-of-memory test. */
static fr_status whole_life(fr_ctx *ctx)
{
    fr_graph *g;
    FR_TRY(fr_graph_create(ctx, "walk", &g));
    char name[32];
    int last = add_input(g, "x", FR_SHAPE(4), FR_F32);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "layer.%d", i);
        last = add_linear(g, name, 4, last);
    }
    fr_status status = fr_graph_finish(g);
    fr_stage stages[3];
    if (status == FR_OK) status = fr_graph_cut(g, 2, (int[]){20, 40}, stages);
    fr_graph_free(g);
    return status;
}

/* x -> a -> flat -> loss; ids -> part */
static world stored_world(void)
{
    world w = world_create();
    int a = add_linear(w.g, "a", 6, add_input(w.g, "x", FR_SHAPE(4), FR_F32));
    assert_int_equal(fr_graph_store(w.g, a, FR_BF16), FR_OK);
    int flat = ADD(w.g, FR_OP_FLATTEN, "flat", NULL, a);
    ADD(w.g, FR_OP_CROSS_ENTROPY, "loss", NULL, flat, add_input(w.g, "y", (fr_shape){0}, FR_I32));
    fr_attrs slice = {.slice = {.to = 2}};
    ADD(w.g, FR_OP_SLICE, "part", &slice, add_input(w.g, "ids", FR_SHAPE(3), FR_I32));
    return w;
}

static void types_have_bytes(void **state)
{
    (void)state;
    assert_int_equal(fr_dtype_bytes(FR_F32), 4);
    assert_int_equal(fr_dtype_bytes(FR_I32), 4);
    assert_int_equal(fr_dtype_bytes(FR_BF16), 2);
    world w = stored_world();
    int a = fr_graph_find(w.g, "a"), flat = fr_graph_find(w.g, "flat");
    assert_int_equal(fr_graph_finish(w.g), FR_OK);
    assert_int_equal(fr_node_bytes(fr_graph_node(w.g, a)), 12);
    assert_int_equal(fr_node_bytes(fr_graph_node(w.g, flat)), 24); /* readers keep their type */
    assert_int_equal(fr_graph_cut_bytes(w.g, flat), 12);
    assert_int_equal(fr_graph_cut_bytes(w.g, flat + 1), 24);
    assert_int_equal(fr_graph_store(w.g, a, FR_F32), FR_INVALID);
    assert_says(w.ctx, "finished", "");
    world_free(&w);
    static const char *const fixed[] = {"x", "y", "loss", "part"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        w = stored_world();
        assert_int_equal(fr_graph_store(w.g, fr_graph_find(w.g, fixed[i]), FR_BF16), FR_INVALID);
        assert_says(w.ctx, fixed[i], "cannot be stored");
        assert_int_equal(fr_graph_finish(w.g), FR_INVALID);
        world_free(&w);
    }
    w = stored_world();
    assert_int_equal(fr_graph_store(w.g, -1, FR_BF16), FR_INVALID);
    assert_says(w.ctx, "no node -1", "");
    world_free(&w);
}

static void memory_runs_out(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    uint64_t before = fr__alloc_count();
    assert_int_equal(whole_life(ctx), FR_OK);
    int64_t needed = (int64_t)(fr__alloc_count() - before);
    assert_true(needed > 8);
    for (int64_t n = 0; n <= needed; n++) {
        fr_ctx_clear(ctx);
        fr__alloc_fail_after(n);
        fr_status status = whole_life(ctx);
        fr__alloc_fail_after(-1);
        assert_int_equal(status, n < needed ? FR_NO_MEMORY : FR_OK);
        assert_int_equal(fr_ctx_status(ctx), status);
    }
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_text), cmocka_unit_test(nodes_are_found),
        cmocka_unit_test(bad_requests),     cmocka_unit_test(ties_point_to_the_owner),
        cmocka_unit_test(bad_ties),         cmocka_unit_test(types_have_bytes),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
