/* test_metrics.c -- metrics.jsonl and metrics.csv: their lines, and where a resumed run cuts
 * them. (What TensorBoard reads: tests/io/test_tfevents.c, tests/cli/tensorboard.sh.) */
#include "runlog/metrics.h"
#include "support/run_fixture.h"

static void write_steps(fixture *f, const fr__folder *folder, int64_t done, int64_t last)
{
    fr__metrics m;
    assert_done(f, fr__metrics_open(f->ctx, folder, done, FR_METRICS_CSV, &m));
    for (int64_t i = done + 1; i <= last; i++) {
        fr_progress p = {.step = i,
                         .samples = 32 * i,
                         .loss = 0.1 * (double)i,
                         .lr = 0.5,
                         .samples_per_s = 100,
                         .elapsed_s = 1,
                         .grad_norm = i == 2 ? 1.5 : NAN,
                         .eval_loss = i == 3 ? 0.25 : NAN,
                         .eval_accuracy = i == 3 ? 0.75 : NAN,
                         .eval_mae = NAN,
                         .eval_perplexity = NAN};
        assert_done(f, fr__metrics_write(&m, &p));
    }
    assert_done(f, fr__metrics_flush(&m));
    assert_done(f, fr__metrics_sync(&m, f->ctx));
    fr__metrics_close(&m);
}

/* Rules of stages: only of a policy that changes them, by the formulas of the policies' pages. */
static void test_rules(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *policy, *text;
    } cases[] = {
        {"pipeoptim", "{\"step\": 1, \"samples\": 0, \"loss\": 0, \"lr\": 0.5, "
                      "\"samples_per_s\": 0, \"elapsed_s\": 0}\n"},
        {"lookahead", "{\"step\": 1, \"samples\": 0, \"loss\": 0, \"lr\": 0.5, "
                      "\"samples_per_s\": 0, \"elapsed_s\": 0, \"stage_lr\": [0.25, 0.5], "
                      "\"stage_momentum\": [0.875, 0.5], \"stage_ahead\": [4, 1]}\n"},
        {"pipemare",
         "{\"step\": 1, \"samples\": 0, \"loss\": 0, \"lr\": 0.5, "
         "\"samples_per_s\": 0, \"elapsed_s\": 0, \"stage_lr\": [0.16666666666666666, 0.5]}\n"},
    };
    const fr_optim_options options = {.momentum = 0.5};
    const fr_policy_context context[2] = {
        {.stage = 0, .n_stages = 2, .lead = 3, .n_micro = 1, .max_delay = 3, .lr_warmup = 10},
        {.stage = 1, .n_stages = 2, .lead = 0, .n_micro = 1, .max_delay = 3, .lr_warmup = 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr__folder folder;
        fr__metrics m;
        char path[256];
        assert_done(f, fr__folder_open(f->ctx, f->out, i > 0, &folder));
        assert_done(f, fr__metrics_open(f->ctx, &folder, 0, 0, &m));
        m.rules = (fr__stage_rules){fr_policy_find(cases[i].policy), &options, 2, context};
        fr_progress p = {.step = 1,
                         .lr = 0.5,
                         .grad_norm = NAN,
                         .eval_loss = NAN,
                         .eval_accuracy = NAN,
                         .eval_mae = NAN,
                         .eval_perplexity = NAN};
        assert_done(f, fr__metrics_write(&m, &p));
        fr__metrics_close(&m);
        fr__folder_close(&folder);
        snprintf(path, sizeof path, "%s/metrics.jsonl", f->out);
        char *text = read_text(path, NULL);
        assert_string_equal(text, cases[i].text);
        free(text);
    }
}

static void test_lines(void **state)
{
    fixture *f = *state;
    fr__folder folder;
    char path[256];
    assert_done(f, fr__folder_open(f->ctx, f->out, false, &folder));
    snprintf(path, sizeof path, "%s/metrics.jsonl", f->out);
    write_steps(f, &folder, 0, 3);
    char *text = read_text(path, NULL);
    assert_string_equal(
        text, "{\"step\": 1, \"samples\": 32, \"loss\": 0.1, \"lr\": 0.5, \"samples_per_s\": 100, "
              "\"elapsed_s\": 1}\n"
              "{\"step\": 2, \"samples\": 64, \"loss\": 0.2, \"lr\": 0.5, \"samples_per_s\": 100, "
              "\"elapsed_s\": 1, \"grad_norm\": 1.5}\n"
              "{\"step\": 3, \"samples\": 96, \"loss\": 0.30000000000000004, \"lr\": 0.5, "
              "\"samples_per_s\": 100, \"elapsed_s\": 1, \"eval_loss\": 0.25, \"eval_accuracy\": "
              "0.75}\n");
    /* Cut back to step 1 with a torn last line, then written again: the same file. */
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("{\"step\": 1, \"samp", file);
    fclose(file);
    write_steps(f, &folder, 1, 3);
    char *again = read_text(path, NULL);
    assert_string_equal(again, text);
    write_steps(f, &folder, 0, 0); /* from the beginning */
    char *empty = read_text(path, NULL);
    assert_string_equal(empty, "");
    free(text);
    free(again);
    free(empty);
    fr__folder_close(&folder);
}

#define HEAD                                                                          \
    "step,samples,loss,lr,samples_per_s,elapsed_s,grad_norm,eval_loss,eval_accuracy," \
    "eval_mae,eval_perplexity\n"

static void test_csv(void **state)
{
    fixture *f = *state;
    fr__folder folder;
    char path[256];
    static const char whole[] = HEAD "1,32,0.1,0.5,100,1,,,,,\n"
                                     "2,64,0.2,0.5,100,1,1.5,,,,\n"
                                     "3,96,0.30000000000000004,0.5,100,1,,0.25,0.75,,\n";
    assert_done(f, fr__folder_open(f->ctx, f->out, false, &folder));
    snprintf(path, sizeof path, "%s/metrics.csv", f->out);
    write_steps(f, &folder, 0, 3);
    char *text = read_text(path, NULL);
    assert_string_equal(text, whole);
    free(text);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("4,12", file); /* torn, and a number that could be a smaller step */
    fclose(file);
    write_steps(f, &folder, 2, 3);
    text = read_text(path, NULL);
    assert_string_equal(text, whole);
    free(text);
    write_text(path, "a,b\n1,2\n"); /* not ours: begun anew, from where the run is */
    write_steps(f, &folder, 2, 3);
    text = read_text(path, NULL);
    assert_string_equal(text, HEAD "3,96,0.30000000000000004,0.5,100,1,,0.25,0.75,,\n");
    free(text);
    fr__folder_close(&folder);
}

static void test_full_disk(void **state)
{
    fixture *f = *state;
    fr__metrics m = {.ctx = f->ctx, .file = fopen("/dev/full", "w"), .path = "metrics.jsonl"};
    fr_progress p = {.step = 1,
                     .grad_norm = NAN,
                     .eval_loss = NAN,
                     .eval_accuracy = NAN,
                     .eval_mae = NAN,
                     .eval_perplexity = NAN};
    if (!m.file) skip_because("a full disk", "there is no /dev/full");
    assert_failed(f, fr__metrics_write(&m, &p), FR_IO, "metrics.jsonl", "space");
    fr__metrics_close(&m);
    m = (fr__metrics){.ctx = f->ctx,
                      .file = fopen("/dev/null", "w"),
                      .csv = fopen("/dev/full", "w"),
                      .csv_path =
                          "metrics.csv"}; /* no flush interval: each line is written immediately */
    assert_failed(f, fr__metrics_write(&m, &p), FR_IO, "metrics.csv", "space");
    fr__metrics_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_rules, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_csv, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
