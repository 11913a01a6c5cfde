/* test_emulation.c -- emulation: a run takes the modelled time, and computes the same numbers as
 * without emulation. Times are checked on a virtual clock, which other processes cannot delay; on
 * the machine's own clock, a run never takes less. */
#include "engine/clocks.h"
#include "engine/rig.h"
#include "exec/stage.h"

#include "base/thread.h"

enum { MOST = 4, N_STEPS = 6, MS = 1000000 };

typedef struct setting {
    fr_stage_cost cost[MOST];
    double speed[8];
    fr_timing timing;
    fr_cluster *cluster;
} setting;

/* All stages alike, in milliseconds. */
static void set_costs(setting *s, double forward, double backward, double step)
{
    memset(s, 0, sizeof *s);
    for (int k = 0; k < MOST; k++)
        s->cost[k] = (fr_stage_cost){.forward = forward * 1e-3,
                                     .backward = backward * 1e-3,
                                     .back_input = backward * 0.4e-3,
                                     .back_weight = backward * 0.6e-3,
                                     .step = step * 1e-3};
    s->timing = (fr_timing){.cost = s->cost};
}

static void open_paced(rig *r, int which, const rig_options *o, const setting *s, double scale)
{
    if (rig_prepare(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
    r->desc.timing = s ? &s->timing : NULL;
    r->desc.scale = scale;
    if (fr_engine_create(r->b.ctx, &r->desc, &r->engine) != FR_OK) fail_msg("%s", rig_about(r, o));
}

/* --- results -----------------------------------------------------------------------------------
 */

typedef struct layout {
    const char *generator, *policy, *sync;
    int n_stages, replicas[MOST], chunks;
    bool norm;
} layout;

static const layout layouts[] = {
    {"sequential", NULL, NULL, 1, {1}, 0, false},
    {"sequential", NULL, NULL, 1, {4}, 0, true},
    {"gpipe", NULL, NULL, 3, {1, 1, 1}, 0, true},
    {"1f1b", NULL, NULL, 2, {2, 2}, 0, true},
    {"1f1b", NULL, NULL, 2, {1, 2}, 0, false},
    {"zb-h1", NULL, NULL, 3, {1, 1, 1}, 0, false},
    {"interleaved", NULL, NULL, 4, {1, 1, 1, 1}, 2, false},
    {"1f1b-async", "live", NULL, 3, {1, 1, 1}, 0, false},
    {"1f1b-async", "stash", NULL, 2, {2, 1}, 0, false},
    {"1f1b-async", "spectrain", NULL, 4, {1, 1, 1, 1}, 0, false},
    {"sequential", NULL, "average", 1, {4}, 0, false},
    {"sequential", NULL, "wsp", 1, {2}, 0, false},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static void run_layout(int which, const layout *l, const setting *s, const char *fault,
                       char sha[65], double losses[N_STEPS])
{
    bool is_flush = fr_generator_find(l->generator)->is_flush;
    rig r;
    rig_options o = {.generator = l->generator,
                     .policy = l->policy,
                     .n_stages = l->n_stages,
                     .replicas = l->replicas,
                     .chunks = l->chunks,
                     .n_micro = 4,
                     .n_batches = is_flush ? 0 : N_STEPS,
                     .want_norm = l->norm,
                     .sync = {.name = l->sync, .every = 2, .distance = 1},
                     .lr = 0.02,
                     .fault = fault};
    open_paced(&r, which, &o, s, 1);
    rig_steps(&r, 0, N_STEPS);
    for (int i = 0; i < N_STEPS; i++) losses[i] = r.tally[i].loss;
    rig_sha(&r, sha);
    rig_close(&r);
}

static void the_same_results(void **unused)
{
    (void)unused;
    setting s;
    set_costs(&s, 0.2, 0.4, 0.1);
    for (int w = 0; w < 8; w++) s.speed[w] = w % 3 == 1 ? 0.5 : 2;
    s.timing.speed = s.speed;
    s.timing.overhead_s = 1e-5;
    fr_ctx *ctx = fr_ctx_create();
    assert_ok(ctx, fr_cluster_flat(ctx, 8, 2e7, 1e-5, &s.cluster));
    s.timing.cluster = s.cluster;
    for (int which = 0; which < N_NETS; which += IS_SANITIZED ? 3 : 1)
        for (int i = 0; i < N_LAYOUTS; i++) {
            const layout *l = &layouts[i];
            char plain[65], emulated[65];
            double a[N_STEPS], b[N_STEPS];
            if (which == TIED && (l->policy || (l->sync && l->n_stages > 1))) continue;
            run_layout(which, l, NULL, NULL, plain, a);
            run_layout(which, l, &s, i % 2 ? "jitter:ms=1,seed=9" : NULL, emulated, b);
            if (strcmp(plain, emulated) != 0 || memcmp(a, b, sizeof a) != 0)
                fail_msg("net %s, layout %d (%s): other results", nets[which].name, i,
                         l->generator);
        }
    fr_cluster_free(s.cluster);
    fr_ctx_free(ctx);
}

/* --- times -------------------------------------------------------------------------------------
 */

enum { N_TIMED = 9, N_FILLING = 4 }; /* an asynchronous pipeline is full then, up to the last one */

static bool note_done(rig *r, const fr_batch_report *report)
{
    uint64_t *done = r->user;
    if (report->step < N_TIMED) done[report->step] = report->done_ns;
    return true;
}

static bool is_near(double value, double expected)
{
    return fabs(value - expected) < 1e-3 * expected;
}

/* Milliseconds of each mini-batch while the pipeline is full. */
static void assert_takes(const rig_options *o, const setting *s, double scale, double expected)
{
    rig r;
    virtual_clock clock;
    uint64_t done[N_TIMED];
    open_paced(&r, MLP, o, s, scale);
    use_virtual_clock(r.engine, &clock);
    r.on_report = note_done;
    r.user = done;
    rig_steps(&r, 0, N_TIMED);
    for (int i = N_FILLING; i < N_TIMED - 1; i++) {
        double ms = (double)(done[i] - done[i - 1]) / (double)MS;
        if (!is_near(ms, expected))
            fail_msg("%s, %d stages: mini-batch %d took %.3f ms, expected %.3f", o->generator,
                     o->n_stages, i, ms, expected);
    }
    fr_overrun over = fr_engine_overrun(r.engine);
    assert_true(over.late_s == 0 && over.paced_s > 0);
    rig_close(&r);
}

/* (m + n - 1) (F + B) and the step of stage 0, which is the last. */
static void pipelines_take_their_time(void **unused)
{
    (void)unused;
    setting s;
    set_costs(&s, 5, 10, 4);
    assert_takes(&(rig_options){.generator = "sequential", .n_micro = 2}, &s, 1, 2 * 15 + 4);
    assert_takes(&(rig_options){.generator = "gpipe", .n_stages = 2, .n_micro = 4}, &s, 1,
                 5 * 15 + 4);
    /* two seconds of the wall clock per virtual second: the virtual one is reported */
    assert_takes(&(rig_options){.generator = "1f1b", .n_stages = 2, .n_micro = 4}, &s, 2,
                 5 * 15 + 4);
    /* a stage is never idle */
    assert_takes(&(rig_options){.generator = "1f1b-async",
                                .policy = "stash",
                                .n_stages = 3,
                                .n_micro = 1,
                                .n_batches = N_TIMED},
                 &s, 1, 15 + 4);
    /* the slowest device determines the pace */
    for (int w = 0; w < 8; w++) s.speed[w] = w == 1 ? 0.5 : 1;
    s.timing.speed = s.speed;
    assert_takes(&(rig_options){.generator = "1f1b-async",
                                .policy = "stash",
                                .n_stages = 3,
                                .n_micro = 1,
                                .n_batches = N_TIMED},
                 &s, 1, 2 * (15 + 4));
}

/* Bytes of the block that replicas of MLP add up; of the message that leaves its first stage. */
static void measure_bytes(int n_stages, int n_micro, size_t *grads, size_t *message)
{
    rig r;
    rig_options o = {.generator = "gpipe", .n_stages = n_stages, .n_micro = n_micro};
    assert_int_equal(rig_open(&r, MLP, &o), FR_OK);
    *grads = r.engine->execs[0]->n_grads * sizeof(float);
    *message = n_stages > 1 ? r.engine->forward[FR_MODE_TRAIN][0].bytes : 0;
    if (n_stages > 1) assert_int_equal(*message, r.engine->backward[0].bytes);
    rig_close(&r);
}

/* F + B + the sum, for which both ports of two replicas carry the whole block, + step. */
static void replicas_wait_for_their_sum(void **unused)
{
    (void)unused;
    setting s;
    size_t grads, message;
    const int replicas[] = {2, 2};
    fr_ctx *ctx = fr_ctx_create();
    measure_bytes(1, 2, &grads, &message);
    set_costs(&s, 5, 10, 4);
    assert_ok(ctx, fr_cluster_flat(ctx, 2, (double)grads / 20e-3, 1e-3, &s.cluster));
    s.timing.cluster = s.cluster;
    rig_options o = {.generator = "sequential", .n_stages = 1, .n_micro = 2, .replicas = replicas};
    assert_takes(&o, &s, 1, 5 + 10 + (20 + 2 * 1) + 4);
    o.sync = (fr_sync_options){.name = "average", .every = 1};
    assert_takes(&o, &s, 1, 5 + 10 + 4 + (20 + 2 * 1));
    fr_cluster_free(s.cluster);
    fr_ctx_free(ctx);
}

/* One micro-batch: forward and backward, with two messages. */
static void messages_take_their_time(void **unused)
{
    (void)unused;
    setting s;
    size_t grads, whole, quarter;
    fr_ctx *ctx = fr_ctx_create();
    measure_bytes(2, 1, &grads, &whole);
    measure_bytes(2, 4, &grads, &quarter);
    set_costs(&s, 5, 10, 4);
    assert_ok(ctx, fr_cluster_flat(ctx, 2, (double)quarter / 8e-3, 1e-3, &s.cluster));
    s.timing.cluster = s.cluster;
    assert_takes(&(rig_options){.generator = "gpipe", .n_stages = 2, .n_micro = 1}, &s, 1,
                 2 * 15 + 2 * (8 * (double)whole / (double)quarter + 1) + 4);
    /* Forward messages queue at the port behind the first F; each backward message arrives before
     * the next is computed. */
    assert_takes(&(rig_options){.generator = "gpipe", .n_stages = 2, .n_micro = 4}, &s, 1,
                 5 + 4 * 8 + 1 + 5 + 4 * 10 + 8 + 1 + 10 + 4);
    /* both on one device: no way to go */
    const int same[] = {1, 1};
    s.timing.device_of = same;
    assert_takes(&(rig_options){.generator = "gpipe", .n_stages = 2, .n_micro = 1}, &s, 1,
                 2 * 15 + 4);
    fr_cluster_free(s.cluster);
    fr_ctx_free(ctx);
}

/* Notes of a stage and its worker over 4 mini-batches of 4 micro-batches; stage 1 ends when stage 0
 * still has 6 s of its last backward and its step to do. */
static bool is_noted(const rig *r, int k, double wall)
{
    const fr_stage_times *t = fr_engine_stage_times(r->engine, k);
    const fr_worker_times *w = fr_engine_times(r->engine, k);
    assert_int_equal(t->n_micro, 16);
    assert_int_equal(t->n_steps, 4);
    return is_near((double)t->forward_ns / (double)MS, 16 * 5) &&
           is_near((double)t->back_input_ns / (double)MS, 16 * 10) &&
           is_near((double)t->step_ns / (double)MS, 4 * 4) &&
           is_near((double)w->wall_ns / (double)MS, wall - 10 * k);
}

static void notes_are_emulated(void **unused)
{
    (void)unused;
    setting s;
    rig r;
    virtual_clock clock;
    rig_options o = {.generator = "gpipe", .n_stages = 2, .n_micro = 4, .n_events = 400};
    const double expected = 4 * (5 * 15 + 4), scale = 0.5;
    int n;
    set_costs(&s, 5, 10, 4);
    open_paced(&r, MLP, &o, &s, scale);
    use_virtual_clock(r.engine, &clock);
    uint64_t start = virtual_now(&clock);
    rig_steps(&r, 0, 4);
    assert_true(is_near((double)(virtual_now(&clock) - start) / (double)MS, scale * expected));
    for (int k = 0; k < 2; k++)
        if (!is_noted(&r, k, expected)) fail_msg("stage %d: times are not those of the timing", k);
    fr_overrun over = fr_engine_overrun(r.engine);
    assert_true(fabs(over.paced_s - 2 * 4 * (4 * 15 + 4) * scale * 1e-3) < 1e-6);
    const fr_event *events = fr_engine_events(r.engine, 0, &n);
    assert_true(n > 40);
    for (int i = 1; i < n; i++) assert_true(events[i].start_ns >= events[i - 1].start_ns);
    rig_close(&r);
}

/* On the machine's clock: twice the time of the timing at least. A sleep does not end early. */
static void the_wall_clock_is_kept(void **unused)
{
    (void)unused;
    setting s;
    rig r;
    rig_options o = {.generator = "gpipe", .n_stages = 2, .n_micro = 4};
    set_costs(&s, 5, 10, 4);
    open_paced(&r, MLP, &o, &s, 2);
    uint64_t start = fr__now_ns();
    rig_steps(&r, 0, 2);
    assert_true(fr__now_ns() - start >= 2 * 2 * (5 * 15 + 4) * (uint64_t)MS);
    rig_close(&r);
}

/* --- what goes wrong ---------------------------------------------------------------------------
 */

/* A device that is ten times too fast for this machine: this is reported, and the clock continues.
 */
static void lateness_is_told(void **unused)
{
    (void)unused;
    setting s;
    rig r;
    rig_options o = {.n_micro = 1, .fault = "slow:worker=0,ms=10"};
    set_costs(&s, 1, 1, 0);
    open_paced(&r, MLP, &o, &s, 1);
    rig_steps(&r, 0, 8);
    fr_overrun over = fr_engine_overrun(r.engine);
    assert_true(over.late_s > 8 * 20e-3 && fabs(over.paced_s - 8 * 2e-3) < 1e-9);
    rig_close(&r);
}

static void sleepers_are_not_stalled(void **unused)
{
    (void)unused;
    setting s;
    rig r;
    quiet_clock watch;
    rig_options o = {.generator = "gpipe", .n_stages = 2, .n_micro = 1, .stall_s = 0.2};
    set_costs(&s, 400, 400, 0);
    open_paced(&r, MLP, &o, &s, 1);
    use_quiet_watch(r.engine, &watch);
    rig_steps(&r, 0, 1);
    rig_close(&r);
}

/* A sleep ends early when another worker has failed: worker 1 fails at 3.5 s, when it has received
 * the first message and worker 0 is in its second forward of 3 s. */
static void failures_wake_sleepers(void **unused)
{
    (void)unused;
    static const char *const faults[] = {"error:worker=1,step=0", "hang:worker=1,step=0"};
    fr_ctx *ctx = fr_ctx_create();
    for (int i = 0; i < 2; i++) {
        static setting s;
        static rig r;
        static virtual_clock clock;
        static quiet_clock watch;
        int64_t n_done;
        rig_options o = {
            .generator = "gpipe", .n_stages = 2, .n_micro = 4, .stall_s = 0.3, .fault = faults[i]};
        set_costs(&s, 50, 50, 0);
        s.cost[0].forward = i == 0 ? 3 : 0.05;
        assert_ok(ctx, fr_cluster_flat(ctx, 2, 1e9, 0.5, &s.cluster));
        s.timing.cluster = s.cluster;
        open_paced(&r, MLP, &o, &s, 1);
        use_virtual_clock(r.engine, &clock);
        use_quiet_watch(r.engine, &watch);
        uint64_t start = virtual_now(&clock);
        assert_int_equal(rig_train(&r, 0, 2, &n_done), FR_PEER);
        assert_true(virtual_now(&clock) - start < (uint64_t)3600 * MS);
        assert_non_null(strstr(fr_ctx_error(r.b.ctx), "worker 1"));
        if (i == 1) break; /* memory of the lost thread is not freed */
        rig_close(&r);
        fr_cluster_free(s.cluster);
    }
    fr_ctx_free(ctx);
}

static void refused(setting *s, double scale, fr_status expected, const char *text)
{
    rig r;
    rig_options o = {.generator = "gpipe", .n_stages = 2, .n_micro = 2};
    assert_int_equal(rig_prepare(&r, MLP, &o), FR_OK);
    r.desc.timing = &s->timing;
    r.desc.scale = scale;
    assert_int_equal(fr_engine_create(r.b.ctx, &r.desc, &r.engine), expected);
    if (!strstr(fr_ctx_error(r.b.ctx), text))
        fail_msg("\"%s\" is not in \"%s\"", text, fr_ctx_error(r.b.ctx));
    rig_close(&r);
}

static void nonsense_is_refused(void **unused)
{
    (void)unused;
    setting s;
    fr_ctx *ctx = fr_ctx_create();
    set_costs(&s, 1, 1, 1);
    refused(&s, -1, FR_INVALID, "scale");
    s.cost[1].backward = NAN;
    refused(&s, 1, FR_INVALID, "stage 1");
    set_costs(&s, 1, 1, 1);
    s.timing.speed = s.speed;
    refused(&s, 1, FR_INVALID, "worker 0");
    set_costs(&s, 1, 1, 1);
    assert_ok(ctx, fr_cluster_flat(ctx, 1, 1e9, 0, &s.cluster));
    s.timing.cluster = s.cluster;
    refused(&s, 1, FR_INVALID, "worker 1 is to be on device 1");
    s.timing.cost = NULL;
    refused(&s, 1, FR_INVALID, "no costs");
    fr_cluster_free(s.cluster);
    fr_ctx_free(ctx);
}

/* At every allocation (sanitizers detect leaks). */
static void out_of_memory_is_told(void **unused)
{
    (void)unused;
    const int replicas[] = {2, 1};
    rig_options o = {
        .generator = "1f1b", .n_stages = 2, .replicas = replicas, .n_micro = 2, .want_norm = true};
    setting s;
    rig r;
    set_costs(&s, 1, 1, 1);
    assert_int_equal(rig_prepare(&r, MLP, &o), FR_OK);
    assert_ok(r.b.ctx, fr_cluster_flat(r.b.ctx, 3, 1e9, 0, &s.cluster));
    s.timing.cluster = s.cluster;
    r.desc.timing = &s.timing;
    r.desc.scale = 1;
    fr_status status = FR_NO_MEMORY;
    int n_failed = -1;
    for (int64_t n = 0; status != FR_OK; n += 1 + n / 16, n_failed++) {
        fr_ctx_clear(r.b.ctx);
        fr__alloc_fail_after(n);
        status = fr_engine_create(r.b.ctx, &r.desc, &r.engine);
        fr__alloc_fail_after(-1);
        assert_true(status == FR_OK || status == FR_NO_MEMORY);
    }
    assert_true(n_failed > 20);
    rig_steps(&r, 0, 1);
    rig_close(&r);
    fr_cluster_free(s.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_results),
        cmocka_unit_test(pipelines_take_their_time),
        cmocka_unit_test(replicas_wait_for_their_sum),
        cmocka_unit_test(messages_take_their_time),
        cmocka_unit_test(notes_are_emulated),
        cmocka_unit_test(the_wall_clock_is_kept),
        cmocka_unit_test(lateness_is_told),
        cmocka_unit_test(sleepers_are_not_stalled),
        cmocka_unit_test(failures_wake_sleepers),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(out_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
