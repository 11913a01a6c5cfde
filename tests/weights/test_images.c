/* test_images.c -- a store whose passes read bf16: the labels of the store of floats, its weights
 * rounded, to the bit, for every policy and optimizer; blocks; evaluation between segments; state
 * of policies; changes from outside; errors of predictions. */
#include "weights/line.h"

static const struct {
    const char *name;
    fr_optim_options o;
} kinds[] = {
    {"sgd", {.lr = 0.1, .momentum = 0.9}},
    {"sgd", {.lr = 0.1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01}},
    {"adam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1}},
    {"adamw", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1}},
    {"nadam", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 0.004}},
    {"muon",
     {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .momentum = 0.9, .adamw_factor = 1}},
    {"lion", {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, HALF = 6 };

static bool is_fit(const fr_policy *p, int n, int t)
{
    fr_policy_context context = {.n_stages = n, .lead = n - 1, .n_micro = t};
    return !p->check || !p->check(&context);
}

static recipe make(const fr_policy *p, int n, int k, int t, int kind)
{
    return (recipe){.policy = p->name,
                    .optimizer = kinds[kind].name,
                    .options = kinds[kind].o,
                    .lr = {.name = "constant", .warmup = 4},
                    .n_stages = n,
                    .stage = k,
                    .n_micro = t,
                    .n_batches = 2 * HALF,
                    .exact = (n + k) % 2,
                    .lr_warmup = 6,
                    .is_bf16 = true};
}

#define FOR_EACH_STAGE(p, n, k, t)                              \
    for (const fr_policy *const *p = fr_policy_list(); *p; p++) \
        for (int n = 1; n <= 5; n++)                            \
            for (int k = 0; k < n; k++)                         \
                for (int t = 1; t <= 5; t += 2)                 \
                    if (is_fit(*p, n, t))

static line a, b;

static void assert_rounded(const line *floats, const line *images)
{
    assert_int_equal(floats->n_views, images->n_views);
    assert_int_equal(floats->n_ahead, images->n_ahead);
    for (int64_t v = 0; v < images->n_views; v++)
        for (int i = 0; i < SIZE; i++)
            if (images->views[v][i] != line_round(images, floats->views[v][i]))
                fail_msg("%s %s N %d k %d T %d, view %d, weight %d: %.9g, of %.9g",
                         images->r.policy, images->r.optimizer, images->r.n_stages, images->r.stage,
                         images->r.n_micro, (int)v, i, (double)images->views[v][i],
                         (double)floats->views[v][i]);
}

/* Labels and newest weights are compared by line_run. Written by the update or by themselves. */
static void rounded_floats(void **unused)
{
    (void)unused;
    FOR_EACH_STAGE(p, n, k, t)
    {
        recipe r = make(*p, n, k, t, (n + k + t) % N_KINDS);
        r.on_the_fly = k % 2;
        line_run(&b, &r);
        r.is_bf16 = false;
        line_run(&a, &r);
        assert_rounded(&a, &b);
        r.is_bf16 = true, r.no_fusing = true, r.on_the_fly = !r.on_the_fly;
        line_run(&a, &r);
        assert_true(a.digest == b.digest);
    }
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            recipe r = make(*p, 4, 1, 4, kind);
            line_run(&b, &r);
            r.is_bf16 = false;
            line_run(&a, &r);
            assert_rounded(&a, &b);
        }
}

static int count(const char *policy, int n, int k, int t, bool is_bf16)
{
    recipe r = make(fr_policy_find(policy), n, k, t, 0);
    r.is_bf16 = is_bf16;
    line_open(&a, &r);
    int blocks = a.d.n_blocks;
    line_close(&a);
    return blocks;
}

/* Blocks beside the master: of versions that passes read, and of predictions. */
static void blocks(void **unused)
{
    (void)unused;
    enum { N = 6 };
    for (int k = 0; k < N; k++) {
        const bool is_late = k < N - 1;
        assert_int_equal(count("live", N, k, 1, true), 1);
        assert_int_equal(count("stash", N, k, 1, true), N - k);
        assert_int_equal(count("double-buffer", N, k, N, true), 2);
        assert_int_equal(count("spectrain", N, k, 1, true), k < 2 && is_late ? 2 : 1);
        assert_int_equal(count("spectrain-v2", N, k, 1, true), N - k);
        assert_int_equal(count("pipeoptim", N, k, 1, true), is_late ? 2 : 1);
        assert_int_equal(count("decay-aware", N, k, 1, true), is_late ? 2 : 1);
        assert_int_equal(count("pipemare", N, k, 1, true), is_late ? 2 : 1);
        assert_int_equal(count("lookahead", N, k, 1, true), 2);
        assert_int_equal(count("xpipe", N, k, 4, true), is_late ? 2 : 1);
    }
    assert_int_equal(fr_weight_bytes(FR_F32, 3), 12);
    assert_int_equal(fr_weight_bytes(FR_BF16, 1), 6);
    assert_int_equal(fr_weight_bytes(FR_BF16, 3), 10);
}

static void look(line *l)
{
    fr_view view;
    assert_int_equal(fr_store_look(l->store, &view), FR_OK);
    assert_true(view.version == l->now && view.ahead == 0);
    const float *image = line_read_view(l, view.weights);
    for (int i = 0; i < SIZE; i++) assert_true(image[i] == line_round(l, l->w[l->now][i]));
}

/* An evaluation between two segments changes nothing that later passes read. */
static void evaluation_is_free(void **unused)
{
    (void)unused;
    FOR_EACH_STAGE(p, n, k, t)
    {
        recipe r = make(*p, n, k, t, (n + k + t) % N_KINDS);
        for (int looks = 0; looks < 2; looks++) {
            line *l = looks ? &b : &a;
            line_open(l, &r);
            if (looks) look(l);
            line_segment(l, 0, HALF);
            if (looks) look(l), look(l);
            line_segment(l, HALF, HALF);
            if (looks) look(l);
            line_close(l);
        }
        assert_true(a.digest == b.digest);
    }
}

/* The newest weights change between an update and the next pass: every view follows. */
static void changes_reach_the_passes(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int k = 0; k < 3; k++) {
            recipe r = make(*p, 3, k, 3, 0);
            float other[SIZE];
            line_open(&b, &r);
            line_segment(&b, 0, HALF);
            for (int i = 0; i < SIZE; i++) other[i] = b.w[b.now][i] = b.w[b.now][i] * 1.25f;
            device_put(b.dev, fr_store_newest(b.store), other, SIZE);
            fr_store_changed(b.store);
            line_segment(&b, HALF, HALF);
            line_close(&b);
        }
}

/* "previous" and "drift" go over to another store. */
static void state_goes_over(void **unused)
{
    (void)unused;
    const char *names[] = {"double-buffer", "pipemare"};
    for (int x = 0; x < 2; x++) {
        recipe r = make(fr_policy_find(names[x]), 3, 0, 3, 0);
        float host[SIZE];
        uint16_t bf16[SIZE];
        line_open(&a, &r), line_open(&b, &r);
        line_segment(&a, 0, HALF);
        memcpy(b.w, a.w, sizeof a.w), memcpy(b.m, a.m, sizeof a.m);
        memcpy(b.delta, a.delta, sizeof a.delta);
        b.now = a.now;
        device_put(b.dev, fr_store_newest(b.store), a.w[a.now], SIZE);
        device_put(b.dev, b.state[0], a.m[a.now], SIZE);
        assert_int_equal(fr_store_reset(b.store, HALF), FR_OK);
        fr_policy_state from = fr_store_policy_state(a.store), to = fr_store_policy_state(b.store);
        assert_true(from.is_valid && from.type == to.type && to.at);
        assert_int_equal(from.type, x == 0 ? FR_BF16 : FR_F32);
        if (from.type == FR_BF16) {
            assert_int_equal(fr_device_download(a.dev, bf16, from.at, sizeof bf16), FR_OK);
            assert_int_equal(fr_device_upload(b.dev, to.at, bf16, sizeof bf16), FR_OK);
        } else {
            device_get(a.dev, host, from.at, SIZE);
            device_put(b.dev, to.at, host, SIZE);
        }
        fr_store_set_policy_state(b.store);
        a.digest = b.digest = 0;
        line_segment(&a, HALF, HALF), line_segment(&b, HALF, HALF);
        assert_true(a.digest == b.digest);
        line_close(&a), line_close(&b);
    }
}

/* What a prediction loses by rounding is part of its error; the weights it aims at are floats. */
static void errors(void **unused)
{
    (void)unused;
    const char *names[] = {"spectrain", "pipeoptim", "xpipe"};
    for (int x = 0; x < 3; x++) {
        recipe r = make(fr_policy_find(names[x]), 4, 1, 1, 0);
        r.n_samples = 7;
        line_open(&b, &r), line_segment(&b, 0, 2 * HALF);
        r.is_bf16 = false;
        line_open(&a, &r), line_segment(&a, 0, 2 * HALF);
        const fr_prediction_error *e = fr_store_error(a.store), *f = fr_store_error(b.store);
        assert_true(e->n_values == f->n_values && e->n_values > 20);
        assert_true(e->stale == f->stale && e->ahead == f->ahead);
        assert_true(e->predicted != f->predicted);
        assert_true(fabs(f->predicted / e->predicted - 1) < 0.05);
        line_close(&a), line_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_floats),     cmocka_unit_test(blocks),
        cmocka_unit_test(evaluation_is_free), cmocka_unit_test(changes_reach_the_passes),
        cmocka_unit_test(state_goes_over),    cmocka_unit_test(errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
