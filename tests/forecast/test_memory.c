/* test_memory.c -- the memory forecast of a run, and the refusal of one that is too large: on
 * simulated machines (their /proc and /sys are folders of the test), and on this one. */
#include "forecast/fits.h"
#include "support/run_fixture.h"

#include "base/thread.h"

static const char net[] =
    "model: {name: gpt, layers: 4, width: 32, heads: 2, context: 64, vocab: 50, tied: true}\n"
    "data: {name: synthetic, n: 256, n_eval: 8}\n"
    "train: {batch: 32, steps: 4, seed: 3, optimizer: {name: adamw, lr: 0.001}}\n"
    "parallel: {backend: ref, threads: 1}\n"
    "run: {eval_every: -1, predict: false}\n";

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, net);
    return 0;
}

static void put(const fixture *f, const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->dir, folder);
    for (char *at = path + strlen(f->dir) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(path, 0777);
        *at = '/';
    }
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", f->dir, folder, name);
    write_text(path, text);
}

/* Sets the available memory of the machine. */
static void put_room(const fixture *f, size_t bytes)
{
    char text[64];
    snprintf(text, sizeof text, "MemAvailable: %zu kB\n", bytes / 1024);
    put(f, "proc", "meminfo", text);
}

/* The run is planned on the simulated machine; *needs (may be NULL): bytes that it would take. */
static fr_status plan(fixture *f, int n_sets, const char *const *sets, size_t *needs)
{
    fr__setup s;
    fr_engine *e;
    fr__footprint footprint = {0};
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = n_sets, .sets = sets, .out = f->out};
    FR_TRY(fr__setup_open(f->ctx, &o, &s));
    s.system_root = f->dir;
    fr_status status = fr__setup_pipeline(&s);
    if (status == FR_OK) {
        fr_engine_desc d = fr__setup_train_desc(&s, false, false);
        status = fr__memory_plan(&s, &d, &footprint, &e);
        if (status == FR_OK) fr_engine_free(e);
    }
    if (needs) *needs = footprint.total - footprint.base;
    fr__setup_close(&s);
    return status;
}

static size_t need_of(fixture *f, int n_sets, const char *const *sets)
{
    size_t needs = 0;
    put_room(f, (size_t)1 << 40);
    assert_done(f, plan(f, n_sets, sets, &needs));
    return needs;
}

/* The proposed number fits, and half of it does not. */
static void check_micro(fixture *f, size_t room)
{
    put_room(f, room);
    assert_int_equal(plan(f, 0, NULL, NULL), FR_NO_MEMORY);
    const char *at = strstr(fr_ctx_error(f->ctx), "this would fit: train.micro: ");
    long long micro = 0;
    if (!at || sscanf(at, "this would fit: train.micro: %lld", &micro) != 1)
        fail_msg("no number of micro-batches in: %s", fr_ctx_error(f->ctx));
    assert_non_null(strstr(fr_ctx_error(f->ctx), "run.memory: warn"));
    fr_ctx_clear(f->ctx);
    assert_true(micro > 1 && micro <= 32);
    for (int k = 0; k < 2; k++) {
        char set[64];
        const char *const sets[] = {set};
        snprintf(set, sizeof set, "train.micro=%lld", k ? micro / 2 : micro);
        assert_int_equal(plan(f, 1, sets, NULL), k ? FR_NO_MEMORY : FR_OK);
        fr_ctx_clear(f->ctx);
    }
}

static void test_more_micro_batches(void **state)
{
    fixture *f = *state;
    const char *const smallest[] = {"train.micro=32"};
    size_t most = need_of(f, 0, NULL), least = need_of(f, 1, smallest);
    for (size_t part = 1; part <= 64; part *= 2) check_micro(f, least + (most - 1 - least) / part);
}

/* For a pipeline whose memory is mostly activations. */
static void test_recompute(void **state)
{
    fixture *f = *state;
    const char *const sets[] = {"parallel.method=gpipe", "parallel.stages=2", "train.micro=32",
                                "parallel.recompute=true"};
    size_t whole = need_of(f, 3, sets), less = need_of(f, 4, sets);
    assert_true(less < whole);
    put_room(f, (whole + less) / 2);
    assert_failed(f, plan(f, 3, sets, NULL), FR_NO_MEMORY,
                  "this would fit: parallel.recompute: true (");
    assert_done(f, plan(f, 4, sets, NULL));
    const char *some[] = {sets[0], sets[1], sets[2], "parallel.recompute=['h.*.mlp.*']"};
    size_t between = need_of(f, 4, some);
    assert_true(less < between && between < whole);
}

/* Weights and what belongs to them are too much for one. */
static void test_more_machines(void **state)
{
    fixture *f = *state;
    const char *const sets[] = {"model.width=256", "train.batch=4", "model.layers=6"};
    size_t whole = need_of(f, 3, sets);
    put_room(f, whole / 2);
    assert_failed(f, plan(f, 3, sets, NULL), FR_NO_MEMORY,
                  "parallel: {method: 1f1b, stages: ", "train.micro: 4",
                  "machines with as much memory");
    put_room(f, whole / 400);
    assert_failed(f, plan(f, 3, sets, NULL), FR_NO_MEMORY, "no layout that was tried fits",
                  "machines");
}

/* A pipeline that one machine cannot hold, several can. */
static void test_workers_apart(void **state)
{
    fixture *f = *state;
    const char *const sets[] = {"model.width=256", "train.batch=4", "train.micro=4",
                                "parallel.method=1f1b", "parallel.stages=4"};
    size_t whole = need_of(f, 5, sets);
    put_room(f, whole * 3 / 4);
    assert_failed(f, plan(f, 5, sets, NULL), FR_NO_MEMORY,
                  "this would fit: one process for each worker (mpirun -n 4) on ", " machines");
}

static void test_control_group(void **state)
{
    fixture *f = *state;
    size_t whole = need_of(f, 0, NULL);
    char text[64];
    put(f, "proc/self", "cgroup", "0::/job\n");
    put(f, "sys/fs/cgroup/job", "memory.current", "1000\n");
    snprintf(text, sizeof text, "%zu\n", whole + 1000);
    put(f, "sys/fs/cgroup/job", "memory.max", text);
    assert_done(f, plan(f, 0, NULL, NULL));
    snprintf(text, sizeof text, "%zu\n", whole + 999);
    put(f, "sys/fs/cgroup/job", "memory.max", text);
    assert_failed(f, plan(f, 0, NULL, NULL), FR_NO_MEMORY, "in its control group");
}

static void test_warned_only(void **state)
{
    fixture *f = *state;
    const char *const sets[] = {"run.memory=warn"};
    put_room(f, need_of(f, 0, NULL) / 2);
    assert_done(f, plan(f, 1, sets, NULL));
    assert_non_null(strstr(f->log, "this would fit: train.micro: "));
    const char *const wrong[] = {"run.memory=maybe"};
    assert_failed(f, plan(f, 1, wrong, NULL), FR_INVALID, "run.memory", "refuse");
}

/* An emulated run measures the whole model first, on all cores at once. */
static void test_measuring_counts(void **state)
{
    fixture *f = *state;
    char cluster[256];
    const char *const sets[] = {"model.width=256", "train.batch=2", cluster};
    snprintf(cluster, sizeof cluster, "%s/box.yaml", f->dir);
    write_text(cluster, "name: box\ndevices: {count: 1, speed: 1, memory: 100 GB}\n");
    snprintf(cluster, sizeof cluster, "parallel.cluster=%s/box.yaml", f->dir);
    size_t plain = need_of(f, 2, sets), emulated = need_of(f, 3, sets);
    if (fr__cpu_count() == 1) {
        print_message("skipped: with one core nothing is measured at once\n");
        return;
    }
    assert_true(emulated > plain);
    put_room(f, plain + 1024);
    assert_failed(f, plan(f, 3, sets, NULL), FR_NO_MEMORY, "parallel.profile");
}

/* Terabytes: refused without allocating them, and nothing is written. */
static void test_refused_at_once(void **state)
{
    fixture *f = *state;
    const char *const sets[] = {"model.layers=96", "model.width=12288", "model.heads=96",
                                "model.vocab=50257"};
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = 4, .sets = sets, .out = f->out};
    size_t before = fr__peak_rss();
    assert_failed(f, fr_train(f->ctx, &o, NULL), FR_NO_MEMORY, "the run needs 2.9", " TB");
    assert_true(fr__peak_rss() - before < (size_t)100 << 20);
    assert_int_not_equal(access(f->out, F_OK), 0);
    fr_run_result r;
    assert_failed(f, fr_eval(f->ctx, &o, &r), FR_NO_MEMORY, "the run needs");
}

/* The summary has the forecast beside the actual memory. */
static void test_summary(void **state)
{
    fixture *f = *state;
    char path[256];
    const char *const sets[] = {"train.batch=2", "train.steps=2"};
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = 2, .sets = sets, .out = f->out};
    assert_done(f, fr_train(f->ctx, &o, NULL));
    assert_non_null(strstr(f->log, "memory of the process: up to "));
    snprintf(path, sizeof path, "%s/summary.json", f->out);
    char *text = read_text(path, NULL);
    const char *at = strstr(text, "\"memory\": {");
    unsigned long long base, engine, host, measuring, total;
    assert_non_null(at);
    assert_int_equal(sscanf(at,
                            "\"memory\": { \"base_bytes\": %llu, \"engine_bytes\": %llu, "
                            "\"host_bytes\": %llu, \"measuring_bytes\": %llu, "
                            "\"predicted_resident_bytes\": %llu",
                            &base, &engine, &host, &measuring, &total),
                     5);
    assert_true(base > 0 && engine > 0 && host > 0 && measuring == 0);
    assert_int_equal(total, base + engine + host);
    free(text);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_more_micro_batches), RUN(test_recompute),       RUN(test_more_machines),
        RUN(test_workers_apart),      RUN(test_control_group),   RUN(test_warned_only),
        RUN(test_measuring_counts),   RUN(test_refused_at_once), RUN(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
