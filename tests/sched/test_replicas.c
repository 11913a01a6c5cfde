/* test_replicas.c -- several workers per stage: assignment and order of micro-batches, and
 * costs. */
#include "sched/common.h"
#include "sched/oracle.h"
#include "sched/random.h"

/* --- equally many: as many pipelines side by side
 * ------------------------------------------------*/

/* Replica q's list is the one of a single pipeline with its share, micro-batch i renamed i * r + q.
 */
static void assert_pipeline(const fr_schedule *s, const fr_schedule *base, int r, int w, int q)
{
    const fr_instr_list *mine = &s->lists[w * r + q], *one = &base->lists[w];
    assert_int_equal(mine->n, one->n);
    for (int i = 0; i < one->n; i++) {
        const fr_instr *a = &mine->at[i], *b = &one->at[i];
        bool is_update = b->action == FR_DO_STEP || b->action == FR_DO_REDUCE;
        assert_true(a->action == b->action && a->stage == b->stage && a->peer == b->peer);
        assert_int_equal(a->micro, is_update ? b->micro : b->micro * r + q);
    }
}

static void assert_pipelines(const fr_schedule *s, const fr_schedule *base, int r)
{
    assert_int_equal(s->n_workers, base->n_workers * r);
    for (int w = 0; w < base->n_workers; w++)
        for (int q = 0; q < r; q++) assert_pipeline(s, base, r, w, q);
    for (int k = 0; k < s->n_stages; k++) {
        assert_int_equal(s->worker_of[k], base->worker_of[k] * r);
        assert_int_equal(s->replicas[k], r);
        assert_int_equal(s->n_slots[k], base->n_slots[k]);
        assert_int_equal(fr_schedule_lead(s, k), fr_schedule_lead(base, k));
    }
    for (int l = 0; l < s->n_backward; l++) assert_int_equal(s->n_buffers[l], base->n_buffers[l]);
    fr_clock c = timed(s, NULL), d = timed(base, NULL);
    assert_near(c.makespan, d.makespan, "makespan of replicas");
    for (int w = 0; w < s->n_workers; w++) {
        assert_int_equal(c.peak_live[w], d.peak_live[w / r]);
        assert_near(c.busy[w], d.busy[w / r], "busy");
    }
    fr_clock_free(&c);
    fr_clock_free(&d);
}

static void equally_many(void **unused)
{
    (void)unused;
    int n = 0;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        for (int p = 1; p <= 5; p++)
            for (int v = 1; v <= 3; v++)
                for (int m = 1; takes_chunks(*g, v) && m <= 6; m++)
                    for (int r = 1; r <= 4; r++) {
                        int replicas[15];
                        for (int k = 0; k < p * v; k++) replicas[k] = r;
                        fr_schedule_desc d = {.n_stages = p * v,
                                              .chunks = v,
                                              .n_micro = m,
                                              .n_batches = (*g)->is_flush ? 1 : 4,
                                              .must_reduce = true};
                        if ((*g)->check && (*g)->check(&d)) continue;
                        fr_schedule *base = make_desc((*g)->name, d);
                        d.n_micro = m * r, d.replicas = replicas, d.must_reduce = r == 1;
                        fr_schedule *s = make_desc((*g)->name, d);
                        assert_pipelines(s, base, r);
                        assert_ok(ctx, fr_schedule_check(ctx, s));
                        fr_schedule_free(base);
                        fr_schedule_free(s);
                        n++;
                    }
    assert_true(n > 800);
}

/* The formulas of one pipeline, with m / r micro-batches. */
static void formulas(void **unused)
{
    (void)unused;
    for (int p = 1; p <= 6; p++)
        for (int r = 1; r <= 4; r++)
            for (int share = 1; share <= 8; share++) {
                int replicas[6];
                for (int k = 0; k < p; k++) replicas[k] = r;
                static const char *const names[] = {"1f1b", "gpipe", "zb-h1"};
                for (int g = 0; g < 3; g++) {
                    fr_schedule_desc d = {
                        .n_stages = p, .n_micro = share * r, .replicas = replicas};
                    fr_schedule *s = make_desc(names[g], d);
                    fr_clock c = timed(s, NULL);
                    if (g < 2) assert_near(c.makespan, 3 * (share + p - 1), names[g]);
                    if (g == 2 && share >= p) assert_near(c.makespan, 3 * share + p - 1, names[g]);
                    fr_clock_free(&c);
                    fr_schedule_free(s);
                }
            }
}

/* --- different numbers
 * ---------------------------------------------------------------------------*/

/* Worker lists without transfers, steps and reductions. */
static void orders(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        int stages, replicas[4], micro, batches, worker;
        const char *order;
    } rows[] = {
        {"1f1b", 2, {3, 1}, 6, 1, 0, "0F0 0F3 0B0 0B3"},
        {"1f1b", 2, {3, 1}, 6, 1, 2, "0F2 0F5 0B2 0B5"},
        {"1f1b", 2, {3, 1}, 6, 1, 3, "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4 1B4 1F5 1B5"},
        {"1f1b", 2, {1, 3}, 6, 1, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0B3 0B4 0B5"},
        {"1f1b", 2, {1, 3}, 6, 1, 2, "1F1 1B1 1F4 1B4"},
        {"1f1b", 3, {1, 2, 1}, 4, 1, 0, "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"},
        {"1f1b", 3, {1, 2, 1}, 4, 1, 2, "1F1 1F3 1B1 1B3"},
        {"1f1b-async", 2, {2, 1}, 2, 3, 0, "0F0 0F2 0B0 0F4 0B2 0B4"},
        {"1f1b-async", 2, {2, 1}, 2, 3, 1, "0F1 0F3 0B1 0F5 0B3 0B5"},
        {"gpipe", 2, {2, 1}, 4, 1, 1, "0F1 0F3 0B1 0B3"},
        {"sequential", 2, {1, 2}, 4, 1, 1, "1F0 1B0 1F2 1B2"},
        {"forward", 2, {1, 2}, 4, 1, 2, "1F1 1F3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_schedule_desc d = {.n_stages = rows[i].stages,
                              .n_micro = rows[i].micro,
                              .n_batches = rows[i].batches,
                              .replicas = rows[i].replicas};
        fr_schedule *s = make_desc(rows[i].name, d);
        char text[512] = "", one[48];
        const fr_instr_list *l = &s->lists[rows[i].worker];
        for (int k = 0; k < l->n; k++)
            if (l->at[k].action <= FR_DO_W) {
                if (*text) strcat(text, " ");
                strcat(text, fr_instr_text(&l->at[k], one));
            }
        assert_string_equal(text, rows[i].order);
        fr_schedule_free(s);
    }
}

/* The complete lists, written by hand. */
static void lists(void **unused)
{
    (void)unused;
    static const char *const want[3][14] = {
        {"0F0", "0SEND_F0", "0RECV_B0", "0B0", "0REDUCE0", "0STEP0"},
        {"0F1", "0SEND_F1", "0RECV_B1", "0B1", "0REDUCE0", "0STEP0"},
        {"1RECV_F0", "1F0", "1B0", "1SEND_B0", "1RECV_F1", "1F1", "1B1", "1SEND_B1", "1REDUCE0",
         "1STEP0"},
    };
    fr_schedule *s = make_desc(
        "1f1b", (fr_schedule_desc){.n_stages = 2, .n_micro = 2, .replicas = (int[]){2, 1}});
    assert_int_equal(s->n_workers, 3);
    assert_int_equal(s->worker_of[0], 0);
    assert_int_equal(s->worker_of[1], 2);
    char text[48];
    for (int w = 0; w < 3; w++) {
        int n = 0;
        while (want[w][n]) n++;
        assert_int_equal(s->lists[w].n, n);
        for (int i = 0; i < n; i++)
            assert_string_equal(fr_instr_text(&s->lists[w].at[i], text), want[w][i]);
    }
    assert_int_equal(s->n_slots[0], 1); /* per replica */
    assert_int_equal(s->n_buffers[0], 1);
    fr_schedule_free(s);
}

/* A replica of stage k has ceil(workers from k on / replicas of k) micro-batches in flight. */
static void in_flight(void **unused)
{
    (void)unused;
    for (int n = 0; n < 300; n++) {
        int p = random_int(1, 6), replicas[6], multiple = 12;
        for (int k = 0; k < p; k++) replicas[k] = random_int(1, 4);
        fr_schedule_desc d = {.n_stages = p,
                              .n_micro = multiple,
                              .n_batches = random_int(1, 4),
                              .replicas = replicas};
        fr_schedule *s = make_desc("1f1b-async", d);
        fr_clock c = timed(s, NULL);
        for (int k = p - 1, workers = 0; k >= 0; k--) {
            workers += replicas[k];
            int most = (workers + replicas[k] - 1) / replicas[k];
            int share = d.n_batches * d.n_micro / replicas[k];
            assert_int_equal(fr_schedule_lead(s, k), most - 1); /* however short the segment is */
            if (most > share) most = share;
            for (int q = 0; q < replicas[k]; q++)
                assert_int_equal(c.peak_live[s->worker_of[k] + q], most);
        }
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

/* Stage 0 takes three times as long and has three workers: after the fill all four are busy, and
 * twice the work takes exactly twice the time. */
static void balanced(void **unused)
{
    (void)unused;
    static const double f[] = {3, 1};
    const fr_costs costs = {.forward = f, .back_input = f, .back_weight = f};
    double makespan[2];
    for (int i = 0; i < 2; i++) {
        fr_schedule_desc d = {.n_stages = 2, .n_micro = 30 << i, .replicas = (int[]){3, 1}};
        fr_schedule *s = make_desc("1f1b", d);
        fr_clock c = timed(s, &costs);
        makespan[i] = c.makespan;
        for (int w = 0; w < 4; w++) assert_near(c.busy[w], 3 * d.n_micro, "busy");
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
    assert_near(makespan[1] - makespan[0], 3 * 30, "the second half");
    assert_true(makespan[0] - 3 * 30 < 3 * (3 + 1) + 9);
}

/* Each computation is on the worker of its micro-batch, each update on all workers. */
static void assert_counts(const fr_schedule *s)
{
    int n_instr = 0, n_want = 0, all = s->n_micro * s->n_batches;
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++) n_instr += s->lists[w].at[i].action <= FR_DO_W;
    for (int k = 0; k < s->n_stages; k++) {
        for (int m = 0; m < all; m++) {
            int w = s->worker_of[k] + m % s->replicas[k];
            (void)place_on(s, w, FR_DO_F, k, m, -1), n_want++;
            if (!s->is_forward_only) (void)place_on(s, w, FR_DO_B, k, m, -1), n_want++;
        }
        for (int q = 0; !s->is_forward_only && q < s->replicas[k]; q++)
            for (int b = 0; b < s->n_batches; b++) {
                int w = s->worker_of[k] + q;
                assert_true(place_on(s, w, FR_DO_REDUCE, k, b, -1) <
                            place_on(s, w, FR_DO_STEP, k, b, -1));
            }
    }
    assert_int_equal(n_instr, n_want);
}

/* All numbers of replicas up to 3 on up to 4 stages pass the proof, and run in random order. */
static void all_mixtures(void **unused)
{
    (void)unused;
    int n = 0;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        for (int p = 1; (*g)->any_replicas && p <= 4; p++)
            for (int code = 0; code < 81; code++) {
                int replicas[4] = {1 + code % 3, 1 + code / 3 % 3, 1 + code / 9 % 3, 1 + code / 27};
                if (code / (p == 1 ? 3 : p == 2 ? 9 : p == 3 ? 27 : 81) > 0) continue;
                fr_schedule_desc d = {.n_stages = p,
                                      .n_micro = 6,
                                      .n_batches = (*g)->is_flush ? 1 : 3,
                                      .must_reduce = true,
                                      .replicas = replicas};
                fr_schedule *s = make_desc((*g)->name, d);
                assert_counts(s);
                assert_ok(ctx, fr_schedule_check(ctx, s));
                for (unsigned seed = 1; seed <= 4; seed++) assert_true(oracle_runs(s, seed));
                fr_schedule_free(s);
                n++;
            }
    assert_int_equal(n, 5 * (3 + 9 + 27 + 81));
}

/* Different pairs of workers are different channels: this order is invalid on a single channel. */
static void channels(void **unused)
{
    (void)unused;
    fr_schedule *s = make_desc(
        "gpipe", (fr_schedule_desc){.n_stages = 2, .n_micro = 2, .replicas = (int[]){2, 1}});
    fr_instr *l = s->lists[2].at; /* 1RECV_F0 1F0 1RECV_F1 1F1 ...: receive the second first */
    assert_int_equal(l[0].action, FR_DO_RECV_F);
    assert_int_equal(l[2].action, FR_DO_RECV_F);
    for (int i = 0; i < 2; i++) {
        fr_instr keep = l[i];
        l[i] = l[i + 2], l[i + 2] = keep;
    }
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_true(oracle_runs(s, 1));
    fr_schedule_free(s);
}

/* --- what cannot be
 * ------------------------------------------------------------------------------*/

static void refusals(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        fr_schedule_desc d;
        const char *text;
    } rows[] = {
        {"1f1b",
         {.n_stages = 2, .n_micro = 4, .replicas = (int[]){2, 3}},
         "stage 1 has 3 replicas for 4 micro-batches; train.micro must be a multiple of the "
         "replicas of each stage"},
        {"1f1b", {.n_stages = 2, .n_micro = 4, .replicas = (int[]){2, 0}}, "0 replicas of stage 1"},
        {"gpipe", {.n_stages = 1, .n_micro = 4, .replicas = (int[]){-1}}, "-1 replicas of stage 0"},
        {"zb-h1",
         {.n_stages = 2, .n_micro = 4, .replicas = (int[]){2, 1}},
         "zb-h1 needs the same number of replicas of all stages, but stage 0 has 2 and stage 1 has "
         "1"},
        {"nf1b",
         {.n_stages = 2, .n_micro = 4, .replicas = (int[]){1, 2}},
         "nf1b needs the same number"},
        {"interleaved",
         {.n_stages = 4, .chunks = 2, .n_micro = 6, .replicas = (int[]){2, 2, 2, 2}},
         "3 micro-batches, 2 workers"},
        {"sequential",
         {.n_stages = 4, .chunks = 2, .n_micro = 6, .replicas = (int[]){2, 1, 3, 1}},
         "stages 0 and 2 are both on worker 0"},
        {"forward",
         {.n_stages = 2, .n_micro = 2, .worker_of = (int[]){0, 0}, .replicas = (int[]){2, 1}},
         "stage 0 has 2 replicas and stage 1 has 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const fr_schedule stale = {0}, *s = &stale;
        assert_fails(ctx, fr_schedule_create(ctx, fr_generator_find(rows[i].name), &rows[i].d, &s),
                     FR_INVALID, rows[i].text);
        assert_null(s);
    }
}

static void faults_are_told(void **unused)
{
    (void)unused;
    const fr_schedule_desc d = {.n_stages = 2, .n_micro = 2, .replicas = (int[]){2, 1}};
    fr_schedule *s = make_desc("1f1b", d);
    s->lists[0].at[0].micro = 1;
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID,
                 "worker 0, step 0 (0F1): micro-batch 1 of stage 0 belongs to worker 1; "
                 "micro-batches go to replicas round robin");
    fr_schedule_free(s);
    s = make_desc("1f1b", d);
    s->lists[2].at[0].stage = 0;
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID, "stage 0 belongs to workers 0 to 1");
    fr_schedule_free(s);
    s = make_desc("1f1b", d);
    s->lists[1].n--;
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID,
                 "worker 1, step 5 (end of the list): 0STEP0 never comes");
    fr_schedule_free(s);
    s = make_desc("1f1b", d);
    s->replicas[0] = 3;
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID,
                 "3 replicas of stage 0 do not divide 2");
    fr_schedule_free(s);
    s = make_desc("1f1b", d);
    s->worker_of[0] = 1;
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID, "worker 0 of 3 has no stage");
    s->worker_of[0] = 0, s->worker_of[1] = 1, s->n_workers = 2;
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID,
                 "stages 0 and 1 are both on worker 1, but not on the same workers");
    s->n_workers = 3;
    fr_schedule_free(s);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equally_many),    cmocka_unit_test(formulas),  cmocka_unit_test(orders),
        cmocka_unit_test(lists),           cmocka_unit_test(in_flight), cmocka_unit_test(balanced),
        cmocka_unit_test(all_mixtures),    cmocka_unit_test(channels),  cmocka_unit_test(refusals),
        cmocka_unit_test(faults_are_told),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
