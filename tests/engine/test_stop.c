/* test_stop.c -- runs that end early on purpose, and data that ends too early: updates that are
 * counted have been made on every stage, and the run can continue from there. */
#include "engine/clocks.h"
#include "engine/rig.h"

/* More than could be walked, even without computing anything. */
static const int64_t MANY = INT64_C(1) << 40;

static const char *const generators[] = {"1f1b", "zb-h1", "gpipe", "1f1b-async", "nf1b"};
enum { N_GENERATORS = sizeof generators / sizeof *generators };

static bool is_flush(int g) { return fr_generator_find(generators[g])->is_flush; }

static rig_options options(int g, int n_stages)
{
    return (rig_options){.generator = generators[g],
                         .n_stages = n_stages,
                         .n_micro = 2,
                         .n_batches = is_flush(g) ? 0 : 16,
                         .policy = strstr(generators[g], "async") ? "stash" : NULL,
                         .lr = 1e-4};
}

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

/* After `done` mini-batches of a longer call, and after some more: the results of an uninterrupted
 * run. */
static void assert_as_clean(rig *r, int which, const rig_options *o, int64_t done)
{
    char sha[65], clean[65];
    rig straight;
    rig_sha(r, sha);
    open_rig(&straight, which, o);
    if (done > 0) rig_steps(&straight, 0, done);
    rig_sha(&straight, clean);
    if (strcmp(sha, clean) != 0)
        fail_msg("%s: not the weights of %d updates", rig_about(r, o), (int)done);
    r->on_report = NULL, r->stop = NULL;
    rig_steps(r, done, 5);
    rig_steps(&straight, done, 5);
    rig_sha(r, sha);
    rig_sha(&straight, clean);
    assert_string_equal(sha, clean);
    rig_close(&straight);
}

/* --- the flag ------------------------------------------------------------------------------- */

typedef struct alarm_clock {
    volatile int rings;
    uint64_t ns;
} alarm_clock;

static void *ring_later(void *arg)
{
    alarm_clock *a = arg;
    fr__sleep_ns(a->ns);
    __atomic_store_n(&a->rings, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void stop_flag(void **unused)
{
    (void)unused;
    for (int i = 0; i < 3 * N_GENERATORS; i++) {
        rig r;
        int64_t n_done = 0;
        int which = i % 3 ? CNN : BRANCHES;
        rig_options o = options(i % N_GENERATORS, 1 + i % 4);
        alarm_clock a = {.ns = draw(77, i) % 6000000};
        pthread_t ringer;
        open_rig(&r, which, &o);
        r.stop = &a.rings;
        assert_int_equal(pthread_create(&ringer, NULL, ring_later, &a), 0);
        assert_ok(r.b.ctx, rig_train(&r, 0, MANY, &n_done));
        pthread_join(ringer, NULL);
        assert_true(n_done < MANY);
        assert_as_clean(&r, which, &o, n_done);
        rig_close(&r);
    }
}

/* A flag that is set from the start: only mini-batches begun before the first check are computed.
 */
static void stop_at_once(void **unused)
{
    (void)unused;
    const volatile int set = 1;
    for (int g = 0; g < N_GENERATORS; g++) {
        rig r;
        int64_t n_done = 0;
        rig_options o = options(g, 3);
        open_rig(&r, MLP, &o);
        r.stop = &set;
        assert_ok(r.b.ctx, rig_train(&r, 0, MANY, &n_done));
        assert_true(n_done < 1000);
        assert_as_clean(&r, MLP, &o, n_done);
        rig_close(&r);
    }
}

/* --- the report ----------------------------------------------------------------------------- */

static bool until_step(rig *r, const fr_batch_report *report)
{
    assert_int_equal(report->step, r->n_reports - 1);
    return report->step < *(const int *)r->user;
}

static void report_says_stop(void **unused)
{
    (void)unused;
    for (int g = 0; g < N_GENERATORS; g++)
        for (int n = 1; n <= 4; n++) {
            rig r;
            int64_t n_done = 0;
            int last = 4 * n - 4;
            rig_options o = options(g, n);
            open_rig(&r, CNN, &o);
            r.on_report = until_step;
            r.user = &last;
            assert_ok(r.b.ctx, rig_train(&r, 0, MANY, &n_done));
            /* those that had begun, and the caller lags behind by a ring of records at most */
            assert_true(n_done > last && n_done < last + 120);
            assert_as_clean(&r, CNN, &o, n_done);
            rig_close(&r);
        }
}

/* A slow callback of the caller is not a stall, and nothing is lost. */
static bool take_time(rig *r, const fr_batch_report *report)
{
    quiet_clock *watch = r->user;
    if (report->step == 3) watch->now_ns += UINT64_C(900000000);
    return r->n_reports < 150;
}

static void slow_caller(void **unused)
{
    (void)unused;
    for (int g = 0; g < N_GENERATORS; g += 3) {
        rig r;
        quiet_clock watch;
        int64_t n_done = 0;
        rig_options o = options(g, 2);
        o.stall_s = 0.4;
        open_rig(&r, MLP, &o);
        use_quiet_watch(r.engine, &watch);
        r.on_report = take_time;
        r.user = &watch;
        assert_ok(r.b.ctx, rig_train(&r, 0, MANY, &n_done));
        assert_true(n_done >= 150);
        assert_as_clean(&r, MLP, &o, n_done);
        rig_close(&r);
    }
}

/* --- the data ------------------------------------------------------------------------------- */

static void source_fails(void **unused)
{
    (void)unused;
    for (int g = 0; g < N_GENERATORS; g++)
        for (int n = 1; n <= 3; n++)
            for (int at = 0; at < 8; at += 3) {
                rig r;
                int64_t n_done = 0;
                rig_options o = options(g, n);
                open_rig(&r, MLP, &o);
                r.fails_at = at;
                fr_source source = rig_source(&r, 0);
                fr_status status =
                    fr_engine_train(r.engine, 0, 20, &source, rig_report, &r, NULL, &n_done);
                if (status != FR_IO || !strstr(fr_ctx_error(r.b.ctx), "the disk is on fire"))
                    fail_msg("status %d, %s", (int)status, rig_about(&r, &o));
                assert_true(n_done <= at);
                assert_int_equal(n_done, r.n_reports);
                rig_close(&r);
            }
}

static void source_fails_in_evaluation(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 3; n++) {
        rig r;
        rig_options o = options(0, n);
        open_rig(&r, MLP, &o);
        r.fails_at = 2;
        fr_source source = rig_source(&r, 0);
        fr_tally tally;
        assert_fails(r.b.ctx, fr_engine_eval(r.engine, 5, &source, &tally, NULL), FR_IO,
                     "the disk is on fire");
        rig_close(&r);
    }
}

/* No mini-batches are no work. */
static void nothing_to_do(void **unused)
{
    (void)unused;
    rig r;
    int64_t n_done = 9;
    fr_tally tally = {.targets = 9};
    rig_options o = options(0, 2);
    open_rig(&r, MLP, &o);
    assert_ok(r.b.ctx, rig_train(&r, 0, 0, &n_done));
    assert_int_equal(n_done, 0);
    assert_ok(r.b.ctx, rig_eval(&r, 0, &tally, NULL));
    assert_int_equal(tally.targets, 0);
    assert_as_clean(&r, MLP, &o, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_flag),     cmocka_unit_test(stop_at_once),
        cmocka_unit_test(slow_caller),   cmocka_unit_test(report_says_stop),
        cmocka_unit_test(source_fails),  cmocka_unit_test(source_fails_in_evaluation),
        cmocka_unit_test(nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
