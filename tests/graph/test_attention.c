/* test_attention.c -- sdpa: its shapes, work, defaults and refusals. */
#include "graph/common.h"

#include <math.h>

typedef struct given {
    fr_attrs attrs;
    int n_inputs;
    fr_shape in[5];
    fr_dtype type[5];
    double forward;   /* work; 0: it is refused */
    const char *says; /* in the refusal */
    int length;       /* input that is the length */
} given;

/* clang-format off */
#define S(...) {(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}}
#define SCALAR {0}
#define QKV S(6, 8), S(6, 4), S(6, 4)
#define HEADS .heads = 4, .kv_heads = 2
#define I FR_I32
#define F FR_F32

/* A pair of a query and a key costs 2 products of 2 x 8 and 5 x 4 for softmax. */
static const given givens[] = {
    {{.attention = {HEADS}}, 3, {QKV}, {0}, 36 * 52, NULL, -1},
    {{.attention = {HEADS}}, 3, {S(3, 8), S(5, 4), S(5, 4)}, {0}, 15 * 52, NULL, -1},
    {{.attention = {HEADS, .causal = true}}, 3, {QKV}, {0}, 21 * 52, NULL, -1},
    {{.attention = {HEADS, .causal = true, .window = 2}}, 3, {QKV}, {0}, 11 * 52, NULL, -1},
    {{.attention = {HEADS, .causal = true, .window = 9}}, 3, {QKV}, {0}, 21 * 52, NULL, -1},
    {{.attention = {HEADS}}, 4, {QKV, SCALAR}, {F, F, F, I}, 36 * 52, NULL, 3},
    {{.attention = {HEADS}}, 4, {QKV, S(6)}, {F, F, F, I}, 36 * 52, NULL, -1},
    {{.attention = {HEADS}}, 4, {QKV, S(6, 6)}, {0}, 36 * 52, NULL, -1},
    {{.attention = {HEADS}}, 5, {QKV, S(4, 6, 6), SCALAR}, {F, F, F, F, I}, 36 * 52, NULL, 4},
    {{.attention = {.heads = 0}}, 3, {QKV}, {0}, 0, "heads is 0", 0},
    {{.attention = {.heads = 3}}, 3, {QKV}, {0}, 0, "3 heads do not divide", 0},
    {{.attention = {.heads = 4, .kv_heads = 3}}, 3, {QKV}, {0}, 0, "kv_heads is 3", 0},
    {{.attention = {.heads = 4, .kv_heads = -2}}, 3, {QKV}, {0}, 0, "kv_heads is -2", 0},
    {{.attention = {.heads = 4}}, 3, {QKV}, {0}, 0, "input b is 4 wide; 4 heads as wide as the 2", 0},
    {{.attention = {HEADS}}, 3, {S(6, 8), S(6, 4), S(5, 4)}, {0}, 0, "a key has one value", 0},
    {{.attention = {HEADS, .causal = true}}, 3, {S(5, 8), S(6, 4), S(6, 4)}, {0}, 0,
     "5 queries and 6 keys", 0},
    {{.attention = {HEADS, .window = 2}}, 3, {QKV}, {0}, 0, "window is 2", 0},
    {{.attention = {HEADS, .causal = true, .window = -2}}, 3, {QKV}, {0}, 0, "window is -2", 0},
    {{.attention = {HEADS, .scale = -1}}, 3, {QKV}, {0}, 0, "scale is -1", 0},
    {{.attention = {HEADS, .scale = NAN}}, 3, {QKV}, {0}, 0, "scale is nan", 0},
    {{.attention = {HEADS}}, 3, {QKV}, {F, I, F}, 0, "holds integers", 0},
    {{.attention = {HEADS}}, 2, {S(6, 8), S(6, 4)}, {0}, 0, "2 inputs given", 0},
    {{.attention = {HEADS}}, 4, {QKV, SCALAR}, {0}, 0, "holds floats", 0},
    {{.attention = {HEADS}}, 4, {QKV, S(5)}, {0}, 0, "mask d is (5); it must be (6) or (6, 6)", 0},
    {{.attention = {HEADS}}, 4, {QKV, S(2, 6, 6)}, {0}, 0, "mask d is (2, 6, 6)", 0},
    {{.attention = {HEADS}}, 4, {QKV, S(1, 4, 6, 6)}, {0}, 0, "mask d is (1, 4, 6, 6)", 0},
    {{.attention = {HEADS}}, 5, {QKV, SCALAR, S(6)}, {F, F, F, I, I}, 0, "must be a length", 0},
};
/* clang-format on */

static void sdpa_infers_or_refuses(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    for (size_t i = 0; i < sizeof givens / sizeof *givens; i++) {
        const given *t = &givens[i];
        world w = world_create();
        int in[5];
        for (int k = 0; k < t->n_inputs; k++)
            in[k] = add_input(w.g, names[k], t->in[k], t->type[k]);
        int n = fr_graph_add(w.g, FR_OP_SDPA, "n", &t->attrs, t->n_inputs, in);
        if (t->says) {
            if (n >= 0) fail_msg("case %zu was accepted, not: %s", i, t->says);
            assert_says(w.ctx, "node n (sdpa)", t->says);
            assert_int_equal(fr_ctx_status(w.ctx), FR_INVALID);
        } else {
            if (n < 0) fail_msg("case %zu: %s", i, fr_ctx_error(w.ctx));
            const fr_node *node = fr_graph_node(w.g, n);
            assert_true(fr_shape_equal(&node->shape, &t->in[0]));
            assert_true(node->flops_forward == t->forward);
            assert_int_equal(fr_graph_length_input(w.g, node), t->length);
        }
        world_free(&w);
    }
}

static void defaults_are_filled(void **state)
{
    (void)state;
    world w = world_create();
    int q = add_input(w.g, "q", FR_SHAPE(6, 8), FR_F32);
    fr_attrs a = {.attention = {.heads = 2}};
    const fr_node *node = fr_graph_node(w.g, ADD(w.g, FR_OP_SDPA, "n", &a, q, q, q));
    assert_int_equal(node->attrs.attention.kv_heads, 2);
    assert_true(node->attrs.attention.scale == 0.5f);
    world_free(&w);
}

/* The gradient of a mask that heads share would be a sum over threads. */
static void trained_masks_are_of_each_head(void **state)
{
    (void)state;
    for (int n_dims = 2; n_dims <= 3; n_dims++) {
        world w = world_create();
        int q = add_input(w.g, "q", FR_SHAPE(6, 8), FR_F32);
        fr_shape shape = n_dims == 2 ? FR_SHAPE(6, 6) : FR_SHAPE(2, 6, 6);
        int m = add_linear(w.g, "m", 6, add_input(w.g, "b", shape, FR_F32));
        fr_attrs a = {.attention = {.heads = 2}};
        int n = ADD(w.g, FR_OP_SDPA, "n", &a, q, q, q, m);
        assert_int_equal(n >= 0, n_dims == 3);
        if (n < 0) assert_says(w.ctx, "mask m has trained parameters", "(2, 6, 6)");
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sdpa_infers_or_refuses),
        cmocka_unit_test(defaults_are_filled),
        cmocka_unit_test(trained_masks_are_of_each_head),
    };
    return cmocka_run_group_tests_name("graph/attention", tests, NULL, NULL);
}
