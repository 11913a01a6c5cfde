/* test_simulate.c -- the simulator against formulas, the schedule's own clock, and small cases by
 * hand. */
#include "sim/rig.h"

/* --- oracles ---------------------------------------------------------------------------------- */

static void equals_the_oracle_table(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int p, m, v;
        double makespan;
        int live[4]; /* of the first workers */
    } table[] = {
        {"gpipe", 4, 8, 1, 33, {8, 8, 8, 8}},
        {"gpipe", 8, 32, 1, 117, {32, 32, 32, 32}},
        {"1f1b", 4, 8, 1, 33, {4, 3, 2, 1}},
        {"1f1b", 8, 16, 1, 69, {8, 7, 6, 5}},
        {"zb-h1", 2, 2, 1, 7, {2, 2}},
        {"zb-h1", 4, 4, 1, 15, {4, 4, 4, 4}},
        {"zb-h1", 4, 8, 1, 27, {4, 4, 4, 4}},
        {"zb-h1", 8, 16, 1, 55, {8, 8, 8, 8}},
        {"zb-h1", 8, 32, 1, 103, {8, 8, 8, 8}},
        {"interleaved", 2, 4, 2, 27, {5}},
        {"interleaved", 4, 8, 2, 57, {11}},
        {"interleaved", 4, 8, 4, 105, {19}},
        {"zb-h2", 4, 8, 1, 27, {7, 7, 7, 7}},
        {"zbv", 4, 8, 2, 51, {8, 8, 8, 8}},
        {"v-half", 4, 8, 2, 60, {6, 6, 6, 6}},
        {"v-min", 4, 8, 2, 59, {4, 4, 4, 4}},
        {"dualpipev", 4, 8, 2, 51, {9, 9, 9, 9}},
    };
    rig r;
    rig_init(&r, 1);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        rig_schedule(&r, table[i].name, table[i].p * table[i].v, table[i].v, table[i].m, 1, NULL,
                     false);
        fr_sim_desc d = rig_desc(&r, 1);
        fr_sim_result out = rig_run(&r, &d);
        is_near(out.makespan, table[i].makespan);
        is_near(out.done[0], table[i].makespan);
        for (int w = 0; w < 4 && w < table[i].p && table[i].live[w]; w++)
            assert_int_equal(out.workers[w].peak_live, table[i].live[w]);
        is_near(out.bubble, 1 - 3. * table[i].m * table[i].v / table[i].makespan);
        fr_sim_free(&out);
    }
    rig_fini(&r);
}

/* Forward 1, backward 2, recompute 1. The forward runs again while a stage waits for its gradient:
 * 4 m + 3 (p - 1), where a backward that begins with it takes 4 (m + p - 1). The last stage waits
 * for none. */
static void recompute_goes_before_the_wait(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {2, 1}, {2, 4}, {4, 8}, {4, 4}, {8, 16}, {16, 32}};
    rig r;
    rig_init(&r, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int p = sizes[i][0], m = sizes[i][1];
        fr_stage_cost cost[16];
        rig_schedule(&r, "1f1b", p, 1, m, 1, NULL, false);
        fr_sim_desc d = rig_desc(&r, 1);
        for (int k = 0; k < p; k++)
            cost[k] = (fr_stage_cost){.forward = 1, .backward = 3, .recompute = 1};
        d.timing.cost = cost;
        fr_sim_result out = rig_run(&r, &d);
        is_near(out.makespan, 4 * m + 3 * (p - 1));
        for (int w = 0; w < p; w++) is_near(out.workers[w].busy, 4 * m);
        fr_sim_bounds bounds;
        rig_check(&r, fr_sim_bounds_of(r.ctx, &d, &bounds));
        is_near(bounds.critical_path_s, 3 * p + 1);
        is_near(bounds.worker_s_per_batch, 4 * m);
        fr_sim_free(&out);
    }
    rig_fini(&r);
}

/* --- the schedule's clock --------------------------------------------------------------------- */

/* Rows by micro-batch, `times` after each other. */
static int *repeat_rows(const int *from, int rows, int n, int times)
{
    int *to = calloc((size_t)rows * (size_t)n * (size_t)times + 1, sizeof *to);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n * times; i++) to[r * n * times + i] = from[r * n + i % n];
    return to;
}

/* The walk of n_batches mini-batches written out as one long segment, on the schedule's clock. */
static double clock_makespan(rig *r, int n_batches, const fr_costs *costs)
{
    const fr_schedule *s = r->s;
    int times = (n_batches + s->n_batches - 1) / s->n_batches, n = s->n_batches * s->n_micro;
    fr_schedule walk = *s;
    walk.n_batches = times * s->n_batches;
    walk.slot_of = repeat_rows(s->slot_of, s->n_stages, n, times);
    walk.buffer_of = repeat_rows(s->buffer_of, s->n_backward, n, times);
    walk.lists = calloc((size_t)s->n_workers, sizeof *walk.lists);
    for (int w = 0; w < s->n_workers; w++) {
        fr_instr_list *to = &walk.lists[w];
        to->at = calloc((size_t)(s->lists[w].n * times + 1), sizeof *to->at);
        for (int t = 0; t < times; t++)
            for (int i = 0; i < s->lists[w].n; i++) {
                fr_instr in = s->lists[w].at[i];
                bool is_of_batch = in.action == FR_DO_STEP || in.action == FR_DO_REDUCE;
                in.micro += t * (is_of_batch ? s->n_batches : n);
                if ((is_of_batch ? in.micro : in.micro / s->n_micro) < n_batches)
                    to->at[to->n++] = in;
            }
    }
    fr_clock clock;
    rig_check(r, fr_schedule_clock(r->ctx, &walk, costs, &clock));
    double makespan = clock.makespan;
    fr_clock_free(&clock);
    for (int w = 0; w < s->n_workers; w++) free(walk.lists[w].at);
    free(walk.lists);
    free(walk.slot_of);
    free(walk.buffer_of);
    return makespan;
}

/* Links that only delay: bandwidth is free. Replicas wait for each other at steps, in a flush for
 * all stages. */
static void equals_the_clock(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 2);
    for (int round = 0; round < 600; round++) {
        rig_random_schedule(&r, true);
        int n_batches = rig_from(&r, 1, 7);
        double latency = round % 2 * 0.5, delay[RIG_STAGES], table[4][RIG_STAGES];
        bool has_cluster = round % 4 > 0, has_replicas = false;
        for (int k = 0; k < r.s->n_stages; k++) {
            has_replicas |= r.s->replicas[k] > 1;
            delay[k] = has_cluster ? latency : 0;
            table[0][k] = r.cost[k].forward, table[1][k] = r.cost[k].back_input;
            table[2][k] = r.cost[k].back_weight, table[3][k] = r.cost[k].step;
        }
        const fr_costs costs = {.forward = table[0],
                                .back_input = table[1],
                                .back_weight = table[2],
                                .step = table[3],
                                .send_forward = delay,
                                .send_backward = delay};
        if (has_cluster)
            rig_check(&r, fr_cluster_flat(r.ctx, r.s->n_workers, 0, latency, &r.cluster));
        fr_sim_desc d = rig_desc(&r, n_batches);
        d.steps_together = r.has_reduce; /* the clock has no other flush */
        if (!has_replicas || latency == 0) {
            double expected = clock_makespan(&r, n_batches, &costs), got = rig_makespan(&r, &d);
            if (fabs(got - expected) > 1e-9 * expected)
                fail_msg("round %d: %s, %d stages, %d workers, %d mini-batches: %.12g, clock %.12g",
                         round, r.s->name, r.s->n_stages, r.s->n_workers, n_batches, got, expected);
        }
        fr_cluster_free(r.cluster);
        r.cluster = NULL;
    }
    rig_fini(&r);
}

/* --- by hand ---------------------------------------------------------------------------------- */

static void one_worker_takes_the_sum(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 3);
    rig_schedule(&r, "1f1b", 1, 1, 4, 1, NULL, false);
    r.cost[0].step = 0.5;
    r.speed[0] = 2;
    fr_sim_desc d = rig_desc(&r, 10);
    d.timing.overhead_s = 0.125;
    fr_sim_result out = rig_run(&r, &d);
    double batch = (4 * 3 + 0.5) / 2 + 9 * 0.125;
    is_near(out.makespan, 10 * batch);
    is_near(out.s_per_batch, batch);
    is_near(out.bubble, 0);
    is_near(out.workers[0].busy, 10 * batch);
    is_near(out.workers[0].wait, 0);
    for (int b = 0; b < 10; b++) is_near(out.done[b], (b + 1) * batch);
    fr_sim_free(&out);
    rig_fini(&r);
}

/* Two stages, two micro-batches, messages of 2 s and 1 s of latency:
 *   w0  F0 F1 . . . B0 . B1         F0 0-1, F1 1-2; there at 4 and (port busy until 3) at 6
 *   w1  . . . . F0 B0 F1 B1 ...     F0 4-5, B0 5-7: back at 10; F1 7-8, B1 8-10: back at 13 */
static void messages_by_hand(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 4);
    rig_schedule(&r, "1f1b", 2, 1, 2, 1, NULL, false);
    rig_check(&r, fr_cluster_flat(r.ctx, 2, 500, 1, &r.cluster));
    r.forward_bytes[0] = r.backward_bytes[0] = 1000;
    fr_sim_desc d = rig_desc(&r, 1);
    d.n_events = 100;
    fr_sim_result out = rig_run(&r, &d);
    is_near(out.makespan, 15);
    is_near(out.workers[1].busy, 6);
    is_near(out.workers[1].wait, 0);
    is_near(out.workers[0].wait, 15 - 6);
    is_near(out.message_bytes, 4000);
    const fr_event *e = out.workers[1].events;
    assert_true(e[0].is_wait && e[0].action == FR_DO_RECV_F && e[0].end_ns == 4000000000u);
    fr_sim_free(&out);
    rig_fini(&r);
}

/* Three buckets (4 MiB, 4 MiB, 2 MiB: submitted from the end), the last backward from 1 to 3, all
 * in proportion. 2 replicas: a bucket goes once over each port, 1 MiB/s. */
static void sums_by_hand(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 5);
    rig_schedule(&r, "1f1b", 1, 1, 2, 1, (int[]){2}, false);
    rig_check(&r, fr_cluster_flat(r.ctx, 2, 1 << 20, 0.5, &r.cluster));
    r.cost[0].param_bytes = 10 << 20;
    r.cost[0].step = 5;
    fr_sim_desc d = rig_desc(&r, 1);
    d.overlaps = true;
    d.n_events = 100;
    /* Submitted at 1.8, 2.6, 3; done at 1.8 + 4 + 2 * 0.5 = 6.8, and one after the other at 11.8
     * and 14.8; stepped 2 s from 6.8, 2 s from 11.8, 1 s from 14.8. */
    fr_sim_result out = rig_run(&r, &d);
    is_near(out.makespan, 15.8);
    is_near(out.sum_bytes, 2 * 10 << 20);
    is_near(out.workers[0].busy, 1 + 2 + 5);
    int n_sums = 0;
    for (int i = 0; i < out.workers[1].n_events; i++) {
        const fr_event *e = &out.workers[1].events[i];
        if (!e->is_beside) continue;
        n_sums++;
        assert_int_equal(e->action, FR_DO_REDUCE);
        if (e->micro == 2) assert_true(e->start_ns == 1800000000u && e->end_ns == 6800000000u);
    }
    assert_int_equal(n_sums, 3);
    fr_sim_free(&out);
    /* Submitted at the end: 3 + 4 + 1 = 8, 13, 16, each stepped on arrival. */
    d.overlaps = false;
    is_near(rig_makespan(&r, &d), 17);
    /* Sums by the worker itself, which cannot step meanwhile. */
    d.adds_itself = true;
    is_near(rig_makespan(&r, &d), 16 + 5);
    d.adds_itself = false;
    /* Nothing is final in the first half: submitted from 2.4 on. */
    d.overlaps = true;
    r.cost[0].final = (fr_curve){3, (double[]){0, 0.5, 1}, (double[]){0, 0, 1}};
    is_near(rig_makespan(&r, &d), 2.4 + 5 + 5 + 3 + 1);
    /* A slow replica delays the other. */
    r.cost[0].final = (fr_curve){0};
    r.speed[1] = 0.5;
    out = rig_run(&r, &d); /* submitted at 3.6, 5.2, 6; done at 8.6, 13.6, 16.6 */
    is_near(out.workers[0].busy + out.workers[0].wait, 16.6 + 1);
    is_near(out.makespan, 13.6 + 4 + 2);
    fr_sim_free(&out);
    rig_fini(&r);
}

/* Two stages of two replicas, sums of 8 buckets of 4 s each. The gradient that stage 1 sends down
 * waits for the current bucket (submitted at 2.25), not for those behind it: it is sent at 6.25 and
 * takes 1 s, so stage 0 ends its backward at 9.25. */
static void messages_pass_between_buckets(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 11);
    rig_schedule(&r, "1f1b", 2, 1, 2, 1, (int[]){2, 2}, false);
    rig_check(&r, fr_cluster_flat(r.ctx, 4, 1 << 20, 0, &r.cluster));
    r.cost[1].param_bytes = 32 << 20;
    r.backward_bytes[0] = 1 << 20;
    fr_sim_desc d = rig_desc(&r, 1);
    d.overlaps = true;
    fr_sim_result out = rig_run(&r, &d);
    is_near(out.workers[0].busy + out.workers[0].wait, 9.25);
    is_near(out.makespan, 2.25 + 8 * 4 + 1);
    fr_sim_free(&out);
    rig_fini(&r);
}

/* Replicas step on their own; weights of 1 MiB every second update, 1 s each on the links. */
static void means_by_hand(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 6);
    rig_schedule(&r, "1f1b", 1, 1, 2, 1, (int[]){2}, false);
    rig_check(&r, fr_cluster_flat(r.ctx, 2, 1 << 20, 0, &r.cluster));
    r.cost[0].param_bytes = 1 << 20;
    r.cost[0].step = 1;
    r.speed[1] = 2;
    fr_sim_desc d = rig_desc(&r, 4);
    d.sync_every = 2;
    fr_sim_result out = rig_run(&r, &d);
    is_near(out.done[0], 4);
    is_near(out.done[1], 8 + 1);
    is_near(out.makespan, 2 * 9);
    is_near(out.workers[1].busy, 8);
    is_near(out.sum_bytes, 1 << 20);
    fr_sim_free(&out);
    d.sync_every = 5;
    is_near(rig_makespan(&r, &d), 16);
    r.cost[0].param_bytes = 10 << 20; /* in one piece: the latency once */
    r.cluster->groups[0].latency = 0.25;
    d.sync_every = 4;
    is_near(rig_makespan(&r, &d), 16 + 10 + 2 * 0.25);
    rig_fini(&r);
}

/* Without a flush the update of a real run is inside the backward, before the gradients leave; with
 * one they are sent first. */
static void updates_are_fused(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 7);
    for (int flush = 0; flush < 2; flush++) {
        rig_schedule(&r, flush ? "1f1b" : "1f1b-async", 2, 1, 1, 1, NULL, false);
        r.cost[1].step = 4;
        fr_sim_desc d = rig_desc(&r, 1);
        is_near(rig_makespan(&r, &d), 1 + 1 + 2 + 4); /* beside the other's backward */
        rig_fuse(&r, &d);
        is_near(rig_makespan(&r, &d), flush ? 8 : 1 + 1 + 2 + 4 + 2);
    }
    rig_fini(&r);
}

/* Weights are predicted before the first pass of a mini-batch in a real run, in STEP on a cluster;
 * the second micro-batch reuses them. */
static void weights_are_fetched_first(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 12);
    for (int backward = 0; backward < 2; backward++) {
        rig_schedule(&r, "1f1b-async", 2, 1, 2, 1, NULL, false);
        *(backward ? &r.cost[1].fetch_backward : &r.cost[1].fetch_forward) = 3;
        fr_sim_desc d = rig_desc(&r, 1);
        is_near(rig_makespan(&r, &d), 1 + 2 * (1 + 2) + 3); /* STEP ends last */
        rig_fuse(&r, &d);
        is_near(rig_makespan(&r, &d), 1 + 3 + 2 * (1 + 2) + 2);
    }
    rig_fini(&r);
}

static void steps_together(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 8);
    rig_schedule(&r, "gpipe", 2, 1, 1, 1, NULL, true);
    r.cost[0].step = r.cost[1].step = 4;
    fr_sim_desc d = rig_desc(&r, 3);
    is_near(rig_makespan(&r, &d), 3 * (1 + 1 + 2 + 2 + 4)); /* stage 0 is never early */
    fr_sim_result out = rig_run(&r, &d);
    is_near(out.workers[1].busy + out.workers[1].wait, 30 - 1 - 2); /* steps in stage 0's time */
    fr_sim_free(&out);
    d.steps_together = true;
    out = rig_run(&r, &d);
    is_near(out.workers[1].busy + out.workers[1].wait, 30 - 1);
    fr_sim_free(&out);
    rig_fini(&r);
}

static void leaves_out_the_first_tenth(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 9);
    rig_schedule(&r, "1f1b-async", 3, 1, 1, 5, NULL, false);
    fr_sim_desc d = rig_desc(&r, 20);
    fr_sim_result out = rig_run(&r, &d);
    is_near(out.s_per_batch, (out.done[19] - out.done[1]) / 18);
    assert_true(out.s_per_batch < out.makespan / 20);
    for (int b = 1; b < 20; b++) assert_true(out.done[b] >= out.done[b - 1]);
    fr_sim_free(&out);
    rig_fini(&r);
}

/* Times that vary about their mean: one worker takes the mean; two that wait for each other take
 * longer (the maximum of two is later than either), the more the times vary. */
static void what_is_late_holds_others_up(void **state)
{
    (void)state;
    enum { N = 4000 };
    rig r;
    rig_init(&r, 11);
    rig_schedule(&r, "1f1b", 1, 1, 4, 1, NULL, false);
    fr_sim_desc d = rig_desc(&r, N);
    double alone = rig_makespan(&r, &d);
    d.jitter = 0.5;
    double varied = rig_makespan(&r, &d);
    assert_true(varied != alone && fabs(varied / alone - 1) < 0.01);
    assert_true(rig_makespan(&r, &d) == varied);
    d.draw = 1;
    double drawn = rig_makespan(&r, &d);
    assert_true(drawn != varied && fabs(drawn / alone - 1) < 0.01);
    rig_schedule(&r, "gpipe", 2, 1, 4, 1, NULL, false);
    double before = 0;
    for (int tenths = 0; tenths <= 10; tenths++) {
        d = rig_desc(&r, N);
        d.jitter = tenths / 10.;
        double now = rig_makespan(&r, &d);
        if (!(now > before * 1.01)) fail_msg("jitter %g: %g after %g", d.jitter, now, before);
        before = now;
    }
    rig_fini(&r);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuses(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 10);
    rig_schedule(&r, "1f1b", 4, 1, 4, 1, NULL, false);
    rig_check(&r, fr_cluster_flat(r.ctx, 3, 1, 0, &r.cluster));
    fr_sim_result out;
    fr_sim_desc good = rig_desc(&r, 1), bad;
    bad = good;
    assert_int_equal(fr_simulate(r.ctx, &bad, &out), FR_INVALID); /* a fourth device */
    assert_non_null(strstr(fr_ctx_error(r.ctx), "worker 3 is on device 3"));
    good.timing.cluster = NULL;
    bad = good, bad.n_batches = 0;
    assert_int_equal(fr_simulate(r.ctx, &bad, &out), FR_INVALID);
    bad = good, bad.timing.cost = NULL;
    assert_int_equal(fr_simulate(r.ctx, &bad, &out), FR_INVALID);
    bad = good, bad.timing.overhead_s = NAN;
    assert_int_equal(fr_simulate(r.ctx, &bad, &out), FR_INVALID);
    bad = good, bad.jitter = 1.5;
    assert_int_equal(fr_simulate(r.ctx, &bad, &out), FR_INVALID);
    bad = good, bad.steps_together = true;
    assert_int_equal(fr_simulate(r.ctx, &bad, &out), FR_INVALID);
    r.speed[2] = NAN;
    assert_int_equal(fr_simulate(r.ctx, &good, &out), FR_INVALID);
    r.speed[2] = 1;
    r.cost[1].back_input = -1;
    assert_int_equal(fr_simulate(r.ctx, &good, &out), FR_INVALID);
    assert_null(out.arena);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_oracle_table),
        cmocka_unit_test(recompute_goes_before_the_wait),
        cmocka_unit_test(equals_the_clock),
        cmocka_unit_test(one_worker_takes_the_sum),
        cmocka_unit_test(messages_by_hand),
        cmocka_unit_test(sums_by_hand),
        cmocka_unit_test(messages_pass_between_buckets),
        cmocka_unit_test(means_by_hand),
        cmocka_unit_test(updates_are_fused),
        cmocka_unit_test(weights_are_fetched_first),
        cmocka_unit_test(steps_together),
        cmocka_unit_test(leaves_out_the_first_tenth),
        cmocka_unit_test(what_is_late_holds_others_up),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
