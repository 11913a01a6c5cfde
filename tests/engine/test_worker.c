/* test_worker.c -- a worker trains: the loss falls, micro-batches add up, the same seed gives the
 * same bits, memory is as predicted and nothing is allocated once it runs. */
#include "engine/small_nets.h"

#include "base/alloc.h"

static void loss_falls(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++) {
        bench b;
        bench_init(&b, n);
        fr_worker_desc d = worker_desc(&b, *backend, "adam");
        fr_worker *w = make(&b, &d);
        double before = run_steps(&b, w, 0, 1, 0), after = run_steps(&b, w, 0, 100, 0.03);
        if (!(after < 0.5 * before)) fail_msg("%s: loss %g to %g", b.net->name, before, after);
        assert_true(fr_worker_busy_ns(w) > 0);
        fr_worker_free(w);
        bench_fini(&b);
    }
}

/* Dropout depends on the sample, not on the micro-batch it travels in. */
static void micro_batches_add_up(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++) {
        if (nets[n].has_buffers) continue;
        bench b;
        bench_init(&b, n);
        fr_worker_desc d = worker_desc(&b, *backend, "sgd");
        d.options.momentum = 0.9;
        fr_worker *whole = make(&b, &d);
        double loss = run_steps(&b, whole, 0, 4, 0.1);
        for (int n_micro = 2; n_micro <= 4; n_micro *= 2) {
            d.n_micro = n_micro;
            d.micro_batch = BATCH / n_micro;
            d.n_slots = n_micro / 2;
            fr_worker *parts = make(&b, &d);
            double same_loss = run_steps(&b, parts, 0, 4, 0.1);
            if (!(fabs(loss - same_loss) < 1e-5 * loss) ||
                !(params_distance(&b, whole, parts) < 1e-4))
                fail_msg("%s in %d: loss %.9g and %.9g, parameters differ by %g", b.net->name,
                         n_micro, loss, same_loss, params_distance(&b, whole, parts));
            fr_worker_free(parts);
        }
        fr_worker_free(whole);
        bench_fini(&b);
    }
}

static void same_seed_same_bits(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++) {
        bench b;
        bench_init(&b, n);
        fr_worker_desc d = worker_desc(&b, *backend, "adamw");
        d.device.n_threads = 2;
        d.n_micro = 2, d.micro_batch = BATCH / 2;
        fr_worker *one = make(&b, &d), *two = make(&b, &d);
        d.seed++;
        fr_worker *other = make(&b, &d);
        run_steps(&b, one, 0, 5, 0.01);
        run_steps(&b, two, 0, 5, 0.01);
        run_steps(&b, other, 0, 5, 0.01);
        assert_true(params_distance(&b, one, two) <= 0);
        assert_true(params_distance(&b, one, other) > 1e-3);
        fr_worker_free(one), fr_worker_free(two), fr_worker_free(other);
        bench_fini(&b);
    }
}

/* A backend that kept something derived from older weights would drift away from the plain one. */
static void backends_agree(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++) {
        bench b;
        bench_init(&b, n);
        fr_worker_desc d = worker_desc(&b, fr_backend_find("ref"), "sgd");
        d.n_micro = 2, d.micro_batch = BATCH / 2;
        fr_worker *plain = make(&b, &d);
        d.backend = *backend;
        fr_worker *w = make(&b, &d);
        run_steps(&b, plain, 0, 8, 0.1);
        run_steps(&b, w, 0, 8, 0.1);
        double distance = params_distance(&b, plain, w);
        if (!(distance < 1e-3))
            fail_msg("%s: %s is %g away from ref", b.net->name, fr_backend_name(*backend),
                     distance);
        fr_worker_free(plain), fr_worker_free(w);
        bench_fini(&b);
    }
}

/* From the start to any later moment the device gave out what was predicted, and a running worker
 * asks for nothing. */
static void memory_as_predicted(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++)
        for (int variant = 0; variant < 3; variant++) {
            bench b;
            bench_init(&b, n);
            fr_worker_desc d = worker_desc(&b, *backend, "adam");
            d.evaluate_only = variant == 2;
            d.clip_norm = variant == 1 ? 1 : 0;
            d.n_slots = 1 + variant;
            d.logits_node = fr_graph_find(b.graph, "logits");
            fr_worker *w = make(&b, &d);
            const fr_memory_use *use = fr_worker_predicted(w);
            assert_true(use->total == use->weights + use->grads + use->optimizer + use->buffers +
                                          use->slots + use->workspace + use->cache + use->io);
            assert_true(use->weights >= 4 * (size_t)fr_graph_param_count(b.graph));
            assert_true(use->optimizer == (d.evaluate_only ? 0 : 2 * use->weights));
            uint64_t allocs = 0;
            for (int i = 0; i < 4; i++) {
                static float logits[BATCH * TIME * 7];
                fr_tally tally;
                if (i == 1) allocs = fr__alloc_count();
                if (!d.evaluate_only) run_steps(&b, w, i, 1, 0.01);
                assert_int_equal(fr_worker_eval(w, &b.feed, &tally, logits), FR_OK);
            }
            assert_true(fr__alloc_count() == allocs);
            assert_true(fr_worker_peak_bytes(w) == use->total);
            fr_worker_free(w);
            bench_fini(&b);
        }
}

/* The tally is what the logits say, and evaluation leaves no trace in training. */
static void eval_agrees_with_logits(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++) {
        bench b;
        bench_init(&b, n);
        fr_worker_desc d = worker_desc(&b, *backend, "adam");
        d.n_micro = 2, d.micro_batch = BATCH / 2;
        fr_worker *plain = make(&b, &d);
        d.logits_node = fr_graph_find(b.graph, "logits");
        fr_worker *w = make(&b, &d);
        static float logits[BATCH * TIME * 7];
        fr_tally tally;
        run_steps(&b, w, 0, 10, 0.01);
        assert_int_equal(fr_worker_eval(w, &b.feed, &tally, logits), FR_OK);
        double loss = 0;
        int64_t correct = 0, targets = 0;
        int k = b.net->n_classes;
        for (int i = 0; i < BATCH * b.net->n_target; i++) {
            if (b.target[i] == FR_TARGET_IGNORE) continue;
            const float *z = logits + i * k;
            double sum = 0;
            int best = 0;
            for (int c = 0; c < k; c++) {
                sum += exp((double)z[c]);
                if (z[c] > z[best]) best = c;
            }
            loss += log(sum) - (double)z[b.target[i]];
            correct += best == b.target[i];
            targets++;
        }
        assert_true(fabs(loss - tally.loss) < 1e-4 * loss);
        assert_int_equal(correct, tally.correct);
        assert_int_equal(targets, tally.targets);
        run_steps(&b, w, 10, 3, 0.01);
        run_steps(&b, plain, 0, 13, 0.01);
        assert_true(params_distance(&b, w, plain) <= 0);
        fr_worker_free(w), fr_worker_free(plain);
        bench_fini(&b);
    }
}

/* Parameters, buffers and optimizer state carried to a fresh worker continue the run bit for bit.
 */
static void state_round_trip(void **unused)
{
    (void)unused;
    static float plain[MAX_PARAM];
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++)
        for (const fr_optimizer *const *o = fr_optim_list(); *o; o++) {
            bench b;
            bench_init(&b, n);
            fr_worker_desc d = worker_desc(&b, *backend, (*o)->name);
            d.options.momentum = 0.9;
            fr_worker *straight = make(&b, &d), *resumed = make(&b, &d);
            run_steps(&b, straight, 0, 3, 0.01);
            run_steps(&b, resumed, 0, 1, 0.5); /* all of this must be gone */
            for (int i = 0; i < fr_graph_n_params(b.graph); i++) {
                assert_int_equal(fr_worker_get_param(straight, i, plain), FR_OK);
                assert_int_equal(fr_worker_set_param(resumed, i, plain), FR_OK);
                for (int s = 0; s < (*o)->n_state; s++) {
                    if (fr_graph_param(b.graph, i)->is_buffer) continue;
                    assert_int_equal(fr_worker_get_state(straight, s, i, plain), FR_OK);
                    assert_int_equal(fr_worker_set_state(resumed, s, i, plain), FR_OK);
                }
            }
            run_steps(&b, straight, 3, 3, 0.01);
            run_steps(&b, resumed, 3, 3, 0.01);
            assert_true(params_distance(&b, straight, resumed) <= 0);
            fr_worker_free(straight), fr_worker_free(resumed);
            bench_fini(&b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_falls),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(same_seed_same_bits),
        cmocka_unit_test(memory_as_predicted),
        cmocka_unit_test(state_round_trip),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(eval_agrees_with_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
