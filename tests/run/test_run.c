/* test_run.c -- whole runs through the public call: repeatable, resumable, stoppable, frugal. */
#include "base/alloc.h"
#include "base/thread.h"
#include "support/run_fixture.h"

#include <jansson.h>

static const char net[] =
    "model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}\n"
    "data: {name: synthetic, n: 100, n_eval: 50}\n"
    "train: {batch: 8, micro: 2, steps: 40, seed: 3,\n"
    "        optimizer: {name: sgd, lr: 0.1, momentum: 0.9}, schedule: {name: cosine, warmup: 4}}\n"
    "parallel: {backend: ref, threads: 1}\n"
    "run: {eval_every: 10}\n";

#define PIPELINE "parallel={method: spectrain, stages: 3, backend: ref, threads: 1}"
#define LONG "run={eval_every: -1}", "train.steps=400"

typedef struct watch {
    int64_t stop_at, n_calls;
    volatile int stop;
    uint64_t allocs_at_2, allocs_last;
    fr_progress last;
} watch;

static void on_progress(void *user, const fr_progress *p)
{
    watch *w = user;
    w->n_calls++;
    w->last = *p;
    if (p->step == w->stop_at) w->stop = 1;
    if (p->step == 2) w->allocs_at_2 = fr__alloc_count();
    if (p->step < p->n_steps) w->allocs_last = fr__alloc_count();
}

typedef struct job {
    const char *sets[8];
    const char *out; /* below the scratch folder */
    bool resume;
    int64_t dump_step, stop_at;
    const char *ledger; /* below the scratch folder */
    watch w;
    fr_run_result r;
    char folder[160];
} job;

static fr_status train(fixture *f, job *j)
{
    int n = 0;
    while (j->sets[n]) n++;
    snprintf(j->folder, sizeof j->folder, "%s/%s", f->dir, j->out);
    j->w = (watch){.stop_at = j->stop_at};
    char ledger[160];
    snprintf(ledger, sizeof ledger, "%s/%s", f->dir, j->ledger ? j->ledger : "");
    fr_run_options o = {.size = sizeof o,
                        .config = f->config,
                        .n_sets = n,
                        .sets = j->sets,
                        .out = j->folder,
                        .resume = j->resume,
                        .dump_step = j->dump_step,
                        .ledger = j->ledger ? ledger : NULL,
                        .progress = on_progress,
                        .user = &j->w,
                        .stop = &j->w.stop};
    return fr_train(f->ctx, &o, &j->r);
}

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, net);
    return 0;
}

static json_t *load_json(const char *folder, const char *name)
{
    char path[256];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *o = json_load_file(path, 0, &error);
    if (!o) fail_msg("%s: %s", path, error.text);
    return o;
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[256];
    size_t n, m;
    snprintf(path, sizeof path, "%s/%s", a, name);
    char *x = read_text(path, &n);
    snprintf(path, sizeof path, "%s/%s", b, name);
    char *y = read_text(path, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void test_same_seed_same_weights(void **state)
{
    fixture *f = *state;
    job a = {.out = "a"}, b = {.out = "b"}, c = {.out = "c", .sets = {"train.seed=4"}};
    assert_done(f, train(f, &a));
    assert_done(f, train(f, &b));
    assert_done(f, train(f, &c));
    assert_int_equal(strlen(a.r.weights_sha256), 64);
    assert_string_equal(a.r.weights_sha256, b.r.weights_sha256);
    assert_string_not_equal(a.r.weights_sha256, c.r.weights_sha256);
    assert_int_equal(a.w.n_calls, 40);
    assert_int_equal(a.r.samples, 320);
    assert_true(a.r.train_loss < 1.0 && a.r.eval_accuracy > 0.5); /* it learns: chance is 0.25 */
    assert_true(a.r.samples_per_s > 0 && a.r.wall_s > 0);
}

static void test_resume_is_bit_identical(void **state)
{
    fixture *f = *state;
    job whole = {.out = "whole"}, cut = {.out = "cut", .stop_at = 20};
    job rest = {.out = "cut", .resume = true};
    assert_done(f, train(f, &whole));
    assert_failed(f, train(f, &cut), FR_INTERRUPTED, "20 of 40", "--resume");
    assert_done(f, train(f, &rest));
    assert_int_equal(rest.w.n_calls, 20);
    assert_string_equal(rest.r.weights_sha256, whole.r.weights_sha256);
    assert_true(rest.r.train_loss == whole.r.train_loss);
    assert_true(rest.r.eval_loss == whole.r.eval_loss);
    assert_int_equal(rest.r.samples, whole.r.samples);
    assert_same_file(whole.folder, rest.folder, "checkpoint/step-40/model.safetensors");
    assert_same_file(whole.folder, rest.folder, "checkpoint/step-40/optimizer.safetensors");
    /* Losses of the two metrics files agree line by line. */
    char path[256];
    snprintf(path, sizeof path, "%s/metrics.jsonl", whole.folder);
    FILE *a = fopen(path, "r");
    snprintf(path, sizeof path, "%s/metrics.jsonl", rest.folder);
    FILE *b = fopen(path, "r");
    assert_true(a && b);
    double last_epoch = 0; /* begins with the mini-batch that starts at sample 304 of 4 x 100 */
    for (int i = 1; i <= 40; i++) {
        json_t *x = json_loadf(a, JSON_DISABLE_EOF_CHECK, NULL);
        json_t *y = json_loadf(b, JSON_DISABLE_EOF_CHECK, NULL);
        assert_true(x && y);
        assert_int_equal(json_integer_value(json_object_get(x, "step")), i);
        assert_true(json_equal(json_object_get(x, "loss"), json_object_get(y, "loss")));
        assert_true(json_equal(json_object_get(x, "lr"), json_object_get(y, "lr")));
        if (i > 38) last_epoch += json_real_value(json_object_get(x, "loss")) / 2;
        json_decref(x);
        json_decref(y);
    }
    assert_true(fabs(last_epoch - whole.r.train_loss) < 1e-12);
    fclose(a);
    fclose(b);
}

static void test_more_steps_later(void **state)
{
    fixture *f = *state;
    job whole = {.out = "whole", .sets = {"train.schedule.name=constant"}};
    job first = {.out = "two", .sets = {"train.schedule.name=constant", "train.steps=20"}};
    job rest = {.out = "two", .resume = true, .sets = {"train.schedule.name=constant"}};
    assert_done(f, train(f, &whole));
    assert_done(f, train(f, &first));
    assert_done(f, train(f, &rest));
    assert_string_equal(rest.r.weights_sha256, whole.r.weights_sha256);
    job again = {.out = "two", .resume = true, .sets = {"train.schedule.name=constant"}};
    assert_done(f, train(f, &again)); /* nothing left: same outcome, no mini-batch */
    assert_int_equal(again.w.n_calls, 0);
    assert_string_equal(again.r.weights_sha256, whole.r.weights_sha256);
    assert_true(again.r.eval_loss == whole.r.eval_loss);
    assert_true(again.r.train_loss == whole.r.train_loss);
}

static void test_used_folder_is_left_alone(void **state)
{
    fixture *f = *state;
    job a = {.out = "a"}, b = {.out = "a"};
    assert_done(f, train(f, &a));
    json_t *before = load_json(a.folder, "summary.json");
    assert_failed(f, train(f, &b), FR_INVALID, a.folder, "--resume", "--out");
    json_t *after = load_json(a.folder, "summary.json");
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

static void test_summary(void **state)
{
    fixture *f = *state;
    job a = {.out = "a"};
    assert_done(f, train(f, &a));
    json_t *o = load_json(a.folder, "summary.json");
    static const char *const keys[] = {"method",        "stages",         "replicas", "micro",
                                       "steps",         "samples",        "backend",  "train_loss",
                                       "eval_loss",     "eval_accuracy",  "wall_s",   "config",
                                       "samples_per_s", "weights_sha256", "forerun"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_object_get(o, keys[i])) fail_msg("summary.json has no %s", keys[i]);
    assert_string_equal(json_string_value(json_object_get(o, "weights_sha256")),
                        a.r.weights_sha256);
    assert_true(json_real_value(json_object_get(o, "eval_loss")) == a.r.eval_loss);
    json_t *w = json_array_get(json_object_get(o, "workers"), 0);
    double peak = (double)json_integer_value(json_object_get(w, "peak_bytes"));
    double predicted = (double)json_integer_value(json_object_get(w, "predicted_peak_bytes"));
    assert_true(peak > 0 && predicted > 0.97 * peak && predicted < 1.03 * peak);
    assert_true(json_real_value(json_object_get(w, "busy_s")) > 0);
    json_decref(o);
    /* The resolved config is a config: it gives the same run. */
    char config[256];
    snprintf(config, sizeof config, "%s/config.yaml", a.folder);
    job b = {.out = "b"};
    snprintf(f->config, sizeof f->config, "%.120s", config);
    assert_done(f, train(f, &b));
    assert_string_equal(b.r.weights_sha256, a.r.weights_sha256);
}

static void test_eval(void **state)
{
    fixture *f = *state;
    job a = {.out = "a", .sets = {"run.checkpoint_every=20"}};
    fr_run_result r;
    char step[200], newest[200];
    assert_done(f, train(f, &a));
    snprintf(newest, sizeof newest, "%s/checkpoint/step-40", a.folder);
    snprintf(step, sizeof step, "%s/checkpoint/step-20", a.folder);
    const char *places[] = {a.folder, newest, step};
    for (int i = 0; i < 3; i++) {
        fr_run_options o = {.size = sizeof o, .config = f->config, .checkpoint = places[i]};
        assert_done(f, fr_eval(f->ctx, &o, &r));
        assert_int_equal(strcmp(r.weights_sha256, a.r.weights_sha256) == 0, i < 2);
        assert_int_equal(r.eval_loss == a.r.eval_loss, i < 2);
        assert_int_equal(r.samples, 50);
    }
    fr_run_options o = {.size = sizeof o, .config = f->config, .checkpoint = f->dir};
    assert_failed(f, fr_eval(f->ctx, &o, &r), FR_INVALID, f->dir, "--checkpoint");
    volatile int stop = 1;
    o = (fr_run_options){
        .size = sizeof o, .config = f->config, .checkpoint = a.folder, .stop = &stop};
    assert_failed(f, fr_eval(f->ctx, &o, &r), FR_INTERRUPTED, "interrupted");
}

static void test_divergence_keeps_good_weights(void **state)
{
    fixture *f = *state;
    job a = {.out = "a", .sets = {"train.optimizer.lr=1e18"}};
    fr_run_result r;
    assert_failed(f, train(f, &a), FR_DIVERGED, "lr");
    json_t *o = load_json(a.folder, "summary.json");
    assert_string_equal(json_string_value(json_object_get(o, "status")), "diverged");
    json_decref(o);
    assert_non_null(strstr(f->log, "last good weights"));
    fr_run_options e = {.size = sizeof e, .config = f->config, .checkpoint = a.folder};
    assert_done(f, fr_eval(f->ctx, &e, &r)); /* it loads: not one weight is infinite */
}

/* Read a tensor of a dump as floats. */
static float *tensor(fixture *f, fr_tensors *t, const char *name, size_t *n)
{
    int at = fr_tensors_find(t, name);
    if (at < 0) fail_msg("the dump has no %s", name);
    const fr_tensor_info *info = fr_tensors_info(t, at);
    float *values = malloc(info->bytes);
    assert_non_null(values);
    assert_done(f, fr_tensors_read(t, at, values, info->bytes));
    *n = info->bytes / 4;
    return values;
}

/* sgd with momentum 0.9, recomputed from the dump. */
static void check_dump(fixture *f, const char *parallel)
{
    char out[64];
    snprintf(out, sizeof out, "dumped-%zu", strlen(parallel));
    job dumped = {.out = out, .dump_step = 3, .sets = {parallel}};
    assert_done(f, train(f, &dumped));
    char path[256];
    fr_tensors *t;
    snprintf(path, sizeof path, "%s/step-3.safetensors", dumped.folder);
    assert_done(f, fr_tensors_open(f->ctx, path, &t));
    assert_true(fr_tensors_find(t, "input") >= 0 && fr_tensors_find(t, "target") >= 0);
    assert_int_equal(fr_tensors_info(t, fr_tensors_find(t, "input"))->dim[0], 8);
    double lr = atof(fr_tensors_meta(t, "lr"));
    int n_checked = 0;
    for (int i = 0; i < fr_tensors_count(t); i++) {
        const char *name = fr_tensors_info(t, i)->name;
        char other[256];
        size_t n;
        if (strncmp(name, "param.", 6) != 0) continue;
        float *w = tensor(f, t, name, &n);
        snprintf(other, sizeof other, "grad.%s", name + 6);
        float *g = tensor(f, t, other, &n);
        snprintf(other, sizeof other, "state.%s.%s", fr_optim_find("sgd")->state_names[0],
                 name + 6);
        float *v = tensor(f, t, other, &n);
        snprintf(other, sizeof other, "param_after.%s", name + 6);
        float *after = tensor(f, t, other, &n);
        for (size_t k = 0; k < n; k++)
            assert_true(fabs(after[k] - (w[k] - lr * (0.9 * v[k] + g[k]))) < 1e-6);
        n_checked++;
        free(w);
        free(g);
        free(v);
        free(after);
    }
    assert_int_equal(n_checked, 6); /* three layers, weight and bias */
    fr_tensors_close(t);
}

static void test_dump(void **state)
{
    fixture *f = *state;
    job plain = {.out = "plain"}, dumped = {.out = "dumped", .dump_step = 3};
    assert_done(f, train(f, &plain));
    assert_done(f, train(f, &dumped));
    assert_string_equal(plain.r.weights_sha256, dumped.r.weights_sha256); /* it only reads */
    check_dump(f, "parallel={method: single, backend: ref, threads: 1}");
    check_dump(f, "parallel={method: zb-h1, stages: 3, backend: ref, threads: 1}");
    check_dump(f, "parallel={method: pipedream, stages: 3, backend: ref, threads: 1}");
    job late = {.out = "late", .dump_step = 41};
    assert_failed(f, train(f, &late), FR_INVALID, "41", "40");
    assert_int_equal(access(late.folder, F_OK), -1); /* nothing was made */
}

static void test_loop_allocates_nothing(void **state)
{
    fixture *f = *state;
    job jobs[] = {{.out = "a", .sets = {"run.eval_every=-1"}},
                  {.out = "b", .sets = {"run.eval_every=-1", "parallel.backend=cpu"}},
                  {.out = "c", .sets = {"run.eval_every=-1", PIPELINE}, .ledger = "ledger.csv"},
                  {.out = "d",
                   .sets = {"run.eval_every=-1", "parallel={method: 1f1b, stages: 3, threads: "
                                                 "1}"}}};
    for (int i = 0; i < 4; i++) {
        assert_done(f, train(f, &jobs[i]));
        assert_true(jobs[i].w.allocs_at_2 > 0);
        assert_int_equal(jobs[i].w.allocs_last, jobs[i].w.allocs_at_2);
    }
}

/* Saved by four stages, resumed by one or eight, and the reverse: the run of one worker. */
static void test_resume_with_other_stages(void **state)
{
    fixture *f = *state;
    static const char *const layouts[] = {"parallel={method: single, backend: ref, threads: 1}",
                                          "parallel={method: 1f1b, stages: 4, backend: ref, "
                                          "threads: 1}",
                                          "parallel={method: zb-h1, stages: 2, backend: ref, "
                                          "threads: 1}",
                                          "parallel={method: interleaved, stages: 4, backend: "
                                          "ref, threads: 1}"};
    job whole = {.out = "whole"};
    assert_done(f, train(f, &whole));
    for (int i = 0; i < 4; i++) {
        char out[16];
        snprintf(out, sizeof out, "cut%d", i);
        job cut = {.out = out, .stop_at = 20, .sets = {layouts[i]}};
        job rest = {.out = out, .resume = true, .sets = {layouts[(i + 1) % 4]}};
        assert_failed(f, train(f, &cut), FR_INTERRUPTED, "20 of 40");
        assert_done(f, train(f, &rest));
        assert_string_equal(rest.r.weights_sha256, whole.r.weights_sha256);
        assert_true(rest.r.train_loss == whole.r.train_loss);
        assert_true(fabs(rest.r.eval_loss - whole.r.eval_loss) < 1e-12);
        assert_true(rest.r.eval_accuracy == whole.r.eval_accuracy);
        assert_same_file(whole.folder, rest.folder, "checkpoint/step-40/model.safetensors");
        assert_same_file(whole.folder, rest.folder, "checkpoint/step-40/optimizer.safetensors");
    }
}

/* Stopped between two drains: open mini-batches are finished, and logged. */
static void test_stop_in_full_flight(void **state)
{
    fixture *f = *state;
    /* workers are ahead of the report by at most one ring of records, so they cannot reach the end
     */
    job cut = {.out = "cut", .stop_at = 7, .sets = {PIPELINE, LONG}};
    job rest = {.out = "cut", .resume = true, .sets = {PIPELINE, LONG}};
    assert_failed(f, train(f, &cut), FR_INTERRUPTED, "of 400", "--resume");
    assert_true(cut.r.steps >= 7 && cut.r.steps < 400);
    assert_int_equal(cut.w.n_calls, cut.r.steps);
    assert_int_equal(cut.r.samples, 8 * cut.r.steps);
    assert_done(f, train(f, &rest));
    assert_int_equal(rest.w.n_calls, 400 - cut.r.steps);
}

/* An asynchronous run resumed from its own checkpoint is the same run: it had drained there too. */
static void test_async_resume(void **state)
{
    fixture *f = *state;
    job whole = {.out = "whole", .sets = {PIPELINE, "run.checkpoint_every=20"}};
    job cut = {.out = "cut", .stop_at = 20, .sets = {PIPELINE, "run.checkpoint_every=20"}};
    job rest = {.out = "cut", .resume = true, .sets = {PIPELINE, "run.checkpoint_every=20"}};
    assert_done(f, train(f, &whole));
    assert_failed(f, train(f, &cut), FR_INTERRUPTED, "20 of 40");
    assert_done(f, train(f, &rest));
    assert_string_equal(rest.r.weights_sha256, whole.r.weights_sha256);
}

static void test_ledger_file(void **state)
{
    fixture *f = *state;
    char path[160], first[64], line[64];
    job a = {.out = "a", .ledger = "ledger.csv", .sets = {PIPELINE}};
    assert_done(f, train(f, &a));
    snprintf(path, sizeof path, "%s/ledger.csv", f->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(first, sizeof first, file));
    assert_string_equal(first, "stage,replica,micro,pass,version,predict,live\n");
    int n = 0, n_back = 0;
    while (fgets(line, sizeof line, file)) {
        int stage, replica, micro, version, ahead, live, used = 0;
        char pass;
        int got = sscanf(line, "%d,%d,%d,%c,%d,%d,%n%d", &stage, &replica, &micro, &pass, &version,
                         &ahead, &used, &live);
        if (got != (pass == 'B' ? 7 : 6)) fail_msg("line %d: %s", n + 2, line);
        if (pass == 'F') assert_string_equal(line + used, "\n");
        if (pass == 'B') assert_int_equal(live, micro / 2);
        assert_true(stage >= 0 && stage < 3 && replica == 0 && micro < 80);
        n++, n_back += pass == 'B';
    }
    fclose(file);
    assert_int_equal(n, 3 * 80 * 2);
    assert_int_equal(n_back, n / 2);
}

/* A worker that fails ends the run; the results so far can be read. */
static void test_failed_worker(void **state)
{
    fixture *f = *state;
    char path[160];
    job a = {.out = "a",
             .ledger = "ledger.csv",
             .sets = {PIPELINE, "run.fault='error:worker=1,step=6'", "run.eval_every=-1"}};
    assert_failed(f, train(f, &a), FR_PEER, "worker 1", "stage 1", "mini-batch 6", "fault");
    json_t *o = load_json(a.folder, "summary.json");
    assert_string_equal(json_string_value(json_object_get(o, "status")), "failed");
    assert_true(json_is_null(json_object_get(o, "weights_sha256")));
    json_decref(o);
    snprintf(path, sizeof path, "%s/ledger.csv", f->dir);
    assert_int_equal(access(path, F_OK), 0);
    job gone = {.out = "b", .sets = {PIPELINE, "run.fault='error:worker=3'"}};
    assert_failed(f, train(f, &gone), FR_INVALID, "worker 3", "0 to 2", "--set run.fault");
}

static double number(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) fail_msg("%s is no number", key);
    return json_number_value(v);
}

/* The parts of a forecast error: the times of the stages, and the clock. */
static void test_parts_of_error(void **state)
{
    fixture *f = *state;
    job a = {.out = "a", .sets = {"parallel={method: 1f1b, stages: 2, threads: 1}"}};
    assert_done(f, train(f, &a));
    json_t *o = load_json(a.folder, "summary.json");
    if (fr__cpu_count() < 2) { /* the two alternate, and the order is not determined */
        assert_null(json_object_get(o, "cost_error"));
    } else {
        double replayed = number(o, "replayed_s_per_batch");
        assert_true(replayed > 0 && isfinite(replayed));
        double both = (1 + number(o, "cost_error")) * (1 + number(o, "schedule_error")) - 1;
        assert_true(fabs(both - number(o, "prediction_error")) < 1e-9);
    }
    json_decref(o);
}

/* The summary of a pipeline. */
static void test_summary_of_pipeline(void **state)
{
    fixture *f = *state;
    job a = {.out = "a", .sets = {PIPELINE}};
    assert_done(f, train(f, &a));
    json_t *o = load_json(a.folder, "summary.json"), *worker, *stage;
    json_t *b = json_object_get(o, "bubble");
    double parts = number(b, "fill_drain") + number(b, "imbalance") + number(b, "communication");
    assert_true(fabs(number(b, "share") - parts) < 1e-9);
    assert_true(number(b, "share") > 0 && number(b, "share") < 1 && number(b, "optimizer") > 0);
    assert_true(number(o, "predicted_s_per_batch") > 0);
    assert_true(number(o, "measured_s_per_batch") > 0);
    size_t i;
    json_array_foreach(json_object_get(o, "workers"), i, worker)
    {
        assert_true(number(worker, "busy_s") > 0 && number(worker, "wait_s") >= 0);
        assert_true(number(worker, "comm_s") >= 0);
        assert_true(number(worker, "peak_bytes") == number(worker, "predicted_peak_bytes"));
        assert_int_equal(number(worker, "weight_copies"), 2);
        assert_int_equal(json_array_size(json_object_get(worker, "stages")), 1);
    }
    assert_int_equal(i, 3);
    json_array_foreach(json_object_get(o, "per_stage"), i, stage)
    {
        json_t *p = json_object_get(stage, "prediction");
        assert_true(number(stage, "forward_s") > 0 && number(stage, "backward_s") > 0);
        assert_true(number(stage, "worker") == (double)i);
        assert_non_null(json_object_get(stage, "first"));
        assert_non_null(json_object_get(stage, "last"));
        assert_true(number(p, "predicted_rmse") > 0 && number(p, "stale_rmse") > 0);
        assert_true(number(p, "ahead") >= 1);
    }
    json_decref(o);
    json_t *trace = load_json(a.folder, "trace.json");
    assert_true(json_array_size(json_object_get(trace, "traceEvents")) > 3 * 40 * 2 * 2);
    json_decref(trace);
    job quiet = {.out = "b", .sets = {PIPELINE, "run.trace=0"}};
    assert_done(f, train(f, &quiet));
    char path[256];
    snprintf(path, sizeof path, "%s/trace.json", quiet.folder);
    assert_int_equal(access(path, F_OK), -1);
}

/* Many workers make a long summary. */
static void test_summary_of_many(void **state)
{
    fixture *f = *state;
    job a = {.out = "a",
             .sets = {"parallel={method: gpipe, stages: 64, backend: ref, threads: 1}",
                      "model.depth=40", "train.steps=2"}};
    assert_done(f, train(f, &a));
    json_t *o = load_json(a.folder, "summary.json");
    assert_int_equal(json_array_size(json_object_get(o, "workers")), 64);
    assert_int_equal(json_integer_value(json_object_get(o, "n_workers")), 64);
    json_t *stages = json_object_get(o, "per_stage"), *stage;
    size_t k;
    json_int_t n = 0;
    assert_int_equal(json_array_size(stages), 64);
    json_array_foreach(stages, k, stage) n +=
        json_integer_value(json_object_get(stage, "parameters"));
    assert_int_equal(n, json_integer_value(json_object_get(o, "parameters")));
    json_decref(o);
}

/* Every allocation in turn fails: always an error, never a crash, and the folder stays usable. */
static void test_out_of_memory(void **state)
{
    fixture *f = *state;
    fr_status status = FR_NO_MEMORY;
    int n = 0;
    /* The forecast, which takes most of the time, is the same on any backend. */
    const char *forecast = getenv("FR_BACKEND") ? "run.predict=false" : "run.predict_s=0.001";
    for (; status != FR_OK; n++) {
        job a = {.out = "a",
                 .resume = true,
                 .sets = {"train.steps=2", forecast, "train.optimizer={name: muon}"}};
        assert_true(n < 5000);
        fr__alloc_fail_after(n);
        status = train(f, &a);
        fr__alloc_fail_after(-1);
        if (status != FR_OK) assert_int_equal(status, FR_NO_MEMORY);
        fr_ctx_clear(f->ctx);
        f->log[0] = '\0';
    }
    print_message("%d allocations failed\n", n);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_seed_same_weights, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_resume_is_bit_identical, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_more_steps_later, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_used_folder_is_left_alone, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_summary, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_eval, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_divergence_keeps_good_weights, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_dump, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_resume_with_other_stages, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_stop_in_full_flight, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_async_resume, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_ledger_file, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_failed_worker, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_parts_of_error, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_summary_of_pipeline, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_summary_of_many, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_loop_allocates_nothing, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_out_of_memory, setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
