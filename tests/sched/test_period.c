/* test_period.c -- makespan, period and live sets of the schedules without a bubble and of those in
 * a V, against the formulas; costs and links. */
#include "sched/random.h"

typedef struct result {
    double makespan, period;
    int live[16], most_live, n_slots;
} result;

static double period_of(const fr_schedule *s, const fr_costs *costs)
{
    double period;
    assert_ok(ctx, fr_schedule_period(ctx, s, costs, &period));
    return period;
}

static result timed_as(const char *name, int p, int m, bool reorder)
{
    int chunks = fr_generator_find(name)->is_v ? 2 : 1;
    fr_schedule *s = make_desc(
        name, (fr_schedule_desc){.n_stages = p * chunks, .n_micro = m, .reorder = reorder});
    fr_clock c = timed(s, NULL);
    result r = {.makespan = c.makespan, .period = period_of(s, NULL)};
    assert_int_equal(s->n_workers, p);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    for (int w = 0; w < p; w++) {
        assert_near(c.busy[w], 3.0 * m * chunks, "busy");
        r.live[w] = c.peak_live[w];
        if (r.live[w] > r.most_live) r.most_live = r.live[w];
    }
    for (int k = 0; k < s->n_stages; k++) r.n_slots += s->n_slots[k];
    fr_clock_free(&c);
    fr_schedule_free(s);
    return r;
}

static result timed_on(const char *name, int p, int m) { return timed_as(name, p, m, false); }

static void expect(const char *name, int p, int m, double makespan, double period, int live)
{
    result r = timed_on(name, p, m);
    if (r.makespan != makespan || r.period != period)
        fail_msg("%s p=%d m=%d: makespan %g, period %g; expected %g, %g", name, p, m, r.makespan,
                 r.period, makespan, period);
    for (int w = 0; w < p; w++)
        if (r.live[w] != live)
            fail_msg("%s p=%d m=%d: worker %d holds %d, expected %d", name, p, m, w, r.live[w],
                     live);
}

static const int many[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 23, 31, 32, 40};
enum { N_MANY = sizeof many / sizeof *many, MOST = 16 };

/* Slots suffice: the period is that of the lists alone. */
static void without_bubble(void **unused)
{
    (void)unused;
    for (int p = 1; p <= MOST; p++)
        for (int i = 0; i < N_MANY; i++) {
            int m = many[i];
            if (m < 2 * p - 1) continue;
            expect("zb-h2", p, m, 3 * m + p - 1, 3 * m, 2 * p - 1);
            expect("zbv", p, m, 6 * m + p - 1, 6 * m, 2 * p);
            if (m >= 2 * p) expect("dualpipev", p, m, 6 * m + p - 1, 6 * m + p - 1, 2 * p + 1);
        }
    for (int p = 1; p <= MOST; p++)
        for (int m = p; m <= 2 * p; m++)
            assert_near(timed_on("zb-h1", p, m).period, 3 * m + p - 1, "period of zb-h1");
}

/* The lists of fewer micro-batches are proved as well. */
static void few_micro(void **unused)
{
    (void)unused;
    for (int p = 1; p <= MOST; p++)
        for (int m = 1; m < 2 * p - 1; m++) {
            result two = timed_on("zb-h2", p, m);
            assert_true(two.makespan <= 3 * (m + p - 1) && two.period == 2 * m + 2 * p - 1);
            assert_int_equal(two.most_live, m);
            result v = timed_on("zbv", p, m);
            if (m <= p) assert_near(v.makespan, 4 * (m + p) - 2, "zbv, few micro-batches");
            assert_true(v.period <= v.makespan && v.most_live <= 2 * m);
        }
}

/* Live sets are two stages' worth. */
static void little_memory(void **unused)
{
    (void)unused;
    for (int p = 2; p <= MOST; p++)
        for (int i = 0; i < N_MANY; i++) {
            int m = many[i], half_more = p % 2 ? (7 * p - 7) / 2 : (7 * p - 4) / 2;
            int min_more = p % 3 ? 4 * p - 5 : 4 * p - 3;
            result half = timed_on("v-half", p, m), min = timed_on("v-min", p, m);
            assert_true(half.most_live <= 2 * ((p + 2) / 2) && half.most_live <= 2 * m);
            assert_true(min.most_live <= 2 * ((p + 4) / 3) && min.most_live <= 2 * m);
            if (m < p) continue;
            if (half.makespan != 6 * m + half_more || half.period != half.makespan)
                fail_msg("v-half p=%d m=%d: %g, %g", p, m, half.makespan, half.period);
            if (min.makespan != 6 * m + min_more || min.period != min.makespan)
                fail_msg("v-min p=%d m=%d: %g, %g", p, m, min.makespan, min.period);
            assert_int_equal(half.most_live, 2 * ((p + 2) / 2));
            assert_int_equal((min.most_live + 1) / 2, (p + 4) / 3);
        }
}

/* Fill and drain in another order: proved, never longer, never with more memory on any worker. */
static void reordered(void **unused)
{
    (void)unused;
    static const char *const names[] = {"v-half", "v-min"};
    int n_shorter = 0;
    for (int i = 0; i < 2; i++)
        for (int p = 1; p <= MOST; p++)
            for (int m = 1; m <= 40; m += m < 2 * p ? 1 : 1 + p / 4) {
                result plain = timed_on(names[i], p, m), r = timed_as(names[i], p, m, true);
                if (r.makespan > plain.makespan || r.period > plain.period)
                    fail_msg("%s p=%d m=%d: makespan %g, period %g; without: %g, %g", names[i], p,
                             m, r.makespan, r.period, plain.makespan, plain.period);
                for (int w = 0; w < p; w++) assert_true(r.live[w] <= plain.live[w]);
                /* readers on other workers may hold a few of v-min's slots for longer */
                assert_true(r.n_slots <= plain.n_slots + (i == 1 && p % 3 == 0 ? p / 3 : 0));
                n_shorter += r.makespan < plain.makespan;
                if (i == 0 && p % 2 == 0 && m >= p) /* even: 3p - 7, without (7p - 4) / 2 */
                    assert_near(r.makespan, 6 * m + (p == 2 ? 1 : 3 * p - 7), "v-half");
                if (i == 1 && p % 3 != 0) assert_near(r.makespan, plain.makespan, "v-min");
            }
    assert_true(n_shorter > 100);
    assert_near(timed_as("v-half", 4, 8, true).makespan, 53, "v-half (4, 8)");
    assert_near(timed_as("v-half", 8, 16, true).makespan, 113, "v-half (8, 16)");
    assert_near(timed_as("v-min", 4, 8, true).makespan, 59, "v-min (4, 8)");
    assert_near(timed_as("v-min", 8, 16, true).makespan, 123, "v-min (8, 16)");
}

static void published(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int p, m;
        double makespan, period;
    } rows[] = {
        {"zb-h2", 2, 4, 13, 12},    {"zb-h2", 4, 8, 27, 24},     {"zb-h2", 8, 16, 55, 48},
        {"zbv", 2, 4, 25, 24},      {"zbv", 4, 8, 51, 48},       {"zbv", 8, 16, 103, 96},
        {"v-half", 4, 8, 60, 60},   {"v-half", 8, 16, 122, 122}, {"v-min", 4, 8, 59, 59},
        {"v-min", 8, 16, 123, 123}, {"dualpipev", 4, 8, 51, 51},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        result r = timed_on(rows[i].name, rows[i].p, rows[i].m);
        assert_near(r.makespan, rows[i].makespan, rows[i].name);
        assert_near(r.period, rows[i].period, rows[i].name);
    }
}

/* The published grid; small letters are the second stage of a worker. */
static void published_grid(void **unused)
{
    (void)unused;
    static const char *const rows[] = {
        "\nw0  F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3 .\n",
        "\nw1  .  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3"};
    fr_schedule *s = make("zbv", 4, 2, 4, 1);
    fr_clock c = timed(s, NULL);
    assert_near(c.period = period_of(s, NULL), 24, "period");
    char *text = fr_schedule_to_grid(s, &c, 90, false);
    assert_non_null(strstr(text, "w3|I2"));
    assert_non_null(strstr(text, "makespan 25; period 24;"));
    for (char *at = text; (at = strchr(at, '|')); at++) *at = ' ';
    for (int w = 0; w < 2; w++)
        if (!strstr(text, rows[w])) fail_msg("%s\n%s", text, rows[w]);
    fr_text_free(text);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static void refusals(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        fr_schedule_desc d;
        const char *text;
    } rows[] = {
        {"zbv", {.n_stages = 5, .n_micro = 4}, "their number is even, not 5"},
        {"v-min", {.n_stages = 6, .chunks = 3, .n_micro = 4}, "3 chunks per worker"},
        {"v-half", {.n_stages = 1, .n_micro = 4}, "even, not 1"},
        {"zbv", {.n_stages = 4, .n_micro = 4, .reorder = true}, "for v-half and v-min"},
        {"dualpipev", {.n_stages = 8, .n_micro = 7}, "at least 8"},
        {"dualpipev",
         {.n_stages = 4, .n_micro = 6, .replicas = (int[]){2, 2, 2, 2}},
         "3 micro-batches on 2 workers"},
        {"zbv", {.n_stages = 4, .n_micro = 6, .replicas = (int[]){2, 1, 1, 2}}, "same number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const fr_schedule *s;
        assert_fails(ctx, fr_schedule_create(ctx, fr_generator_find(rows[i].name), &rows[i].d, &s),
                     FR_INVALID, rows[i].text);
    }
}

/* --- periods of other schedules -------------------------------------------------------------- */

static void other_periods(void **unused)
{
    (void)unused;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 9; m++) {
            fr_schedule *one = make("1f1b", p, 1, m, 1), *all = make("gpipe", p, 1, m, 1);
            fr_schedule *eval = make("forward", p, 1, m, 1);
            assert_near(period_of(one, NULL), 3 * (m + p - 1), "1f1b waits for its drain");
            assert_near(period_of(all, NULL), 3 * (m + p - 1), "gpipe waits for its drain");
            if (m % 3 == 0) assert_near(period_of(eval, NULL), m, "forwards follow each other");
            fr_schedule_free(one), fr_schedule_free(all), fr_schedule_free(eval);
            for (int batches = 1; batches <= 4;
                 batches++) { /* too short to be full, some of them */
                fr_schedule *async = make("1f1b-async", p, 1, m, batches);
                fr_schedule *joint = make("nf1b", p, 1, m, batches);
                assert_near(period_of(async, NULL), 3 * m, "1f1b-async");
                assert_near(period_of(joint, NULL), 3 * m, "nf1b");
                fr_schedule_free(async), fr_schedule_free(joint);
            }
        }
    fr_schedule *slow = make("1f1b-async", 4, 1, 2, 1);
    double f[] = {1, 1, 5, 1};
    assert_near(period_of(slow, &(fr_costs){.forward = f}), 2 * 7,
                "the slowest stage sets the pace");
    fr_schedule_free(slow);
}

/* A walk of n repeats, written out, ends n - 1 periods after the first one; with any costs. */
static void equals_long_walks(void **unused)
{
    (void)unused;
    random_state = 5;
    for (int round = 0; round < 300; round++) {
        random_case c;
        random_case_init(&c, 5, 8);
        if (!c.g->is_flush && !c.g->is_forward_only) continue;
        fr_schedule *s = make_desc(c.g->name, c.d), walks;
        double f[32], i[32], w[32];
        for (int k = 0; k < 32; k++)
            f[k] = random_int(1, 4), i[k] = random_int(1, 4), w[k] = random_int(0, 4);
        fr_costs costs = {.forward = f, .back_input = i, .back_weight = w};
        if (round % 3 == 0) costs.link = random_int(0, 3);
        enum { MANY_WALKS = 120 };
        fr_arena arena = {0};
        assert_true(fr__schedule_repeat(&arena, s, MANY_WALKS * s->n_batches, &walks));
        fr_clock long_one = timed(&walks, &costs);
        int own = s->lists[0].n;
        double last = long_one.end[0][MANY_WALKS * own - 1];
        double mean =
            (last - long_one.end[0][MANY_WALKS / 2 * own - 1]) / (MANY_WALKS / 2 * s->n_batches);
        double period = period_of(s, &costs);
        if (fabs(period - mean) > 1e-3 * mean)
            fail_msg("%s: period %.9g, long walk %.9g", random_case_text(&c), period, mean);
        fr_clock_free(&long_one);
        fr__arena_fini(&arena);
        fr_schedule_free(s);
    }
}

/* --- costs and links -------------------------------------------------------------------------- */

static void own_costs(void **unused)
{
    (void)unused;
    double two[] = {2, 2, 2, 2}, half[] = {0.5, 0.5, 0.5, 0.5};
    fr_schedule *s = make("1f1b", 4, 1, 8, 1);
    fr_clock c = timed(s, &(fr_costs){.backward = half});
    assert_near(c.makespan, 1.5 * (8 + 3), "B alone");
    fr_clock_free(&c);
    fr_schedule_free(s);
    s = make("zb-h2", 4, 1, 8, 1); /* I and W are not B */
    c = timed(s,
              &(fr_costs){.backward = half, .forward = two, .back_input = two, .back_weight = two});
    assert_near(c.makespan, 54, "split");
    fr_clock_free(&c);
    assert_near(period_of(s, &(fr_costs){.forward = two, .back_input = two, .back_weight = two}),
                48, "period");
    fr_schedule_free(s);
}

/* Half-duplex links, first come first served: the numbers of an independent event simulation. */
static void slow_links(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int stages, micro;
        double link, makespan;
    } rows[] = {
        {"1f1b", 4, 8, 1.5, 57},    {"1f1b", 4, 8, 0, 33},      {"gpipe", 4, 8, 1.5, 45.5},
        {"zb-h2", 4, 8, 0.5, 28.5}, {"zbv", 8, 8, 0.25, 54.25}, {"zbv", 8, 8, 2, 95},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_schedule *s = make(rows[i].name, rows[i].stages, 0, rows[i].micro, 1);
        fr_clock c = timed(s, &(fr_costs){.link = rows[i].link});
        if (c.makespan != rows[i].makespan)
            fail_msg("%s, links of %g: %g, expected %g", rows[i].name, rows[i].link, c.makespan,
                     rows[i].makespan);
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
    /* two pairs of replicas have links of their own: as one pipeline */
    fr_schedule *two = make_desc(
        "1f1b", (fr_schedule_desc){.n_stages = 4, .n_micro = 16, .replicas = (int[]){2, 2, 2, 2}});
    fr_clock c = timed(two, &(fr_costs){.link = 1.5});
    assert_near(c.makespan, 57, "replicas");
    fr_clock_free(&c);
    fr_schedule_free(two);
}

static fr_status create_and_time(fr_ctx *inner, void *user)
{
    const fr_generator *g = fr_generator_find(user);
    const fr_schedule_desc d = {.n_stages = 4, .n_micro = 4, .reorder = g->has_reorder};
    const fr_schedule *s = NULL;
    double period;
    fr_status status = fr_schedule_create(inner, g, &d, &s);
    if (status == FR_OK) status = fr_schedule_period(inner, s, &(fr_costs){.link = 1}, &period);
    fr_schedule_free(s);
    return status;
}

static void out_of_memory(void **unused)
{
    (void)unused;
    char names[][16] = {"zbv", "1f1b-async", "v-half"};
    for (int i = 0; i < 3; i++) assert_true(support_walk_memory(create_and_time, names[i]) > 20);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_bubble), cmocka_unit_test(few_micro),
        cmocka_unit_test(little_memory),  cmocka_unit_test(published),
        cmocka_unit_test(published_grid), cmocka_unit_test(refusals),
        cmocka_unit_test(other_periods),  cmocka_unit_test(equals_long_walks),
        cmocka_unit_test(own_costs),      cmocka_unit_test(slow_links),
        cmocka_unit_test(out_of_memory),  cmocka_unit_test(reordered),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
