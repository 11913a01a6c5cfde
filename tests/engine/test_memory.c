/* test_memory.c -- the memory forecast from schedule and shapes equals the allocated memory, to the
 * byte; policies hold the numbers of weight copies of their papers; a run allocates nothing. */
#include "engine/rig.h"

enum { STEPS = 5 };

static const char *const generators[] = {"sequential", "gpipe", "1f1b", "zb-h1",     "zb-h2",
                                         "zbv",        "v-min", "nf1b", "1f1b-async"};
enum { N_GENERATORS = sizeof generators / sizeof *generators };

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static bool is_flush(const char *generator) { return fr_generator_find(generator)->is_flush; }

/* --- prediction ----------------------------------------------------------------------------- */

static void assert_predicted(rig *r, const rig_options *o)
{
    for (int w = 0; w < fr_engine_n_workers(r->engine); w++) {
        const fr_memory_use *use = fr_engine_predicted(r->engine, w);
        size_t peak = fr_engine_peak_bytes(r->engine, w);
        assert_true(use->total == use->weights + use->grads + use->optimizer + use->buffers +
                                      use->slots + use->workspace + use->cache + use->io);
        if (peak != use->total)
            fail_msg("%s: worker %d: %zu bytes predicted, %zu taken", rig_about(r, o), w,
                     use->total, peak);
    }
}

static void exact_to_the_byte(void **unused)
{
    (void)unused;
    static const char *const optimizers[] = {NULL, "adam", "muon", "lion"};
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++)
        for (int g = 0; g < N_GENERATORS; g++)
            for (int n = 1; n <= 4; n++) {
                rig_options o = {.generator = generators[g],
                                 .n_stages = n,
                                 .n_micro = n % 2 ? 4 : 2,
                                 .n_batches = is_flush(generators[g]) ? 0 : STEPS,
                                 .optimizer = optimizers[n % 4],
                                 .want_logits = n % 2,
                                 .want_norm = is_flush(generators[g]) && n % 3 == 0,
                                 .backend = fr_backend_name(*backend)};
                if (fr_generator_find(generators[g])->is_v) o.n_stages += n % 2;
                rig r;
                fr_tally tally;
                static float logits[N_DATA * BATCH * TIME * 7];
                open_rig(&r, which, &o);
                rig_steps(&r, 0, STEPS);
                assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &tally, o.want_logits ? logits : NULL));
                rig_steps(&r, STEPS, STEPS);
                assert_predicted(&r, &o);
                rig_close(&r);
            }
}

static void exact_for_every_policy(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 1; n <= 6; n++) {
            rig_options o = {.generator = "1f1b-async",
                             .policy = (*p)->name,
                             .n_stages = n,
                             .n_micro = BATCH,
                             .n_batches = STEPS,
                             .lr = 0.001};
            rig r;
            open_rig(&r, n % 2 ? CNN : SHARED, &o);
            rig_steps(&r, 0, STEPS);
            assert_predicted(&r, &o);
            rig_close(&r);
        }
}

static void evaluation_only(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++)
        for (int n = 1; n <= 3; n++) {
            rig_options o = {.n_stages = n, .n_micro = 2, .evaluates_only = true};
            rig r;
            fr_tally tally;
            open_rig(&r, which, &o);
            assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &tally, NULL));
            assert_predicted(&r, &o);
            for (int w = 0; w < fr_engine_n_workers(r.engine); w++) {
                const fr_memory_use *use = fr_engine_predicted(r.engine, w);
                assert_true(use->grads == 0 && use->optimizer == 0 && use->weight_copies == 1);
            }
            rig_close(&r);
        }
}

/* --- weight copies -------------------------------------------------------------------------- */

static int two(int n, int k)
{
    (void)k;
    return n > 1 ? 2 : 1;
}
static int one(int n, int k) { return n >= 1 && k >= 0 ? 1 : 0; }
static int in_flight(int n, int k) { return n - k; }
/* A stage without a gap has nothing to predict. */
static int two_if_pipelined(int n, int k) { return (void)k, n > 1 ? 2 : 1; }
static int two_if_gap(int n, int k) { return k < n - 1 ? 2 : 1; }
/* SpecTrain also predicts on the last stage, but only from the third stage on. */
static int two_if_trip(int n, int k) { return n - 1 - k + k / 2 > 0 ? 2 : 1; }

static void copies_as_published(void **unused)
{
    (void)unused;
    static const struct {
        const char *policy;
        int n_micro;
        int (*copies)(int n, int k);
    } expected[] = {{"live", 1, one},
                    {"stash", 1, in_flight},
                    {"spectrain", 1, two_if_trip},
                    {"pipeoptim", 1, two_if_gap},
                    {"decay-aware", 1, two_if_gap},
                    {"lookahead", 1, two_if_pipelined},
                    {"double-buffer", BATCH, two}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int n = 1; n <= 6; n++) {
            rig_options o = {.generator = "1f1b-async",
                             .policy = expected[i].policy,
                             .n_stages = n,
                             .n_micro = expected[i].n_micro,
                             .n_batches = 12};
            rig r;
            open_rig(&r, MLP, &o);
            for (int k = 0; k < n; k++) {
                const fr_memory_use *use = fr_engine_predicted(r.engine, k);
                const fr_dtype type = is_bf16() ? FR_BF16 : FR_F32;
                /* bf16: beside the master, and no copy of the newest if no pass reads it */
                bool is_unread = is_bf16() && !strcmp(expected[i].policy, "spectrain") && k > 1;
                assert_int_equal(use->weight_copies, expected[i].copies(n, k) - is_unread);
                /* one block of state for sgd: 4 bytes for a weight */
                assert_int_equal(use->weights,
                                 use->optimizer / 4 * fr_weight_bytes(type, use->weight_copies));
            }
            rig_close(&r);
        }
}

/* --- allocations ---------------------------------------------------------------------------- */

/* The count at the first mini-batch's report must not grow later. */
static bool count(rig *r, const fr_batch_report *report)
{
    uint64_t *first = r->user, now = fr__alloc_count();
    if (report->step == 0) *first = now;
    if (now != *first)
        fail_msg("%llu allocations by step %lld", (unsigned long long)(now - *first),
                 (long long)report->step);
    return true;
}

static void nothing_is_allocated(int which, const rig_options *o)
{
    rig r;
    uint64_t first = 0;
    fr_tally tally;
    static float logits[N_DATA * BATCH * TIME * 7];
    open_rig(&r, which, o);
    r.on_report = count;
    r.user = &first;
    rig_steps(&r, 0, STEPS);
    rig_steps(&r, STEPS, STEPS);
    uint64_t before = fr__alloc_count();
    assert_true(before == first);
    for (int i = 0; i < 2; i++) {
        assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &tally, logits));
        rig_steps(&r, (2 + i) * STEPS, STEPS);
        if (fr__alloc_count() != before)
            fail_msg("%s: allocations in evaluation or a later call", rig_about(&r, o));
    }
    if (o->n_events) {
        int n_events;
        (void)fr_engine_events(r.engine, 0, &n_events);
        assert_true(n_events > STEPS);
    }
    rig_close(&r);
}

static void runs_do_not_allocate(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(backend)
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = {.n_micro = 4,
                         .want_logits = true,
                         .want_ledger = true,
                         .n_events = 1000,
                         .n_samples = 100,
                         .lr = 0.001,
                         .backend = fr_backend_name(*backend)};
        for (int g = 0; g < N_GENERATORS; g++) {
            o.generator = generators[g];
            o.n_batches = is_flush(o.generator) ? 0 : STEPS;
            o.n_stages = which == TIED && !is_flush(o.generator) ? 1 : 3;
            o.n_stages += fr_generator_find(o.generator)->is_v;
            o.want_norm = g % 2;
            nothing_is_allocated(which, &o);
        }
        if (which == TIED) continue;
        o.n_stages = 3;
        for (const fr_policy *const *p = fr_policy_list(); *p; p++) {
            o.policy = (*p)->name;
            o.optimizer = which % 2 ? "muon" : NULL;
            nothing_is_allocated(which, &o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_to_the_byte),    cmocka_unit_test(exact_for_every_policy),
        cmocka_unit_test(evaluation_only),      cmocka_unit_test(copies_as_published),
        cmocka_unit_test(runs_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
