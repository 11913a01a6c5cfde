/* test_prediction.c -- predicted weights are nearer to the later weights than the current ones: on
 * every stage that predicts, for momentum, adam, muon and lion, at a small learning rate. */
#include "engine/rig.h"

enum { STEPS = 200, SEGMENT = 50 };

/* The prediction error of stage k after training. */
static void check_stage(const rig *r, const rig_options *o, int k, int *n_predicting)
{
    const fr_prediction_error *e = fr_engine_prediction(r->engine, k);
    int expected = o->n_stages - 1 - k;                         /* at T = 1: to the backward ... */
    if (strcmp(o->policy, "spectrain") == 0) expected += k / 2; /* ... or to the round trip's end */
    assert_non_null(e);
    if (expected == 0) {
        assert_int_equal(e->n_values, 0);
        return;
    }
    if (e->n_values == 0) return; /* a stage without parameters */
    ++*n_predicting;
    assert_true(fabs(e->ahead - expected) < 1e-9);
    /* Only predictions open at the end of a segment are lost. */
    assert_true(e->n_values >= (STEPS - STEPS / SEGMENT * (expected + 1)) * 10);
    double predicted = sqrt(e->predicted / (double)e->n_values);
    double stale = sqrt(e->stale / (double)e->n_values);
    if (!(predicted < stale && stale > 0))
        fail_msg("%s: stage %d: predicted %g, stale %g", rig_about(r, o), k, predicted, stale);
}

static void better_than_stale(void **unused)
{
    (void)unused;
    static const char *const policies[] = {"spectrain", "pipeoptim"};
    static const char *const optimizers[] = {NULL, "adam", "adamw", "muon", "lion"};
    static const int used[] = {MLP, CHAIN, BRANCHES};
    for (int i = 0; i < 2 * 5 * 3; i++)
        for (int n = 2; n <= 5; n++) {
            rig_options o = {.generator = "1f1b-async",
                             .policy = policies[i % 2],
                             .optimizer = optimizers[i / 2 % 5],
                             .n_stages = n,
                             .n_batches = SEGMENT,
                             .n_samples = 40,
                             .lr = i / 2 % 5 ? 0.001 : 0.01};
            rig r;
            int n_predicting = 0;
            if (rig_open(&r, used[i / 10], &o) != FR_OK) fail_msg("%s", rig_about(&r, &o));
            for (int s = 0; s < STEPS; s += SEGMENT) rig_steps(&r, s, SEGMENT);
            for (int k = 0; k < n; k++) check_stage(&r, &o, k, &n_predicting);
            assert_true(n_predicting >= 1);
            rig_close(&r);
        }
}

/* Not asked for, not watched. */
static void no_samples_no_error(void **unused)
{
    (void)unused;
    rig r;
    rig_options o = {
        .generator = "1f1b-async", .policy = "spectrain", .n_stages = 3, .n_batches = 10};
    assert_ok(r.b.ctx, rig_open(&r, MLP, &o));
    rig_steps(&r, 0, 10);
    for (int k = 0; k < 3; k++) assert_int_equal(fr_engine_prediction(r.engine, k)->n_values, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(better_than_stale),
                                       cmocka_unit_test(no_samples_no_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
