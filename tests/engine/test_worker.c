/* test_worker.c -- basic training: the loss falls, micro-batches add up, the same seed gives the
 * same bits, backends agree, evaluation matches the logits, state can be moved to another engine.
 */
#include "engine/rig.h"

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static void loss_falls(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int n = 1; n <= 3; n += 2) {
            rig_options o = {.generator = "1f1b",
                             .optimizer = "adam",
                             .lr = 0.03,
                             .n_stages = n,
                             .backend = fr_backend_name(*backend)};
            rig r;
            fr_tally before, after;
            open_rig(&r, which, &o);
            assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &before, NULL));
            rig_steps(&r, 0, 120);
            assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &after, NULL));
            if (!(after.loss < 0.6 * before.loss && after.correct > before.correct))
                fail_msg("%s: loss %g to %g", rig_about(&r, &o), before.loss, after.loss);
            for (int w = 0; w < n; w++)
                assert_true(fr_engine_times(r.engine, w)->ns[FR_SPENT_FORWARD] > 0);
            rig_close(&r);
        }
}

/* Dropout depends on the sample, not on its micro-batch. */
static void micro_batches_add_up(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++) {
        if (nets[which].has_buffers) continue; /* statistics are those of a micro-batch */
        rig_options o = {.lr = 0.1, .backend = fr_backend_name(*backend)};
        rig whole, parts;
        open_rig(&whole, which, &o);
        double loss = rig_steps(&whole, 0, 4);
        o.generator = "1f1b", o.n_stages = 2;
        for (o.n_micro = 2; o.n_micro <= BATCH; o.n_micro *= 2) {
            open_rig(&parts, which, &o);
            double same = rig_steps(&parts, 0, 4);
            double distance = rig_distance(&whole, &parts);
            if (!(fabs(loss - same) < 1e-5 * loss && distance < 1e-4))
                fail_msg("%s: loss %.9g and %.9g, parameters differ by %g", rig_about(&parts, &o),
                         loss, same, distance);
            rig_close(&parts);
        }
        rig_close(&whole);
    }
}

static void same_seed_same_bits(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++) {
        char one[65], two[65], other[65];
        rig_options o = {.optimizer = "adamw",
                         .lr = 0.01,
                         .n_micro = 2,
                         .n_threads = 2,
                         .generator = "gpipe",
                         .n_stages = 1 + which % 3,
                         .backend = fr_backend_name(*backend)};
        rig_clean_sha(which, &o, 5, one);
        rig_clean_sha(which, &o, 5, two);
        o.seed = 8;
        rig_clean_sha(which, &o, 5, other);
        assert_string_equal(one, two);
        assert_string_not_equal(one, other);
    }
}

/* A backend with a stale cache of older weights would differ from the plain one. */
static void backends_agree(void **unused)
{
    (void)unused;
    static const rig_options variants[] = {
        {.n_micro = 2},
        {.n_micro = 2, .generator = "zb-h1", .n_stages = 3},
        {.n_micro = 2, .generator = "1f1b-async", .policy = "stash", .n_stages = 3, .n_batches = 8},
        {.n_micro = 2,
         .generator = "1f1b-async",
         .policy = "spectrain",
         .n_stages = 4,
         .n_batches = 8}};
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            rig_options o = variants[v];
            if (which == TIED && o.policy) continue;
            rig plain, r;
            o.lr = 0.02;
            o.backend = "ref";
            open_rig(&plain, which, &o);
            o.backend = fr_backend_name(*backend);
            open_rig(&r, which, &o);
            rig_steps(&plain, 0, 8);
            rig_steps(&r, 0, 8);
            double distance = rig_distance(&plain, &r);
            if (!(distance < 1e-3))
                fail_msg("%s: %s is %g away from ref", rig_about(&r, &o), o.backend, distance);
            rig_close(&plain), rig_close(&r);
        }
}

/* The expected tally, from the logits of all of N_DATA mini-batches. */
static fr_tally tally_of(const bench *b, const float *logits)
{
    fr_tally t = {0};
    int k = b->net->n_classes, n = BATCH * b->net->n_target;
    for (int i = 0; i < N_DATA * n; i++) {
        int32_t target = b->data[i / n].target[i % n];
        if (target == FR_TARGET_IGNORE) continue;
        const float *z = logits + i * k;
        double sum = 0;
        int best = 0;
        for (int c = 0; c < k; c++) {
            sum += exp((double)z[c]);
            if (z[c] > z[best]) best = c;
        }
        t.loss += log(sum) - (double)z[target];
        t.correct += best == target;
        t.targets++;
    }
    return t;
}

/* ... and evaluation does not affect training. */
static void eval_agrees_with_logits(void **unused)
{
    (void)unused;
    static float logits[N_DATA * BATCH * TIME * 7];
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int n = 1 + which % 2; n <= 4; n += 2) {
            rig_options o = {.optimizer = "adam",
                             .lr = 0.01,
                             .n_micro = 2,
                             .generator = "1f1b",
                             .n_stages = n,
                             .want_logits = true,
                             .backend = fr_backend_name(*backend)};
            rig r, plain;
            fr_tally tally;
            open_rig(&r, which, &o);
            o.want_logits = false;
            open_rig(&plain, which, &o);
            rig_steps(&r, 0, 10);
            assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &tally, logits));
            fr_tally want = tally_of(&r.b, logits);
            assert_true(fabs(want.loss - tally.loss) < 1e-4 * want.loss);
            assert_int_equal(want.correct, tally.correct);
            assert_int_equal(want.targets, tally.targets);
            rig_steps(&r, 10, 3);
            rig_steps(&plain, 0, 13);
            assert_true(rig_distance(&r, &plain) <= 0);
            rig_close(&r), rig_close(&plain);
        }
}

/* An engine that only evaluates gives the results of the one that trained. */
static void evaluation_alone(void **unused)
{
    (void)unused;
    static float plain[MAX_PARAM];
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = {.n_micro = 2, .generator = "1f1b", .n_stages = 3};
        rig r, judge;
        fr_tally tally, judged;
        open_rig(&r, which, &o);
        rig_steps(&r, 0, 5);
        o.n_stages = 2, o.evaluates_only = true;
        open_rig(&judge, which, &o);
        for (int i = 0; i < fr_graph_n_params(r.b.graph); i++) {
            assert_ok(r.b.ctx, fr_engine_get_param(r.engine, i, plain));
            assert_ok(judge.b.ctx, fr_engine_set_param(judge.engine, i, plain));
        }
        assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &tally, NULL));
        assert_ok(judge.b.ctx, rig_eval(&judge, N_DATA, &judged, NULL));
        assert_memory_equal(&tally, &judged, sizeof tally);
        rig_close(&r), rig_close(&judge);
    }
}

/* Parameters, statistics and optimizer state copied to another engine with other cuts continue the
 * run bit for bit. */
static void state_round_trip(void **unused)
{
    (void)unused;
    static float plain[MAX_PARAM];
    for (int which = 0; which < N_NETS; which++)
        for (const fr_optimizer *const *opt = fr_optim_list(); *opt; opt++) {
            rig_options o = {.optimizer = (*opt)->name, .lr = 0.01, .n_micro = 2};
            rig straight, resumed;
            open_rig(&straight, which, &o);
            o.generator = "1f1b", o.n_stages = 3;
            open_rig(&resumed, which, &o);
            rig_steps(&straight, 0, 3);
            rig_steps(&resumed, 0, 1); /* all of this must be gone */
            for (int i = 0; i < fr_graph_n_params(straight.b.graph); i++) {
                assert_ok(straight.b.ctx, fr_engine_get_param(straight.engine, i, plain));
                assert_ok(resumed.b.ctx, fr_engine_set_param(resumed.engine, i, plain));
                if (fr_graph_param(straight.b.graph, i)->is_buffer) continue;
                for (int s = 0; s < (*opt)->n_state; s++) {
                    assert_ok(straight.b.ctx, fr_engine_get_state(straight.engine, s, i, plain));
                    assert_ok(resumed.b.ctx, fr_engine_set_state(resumed.engine, s, i, plain));
                }
            }
            rig_steps(&straight, 3, 3);
            rig_steps(&resumed, 3, 3);
            assert_true(rig_distance(&straight, &resumed) <= 0);
            rig_close(&straight), rig_close(&resumed);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_falls),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(same_seed_same_bits),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(eval_agrees_with_logits),
        cmocka_unit_test(evaluation_alone),
        cmocka_unit_test(state_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
