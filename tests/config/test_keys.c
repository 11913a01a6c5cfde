/* test_keys.c -- checks of the table of keys: rows are consistent, hand-written readers read only
 * keys that have a row, records agree with the defaults of rows, and each row is read. */
#include "support/test.h"

#include "config/settings.h"
#include "data/scratch.h"
#include "io/conf.h"
#include "io/number.h"
#include "models/weight_map.h"
#include <forerun/compare.h>
#include <forerun/models.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 400 };
static bool is_used[MAX_KEYS];

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_plain(const fr_key *k) { return k->preset && k->preset[0] && k->preset[0] != '('; }

/* A default is a value that the row itself takes. */
static void rows(void **state)
{
    const fr_key *k;
    (void)state;
    for (int i = 0; (k = fr_key_at(i)); i++) {
        int64_t n;
        double value = 0;
        bool is_good = true, is_number = k->kind == FR_KEY_INT || k->kind == FR_KEY_REAL;
        assert_true(i < MAX_KEYS && k->meaning && strlen(k->meaning) > 5);
        if (is_number) assert_true(k->min < k->max);
        if (k->choice) assert_true(k->choice(0) && (k->refusal || strstr(k->path, "[].op")));
        if (k->kind == FR_KEY_BOOL) assert_true(k->preset && (k->preset[0] == '(' || is_plain(k)));
        if (!is_plain(k)) continue;
        if (k->kind == FR_KEY_INT) is_good = fr__int_scan(k->preset, &n), value = (double)n;
        if (k->kind == FR_KEY_REAL) is_good = fr__real_scan(k->preset, &value);
        if (is_number) is_good = is_good && value >= k->min && value <= k->max;
        if (k->kind == FR_KEY_BOOL) is_good = fr__has_name("true, false", k->preset);
        if (k->choice) is_good = fr__key_choice(k, k->preset) >= 0;
        if (!is_good) fail_msg("%s: the default %s is none", k->path, k->preset);
    }
}

/* model.nodes[3].op -> model.nodes[].op */
static void plain_path(const fr_conf *node, char *to, size_t room)
{
    size_t n = 0;
    bool is_inside = false;
    for (const char *c = fr__conf_path(node); *c && n + 1 < room; c++) {
        if (*c == ']') is_inside = false;
        if (!is_inside) to[n++] = *c;
        if (*c == '[') is_inside = true;
    }
    to[n] = '\0';
}

/* Marks the rows of a path as used; whether there is one, with this default (NULL: any). */
static bool has_row(const char *path, const char *preset)
{
    bool is_there = false;
    const fr_key *k;
    for (int i = 0; (k = fr_key_at(i)); i++) {
        if (strcmp(k->path, path) != 0) continue;
        is_used[i] = true;
        is_there |= !preset || !is_plain(k) || strcmp(k->preset, preset) == 0;
    }
    return is_there;
}

static void judge(const fr_conf *node)
{
    char path[256];
    plain_path(node, path, sizeof path);
    if (!has_row(path, NULL)) fail_msg("%s is read, but no table of keys has it", path);
    if (!node->is_given && node->resolved && !has_row(path, node->resolved))
        fail_msg("%s is %s by default, no row says so", path, node->resolved);
}

static void walk(const fr_conf *node)
{
    for (const fr_conf *c = node->first; c; c = c->next) {
        bool is_items = c->kind == FR_CONF_LIST && !c->resolved;
        if (c->key && c->is_known && (c->kind != FR_CONF_MAPPING || is_items)) judge(c);
        if (c->kind == FR_CONF_MAPPING || is_items) walk(c);
    }
}

/* --- reading ------------------------------------------------------------------------------------
 */

static fr_conf *parse(fr_ctx *ctx, const char *text)
{
    fr_conf *c;
    assert_int_equal(fr_conf_parse(ctx, text, strlen(text), FR_SOURCE_DIR "/test.yaml", &c), FR_OK);
    return c;
}

static void read_settings(const char *text)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_conf *c = parse(ctx, text);
    fr__settings s;
    if (fr__settings_read(c, "test.yaml", NULL, &s) != FR_OK || fr_conf_finish(c) != FR_OK)
        fail_msg("%s", fr_ctx_error(ctx));
    walk(c);
    fr_conf_free(c);
    fr_ctx_free(ctx);
}

static void settings(void **state)
{
    char text[512];
    (void)state;
    for (int i = 0; fr_optim_list()[i]; i++) {
        const char *name = fr_optim_list()[i]->name;
        snprintf(text, sizeof text, "train: {optimizer: {name: %s}}", name);
        read_settings(text);
    }
    for (int i = 0; fr_lr_list()[i]; i++) {
        const char *name = fr_lr_list()[i]->name;
        snprintf(text, sizeof text, "train: {schedule: {name: %s}}", name);
        read_settings(text);
    }
    for (int i = 0; fr_method_list()[i]; i++) {
        const char *name = fr_method_list()[i]->name;
        snprintf(text, sizeof text, "parallel: {method: %s, stages: %d}", name,
                 fr_method_list()[i]->max_stages == 1 ? 1 : 4);
        read_settings(text);
    }
    for (int i = 0; fr_sync_list()[i]; i++) {
        const char *name = fr_sync_list()[i]->name;
        snprintf(text, sizeof text, "parallel: {sync: {name: %s}}", name);
        read_settings(text);
    }
}

/* Keys that are read only if present. */
static void rare_settings(void **state)
{
    static const char *const texts[] = {
        "parallel: {weights: stash, messages: bf16, xpipe: {}, pipemare: {}, recompute: true}",
        "parallel: {memory: 1 GB}",
        "parallel: {schedule_file: README.md, profile: README.md}",
        "parallel: {cluster: README.md, devices: [0], emulation: {}}",
        "run: {fault: 'error:worker=0,step=1'}",
        "train: {groups: [{match: '*'}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) read_settings(texts[i]);
}

static void read_model(const char *text)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_conf *c = parse(ctx, text), *model;
    fr_graph *g = NULL;
    assert_int_equal(fr_conf_section(c, "model", &model), FR_OK);
    if (fr_model_from_conf(ctx, model, NULL, &g) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    const char *weights;
    bool is_strict;
    assert_int_equal(fr__model_weights(model, &weights, &is_strict), FR_OK);
    walk(c);
    fr_graph_free(g);
    fr_conf_free(c);
    fr_ctx_free(ctx);
}

static void models(void **state)
{
    char text[256];
    (void)state;
    for (int i = 0; fr_model_list()[i]; i++) {
        const char *name = fr_model_list()[i]->name;
        snprintf(text, sizeof text, "model: {name: %s}", name);
        read_model(text);
    }
    read_model("model: {name: mlp, weights: README.md}");
    char path[] = "/tmp/forerun-model-XXXXXX";
    static const char net[] =
        "nodes: [{name: x, op: input, shape: [4]}, {name: y, op: linear, out: 2}]";
    int f = mkstemp(path);
    assert_true(f >= 0 && write(f, net, sizeof net - 1) == (ssize_t)sizeof net - 1);
    close(f);
    snprintf(text, sizeof text, "model: {file: %s}", path);
    read_model(text);
    remove(path);
}

/* One node of each operator that has keys. */
static void nodes(void **state)
{
    static const char text[] =
        "model:\n"
        "  ties: [{param: lin2.weight, owner: lin1.weight}]\n"
        "  nodes:\n"
        "  - {name: input, op: input, shape: [2, 8, 8]}\n"
        "  - {name: conv, op: conv2d, out: 4, kernel: 3}\n"
        "  - {name: norm, op: batch_norm}\n"
        "  - {name: max, op: max_pool, kernel: 1}\n"
        "  - {name: avg, op: avg_pool, kernel: 1}\n"
        "  - {name: both, op: concat, inputs: [max, avg]}\n"
        "  - {name: flat, op: flatten}\n"
        "  - {name: depth, op: stochastic_depth, p: 0.1}\n"
        "  - {name: group, op: group_norm, groups: 2}\n"
        "  - {name: leaky, op: leaky_relu}\n"
        "  - {name: elu, op: elu}\n"
        "  - {name: drop, op: dropout, p: 0.1}\n"
        "  - {name: alpha, op: alpha_dropout, p: 0.1}\n"
        "  - {name: lin0, op: linear, out: 9}\n"
        "  - {name: lin1, op: linear, out: 9}\n"
        "  - {name: lin2, op: linear, out: 9}\n"
        "  - {name: ln, op: layer_norm}\n"
        "  - {name: words, op: input, shape: [6], dtype: int}\n"
        "  - {name: embed, op: embedding, vocab: 5, width: 12}\n"
        "  - {name: lstm, op: lstm, hidden: 12}\n"
        "  - {name: rms, op: rms_norm}\n"
        "  - {name: turned, op: rope, heads: 3}\n"
        "  - {name: some, op: slice, to: 4}\n"
        "  - {name: attend, op: attention, heads: 2}\n"
        "  - {name: key, op: linear, out: 8, init: normal, init_scale: 0.1}\n"
        "  - {name: cross, op: cross_attention, heads: 2, inputs: [attend, key]}\n"
        "  - {name: sdpa, op: sdpa, heads: 2, inputs: [attend, attend, attend]}\n"
        "  - {name: turn, op: transpose, order: [1, 0], inputs: [attend]}\n"
        "  - {name: more, op: pad, before: [0, 1]}\n"
        "  - {name: one, op: select, index: 0}\n"
        "  - {name: again, op: reshape, shape: [5, -1]}\n"
        "  - {name: mean, op: mean_time, inputs: [sdpa]}\n"
        "  - {name: target, op: input, shape: [], dtype: int}\n"
        "  - {name: loss, op: cross_entropy, inputs: [lin2, target], ignore_index: 3}\n";
    (void)state;
    read_model(text);
    read_model("model:\n  loss: smooth_l1\n  beta: 2\n  nodes:\n"
               "  - {name: input, op: input, shape: [4]}\n"
               "  - {name: lin, op: linear, out: 2}\n");
    read_model("model:\n  nodes:\n"
               "  - {name: input, op: input, shape: [4]}\n"
               "  - {name: lin, op: linear, out: 2}\n"
               "  - {name: target, op: input, shape: [2]}\n"
               "  - {name: loss, op: smooth_l1, inputs: [lin, target], beta: 2}\n");
}

/* --- data ---------------------------------------------------------------------------------------
 */

/* Sources read all their keys before or while they search for files; whether the files exist does
 * not matter here. */
static void read_data(const char *name, const char *more)
{
    char text[1024];
    fr_ctx *ctx = fr_ctx_create();
    fr_dataset *d = NULL;
    fr_data_info want = {0};
    snprintf(text, sizeof text, "data: {name: %s%s}", name, more);
    fr_conf *c = parse(ctx, text), *data;
    assert_int_equal(fr_conf_section(c, "data", &data), FR_OK);
    fr_status status = fr_dataset_open(ctx, data, &want, &d);
    assert_true(status == FR_OK || fr_ctx_error(ctx)[0]);
    walk(c);
    fr_dataset_close(d);
    fr_conf_free(c);
    fr_ctx_free(ctx);
}

static void sources(void **state)
{
    static const char pair[] =
        ", train: [" FR_SOURCE_DIR "/README.md, " FR_SOURCE_DIR "/README.md], eval: [" FR_SOURCE_DIR
        "/README.md, " FR_SOURCE_DIR "/README.md]";
    char folder[] = "/tmp/forerun-keys-XXXXXX", more[256], path[256];
    static const char *const files[] = {"train.de", "train.en", "val.de", "val.en"};
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs("ein Wort\n", f);
        fclose(f);
    }
    snprintf(more, sizeof more, ", path: %s", folder);
    read_data("fashion-mnist", "");
    read_data("mnist", more);
    read_data("cifar10", more);
    read_data("text", more);
    read_data("tsv", more);
    read_data("pairs", pair);
    read_data("multi30k", more);
    read_data("npy", ", input: a.npy, target: b.npy");
    read_data("csv", ", path: " FR_SOURCE_DIR "/tests/data/table.csv, targets: [b], skip: [c]");
    read_data("synthetic", "");
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        remove(path);
    }
    remove(folder);
}

/* --- comparisons --------------------------------------------------------------------------------
 * Their reader keeps the config to itself. But the message about an unknown key lists the known
 * ones. */

static fr_status open_compare(fr_ctx *ctx, const char *path)
{
    fr_compare *c;
    fr_compare_options o = {.config = path, .out = "nowhere"};
    return fr_compare_open(ctx, &o, &c);
}

/* Each key that is known beside quite_unknown_key has a row at `prefix`. */
static void known_there(const char *text, const char *prefix)
{
    char path[] = "/tmp/forerun-keys-XXXXXX", key[64], full[160];
    int f = mkstemp(path), n;
    fr_ctx *ctx = fr_ctx_create();
    assert_true(f >= 0 && write(f, text, strlen(text)) == (ssize_t)strlen(text));
    close(f);
    assert_int_equal(open_compare(ctx, path), FR_INVALID);
    remove(path);
    const char *list = strstr(fr_ctx_error(ctx), "known here: ");
    if (!list) fail_msg("%s", fr_ctx_error(ctx));
    list += strlen("known here: ");
    for (; sscanf(list, "%63[^,]%n", key, &n) == 1; list += n + 2) {
        snprintf(full, sizeof full, "%s%s", prefix, key);
        if (!has_row(full, NULL)) fail_msg("%s is read, but no table of keys has it", full);
        if (!list[n]) break;
    }
    fr_ctx_free(ctx);
}

static void comparisons(void **state)
{
    static const char all[] =
        "compare: {groups: [{name: g, set: {}%s}], cases: [{name: a, group: g,"
        " published: {source: x%s}%s}]%s}\n";
    static const char extra[] = ", quite_unknown_key: 1";
    char text[512];
    (void)state;
    snprintf(text, sizeof text, all, "", "", "", extra);
    known_there(text, "compare.");
    snprintf(text, sizeof text, all, extra, "", "", "");
    known_there(text, "compare.groups[].");
    snprintf(text, sizeof text, all, "", "", extra, "");
    known_there(text, "compare.cases[].");
    assert_true(has_row("compare.cases[].published.source", NULL)); /* any column is a key */
    const fr_key *kind = fr__key_find(fr__settings_keys(), "compare.cases[].", "kind", NULL);
    for (int i = 0; i <= FR_KIND_PUBLISHED; i++)
        assert_string_equal(kind->choice(i), fr_compare_kind_name((fr_compare_kind)i));
}

/* Rows of cluster files are read by src/cost/cluster.c. */
static void all_are_read(void **state)
{
    const fr_key *k;
    (void)state;
    for (int i = 0; (k = fr_key_at(i)); i++)
        if (!is_used[i] && !starts(k->path, "cluster:"))
            fail_msg("%s (of %s) is in a table of keys, but is never read", k->path,
                     k->of ? k->of : "all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),          cmocka_unit_test(settings),
        cmocka_unit_test(rare_settings), cmocka_unit_test(models),
        cmocka_unit_test(nodes),         cmocka_unit_test(sources),
        cmocka_unit_test(comparisons),   cmocka_unit_test(all_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
