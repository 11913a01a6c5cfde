/* test_bubble.c -- the bubble of synthetic runs with known parts. Times are whole seconds; B counts
 * as back_input, as the engine notes it. */
#include "forecast/bubble.h"
#include "support/check.h"

#include <math.h>

enum { MAX_STAGES = 4 };
#define S 1000000000u

static void assert_near(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance)) fail_msg("%.9g, expected %.9g", got, expected);
}

typedef struct run {
    fr_ctx *ctx;
    const fr_schedule *s;
    fr_worker_times workers[MAX_STAGES];
    fr_stage_times stages[MAX_STAGES];
    fr__bubble_input in;
} run;

/* n mini-batches of n_micro, with forward[k], backward[k] (weight[k] of it in W where the schedule
 * splits) and step[k] seconds on stage k, in wall seconds each. */
static void open_run(run *r, const char *generator, int n_stages, int n_micro, int segment)
{
    fr_schedule_desc d = {.n_stages = n_stages, .n_micro = n_micro, .n_batches = segment};
    memset(r, 0, sizeof *r);
    r->ctx = fr_ctx_create();
    assert_ok(r->ctx, fr_schedule_create(r->ctx, fr_generator_find(generator), &d, &r->s));
    r->in = (fr__bubble_input){.schedule = r->s, .workers = r->workers, .stages = r->stages};
}

static void add_stage(run *r, int stage, uint64_t forward, uint64_t backward, uint64_t weight,
                      uint64_t step)
{
    uint64_t n = (uint64_t)r->in.n_batches, m = n * (uint64_t)r->s->n_micro * S;
    r->stages[stage] = (fr_stage_times){.forward_ns = forward * m,
                                        .back_input_ns = backward * m,
                                        .back_weight_ns = weight * m,
                                        .step_ns = step * n * S,
                                        .n_micro = (int64_t)(m / S),
                                        .n_steps = (int64_t)n};
    fr_worker_times *w = &r->workers[r->s->worker_of[stage]];
    w->ns[FR_SPENT_FORWARD] += forward * m;
    w->ns[FR_SPENT_BACKWARD] += backward * m;
    w->ns[FR_SPENT_WEIGHT] += weight * m;
    w->ns[FR_SPENT_STEP] += step * n * S;
}

static fr__bubble split(run *r, double wall_per_batch)
{
    fr__bubble b;
    for (int w = 0; w < r->s->n_workers; w++)
        r->workers[w].wall_ns = (uint64_t)(wall_per_batch * (double)r->in.n_batches * S);
    assert_ok(r->ctx, fr__bubble_split(r->ctx, &r->in, &b));
    assert_near(b.fill_drain + b.imbalance + b.communication, b.bubble, 1e-12);
    assert_near(b.measured_s_per_batch, wall_per_batch, 1e-9);
    return b;
}

static void close_run(run *r)
{
    fr_schedule_free(r->s);
    fr_ctx_free(r->ctx);
}

static void assert_parts(const fr__bubble *b, double fill_drain, double imbalance,
                         double communication, double tolerance)
{
    assert_near(b->fill_drain, fill_drain, tolerance);
    assert_near(b->imbalance, imbalance, tolerance);
    assert_near(b->communication, communication, tolerance);
}

/* (m + p - 1) / m of the work, whatever the number of mini-batches: a flush. */
static void even_flush(void **state)
{
    (void)state;
    static const char *const generators[] = {"gpipe", "1f1b"};
    for (int g = 0; g < 2; g++)
        for (int64_t n = 1; n <= 10000; n *= 100) {
            static run r;
            open_run(&r, generators[g], 2, 2, 1);
            r.in.n_batches = n;
            add_stage(&r, 0, 1, 2, 0, 0);
            add_stage(&r, 1, 1, 2, 0, 0);
            fr__bubble b = split(&r, 10);
            assert_near(b.bubble, 0.4, 1e-9);
            assert_near(b.scheduled_s_per_batch, 9, 1e-9);
            assert_parts(&b, 0.3, 0, 0.1, 1e-9);
            assert_near(b.optimizer, 0, 0);
            close_run(&r);
        }
}

/*     w0  F F . . . . . . . B B . . B B
 *     w1  . F F F F B B B B B B B B        15 against 13.5 with 1.5 and 3 on both; work 9 */
static void uneven_flush(void **state)
{
    (void)state;
    static run r;
    open_run(&r, "gpipe", 2, 2, 1);
    r.in.n_batches = 7;
    add_stage(&r, 0, 1, 2, 0, 0);
    add_stage(&r, 1, 2, 4, 0, 0);
    fr__bubble b = split(&r, 16);
    assert_near(b.scheduled_s_per_batch, 15, 1e-9);
    assert_parts(&b, 4.5 / 16, 1.5 / 16, 1.0 / 16, 1e-9);
    assert_int_equal(b.busiest, 1);
    close_run(&r);
}

/*     w0  F . . B U     w1's update hides behind w0's backward, w0's own does not
 *     w1  . F B U */
static void optimizer(void **state)
{
    (void)state;
    static run r;
    open_run(&r, "gpipe", 2, 1, 1);
    r.in.n_batches = 3;
    add_stage(&r, 0, 1, 1, 0, 1);
    add_stage(&r, 1, 1, 1, 0, 1);
    fr__bubble b = split(&r, 5);
    assert_near(b.scheduled_s_per_batch, 5, 1e-9);
    assert_parts(&b, 2.0 / 5, 0, 0, 1e-9);
    assert_near(b.optimizer, 1.0 / 5, 1e-9);
    close_run(&r);
    open_run(&r, "gpipe", 2, 1, 1);
    r.in.n_batches = 3;
    add_stage(&r, 0, 1, 1, 0, 2);
    add_stage(&r, 1, 1, 1, 0, 4); /* the busiest */
    b = split(&r, 8);
    assert_near(b.optimizer, 4.0 / 8, 1e-9);
    close_run(&r);
}

/* Without a flush the slowest stage sets the pace, and even stages leave nothing idle. */
static void asynchronous(void **state)
{
    (void)state;
    for (int segment = 1; segment <= 100; segment += 33) {
        static run r;
        open_run(&r, "1f1b-async", 2, 1, segment == 1 ? 300 : segment);
        r.in.n_batches = 20000000;
        add_stage(&r, 0, 1, 2, 0, 0);
        add_stage(&r, 1, 2, 4, 0, 0);
        fr__bubble b = split(&r, 6.5);
        if (segment == 1) {
            assert_near(b.scheduled_s_per_batch, 6, 1e-2);
            assert_parts(&b, 0, 1.5 / 6.5, 0.5 / 6.5, 1e-2);
        } else { /* drained after each segment, so a little longer, by less than one fill */
            assert_int_in_range((int)(b.scheduled_s_per_batch * 1000), 6000,
                                6000 + 3 * 1000 / segment);
        }
        close_run(&r);
    }
}

/* Many calls of one mini-batch: filled and drained every time.  F0 F1 B1 B0 */
static void each_call_fills_and_drains(void **state)
{
    (void)state;
    static run r;
    open_run(&r, "1f1b-async", 2, 1, 16);
    r.in.n_batches = 8, r.in.n_calls = 8;
    add_stage(&r, 0, 1, 1, 0, 0);
    add_stage(&r, 1, 1, 1, 0, 0);
    fr__bubble b = split(&r, 4);
    assert_parts(&b, 0.5, 0, 0, 1e-9);
    r.in.n_calls = 1; /* in one go: F and B of 8, and F0 .. B0 once around them: 18 slots */
    b = split(&r, 4);
    assert_near(b.scheduled_s_per_batch, 18.0 / 8, 1e-9);
    close_run(&r);
}

/* Split backwards: one call of one mini-batch is the makespan of the oracle, 3m + p - 1; without a
 * barrier the next mini-batch moves into the gap. */
static void split_backward(void **state)
{
    (void)state;
    static run r;
    open_run(&r, "zb-h1", 4, 8, 1);
    r.in.n_batches = 1;
    for (int k = 0; k < 4; k++) add_stage(&r, k, 1, 1, 1, 0);
    fr__bubble b = split(&r, 27);
    assert_near(b.scheduled_s_per_batch, 27, 1e-9);
    assert_parts(&b, 3.0 / 27, 0, 0, 1e-9);
    close_run(&r);
    open_run(&r, "zb-h1", 4, 8, 1);
    r.in.n_batches = 1000;
    for (int k = 0; k < 4; k++) add_stage(&r, k, 1, 1, 1, 0);
    b = split(&r, 27);
    assert_int_in_range((int)(b.scheduled_s_per_batch * 1000), 24000, 27000);
    close_run(&r);
}

static void one_worker_has_none(void **state)
{
    (void)state;
    static run r;
    open_run(&r, "1f1b", 1, 4, 1);
    r.in.n_batches = 5;
    add_stage(&r, 0, 1, 2, 0, 3);
    fr__bubble b = split(&r, 15);
    assert_parts(&b, 0, 0, 0, 1e-9);
    assert_near(b.optimizer, 3.0 / 15, 1e-9);
    close_run(&r);
}

static void nothing_has_run(void **state)
{
    (void)state;
    static run r;
    fr__bubble b;
    open_run(&r, "1f1b", 2, 4, 1);
    assert_ok(r.ctx, fr__bubble_split(r.ctx, &r.in, &b));
    assert_true(isnan(b.bubble) && isnan(b.fill_drain) && isnan(b.scheduled_s_per_batch));
    assert_int_equal(b.busiest, -1);
    close_run(&r);
}

static fr_status split_again(fr_ctx *ctx, void *user)
{
    run *r = user;
    fr__bubble b;
    return fr__bubble_split(ctx, &r->in, &b);
}

static void running_out_of_memory(void **state)
{
    (void)state;
    static run r;
    open_run(&r, "1f1b", 2, 4, 1);
    r.in.n_batches = 200;
    add_stage(&r, 0, 1, 2, 0, 0);
    add_stage(&r, 1, 1, 2, 0, 0);
    split(&r, 16);
    assert_true(support_walk_memory(split_again, &r) > 5);
    close_run(&r);
}

/* A stage three times as slow with three workers is not an imbalance; with one worker it is. */
static void replicas_share_work(void **state)
{
    (void)state;
    static const int counts[2][2] = {{3, 1}, {2, 2}};
    for (int c = 0; c < 2; c++) {
        run r;
        open_run(&r, "gpipe", 2, 12, 1);
        fr_schedule_free(r.s);
        fr_schedule_desc d = {.n_stages = 2, .n_micro = 12, .n_batches = 1, .replicas = counts[c]};
        assert_ok(r.ctx, fr_schedule_create(r.ctx, fr_generator_find("gpipe"), &d, &r.s));
        r.in.schedule = r.s;
        r.in.n_batches = 2;
        add_stage(&r, 0, 3, 6, 0, 0);
        add_stage(&r, 1, 1, 2, 0, 0);
        fr__bubble b = split(&r, 60);
        if (c == 0) assert_near(b.imbalance, 0, 1e-9);
        if (c == 1) assert_true(b.imbalance > 0.1);
        close_run(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_flush),
        cmocka_unit_test(uneven_flush),
        cmocka_unit_test(optimizer),
        cmocka_unit_test(asynchronous),
        cmocka_unit_test(each_call_fills_and_drains),
        cmocka_unit_test(split_backward),
        cmocka_unit_test(one_worker_has_none),
        cmocka_unit_test(nothing_has_run),
        cmocka_unit_test(running_out_of_memory),
        cmocka_unit_test(replicas_share_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
