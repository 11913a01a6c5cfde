/* test_given.c -- given weights: which tensor a parameter takes, in which layout, and what is
 * refused. */
#include "checkpoint/given.h"
#include "io/tensor_type.h"
#include "support/check.h"

#include <forerun/models.h>
#include <math.h>
#include <sys/stat.h>

static fr_ctx *ctx;
static char log_text[1 << 16];

static void keep_log(void *user, fr_log_level level, const char *line)
{
    (void)user, (void)level;
    size_t n = strlen(log_text);
    snprintf(log_text + n, sizeof log_text - n, "%s\n", line);
}

/* x (4) -> fc: weight (6, 4), bias (6) -> head: weight (3, 6), bias (3) */
static fr_graph *make_graph(bool is_tied)
{
    fr_graph *g;
    fr_attrs x = {.input = {FR_SHAPE(4), FR_F32}}, target = {.input = {.dtype = FR_I32}};
    fr_attrs fc = {.linear = {.out = is_tied ? 4 : 6}}, head = {.linear = {.out = is_tied ? 4 : 3}};
    assert_ok(ctx, fr_graph_create(ctx, "small", &g));
    int at = fr_graph_add(g, FR_OP_INPUT, "x", &x, 0, NULL);
    at = fr_graph_add(g, FR_OP_LINEAR, "fc", &fc, 1, &at);
    at = fr_graph_add(g, FR_OP_LINEAR, "head", &head, 1, &at);
    if (is_tied) assert_ok(ctx, fr_graph_tie(g, "head.weight", "fc.weight"));
    int y = fr_graph_add(g, FR_OP_INPUT, "target", &target, 0, NULL);
    fr_graph_add(g, FR_OP_CROSS_ENTROPY, "loss", NULL, 2, (int[]){at, y});
    assert_ok(ctx, fr_graph_finish(g));
    return g;
}

typedef struct tensor {
    const char *name, *dtype;
    int64_t dim[2]; /* 0: none */
    float first;    /* then first + 1, ... */
} tensor;

static void write_value(fr_tensor_writer *w, const char *dtype, float value)
{
    char raw[8] = {0};
    double wide = (double)value;
    size_t bytes = 0;
    if (strcmp(dtype, "F64") == 0)
        memcpy(raw, &wide, bytes = 8);
    else if ((bytes = fr__real_bytes(dtype)) > 0)
        (void)fr__real_write(dtype, &value, 1, raw);
    else
        bytes = 8; /* I64 */
    assert_ok(ctx, fr_tensor_writer_data(w, raw, bytes));
}

static const char *write_file(void **state, const tensor *tensors)
{
    fr_tensor_writer *w;
    const char *path = support_path(state, "given.safetensors");
    assert_ok(ctx, fr_tensor_writer_create(ctx, path, &w));
    for (const tensor *t = tensors; t->name; t++)
        assert_ok(ctx, fr_tensor_writer_declare(w, t->name, t->dtype, t->dim[1] ? 2 : 1, t->dim));
    for (const tensor *t = tensors; t->name; t++)
        for (int64_t i = 0; i < t->dim[0] * (t->dim[1] ? t->dim[1] : 1); i++)
            write_value(w, t->dtype, t->first + (float)i);
    assert_ok(ctx, fr_tensor_writer_finish(w));
    fr_tensor_writer_free(w);
    return path;
}

static void check(fr__given *w, const char *param, int n, const float *wanted)
{
    float values[64];
    bool is_there;
    assert_ok(ctx, fr__given_read(w, fr_graph_find_param(w->graph, param), values, &is_there));
    assert_int_equal(is_there, wanted != NULL);
    for (int i = 0; i < n && wanted; i++)
        if (values[i] != wanted[i])
            fail_msg("%s[%d] is %g, not %g", param, i, (double)values[i], (double)wanted[i]);
}

#define COUNT_6 ((const float[]){0, 1, 2, 3, 4, 5})

static void own_names_of_every_type(void **state)
{
    static const char *const types[] = {"F32", "F16", "BF16", "F64"};
    fr_graph *g = make_graph(false);
    for (int k = 0; k < 4; k++) {
        fr__given w;
        const char *type = types[k];
        const tensor tensors[] = {{"head.bias", type, {3, 0}, 9},
                                  {"fc.weight", type, {6, 4}, 0},
                                  {"fc.bias", type, {6, 0}, 0},
                                  {"head.weight", type, {3, 6}, 100},
                                  {.name = NULL}};
        assert_ok(ctx, fr__given_open(ctx, g, NULL, write_file(state, tensors), true, &w));
        assert_null(w.map);
        check(&w, "fc.bias", 6, COUNT_6);
        check(&w, "fc.weight", 6, COUNT_6);
        check(&w, "head.bias", 3, (const float[]){9, 10, 11});
        check(&w, "head.weight", 2, (const float[]){100, 101});
        fr__given_close(&w);
    }
    fr_graph_free(g);
}

/* fc.weight is three transposed tensors of (4, 2); head has no bias there. */
static const fr__weight_rule joined_rules[] = {
    {.own = "fc.weight", .theirs = {"q.w", "k.w", "v.w"}, .is_transposed = true},
    {.own = "fc.bias", .theirs = {"q.b", "k.b", "v.b"}},
    {.own = "head.weight", .theirs = {"out"}},
    {.own = "head.bias"},
    {.own = NULL},
};
static const char *const joined_prefixes[] = {"net.", NULL}, *const joined_ignored[] = {"n.#",
                                                                                        NULL};
static const fr__weight_map joined = {.name = "joined",
                                      .models = "small",
                                      .prefixes = joined_prefixes,
                                      .rules = joined_rules,
                                      .ignored = joined_ignored};

static void joined_and_transposed(void **state)
{
    fr_graph *g = make_graph(false);
    fr__given w;
    const tensor tensors[] = {{"net.q.w", "F32", {4, 2}, 0},
                              {"net.k.w", "BF16", {4, 2}, 10},
                              {"net.v.w", "F32", {4, 2}, 20},
                              {"net.q.b", "F32", {2, 0}, 0},
                              {"net.k.b", "F32", {2, 0}, 2},
                              {"net.v.b", "F32", {2, 0}, 4},
                              {"net.out", "F32", {3, 6}, 0},
                              {"net.n.4", "I64", {1, 0}, 0},
                              {.name = NULL}};
    assert_ok(ctx, fr__given_open(ctx, g, &joined, write_file(state, tensors), true, &w));
    assert_ptr_equal(w.map, &joined);
    check(&w, "fc.weight", 24, (const float[]){0,  2,  4,  6,  1,  3,  5,  7,  10, 12, 14, 16,
                                               11, 13, 15, 17, 20, 22, 24, 26, 21, 23, 25, 27});
    check(&w, "fc.bias", 6, COUNT_6);
    check(&w, "head.weight", 6, COUNT_6);
    check(&w, "head.bias", 3, (const float[]){0, 0, 0});
    fr__given_close(&w);
    fr_graph_free(g);
}

/* A matrix larger than a piece of the file, with rows longer and shorter than one. */
static void large_matrices(void **state)
{
    static const fr__weight_rule rules[] = {
        {.own = "fc.weight", .theirs = {"w"}, .is_transposed = true}, {.own = "*"}, {.own = NULL}};
    static const char *const prefixes[] = {"", NULL};
    static const fr__weight_map map = {"m", "big", prefixes, rules, NULL, NULL, NULL};
    const int64_t sizes[][2] = {{300, 1000}, {200000, 2}}; /* out, in */
    for (int k = 0; k < 2; k++) {
        int64_t out = sizes[k][0], in = sizes[k][1];
        fr_graph *g;
        fr__given w;
        fr_attrs x = {.input = {FR_SHAPE(in), FR_F32}}, fc = {.linear = {.out = out}};
        assert_ok(ctx, fr_graph_create(ctx, "big", &g));
        int at = fr_graph_add(g, FR_OP_INPUT, "x", &x, 0, NULL);
        fr_graph_add(g, FR_OP_LINEAR, "fc", &fc, 1, &at);
        assert_ok(ctx, fr_graph_finish(g));
        const tensor tensors[] = {{"w", "F32", {in, out}, 0}, {.name = NULL}};
        assert_ok(ctx, fr__given_open(ctx, g, &map, write_file(state, tensors), true, &w));
        float *values = malloc((size_t)(in * out) * sizeof *values);
        bool is_there;
        assert_ok(ctx, fr__given_read(&w, fr_graph_find_param(g, "fc.weight"), values, &is_there));
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++)
                assert_true(values[o * in + i] == (float)(i * out + o));
        free(values);
        fr__given_close(&w);
        fr_graph_free(g);
    }
}

static void what_does_not_match(void **state)
{
    fr_graph *g = make_graph(false);
    fr__given w;
    const tensor tensors[] = {{"fc.weight", "F32", {4, 6}, 0},
                              {"fc.bias", "I64", {6, 0}, 0},
                              {"head.weight", "F32", {3, 6}, 0},
                              {"more", "F32", {2, 0}, 0},
                              {.name = NULL}};
    static const char *const says[] = {"small", "1 missing (head.bias)",
                                       ("2 of another shape or type (fc.weight is F32 (4, 6), "
                                        "fc.weight of the model is (6, 4), fc.bias is I64 (6)"),
                                       "1 not in the model (more)", "model.weights_strict: false"};
    const char *path = write_file(state, tensors);
    log_text[0] = '\0';
    assert_int_equal(fr__given_open(ctx, g, NULL, path, true, &w), FR_INVALID);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (!strstr(fr_ctx_error(ctx), says[i]))
            fail_msg("'%s' is not in %s", says[i], fr_ctx_error(ctx));
    fr_ctx_clear(ctx);
    static const char *const table[] = {
        "\n  fc.weight (6, 4) <- fc.weight F32 (4, 6): DOES NOT FIT\n",
        "\n  head.weight (3, 6) <- head.weight F32 (3, 6)\n", "\n  head.bias (3) <- MISSING\n",
        "\n  NOT IN THE MODEL <- more F32 (2)\n"};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strstr(log_text, table[i])) fail_msg("'%s' is not in %s", table[i], log_text);
    log_text[0] = '\0';
    assert_ok(ctx, fr__given_open(ctx, g, NULL, path, false, &w));
    assert_non_null(strstr(log_text, "MISSING"));
    check(&w, "head.weight", 6, COUNT_6);
    check(&w, "fc.weight", 6, NULL);
    check(&w, "head.bias", 3, NULL);
    fr__given_close(&w);
    fr_graph_free(g);
}

static void ties(void **state)
{
    fr_graph *g = make_graph(true);
    fr__given w;
    tensor tensors[] = {{"fc.weight", "F32", {4, 4}, 0},
                        {"fc.bias", "F32", {4, 0}, 0},
                        {"head.bias", "F32", {4, 0}, 0},
                        {.name = NULL},
                        {.name = NULL}};
    assert_ok(ctx, fr__given_open(ctx, g, NULL, write_file(state, tensors), true, &w));
    fr__given_close(&w);
    tensors[3] = (tensor){"head.weight", "F32", {4, 4}, 0};
    assert_ok(ctx, fr__given_open(ctx, g, NULL, write_file(state, tensors), true, &w));
    fr__given_close(&w);
    tensors[3].first = 1;
    assert_fails(ctx, fr__given_open(ctx, g, NULL, write_file(state, tensors), true, &w),
                 FR_INVALID, "\"head.weight\" and \"fc.weight\" differ");
    tensors[3].dim[0] = 3;
    assert_fails(ctx, fr__given_open(ctx, g, NULL, write_file(state, tensors), true, &w),
                 FR_INVALID, "head.weight is F32 (3, 4)");
    fr_graph_free(g);
}

static void not_finite(void **state)
{
    fr_graph *g = make_graph(false);
    fr__given w;
    float values[64];
    bool is_there;
    const tensor tensors[] = {{"fc.weight", "F32", {6, 4}, 0},
                              {"fc.bias", "F32", {6, 0}, NAN},
                              {"head.weight", "F32", {3, 6}, 0},
                              {"head.bias", "F64", {3, 0}, 0},
                              {.name = NULL}};
    assert_ok(ctx, fr__given_open(ctx, g, NULL, write_file(state, tensors), true, &w));
    assert_fails(ctx, fr__given_read(&w, fr_graph_find_param(g, "fc.bias"), values, &is_there),
                 FR_INVALID, "\"fc.bias\" has values that are not finite");
    fr__given_close(&w);
    fr_graph_free(g);
}

/* --- a network of Hugging Face ------------------------------------------------------------------
 */

#define GPT2 FR_SOURCE_DIR "/tests/fixtures/gpt2"

static fr_graph *make_gpt(int heads)
{
    fr_graph *g;
    fr_model_options o = {
        .layers = 2, .width = 8, .heads = heads, .context = 12, .vocab = 256, .tied = true};
    assert_ok(ctx, fr_model_build(ctx, fr_model_find("gpt"), &o, &g));
    return g;
}

static void gpt2(void **state)
{
    fr_graph *g = make_gpt(2);
    fr__given w;
    fr_tensors *file;
    (void)state;
    assert_ok(ctx, fr__given_open(ctx, g, fr__weight_map_of("gpt"), GPT2, true, &w));
    assert_string_equal(w.prefix, "transformer.");
    assert_ok(ctx, fr_tensors_open(ctx, GPT2 "/model.safetensors", &file));
    float theirs[8 * 24], ours[8 * 24];
    bool is_there;
    int at = fr_tensors_find(file, "transformer.h.1.attn.c_attn.weight");
    assert_ok(ctx, fr_tensors_read(file, at, theirs, sizeof theirs));
    assert_ok(ctx,
              fr__given_read(&w, fr_graph_find_param(g, "h.1.attn.qkv.weight"), ours, &is_there));
    for (int o = 0; o < 24; o++)
        for (int i = 0; i < 8; i++) assert_true(ours[8 * o + i] == theirs[24 * i + o]);
    fr_tensors_close(file);
    fr__given_close(&w);
    fr_graph_free(g);
}

/* What the weights do not show. */
static void gpt2_config(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"{\"n_head\": 4}", "n_head is 4, the model has 2 heads; set model.heads: 4"},
               {"{\"model_type\": \"gpt_neo\"}", "model_type is gpt_neo"},
               {"{\"activation_function\": \"relu\"}", "activation_function is relu"},
               {"{\"layer_norm_epsilon\": 1e-6}", "layer_norm_epsilon is 1e-06"},
               {"{\"scale_attn_weights\": false}", "scale_attn_weights is false"},
               {"{\"scale_attn_by_inverse_layer_idx\": true}", "inverse_layer_idx is true"},
               {"[]", "not an object"},
               {"{", "line 1"}};
    fr_graph *g = make_gpt(2);
    char folder[256], path[300];
    snprintf(folder, sizeof folder, "%s/hf", (const char *)*state);
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(symlink(GPT2 "/model.safetensors", path), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr__given w;
        support_write(path, bad[i].text, strlen(bad[i].text));
        assert_fails(ctx, fr__given_open(ctx, g, fr__weight_map_of("gpt"), folder, true, &w),
                     FR_INVALID, bad[i].says);
    }
    fr_graph_free(g);
}

static fr_status open_and_read(fr_ctx *of, void *graph)
{
    fr__given w;
    float *plain = malloc(1 << 16);
    bool is_there;
    fr_status status = fr__given_open(of, graph, fr__weight_map_of("gpt"), GPT2, true, &w);
    if (status == FR_OK) status = fr__given_read(&w, 3, plain, &is_there);
    fr__given_close(&w);
    free(plain);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    fr_graph *g = make_gpt(2);
    assert_true(support_walk_memory(open_and_read, g) > 5);
    fr_graph_free(g);
    g = make_gpt(4);
    fr__given w; /* a failure and its text */
    for (int n = 0; n < 200; n++) {
        fr__alloc_fail_after(n);
        assert_int_not_equal(fr__given_open(ctx, g, NULL, GPT2, true, &w), FR_OK);
        fr__alloc_fail_after(-1);
    }
    fr_graph_free(g);
}

static int set_up(void **state)
{
    ctx = fr_ctx_create();
    fr_ctx_set_log(ctx, keep_log, NULL);
    return support_dir_make(state);
}

static int tear_down(void **state)
{
    fr_ctx_free(ctx);
    return support_dir_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_names_of_every_type),
        cmocka_unit_test(joined_and_transposed),
        cmocka_unit_test(large_matrices),
        cmocka_unit_test(what_does_not_match),
        cmocka_unit_test(ties),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(gpt2_config),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
