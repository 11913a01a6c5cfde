/* test_generators.c -- makespan, live sets and order of every generator, against the formulas. */
#include "sched/random.h"

/* F = I = W = 1, free transfers. */
static void expect(const char *name, int p, int chunks, int m, double makespan, const int *live)
{
    fr_schedule *s = make(name, p * chunks, chunks, m, 1);
    fr_clock c = timed(s, NULL);
    assert_int_equal(s->n_workers, p);
    if (c.makespan != makespan)
        fail_msg("%s p=%d m=%d v=%d: makespan %g, expected %g", name, p, m, chunks, c.makespan,
                 makespan);
    for (int w = 0; live && w < p; w++)
        if (live[w] != c.peak_live[w])
            fail_msg("%s p=%d m=%d: worker %d holds %d, expected %d", name, p, m, w, c.peak_live[w],
                     live[w]);
    for (int w = 0; w < p; w++) assert_near(c.busy[w], 3.0 * m * chunks, "busy");
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void flush_formulas(void **unused)
{
    (void)unused;
    for (int a = 0; a < N_SIZES; a++)
        for (int b = 0; b < N_SIZES; b++) {
            int p = sizes[a], m = sizes[b], all[64], some[64];
            for (int w = 0; w < p; w++) all[w] = m, some[w] = m < p - w ? m : p - w;
            expect("gpipe", p, 1, m, 3 * (m + p - 1), all);
            expect("1f1b", p, 1, m, 3 * (m + p - 1), some);
            for (int w = 0; w < p; w++) some[w] = 1;
            expect("sequential", p, 1, m, 3.0 * m * p, some);
        }
}

static void zero_bubble_formulas(void **unused)
{
    (void)unused;
    for (int a = 0; a < N_SIZES; a++)
        for (int b = 0; b < N_SIZES; b++) {
            int p = sizes[a], m = sizes[b], live[64];
            for (int w = 0; w < p; w++) live[w] = m < p ? m : p;
            if (m >= p) expect("zb-h1", p, 1, m, 3 * m + p - 1, live);
        }
    const struct {
        int p, m;
        double makespan;
    } rows[] = {{2, 2, 7}, {4, 4, 15}, {4, 8, 27}, {8, 16, 55}, {8, 32, 103}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect("zb-h1", rows[i].p, 1, rows[i].m, rows[i].makespan, NULL);
}

/* Fewer micro-batches than workers: never slower than 1F1B, never faster than one round trip plus
 * the work of the first or last worker. */
static void zero_bubble_few(void **unused)
{
    (void)unused;
    for (int p = 1; p <= 16; p++)
        for (int m = 1; m < p; m++) {
            fr_schedule *s = make("zb-h1", p, 1, m, 1);
            fr_clock c = timed(s, NULL);
            if (c.makespan > 3 * (m + p - 1) || c.makespan < 2 * p + m)
                fail_msg("zb-h1 p=%d m=%d: makespan %g", p, m, c.makespan);
            for (int w = 0; w < p; w++) assert_true(c.peak_live[w] <= m);
            fr_clock_free(&c);
            fr_schedule_free(s);
        }
}

static void interleaved_formulas(void **unused)
{
    (void)unused;
    static const int workers[] = {1, 2, 3, 4, 8, 16, 32, 64};
    for (size_t a = 0; a < sizeof workers / sizeof *workers; a++)
        for (int v = 1; v <= 4; v++)
            for (int groups = 1; groups <= 4; groups++) {
                int p = workers[a], m = groups * p, live[64];
                for (int w = 0; w < p; w++) {
                    int ahead = 2 * (p - 1 - w) + (v - 1) * p + 1;
                    live[w] = ahead < m * v ? ahead : m * v;
                }
                expect("interleaved", p, v, m, 3 * (m * v + p - 1), live);
            }
    expect("interleaved", 2, 2, 4, 27, (int[]){5, 3});
    expect("interleaved", 4, 2, 8, 57, NULL);
    expect("interleaved", 4, 4, 8, 105, NULL);
}

static void orders(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        int stages, chunks, micro, batches, worker;
        const char *order;
    } rows[] = {
        {"sequential", 1, 1, 3, 1, 0, "F0 B0 F1 B1 F2 B2"},
        {"sequential", 4, 2, 2, 1, 1, "1F0 3F0 3B0 1B0 1F1 3F1 3B1 1B1"},
        {"gpipe", 2, 1, 3, 1, 0, "F0 F1 F2 B0 B1 B2"},
        {"1f1b", 2, 1, 4, 1, 0, "F0 F1 B0 F2 B1 F3 B2 B3"},
        {"1f1b", 2, 1, 4, 1, 1, "F0 B0 F1 B1 F2 B2 F3 B3"},
        {"1f1b", 4, 1, 2, 1, 0, "F0 F1 B0 B1"},
        {"1f1b-async", 2, 1, 2, 2, 0, "F0 F1 B0 F2 B1 F3 B2 B3"},
        {"interleaved", 4, 2, 2, 1, 0, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1"},
        {"interleaved", 4, 2, 4, 1, 1,
         "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
        {"zb-h1", 2, 1, 4, 1, 0, "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3"},
        {"zb-h1", 2, 1, 4, 1, 1, "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3"},
        {"nf1b", 3, 1, 2, 4, 0, "F0 F1 F2 F3 F4 F5 B0 B1 F6 F7 B2 B3 B4 B5 B6 B7"},
        {"nf1b", 3, 1, 2, 4, 2, "F0 F1 B0 B1 F2 F3 B2 B3 F4 F5 B4 B5 F6 F7 B6 B7"},
        {"forward", 4, 2, 2, 2, 0, "0F0 0F1 2F0 2F1 0F2 0F3 2F2 2F3"},
        {"forward", 4, 2, 3, 1, 1, "1F0 1F1 3F0 3F1 1F2 3F2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_schedule *s =
            make(rows[i].name, rows[i].stages, rows[i].chunks, rows[i].micro, rows[i].batches);
        char text[512];
        assert_string_equal(computations(s, rows[i].worker, text, sizeof text), rows[i].order);
        fr_schedule_free(s);
    }
}

/* F = B = 1: F(m) on stage k at slot 2m + k, B(m) at 2m + 2N - 1 - k, once the pipe is full. */
static void async_slots(void **unused)
{
    (void)unused;
    double half[64], one[64];
    for (int k = 0; k < 64; k++) half[k] = 0.5, one[k] = 1;
    fr_costs costs = {.forward = one, .back_input = half, .back_weight = half};
    for (int n = 1; n <= 64; n += n < 8 ? 1 : 28) {
        int batches = 3 * n + 4;
        fr_schedule *s = make("1f1b-async", n, 1, 1, batches);
        fr_clock c = timed(s, &costs);
        for (int k = 0; k < n; k++)
            for (int m = 0; m < batches; m++) {
                double f = start_of(s, &c, FR_DO_F, k, m), b = start_of(s, &c, FR_DO_B, k, m);
                if (m >= n - k) assert_near(f, 2 * m + k, "start of F");
                assert_near(b, 2 * m + 2 * n - 1 - k, "start of B");
            }
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

/* Updates on stage k between its own F(m) and B(m): N - 1 - k where a mini-batch is one
 * micro-batch, at most ceil((N - 1 - k) / T) else. PACI's rule: a forward starts only while
 * forwards minus backwards are below N - k. */
static void async_gap_and_flow(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 8; n++)
        for (int t = 1; t <= 4; t++) {
            fr_schedule *s = make("1f1b-async", n, 1, t, 24 / t + n);
            int total = t * s->n_batches;
            for (int k = 0; k < n; k++) {
                int steps = 0, ahead = 0, steps_at[64] = {0};
                for (int i = 0; i < s->lists[k].n; i++) {
                    const fr_instr *at = &s->lists[k].at[i];
                    steps += at->action == FR_DO_STEP;
                    if (at->action == FR_DO_F) {
                        assert_true(ahead < n - k);
                        steps_at[at->micro] = steps;
                        ahead++;
                    }
                    if (at->action != FR_DO_B) continue;
                    ahead--;
                    int gap = steps - steps_at[at->micro];
                    assert_true(gap <= (n - 1 - k + t - 1) / t);
                    if (t == 1 && at->micro >= n - 1 - k && at->micro < total)
                        assert_int_equal(gap, n - 1 - k);
                }
                assert_int_equal(steps, s->n_batches);
            }
            fr_schedule_free(s);
        }
}

/* The published table for 3 workers, T = 2: one column per slot, a joint backward is one slot. */
/* A lead of c: c (p - 1 - k) micro-batches in flight, one at least; with free transfers as fast as
 * a lead of 1. */
static void leads(void **unused)
{
    (void)unused;
    for (int p = 1; p <= 16; p++)
        for (int m = 1; m <= 32; m += 1 + m / 3)
            for (int c = 1; c <= 4; c++) {
                fr_schedule_desc d = {.n_stages = p, .n_micro = m, .n_batches = 1, .lead = c};
                fr_schedule *s = make_desc("1f1b", d);
                assert_ok(ctx, fr_schedule_check(ctx, s));
                fr_clock clock = timed(s, NULL);
                assert_near(clock.makespan, 3 * (m + p - 1), "makespan");
                d.n_batches = 5;
                fr_schedule *async = make_desc("1f1b-async", d);
                for (int k = 0; k < p; k++) {
                    int most = c == 1 ? p - k : k == p - 1 ? 1 : c * (p - 1 - k);
                    assert_int_equal(clock.peak_live[k], m < most ? m : most);
                    assert_int_equal(fr_schedule_lead(async, k), most - 1);
                }
                fr_clock_free(&clock);
                fr_schedule_free(s);
                fr_schedule_free(async);
            }
}

/* Slow links, each shared by both directions: the lead hides them. */
static void leads_on_links(void **unused)
{
    (void)unused;
    static const double makespan[] = {57, 51, 42, 42};
    fr_costs costs = {.link = 1.5};
    for (int c = 1; c <= 4; c++) {
        fr_schedule *s = make_desc(
            "1f1b", (fr_schedule_desc){.n_stages = 4, .n_micro = 8, .n_batches = 1, .lead = c});
        fr_clock clock = timed(s, &costs);
        assert_near(clock.makespan, makespan[c - 1], "makespan");
        fr_clock_free(&clock);
        fr_schedule_free(s);
    }
}

/* Stages and links that differ: the numbers of an independent event simulation. */
static void leads_on_uneven_links(void **unused)
{
    (void)unused;
    static const double forward[] = {2, 1, 2}, backward[] = {3, 2, 4}, links[] = {4, 1};
    static const double makespan[2][4] = {{87, 74, 70, 69}, {80, 66, 66, 66}};
    fr_costs costs = {.forward = forward,
                      .backward = backward,
                      .link_forward = links,
                      .link_backward = links}; /* both ways in the order of stages */
    for (int i = 0; i < 8; i++) {
        fr_schedule *s = make_desc(
            "1f1b",
            (fr_schedule_desc){.n_stages = 3, .n_micro = 8, .n_batches = 1, .lead = i % 4 + 1});
        assert_true(s->backward[0].to == 0 && s->backward[1].to == 1);
        costs.is_full_duplex = i / 4 != 0;
        fr_clock clock = timed(s, &costs);
        assert_near(clock.makespan, makespan[i / 4][i % 4], "makespan");
        fr_clock_free(&clock);
        fr_schedule_free(s);
    }
}

/* A lead of 4, M micro-batches, N stages: no more than (M + 4 N - 4) W, W the largest forward and
 * backward of a stage, or a link's two transfers (SPP). */
static void leads_are_bounded(void **unused)
{
    (void)unused;
    for (int round = 0; round < 1500; round++) {
        double forward[8], backward[8], links[8], most = 0;
        const int n = random_int(1, 8), m = random_int(1, 24), scale = random_int(1, 40);
        for (int k = 0; k < n; k++) {
            forward[k] = random_int(1, 20), backward[k] = random_int(1, 40);
            links[k] = random_int(0, scale);
            most = fmax(most, forward[k] + backward[k]);
            if (k < n - 1) most = fmax(most, 2 * links[k]);
        }
        fr_schedule *s = make_desc(
            "1f1b", (fr_schedule_desc){.n_stages = n, .n_micro = m, .n_batches = 1, .lead = 4});
        const fr_costs costs = {.forward = forward,
                                .backward = backward,
                                .link_forward = links,
                                .link_backward = links,
                                .is_full_duplex = round % 4 == 0};
        fr_clock clock = timed(s, &costs);
        if (clock.makespan > (m + 4 * n - 4) * most * (1 + 1e-9))
            fail_msg("round %d: %d stages, %d micro-batches: %g, above the bound of %g", round, n,
                     m, clock.makespan, (m + 4 * n - 4) * most);
        fr_clock_free(&clock);
        fr_schedule_free(s);
    }
}

/* Branches run at the same time: 3 (m + depth - 1), live sets by the longest way to the end
 * (GraphPipe's in-flight counts). */
static void branches(void **unused)
{
    (void)unused;
    static const struct {
        int n, depth, live[8];
        fr_link links[8]; /* 0 -> 0: the end */
    } rows[] = {
        {6, 4, {4, 3, 2, 3, 2, 1}, {{0, 1}, {0, 3}, {1, 2}, {2, 5}, {3, 4}, {4, 5}}},
        {8, 2, {2, 2, 2, 2, 2, 2, 2, 1}, {{0, 7}, {1, 7}, {2, 7}, {3, 7}, {4, 7}, {5, 7}, {6, 7}}},
        {8, 5, {5, 4, 3, 2, 4, 3, 2, 1}, {{0, 1}, {1, 2}, {2, 3}, {3, 7}, {4, 5}, {5, 6}, {6, 7}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_link back[8];
        fr_schedule_desc d = {.n_stages = rows[i].n,
                              .n_micro = 8,
                              .n_batches = 1,
                              .forward = rows[i].links,
                              .backward = back};
        for (; d.n_forward < 8 && rows[i].links[d.n_forward].to > 0; d.n_forward++)
            back[d.n_backward++] =
                (fr_link){d.forward[d.n_forward].to, d.forward[d.n_forward].from};
        fr_schedule *s = make_desc("1f1b", d);
        assert_ok(ctx, fr_schedule_check(ctx, s));
        fr_clock c = timed(s, NULL);
        assert_near(c.makespan, 3 * (8 + rows[i].depth - 1), "makespan");
        for (int k = 0; k < rows[i].n; k++) assert_int_equal(c.peak_live[k], rows[i].live[k]);
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

/* Two branches read one value: its gradient goes through the first of them, which waits for the
 * second and holds one set more. */
static void gradient_through_a_branch(void **unused)
{
    (void)unused;
    static const fr_link forward[] = {{0, 1}, {0, 3}, {1, 2}, {2, 5}, {3, 4}, {4, 5}};
    static const fr_link backward[] = {{1, 0}, {2, 1}, {3, 1}, {4, 3}, {5, 2}, {5, 4}};
    static const int live[] = {5, 4, 2, 3, 2, 1};
    fr_schedule *s = make_desc("1f1b", (fr_schedule_desc){.n_stages = 6,
                                                          .n_micro = 8,
                                                          .n_batches = 1,
                                                          .n_forward = 6,
                                                          .n_backward = 6,
                                                          .forward = forward,
                                                          .backward = backward});
    assert_ok(ctx, fr_schedule_check(ctx, s));
    fr_clock c = timed(s, NULL);
    assert_near(c.makespan, 35, "makespan"); /* one backward more than by mirrored links */
    for (int k = 0; k < 6; k++) assert_int_equal(c.peak_live[k], live[k]);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static void nf1b_table(void **unused)
{
    (void)unused;
    static const char *const rows[3][10] = {
        {"F0", "F1", "F2", "F3", "F4", "F5", "B0", "F6", "F7", "B1"},
        {"", "F0", "F1", "F2", "F3", "B0", "F4", "F5", "B1", "F6"},
        {"", "", "F0", "F1", "B0", "F2", "F3", "B1", "F4", "F5"},
    };
    static const double one[3] = {1, 1, 1}, quarter[3] = {0.25, 0.25, 0.25};
    fr_costs costs = {.forward = one, .back_input = quarter, .back_weight = quarter};
    fr_schedule *s = make("nf1b", 3, 1, 2, 6);
    fr_clock c = timed(s, &costs);
    for (int k = 0; k < 3; k++)
        for (int slot = 0; slot < 10; slot++) {
            const char *cell = rows[k][slot];
            if (!*cell) continue;
            int number = cell[1] - '0';
            fr_action action = cell[0] == 'F' ? FR_DO_F : FR_DO_B;
            double at = start_of(s, &c, action, k, action == FR_DO_F ? number : 2 * number);
            if (at != slot) fail_msg("worker %d, %s: at %g, expected %d", k, cell, at, slot);
        }
    fr_clock_free(&c);
    fr_schedule_free(s);
}

/* p workers with v stages each: a multiple of p micro-batches runs without gaps. */
static void forward_pipelines(void **unused)
{
    (void)unused;
    for (int p = 1; p <= 8; p++)
        for (int v = 1; v <= 4; v++)
            for (int m = 1; m <= 12; m++) {
                fr_schedule *s = make("forward", p * v, v, m, 2);
                fr_clock c = timed(s, NULL);
                double ideal = 2 * m * v + p - 1;
                if (v == 1 || 2 * m % p == 0) assert_near(c.makespan, ideal, "forward");
                assert_true(c.makespan >= ideal && c.makespan < ideal + p * v);
                for (int w = 0; w < p; w++) assert_int_equal(c.peak_live[w], 1);
                fr_clock_free(&c);
                fr_schedule_free(s);
            }
}

static void refusals(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        fr_schedule_desc d;
        const char *text;
    } rows[] = {
        {"interleaved", {.n_stages = 8, .chunks = 2, .n_micro = 6}, "6 micro-batches, 4 workers"},
        {"interleaved", {.n_stages = 8, .chunks = 3, .n_micro = 8}, "8 stages do not divide"},
        {"interleaved", {.n_stages = 8, .chunks = -2, .n_micro = 8}, "do not divide"},
        {"gpipe", {.n_stages = 8, .chunks = 2, .n_micro = 8}, "one stage"},
        {"gpipe", {.n_stages = 0, .n_micro = 8}, "0 stages"},
        {"gpipe", {.n_stages = 2, .n_micro = 0}, "0 micro-batches"},
        {"interleaved", {.n_stages = 2, .n_micro = 0}, "0 micro-batches"},
        {"gpipe", {.n_stages = 2, .n_micro = 2, .n_batches = 3}, "1 mini-batch, not 3"},
        {"1f1b-async", {.n_stages = 2, .n_micro = 2, .n_batches = -1}, "-1 mini-batches"},
        {"1f1b-async", {.n_stages = 64, .n_micro = 65536, .n_batches = 65536}, "shorter"},
        {"gpipe",
         {.n_stages = 2, .n_micro = 2, .worker_of = (int[]){1, 0}},
         "assigns stages to workers itself"},
        {"forward", {.n_stages = 2, .n_micro = 2, .worker_of = (int[]){0, 2}}, "on worker 2"},
        {"forward", {.n_stages = 2, .n_micro = 2, .worker_of = (int[]){0, -1}}, "on worker -1"},
        {"gpipe",
         {.n_stages = 3, .n_micro = 2, .n_forward = 1, .forward = (fr_link[]){{1, 0}}},
         "from stage 1 to stage 0"},
        {"gpipe",
         {.n_stages = 3, .n_micro = 2, .n_backward = 1, .backward = (fr_link[]){{3, 1}}},
         "from stage 3 to stage 1"},
        {"gpipe",
         {.n_stages = 3, .n_micro = 2, .n_forward = 2, .forward = (fr_link[]){{0, 1}, {0, 1}}},
         "duplicate link from stage 0 to stage 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const fr_schedule stale = {0}, *s = &stale; /* must become NULL */
        assert_fails(ctx, fr_schedule_create(ctx, fr_generator_find(rows[i].name), &rows[i].d, &s),
                     FR_INVALID, rows[i].text);
        assert_null(s);
    }
    assert_null(fr_generator_find("gpipe2"));
}

static void registry(void **unused)
{
    (void)unused;
    int n = 0;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++, n++) {
        assert_ptr_equal(fr_generator_find((*g)->name), *g);
        assert_true(strlen((*g)->summary) > 0);
    }
    assert_int_equal(n, 13);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_formulas),
        cmocka_unit_test(zero_bubble_formulas),
        cmocka_unit_test(zero_bubble_few),
        cmocka_unit_test(interleaved_formulas),
        cmocka_unit_test(orders),
        cmocka_unit_test(async_slots),
        cmocka_unit_test(async_gap_and_flow),
        cmocka_unit_test(leads),
        cmocka_unit_test(leads_on_links),
        cmocka_unit_test(leads_on_uneven_links),
        cmocka_unit_test(leads_are_bounded),
        cmocka_unit_test(gradient_through_a_branch),
        cmocka_unit_test(branches),
        cmocka_unit_test(nf1b_table),
        cmocka_unit_test(forward_pipelines),
        cmocka_unit_test(refusals),
        cmocka_unit_test(registry),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
