/* test_layouts.c -- checkpoints do not depend on stages and replicas: any layout continues from the
 * checkpoint of any other, with the numbers of an uninterrupted run of one worker. */
#include "support/run_fixture.h"

#include <jansson.h>

static const char net[] = "model: {name: mlp, inputs: 12, depth: 4, width: 16, classes: 4}\n"
                          "data: {name: synthetic, n: 100, n_eval: 50}\n"
                          "train: {batch: 16, micro: 4, steps: 24, seed: 3, exact_sum: true,\n"
                          "        optimizer: {name: adam, lr: 0.01}}\n"
                          "parallel: {backend: ref, threads: 1}\n"
                          "run: {eval_every: -1}\n";

enum { N_LAYOUTS = 6, HALF = 12, WHOLE = 24 };
#define REF ", backend: ref, threads: 1}"
static const char *const layouts[N_LAYOUTS] = {
    "parallel={method: single" REF,
    "parallel={method: 1f1b, stages: 2" REF,
    "parallel={method: gpipe, stages: 4" REF,
    "parallel={method: dp, replicas: 2" REF,
    "parallel={method: 1f1b, stages: 2, replicas: 2" REF,
    "parallel={method: 1f1b, replicas: [2, 1]" REF,
};

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, net);
    return 0;
}

/* Train up to `steps` updates from the checkpoint of the folder. */
static fr_run_result run(fixture *f, const char *out, const char *layout, int steps,
                         const char *more)
{
    char folder[160], set[32];
    snprintf(folder, sizeof folder, "%s/%s", f->dir, out);
    snprintf(set, sizeof set, "train.steps=%d", steps);
    const char *sets[] = {layout, set, more};
    fr_run_options o = {.size = sizeof o,
                        .config = f->config,
                        .n_sets = more ? 3 : 2,
                        .sets = sets,
                        .out = folder,
                        .resume = true};
    fr_run_result r;
    if (fr_train(f->ctx, &o, &r) != FR_OK) fail_msg("%s: %s", layout, fr_ctx_error(f->ctx));
    assert_int_equal(r.steps, steps);
    return r;
}

static void losses_of(fixture *f, const char *out, double loss[WHOLE])
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", f->dir, out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i < WHOLE; i++) {
        json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(line);
        assert_int_equal(json_integer_value(json_object_get(line, "step")), i + 1);
        loss[i] = json_real_value(json_object_get(line, "loss"));
        json_decref(line);
    }
    fclose(file);
}

static void test_any_layout_reads_any(void **state)
{
    fixture *f = *state;
    double expected[WHOLE], seen[WHOLE];
    fr_run_result whole = run(f, "whole", layouts[0], WHOLE, NULL);
    losses_of(f, "whole", expected);
    for (int a = 0; a < N_LAYOUTS; a++)
        for (int b = 0; b < N_LAYOUTS; b++) {
            char saved[16], out[16], command[500];
            snprintf(saved, sizeof saved, "%d", a);
            snprintf(out, sizeof out, "%d-%d", a, b);
            if (b == 0) run(f, saved, layouts[a], HALF, NULL);
            snprintf(command, sizeof command, "cp -r '%s/%s' '%s/%s'", f->dir, saved, f->dir, out);
            assert_int_equal(system(command), 0);
            fr_run_result rest = run(f, out, layouts[b], WHOLE, NULL);
            if (strcmp(rest.weights_sha256, whole.weights_sha256) != 0)
                fail_msg("saved by %s, resumed by %s: other weights", layouts[a], layouts[b]);
            losses_of(f, out, seen);
            for (int i = 0; i < WHOLE; i++)
                if (seen[i] != expected[i])
                    fail_msg("saved by %s, resumed by %s: loss %.17g in place of %.17g at step %d",
                             layouts[a], layouts[b], seen[i], expected[i], i + 1);
            assert_true(rest.train_loss == whole.train_loss);
        }
}

/* Without exact_sum replicas are equal to rounding. */
static void test_plain_sums_are_close(void **state)
{
    fixture *f = *state;
    double expected[WHOLE], seen[WHOLE];
    run(f, "single", layouts[0], WHOLE, "train.exact_sum=false");
    losses_of(f, "single", expected);
    for (int a = 3; a < N_LAYOUTS; a++) {
        char out[16];
        snprintf(out, sizeof out, "plain-%d", a);
        run(f, out, layouts[a], WHOLE, "train.exact_sum=false");
        losses_of(f, out, seen);
        for (int i = 0; i < WHOLE; i++) assert_true(fabs(seen[i] - expected[i]) < 1e-4);
    }
}

/* --- asynchronous methods ------------------------------------------------------------------- */

static const char *const asynchronous[] = {"vanilla-async", "pipedream", "pipedream-2bw",
                                           "spectrain",     "xpipe",     "pipeoptim",
                                           "pipemare",      "forerun",   "timeprest"};
static const char *const shapes[] = {"stages: 3", "stages: 2, replicas: 2", "replicas: [2, 1]"};

/* An asynchronous run drains for a checkpoint; resumed from there in the same layout it is the same
 * run, with its policy state. */
static void test_asynchronous_resume(void **state)
{
    fixture *f = *state;
    int n = 0;
    for (size_t m = 0; m < sizeof asynchronous / sizeof *asynchronous; m++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            char layout[160], cut[16], whole[16];
            if (k == 2 && strcmp(asynchronous[m], "timeprest") == 0) continue;
            snprintf(layout, sizeof layout, "parallel={method: %s, %s" REF, asynchronous[m],
                     shapes[k]);
            snprintf(cut, sizeof cut, "cut%d", n);
            snprintf(whole, sizeof whole, "whole%d", n++);
            fr_run_result a = run(f, whole, layout, WHOLE, "run.checkpoint_every=12");
            run(f, cut, layout, HALF, "run.checkpoint_every=12");
            fr_run_result b = run(f, cut, layout, WHOLE, "run.checkpoint_every=12");
            if (strcmp(a.weights_sha256, b.weights_sha256) != 0)
                fail_msg("%s: resumed, it is another run", layout);
        }
}

static bool has_memory(fixture *f, const char *out, const char *word)
{
    char path[200], name[64];
    fr_tensors *t;
    snprintf(path, sizeof path, "%s/%s/checkpoint/step-%d/optimizer.safetensors", f->dir, out,
             HALF);
    assert_done(f, fr_tensors_open(f->ctx, path, &t));
    const char *said = fr_tensors_meta(t, "memory");
    snprintf(name, sizeof name, "%s.fc.0.weight", word);
    bool is_there = fr_tensors_find(t, name) >= 0;
    assert_true(!is_there || (said && strcmp(said, word) == 0));
    fr_tensors_close(t);
    return is_there;
}

/* A policy ignores the state of another one. */
static void test_memory_is_optional(void **state)
{
    fixture *f = *state;
    const char *two = "parallel={method: pipedream-2bw, stages: 3" REF;
    const char *mare = "parallel={method: pipemare, stages: 3" REF;
    run(f, "2bw", two, HALF, NULL);
    run(f, "mare", mare, HALF, NULL);
    run(f, "flush", layouts[1], HALF, NULL);
    assert_true(has_memory(f, "2bw", "previous") && has_memory(f, "mare", "drift"));
    assert_false(has_memory(f, "flush", "previous"));
    run(f, "2bw", mare, WHOLE, NULL);
    run(f, "mare", layouts[4], WHOLE, NULL);
    run(f, "flush", two, WHOLE, NULL);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_any_layout_reads_any),
        RUN(test_plain_sums_are_close),
        RUN(test_asynchronous_resume),
        RUN(test_memory_is_optional),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
