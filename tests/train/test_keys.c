/* test_keys.c -- the tables of keys against the readers: what a config asks for is in the tables,
 * with the same kind, range and default, of the same users; and nothing else is. */
#include "support/test.h"

#include "data/scratch.h"
#include "io/conf.h"
#include "train/settings.h"
#include <forerun/compare.h>
#include <forerun/cost.h>
#include <forerun/models.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 400 };
static bool is_used[MAX_KEYS], has_preset_seen[MAX_KEYS];

/* Who reads a section: a model, a source, an optimizer ... */
typedef struct users {
    const char *model, *data, *optimizer, *schedule, *sync;
} users;

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "a, b, c" has b */
static bool lists(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at++)
        if ((at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ',')) return true;
    return false;
}

static const char *op_of(const fr_conf *node)
{
    const fr_conf *op = fr__conf_child(node->parent, "op");
    return op ? op->text : NULL;
}

static const char *user_of(const char *path, const fr_conf *node, const users *u)
{
    if (starts(path, "model.nodes[].")) return op_of(node);
    if (starts(path, "model.ties")) return NULL;
    if (starts(path, "model.")) return u->model;
    if (starts(path, "data.")) return u->data;
    if (starts(path, "train.optimizer.")) return u->optimizer;
    if (starts(path, "train.schedule.")) return u->schedule;
    if (starts(path, "parallel.sync.")) return u->sync;
    return NULL;
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

static int find_row(const char *path, const char *user)
{
    char names[512];
    const fr_key *key;
    for (int i = 0; (key = fr_key_at(i)); i++) {
        if (strcmp(key->path, path) != 0) continue;
        fr_key_users(key, names, sizeof names);
        if (!user || !names[0] || lists(names, user)) return i;
        bool is_common =
            strcmp(path, "train.optimizer.lr") == 0 || strcmp(path, "train.schedule.warmup") == 0;
        if (is_common) return i;
    }
    return -1;
}

static bool same_limit(double asked, double row)
{
    if (isinf(row)) return fabs(asked) >= (double)FLT_MAX || asked >= (double)INT64_MAX;
    return asked == row;
}

static void judge(const fr_conf *node, const users *u)
{
    char path[256];
    plain_path(node, path, sizeof path);
    const char *user = user_of(path, node, u);
    int i = find_row(path, user);
    if (i < 0) fail_msg("%s (of %s) is read, but no table of keys has it", path, user ? user : "-");
    const fr_key *key = fr_key_at(i);
    is_used[i] = true;
    if (node->asked != key->kind)
        fail_msg("%s is read as %s, the table says %s", path, fr_key_kind_name(node->asked),
                 fr_key_kind_name(key->kind));
    bool is_number = key->kind == FR_KEY_INT || key->kind == FR_KEY_REAL;
    if (is_number && (!same_limit(node->min, key->min) || !same_limit(node->max, key->max)))
        fail_msg("%s is read from %g to %g, the table says %g to %g", path, node->min, node->max,
                 key->min, key->max);
    if (node->is_given || (key->preset && key->preset[0] == '(')) return;
    const char *found = node->resolved ? node->resolved : "none";
    if (strcmp(found, key->preset ? key->preset : "none") != 0)
        fail_msg("%s (of %s) is %s by default, the table says '%s'", path, user ? user : "-", found,
                 key->preset ? key->preset : "none");
    has_preset_seen[i] = true;
}

static void walk(const fr_conf *node, const users *u)
{
    for (const fr_conf *c = node->first; c; c = c->next) {
        bool is_items = c->kind == FR_CONF_LIST && c->asked == FR_KEY_ITEMS;
        if (c->key && c->is_known && (c->kind != FR_CONF_MAPPING || is_items)) judge(c, u);
        if (c->kind == FR_CONF_MAPPING || is_items) walk(c, u);
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

static void read_settings(const char *text, users u)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_conf *c = parse(ctx, text);
    fr_settings s;
    if (fr__settings_read(c, "test.yaml", NULL, &s) != FR_OK || fr_conf_finish(c) != FR_OK)
        fail_msg("%s", fr_ctx_error(ctx));
    walk(c, &u);
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
        read_settings(text, (users){.optimizer = name, .schedule = "constant"});
    }
    for (int i = 0; fr_lr_list()[i]; i++) {
        const char *name = fr_lr_list()[i]->name;
        snprintf(text, sizeof text, "train: {schedule: {name: %s}}", name);
        read_settings(text, (users){.optimizer = "sgd", .schedule = name});
    }
    for (int i = 0; fr_method_list()[i]; i++) {
        const char *name = fr_method_list()[i]->name;
        snprintf(text, sizeof text, "parallel: {method: %s, stages: %d}", name,
                 fr_method_list()[i]->max_stages == 1 ? 1 : 4);
        read_settings(text, (users){.optimizer = "sgd", .schedule = "constant"});
    }
    for (int i = 0; fr_sync_list()[i]; i++) {
        const char *name = fr_sync_list()[i]->name;
        snprintf(text, sizeof text, "parallel: {sync: {name: %s}}", name);
        read_settings(text, (users){.optimizer = "sgd", .schedule = "constant", .sync = name});
    }
}

/* Keys that are asked for only if they are there. */
static void rare_settings(void **state)
{
    static const char *const texts[] = {
        "parallel: {weights: stash, xpipe: {}, pipemare: {}, recompute: true}",
        "parallel: {schedule_file: README.md, profile: README.md}",
        "parallel: {cluster: README.md, devices: [0], emulation: {}}",
        "run: {fault: 'error:worker=0,step=1'}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        read_settings(texts[i], (users){.optimizer = "sgd", .schedule = "constant"});
}

static void read_model(const char *text, const char *name)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_conf *c = parse(ctx, text), *model;
    fr_graph *g = NULL;
    assert_int_equal(fr_conf_section(c, "model", &model), FR_OK);
    if (fr_model_from_conf(ctx, model, NULL, &g) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    walk(c, &(users){.model = name});
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
        read_model(text, name);
    }
    char path[] = "/tmp/forerun-model-XXXXXX";
    static const char net[] =
        "nodes: [{name: x, op: input, shape: [4]}, {name: y, op: linear, out: 2}]";
    int f = mkstemp(path);
    assert_true(f >= 0 && write(f, net, sizeof net - 1) == (ssize_t)sizeof net - 1);
    close(f);
    snprintf(text, sizeof text, "model: {file: %s}", path);
    read_model(text, NULL);
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
        "  - {name: drop, op: dropout, p: 0.1}\n"
        "  - {name: alpha, op: alpha_dropout, p: 0.1}\n"
        "  - {name: lin0, op: linear, out: 9}\n"
        "  - {name: lin1, op: linear, out: 9}\n"
        "  - {name: lin2, op: linear, out: 9}\n"
        "  - {name: ln, op: layer_norm}\n"
        "  - {name: words, op: input, shape: [6], dtype: int}\n"
        "  - {name: embed, op: embedding, vocab: 5, width: 12}\n"
        "  - {name: lstm, op: lstm, hidden: 12}\n"
        "  - {name: some, op: slice, to: 4}\n"
        "  - {name: attend, op: attention, heads: 2}\n"
        "  - {name: key, op: linear, out: 8, init: normal, init_scale: 0.1}\n"
        "  - {name: cross, op: cross_attention, heads: 2, inputs: [attend, key]}\n"
        "  - {name: mean, op: mean_time}\n"
        "  - {name: target, op: input, shape: [], dtype: int}\n"
        "  - {name: loss, op: cross_entropy, inputs: [lin2, target], ignore_index: 3}\n";
    (void)state;
    read_model(text, NULL);
}

/* --- data ---------------------------------------------------------------------------------------
 */

/* Sources ask for all their keys before, or while, they look for files; whether they find what
 * they like is another matter. */
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
    const char *const *keys = fr_data_find(name)->keys;
    for (int i = 0; keys[i]; i++) {
        const fr_conf *key = fr__conf_child(data, keys[i]);
        bool is_rare = strcmp(name, "pairs") == 0 && strcmp(keys[i], "eval") == 0;
        if ((!key || !key->is_known) && !is_rare)
            fail_msg("data source %s lists the key %s and did not ask for it", name, keys[i]);
    }
    walk(c, &(users){.data = name});
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
    read_data("synthetic", "");
    for (int i = 0; fr_data_list()[i]; i++) {
        bool is_seen = false;
        static const char all[] =
            "fashion-mnist, mnist, cifar10, text, tsv, pairs, multi30k, npy, synthetic";
        is_seen = lists(all, fr_data_list()[i]->name);
        if (!is_seen) fail_msg("data source %s is not tried here", fr_data_list()[i]->name);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        remove(path);
    }
    remove(folder);
}

/* --- cluster files and comparisons --------------------------------------------------------------
 * Their readers keep the config to themselves. But a key that they do not know is answered by those
 * that they know. */

typedef fr_status (*open_fn)(fr_ctx *ctx, const char *path);

static fr_status open_cluster(fr_ctx *ctx, const char *path)
{
    fr_cluster *c;
    return fr_cluster_read(ctx, path, &c);
}

static fr_status open_compare(fr_ctx *ctx, const char *path)
{
    fr_compare *c;
    fr_compare_options o = {.config = path, .out = "nowhere"};
    return fr_compare_open(ctx, &o, &c);
}

/* Each key that is known beside quite_unknown_key has a row at `prefix`, or else at `also`. */
static void known_there(open_fn open, const char *text, const char *prefix, const char *also)
{
    char path[] = "/tmp/forerun-keys-XXXXXX", key[64], full[160];
    int f = mkstemp(path), n;
    fr_ctx *ctx = fr_ctx_create();
    assert_true(f >= 0 && write(f, text, strlen(text)) == (ssize_t)strlen(text));
    close(f);
    assert_int_equal(open(ctx, path), FR_INVALID);
    remove(path);
    const char *list = strstr(fr_ctx_error(ctx), "known here: ");
    if (!list) fail_msg("%s", fr_ctx_error(ctx));
    list += strlen("known here: ");
    for (; sscanf(list, "%63[^,]%n", key, &n) == 1; list += n + 2) {
        snprintf(full, sizeof full, "%s%s", prefix, key);
        int i = find_row(full, NULL);
        snprintf(full, sizeof full, "%s%s", also ? also : prefix, key);
        bool is_section = strcmp(key, "device") == 0 || strcmp(key, "topology") == 0;
        if (i < 0 && find_row(full, NULL) < 0 && !is_section)
            fail_msg("%s%s is read, but no table of keys has it", prefix, key);
        if (i >= 0) is_used[i] = true;
        if (!list[n]) break;
    }
    fr_ctx_free(ctx);
}

static void clusters(void **state)
{
    static const char net[] = "topology: {bandwidth: 1 GB/s, devices: 2";
    char text[512];
    (void)state;
    snprintf(text, sizeof text, "%s}\nquite_unknown_key: 1\n", net);
    known_there(open_cluster, text, "cluster:", NULL);
    snprintf(text, sizeof text, "%s}\ndevice: {quite_unknown_key: 1}\n", net);
    known_there(open_cluster, text, "cluster:device.", NULL);
    snprintf(text, sizeof text, "%s, quite_unknown_key: 1}\n", net);
    known_there(open_cluster, text, "cluster:topology.", NULL);
    known_there(open_cluster, "topology: {bandwidth: free, devices: [{quite_unknown_key: 1}]}\n",
                "cluster:topology.devices[].", "cluster:device.");
    known_there(open_cluster,
                "topology: {bandwidth: free, groups: [{bandwidth: free, devices: 1}],"
                " quite_unknown_key: 1}\n",
                "cluster:topology.", NULL);
    known_there(open_cluster,
                "topology: {bandwidth: free, groups: [{bandwidth: free, devices: 1,"
                " quite_unknown_key: 1}]}\n",
                "cluster:topology.groups[].", "cluster:topology.");
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
    known_there(open_compare, text, "compare.", NULL);
    snprintf(text, sizeof text, all, extra, "", "", "");
    known_there(open_compare, text, "compare.groups[].", NULL);
    snprintf(text, sizeof text, all, "", "", extra, "");
    known_there(open_compare, text, "compare.cases[].", NULL);
    is_used[find_row("compare.cases[].published.source", NULL)] = true; /* any column is a key */
    for (int i = 0; i <= FR_KIND_PUBLISHED; i++) {
        const fr_key *kind = fr_key_at(find_row("compare.cases[].kind", NULL));
        assert_string_equal(kind->choice(i), fr_compare_kind_name((fr_compare_kind)i));
    }
}

/* --- the other way round ------------------------------------------------------------------------
 */

static void all_are_read(void **state)
{
    const fr_key *key;
    (void)state;
    for (int i = 0; (key = fr_key_at(i)); i++) {
        bool is_kept = starts(key->path, "cluster:") || starts(key->path, "compare.");
        bool is_plain = key->preset && key->preset[0] && key->preset[0] != '(';
        assert_true(i < MAX_KEYS);
        if (!is_used[i] && strcmp(key->path, "cluster:topology.device") != 0)
            fail_msg("%s (of %s) is in a table of keys, but nobody reads it", key->path,
                     key->of ? key->of : "all");
        if (is_plain && !is_kept && !has_preset_seen[i])
            fail_msg("%s: the default %s was never seen", key->path, key->preset);
        assert_true(key->meaning && strlen(key->meaning) > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings),    cmocka_unit_test(rare_settings), cmocka_unit_test(models),
        cmocka_unit_test(nodes),       cmocka_unit_test(sources),       cmocka_unit_test(clusters),
        cmocka_unit_test(comparisons), cmocka_unit_test(all_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
