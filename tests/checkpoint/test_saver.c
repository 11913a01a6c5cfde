/* test_saver.c -- checkpoints written during training: reported when complete, in order, pruned;
 * and a run whose disk is full. */
#include "support/run_fixture.h"

#include <signal.h>
#include <sys/resource.h>

static const char net[] =
    "model: {name: mlp, inputs: 64, depth: 2, width: 256, classes: 4}\n" /* 340 kB */
    "data: {name: synthetic, n: 100, n_eval: 20}\n"
    "train: {batch: 8, micro: 2, steps: 30, seed: 3, optimizer: {name: sgd, lr: 0.01, momentum: "
    "0.9}}\n"
    "parallel: {backend: ref, threads: 1}\n"
    "run: {eval_every: -1, keep: 2, checkpoint_every: 5}\n";

enum { SMALL = 100000 }; /* bytes: metrics fit, a model does not */

typedef struct watch {
    int n_told;
    int64_t told[64]; /* steps whose checkpoints were reported */
    int64_t full_at;  /* the disk is full after the report of this step's checkpoint; 0: never */
    int64_t last;     /* step reported last */
} watch;

static void set_limit(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void on_progress(void *user, const fr_progress *p)
{
    watch *w = user;
    w->last = p->step;
    if (!p->checkpoint) return;
    char path[256];
    long long step;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", p->checkpoint, files[i]);
        assert_int_equal(access(path, R_OK), 0); /* a reported checkpoint exists */
    }
    assert_int_equal(sscanf(strrchr(p->checkpoint, '/'), "/step-%lld", &step), 1);
    assert_true(step <= p->step && w->n_told < 64);
    w->told[w->n_told++] = step;
    if (step == w->full_at) set_limit(SMALL);
}

static fr_status train(fixture *f, watch *w, bool resume, const char *set)
{
    fr_run_result r;
    fr_run_options o = {.size = sizeof o,
                        .config = f->config,
                        .n_sets = set != NULL,
                        .sets = &set,
                        .out = f->out,
                        .resume = resume,
                        .progress = on_progress,
                        .user = w};
    return fr_train(f->ctx, &o, &r);
}

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, net);
    signal(SIGXFSZ, SIG_IGN); /* then a write beyond the limit fails as on a full disk */
    return 0;
}

static bool is_there(const fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoint/%s", f->out, name);
    return access(path, F_OK) == 0;
}

static void test_told_in_order(void **state)
{
    fixture *f = *state;
    watch w = {0};
    assert_done(f, train(f, &w, false, NULL));
    /* Reports may be late, and the last but one may be missing, but none comes twice. */
    assert_int_in_range(w.n_told, 5, 6);
    for (int i = 0; i < 4; i++) assert_int_equal(w.told[i], 5 * (i + 1));
    assert_int_equal(w.told[w.n_told - 1], 30);
    assert_true(is_there(f, "step-30") && is_there(f, "step-25") && !is_there(f, "step-20"));
    assert_non_null(strstr(f->log, "written from a copy"));
}

/* One after each update: each waits for the one before. */
static void test_as_often_as_can_be(void **state)
{
    fixture *f = *state;
    watch w = {0};
    assert_done(f, train(f, &w, false, "run={checkpoint_every: 1, keep: 3, eval_every: -1}"));
    assert_int_in_range(w.n_told, 29, 30);
    for (int i = 0; i < 28; i++) assert_int_equal(w.told[i], i + 1);
    assert_true(is_there(f, "step-28") && !is_there(f, "step-27"));
}

/* The disk fills up during the run: it ends soon with an error, and keeps older checkpoints. */
static void check_full_disk(fixture *f, const char *set)
{
    watch w = {.full_at = 10}, rest = {0};
    fr_status status = train(f, &w, false, set);
    set_limit(RLIM_INFINITY);
    assert_failed(f, status, FR_IO, f->out, "safetensors", "--resume");
    assert_true(w.last >= 15 && w.last < 30 && (is_there(f, "step-10") || is_there(f, "step-15")));
    assert_false(is_there(f, ".tmp-step-15") || is_there(f, ".tmp-step-20"));
    assert_done(f, train(f, &rest, true, set));
    assert_non_null(strstr(f->log, "resuming from"));
    assert_true(is_there(f, "step-30") && is_there(f, "step-25"));
}

static void test_full_disk(void **state) { check_full_disk(*state, NULL); }

static void test_full_disk_of_pipeline(void **state)
{
    check_full_disk(*state, "parallel={method: spectrain, stages: 2, replicas: 2, backend: ref, "
                            "threads: 1}");
}

/* The only checkpoint is the last, and there is no room for it. */
static void test_full_at_the_end(void **state)
{
    fixture *f = *state;
    watch w = {0};
    set_limit(SMALL);
    fr_status status = train(f, &w, false, "run.checkpoint_every=0");
    set_limit(RLIM_INFINITY);
    assert_failed(f, status, FR_IO, f->out, "step-30", "safetensors");
    assert_false(is_there(f, "step-30") || is_there(f, ".tmp-step-30"));
    assert_int_equal(w.n_told, 0);
}

/* A worker fails while a checkpoint is being written: copy and checkpoint are whole. */
static void test_failed_worker(void **state)
{
    fixture *f = *state;
    watch w = {0};
    const char *set = "run={checkpoint_every: 5, eval_every: -1, fault: 'error:worker=0,step=10'}";
    assert_failed(f, train(f, &w, false, set), FR_PEER, "worker 0", "step-10 is whole");
    assert_true(is_there(f, "step-10"));
}

/* A state too large to copy: training waits while it is read, and the file has a single version. */
static void test_read_in_place(void **state)
{
    fixture *f = *state;
    char whole[65], path[256];
    watch w = {0};
    fr_run_result r;
    write_text(f->config,
               "model: {name: mlp, inputs: 64, depth: 2, width: 3000, classes: 4}\n" /* 37 MB */
               "data: {name: synthetic, n: 100, n_eval: 20}\n"
               "train: {batch: 4, steps: 2, optimizer: {name: sgd, lr: 0.01, momentum: 0.9}}\n"
               "parallel: {threads: 1}\n"
               "run: {eval_every: -1, checkpoint_every: 1, predict: false}\n");
    fr_run_options o = {.size = sizeof o,
                        .config = f->config,
                        .out = f->out,
                        .progress = on_progress,
                        .user = &w,
                        .resume = false};
    assert_done(f, fr_train(f->ctx, &o, &r));
    assert_non_null(strstr(f->log, "training waits until it has been read"));
    snprintf(whole, sizeof whole, "%s", r.weights_sha256);
    snprintf(path, sizeof path, "%s/checkpoint/step-2/state.json", f->out);
    assert_int_equal(remove(path), 0); /* the run continues from step 1 */
    o.resume = true;
    assert_done(f, fr_train(f->ctx, &o, &r));
    assert_non_null(strstr(f->log, "step-1"));
    assert_string_equal(whole, r.weights_sha256);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_told_in_order),         RUN(test_as_often_as_can_be), RUN(test_full_disk),
        RUN(test_full_disk_of_pipeline), RUN(test_full_at_the_end),    RUN(test_failed_worker),
        RUN(test_read_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
