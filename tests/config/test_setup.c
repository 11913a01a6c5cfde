/* test_setup.c -- data and model find their sizes in each other, or say why they cannot. */
#include "config/setup.h"
#include <forerun/models.h>

#include "support/run_fixture.h"

static fr_status open_setup(fixture *f, const char *yaml, fr__setup *s)
{
    write_text(f->config, yaml);
    fr_run_options o = {.size = sizeof o, .config = f->config};
    return fr__setup_open(f->ctx, &o, s);
}

static const fr_shape *shape_of(const fr__setup *s, int node)
{
    return &fr_graph_node(s->graph, node)->shape;
}

/* The text of a config with the scratch folder put in for "@". */
static char *with_folder(const fixture *f, const char *yaml)
{
    static char text[2048];
    const char *at = strchr(yaml, '@');
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - yaml), yaml, f->dir, at + 1);
    return text;
}

static void write_in(const fixture *f, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    write_text(path, text);
}

static void test_model_gives_sizes_to_synthetic_data(void **state)
{
    fixture *f = *state;
    fr__setup s;
    assert_done(f, open_setup(f,
                              "model: {name: transformer, layers: 1, width: 8, heads: 2, context: "
                              "5, vocab: 20, classes: 3}\n"
                              "data: {name: synthetic, n: 10}\ntrain: {batch: 3, epochs: 2}\n",
                              &s));
    const fr_data_info *d = fr_dataset_info(s.data);
    assert_int_equal(d->input.dim[0], 5);
    assert_int_equal(d->vocab, 20);
    assert_int_equal(d->n_classes, 3);
    assert_true(d->has_length && s.length >= 0);
    assert_int_equal(s.n_steps, 6); /* 20 samples, whole mini-batches of 3 */
    fr__setup_close(&s);
    fr__setup_close(&s); /* once more is fine */
}

static void test_text_takes_context_and_gives_vocab(void **state)
{
    fixture *f = *state;
    fr__setup s;
    char text[500];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    write_in(f, "book.txt", text);
    static const struct {
        const char *model, *data;
        int64_t context;
    } cases[] = {{"context: 12", "", 12}, {"dropout: 0", ", context: 9", 9}};
    for (int i = 0; i < 2; i++) {
        char yaml[512];
        snprintf(yaml, sizeof yaml,
                 "model: {name: gpt, layers: 1, width: 8, heads: 2, %s}\n"
                 "data: {name: text, path: %s/book.txt%s}\ntrain: {batch: 2}\n",
                 cases[i].model, f->dir, cases[i].data);
        assert_done(f, open_setup(f, yaml, &s));
        assert_int_equal(shape_of(&s, s.input)->dim[0], cases[i].context);
        assert_int_equal(shape_of(&s, s.logits)->dim[1], 256);
        fr__setup_close(&s);
    }
}

static void test_tsv_gives_classes_and_vocab(void **state)
{
    fixture *f = *state;
    fr__setup s;
    write_in(f, "t.tsv", "a\tone two\nb\tthree four\nc\tone\n");
    assert_done(f, open_setup(f,
                              with_folder(f, "model: {name: reslstm, layers: 1, width: 8, context: "
                                             "4}\ndata: {name: tsv, path: @/t.tsv}\n"),
                              &s));
    assert_int_equal(shape_of(&s, s.logits)->dim[0], 3);
    assert_int_equal(fr_dataset_info(s.data)->vocab, 6); /* four words, padding, unknown */
    fr__setup_close(&s);
}

static void test_own_model_any_names(void **state)
{
    fixture *f = *state;
    fr__setup s;
    assert_done(f,
                open_setup(f,
                           "model:\n"
                           "  nodes:\n"
                           "    - {name: n, op: input, shape: [], dtype: int}\n"
                           "    - {name: words, op: input, shape: [6], dtype: int}\n"
                           "    - {name: e, op: embedding, vocab: 9, width: 4, inputs: [words]}\n"
                           "    - {name: m, op: mean_time, inputs: [e, n]}\n"
                           "    - {name: h, op: linear, out: 3}\n"
                           "data: {name: synthetic}\n",
                           &s));
    assert_string_equal(fr_graph_node(s.graph, s.input)->name, "words");
    assert_string_equal(fr_graph_node(s.graph, s.length)->name, "n");
    assert_string_equal(fr_graph_node(s.graph, s.logits)->name, "h");
    assert_true(fr_dataset_info(s.data)->has_length);
    fr__setup_close(&s);
}

static void test_misfits(void **state)
{
    fixture *f = *state;
    write_in(f, "t.tsv", "a\tone two\nb\tthree four\nc\tone\n");
    static const struct {
        const char *yaml, *words[3];
    } cases[] = {
        {"model: {name: transformer, context: 4, vocab: 3, layers: 1, width: 8, heads: 2}\n"
         "data: {name: tsv, path: @/t.tsv, vocab: 100}\n",
         {"3 tokens", "tsv has 6", "model.vocab"}},
        {"model: {name: transformer, context: 4, classes: 2, layers: 1, width: 8, heads: 2}\n"
         "data: {name: tsv, path: @/t.tsv}\n",
         {"2 classes", "tsv has 3", "transformer"}},
        {"model: {name: transformer, context: 4, layers: 1, width: 8, heads: 2}\n"
         "data: {name: tsv, path: @/t.tsv, context: 8}\n",
         {"(4)", "(8)", "transformer"}},
        {"model: {name: mlp}\ndata: {name: tsv, path: @/t.tsv}\n",
         {"reads numbers", "holds token ids", "mlp"}},
        {"model: {name: gpt, layers: 1, width: 8, heads: 2, context: 4}\n"
         "data: {name: tsv, path: @/t.tsv}\n",
         {"targets (4)", "gpt", "next tokens"}},
        {"model: {name: reslstm, layers: 1, width: 8, context: 4, classes: 256}\n"
         "data: {name: text, path: @/t.tsv}\n",
         {"reslstm", "targets", "(4)"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__setup s;
        assert_failed(f, open_setup(f, with_folder(f, cases[i].yaml), &s), FR_INVALID, "net.yaml:1",
                      cases[i].words[0], cases[i].words[1], cases[i].words[2]);
    }
}

static fr_dtype type_of(const fr__setup *s, const char *node)
{
    return fr_graph_node(s->graph, fr_graph_find(s->graph, node))->dtype;
}

static void test_precision(void **state)
{
    fixture *f = *state;
    fr__setup s;
    char text[512];
    static const char net[] = "model: {name: mlp, inputs: 4, depth: 2, width: 4, classes: 2}\n"
                              "data: {name: synthetic, n: 10}\n";
    assert_done(f, open_setup(f, net, &s));
    assert_int_equal(fr_graph_precision(s.graph), FR_F32);
    fr__setup_close(&s);
    snprintf(text, sizeof text, "%strain: {precision: bf16}\n", net);
    assert_done(f, open_setup(f, text, &s));
    assert_int_equal(fr_graph_precision(s.graph), FR_BF16);
    assert_int_equal(type_of(&s, "fc.0"), FR_BF16);
    assert_int_equal(type_of(&s, "input"), FR_F32);
    assert_int_equal(type_of(&s, "loss"), FR_F32);
    fr__setup_close(&s);
}

/* A graph of the caller has its own precision unless the config has one. */
static void test_precision_of_given_graph(void **state)
{
    fixture *f = *state;
    const fr_dtype types[] = {FR_F32, FR_BF16};
    fr_graph *plain, *own;
    assert_done(f, fr_model_build(f->ctx, fr_model_find("mlp"), NULL, &plain));
    for (int had = 0; had < 2; had++) {
        assert_done(f, fr_graph_retype(f->ctx, plain, types[had], NULL, &own));
        for (int wants = -1; wants < 2; wants++) {
            char text[128] = "data: {name: synthetic, n: 10}\n";
            fr__setup s;
            if (wants >= 0)
                snprintf(text, sizeof text,
                         "data: {name: synthetic, n: 10}\ntrain: {precision: %s}\n",
                         wants ? "bf16" : "fp32");
            fr_run_options o = {.size = sizeof o, .config_text = text, .graph = own};
            assert_done(f, fr__setup_open(f->ctx, &o, &s));
            assert_int_equal(fr_graph_precision(s.graph), types[wants < 0 ? had : wants]);
            assert_int_equal(s.settings.precision, types[wants < 0 ? had : wants]);
            fr__setup_close(&s);
        }
        fr_graph_free(own);
    }
    fr_graph_free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model_gives_sizes_to_synthetic_data, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_text_takes_context_and_gives_vocab, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_tsv_gives_classes_and_vocab, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_own_model_any_names, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_precision, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_precision_of_given_graph, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_misfits, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
