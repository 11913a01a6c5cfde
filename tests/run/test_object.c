/* test_object.c -- the run as an object: the weights of fr_train for any sizes of steps, outputs
 * against a formula, parameters by name, checkpoints, and no file that was not requested. */
#include "base/alloc.h"
#include "support/run_fixture.h"

#include <dirent.h>

enum { INPUTS = 6, WIDTH = 10, CLASSES = 4, BATCH = 8, STEPS = 30 };

static const char net[] =
    "model: {name: mlp, inputs: 6, depth: 2, width: 10, classes: 4}\n"
    "data: {name: synthetic, n: 100, n_eval: 50}\n"
    "train: {batch: 8, micro: 2, steps: 30, seed: 3, optimizer: {name: sgd, lr: 0.1, momentum: "
    "0.9}}\n"
    "parallel: {backend: ref, threads: 1}\n"
    "run: {eval_every: 10}\n";

#define FLUSH "parallel={method: 1f1b, stages: 2, backend: ref, threads: 1}"
#define ASYNC "parallel={method: spectrain, stages: 3, backend: ref, threads: 1}"

static const char *const params[] = {"fc.0.weight", "fc.0.bias",   "fc.1.weight",
                                     "fc.1.bias",   "head.weight", "head.bias"};
static const int64_t counts[] = {WIDTH * INPUTS, WIDTH,          WIDTH *WIDTH,
                                 WIDTH,          CLASSES *WIDTH, CLASSES};
enum { N_PARAMS = sizeof params / sizeof *params };

typedef struct weights {
    float at[N_PARAMS][WIDTH * WIDTH];
} weights;

static fr_run *open_net(fixture *f, const fr_run_options *more, const char *set)
{
    fr_run_options o = *more;
    fr_run *r;
    o.size = sizeof o;
    if (!o.config && !o.config_text) o.config_text = net;
    if (set) o.n_sets = 1, o.sets = &set;
    assert_done(f, fr_run_open(f->ctx, &o, &r));
    return r;
}

static void read_all(fixture *f, fr_run *r, weights *w)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < N_PARAMS; i++)
        assert_done(f, fr_run_get_param(r, params[i], counts[i], w->at[i]));
}

static void close_run(fixture *f, fr_run *r, fr_run_result *result)
{
    assert_done(f, fr_run_close(r, result));
}

/* The result of fr_train. */
static fr_run_result train_whole(fixture *f, const char *name, const char *set, bool resume)
{
    char out[160];
    fr_run_result result;
    snprintf(out, sizeof out, "%s/%s", f->dir, name);
    fr_run_options o = {.size = sizeof o,
                        .config_text = net,
                        .out = out,
                        .n_sets = set != NULL,
                        .sets = &set,
                        .resume = resume};
    assert_done(f, fr_train(f->ctx, &o, &result));
    return result;
}

/* With a folder, which has the hash of the weights; by steps of n mini-batches. */
static fr_run_result train_stepped(fixture *f, const char *name, const char *set, int64_t n)
{
    char out[160];
    fr_run_result result;
    int64_t n_done, sum = 0;
    snprintf(out, sizeof out, "%s/%s", f->dir, name);
    fr_run *r = open_net(f, &(fr_run_options){.out = out}, set);
    while (!fr_run_is_over(r)) {
        assert_done(f, fr_run_step(r, n, &n_done));
        assert_true(n_done > 0 && (n == 0 || n_done <= n));
        sum += n_done;
    }
    assert_int_equal(sum, STEPS);
    assert_done(f, fr_run_step(r, n, &n_done)); /* nothing is left */
    assert_int_equal(n_done, 0);
    close_run(f, r, &result);
    return result;
}

static void test_steps_are_training(void **state)
{
    fixture *f = *state;
    fr_run_result whole = train_whole(f, "whole", FLUSH, false);
    static const int64_t sizes[] = {0, 1, 7, 10, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[32];
        snprintf(name, sizeof name, "by-%d", (int)sizes[i]);
        fr_run_result r = train_stepped(f, name, FLUSH, sizes[i]);
        assert_string_equal(r.weights_sha256, whole.weights_sha256);
        assert_true(r.train_loss == whole.train_loss && r.eval_loss == whole.eval_loss);
        assert_int_equal(r.steps, STEPS);
    }
    /* An asynchronous pipeline drains at the end of a step. */
    whole = train_whole(f, "async", ASYNC, false);
    assert_string_equal(train_stepped(f, "async-0", ASYNC, 0).weights_sha256, whole.weights_sha256);
    assert_string_equal(train_stepped(f, "async-10", ASYNC, 10).weights_sha256,
                        whole.weights_sha256);
    assert_string_not_equal(train_stepped(f, "async-1", ASYNC, 1).weights_sha256,
                            whole.weights_sha256);
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

/* From a file, without a folder: the same weights, and nothing on the disk. */
static void test_no_folder_no_files(void **state)
{
    fixture *f = *state;
    char before[4096];
    weights with, without;
    fr_run_result result;
    write_text(f->config, net);
    fr_run *r = open_net(f, &(fr_run_options){.out = f->out, .config = f->config}, ASYNC);
    assert_done(f, fr_run_step(r, STEPS, NULL));
    read_all(f, r, &with);
    close_run(f, r, &result);
    assert_string_equal(result.out, f->out);
    nftw(f->out, fixture_remove, 16, FTW_DEPTH | FTW_PHYS);

    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->dir), 0);
    r = open_net(f, &(fr_run_options){.config = f->config, .want_outputs = true}, ASYNC);
    assert_done(f, fr_run_step(r, STEPS, NULL));
    read_all(f, r, &without);
    close_run(f, r, &result);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(count_files(f->dir), 1); /* the config */
    assert_memory_equal(&with, &without, sizeof with);
    assert_string_equal(result.out, "");
    assert_int_equal(result.steps, STEPS);
    assert_true(result.eval_accuracy > 0.4); /* chance is 0.25 */
}

static void layer(const float *w, const float *b, int n_in, int n_out, bool relu, const float *x,
                  float *y)
{
    for (int i = 0; i < n_out; i++) {
        double sum = b[i];
        for (int k = 0; k < n_in; k++) sum += (double)w[i * n_in + k] * x[k];
        y[i] = relu && sum < 0 ? 0 : (float)sum;
    }
}

/* Outputs for any number of samples are those of the formula, with the weights as they are. */
static void check_outputs(fixture *f, fr_run *r, int n)
{
    weights w;
    float x[40][INPUTS], y[40 * CLASSES + 1], h[2][WIDTH], wanted[CLASSES];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < INPUTS; k++) x[i][k] = (float)((i * 7 + k * 3) % 11) / 5 - 1;
    y[n * CLASSES] = 77;
    read_all(f, r, &w);
    assert_int_equal(fr_run_output_count(r), CLASSES);
    assert_done(f, fr_run_predict(r, n, x, NULL, y));
    for (int i = 0; i < n; i++) {
        layer(w.at[0], w.at[1], INPUTS, WIDTH, true, x[i], h[0]);
        layer(w.at[2], w.at[3], WIDTH, WIDTH, true, h[0], h[1]);
        layer(w.at[4], w.at[5], WIDTH, CLASSES, false, h[1], wanted);
        for (int k = 0; k < CLASSES; k++)
            assert_true(fabsf(y[i * CLASSES + k] - wanted[k]) < 1e-5f);
    }
    assert_true(y[n * CLASSES] == 77); /* not one more is written */
}

static void test_outputs(void **state)
{
    fixture *f = *state;
    static const char *const sets[] = {NULL, FLUSH, ASYNC,
                                       "parallel={method: dp, replicas: 2, threads: 1}"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        fr_run *r = open_net(f, &(fr_run_options){.want_outputs = true}, sets[i]);
        check_outputs(f, r, 3);
        assert_done(f, fr_run_step(r, 12, NULL));
        check_outputs(f, r, 0);
        check_outputs(f, r, BATCH);
        check_outputs(f, r, 4 * BATCH + 3);
        float bias[CLASSES] = {1, -2, 3, -4};
        assert_done(f, fr_run_set_param(r, "head.bias", CLASSES, bias));
        check_outputs(f, r, 9);
        close_run(f, r, NULL);
    }
    fr_run *r = open_net(f, &(fr_run_options){0}, NULL);
    float x[INPUTS] = {0}, y[CLASSES];
    assert_failed(f, fr_run_predict(r, 1, x, NULL, y), FR_INVALID, "want_outputs");
    close_run(f, r, NULL);
}

/* Reading values and writing them back changes nothing. */
static void test_params(void **state)
{
    fixture *f = *state;
    weights a, b;
    fr_run_result whole, touched;
    static const char *const sets[] = {NULL, ASYNC};
    for (int i = 0; i < 2; i++) {
        fr_run *r = open_net(f, &(fr_run_options){0}, sets[i]), *q;
        assert_done(f, fr_run_step(r, 10, NULL));
        q = open_net(f, &(fr_run_options){0}, sets[i]);
        assert_done(f, fr_run_step(q, 10, NULL));
        read_all(f, q, &a);
        for (int k = 0; k < N_PARAMS; k++)
            assert_done(f, fr_run_set_param(q, params[k], counts[k], a.at[k]));
        assert_done(f, fr_run_step(r, STEPS, NULL));
        assert_done(f, fr_run_step(q, STEPS, NULL));
        read_all(f, r, &a);
        read_all(f, q, &b);
        assert_memory_equal(&a, &b, sizeof a);
        close_run(f, r, &whole);
        close_run(f, q, &touched);
        assert_true(whole.eval_loss == touched.eval_loss);
    }
    fr_run *r = open_net(f, &(fr_run_options){0}, NULL);
    assert_failed(f, fr_run_get_param(r, "fc.7.bias", 1, a.at[0]), FR_INVALID, "fc.7.bias");
    assert_failed(f, fr_run_set_param(r, "fc.0.bias", 9, a.at[0]), FR_INVALID, "10 values", "9");
    assert_failed(f, fr_run_get_param(r, "fc.0.bias", 10, NULL), FR_INVALID, "fc.0.bias");
    assert_int_equal(fr_graph_n_params(fr_run_graph(r)), N_PARAMS);
    close_run(f, r, NULL);
}

/* fr_train continues a checkpoint of a run without a folder, and other runs start from it. */
static void test_save(void **state)
{
    fixture *f = *state;
    char folder[160];
    weights a, b;
    snprintf(folder, sizeof folder, "%s/saved", f->dir);
    fr_run_result whole = train_whole(f, "whole", FLUSH, false);
    fr_run *r = open_net(f, &(fr_run_options){0}, FLUSH);
    assert_failed(f, fr_run_save(r, NULL), FR_INVALID, "no folder");
    assert_done(f, fr_run_step(r, 11, NULL));
    assert_done(f, fr_run_save(r, folder));
    read_all(f, r, &a);
    close_run(f, r, NULL);
    r = open_net(f, &(fr_run_options){.checkpoint = folder}, NULL);
    read_all(f, r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    close_run(f, r, NULL);
    assert_string_equal(train_whole(f, "saved", FLUSH, true).weights_sha256, whole.weights_sha256);
}

/* Closed early, a run with a folder can be resumed. */
static void test_close_early(void **state)
{
    fixture *f = *state;
    fr_run_result whole = train_whole(f, "whole", FLUSH, false), part;
    char path[200];
    fr_run *r = open_net(f, &(fr_run_options){.out = f->out}, FLUSH);
    assert_done(f, fr_run_step(r, 13, NULL));
    close_run(f, r, &part);
    assert_int_equal(part.steps, 13);
    snprintf(path, sizeof path, "%s/summary.json", f->out);
    char *text = read_text(path, NULL);
    assert_non_null(strstr(text, "\"interrupted\""));
    free(text);
    assert_string_equal(train_whole(f, "run", FLUSH, true).weights_sha256, whole.weights_sha256);
}

typedef struct watch {
    int64_t stop_at, n_calls;
    volatile int stop;
} watch;

static void on_progress(void *user, const fr_progress *p)
{
    watch *w = user;
    w->n_calls++;
    if (p->step == w->stop_at) w->stop = 1;
}

static void test_stop(void **state)
{
    fixture *f = *state;
    for (int has_folder = 0; has_folder < 2; has_folder++) {
        watch w = {.stop_at = 5};
        int64_t n_done;
        fr_progress p;
        fr_run_options o = {.size = sizeof o, .progress = on_progress, .user = &w, .stop = &w.stop};
        if (has_folder) o.out = f->out;
        fr_run *r = open_net(f, &o, NULL);
        fr_run_progress(r, &p);
        assert_true(p.step == 0 && isnan(p.loss));
        assert_done(f, fr_run_step(r, 20, &n_done));
        assert_true(n_done >= 5 && n_done < 20 && w.n_calls == n_done);
        assert_true(fr_run_is_over(r));
        fr_run_progress(r, &p);
        assert_int_equal(p.step, n_done);
        w.stop = 0; /* the caller may continue */
        assert_done(f, fr_run_step(r, 1, &n_done));
        assert_true(n_done == 1 && !fr_run_is_over(r));
        w.stop = 1;
        assert_done(f, fr_run_step(r, 1, &n_done));
        assert_int_equal(n_done, 0);
        assert_failed(f, fr_run_close(r, NULL), FR_INTERRUPTED, "interrupted after");
    }
}

static void test_divergence(void **state)
{
    fixture *f = *state;
    weights w;
    double loss, accuracy;
    fr_run *r = open_net(f, &(fr_run_options){0}, "train.optimizer.lr=1e30");
    assert_failed(f, fr_run_step(r, STEPS, NULL), FR_DIVERGED, "mini-batch");
    assert_true(fr_run_is_over(r));
    assert_failed(f, fr_run_step(r, 1, NULL), FR_INVALID, "ended", "diverged");
    read_all(f, r, &w); /* as they were before the mini-batch that failed */
    assert_done(f, fr_run_evaluate(r, &loss, &accuracy));
    close_run(f, r, NULL);
}

static void test_failed_worker(void **state)
{
    fixture *f = *state;
    float bias[CLASSES];
    fr_run *r = open_net(f, &(fr_run_options){0}, "run.fault=\"error:worker=0,step=3\"");
    assert_failed(f, fr_run_step(r, STEPS, NULL), FR_PEER, "worker 0");
    assert_failed(f, fr_run_get_param(r, "head.bias", CLASSES, bias), FR_INVALID, "closed");
    close_run(f, r, NULL);
}

static void test_evaluate(void **state)
{
    fixture *f = *state;
    double loss, accuracy;
    fr_progress p;
    fr_run *r = open_net(f, &(fr_run_options){0}, NULL);
    assert_done(f, fr_run_step(r, 10, NULL));
    fr_run_progress(r, &p);
    assert_done(f, fr_run_evaluate(r, &loss, &accuracy));
    assert_true(loss == p.eval_loss && accuracy == p.eval_accuracy);
    assert_done(f, fr_run_step(r, 1, NULL));
    fr_run_progress(r, &p);
    assert_true(isnan(p.eval_loss));
    close_run(f, r, NULL);
    r = open_net(f, &(fr_run_options){0}, "data.n_eval=0");
    assert_failed(f, fr_run_evaluate(r, &loss, &accuracy), FR_INVALID, "no evaluation");
    close_run(f, r, NULL);
}

/* A caller that continues after a failure gets the next one reported, without clearing the first.
 */
static void test_failures_in_turn(void **state)
{
    fixture *f = *state;
    float bias[CLASSES];
    fr_run *r = open_net(f, &(fr_run_options){0}, "train.optimizer.lr=1e30"), *other;
    assert_int_equal(fr_run_get_param(r, "no.such", 1, bias), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "no.such"));
    assert_int_equal(fr_run_get_param(r, "head.bias", 1, bias), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "head.bias"));
    assert_int_equal(
        fr_run_open(f->ctx, &(fr_run_options){.size = sizeof(fr_run_options), .config = "no.yaml"},
                    &other),
        FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "no.yaml"));
    assert_int_equal(fr_run_step(r, STEPS, NULL), FR_DIVERGED);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "mini-batch"));
    assert_int_equal(fr_run_save(r, NULL), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "no folder"));
    assert_int_equal(fr_run_close(r, NULL), FR_OK);
}

/* Programs that were built with newer headers have larger options. */
static void test_size_of_options(void **state)
{
    fixture *f = *state;
    fr_run *r;
    fr_run_result result;
    struct {
        fr_run_options o;
        char more[24];
    } newer = {.o = {.size = sizeof newer, .config_text = net}};
    assert_done(f, fr_run_open(f->ctx, &newer.o, &r));
    close_run(f, r, NULL);
    newer.more[23] = 1;
    assert_int_equal(fr_run_open(f->ctx, &newer.o, &r), FR_UNSUPPORTED);
    assert_null(r);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "newer version"));
    newer.o.size = sizeof newer.o;
    assert_done(f, fr_run_open(f->ctx, &newer.o, &r));
    close_run(f, r, NULL);
    newer.o.size = 0;
    assert_int_equal(fr_run_open(f->ctx, &newer.o, &r), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(f->ctx), "size is 0"));
    assert_int_equal(fr_train(f->ctx, &newer.o, &result), FR_INVALID);
    assert_int_equal(fr_eval(f->ctx, &newer.o, &result), FR_INVALID);
}

/* --- parts of the caller's own --- */

static const char rest[] = "train: {batch: 8, steps: 60, optimizer: {name: sgd, lr: 0.2}}\n"
                           "parallel: {backend: ref, threads: 1}\n";

/* softmax regression */
static fr_graph *make_graph(fixture *f)
{
    fr_graph *g;
    fr_attrs input = {.input = {.shape = FR_SHAPE(2), .dtype = FR_F32}};
    fr_attrs target = {.input = {.shape = {0}, .dtype = FR_I32}};
    fr_attrs linear = {.linear = {.out = 2}};
    assert_done(f, fr_graph_create(f->ctx, "softmax", &g));
    int x = fr_graph_add(g, FR_OP_INPUT, "input", &input, 0, NULL);
    int y = fr_graph_add(g, FR_OP_LINEAR, "fc", &linear, 1, &x);
    int t = fr_graph_add(g, FR_OP_INPUT, "target", &target, 0, NULL);
    fr_graph_add(g, FR_OP_CROSS_ENTROPY, "loss", NULL, 2, (int[]){y, t});
    assert_done(f, fr_graph_finish(g));
    return g;
}

/* Class 1 is right of the diagonal. */
static fr_status read_sample(void *user, fr_split split, int64_t index, uint64_t seed,
                             uint64_t draw, void *input, void *target, int32_t *length)
{
    fixture *f = user;
    float *x = input;
    (void)split, (void)seed, (void)draw, (void)length;
    if (index >= 64) return fr_fail(f->ctx, FR_IO, "sample %d is beyond reach", (int)index);
    x[0] = (float)(index % 8) - 3.5f, x[1] = (float)(index / 8) - 3.6f;
    *(int32_t *)target = x[0] > x[1];
    return FR_OK;
}

static void test_own_parts(void **state)
{
    fixture *f = *state;
    fr_graph *g = make_graph(f);
    fr_dataset *data, *short_data;
    fr_run *r;
    fr_progress p;
    fr_dataset_desc d = {.info = {.n_train = 64, .input = FR_SHAPE(2), .n_classes = 2},
                         .read = read_sample,
                         .user = f};
    assert_done(f, fr_dataset_create(f->ctx, &d, &data));
    d.info.n_train = 65;
    assert_done(f, fr_dataset_create(f->ctx, &d, &short_data));
    fr_run_options o = {
        .size = sizeof o, .config_text = rest, .graph = g, .data = data, .want_outputs = true};
    assert_done(f, fr_run_open(f->ctx, &o, &r));
    assert_done(f, fr_run_step(r, 1, NULL));
    fr_run_progress(r, &p);
    double first = p.loss;
    assert_done(f, fr_run_step(r, STEPS * 2, NULL));
    fr_run_progress(r, &p);
    assert_true(p.loss < first / 2);
    float x[2][2] = {{2, -2}, {-2, 2}}, y[2][2];
    assert_done(f, fr_run_predict(r, 2, x, NULL, y[0]));
    assert_true(y[0][1] > y[0][0] && y[1][0] > y[1][1]);
    close_run(f, r, NULL);

    o.data = short_data;
    o.config_text = "train: {batch: 65, steps: 2}\nparallel: {backend: ref, threads: 1}\n";
    assert_done(f, fr_run_open(f->ctx, &o, &r));
    assert_failed(f, fr_run_step(r, 1, NULL), FR_IO, "sample 64 is beyond reach");
    close_run(f, r, NULL);

    o.data = data, o.config_text = net;
    assert_failed(f, fr_run_open(f->ctx, &o, &r), FR_INVALID, "config:1:1", "given the model");
    assert_null(r);
    o.graph = NULL;
    assert_failed(f, fr_run_open(f->ctx, &o, &r), FR_INVALID, "config:2:1", "given the data");
    o.data = NULL, o.config_text = "model: {name: mlp}\ndata: {name: synthetic}\ntrian: {}\n";
    assert_failed(f, fr_run_open(f->ctx, &o, &r), FR_INVALID, "config:3:1", "trian");
    o.config = "here.yaml";
    assert_failed(f, fr_run_open(f->ctx, &o, &r), FR_INVALID, "here.yaml:3:1");
    o = (fr_run_options){.size = sizeof o, .config_text = net, .resume = true};
    assert_failed(f, fr_run_open(f->ctx, &o, &r), FR_INVALID, "resume", "`out`");
    fr_graph_free(g);
    fr_dataset_close(data);
    fr_dataset_close(short_data);
}

/* Weights that the caller has set cannot be made again from the seed: they are saved first. */
static void test_own_start_is_saved(void **state)
{
    fixture *f = *state;
    weights a, b;
    char path[200];
    fr_run *r = open_net(f, &(fr_run_options){.out = f->out}, "train.optimizer.lr=1e30");
    read_all(f, r, &a);
    a.at[5][0] = 0.75f;
    assert_done(f, fr_run_set_param(r, params[5], counts[5], a.at[5]));
    assert_failed(f, fr_run_step(r, STEPS, NULL), FR_DIVERGED, "mini-batch");
    close_run(f, r, NULL);
    snprintf(path, sizeof path, "%s/checkpoint/step-0", f->out);
    r = open_net(f, &(fr_run_options){.checkpoint = path}, NULL);
    read_all(f, r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    close_run(f, r, NULL);
}

static fr_status live(fixture *f)
{
    fr_run *r;
    float x[INPUTS] = {0}, y[CLASSES];
    const char *const sets[] = {"train.steps=2"};
    fr_run_options o = {
        .size = sizeof o, .config_text = net, .n_sets = 1, .sets = sets, .want_outputs = true};
    FR_TRY(fr_run_open(f->ctx, &o, &r));
    fr_status status = fr_run_step(r, 2, NULL);
    if (status == FR_OK) status = fr_run_predict(r, 1, x, NULL, y);
    if (status == FR_OK) status = fr_run_save(r, f->out);
    fr_status closed = fr_run_close(r, NULL);
    return status == FR_OK ? closed : status;
}

static void test_out_of_memory(void **state)
{
    fixture *f = *state;
    fr_status status = FR_NO_MEMORY;
    int n = 0;
    for (; status != FR_OK; n++) {
        assert_true(n < 5000);
        fr__alloc_fail_after(n);
        status = live(f);
        fr__alloc_fail_after(-1);
        if (status != FR_OK) assert_int_equal(status, FR_NO_MEMORY);
        fr_ctx_clear(f->ctx);
        f->log[0] = '\0';
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        TEST(test_steps_are_training),
        TEST(test_no_folder_no_files),
        TEST(test_outputs),
        TEST(test_params),
        TEST(test_save),
        TEST(test_close_early),
        TEST(test_stop),
        TEST(test_divergence),
        TEST(test_failed_worker),
        TEST(test_evaluate),
        TEST(test_failures_in_turn),
        TEST(test_size_of_options),
        TEST(test_own_parts),
        TEST(test_own_start_is_saved),
        TEST(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
