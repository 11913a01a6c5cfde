/* test_conf.c -- models from configs: by name with sizes, and as lists of nodes. */
#include "support/test.h"
#include <forerun/models.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parse, build, refuse unknown keys. On failure *g is NULL; returns the first failing status. */
static fr_status load(fr_ctx *ctx, const char *text, const fr_model_options *known, fr_graph **g)
{
    fr_conf *root;
    *g = NULL;
    FR_TRY(fr_conf_parse(ctx, text, strlen(text), "net.yaml", &root));
    fr_status status = fr_model_from_conf(ctx, root, known, g);
    if (status == FR_OK) status = fr_conf_finish(root);
    if (status != FR_OK) {
        fr_graph_free(*g);
        *g = NULL;
    }
    fr_conf_free(root);
    return status;
}

static fr_graph *good(fr_ctx *ctx, const char *text, const fr_model_options *known)
{
    fr_graph *g;
    if (load(ctx, text, known, &g) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    return g;
}

static void bad(fr_ctx *ctx, const char *text, const char *where, const char *says)
{
    fr_graph *g;
    if (load(ctx, text, NULL, &g) != FR_INVALID) fail_msg("accepted: %s", text);
    const char *error = fr_ctx_error(ctx);
    if (strncmp(error, where, strlen(where)) != 0 || !strstr(error, says))
        fail_msg("'%s' is not at %s about '%s'", error, where, says);
    fr_ctx_clear(ctx);
}

static int64_t dim(const fr_graph *g, const char *node, int i)
{
    int n = fr_graph_find(g, node);
    assert_true(n >= 0);
    return fr_graph_node(g, n)->shape.dim[i];
}

static void sizes_by_key(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = good(ctx, "{name: mlp, inputs: 12, depth: 3, width: 7, classes: 4}", NULL);
    assert_int_equal(fr_graph_param_count(g), 12 * 7 + 7 + 2 * 56 + 7 * 4 + 4);
    fr_graph_free(g);
    g = good(ctx,
             "{name: gpt, layers: 2, width: 24, heads: 3, context: 10, vocab: 99, "
             "dropout: 0.1, tied: true}",
             NULL);
    assert_int_equal(dim(g, "head", 1), 99);
    assert_true(fr_graph_find(g, "h.1.mlp.drop") >= 0 && fr_graph_find(g, "h.2.ln_1") < 0);
    int head = fr_graph_find_param(g, "head.weight");
    assert_int_equal(fr_graph_param(g, head)->tied_to, fr_graph_find_param(g, "embed.weight"));
    fr_graph_free(g);
    g = good(ctx, "{name: reslstm, layers: 2, width: 8, vocab: 30, context: 5}", NULL);
    assert_int_equal(dim(g, "layers.1.lstm", 1), 8);
    fr_graph_free(g);
    g = good(ctx,
             "{name: transformer, layers: 1, width: 8, heads: 2, context: 5, vocab: 30, "
             "dropout: 0, tied: false}",
             NULL);
    assert_true(fr_graph_find(g, "drop") < 0);
    fr_graph_free(g);
    g = good(ctx, "{name: vgg16, classes: 7, image: 32, batch_norm: true}", NULL);
    assert_int_equal(dim(g, "classifier", 0), 7);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

/* The config has priority over the data, and the data over the model's defaults. */
static void data_fills_in(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    const fr_model_options known = {.channels = 1, .image = 28, .classes = 12};
    fr_graph *g = good(ctx, "{name: vgg16, classes: 10}", &known);
    assert_int_equal(dim(g, "input", 0), 1);
    assert_int_equal(dim(g, "input", 1), 28);
    assert_int_equal(dim(g, "classifier", 0), 10);
    fr_graph_free(g);
    g = good(ctx, "{name: alexnet}", &known);
    assert_int_equal(dim(g, "classifier.6", 0), 12);
    /* The data do not determine dropout: the model's default stays. */
    assert_true(fr_graph_find(g, "classifier.0") >= 0);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

static void bad_sections(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    bad(ctx, "name: vgg17", "net.yaml:1:7", "there is no model 'vgg17'; there are: mlp, snn");
    bad(ctx, "name: vgg16\nheads: 3", "net.yaml:2:1", "heads");
    bad(ctx, "name: gpt\nlayers: 0", "net.yaml:2:9", "layers");
    bad(ctx, "name: gpt\ndropout: 1", "net.yaml:2:10", "dropout");
    bad(ctx, "name: gpt\nheads: 7", "net.yaml", "node h.0.attn (attention)");
    bad(ctx, "classes: 3", "net.yaml", "name");
    bad(ctx, "name: transformer\ntied: true", "net.yaml", "no output embedding");
    bad(ctx, "file: nowhere.yaml", "net.yaml:1:7", "cannot find");
    bad(ctx, "{file: a.yaml, nodes: []}", "net.yaml", "not both");
    fr_ctx_free(ctx);
}

/* One node of each operator that has settings. */
static const char everything[] =
    "name: zoo\n"
    "nodes:\n"
    "  - {name: input, op: input, shape: [3, 16, 16]}\n"
    "  - {name: c1, op: conv2d, out: 8, kernel: 3, pad: 1, init: he_out}\n"
    "  - {name: b1, op: batch_norm, eps: 0.001, momentum: 0.2}\n"
    "  - {name: r1, op: relu}\n"
    "  - {name: c2, op: conv2d, inputs: [r1], out: 4, kernel: [1, 3], stride: [2, 1],\n"
    "     pad: [0, 1], groups: 4, bias: false}\n"
    "  - {name: p1, op: max_pool, inputs: [r1], kernel: [3, 3], stride: [2, 1], pad: 1}\n"
    "  - {name: cat, op: concat, inputs: [c2, p1]}\n"
    "  - {name: p2, op: avg_pool, kernel: 2, count_valid: true}\n"
    "  - {name: gp, op: global_pool}\n"
    "  - {name: d, op: dropout, p: 0.25}\n"
    "  - {name: fc, op: linear, out: 6, bias: false, init: normal, init_scale: 0.5}\n"
    "  - {name: ids, op: input, shape: [5], dtype: int}\n"
    "  - {name: n, op: input, dtype: int}\n"
    "  - {name: e, op: embedding, inputs: [ids], vocab: 20, width: 12, positions: 9}\n"
    "  - {name: qkv, op: linear, out: 36}\n"
    "  - {name: a, op: attention, inputs: [qkv, n], heads: 3, causal: true}\n"
    "  - {name: part, op: slice, inputs: [a], from: 1, to: 4}\n"
    "  - {name: back, op: reverse_time, inputs: [a, n]}\n"
    "  - {name: kv, op: concat, inputs: [back, a], axis: 1}\n"
    "  - {name: cross, op: cross_attention, inputs: [a, kv, n], heads: 4}\n"
    "  - {name: three, op: sdpa, inputs: [kv, cross, cross, n], heads: 4, kv_heads: 2,\n"
    "     causal: true, window: 2, scale: 0.5}\n"
    "  - {name: cols, op: slice, inputs: [a], axis: 1, from: 2, to: 4}\n"
    "  - {name: turn, op: transpose, inputs: [kv], order: [1, 0]}\n"
    "  - {name: one, op: select, axis: 1, index: -1}\n"
    "  - {name: again, op: reshape, shape: [4, -1]}\n"
    "  - {name: wider, op: pad, before: [1], after: [0, 2], value: 0.5}\n"
    "  - {name: narrow, op: lstm, inputs: [cross], hidden: 20, projection: 12}\n"
    "  - {name: lstm, op: lstm, inputs: [narrow], hidden: 12}\n"
    "  - {name: res, op: add, inputs: [lstm, e]}\n"
    "  - {name: rope, op: rope, heads: 3, rotated_heads: 2, rotated_width: 2, base: 500}\n"
    "  - {name: gn, op: group_norm, groups: 5, eps: 0.5}\n"
    "  - {name: rn, op: rms_norm, eps: 0.25}\n"
    "  - {name: sd, op: stochastic_depth, p: 0.5}\n"
    "  - {name: ln, op: layer_norm, eps: 0.01}\n"
    "  - {name: m, op: last_time, inputs: [ln, n]}\n"
    "  - {name: s, op: selu}\n"
    "  - {name: leaky, op: leaky_relu, slope: 0.125}\n"
    "  - {name: elu, op: elu, alpha: 0.5}\n"
    "  - {name: gate, op: mul, inputs: [leaky, elu]}\n"
    "  - {name: ad, op: alpha_dropout, p: 0.1}\n"
    "  - {name: fc2, op: linear, out: 6}\n"
    "  - {name: tied, op: linear, out: 20, bias: false}\n"
    "  - {name: sum, op: add, inputs: [fc, fc2]}\n"
    "  - {name: target, op: input, dtype: int}\n"
    "  - {name: loss, op: cross_entropy, inputs: [sum, target], label_smoothing: 0.2,\n"
    "     ignore_index: 3}\n";

static const fr_attrs *attrs_of(const fr_graph *g, const char *name)
{
    int i = fr_graph_find(g, name);
    assert_true(i >= 0);
    return &fr_graph_node(g, i)->attrs;
}

static void nodes_read_all(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = good(ctx, everything, NULL);
    assert_string_equal(fr_graph_name(g), "zoo");
    assert_int_equal(fr_graph_n_nodes(g), 45);
    const fr_attrs *rope = attrs_of(g, "rope"), *gn = attrs_of(g, "gn");
    assert_true(rope->rope.heads == 3 && rope->rope.rotated_heads == 2);
    assert_true(rope->rope.rotated_width == 2 && rope->rope.base == 500);
    assert_true(gn->norm.groups == 5 && gn->norm.eps == 0.5f);
    assert_true(attrs_of(g, "rn")->norm.eps == 0.25f && attrs_of(g, "sd")->dropout.p == 0.5f);
    assert_true(attrs_of(g, "leaky")->activation.alpha == 0.125f);
    assert_true(attrs_of(g, "elu")->activation.alpha == 0.5f);
    const fr_attrs *part = attrs_of(g, "part"), *narrow = attrs_of(g, "narrow");
    assert_true(part->slice.from == 1 && part->slice.to == 4);
    assert_true(narrow->lstm.hidden == 20 && narrow->lstm.projection == 12);
    assert_int_equal(attrs_of(g, "kv")->concat.axis, 1);
    assert_int_equal(attrs_of(g, "cross")->attention.heads, 4);
    const fr_attrs *cols = attrs_of(g, "cols"), *turn = attrs_of(g, "turn");
    assert_true(cols->slice.axis == 1 && cols->slice.from == 2 && cols->slice.to == 4);
    assert_true(turn->transpose.order[0] == 1 && turn->transpose.order[1] == 0);
    assert_true(attrs_of(g, "one")->select.axis == 1 && attrs_of(g, "one")->select.index == 4);
    assert_int_equal(attrs_of(g, "again")->reshape.shape.dim[1], 6);
    const fr_attrs *wider = attrs_of(g, "wider");
    assert_true(wider->pad.before[0] == 1 && wider->pad.after[1] == 2 && wider->pad.value == 0.5f);
    const fr_attrs *three = attrs_of(g, "three");
    assert_true(three->attention.heads == 4 && three->attention.kv_heads == 2);
    assert_true(three->attention.causal && three->attention.window == 2);
    assert_true(three->attention.scale == 0.5f);
    const fr_attrs *c1 = attrs_of(g, "c1"), *c2 = attrs_of(g, "c2"), *p1 = attrs_of(g, "p1");
    assert_true(c1->conv2d.out == 8 && c1->conv2d.kernel[1] == 3 && !c1->conv2d.no_bias);
    assert_int_equal(c1->weight_init.kind, FR_INIT_HE_OUT);
    assert_true(c2->conv2d.stride[0] == 2 && c2->conv2d.stride[1] == 1 && c2->conv2d.groups == 4);
    assert_true(c2->conv2d.pad[0] == 0 && c2->conv2d.pad[1] == 1 && c2->conv2d.no_bias);
    assert_true(p1->pool.kernel[0] == 3 && p1->pool.stride[0] == 2 && p1->pool.pad[1] == 1);
    assert_true(attrs_of(g, "b1")->norm.eps == 0.001f && attrs_of(g, "b1")->norm.momentum == 0.2f);
    assert_true(attrs_of(g, "p2")->pool.count_valid && attrs_of(g, "d")->dropout.p == 0.25f);
    assert_true(attrs_of(g, "fc")->linear.no_bias && attrs_of(g, "fc")->weight_init.scale == 0.5f);
    assert_true(attrs_of(g, "ids")->input.dtype == FR_I32);
    assert_true(attrs_of(g, "e")->embedding.vocab == 20 && attrs_of(g, "e")->embedding.width == 12);
    assert_true(attrs_of(g, "e")->embedding.positions == 9);
    assert_true(attrs_of(g, "a")->attention.heads == 3 && attrs_of(g, "a")->attention.causal);
    assert_true(attrs_of(g, "lstm")->lstm.hidden == 12 && attrs_of(g, "ln")->norm.eps == 0.01f);
    const fr_attrs *loss = attrs_of(g, "loss");
    assert_true(loss->loss.label_smoothing == 0.2f && loss->loss.has_ignore);
    assert_int_equal(loss->loss.ignore_index, 3);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

static void loss_is_added_and_ties(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = good(ctx,
                       "nodes:\n"
                       "  - {name: input, op: input, shape: [5], dtype: int}\n"
                       "  - {name: e, op: embedding, vocab: 20, width: 12}\n"
                       "  - {name: head, op: linear, out: 20, bias: false}\n"
                       "ties:\n"
                       "  - {param: head.weight, owner: e.weight}\n",
                       NULL);
    assert_int_equal(fr_graph_find(g, "loss"), 4);
    assert_int_equal(dim(g, "target", 0), 5);
    assert_int_equal(fr_graph_param_count(g), 240);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

#define INPUT "nodes:\n  - {name: input, op: input, shape: [3, 8, 8]}\n"

static void bad_nodes(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    bad(ctx, "nodes: 3", "net.yaml:1:8", "nodes must be a list");
    bad(ctx, "nodes: []", "net.yaml", "nodes must be a list");
    bad(ctx, "nodes: [3]", "net.yaml:1:9", "mapping");
    bad(ctx, INPUT "  - {op: relu}", "net.yaml:3", "name");
    bad(ctx, INPUT "  - {name: a}", "net.yaml:3", "op");
    bad(ctx, INPUT "  - {name: a, op: rleu}", "net.yaml:3:19", "no operator 'rleu'");
    bad(ctx, INPUT "  - {name: a, op: relu, out: 3}", "net.yaml:3:25", "out");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: 3}", "net.yaml:3:5", "kernel is missing");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: 3, kernel: 9}", "net.yaml:3:5",
        "node a (conv2d): kernel height 9 is larger");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: 3, kernel: [1, 2, 3]}", "net.yaml:3", "kernel");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: 3, kernel: [1, 0]}", "net.yaml:3",
        "kernel is 0");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: 3, kernel: 99999999999}", "net.yaml:3",
        "kernel");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: x, kernel: 1}", "net.yaml:3:32", "out");
    bad(ctx, INPUT "  - {name: a, op: conv2d, out: 3, kernel: 1, bias: 3}", "net.yaml:3", "bias");
    bad(ctx, INPUT "  - {name: a, op: relu, inputs: [b]}", "net.yaml:3",
        "'b' is not an earlier node");
    bad(ctx, INPUT "  - {name: a, op: relu, inputs: []}", "net.yaml:3:5", "0 inputs given");
    bad(ctx, INPUT "  - {name: a, op: relu, inputs: [input, input]}", "net.yaml:3:5", "2 inputs");
    bad(ctx, INPUT "  - {name: input, op: relu}", "net.yaml:3:5",
        "already has a node of this name");
    bad(ctx, INPUT "  - {name: a b, op: relu}", "net.yaml:3:5", "visible");
    bad(ctx, INPUT "  - {name: a, op: transpose, order: [2, 0]}", "net.yaml:3:5",
        "order has -1 at place 2");
    bad(ctx, INPUT "  - {name: a, op: transpose}", "net.yaml:3", "order");
    bad(ctx, INPUT "  - {name: a, op: reshape, shape: [5, -1]}", "net.yaml:3:5", "192 numbers");
    bad(ctx, INPUT "  - {name: a, op: pad, before: [-1]}", "net.yaml:3:5", "-1 before");
    bad(ctx, INPUT "  - {name: a, op: select, axis: 3, index: 0}", "net.yaml:3:5", "axis is 3");
    bad(ctx, INPUT "  - {name: a, op: dropout, p: 1.5}", "net.yaml:3:31", "p");
    bad(ctx, INPUT "  - {name: a, op: batch_norm, eps: 0}", "net.yaml:3", "eps");
    bad(ctx, INPUT "  - {name: a, op: linear, out: 3, init: xavier}", "net.yaml:3:41", "'xavier'");
    bad(ctx, INPUT "  - {name: a, op: linear, out: 3, init: normal}", "net.yaml:3", "init_scale");
    bad(ctx, INPUT "  - {name: a, op: linear, out: 3, init_scale: 2}", "net.yaml:3", "init_scale");
    bad(ctx, INPUT "  - {name: a, op: input, shape: [0]}", "net.yaml:3:5", "node a (input)");
    bad(ctx, INPUT "  - {name: a, op: input, dtype: half}", "net.yaml:3", "float or int");
    bad(ctx, INPUT "  - {name: a, op: input, inputs: [input]}", "net.yaml:3:26", "reads no other");
    bad(ctx, "nodes: [{name: a, op: relu}]", "net.yaml:1", "0 inputs");
    bad(ctx, INPUT "  - {name: a, op: linear, out: 3}\nties: [{param: a.weight, owner: b}]",
        "net.yaml:4:8", "no parameter b");
    bad(ctx, INPUT "  - {name: a, op: linear, out: 3}\nties: 4", "net.yaml:4", "ties must be");
    bad(ctx, INPUT "extra: 3", "net.yaml:3:1", "extra");
    fr_ctx_free(ctx);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* config in DIR, model in DIR/nets, test in another folder; then again from the saved config. */
static void files_are_found(void **state)
{
    (void)state;
    char dir[64], nets[80], out[80], config[96], net[96], saved[96];
    snprintf(dir, sizeof dir, "models-%ld", (long)getpid());
    snprintf(nets, sizeof nets, "%s/nets", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(config, sizeof config, "%s/config.yaml", dir);
    snprintf(net, sizeof net, "%s/my net.yaml", nets);
    snprintf(saved, sizeof saved, "%s/config.yaml", out);
    assert_true(!mkdir(dir, 0700) && !mkdir(nets, 0700) && !mkdir(out, 0700));
    write_file(net, INPUT "  - {name: f, op: flatten}\n  - {name: h, op: linear, out: 3}\n");
    write_file(config, "model: {file: nets/my net.yaml}\n");
    fr_ctx *ctx = fr_ctx_create();
    for (int i = 0; i < 2; i++) {
        fr_conf *root, *section;
        fr_graph *g;
        assert_int_equal(fr_conf_load(ctx, i ? saved : config, 0, NULL, &root), FR_OK);
        assert_int_equal(fr_conf_section(root, "model", &section), FR_OK);
        if (fr_model_from_conf(ctx, section, NULL, &g) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
        assert_int_equal(fr_graph_n_nodes(g), 5);
        assert_string_equal(fr_graph_name(g), "my net.yaml");
        assert_int_equal(fr_conf_finish(root), FR_OK);
        if (!i) assert_int_equal(fr_conf_save(root, saved), FR_OK);
        fr_graph_free(g);
        fr_conf_free(root);
    }
    write_file(net, INPUT "  - {name: h, op: linear, out: 3, width: 2}\n");
    fr_conf *root, *section;
    fr_graph *g;
    assert_int_equal(fr_conf_load(ctx, config, 0, NULL, &root), FR_OK);
    assert_int_equal(fr_conf_section(root, "model", &section), FR_OK);
    assert_int_equal(fr_model_from_conf(ctx, section, NULL, &g), FR_INVALID);
    assert_null(g);
    assert_non_null(strstr(fr_ctx_error(ctx), "my net.yaml:3:35"));
    fr_conf_free(root);
    fr_ctx_free(ctx);
    assert_true(!unlink(net) && !unlink(config) && !unlink(saved));
    assert_true(!rmdir(nets) && !rmdir(out) && !rmdir(dir));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_by_key),           cmocka_unit_test(data_fills_in),
        cmocka_unit_test(bad_sections),           cmocka_unit_test(nodes_read_all),
        cmocka_unit_test(loss_is_added_and_ties), cmocka_unit_test(bad_nodes),
        cmocka_unit_test(files_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
