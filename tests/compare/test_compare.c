/* test_compare.c -- a comparison without any training: cases, their order, statistics, and the
 * table from summaries written by the test. */
#include "compare/compare.h"
#include "support/check.h"

#include <math.h>
#include <sys/stat.h>

static const char base[] = "model: {name: mlp, inputs: 8, depth: 6, width: 8, classes: 4}\n"
                           "data: {name: synthetic, n: 64, n_eval: 8}\n"
                           "train: {batch: 48, steps: 3, seed: 5}\n";

/* --- numbers ---------------------------------------------------------------------------------- */

static void test_statistics(void **state)
{
    (void)state;
    const double v[] = {2, NAN, 4, 9};
    fr__stat s = fr__stat_of(4, v);
    assert_int_equal(s.n, 3);
    assert_true(s.mean == 5 && s.min == 2 && s.max == 9);
    assert_true(fabs(s.sd - sqrt(13)) < 1e-12); /* (9 + 1 + 16) / 2 */
    s = fr__stat_of(1, v);
    assert_true(s.n == 1 && s.mean == 2 && isnan(s.sd));
    s = fr__stat_of(0, v);
    assert_true(s.n == 0 && isnan(s.mean));
}

static void test_columns(void **state)
{
    (void)state;
    double v[FR_MAX_COLUMNS];
    json_t *summary = json_loads(
        "{\"eval_accuracy\": 0.5, \"train_loss\": null, \"batch\": 10, \"samples_per_s\": 100,"
        " \"bubble\": {\"share\": 0.25}, \"traffic\": {\"forward\": 1000, \"sums\": 500},"
        " \"workers\": [{\"peak_bytes\": 1000000}, {\"peak_bytes\": 3000000}]}",
        0, NULL);
    assert_non_null(summary);
    fr__columns_read(summary, v);
    json_decref(summary);
    assert_true(v[fr__column_find("eval_accuracy")] == 50);
    assert_true(isnan(v[fr__column_find("train_loss")]));
    assert_true(v[fr__column_find("bubble")] == 25);
    assert_true(v[fr__column_find("traffic")] == 1.5);
    assert_true(v[fr__column_find("memory")] == 3);
    assert_true(v[fr__column_find("s_per_batch")] == 100);
    assert_true(isnan(v[fr__column_find("late")]));
    assert_int_equal(fr__column_find("speed"), -1);
}

static bool differ(const char *there, const char *here, char text[200])
{
    static const char *const but[] = {"run.out", NULL};
    fr_ctx *ctx = fr_ctx_create();
    fr_conf *a, *b;
    assert_ok(ctx, fr_conf_parse(ctx, there, strlen(there), "there", &a));
    assert_ok(ctx, fr_conf_parse(ctx, here, strlen(here), "here", &b));
    text[0] = '\0';
    bool is_different = fr__conf_differ(a, b, but, text, 200);
    fr_conf_free(a);
    fr_conf_free(b);
    fr_ctx_free(ctx);
    return is_different;
}

static void test_differences(void **state)
{
    (void)state;
    char text[200];
    assert_false(
        differ("a: {b: 1, c: [1, 2]}\nrun: {out: x}", "run: {out: y}\na: {c: [1, 2], b: 1}", text));
    assert_false(differ("a: 1\nrun: {out: x}", "a: 1\nrun: {}", text));
    assert_true(differ("a: {b: 1}", "a: {b: 2}", text));
    assert_string_equal(text, "a.b is 1 there, 2 here");
    assert_true(differ("a: {b: 1}", "a: {}", text));
    assert_string_equal(text, "a.b is 1 there, not set here");
    assert_true(differ("a: {}", "a: {b: 1}", text));
    assert_string_equal(text, "a.b is not set there, 1 here");
    assert_true(differ("a: [1, 2]", "a: [1, 2, 3]", text));
    assert_string_equal(text, "a is longer here");
    assert_true(differ("a: [1, {b: 2}]", "a: [1, {b: 3}]", text));
    assert_string_equal(text, "a[1].b is 2 there, 3 here");
    assert_true(differ("a: 1", "a: [1]", text));
}

/* --- cases ------------------------------------------------------------------------------------ */

struct lab {
    fr_ctx *ctx;
    char config[300], out[300];
    fr_compare_options o;
    fr_compare *c;
};

/* Write a config of `base` plus more text, and open it with a folder; both have this name. */
static fr_status open_lab(void **state, const char *name, const char *more, struct lab *l)
{
    char text[4096];
    snprintf(l->config, sizeof l->config, "%s/%s.yaml", (const char *)*state, name);
    snprintf(l->out, sizeof l->out, "%s/%s", (const char *)*state, name);
    int n = snprintf(text, sizeof text, "%s%s", base, more);
    support_write(l->config, text, (size_t)n);
    if (!l->ctx) l->ctx = fr_ctx_create();
    l->o.config = l->config, l->o.out = l->out;
    return fr_compare_open(l->ctx, &l->o, &l->c);
}

static void close_lab(struct lab *l)
{
    fr_compare_close(l->c);
    fr_ctx_free(l->ctx);
    memset(l, 0, sizeof *l);
}

static const struct fr__case *find_case(const struct lab *l, const char *name)
{
    for (int i = 0; i < l->c->n_cases; i++)
        if (strcmp(l->c->cases[i].name, name) == 0) return &l->c->cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

static bool has_set(const struct fr__case *k, const char *set)
{
    for (int i = 0; i < k->n_sets; i++)
        if (strcmp(k->sets[i], set) == 0) return true;
    return false;
}

static void test_methods(void **state)
{
    static const char *const rows[][3] = {
        {"single", "parallel.stages=1", "train.micro=1"},
        {"single", "parallel.stages=1", "parallel.replicas=1"},
        {"dp", "parallel.replicas=3", "train.micro=3"},
        {"1f1b", "parallel.stages=3", "train.micro=12"},
        {"interleaved", "parallel.stages=6", "train.micro=12"},
        {"pipedream", "parallel.stages=3", "train.micro=1"},
        {"pipedream-2bw", "parallel.stages=3", "train.micro=3"},
    };
    struct lab l = {.o.methods = "single,dp,1f1b,interleaved,pipedream,pipedream-2bw"};
    assert_ok(l.ctx, open_lab(state, "methods", "parallel: {method: 1f1b, stages: 3}\n", &l));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int j = 1; j < 3; j++)
            if (!has_set(find_case(&l, rows[i][0]), rows[i][j]))
                fail_msg("%s lacks %s", rows[i][0], rows[i][j]);
    close_lab(&l);
}

/* A config without workers gets two; its number of micro-batches is kept. */
static void test_methods_alone(void **state)
{
    struct lab l = {.o.methods = "dp,spectrain"};
    assert_ok(l.ctx, open_lab(state, "alone", "compare: {seeds: 2}\n", &l));
    assert_true(has_set(find_case(&l, "dp"), "parallel.replicas=2"));
    assert_true(has_set(find_case(&l, "spectrain"), "parallel.stages=2"));
    assert_int_equal(find_case(&l, "dp")->n_runs, 2);
    assert_int_equal((int)find_case(&l, "dp")->runs[1].seed, 6);
    close_lab(&l);
    l = (struct lab){.o.methods = "dp"};
    fr_status status = open_lab(state, "weights", "parallel: {weights: stash}\n", &l);
    assert_fails(l.ctx, status, FR_INVALID, "parallel.weights");
    close_lab(&l);
}

static const char grouped[] =
    "compare:\n"
    "  baseline: a\n"
    "  columns: [eval_accuracy, samples_per_s, speedup]\n"
    "  groups: [{name: g, set: {model.width: 9}}, {name: h}]\n"
    "  cases:\n"
    "    - {name: a}\n"
    "    - {name: b, set: {train.optimizer: {name: sgd, lr: 0.5}, model.width: 10}}\n"
    "    - {name: c, group: h, published: {speedup: 2, source: X}}\n";

static void test_groups(void **state)
{
    struct lab l = {.o.seeds = 2};
    const char *set = "train.steps=4";
    l.o.n_sets = 1, l.o.sets = &set;
    assert_ok(l.ctx, open_lab(state, "groups", grouped, &l));
    static const char *const folders[] = {"g-a", "g-b", "h-a", "h-b", "h-c"};
    assert_int_equal(l.c->n_cases, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(l.c->cases[i].folder, folders[i]);
    const struct fr__case *b = &l.c->cases[1];
    assert_int_equal(b->n_sets, 4); /* group, own, command line */
    assert_string_equal(b->sets[0], "model.width=9");
    assert_string_equal(b->sets[1], "train.optimizer={name: sgd, lr: 0.5}");
    assert_string_equal(b->sets[3], "train.steps=4");
    assert_non_null(strstr(b->config, "width: 10"));
    assert_int_equal(b->n_steps, 4);
    assert_ptr_equal(fr__case_baseline(l.c, b), &l.c->cases[0]);
    assert_ptr_equal(fr__case_baseline(l.c, &l.c->cases[4]), &l.c->cases[2]);
    close_lab(&l);
}

/* A group may have its own baseline; the others use that of the section. */
static void test_group_baselines(void **state)
{
    struct lab l = {0};
    const char *text;
    fr_status status = open_lab(state, "baselines",
                                "compare:\n"
                                "  baseline: a\n"
                                "  groups: [{name: g}, {name: h, baseline: b}]\n"
                                "  cases: [{name: a}, {name: b}, {name: c, group: g}]\n",
                                &l);
    assert_ok(l.ctx, status);
    assert_int_equal(l.c->n_cases, 5);
    for (int i = 0; i < 5; i++) /* g: a b c, h: a b */
        assert_ptr_equal(fr__case_baseline(l.c, &l.c->cases[i]), &l.c->cases[i < 3 ? 0 : 4]);
    assert_ok(l.ctx, fr_compare_text(l.c, "table", &text));
    assert_non_null(strstr(text, "\nSpeed-up: g over a, h over b.\n"));
    assert_non_null(strstr(text, "\n\nh  ")); /* groups are separate */
    assert_ok(l.ctx, fr_compare_text(l.c, "json", &text));
    assert_non_null(strstr(text, "\"baseline\": \"b\""));
    close_lab(&l);
    status = open_lab(state, "baselines-no",
                      "compare:\n"
                      "  groups: [{name: g}, {name: h, baseline: c}]\n"
                      "  cases: [{name: a}, {name: c, group: g}]\n",
                      &l);
    assert_fails(l.ctx, status, FR_INVALID, "group h has baseline 'c'");
    close_lab(&l);
}

/* --- order and table -------------------------------------------------------------------------- */

/* Write the files of a finished run. */
static void put_run(struct lab *l, const struct fr__case *k, int seed, const char *status,
                    double accuracy, double rate)
{
    char path[900], text[400];
    const struct fr__case_run *r = &k->runs[seed];
    snprintf(path, sizeof path, "%s/%s", l->out, r->folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/summary.json", l->out, r->folder);
    int n = snprintf(text, sizeof text,
                     "{\"status\": \"%s\", \"eval_accuracy\": %g, \"samples_per_s\": %g, "
                     "\"wall_s\": 2}",
                     status, accuracy, rate);
    support_write(path, text, (size_t)n);
}

static void test_order_and_table(void **state)
{
    struct lab l = {.o.seeds = 2};
    fr_compare_job job;
    fr_compare_outcome outcome;
    const char *text;
    static const char *const order[] = {"g-a", "g-b", "h-a", "h-b", "h-c",
                                        "g-b", "h-a", "h-b", "h-c", "g-a"};
    assert_ok(l.ctx, open_lab(state, "order", grouped, &l));
    for (int i = 0; i < 10; i++) {
        assert_ok(l.ctx, fr_compare_next(l.c, &job));
        assert_non_null(job.name);
        assert_true(job.number == i + 1 && job.n_runs == 10 && !job.is_simulated);
        assert_string_equal(l.c->at->folder, order[i]);
        assert_string_equal(job.command[0], "train");
        int seed = i >= 5;
        bool diverges = i == 3;
        put_run(&l, l.c->at, seed, diverges ? "diverged" : "done", 0.5 + 0.1 * seed,
                strcmp(l.c->at->name, "a") == 0 ? 100 : 150 + 100 * seed);
        assert_ok(l.ctx, fr_compare_over(l.c, diverges ? 4 : 0, &outcome));
        assert_string_equal(outcome.status, diverges ? "diverged" : "done");
    }
    assert_ok(l.ctx, fr_compare_next(l.c, &job));
    assert_null(job.name);
    fr__stat s = fr__case_stat(l.c, &l.c->cases[1], fr__column_find("speedup"));
    assert_true(s.n == 2 && s.mean == 2 && s.min == 1.5 && s.max == 2.5);
    assert_ok(l.ctx, fr_compare_text(l.c, "table", &text));
    assert_non_null(strstr(text, "55.00 +- 7.07"));
    assert_non_null(strstr(text, "2.00 +- 0.71"));
    assert_non_null(strstr(text, "diverged, 1 of 2 done"));
    assert_non_null(strstr(text, "published [1]"));
    assert_non_null(strstr(text, "\n[1] X\n"));
    assert_ok(l.ctx, fr_compare_text(l.c, "csv", &text));
    assert_non_null(strstr(text, "\ng,b,measured,done,55,7.07106781,50,60,2,200,70.7106781"));
    assert_ok(l.ctx, fr_compare_text(l.c, "markdown", &text));
    assert_non_null(strstr(text, "| g | b | measured |"));
    assert_fails(l.ctx, fr_compare_text(l.c, "html", &text), FR_INVALID, "markdown");
    assert_ok(l.ctx, fr_compare_words(l.c, &text));
    assert_non_null(strstr(text, "g: b is the fastest, 2.00 times a"));
    close_lab(&l);
    l = (struct lab){.o.seeds = 2}; /* all runs exist */
    assert_ok(l.ctx, open_lab(state, "order", grouped, &l));
    assert_ok(l.ctx, fr_compare_next(l.c, &job));
    assert_null(job.name);
    close_lab(&l);
}

/* A failed run is not repeated in this session, but in the next. Two sessions at once are
 * refused. */
static void test_failure(void **state)
{
    struct lab l = {0}, other = {0};
    fr_compare_job job;
    fr_compare_outcome outcome;
    static const char one[] = "compare: {cases: [{name: a}]}\n";
    assert_ok(l.ctx, open_lab(state, "failure", one, &l));
    fr_status status = open_lab(state, "failure", one, &other);
    assert_fails(other.ctx, status, FR_INVALID, "another comparison");
    close_lab(&other);
    assert_ok(l.ctx, fr_compare_next(l.c, &job));
    assert_ok(l.ctx, fr_compare_over(l.c, 137, &outcome));
    assert_string_equal(outcome.status, "failed");
    assert_int_equal(fr_compare_n_failed(l.c), 1);
    assert_ok(l.ctx, fr_compare_next(l.c, &job));
    assert_null(job.name);
    close_lab(&l);
    assert_ok(l.ctx, open_lab(state, "failure", one, &l));
    assert_ok(l.ctx, fr_compare_next(l.c, &job));
    assert_non_null(job.name);
    assert_ok(l.ctx, fr_compare_over(l.c, 130, &outcome));
    assert_string_equal(outcome.status, "interrupted");
    close_lab(&l);
}

/* A run with an incomplete file is reported as an error. */
static void test_damage(void **state)
{
    struct lab l = {0};
    char path[700];
    static const char one[] = "compare: {cases: [{name: a}]}\n";
    assert_ok(l.ctx, open_lab(state, "damage", one, &l));
    put_run(&l, &l.c->cases[0], 0, "done", 1, 1);
    snprintf(path, sizeof path, "%s/a/seed-5/summary.json", l.out);
    close_lab(&l);
    support_write(path, "{\"status\": \"do", 14);
    fr_status status = open_lab(state, "damage", one, &l);
    assert_fails(l.ctx, status, FR_INVALID, "summary.json:1");
    close_lab(&l);
}

/* The comparisons of papers: every case without external data can run. */
static void test_papers(void **state)
{
    static const struct {
        const char *name;
        int n_cases;
    } papers[] = {{"spectrain", 37}, {"xpipe", 8}, {"pipeoptim", 20}, {"pipedream", 21}};
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++) {
        struct lab l = {.ctx = fr_ctx_create(), .o.only = "simulated,published"};
        snprintf(l.config, sizeof l.config, "%s/examples/%s-paper.yaml", FR_SOURCE_DIR,
                 papers[i].name);
        snprintf(l.out, sizeof l.out, "%s/%s", (const char *)*state, papers[i].name);
        l.o.config = l.config, l.o.out = l.out;
        assert_ok(l.ctx, fr_compare_open(l.ctx, &l.o, &l.c));
        assert_int_equal(l.c->n_cases, papers[i].n_cases);
        for (int k = 0; k < l.c->n_cases; k++) assert_true(l.c->cases[k].kind >= FR_KIND_SIMULATED);
        close_lab(&l);
    }
}

/* The demo: cases measured on two cores, then cases emulated on a slow link; each group has its own
 * baseline. */
static void test_demo(void **state)
{
    const char *data = "data={name: synthetic, n: 256, n_eval: 8}";
    struct lab l = {.ctx = fr_ctx_create(), .o = {.n_sets = 1, .sets = &data}};
    snprintf(l.config, sizeof l.config, "%s/examples/demo.yaml", FR_SOURCE_DIR);
    snprintf(l.out, sizeof l.out, "%s/demo", (const char *)*state);
    l.o.config = l.config, l.o.out = l.out;
    assert_ok(l.ctx, fr_compare_open(l.ctx, &l.o, &l.c));
    assert_int_equal(l.c->n_cases, 7);
    for (int k = 0; k < 7; k++) {
        const struct fr__case *at = &l.c->cases[k];
        assert_int_equal(at->kind, k < 4 ? FR_KIND_MEASURED : FR_KIND_EMULATED);
        assert_ptr_equal(fr__case_baseline(l.c, at), &l.c->cases[k < 4 ? 0 : 4]);
    }
    close_lab(&l);
}

static fr_status try_open(void **state, fr_ctx *ctx)
{
    struct lab l = {.ctx = ctx, .o.columns = "train_loss"};
    const char *text;
    fr_status status = open_lab(state, "memory", grouped, &l);
    fr_compare_job job;
    if (status == FR_OK) status = fr_compare_next(l.c, &job);
    if (status == FR_OK) status = fr_compare_text(l.c, "table", &text);
    fr_compare_close(l.c);
    return status;
}

static void test_no_memory(void **state)
{
    fr_status status = FR_NO_MEMORY;
    for (int64_t n = 0; status != FR_OK && n < 100000; n = n + 1 + n / 8) {
        fr_ctx *ctx = fr_ctx_create();
        assert_non_null(ctx);
        fr__alloc_fail_after(n);
        status = try_open(state, ctx);
        fr__alloc_fail_after(-1);
        if (status != FR_OK) assert_int_equal(status, FR_NO_MEMORY);
        fr_ctx_free(ctx);
    }
    assert_int_equal(status, FR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_methods_alone),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_group_baselines),
        cmocka_unit_test(test_order_and_table),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_papers),
        cmocka_unit_test(test_demo),
    };
    return cmocka_run_group_tests(tests, support_dir_make, support_dir_remove);
}
