/* test_operators.c -- shape, parameters, work and refusals of every operator. */
#include "graph/common.h"

#include <math.h>

/* One node on inputs of the given shapes, and its expected results. */
struct good {
    fr_operator op;
    fr_attrs attrs;
    int n_inputs;
    fr_shape in[3];
    fr_dtype dtype[3];
    fr_shape out;
    const char *params;          /* names and shapes, in order */
    double forward, back_weight; /* work; its inputs have no gradient */
};

/* FR_SHAPE and the scalar as plain initialisers, which a static table needs. */
/* clang-format off */
#define S(...) {(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}}
#define SCALAR {0}
#define NONE {.weight_init = {FR_INIT_DEFAULT, 0}}

static const struct good goods[] = {
    {FR_OP_LINEAR, {.linear = {.out = 5}}, 1, {S(7, 4)}, {FR_F32}, S(7, 5),
     "weight(5, 4) bias(5) ", 7 * 5 * (8 + 1), 7 * 5 * (8 + 1)},
    {FR_OP_LINEAR, {.linear = {5, true}}, 1, {S(4)}, {FR_F32}, S(5), "weight(5, 4) ", 40, 40},
    {FR_OP_MATMUL, NONE, 2, {S(2, 3, 4), S(2, 4, 5)}, {FR_F32, FR_F32}, S(2, 3, 5), "", 240, 0},
    /* First convolution of VGG-16 at 224: 86.7 M multiply-adds and 3.2 M biases. */
    {FR_OP_CONV2D, {.conv2d = {.out = 64, .kernel = {3, 3}, .pad = {1, 1}}}, 1, {S(3, 224, 224)},
     {FR_F32}, S(64, 224, 224), "weight(64, 3, 3, 3) bias(64) ", 2. * 86704128 + 3211264,
     2. * 86704128 + 3211264},
    {FR_OP_CONV2D,
     {.conv2d = {.out = 6, .kernel = {1, 5}, .stride = {2, 3}, .pad = {0, 2},
      .groups = 2, .no_bias = true}},
     1, {S(4, 9, 10)}, {FR_F32}, S(6, 5, 4), "weight(6, 2, 1, 5) ", 2. * 6 * 20 * 10,
     2. * 6 * 20 * 10},
    {FR_OP_BATCH_NORM, NONE, 1, {S(3, 4, 5)}, {FR_F32}, S(3, 4, 5),
     "weight(3) bias(3) running_mean(3)b running_var(3)b ", 480, 240},
    {FR_OP_BATCH_NORM, NONE, 1, {S(3)}, {FR_F32}, S(3),
     "weight(3) bias(3) running_mean(3)b running_var(3)b ", 24, 12},
    {FR_OP_LAYER_NORM, NONE, 1, {S(6, 8)}, {FR_F32}, S(6, 8), "weight(8) bias(8) ", 384, 192},
    {FR_OP_RELU, NONE, 1, {S(2, 3, 4)}, {FR_F32}, S(2, 3, 4), "", 24, 0},
    {FR_OP_GELU, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 70, 0},
    {FR_OP_SELU, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 35, 0},
    {FR_OP_TANH, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 40, 0},
    {FR_OP_SIGMOID, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 30, 0},
    {FR_OP_SILU, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 35, 0},
    {FR_OP_GELU_EXACT, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 130, 0},
    {FR_OP_RELU6, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 10, 0},
    {FR_OP_HARDSWISH, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 25, 0},
    {FR_OP_HARDSIGMOID, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 20, 0},
    {FR_OP_LEAKY_RELU, NONE, 1, {S(5)}, {FR_F32}, S(5), "", 10, 0},
    {FR_OP_ELU, {.activation = {2}}, 1, {S(5)}, {FR_F32}, S(5), "", 30, 0},
    {FR_OP_MUL, NONE, 2, {S(3, 4), S(3, 4)}, {FR_F32, FR_F32}, S(3, 4), "", 12, 0},
    {FR_OP_MUL, NONE, 2, {S(3, 4, 5), S(3, 1, 1)}, {FR_F32, FR_F32}, S(3, 4, 5), "", 60, 0},
    {FR_OP_SUBTRACT, NONE, 2, {S(3, 4), S(4)}, {FR_F32, FR_F32}, S(3, 4), "", 12, 0},
    {FR_OP_SUBTRACT, NONE, 2, {S(3, 4), SCALAR}, {FR_F32, FR_F32}, S(3, 4), "", 12, 0},
    {FR_OP_SOFTMAX, NONE, 1, {S(6, 8)}, {FR_F32}, S(6, 8), "", 384, 0},
    {FR_OP_RMS_NORM, NONE, 1, {S(6, 8)}, {FR_F32}, S(6, 8), "weight(8) ", 192, 144},
    {FR_OP_GROUP_NORM, {.norm = {.groups = 3}}, 1, {S(6, 4, 5)}, {FR_F32}, S(6, 4, 5),
     "weight(6) bias(6) ", 960, 480},
    {FR_OP_ROPE, {.rope = {.heads = 3}}, 1, {S(5, 12)}, {FR_F32}, S(5, 12), "", 180, 0},
    {FR_OP_ROPE, {.rope = {3, 2, 2, 100}}, 1, {S(5, 12)}, {FR_F32}, S(5, 12), "", 60, 0},
    {FR_OP_STOCHASTIC_DEPTH, {.dropout = {0.5f}}, 1, {S(5)}, {FR_F32}, S(5), "", 5, 0},
    {FR_OP_DROPOUT, {.dropout = {0.5f}}, 1, {S(5)}, {FR_F32}, S(5), "", 10, 0},
    {FR_OP_ALPHA_DROPOUT, {.dropout = {0}}, 1, {S(5)}, {FR_F32}, S(5), "", 15, 0},
    {FR_OP_MAX_POOL, {.pool = {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}}, 1,
     {S(2, 8, 9)}, {FR_F32}, S(2, 4, 5), "", 360, 0},
    {FR_OP_AVG_POOL, {.pool = {.kernel = {2, 3}}}, 1, {S(2, 9, 9)}, {FR_F32}, S(2, 4, 3), "",
     144, 0},
    {FR_OP_GLOBAL_POOL, NONE, 1, {S(6, 7, 7)}, {FR_F32}, S(6), "", 300, 0},
    {FR_OP_ADD, NONE, 2, {S(3, 4), S(3, 4)}, {FR_F32, FR_F32}, S(3, 4), "", 12, 0},
    {FR_OP_CONCAT, NONE, 3, {S(3, 4), S(1, 4), S(2, 4)}, {FR_F32, FR_F32, FR_F32}, S(6, 4), "",
     0, 0},
    {FR_OP_CONCAT, {.concat = {.axis = 1}}, 2, {S(3, 4), S(3, 2)}, {FR_F32, FR_F32}, S(3, 6), "",
     0, 0},
    {FR_OP_SLICE, {.slice = {.from = 2, .to = 5}}, 1, {S(6, 4)}, {FR_F32}, S(3, 4), "", 0, 0},
    {FR_OP_SLICE, {.slice = {1, 2, 4}}, 1, {S(6, 4)}, {FR_F32}, S(6, 2), "", 0, 0},
    {FR_OP_SELECT, {.select = {1, -1}}, 1, {S(6, 4, 5)}, {FR_F32}, S(6, 5), "", 0, 0},
    {FR_OP_SELECT, NONE, 1, {S(6)}, {FR_F32}, SCALAR, "", 0, 0},
    {FR_OP_TRANSPOSE, {.transpose = {{2, 0, 1}}}, 1, {S(3, 4, 5)}, {FR_F32}, S(5, 3, 4), "", 0, 0},
    {FR_OP_RESHAPE, {.reshape = {S(5, -1, 2)}}, 1, {S(4, 15)}, {FR_F32}, S(5, 6, 2), "", 0, 0},
    {FR_OP_RESHAPE, NONE, 1, {S(1, 1)}, {FR_F32}, SCALAR, "", 0, 0},
    {FR_OP_PAD, {.pad = {{1}, {2, 3}, 0}}, 1, {S(3, 4)}, {FR_F32}, S(6, 7), "", 0, 0},
    {FR_OP_FLATTEN, NONE, 1, {S(3, 4, 5)}, {FR_F32}, S(60), "", 0, 0},
    {FR_OP_FLATTEN, NONE, 1, {SCALAR}, {FR_F32}, S(1), "", 0, 0},
    {FR_OP_EMBEDDING, {.embedding = {100, 8, 0}}, 1, {S(6)}, {FR_I32}, S(6, 8),
     "weight(100, 8) ", 0, 48},
    {FR_OP_EMBEDDING, {.embedding = {100, 8, 10}}, 1, {S(6)}, {FR_I32}, S(6, 8),
     "weight(100, 8) position(10, 8) ", 48, 96},
    {FR_OP_ATTENTION, {.attention = {.heads = 2}}, 1, {S(5, 12)}, {FR_F32}, S(5, 4), "",
     25 * (16 + 10), 0},
    {FR_OP_ATTENTION, {.attention = {.heads = 2, .causal = true}}, 2, {S(5, 12), SCALAR},
     {FR_F32, FR_I32}, S(5, 4), "", 15 * (16 + 10), 0},
    {FR_OP_SDPA, {.attention = {.heads = 2, .kv_heads = 1}}, 3, {S(5, 4), S(3, 2), S(3, 2)},
     {FR_F32, FR_F32, FR_F32}, S(5, 4), "", 15 * (16 + 10), 0},
    {FR_OP_LSTM, {.lstm = {.hidden = 6}}, 1, {S(5, 3)}, {FR_F32}, S(5, 6),
     "weight_ih(24, 3) weight_hh(24, 6) bias_ih(24) bias_hh(24) ", 5 * (48 * 9 + 32 * 6),
     5 * (48 * 9 + 48)},
    {FR_OP_LSTM, {.lstm = {6, 4}}, 1, {S(5, 3)}, {FR_F32}, S(5, 4),
     "weight_ih(24, 3) weight_hh(24, 4) bias_ih(24) bias_hh(24) weight_hr(4, 6) ",
     5 * (48 * 7 + 48 + 32 * 6), 5 * (48 * 7 + 48 + 48)},
    {FR_OP_CROSS_ATTENTION, {.attention = {.heads = 2}}, 3, {S(5, 4), S(3, 8), SCALAR},
     {FR_F32, FR_F32, FR_I32}, S(5, 4), "", 15 * (16 + 10), 0},
    {FR_OP_REVERSE_TIME, NONE, 2, {S(5, 3), SCALAR}, {FR_F32, FR_I32}, S(5, 3), "", 0, 0},
    {FR_OP_MEAN_TIME, NONE, 1, {S(5, 3)}, {FR_F32}, S(3), "", 15, 0},
    {FR_OP_MEAN_TIME, NONE, 2, {S(5, 3), SCALAR}, {FR_F32, FR_I32}, S(3), "", 15, 0},
    {FR_OP_LAST_TIME, NONE, 2, {S(5, 3), SCALAR}, {FR_F32, FR_I32}, S(3), "", 0, 0},
    {FR_OP_CROSS_ENTROPY, NONE, 2, {S(10), SCALAR}, {FR_F32, FR_I32}, S(3), "", 60, 0},
    {FR_OP_CROSS_ENTROPY, {.loss = {.label_smoothing = 0.1f}}, 2, {S(4, 10), S(4)},
     {FR_F32, FR_I32}, S(3), "", 240, 0},
    {FR_OP_MSE, NONE, 2, {S(4, 5), S(4, 5)}, {FR_F32, FR_F32}, S(3), "", 120, 0},
    {FR_OP_MSE, NONE, 2, {S(1), SCALAR}, {FR_F32, FR_F32}, S(3), "", 6, 0},
    {FR_OP_SMOOTH_L1, {.loss = {.beta = 2}}, 2, {S(5), S(5)}, {FR_F32, FR_F32}, S(3), "", 30, 0},
    {FR_OP_BCE, NONE, 2, {S(5), S(5, 1)}, {FR_F32, FR_F32}, S(3), "", 30, 0},
    {FR_OP_COSINE, NONE, 2, {S(4, 5), S(4, 5)}, {FR_F32, FR_F32}, S(3), "", 120, 0},
};
/* clang-format on */

static int build(fr_graph *g, fr_operator op, const fr_attrs *attrs, int n, const fr_shape *shapes,
                 const fr_dtype *dtypes)
{
    static const char *const names[] = {"a", "b", "c"};
    int in[3];
    for (int i = 0; i < n; i++) in[i] = add_input(g, names[i], shapes[i], dtypes[i]);
    return fr_graph_add(g, op, "n", attrs, n, in);
}

static void operators_infer(void **state)
{
    (void)state;
    bool seen[FR_OPERATOR_COUNT] = {[FR_OP_INPUT] = true};
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const struct good *t = &goods[i];
        world w = world_create();
        int n = build(w.g, t->op, &t->attrs, t->n_inputs, t->in, t->dtype);
        if (n < 0) fail_msg("case %zu: %s", i, fr_ctx_error(w.ctx));
        const fr_node *node = fr_graph_node(w.g, n);
        char text[256] = "", shape[96];
        for (int k = 0; k < node->n_params; k++) {
            const fr_param *p = fr_graph_param(w.g, node->params[k]);
            assert_memory_equal(p->name, "n.", 2);
            assert_int_equal(p->node, n);
            strcat(strcat(text, p->name + 2), fr_shape_text(&p->shape, shape, sizeof shape));
            strcat(text, p->is_buffer ? "b " : " ");
        }
        assert_string_equal(text, t->params);
        fr_shape_text(&node->shape, shape, sizeof shape);
        fr_shape_text(&t->out, text, sizeof text);
        assert_string_equal(shape, text);
        assert_int_equal(node->dtype, FR_F32);
        assert_true(node->flops_forward == t->forward);
        assert_true(node->flops_back_input == 0);
        assert_true(node->flops_back_weight == t->back_weight);
        assert_int_equal(node->needs_grad, node->n_params > 0);
        seen[t->op] = true;
        world_free(&w);
    }
    for (int op = 0; op < FR_OPERATOR_COUNT; op++)
        if (!seen[op]) fail_msg("no case for %s", fr_operator_name((fr_operator)op));
}

/* If an earlier node is trained, the input gradient counts too. */
static void input_gradients_cost(void **state)
{
    (void)state;
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(7, 4), FR_F32);
    int a = add_linear(w.g, "a", 12, x), b = add_linear(w.g, "b", 5, a);
    int r = ADD(w.g, FR_OP_RELU, "r", NULL, b);
    fr_attrs two_heads = {.attention = {.heads = 2}};
    int t = ADD(w.g, FR_OP_ATTENTION, "t", &two_heads, a);
    assert_true(fr_graph_node(w.g, a)->flops_back_input == 0);
    assert_true(fr_graph_node(w.g, b)->flops_back_input == 2 * 7 * 12 * 5);
    assert_true(fr_graph_node(w.g, r)->flops_back_input == 35);
    assert_true(fr_graph_node(w.g, t)->flops_back_input == 4 * 2 * 49 * 4 + 4 * 49 * 2);
    assert_false(fr_graph_node(w.g, x)->needs_grad);
    assert_true(fr_graph_node(w.g, r)->needs_grad);
    world_free(&w);
}

static void defaults_are_filled(void **state)
{
    (void)state;
    world w = world_create();
    int x = add_input(w.g, "x", FR_SHAPE(4, 8, 8), FR_F32);
    fr_attrs conv = {.conv2d = {.out = 4, .kernel = {3, 3}}}, pool = {.pool = {.kernel = {2, 3}}};
    const fr_node *c = fr_graph_node(w.g, ADD(w.g, FR_OP_CONV2D, "c", &conv, x));
    const fr_node *p = fr_graph_node(w.g, ADD(w.g, FR_OP_MAX_POOL, "p", &pool, x));
    const fr_node *n = fr_graph_node(w.g, ADD(w.g, FR_OP_BATCH_NORM, "n", NULL, x));
    assert_int_equal(c->attrs.conv2d.stride[1], 1);
    assert_int_equal(c->attrs.conv2d.groups, 1);
    assert_int_equal(p->attrs.pool.stride[0], 2);
    assert_int_equal(p->attrs.pool.stride[1], 3);
    assert_true(n->attrs.norm.eps == 1e-5f && n->attrs.norm.momentum == 0.1f);
    world_free(&w);
}

struct bad {
    fr_operator op;
    fr_attrs attrs;
    int n_inputs;
    fr_shape in[3];
    fr_dtype dtype[3];
    const char *says;
};

/* clang-format off */
static const struct bad bads[] = {
    {FR_OP_LINEAR, {.linear = {.out = 0}}, 1, {S(4)}, {FR_F32}, "out is 0"},
    {FR_OP_LINEAR, {.linear = {.out = INT64_MAX}}, 1, {S(4)}, {FR_F32}, "between 1 and"},
    {FR_OP_LINEAR, {.linear = {.out = 1 << 30}}, 1, {S(1 << 30)}, {FR_F32}, "more than"},
    {FR_OP_LINEAR, {.linear = {.out = 4}}, 1, {SCALAR}, {FR_F32}, "0 dimensions"},
    {FR_OP_LINEAR, {.linear = {.out = 4}}, 1, {S(4)}, {FR_I32}, "holds integers"},
    {FR_OP_LINEAR, {.weight_init = {(fr_init_kind)77, 0}, .linear = {.out = 4}}, 1, {S(4)},
     {FR_F32}, "weight_init.kind is 77"},
    {FR_OP_LINEAR, {.weight_init = {FR_INIT_NORMAL, NAN}, .linear = {.out = 4}}, 1, {S(4)},
     {FR_F32}, "weight_init.scale"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, 3}}}, 1, {S(3, 8)}, {FR_F32},
     "2 dimensions, (3, 8)"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {9, 3}}}, 1, {S(3, 8, 8)}, {FR_F32},
     "kernel height 9 is larger"},
    {FR_OP_MATMUL, NONE, 2, {S(3, 4), S(5, 4)}, {FR_F32, FR_F32}, "(3, 4) and input b is (5, 4)"},
    {FR_OP_MATMUL, NONE, 2, {S(2, 3, 4), S(4, 4)}, {FR_F32, FR_F32}, "input b is (4, 4)"},
    {FR_OP_MATMUL, NONE, 2, {S(2, 3, 4), S(3, 4, 4)}, {FR_F32, FR_F32}, "input b is (3, 4, 4)"},
    {FR_OP_MATMUL, NONE, 2, {S(4), S(4)}, {FR_F32, FR_F32}, "1 dimensions"},
    {FR_OP_MATMUL, NONE, 2, {S(3, 4), S(4, 4)}, {FR_F32, FR_I32}, "holds integers"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4}}, 1, {S(3, 8, 8)}, {FR_F32}, "kernel height is 0"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, INT32_MIN}}}, 1, {S(3, 8, 8)}, {FR_F32},
     "kernel width"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, 3}, .stride = {1, -1}}}, 1, {S(3, 8, 8)},
     {FR_F32}, "stride over the width is -1"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, 3}, .pad = {-1, 0}}}, 1, {S(3, 8, 8)},
     {FR_F32}, "pad of the height"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, 3}, .pad = {INT32_MAX, 0}}}, 1,
     {S(3, 8, 8)}, {FR_F32}, "output would be"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {INT32_MAX, 1}, .pad = {INT32_MAX, 0}}}, 1,
     {S(64, 8, 8)}, {FR_F32}, "output would be"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, 3}, .groups = 2}}, 1, {S(3, 8, 8)},
     {FR_F32}, "groups is 2"},
    {FR_OP_CONV2D, {.conv2d = {.out = 4, .kernel = {3, 3}, .groups = -1}}, 1, {S(3, 8, 8)},
     {FR_F32}, "groups is -1"},
    {FR_OP_BATCH_NORM, NONE, 1, {S(3, 4)}, {FR_F32}, "2 dimensions"},
    {FR_OP_BATCH_NORM, {.norm = {.eps = NAN}}, 1, {S(3)}, {FR_F32}, "eps is nan"},
    {FR_OP_BATCH_NORM, {.norm = {.momentum = -0.5f}}, 1, {S(3)}, {FR_F32}, "momentum is -0.5"},
    {FR_OP_LAYER_NORM, {.norm = {.eps = -1}}, 1, {S(3)}, {FR_F32}, "eps is -1"},
    {FR_OP_LAYER_NORM, NONE, 1, {SCALAR}, {FR_F32}, "0 dimensions"},
    {FR_OP_RELU, NONE, 1, {S(3)}, {FR_I32}, "holds integers"},
    {FR_OP_RELU, NONE, 2, {S(3), S(3)}, {FR_F32, FR_F32}, "2 inputs given"},
    {FR_OP_LEAKY_RELU, {.activation = {-1}}, 1, {S(3)}, {FR_F32}, "slope is -1"},
    {FR_OP_ELU, {.activation = {NAN}}, 1, {S(3)}, {FR_F32}, "alpha is nan"},
    {FR_OP_MUL, NONE, 2, {S(3), S(3)}, {FR_F32, FR_I32}, "holds integers"},
    {FR_OP_MUL, NONE, 2, {S(3, 1, 1), S(3, 4, 4)}, {FR_F32, FR_F32}, "must be that of the first"},
    {FR_OP_MUL, NONE, 2, {S(3, 4, 4), S(3)}, {FR_F32, FR_F32}, "(3, 4, 4) and input b is (3)"},
    {FR_OP_SUBTRACT, NONE, 2, {S(4), S(1, 4)}, {FR_F32, FR_F32}, "1 or absent"},
    {FR_OP_SOFTMAX, NONE, 1, {SCALAR}, {FR_F32}, "0 dimensions"},
    {FR_OP_RMS_NORM, {.norm = {.eps = -1}}, 1, {S(3)}, {FR_F32}, "eps is -1"},
    {FR_OP_GROUP_NORM, NONE, 1, {S(6, 2)}, {FR_F32}, "groups is 0"},
    {FR_OP_GROUP_NORM, {.norm = {.groups = 4}}, 1, {S(6, 2)}, {FR_F32}, "divide the 6 channels"},
    {FR_OP_ROPE, NONE, 1, {S(5, 12)}, {FR_F32}, "heads is 0"},
    {FR_OP_ROPE, {.rope = {.heads = 5}}, 1, {S(5, 12)}, {FR_F32}, "divide the width 12"},
    {FR_OP_ROPE, {.rope = {.heads = 4}}, 1, {S(5, 12)}, {FR_F32}, "rotated_width is 3"},
    {FR_OP_ROPE, {.rope = {2, 3, 0, 0}}, 1, {S(5, 12)}, {FR_F32}, "rotated_heads is 3"},
    {FR_OP_ROPE, {.rope = {2, 0, 8, 0}}, 1, {S(5, 12)}, {FR_F32}, "at most 6"},
    {FR_OP_ROPE, {.rope = {2, 0, 0, NAN}}, 1, {S(5, 12)}, {FR_F32}, "base is nan"},
    {FR_OP_ROPE, {.rope = {.heads = 1}}, 1, {S(4)}, {FR_F32}, "1 dimensions"},
    {FR_OP_STOCHASTIC_DEPTH, {.dropout = {1}}, 1, {S(3)}, {FR_F32}, "p is 1"},
    {FR_OP_DROPOUT, {.dropout = {1}}, 1, {S(3)}, {FR_F32}, "p is 1"},
    {FR_OP_DROPOUT, {.dropout = {NAN}}, 1, {S(3)}, {FR_F32}, "p is nan"},
    {FR_OP_MAX_POOL, NONE, 1, {S(3, 4, 4)}, {FR_F32}, "kernel height is 0"},
    {FR_OP_MAX_POOL, {.pool = {.kernel = {2, 2}, .pad = {2, 2}}}, 1, {S(3, 4, 4)}, {FR_F32},
     "more than half"},
    {FR_OP_AVG_POOL, {.pool = {.kernel = {5, 1}}}, 1, {S(3, 4, 4)}, {FR_F32}, "larger than"},
    {FR_OP_GLOBAL_POOL, NONE, 1, {S(3)}, {FR_F32}, "1 dimensions"},
    {FR_OP_ADD, NONE, 2, {S(3, 4), S(4, 3)}, {FR_F32, FR_F32}, "(3, 4) and input b is (4, 3)"},
    {FR_OP_CONCAT, NONE, 1, {S(3, 4)}, {FR_F32}, "1 inputs given"},
    {FR_OP_CONCAT, NONE, 2, {S(3, 4), S(3, 5)}, {FR_F32, FR_F32}, "except for the first"},
    {FR_OP_CONCAT, NONE, 2, {S(INT32_MAX), S(3)}, {FR_F32, FR_F32}, "output would be"},
    {FR_OP_FLATTEN, NONE, 1, {S(1 << 17, 1 << 17)}, {FR_F32}, "output would be"},
    {FR_OP_EMBEDDING, {.embedding = {10, 4, 0}}, 1, {S(6)}, {FR_F32}, "holds floats"},
    {FR_OP_EMBEDDING, {.embedding = {10, 4, 5}}, 1, {S(6)}, {FR_I32}, "positions is 5"},
    {FR_OP_EMBEDDING, {.embedding = {10, 4, INT64_MIN}}, 1, {S(6)}, {FR_I32}, "positions"},
    {FR_OP_EMBEDDING, {.embedding = {0, 4, 0}}, 1, {S(6)}, {FR_I32}, "vocab is 0"},
    {FR_OP_EMBEDDING, {.embedding = {4, -4, 0}}, 1, {S(6)}, {FR_I32}, "width is -4"},
    {FR_OP_ATTENTION, {.attention = {.heads = 2}}, 1, {S(6, 9)}, {FR_F32}, "multiple of 6"},
    {FR_OP_ATTENTION, {.attention = {.heads = 0}}, 1, {S(6, 9)}, {FR_F32}, "heads is 0"},
    {FR_OP_ATTENTION, {.attention = {.heads = 1}}, 2, {S(6, 9), S(6)}, {FR_F32, FR_I32},
     "input b has 1 dimensions"},
    {FR_OP_CONCAT, {.concat = {1}}, 2, {S(3, 4), S(2, 4)}, {FR_F32, FR_F32}, "except for the second"},
    {FR_OP_CONCAT, {.concat = {1}}, 2, {S(3), S(2)}, {FR_F32, FR_F32}, "1 dimensions"},
    {FR_OP_CONCAT, {.concat = {4}}, 2, {S(3), S(2)}, {FR_F32, FR_F32}, "axis is 4"},
    {FR_OP_SLICE, {.slice = {.from = 2, .to = 2}}, 1, {S(6, 4)}, {FR_F32}, "from 2 to 2"},
    {FR_OP_SLICE, {.slice = {.to = 7}}, 1, {S(6, 4)}, {FR_F32}, "outside the 6 steps"},
    {FR_OP_SLICE, {.slice = {.from = -1, .to = 3}}, 1, {S(6)}, {FR_I32}, "from -1"},
    {FR_OP_SLICE, {.slice = {1, 0, 5}}, 1, {S(6, 4)}, {FR_F32}, "outside the 4 steps"},
    {FR_OP_SLICE, {.slice = {2, 0, 1}}, 1, {S(6, 4)}, {FR_F32}, "axis is 2"},
    {FR_OP_SELECT, {.select = {-1, 0}}, 1, {S(6, 4)}, {FR_F32}, "axis is -1"},
    {FR_OP_SELECT, {.select = {0, 6}}, 1, {S(6, 4)}, {FR_F32}, "index is 6"},
    {FR_OP_SELECT, {.select = {1, INT64_MIN}}, 1, {S(6, 4)}, {FR_I32}, "between -4 and 3"},
    {FR_OP_SELECT, NONE, 1, {SCALAR}, {FR_F32}, "0 dimensions"},
    {FR_OP_TRANSPOSE, NONE, 1, {S(6, 4)}, {FR_F32}, "order has 0 at place 1"},
    {FR_OP_TRANSPOSE, {.transpose = {{INT32_MAX}}}, 1, {S(6)}, {FR_F32}, "at place 0"},
    {FR_OP_RESHAPE, {.reshape = {S(5, -1)}}, 1, {S(6, 4)}, {FR_F32}, "24 numbers of input a"},
    {FR_OP_RESHAPE, {.reshape = {S(-1, -1)}}, 1, {S(6, 4)}, {FR_F32}, "(-1, -1)"},
    {FR_OP_RESHAPE, {.reshape = {S(24, 2)}}, 1, {S(6, 4)}, {FR_F32}, "(24, 2)"},
    {FR_OP_RESHAPE, {.reshape = {S(0)}}, 1, {S(6, 4)}, {FR_F32}, "(0)"},
    {FR_OP_RESHAPE, NONE, 1, {S(6, 4)}, {FR_F32}, "shape is ()"},
    {FR_OP_RESHAPE, {.reshape = {{5, {0}}}}, 1, {S(6, 4)}, {FR_F32}, "5 dimensions"},
    {FR_OP_PAD, {.pad = {{0, -1}, {0}, 0}}, 1, {S(6, 4)}, {FR_F32}, "-1 before"},
    {FR_OP_PAD, {.pad = {{0}, {0, 0, 1}, 0}}, 1, {S(6, 4)}, {FR_F32}, "dimension 2 is padded"},
    {FR_OP_PAD, {.pad = {{INT32_MAX}, {0}, 0}}, 1, {S(6, 4)}, {FR_F32}, "output would be"},
    {FR_OP_PAD, NONE, 1, {S(6, 4)}, {FR_I32}, "holds integers"},
    {FR_OP_CROSS_ATTENTION, {.attention = {.heads = 2}}, 2, {S(6, 4), S(6, 9)}, {FR_F32, FR_F32},
     "must hold k and v"},
    {FR_OP_CROSS_ATTENTION, {.attention = {.heads = 3}}, 2, {S(6, 4), S(6, 8)}, {FR_F32, FR_F32},
     "3 heads do not divide"},
    {FR_OP_CROSS_ATTENTION, {.attention = {.heads = 2, .causal = true}}, 2, {S(6, 4), S(6, 8)},
     {FR_F32, FR_F32}, "causal"},
    {FR_OP_REVERSE_TIME, NONE, 2, {S(6, 4), S(6)}, {FR_F32, FR_I32}, "1 dimensions"},
    {FR_OP_LSTM, {.lstm = {4, -1}}, 1, {S(5, 3)}, {FR_F32}, "projection is -1"},
    {FR_OP_LSTM, {.lstm = {0}}, 1, {S(5, 3)}, {FR_F32}, "hidden is 0"},
    {FR_OP_LSTM, {.lstm = {.hidden = INT32_MAX}}, 1, {S(5, 3)}, {FR_F32}, "weight_ih would be"},
    {FR_OP_MEAN_TIME, NONE, 2, {S(5, 3), SCALAR}, {FR_F32, FR_F32}, "holds floats"},
    {FR_OP_LAST_TIME, NONE, 1, {S(5)}, {FR_F32}, "1 dimensions"},
    {FR_OP_CROSS_ENTROPY, NONE, 2, {S(4, 10), S(5)}, {FR_F32, FR_I32},
     "targets must be (4); b is"},
    {FR_OP_CROSS_ENTROPY, {.loss = {.label_smoothing = 1}}, 2, {S(10), SCALAR}, {FR_F32, FR_I32},
     "label_smoothing is 1"},
    {FR_OP_CROSS_ENTROPY, {.loss = {.label_smoothing = NAN}}, 2, {S(10), SCALAR},
     {FR_F32, FR_I32}, "label_smoothing is nan"},
    {FR_OP_MSE, NONE, 2, {S(5), SCALAR}, {FR_F32, FR_I32}, "holds integers"},
    {FR_OP_MSE, NONE, 2, {S(4, 5), S(5)}, {FR_F32, FR_F32}, "targets must be (4, 5); b is (5)"},
    {FR_OP_SMOOTH_L1, {.loss = {.beta = -1}}, 2, {S(5), S(5)}, {FR_F32, FR_F32}, "beta is -1"},
    {FR_OP_COSINE, NONE, 2, {S(1), SCALAR}, {FR_F32, FR_F32}, "dimensions"},
};
/* clang-format on */

static void operators_refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        const struct bad *t = &bads[i];
        world w = world_create();
        if (build(w.g, t->op, &t->attrs, t->n_inputs, t->in, t->dtype) >= 0)
            fail_msg("case %zu (%s) was accepted, not: %s", i, fr_operator_name(t->op), t->says);
        assert_says(w.ctx, "node n (", t->says);
        assert_int_equal(fr_ctx_status(w.ctx), FR_INVALID);
        world_free(&w);
    }
}

static void inputs_refuse(void **state)
{
    (void)state;
    const fr_attrs attrs[] = {
        {.input = {.shape = {.n_dims = 5}}},
        {.input = {.shape = {.n_dims = -1}}},
        {.input = {.shape = S(3, 0)}},
        {.input = {.shape = S(-3)}},
        {.input = {.shape = S(INT64_MAX)}},
        {.input = {.shape = S(1 << 30, 1 << 30, 1 << 30, 1 << 30)}},
        {.input = {.shape = S(3), .dtype = (fr_dtype)9}},
    };
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) {
        world w = world_create();
        assert_int_equal(fr_graph_add(w.g, FR_OP_INPUT, "x", &attrs[i], 0, NULL), -1);
        assert_says(w.ctx, "node x (input)", "");
        world_free(&w);
    }
}

static void names_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < FR_OPERATOR_COUNT; i++) {
        fr_operator op = FR_OPERATOR_COUNT;
        assert_true(fr_operator_parse(fr_operator_name((fr_operator)i), &op));
        assert_int_equal(op, i);
    }
    fr_operator op;
    assert_false(fr_operator_parse("convolution", &op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_infer),     cmocka_unit_test(input_gradients_cost),
        cmocka_unit_test(defaults_are_filled), cmocka_unit_test(operators_refuse),
        cmocka_unit_test(inputs_refuse),       cmocka_unit_test(names_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
