/* test_faults.c -- a worker that fails, hangs, is slow or computes nonsense: the call returns,
 * names the worker, its place and its instruction, and parameters are those of a whole number of
 * updates. Silence is counted while all threads of the process sleep: a busy machine causes no
 * stall.
 *
 * A worker that hangs is left behind with its memory, which a leak checker would rightly report;
 * such cases run in parallel in child processes, which leave by _exit. */
#include "engine/clocks.h"
#include "engine/rig.h"

#include <sys/wait.h>

enum { STEPS = 8, N_STAGES = 3, MAX_CHILDREN = 64, ALARM_S = 1800 };

static const char *const generators[] = {"gpipe",       "1f1b", "zb-h1",     "sequential",
                                         "interleaved", "nf1b", "1f1b-async"};
enum { N_GENERATORS = sizeof generators / sizeof *generators };

/* Three workers; interleaved: of two stages each, and 3 micro-batches of 2 samples. */
static rig_options options(int g)
{
    bool is_interleaved = strcmp(generators[g], "interleaved") == 0;
    return (rig_options){.generator = generators[g],
                         .n_stages = is_interleaved ? 2 * N_STAGES : N_STAGES,
                         .chunks = is_interleaved ? 2 : 0,
                         .n_micro = is_interleaved ? 3 : 2,
                         .n_batches = fr_generator_find(generators[g])->is_flush ? 0 : STEPS,
                         .policy = strstr(generators[g], "async") ? "spectrain" : NULL};
}

static double seconds_since(uint64_t start) { return (double)(fr__now_ns() - start) * 1e-9; }

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static bool says(const rig *r, const char *format, ...)
{
    char part[128];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    if (strstr(fr_ctx_error(r->b.ctx), part)) return true;
    fprintf(stderr, "\"%s\" does not say \"%s\"\n", fr_ctx_error(r->b.ctx), part);
    return false;
}

static void errors(void **unused)
{
    (void)unused;
    for (int g = 0; g < N_GENERATORS; g++)
        for (int worker = 0; worker < N_STAGES; worker++)
            for (int step = 0; step < STEPS; step += 3) {
                char fault[64];
                rig_options o = options(g);
                rig r;
                int64_t n_done = 0;
                snprintf(fault, sizeof fault, "error:worker=%d,step=%d", worker, step);
                o.fault = fault;
                open_rig(&r, MLP, &o);
                use_frozen_watch(r.engine); /* it is notified, not detected by its silence */
                assert_int_equal(rig_train(&r, 0, STEPS, &n_done), FR_PEER);
                assert_true(n_done <= step);
                assert_true(says(&r,
                                 "worker %d (stage %d), mini-batch %d, micro-batch 0, "
                                 "instruction %dF",
                                 worker, worker, step, worker));
                assert_true(says(&r, "fault injected"));
                /* nothing more can be had of it */
                fr_ctx_clear(r.b.ctx);
                fr_tally tally;
                assert_fails(r.b.ctx, rig_train(&r, 0, 1, &n_done), FR_PEER, "only be freed");
                assert_fails(r.b.ctx, rig_eval(&r, 1, &tally, NULL), FR_PEER, "only be freed");
                rig_close(&r);
            }
}

/* --- hangs ---------------------------------------------------------------------------------- */

/* In a child: 0 if all is well. */
static int hang(int g, int worker, int step)
{
    char fault[64];
    rig_options o = options(g);
    static rig r;
    static quiet_clock watch;
    int64_t n_done = 0;
    snprintf(fault, sizeof fault, "hang:worker=%d,step=%d", worker, step);
    o.fault = fault;
    o.stall_s = 0.3;
    open_rig(&r, MLP, &o);
    use_quiet_watch(r.engine, &watch);
    uint64_t start = fr__now_ns();
    fr_status status = rig_train(&r, 0, STEPS, &n_done);
    double seconds = seconds_since(start);
    bool is_well = status == FR_PEER && n_done <= step;
    is_well &= says(&r, "worker %d (stage %d), mini-batch %d, micro-batch 0, instruction %dF",
                    worker, worker, step, worker);
    is_well &= says(&r, "no progress for") && says(&r, "waits") && says(&r, "peer worker");
    if (!(seconds >= 0.3)) {
        fprintf(stderr, "%s: %g s\n", fault, seconds);
        is_well = false;
    }
    is_well &= rig_train(&r, 0, 1, &n_done) == FR_PEER;
    fr_engine_free(r.engine); /* leaks the memory of the lost thread */
    return is_well ? 0 : 1;
}

static void hangs(void **unused)
{
    (void)unused;
    pid_t children[MAX_CHILDREN];
    int n = 0;
    for (int g = 0; g < N_GENERATORS; g++)
        for (int worker = 0; worker < N_STAGES; worker++) {
            int step = (g + worker) % 3 * 3;
            children[n] = fork();
            assert_true(children[n] >= 0);
            if (children[n] == 0) {
                alarm(ALARM_S);
                _exit(hang(g, worker, step));
            }
            n++;
        }
    int n_bad = 0;
    for (int i = 0; i < n; i++) {
        int code;
        assert_int_equal(waitpid(children[i], &code, 0), children[i]);
        n_bad += code != 0;
    }
    assert_int_equal(n_bad, 0);
}

/* A slow worker is not lost if it makes progress within the timeout. */
static void slow_workers(void **unused)
{
    (void)unused;
    for (int g = 0; g < N_GENERATORS; g++) {
        char clean[65], slow[65];
        rig_options o = options(g);
        rig r;
        quiet_clock watch;
        rig_clean_sha(CNN, &o, 3, clean);
        o.fault = "slow:worker=1,step=1,ms=2";
        o.stall_s = 1;
        open_rig(&r, CNN, &o);
        use_quiet_watch(r.engine, &watch);
        rig_steps(&r, 0, 3);
        rig_sha(&r, slow);
        assert_string_equal(clean, slow);
        rig_close(&r);
    }
}

/* Longer than the timeout, but back within the grace period: nothing is lost, all can be freed. */
static void too_slow(void **unused)
{
    (void)unused;
    rig_options o = options(N_GENERATORS - 1);
    rig r;
    quiet_clock watch;
    int64_t n_done;
    o.fault = "slow:worker=2,step=3,ms=1200";
    o.stall_s = 0.2;
    open_rig(&r, MLP, &o);
    use_quiet_watch(r.engine, &watch);
    assert_int_equal(rig_train(&r, 0, STEPS, &n_done), FR_PEER);
    assert_true(n_done <= 3);
    assert_true(says(&r, "worker 2 (stage 2), mini-batch 3") && says(&r, "run.stall_timeout"));
    rig_close(&r);
}

/* A process that was stopped (Ctrl-Z, a debugger): for the stall detection all that time passes at
 * once, without progress. Here this happens a few times, whenever two checks see the same count. */
typedef struct stopped_clock {
    quiet_clock quiet;
    rig *r;
    uint64_t beats;
    int n_stops;
} stopped_clock;

static uint64_t stopped_now(void *user)
{
    stopped_clock *c = user;
    uint64_t beats = 0;
    for (int i = 0; i < c->r->engine->n_workers; i++)
        beats += atomic_load(&c->r->engine->workers[i].n_beats);
    if (beats == c->beats && c->n_stops > 0) {
        c->n_stops--;
        c->quiet.now_ns += UINT64_C(100000000000);
    }
    c->beats = beats;
    return quiet_clock_now(&c->quiet);
}

static bool was_not_stopped(rig *r, const fr_batch_report *report)
{
    (void)report;
    return ((const stopped_clock *)r->user)->n_stops > 0;
}

/* Time in which no thread could run does not count as silence. */
static void stopped_process(void **unused)
{
    (void)unused;
    rig_options o = options(1);
    rig r;
    int64_t n_done;
    o.fault = "slow:worker=0,step=0,ms=120"; /* longer than the interval between two checks */
    o.stall_s = 0.5;
    open_rig(&r, MLP, &o);
    stopped_clock clock = {.r = &r, .n_stops = 3};
    use_quiet_watch(r.engine, &clock.quiet);
    r.engine->watch = (fr__timer){.now_ns = stopped_now, .user = &clock};
    r.on_report = was_not_stopped;
    r.user = &clock;
    assert_ok(r.b.ctx, rig_train(&r, 0, INT64_C(1) << 40, &n_done));
    rig_close(&r);
}

/* --- divergence ----------------------------------------------------------------------------- */

/* Fault NaN: only the output of one stage in one micro-batch. All effects of the mini-batch are
 * undone. */
static void nan_leaves_whole_updates(void **unused)
{
    (void)unused;
    static const int both[] = {CNN, MLP};
    for (int g = 0; g < N_GENERATORS; g++)
        for (int worker = 0; worker < N_STAGES; worker++)
            for (int step = 0; step < STEPS; step += 2) {
                char fault[64], clean[65], left[65];
                rig_options o = options(g);
                rig r;
                int64_t n_done = -1;
                int which = both[(g + worker) % 2];
                snprintf(fault, sizeof fault, "nan:worker=%d,step=%d", worker, step);
                rig_clean_sha(which, &o, step, clean);
                o.fault = fault;
                open_rig(&r, which, &o);
                fr_status status = rig_train(&r, 0, STEPS, &n_done);
                if (status != FR_DIVERGED || n_done != step)
                    fail_msg("%s: status %d, %d updates: %s", fault, (int)status, (int)n_done,
                             rig_about(&r, &o));
                assert_true(says(&r, "mini-batch %d, micro-batch %d of %d: the loss is", step,
                                 o.n_micro - 1, o.n_micro));
                rig_sha(&r, left);
                if (strcmp(clean, left) != 0)
                    fail_msg("%s: not the weights of %d updates: %s", fault, step,
                             rig_about(&r, &o));
                rig_close(&r);
            }
}

/* Stages without parameters are at their step, waiting for the norm of all, when the loss is found
 * to be NaN: they must not wait for it. */
static void nan_while_others_want_the_norm(void **unused)
{
    (void)unused;
    static const char *const flushes[] = {"1f1b", "gpipe", "zb-h1", "sequential"};
    static const int cuts[] = {2, 3, 5}; /* before r, a, logits: the first two have none */
    for (int i = 0; i < 8; i++) {
        char clean[65], left[65];
        rig_options o = {.generator = flushes[i % 4],
                         .n_stages = 4,
                         .cuts = cuts,
                         .n_micro = 3,
                         .clip_norm = 0.5,
                         .want_norm = i > 3};
        rig r;
        int64_t n_done = -1;
        rig_clean_sha(LATE, &o, 2, clean);
        o.fault = "nan:worker=3,step=2";
        o.stall_s = 5;
        open_rig(&r, LATE, &o);
        if (rig_train(&r, 0, STEPS, &n_done) != FR_DIVERGED || n_done != 2)
            fail_msg("%d updates: %s", (int)n_done, rig_about(&r, &o));
        rig_sha(&r, left);
        assert_string_equal(left, clean);
        rig_close(&r);
    }
}

/* NaN in the data of one mini-batch; with correct data the run continues with the usual numbers. */
static void bad_data_then_good(void **unused)
{
    (void)unused;
    for (int g = 0; g < N_GENERATORS; g++)
        for (int keep = 0; keep < 2; keep++) {
            rig_options o = options(g);
            rig good, bad;
            int64_t n_done;
            o.n_micro = strcmp(o.generator, "interleaved") ? 2 : 3;
            o.keep_grads = keep;
            o.optimizer = keep ? "adam" : NULL;
            open_rig(&good, CNN, &o);
            open_rig(&bad, CNN, &o);
            bad.b.data[2].input.f32[5 * bad.b.net->n_input] = NAN;
            assert_int_equal(rig_train(&bad, 0, 6, &n_done), FR_DIVERGED);
            assert_int_equal(n_done, 2);
            assert_true(says(&bad, "mini-batch 2, micro-batch"));
            fr_ctx_clear(bad.b.ctx);
            fill_minibatch(bad.b.net, 2, &bad.b.data[2]);
            rig_steps(&good, 0, 2);
            rig_steps(&good, 2, 4);
            rig_steps(&bad, 2, 4);
            assert_true(rig_distance(&good, &bad) <= 0);
            rig_close(&good), rig_close(&bad);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hangs),
        cmocka_unit_test(stopped_process),
        cmocka_unit_test(errors),
        cmocka_unit_test(slow_workers),
        cmocka_unit_test(too_slow),
        cmocka_unit_test(nan_leaves_whole_updates),
        cmocka_unit_test(nan_while_others_want_the_norm),
        cmocka_unit_test(bad_data_then_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
