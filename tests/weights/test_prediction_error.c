/* test_prediction_error.c -- the arithmetic of the prediction error; and on a noisy quadratic with
 * momentum the predicted weights are nearer to the later ones than the stale weights. */
#include "weights/line.h"

static line a;

/* The same sums from the model's history: each pair of version and distance that a forward read
 * counts once, if its version was made. */
static void sums_are_right(void **unused)
{
    (void)unused;
    const char *policies[] = {"spectrain", "spectrain-v2", "xpipe", "pipeoptim", "decay-aware"};
    enum { BATCHES = 16, SAMPLES = 7, STEP = SIZE / SAMPLES };
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int x = 0; x < 9; x++) {
            int n_micro = x / 3 + 1, n_stages = x % 3 + 3;
            recipe r = {.policy = policies[p],
                        .optimizer = "sgd",
                        .options = {.lr = 0.1, .momentum = 0.9},
                        .lr = {.name = "constant"},
                        .n_stages = n_stages,
                        .stage = 1,
                        .n_micro = n_micro,
                        .n_samples = SAMPLES};
            line_open(&a, &r);
            line_segment(&a, 0, BATCHES);
            double predicted = 0, stale = 0, ahead = 0;
            int64_t n = 0;
            bool is_counted[BATCHES + 1][BATCHES] = {{false}};
            for (int j = 0; j < BATCHES * n_micro; j++) {
                int64_t t = a.of_forward[j].version;
                int s = a.of_forward[j].ahead;
                if (s == 0 || is_counted[t][s] || t + s > BATCHES) continue;
                is_counted[t][s] = true, ahead += s, n++;
                for (int i = 0; i < SAMPLES; i++) {
                    double came = a.w[t + s][i * STEP];
                    predicted += pow(line_predict(&a, t, s, i * STEP) - came, 2);
                    stale += pow((double)a.w[t][i * STEP] - came, 2);
                }
            }
            const fr_prediction_error *e = fr_store_error(a.store);
            if (n < 5 || e->n_values != SAMPLES * n ||
                fabs(e->predicted - predicted) > 1e-5 * predicted ||
                fabs(e->stale - stale) > 1e-5 * stale || fabs(e->ahead - ahead / (double)n) > 1e-9)
                fail_msg("%s N %d T %d: %lld values, predicted %g, stale %g, ahead %g; expected "
                         "%lld, %g, %g, %g",
                         policies[p], n_stages, n_micro, (long long)e->n_values, e->predicted,
                         e->stale, e->ahead, (long long)(SAMPLES * n), predicted, stale,
                         ahead / (double)n);
            line_close(&a);
        }
}

/* f(w) = curve * (w - best)^2 / 2 on each weight, gradients with noise, taken at the weights that
 * the backward reads. */
static void learn(line *l, int n_batches)
{
    int t = l->r.n_micro, total = n_batches * t, lead = l->r.n_stages - 1 - l->r.stage;
    float grad[SIZE] = {0};
    fr_view view;
    for (int j = 0; j < total + lead; j++) {
        if (j < total) assert_int_equal(fr_store_forward(l->store, j / t, j % t, &view), FR_OK);
        if (j < lead) continue;
        int i = j - lead;
        assert_int_equal(fr_store_backward(l->store, i / t, i % t, &view), FR_OK);
        const float *weights = line_read(l, view.weights);
        for (int k = 0; k < SIZE; k++) {
            float best = 3 * line_noise(5, (uint64_t)k), curve = 0.05f + 0.02f * (float)(k % 7);
            float g = curve * (weights[k] - best) + 0.05f * line_noise(6, (uint64_t)(i * SIZE + k));
            grad[k] = (i % t ? grad[k] : 0) + g / (float)t;
        }
        fr_store_done(l->store, i / t, i % t);
        if (i % t != t - 1) continue;
        fr_store_begin(l->store, i / t, 1);
        device_put(l->dev, l->given, grad, SIZE);
        fr_store_range(l->store, 0, SIZE, l->given);
        assert_int_equal(fr_store_end(l->store, SIZE), FR_OK);
    }
}

static void better_than_stale(void **unused)
{
    (void)unused;
    const struct {
        const char *optimizer;
        fr_optim_options o;
    } kinds[] = {
        {"sgd", {.lr = 0.05, .momentum = 0.9}},
        {"sgd", {.lr = 0.05, .momentum = 0.9, .nesterov = true}},
        {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
        {"adamw", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}},
        {"nadam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3}},
    };
    const char *policies[] = {"spectrain", "spectrain-v2", "xpipe", "pipeoptim", "decay-aware"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (size_t x = 0; x < sizeof kinds / sizeof *kinds; x++)
            for (int n = 2; n <= 8; n *= 2)
                for (int k = 0; k < n - 1; k++)
                    for (int t = 1; t <= 2; t++) {
                        recipe r = {.policy = policies[p],
                                    .optimizer = kinds[x].optimizer,
                                    .options = kinds[x].o,
                                    .lr = {.name = "constant"},
                                    .n_stages = n,
                                    .stage = k,
                                    .n_micro = t,
                                    .exact = true,
                                    .n_samples = SIZE};
                        line_open(&a, &r);
                        learn(&a, 60);
                        const fr_prediction_error *e = fr_store_error(a.store);
                        assert_true(e->n_values > 0 && e->ahead >= 1);
                        if (!(e->predicted < e->stale))
                            fail_msg("%s %s N %d k %d T %d: predicted %g, stale %g", policies[p],
                                     kinds[x].optimizer, n, k, t, e->predicted, e->stale);
                        line_close(&a);
                    }
}

/* Nothing is predicted, nothing is compared; a reset drops open predictions. */
static void dropped_and_none(void **unused)
{
    (void)unused;
    recipe r = {.policy = "stash",
                .optimizer = "sgd",
                .options = {.lr = 0.05, .momentum = 0.9},
                .lr = {.name = "constant"},
                .n_stages = 4,
                .n_micro = 1,
                .n_samples = SIZE};
    line_open(&a, &r);
    line_segment(&a, 0, 8);
    assert_int_equal(fr_store_error(a.store)->n_values, 0);
    line_close(&a);
    r.policy = "pipeoptim";
    line_open(&a, &r);
    line_segment(&a, 0, 8);
    int64_t before = fr_store_error(a.store)->n_values;
    assert_int_equal(before, 5 * SIZE); /* forwards saw versions 0 to 4 */
    line_forward(&a, 8, 0);
    assert_int_equal(fr_store_reset(a.store, 8), FR_OK);
    line_segment(&a, 8, 3); /* the forwards of a lead read one version only */
    assert_int_equal(fr_store_error(a.store)->n_values, before + SIZE);
    line_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_right),
        cmocka_unit_test(better_than_stale),
        cmocka_unit_test(dropped_and_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
