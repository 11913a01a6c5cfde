/* test_update.c -- how gradients reach the weights: on the fly or at the end, clipped, tied. */
#include "engine/small_nets.h"

#include "base/alloc.h"

/* Keeping the gradients forces the sweep at the end; the bits must not change. */
static void on_the_fly_same_bits(void **unused)
{
    (void)unused;
    static float x[MAX_PARAM], y[MAX_PARAM];
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++)
        for (const fr_optimizer *const *o = fr_optim_list(); *o; o++)
            for (int n_micro = 1; n_micro <= 2; n_micro++) {
                bench b;
                bench_init(&b, n);
                fr_worker_desc d = worker_desc(&b, *backend, (*o)->name);
                d.options.weight_decay = 0.01;
                d.device.n_threads = o == fr_optim_list() ? 2 : 1;
                d.n_micro = n_micro, d.micro_batch = BATCH / n_micro;
                fr_worker *fly = make(&b, &d);
                d.keep_grads = true;
                fr_worker *end = make(&b, &d);
                run_steps(&b, fly, 0, 3, 0.05);
                run_steps(&b, end, 0, 3, 0.05);
                assert_true(params_distance(&b, fly, end) <= 0);
                for (int i = 0; i < fr_graph_n_params(b.graph); i++)
                    for (int s = 0; s < (*o)->n_state; s++) {
                        if (fr_graph_param(b.graph, i)->is_buffer) continue;
                        assert_int_equal(fr_worker_get_state(fly, s, i, x), FR_OK);
                        assert_int_equal(fr_worker_get_state(end, s, i, y), FR_OK);
                        assert_memory_equal(x, y, 4 * count_of(&b, i));
                    }
                fr_worker_free(fly), fr_worker_free(end);
                bench_fini(&b);
            }
}

/* One plain sgd step must be before - lr * min(1, clip / norm) * gradient. */
static void clipping(void **unused)
{
    (void)unused;
    static float before[12][MAX_PARAM], after[MAX_PARAM], grad[MAX_PARAM];
    const double lr = 0.5;
    FOR_EACH_BACKEND(backend)
    for (int n = 0; n < N_NETS; n++)
        for (int variant = 0; variant < 3; variant++) { /* bites, does not bite, only measured */
            bench b;
            bench_init(&b, n);
            fr_worker_desc d = worker_desc(&b, *backend, "sgd");
            d.keep_grads = true;
            d.clip_norm = variant == 0 ? 0.05 : variant == 1 ? 1e6 : 0;
            fr_worker *w = make(&b, &d);
            int n_params = fr_graph_n_params(b.graph);
            assert_true(n_params <= 12);
            for (int i = 0; i < n_params; i++)
                assert_int_equal(fr_worker_get_param(w, i, before[i]), FR_OK);
            b.feed.lr = lr, b.feed.want_norm = variant == 2;
            fr_tally tally;
            double norm = 0, squares = 0;
            assert_int_equal(fr_worker_train(w, &b.feed, &tally, &norm), FR_OK);
            for (int pass = 0; pass < 2; pass++) /* all squares first, then the weights */
                for (int i = 0; i < n_params; i++) {
                    const fr_param *p = fr_graph_param(b.graph, i);
                    if (p->is_buffer || p->tied_to >= 0) continue;
                    double scale = variant == 0 ? 0.05 / (sqrt(squares) + 1e-6) : 1;
                    assert_int_equal(fr_worker_get_grad(w, i, grad), FR_OK);
                    assert_int_equal(fr_worker_get_param(w, i, after), FR_OK);
                    for (size_t k = 0; k < count_of(&b, i); k++) {
                        if (pass == 0) squares += (double)grad[k] * (double)grad[k];
                        double want = (double)before[i][k] - lr * scale * (double)grad[k];
                        if (pass == 1 && !(fabs((double)after[k] - want) < 1e-6))
                            fail_msg("%s %s[%zu]: %g, expected %g", b.net->name, p->name, k,
                                     (double)after[k], want);
                    }
                }
            assert_true(sqrt(squares) > 0.05); /* else nothing is clipped */
            assert_true(fabs(norm - sqrt(squares)) < 1e-9 * norm);
            fr_worker_free(w);
            bench_fini(&b);
        }
}

static void norm_only_if_asked(void **unused)
{
    (void)unused;
    bench b;
    bench_init(&b, MLP);
    fr_worker_desc d = worker_desc(&b, fr_backend_list()[0], "sgd");
    fr_worker *w = make(&b, &d);
    fr_tally tally;
    double norm = 0;
    assert_int_equal(fr_worker_train(w, &b.feed, &tally, &norm), FR_OK);
    assert_true(isnan(norm));
    fr_worker_free(w);
    bench_fini(&b);
}

/* The gradient of a shared matrix holds both its uses: against finite differences of the loss. */
static void tied_gradient_is_the_sum(void **unused)
{
    (void)unused;
    static float w0[MAX_PARAM], w1[MAX_PARAM], grad[MAX_PARAM];
    FOR_EACH_BACKEND(backend)
    {
        bench b;
        bench_init(&b, TIED);
        fr_worker_desc d = worker_desc(&b, *backend, "sgd");
        d.keep_grads = true;
        d.n_micro = 2, d.micro_batch = BATCH / 2;
        fr_worker *w = make(&b, &d);
        int owner = fr_graph_find_param(b.graph, "embed.weight");
        int tied = fr_graph_find_param(b.graph, "logits.weight");
        assert_true(fr_graph_param(b.graph, tied)->tied_to == owner);
        run_steps(&b, w, 0, 1, 0);
        assert_int_equal(fr_worker_get_param(w, owner, w0), FR_OK);
        assert_int_equal(fr_worker_get_param(w, tied, w1), FR_OK);
        assert_memory_equal(w0, w1, 4 * count_of(&b, owner));
        assert_int_equal(fr_worker_get_grad(w, owner, grad), FR_OK);
        assert_int_equal(fr_worker_get_grad(w, tied, w1), FR_OK);
        assert_memory_equal(grad, w1, 4 * count_of(&b, owner));
        for (size_t k = 0; k < count_of(&b, owner); k += 5) {
            const float h = 0.01f;
            fr_tally t[2];
            for (int side = 0; side < 2; side++) {
                memcpy(w1, w0, sizeof w1);
                w1[k] += side ? h : -h;
                assert_int_equal(fr_worker_set_param(w, owner, w1), FR_OK);
                assert_int_equal(fr_worker_eval(w, &b.feed, &t[side], NULL), FR_OK);
            }
            double slope = (t[1].loss - t[0].loss) / (double)(2 * h) / (double)t[0].targets;
            if (!(fabs(slope - (double)grad[k]) < 2e-3 * (0.1 + fabs(slope))))
                fail_msg("[%zu]: gradient %g, slope %g", k, (double)grad[k], slope);
        }
        fr_worker_free(w);
        bench_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_fly_same_bits),
        cmocka_unit_test(clipping),
        cmocka_unit_test(norm_only_if_asked),
        cmocka_unit_test(tied_gradient_is_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
