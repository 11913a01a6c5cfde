/* test_failure.c -- a worker that cannot go on says where and why, and loses nothing. */
#include "engine/small_nets.h"

#include "base/alloc.h"

/* NaN in sample 5 of 8: found in micro-batch 1 of 2, weights and statistics untouched. */
static void divergence_keeps_the_weights(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = MLP; n <= CNN; n++)
        for (int keep = 0; keep < 2; keep++) {
            bench b;
            bench_init(&b, n);
            fr_worker_desc d = worker_desc(&b, *backend, "adam");
            d.n_micro = 2, d.micro_batch = BATCH / 2;
            d.keep_grads = keep;
            fr_worker *good = make(&b, &d), *bad = make(&b, &d);
            run_steps(&b, good, 0, 2, 0.01);
            run_steps(&b, bad, 0, 2, 0.01);
            float kept = b.input.f32[5 * b.net->n_input];
            b.input.f32[5 * b.net->n_input] = NAN;
            b.feed.step = 2;
            fr_tally tally;
            assert_int_equal(fr_worker_train(bad, &b.feed, &tally, NULL), FR_DIVERGED);
            assert_non_null(strstr(fr_ctx_error(b.ctx), "step 2, micro-batch 1 of 2"));
            assert_true(params_distance(&b, good, bad) <= 0);
            /* and it can go on from there */
            fr_ctx_clear(b.ctx);
            b.input.f32[5 * b.net->n_input] = kept;
            run_steps(&b, good, 2, 1, 0.01);
            run_steps(&b, bad, 2, 1, 0.01);
            assert_true(params_distance(&b, good, bad) <= 0);
            fr_worker_free(good), fr_worker_free(bad);
            bench_fini(&b);
        }
}

/* A loss that is finite with a gradient that is not: seen where the norm is computed. */
static void infinite_gradient_is_seen(void **unused)
{
    (void)unused;
    static float before[MAX_PARAM], after[MAX_PARAM];
    FOR_EACH_BACKEND(backend)
    {
        bench b;
        bench_init(&b, MASKED);
        fr_worker_desc d = worker_desc(&b, *backend, "sgd");
        d.clip_norm = 1;
        fr_worker *w = make(&b, &d);
        int embed = fr_graph_find_param(b.graph, "embed.weight");
        int head = fr_graph_find_param(b.graph, "logits.weight");
        memset(before, 0, sizeof before);
        assert_int_equal(fr_worker_set_param(w, embed, before), FR_OK);
        /* Activations of zero, weights near the largest float: logits 0, but the gradient of a
         * sample of class 0 is 2 * 6/7 of 3e38. */
        for (size_t i = 0; i < count_of(&b, head); i++) before[i] = i < 8 ? 3e38f : -3e38f;
        b.target[0] = 0;
        assert_int_equal(fr_worker_set_param(w, head, before), FR_OK);
        b.feed.n_targets = 1;
        fr_tally tally;
        assert_int_equal(fr_worker_train(w, &b.feed, &tally, NULL), FR_DIVERGED);
        assert_non_null(strstr(fr_ctx_error(b.ctx), "gradient norm"));
        assert_int_equal(fr_worker_get_param(w, head, after), FR_OK);
        assert_memory_equal(before, after, 4 * count_of(&b, head));
        fr_worker_free(w);
        bench_fini(&b);
    }
}

#define REFUSED(call, word)                                                \
    do {                                                                   \
        assert_int_equal(call, FR_INVALID);                                \
        if (!strstr(fr_ctx_error(b.ctx), word))                            \
            fail_msg("\"%s\" does not say %s", fr_ctx_error(b.ctx), word); \
        fr_ctx_clear(b.ctx);                                               \
    } while (0)

static void misuse_is_refused(void **unused)
{
    (void)unused;
    bench b;
    bench_init(&b, CNN);
    fr_worker_desc d = worker_desc(&b, fr_backend_find("ref"), "adam");
    float plain[MAX_PARAM];
    fr_worker *w = make(&b, &d);
    fr_tally tally;
    int mean = fr_graph_find_param(b.graph, "norm.running_mean");
    REFUSED(fr_worker_get_param(w, -1, plain), "parameter -1");
    REFUSED(fr_worker_set_param(w, 99, plain), "parameter 99");
    REFUSED(fr_worker_get_state(w, 2, 0, plain), "adam has 2");
    REFUSED(fr_worker_set_state(w, 0, mean, plain), "norm.running_mean is not trained");
    REFUSED(fr_worker_get_grad(w, 0, plain), "keep_grads");
    REFUSED(fr_worker_eval(w, &b.feed, &tally, plain), "logits_node");
    fr_worker_free(w);

    d.evaluate_only = true;
    w = make(&b, &d);
    REFUSED(fr_worker_train(w, &b.feed, &tally, NULL), "cannot train");
    REFUSED(fr_worker_get_state(w, 0, 0, plain), "no optimizer state");
    fr_worker_free(w);
    d.evaluate_only = false;

    d.options.beta1 = 2;
    REFUSED(fr_worker_create(b.ctx, &d, &w), "beta1");
    assert_null(w);
    d.options.beta1 = 0.9, d.n_micro = 0;
    REFUSED(fr_worker_create(b.ctx, &d, &w), "1 or more");
    d.n_micro = 1, d.clip_norm = -1;
    REFUSED(fr_worker_create(b.ctx, &d, &w), "clip_norm");
    bench_fini(&b);

    bench_init(&b, MASKED);
    d = worker_desc(&b, fr_backend_find("ref"), "sgd");
    w = make(&b, &d);
    b.feed.length = NULL;
    REFUSED(fr_worker_train(w, &b.feed, &tally, NULL), "input n is not in the data");
    fr_worker_free(w);
    bench_fini(&b);
}

static void graph_without_loss_is_refused(void **unused)
{
    (void)unused;
    bench b = {.ctx = fr_ctx_create()};
    assert_int_equal(fr_graph_create(b.ctx, "headless", &b.graph), FR_OK);
    linear(b.graph, "a", feed_node(b.graph, "x", FR_SHAPE(4), FR_F32), 3);
    assert_int_equal(fr_graph_finish(b.graph), FR_OK);
    fr_worker_desc d = worker_desc(&b, fr_backend_find("ref"), "sgd");
    fr_worker *w;
    REFUSED(fr_worker_create(b.ctx, &d, &w), "no cross_entropy");
    bench_fini(&b);
}

/* Every allocation that a new worker makes fails once. */
static void out_of_memory_is_survived(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    {
        bench b;
        bench_init(&b, CNN);
        fr_worker_desc d = worker_desc(&b, *backend, "adam");
        int n_failed = 0;
        for (int64_t n = 0;; n++) {
            fr_worker *w;
            fr__alloc_fail_after(n);
            fr_status status = fr_worker_create(b.ctx, &d, &w);
            fr__alloc_fail_after(-1);
            if (status == FR_OK) {
                fr_worker_free(w);
                break;
            }
            assert_int_equal(status, FR_NO_MEMORY);
            assert_null(w);
            fr_ctx_clear(b.ctx);
            n_failed++;
        }
        assert_true(n_failed > 10);
        bench_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergence_keeps_the_weights),
        cmocka_unit_test(infinite_gradient_is_seen),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(graph_without_loss_is_refused),
        cmocka_unit_test(out_of_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
