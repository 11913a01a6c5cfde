/* test_models.c -- every model of the registry against published numbers, at several sizes. */
#include "support/test.h"
#include <forerun/models.h>

#include "base/alloc.h"

#include <math.h>
#include <string.h>

static fr_graph *build(fr_ctx *ctx, const char *name, const fr_model_options *o)
{
    const fr_model *m = fr_model_find(name);
    fr_graph *g = NULL;
    assert_non_null(m);
    if (fr_model_build(ctx, m, o, &g) != FR_OK) fail_msg("%s: %s", name, fr_ctx_error(ctx));
    return g;
}

static double forward_flops(const fr_graph *g)
{
    double sum = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) sum += fr_graph_node(g, i)->flops_forward;
    return sum;
}

struct known {
    const char *name;
    fr_model_options o;
    int64_t params;
    double gflops; /* forward, per sample; 0: not published */
};

/* Parameters: torchvision's printed totals (inception3 less its auxiliary head), PyTorch's count
 * of the same layers for the rest. Work: twice torchvision's multiply-adds. */
static const struct known knowns[] = {
    {"alexnet", {0}, 61100840, 2 * 0.714},
    {"vgg16", {0}, 138357544, 2 * 15.47},
    {"vgg16", {.batch_norm = true}, 138365992, 2 * 15.47},
    {"vgg16", {.image = 32, .classes = 10}, 14719818, 2 * 0.3133},
    {"resnet50", {0}, 25557032, 2 * 4.089},
    {"resnet101", {0}, 44549160, 2 * 7.801},
    {"resnet152", {0}, 60192808, 2 * 11.514},
    {"inception3", {0}, 23834568, 2 * 5.713},
    {"lenet", {0}, 61706, 0},
    {"mlp", {0}, 33591306, 0},
    {"mlp", {.inputs = 784, .depth = 2, .width = 100, .classes = 10}, 89610, 0},
    {"gpt", {0}, 10893568, 0},
    {"gnmt", {0}, 193833216, 0},
    {"biglstm", {0}, 1776948095, 0}, /* "1.8 billion" of Jozefowicz et al. 2016 */
    {"gpt", {.tied = true}, 10893568 - 256 * 384 - 256, 0},
};

static void published_sizes(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    for (size_t i = 0; i < sizeof knowns / sizeof *knowns; i++) {
        fr_graph *g = build(ctx, knowns[i].name, &knowns[i].o);
        if (fr_graph_param_count(g) != knowns[i].params)
            fail_msg("%s (case %zu): %lld parameters", knowns[i].name, i,
                     (long long)fr_graph_param_count(g));
        double gflops = forward_flops(g) / 1e9;
        if (knowns[i].gflops > 0 && fabs(gflops / knowns[i].gflops - 1) > 0.02)
            fail_msg("%s (case %zu): %g GFLOP", knowns[i].name, i, gflops);
        fr_graph_free(g);
    }
    fr_ctx_free(ctx);
}

/* The inputs and outputs that engine and data rely on. */
static void frames(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    int n = 0;
    for (const fr_model *const *m = fr_model_list(); *m; m++, n++) {
        assert_ptr_equal(fr_model_find((*m)->name), *m);
        fr_graph *g = build(ctx, (*m)->name, NULL);
        int input = fr_graph_find(g, "input"), loss = fr_graph_find(g, "loss");
        int target = fr_graph_find(g, "target"), logits = loss - 2;
        assert_int_equal(input, 0);
        assert_int_equal(loss, fr_graph_n_nodes(g) - 1);
        assert_int_equal(fr_graph_find_op(g, FR_OP_CROSS_ENTROPY), loss);
        assert_int_equal(fr_graph_node(g, loss)->inputs[0], logits);
        assert_int_equal(fr_graph_node(g, loss)->inputs[1], target);
        assert_int_equal(fr_graph_node(g, logits)->op, FR_OP_LINEAR);
        bool has_length = (*m)->input == FR_MODEL_TEXT || (*m)->input == FR_MODEL_PAIR;
        assert_int_equal(fr_graph_find(g, "length") >= 0, has_length);
        assert_string_equal(fr_graph_name(g), (*m)->name);
        int64_t bytes = 0;
        for (int i = 0; i < fr_graph_n_nodes(g); i++)
            bytes += 4 * fr_shape_count(&fr_graph_node(g, i)->shape);
        assert_int_equal(fr_model_activation_bytes(g), bytes);
        for (const char *const *k = (*m)->keys; *k; k++) assert_true(strlen(*k) > 0);
        fr_graph_free(g);
    }
    assert_int_equal(n, 15);
    assert_null(fr_model_find("vgg"));
    fr_ctx_free(ctx);
}

static void assert_shape(const fr_graph *g, const char *node, const char *expected)
{
    char text[96];
    int i = fr_graph_find(g, node);
    if (i < 0) fail_msg("%s: no node %s", fr_graph_name(g), node);
    assert_string_equal(fr_shape_text(&fr_graph_node(g, i)->shape, text, sizeof text), expected);
}

/* Inner sizes, with the names documented in docs/models.md. */
static void small_images(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int64_t image, channels;
        const char *node, *shape;
    } cases[] = {
        {"lenet", 28, 1, "pool2", "(16, 5, 5)"},
        {"lenet", 32, 3, "pool2", "(16, 5, 5)"},
        {"cnn", 28, 1, "block3.2.relu", "(64, 7, 7)"},
        {"cnn", 32, 3, "block3.2.relu", "(64, 8, 8)"},
        {"vgg16", 32, 3, "features.30", "(512, 1, 1)"},
        {"vgg16", 28, 1, "features.23", "(512, 1, 1)"},
        {"vgg16", 28, 1, "features.29", "(512, 1, 1)"},
        {"vgg16", 224, 3, "features.30", "(512, 7, 7)"},
        {"vgg16", 64, 3, "flatten", "(2048)"},
        {"alexnet", 224, 3, "features.4.pool", "(256, 6, 6)"},
        {"alexnet", 32, 3, "features.4.pool", "(256, 4, 4)"},
        {"alexnet", 28, 1, "features.4.pool", "(256, 3, 3)"},
        {"resnet50", 224, 3, "layer4.2.relu3", "(2048, 7, 7)"},
        {"resnet50", 32, 3, "layer1.0.relu3", "(256, 32, 32)"},
        {"resnet50", 32, 3, "layer4.2.relu3", "(2048, 4, 4)"},
        {"resnet50", 28, 1, "layer4.2.relu3", "(2048, 4, 4)"},
        {"inception3", 299, 3, "Mixed_5d.concat", "(288, 35, 35)"},
        {"inception3", 299, 3, "Mixed_6e.concat", "(768, 17, 17)"},
        {"inception3", 299, 3, "Mixed_7c.concat", "(2048, 8, 8)"},
        {"inception3", 32, 3, "Mixed_5b.concat", "(256, 16, 16)"},
        {"inception3", 32, 3, "Mixed_6a.concat", "(768, 7, 7)"},
        {"inception3", 32, 3, "Mixed_7c.concat", "(2048, 3, 3)"},
        {"inception3", 28, 1, "Mixed_7c.concat", "(2048, 2, 2)"},
    };
    fr_ctx *ctx = fr_ctx_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_model_options o = {
            .image = cases[i].image, .channels = cases[i].channels, .classes = 10};
        fr_graph *g = build(ctx, cases[i].name, &o);
        assert_shape(g, cases[i].node, cases[i].shape);
        fr_graph_free(g);
    }
    fr_ctx_free(ctx);
}

static int count_op(const fr_graph *g, fr_operator op)
{
    int n = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) n += fr_graph_node(g, i)->op == op;
    return n;
}

static void options_take_effect(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = build(ctx, "vgg16", &(fr_model_options){.dropout = -1});
    assert_int_equal(count_op(g, FR_OP_DROPOUT), 0);
    fr_graph_free(g);
    g = build(ctx, "vgg16", NULL);
    assert_int_equal(count_op(g, FR_OP_DROPOUT), 2);
    assert_true(fr_graph_node(g, fr_graph_find(g, "classifier.2"))->attrs.dropout.p == 0.5f);
    fr_graph_free(g);
    g = build(ctx, "vgg16",
              &(fr_model_options){.image = 32,
                                  .dropout = 0.25,
                                  .width_factor = 0.5,
                                  .batch_norm = true,
                                  .label_smoothing = 0.1});
    assert_int_equal(count_op(g, FR_OP_DROPOUT), 1);
    assert_int_equal(count_op(g, FR_OP_BATCH_NORM), 13);
    assert_shape(g, "flatten", "(256)");
    assert_shape(g, "features.43", "(256, 1, 1)"); /* torchvision's vgg16_bn ends there */
    int loss = fr_graph_find(g, "loss");
    assert_true(fr_graph_node(g, loss)->attrs.loss.label_smoothing == 0.1f);
    fr_graph_free(g);

    fr_model_options small = {.layers = 2,
                              .width = 32,
                              .heads = 4,
                              .context = 16,
                              .vocab = 50,
                              .classes = 3,
                              .dropout = 0.2};
    g = build(ctx, "transformer", &small);
    assert_int_equal(count_op(g, FR_OP_DROPOUT), 5);
    assert_shape(g, "h.1.attn.qkv", "(16, 96)");
    assert_shape(g, "mean", "(32)");
    const fr_node *a = fr_graph_node(g, fr_graph_find(g, "h.0.attn"));
    assert_int_equal(a->n_inputs, 2);
    assert_int_equal(a->inputs[1], fr_graph_find(g, "length"));
    assert_false(a->attrs.attention.causal);
    fr_graph_free(g);
    g = build(ctx, "gpt", &small);
    assert_shape(g, "target", "(16)");
    assert_shape(g, "head", "(16, 50)");
    a = fr_graph_node(g, fr_graph_find(g, "h.0.attn"));
    assert_true(a->n_inputs == 1 && a->attrs.attention.causal);
    const fr_param *proj = fr_graph_param(g, fr_graph_find_param(g, "h.1.mlp.down.weight"));
    assert_true(fabsf(proj->init.scale - 0.01f) < 1e-7f); /* 0.02 / sqrt(2 x 2 blocks) */
    fr_graph_free(g);
    small.dropout = -1;
    g = build(ctx, "reslstm", &small);
    assert_int_equal(count_op(g, FR_OP_DROPOUT), 0);
    assert_int_equal(count_op(g, FR_OP_LSTM), 2);
    assert_shape(g, "layers.1.add", "(16, 32)");
    fr_graph_free(g);
    small.projection = 12;
    g = build(ctx, "biglstm", &small);
    assert_shape(g, "embed", "(16, 12)");
    assert_shape(g, "layers.1.lstm", "(16, 12)");
    assert_shape(g, "head", "(16, 50)");
    assert_true(fr_graph_find_param(g, "layers.0.lstm.weight_hr") >= 0);
    fr_graph_free(g);
    small.layers = 3;
    g = build(ctx, "gnmt", &small);
    assert_shape(g, "input", "(32)");
    assert_shape(g, "target", "(16)");
    assert_shape(g, "encoder.0.both", "(16, 64)");
    assert_shape(g, "attention.kv", "(16, 64)");
    assert_shape(g, "decoder.1.in", "(16, 64)");
    assert_shape(g, "head", "(16, 50)");
    assert_int_equal(count_op(g, FR_OP_LSTM), 3 + 1 + 3);
    assert_int_equal(count_op(g, FR_OP_ADD), 2); /* residual from the third layer on */
    a = fr_graph_node(g, fr_graph_find(g, "attention"));
    assert_true(a->n_inputs == 3 && a->inputs[2] == fr_graph_find(g, "length"));
    const fr_node *ids = fr_graph_node(g, fr_graph_find(g, "decoder.ids"));
    assert_true(ids->dtype == FR_I32 && !ids->needs_grad && ids->attrs.slice.from == 16);
    fr_graph_free(g);
    small.layers = 1;
    g = build(ctx, "gnmt", &small);
    assert_shape(g, "decoder.out", "(16, 64)");
    fr_graph_free(g);
    g = build(ctx, "snn", &(fr_model_options){.depth = 3});
    assert_int_equal(count_op(g, FR_OP_ALPHA_DROPOUT), 3);
    assert_int_equal(count_op(g, FR_OP_SELU), 3);
    fr_graph_free(g);
    g = build(ctx, "cnn", &(fr_model_options){.width = 8});
    assert_int_equal(count_op(g, FR_OP_CONV2D), 8);
    assert_shape(g, "avgpool", "(32)");
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

static void bad_options(void **state)
{
    (void)state;
    const struct {
        const char *name;
        fr_model_options o;
        const char *says;
    } cases[] = {
        {"gpt", {.heads = 5}, "node h.0.attn (attention)"},
        {"gpt", {.layers = -1}, "model gpt: layers is -1"},
        {"gpt", {.layers = 1000000000}, "model gpt: layers is 1e+09"},
        {"gpt", {.width = INT64_MAX}, "model gpt: width"},
        {"gpt", {.dropout = 1}, "model gpt: dropout is 1"},
        {"gpt", {.dropout = NAN}, "model gpt: dropout is nan"},
        {"gpt", {.label_smoothing = -0.5}, "label_smoothing is -0.5"},
        {"transformer", {.tied = true}, "no output embedding"},
        {"resnet50", {.width_factor = -1}, "width_factor is -1"},
        {"inception3", {.image = 5}, "node Mixed_"},
        {"mlp", {.inputs = INT32_MAX, .width = INT32_MAX / 4}, "weight would be"},
        {"vgg16", {.image = INT32_MAX}, "node input (input)"},
    };
    fr_ctx *ctx = fr_ctx_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_graph *g = (fr_graph *)ctx;
        assert_int_equal(fr_model_build(ctx, fr_model_find(cases[i].name), &cases[i].o, &g),
                         FR_INVALID);
        assert_null(g);
        if (!strstr(fr_ctx_error(ctx), cases[i].says))
            fail_msg("'%s' lacks '%s'", fr_ctx_error(ctx), cases[i].says);
        fr_ctx_clear(ctx);
    }
    fr_ctx_free(ctx);
}

static void memory_runs_out(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_model_options o = {.layers = 2, .width = 16, .heads = 2, .context = 8, .vocab = 20};
    for (int64_t n = 0;; n++) {
        fr_graph *g;
        fr_ctx_clear(ctx);
        fr__alloc_fail_after(n);
        fr_status status = fr_model_build(ctx, fr_model_find("gpt"), &o, &g);
        fr__alloc_fail_after(-1);
        if (status == FR_OK) {
            fr_graph_free(g);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, FR_NO_MEMORY);
        assert_null(g);
    }
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sizes), cmocka_unit_test(frames),
        cmocka_unit_test(small_images),    cmocka_unit_test(options_take_effect),
        cmocka_unit_test(bad_options),     cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
