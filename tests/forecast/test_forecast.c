/* test_forecast.c -- a run whose measurement of stages would take too long starts immediately, and
 * prints the time of a mini-batch after the first few. */
#include "forecast/forecast.h"
#include "support/run_fixture.h"

#include "base/thread.h"

static const char net[] = "model: {name: mlp, inputs: 256, depth: 3, width: 512, classes: 4}\n"
                          "data: {name: synthetic, n: 64, n_eval: 8}\n"
                          "train: {batch: 8, steps: 6}\n"
                          "parallel: {threads: 1}\n"
                          "run: {eval_every: -1}\n";

static int setup(void **state)
{
    fixture_setup(state);
    fixture *f = *state;
    write_text(f->config, net);
    return 0;
}

static bool takes_long(fixture *f, int n_sets, const char *const *sets)
{
    fr__setup s;
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = n_sets, .sets = sets, .out = f->out};
    assert_done(f, fr__setup_open(f->ctx, &o, &s));
    assert_done(f, fr__setup_pipeline(&s));
    bool is_long = fr__forecast_takes_long(&s, &(fr__footprint){0});
    fr__setup_close(&s);
    return is_long;
}

/* Decided by the work of a mini-batch, the length of the run and the threads, not by speed. */
static void test_what_takes_long(void **state)
{
    fixture *f = *state;
    const char *const wide[] = {"train.batch=65536", "model.width=2048", "train.steps=1000"};
    const char *const much[] = {"train.batch=4096", "train.steps=4"};
    const char *const longer[] = {"train.batch=4096", "train.steps=1000"};
    assert_false(takes_long(f, 0, NULL));
    assert_true(takes_long(f, 3, wide)); /* beyond two seconds, however long the run */
    assert_true(takes_long(f, 2, much)); /* beyond a tenth of the run */
    assert_false(takes_long(f, 2, longer));
}

static void test_mean_of_the_first(void **state)
{
    (void)state;
    fr__time_forecast p = {.is_late = true};
    assert_true(isnan(fr__forecast_s(&p)));
    static const double seconds[] = {100, 2, 4, 1000};
    for (int i = 0; i < 4; i++) {
        fr__forecast_by_run(&p, i + 1, seconds[i]);
        assert_true(p.is_late_made == (i >= 2));
    }
    assert_true(fr__forecast_s(&p) == 3);
    fr__time_forecast made = {.is_made = true, .s_per_batch = 7};
    fr__forecast_by_run(&made, 2, 1);
    assert_true(fr__forecast_s(&made) == 7);
}

static void train(fixture *f, int n_sets, const char *const *sets)
{
    fr_run_options o = {
        .size = sizeof o, .config = f->config, .n_sets = n_sets, .sets = sets, .out = f->out};
    f->log[0] = '\0';
    assert_done(f, fr_train(f->ctx, &o, NULL));
}

/* Forecast by the run itself, by a requested measurement, and not at all. */
static void test_said_late(void **state)
{
    fixture *f = *state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: needs the cpu backend, whose threads ThreadSanitizer does not see\n");
    (void)f;
#else
    char path[256];
    const char *const late[] = {"train.batch=4096", "train.steps=4"};
    const char *const asked[] = {"train.batch=4096", "train.steps=4", "run.predict_s=0.01"};
    const char *const not [] = {"run.predict=false"}; /* would be measured */
    train(f, 2, late);
    assert_non_null(strstr(f->log, "forecast from the first 3 mini-batches: "));
    assert_null(strstr(f->log, "stages measured in"));
    snprintf(path, sizeof path, "%s/summary.json", f->out);
    char *text = read_text(path, NULL);
    assert_non_null(strstr(text, "\"predicted_after_batches\": 3"));
    assert_null(strstr(text, "\"predicted_s_per_batch\": null"));
    free(text);
    snprintf(f->out, sizeof f->out, "%s/asked", f->dir);
    train(f, 3, asked);
    assert_null(strstr(f->log, "forecast from the first"));
    assert_non_null(strstr(f->log, "stages measured in"));
    snprintf(f->out, sizeof f->out, "%s/not", f->dir);
    train(f, 1, not );
    assert_null(strstr(f->log, "forecast from the first"));
    assert_null(strstr(f->log, "forecast: "));
#endif
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_what_takes_long),
        RUN(test_mean_of_the_first),
        RUN(test_said_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
