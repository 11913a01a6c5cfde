/* test_passes.c -- the results of lowering: steps, reductions, transfers, slots, buffers. */
#include "sched/random.h"
#include "sched/sched.h"

/* Forward links over the chain, gradients relayed from higher to lower readers. */
static const fr_link skip_up[] = {{0, 1}, {1, 2}, {2, 3}, {0, 2}, {1, 3}};
static const fr_link skip_down[] = {{1, 0}, {2, 1}, {3, 2}, {3, 1}};

static fr_schedule_desc skips(int n_micro)
{
    return (fr_schedule_desc){.n_stages = 4,
                              .n_micro = n_micro,
                              .n_forward = 5,
                              .forward = skip_up,
                              .n_backward = 4,
                              .backward = skip_down};
}

static bool is_send(int action) { return action == FR_DO_SEND_F || action == FR_DO_SEND_B; }
static bool is_receive(int action) { return action == FR_DO_RECV_F || action == FR_DO_RECV_B; }

/* List the transfers of worker w over a link, of one kind, in order; returns their number. */
static int sequence(const fr_schedule *s, int w, int other, fr_action action, int stage, int peer,
                    int *micros)
{
    const fr_instr_list *l = &s->lists[w];
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->at[i].action == action && l->at[i].stage == stage && l->at[i].peer == peer &&
            fr_schedule_worker(s, peer, l->at[i].micro) == other)
            micros[n++] = l->at[i].micro;
    return n;
}

/* Each link between workers carries each micro-batch once. Each pair of replicas has the same order
 * at both ends. Links within one worker carry nothing. */
static void check_link(const fr_schedule *s, fr_link l, fr_action send, fr_action receive)
{
    int total = s->n_batches * s->n_micro, sent[512], received[512], n_all = 0;
    for (int from = s->worker_of[l.from]; from < s->worker_of[l.from] + s->replicas[l.from]; from++)
        for (int to = s->worker_of[l.to]; to < s->worker_of[l.to] + s->replicas[l.to]; to++) {
            int n = sequence(s, from, to, send, l.from, l.to, sent);
            assert_int_equal(n, sequence(s, to, from, receive, l.to, l.from, received));
            for (int i = 0; i < n; i++) assert_int_equal(sent[i], received[i]);
            n_all += n;
        }
    assert_int_equal(n_all, s->worker_of[l.from] == s->worker_of[l.to] ? 0 : total);
}

/* Only SENDs are between a SEND and its producer; only RECVs are between a RECV and its
 * consumer. */
static void check_places(const fr_schedule *s, int w)
{
    const fr_instr_list *l = &s->lists[w];
    for (int i = 0; i < l->n; i++) {
        const fr_instr *at = &l->at[i];
        int j = i;
        if (is_send(at->action))
            while (j >= 0 && is_send(l->at[j].action)) j--;
        else if (is_receive(at->action))
            while (j < l->n && is_receive(l->at[j].action)) j++;
        else
            continue;
        assert_true(j >= 0 && j < l->n);
        bool is_forward = at->action == FR_DO_SEND_F || at->action == FR_DO_RECV_F;
        if (is_forward)
            assert_int_equal(l->at[j].action, FR_DO_F);
        else
            assert_true(l->at[j].action == FR_DO_B || l->at[j].action == FR_DO_I);
        assert_int_equal(l->at[j].stage, at->stage);
        assert_int_equal(l->at[j].micro, at->micro);
    }
}

static void check_transfers(const fr_schedule *s)
{
    for (int l = 0; l < s->n_forward; l++) check_link(s, s->forward[l], FR_DO_SEND_F, FR_DO_RECV_F);
    for (int l = 0; l < s->n_backward; l++)
        check_link(s, s->backward[l], FR_DO_SEND_B, FR_DO_RECV_B);
    for (int w = 0; w < s->n_workers; w++) check_places(s, w);
}

/* One STEP per replica and mini-batch, after the last gradient, with only SENDs, REDUCEs and other
 * STEPs between. With reductions, all REDUCEs of the worker precede its first STEP. */
static void check_steps_on(const fr_schedule *s, int w, int k, bool must_reduce)
{
    const fr_instr_list *l = &s->lists[w];
    for (int b = 0; b < s->n_batches; b++) {
        int at = place_on(s, w, FR_DO_STEP, k, b, -1), last = -1;
        for (int i = 0; i < l->n; i++)
            if (l->at[i].stage == k && l->at[i].action <= FR_DO_W &&
                l->at[i].micro / s->n_micro == b)
                last = i;
        assert_true(last >= 0 && last < at);
        if (!must_reduce)
            for (int i = last + 1; i < at; i++) assert_true(is_send(l->at[i].action));
        for (int other = 0; must_reduce && other < s->n_stages; other++)
            if (s->worker_of[other] == s->worker_of[k])
                assert_true(place_on(s, w, FR_DO_REDUCE, other, b, -1) < at);
        if (must_reduce) assert_true(place_on(s, w, FR_DO_REDUCE, k, b, -1) > last);
    }
}

static void check_steps(const fr_schedule *s, bool must_reduce)
{
    for (int k = 0; k < s->n_stages; k++) must_reduce |= s->replicas[k] > 1;
    for (int k = 0; k < s->n_stages && !s->is_forward_only; k++)
        for (int q = 0; q < s->replicas[k]; q++)
            check_steps_on(s, s->worker_of[k] + q, k, must_reduce);
    if (must_reduce) return;
    for (int w = 0; w < s->n_workers; w++)
        for (int i = 0; i < s->lists[w].n; i++)
            assert_int_not_equal(s->lists[w].at[i].action, FR_DO_REDUCE);
}

/* The end of the last use of (stage, micro) on the stage itself. */
static double last_use(const fr_schedule *s, const fr_clock *c, int stage, int micro)
{
    int w = fr_schedule_worker(s, stage, micro);
    double last = 0;
    for (int i = 0; i < s->lists[w].n; i++) {
        const fr_instr *at = &s->lists[w].at[i];
        if (at->stage == stage && at->micro == micro && at->action <= FR_DO_W) last = c->end[w][i];
    }
    return last;
}

/* No two micro-batches in one slot of a replica overlap in time: by brute force, on any clock. */
static void check_slots(const fr_schedule *s, const fr_clock *c)
{
    int total = s->n_batches * s->n_micro;
    for (int k = 0; k < s->n_stages; k++) {
        double from[512], until[512];
        assert_true(s->n_slots[k] >= 1 && s->n_slots[k] <= total / s->replicas[k]);
        for (int m = 0; m < total; m++) {
            from[m] = start_of(s, c, FR_DO_F, k, m);
            until[m] = last_use(s, c, k, m);
            for (int l = 0; l < s->n_forward; l++)
                if (s->forward[l].from == k)
                    until[m] = fmax(until[m], last_use(s, c, s->forward[l].to, m));
            assert_int_in_range(fr_schedule_slot(s, k, m), 0, s->n_slots[k] - 1);
        }
        for (int a = 0; a < total; a++)
            for (int b = 0; b < a; b++)
                if (fr_schedule_worker(s, k, a) == fr_schedule_worker(s, k, b) &&
                    fr_schedule_slot(s, k, a) == fr_schedule_slot(s, k, b) && from[a] < until[b] &&
                    from[b] < until[a])
                    fail_msg("stage %d: micro-batches %d and %d share a slot", k, b, a);
    }
}

static bool is_same_pair(const fr_schedule *s, fr_link l, int a, int b)
{
    return fr_schedule_worker(s, l.from, a) == fr_schedule_worker(s, l.from, b) &&
           fr_schedule_worker(s, l.to, a) == fr_schedule_worker(s, l.to, b);
}

/* A schedule may have both I and B. */
static fr_action back_of(const fr_schedule *s, int stage, int micro)
{
    const fr_instr_list *l = &s->lists[fr_schedule_worker(s, stage, micro)];
    for (int i = 0; i < l->n; i++)
        if (l->at[i].action == FR_DO_I && l->at[i].stage == stage && l->at[i].micro == micro)
            return FR_DO_I;
    return FR_DO_B;
}

static void check_buffers(const fr_schedule *s, const fr_clock *c)
{
    int total = s->n_batches * s->n_micro;
    for (int l = 0; l < s->n_backward; l++) {
        double from[512], until[512];
        assert_true(s->n_buffers[l] >= 1 && s->n_buffers[l] <= total);
        for (int m = 0; m < total; m++) {
            int maker = s->backward[l].from, reader = s->backward[l].to;
            from[m] = start_of(s, c, back_of(s, maker, m), maker, m);
            until[m] = end_of(s, c, back_of(s, reader, m), reader, m);
            assert_int_in_range(fr_schedule_buffer(s, l, m), 0, s->n_buffers[l] - 1);
        }
        for (int a = 0; a < total; a++)
            for (int b = 0; b < a; b++)
                if (is_same_pair(s, s->backward[l], a, b) &&
                    fr_schedule_buffer(s, l, a) == fr_schedule_buffer(s, l, b) &&
                    from[a] < until[b] && from[b] < until[a])
                    fail_msg("link %d: micro-batches %d and %d share a buffer", l, b, a);
    }
}

/* A STEP comes after every REDUCE that it waits for: with a flush those of all stages, else those
 * of its own stage. */
static void check_reductions(const fr_schedule *s, const fr_clock *c)
{
    enum { MOST_BATCHES = 64 };
    double last[32][MOST_BATCHES] = {{0}};
    assert_true(s->n_batches <= MOST_BATCHES && s->n_stages <= 32);
    for (int pass = 0; pass < 2; pass++)
        for (int w = 0; w < s->n_workers; w++)
            for (int i = 0; i < s->lists[w].n; i++) {
                const fr_instr *at = &s->lists[w].at[i];
                double *moment = &last[s->is_flush ? 0 : at->stage][at->micro % MOST_BATCHES];
                if (pass == 0 && at->action == FR_DO_REDUCE) *moment = fmax(*moment, c->end[w][i]);
                if (pass == 1 && at->action == FR_DO_STEP) assert_true(c->start[w][i] >= *moment);
            }
}

static void check_clock(const fr_schedule *s, const fr_costs *costs)
{
    fr_clock c = timed(s, costs);
    check_slots(s, &c);
    check_buffers(s, &c);
    check_reductions(s, &c);
    fr_clock_free(&c);
}

/* --- tests -------------------------------------------------------------------------------------*/

static void random_schedules(void **unused)
{
    (void)unused;
    for (int n = 0; n < 400; n++) {
        random_case c;
        random_case_init(&c, 6, 8);
        fr_schedule *s = make_desc(c.g->name, c.d);
        check_transfers(s);
        check_steps(s, c.d.must_reduce);
        check_clock(s, NULL);
        if (fr_schedule_check(ctx, s) != FR_OK)
            fail_msg("%s: %s", random_case_text(&c), fr_ctx_error(ctx));
        double f[32], i[32], w[32], up[128], down[128];
        for (int k = 0; k < 32; k++)
            f[k] = random_unit() + 0.01, i[k] = random_unit() + 0.01, w[k] = random_unit() + 0.01;
        for (int l = 0; l < 128; l++) up[l] = random_unit(), down[l] = random_unit();
        check_clock(s, &(fr_costs){.forward = f,
                                   .back_input = i,
                                   .back_weight = w,
                                   .send_forward = up,
                                   .send_backward = down});
        fr_schedule_free(s);
    }
}

/* Schedules without split backwards need exactly the live set, plus one spare if no stage waits for
 * gradients. */
static void slot_counts(void **unused)
{
    (void)unused;
    for (int p = 1; p <= 9; p++)
        for (int m = 1; m <= 12; m++) {
            fr_schedule *gpipe = make("gpipe", p, 1, m, 1), *one = make("1f1b", p, 1, m, 1),
                        *async = make("1f1b-async", p, 1, 2, m),
                        *eval = make("forward", p, 1, m, 1), *split = make("zb-h1", p, 1, m, 1);
            for (int k = 0; k < p; k++) {
                assert_int_equal(gpipe->n_slots[k], m);
                assert_int_equal(one->n_slots[k], m < p - k ? m : p - k);
                assert_int_equal(async->n_slots[k], 2 * m < p - k ? 2 * m : p - k);
                int held = k + 1 < p ? 3 : 2; /* one here, one at the reader, one spare */
                assert_int_equal(eval->n_slots[k], m < held ? m : held);
                assert_true(split->n_slots[k] <= (m < p ? m : p) + 2);
            }
            for (int l = 0; l + 1 < p; l++) { /* one being written, one being read, one spare */
                assert_int_equal(gpipe->n_buffers[l], m < 3 ? m : 3);
                assert_int_equal(one->n_buffers[l], m < 3 ? m : 3);
                assert_int_equal(async->n_buffers[l], m < 2 ? 2 : 3);
            }
            fr_schedule_free(gpipe);
            fr_schedule_free(one);
            fr_schedule_free(async);
            fr_schedule_free(eval);
            fr_schedule_free(split);
        }
}

/* On one worker, gradients between its stages need one buffer. */
static void no_spare_on_one_worker(void **unused)
{
    (void)unused;
    fr_schedule *s = make("sequential", 3, 3, 4, 1);
    assert_int_equal(s->n_workers, 1);
    for (int l = 0; l < 2; l++) assert_int_equal(s->n_buffers[l], 1);
    for (int k = 0; k < 3; k++) assert_int_equal(s->n_slots[k], 1);
    fr_schedule_free(s);
}

static void skip_links(void **unused)
{
    (void)unused;
    fr_schedule *s = make_desc("1f1b", skips(6));
    check_transfers(s);
    int at = place_of(s, FR_DO_F, 2, 3, -1);
    assert_int_equal(place_of(s, FR_DO_RECV_F, 2, 3, 1), at - 2);
    assert_int_equal(place_of(s, FR_DO_RECV_F, 2, 3, 0), at - 1);
    at = place_of(s, FR_DO_B, 3, 3, -1);
    assert_int_equal(place_of(s, FR_DO_SEND_B, 3, 3, 2), at + 1);
    assert_int_equal(place_of(s, FR_DO_SEND_B, 3, 3, 1), at + 2);
    fr_schedule_free(s);
}

static void reductions(void **unused)
{
    (void)unused;
    fr_schedule *s = make_desc(
        "interleaved",
        (fr_schedule_desc){.n_stages = 4, .chunks = 2, .n_micro = 2, .must_reduce = true});
    char text[48];
    const char *const tail[] = {"2REDUCE0", "0B0", "0B1", "0REDUCE0", "0STEP0", "2STEP0"};
    int n = 0;
    for (int i = place_of(s, FR_DO_REDUCE, 2, 0, -1); i < s->lists[0].n; i++)
        if (!fr__is_transfer(s->lists[0].at[i].action))
            assert_string_equal(fr_instr_text(&s->lists[0].at[i], text), tail[n++]);
    assert_int_equal(n, 6);
    fr_clock c = timed(s, NULL); /* all step together, after the last gradient */
    for (int k = 0; k < 4; k++)
        assert_near(start_of(s, &c, FR_DO_STEP, k, 0), c.makespan, "start of STEP");
    fr_clock_free(&c);
    fr_schedule_free(s);
}

/* Without the instructions of mini-batches from some number on, the rest equals the schedule
 * generated for that length, and it runs with the same slots. */
static void cut_short(void **unused)
{
    (void)unused;
    static const char *const names[] = {"1f1b-async", "nf1b", "forward"};
    for (int g = 0; g < 3; g++)
        for (int p = 1; p <= 6; p++)
            for (int t = 1; t <= 4; t++)
                for (int keep = 1; keep <= 7; keep++) {
                    fr_schedule *s = make(names[g], p, 1, t, 7),
                                *want = make(names[g], p, 1, t, keep);
                    for (int w = 0; w < p; w++) {
                        fr_instr_list *l = &s->lists[w];
                        int n = 0;
                        for (int i = 0; i < l->n; i++)
                            if (l->at[i].action == FR_DO_STEP ? l->at[i].micro < keep
                                                              : l->at[i].micro < keep * t)
                                l->at[n++] = l->at[i];
                        l->n = n;
                        assert_int_equal(n, want->lists[w].n);
                        for (int i = 0; i < n; i++) {
                            const fr_instr *a = &l->at[i], *b = &want->lists[w].at[i];
                            assert_true(a->action == b->action && a->stage == b->stage &&
                                        a->micro == b->micro && a->peer == b->peer);
                        }
                    }
                    fr_clock c = timed(s, NULL), d = timed(want, NULL);
                    assert_near(c.makespan, d.makespan, "makespan");
                    fr_clock_free(&c);
                    fr_clock_free(&d);
                    fr_schedule_free(s);
                    fr_schedule_free(want);
                }
}

static fr_schedule *by_hand(int n_stages, int n_micro, int n_batches)
{
    int worker_of[8];
    for (int k = 0; k < n_stages; k++) worker_of[k] = k;
    fr_schedule *s;
    assert_ok(ctx, fr__schedule_new(ctx, "by hand",
                                    &(fr_schedule_desc){.n_stages = n_stages,
                                                        .n_micro = n_micro,
                                                        .n_batches = n_batches},
                                    n_stages, worker_of, false, &s));
    return s;
}

/* Sent in order 0, 1 but used in order 1, 0: both are received in the order of sending, before the
 * first use. */
static void receives_keep_the_senders_order(void **unused)
{
    (void)unused;
    fr_schedule *s = by_hand(2, 2, 1);
    for (int m = 0; m < 2; m++) fr__emit(s, 0, FR_DO_F, 0, m);
    for (int m = 0; m < 2; m++) fr__emit(s, 0, FR_DO_B, 0, m);
    for (int m = 1; m >= 0; m--) fr__emit(s, 1, FR_DO_F, 1, m);
    for (int m = 1; m >= 0; m--) fr__emit(s, 1, FR_DO_B, 1, m);
    assert_ok(ctx, fr__schedule_lower(ctx, s, false));
    static const char *const lists[2][12] = {
        {"0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B1", "0RECV_B0", "0B0", "0B1", "0STEP0"},
        {"1RECV_F0", "1RECV_F1", "1F1", "1F0", "1B1", "1SEND_B1", "1B0", "1SEND_B0", "1STEP0"},
    };
    char text[48];
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < 9; i++)
            assert_string_equal(fr_instr_text(&s->lists[w].at[i], text), lists[w][i]);
    check_clock(s, NULL);
    fr_schedule_free(s);
}

/* Slots are released in another order than they were taken. */
static void slots_out_of_turn(void **unused)
{
    (void)unused;
    fr_schedule *s = by_hand(1, 3, 1);
    static const struct {
        fr_action action;
        int micro;
    } list[] = {{FR_DO_F, 1}, {FR_DO_F, 0}, {FR_DO_B, 0}, {FR_DO_F, 2}, {FR_DO_B, 1}, {FR_DO_B, 2}};
    for (int i = 0; i < 6; i++) fr__emit(s, 0, list[i].action, 0, list[i].micro);
    assert_ok(ctx, fr__schedule_lower(ctx, s, false));
    assert_int_equal(s->n_slots[0], 2);
    assert_int_equal(fr_schedule_slot(s, 0, 2), fr_schedule_slot(s, 0, 0));
    check_clock(s, NULL);
    fr_schedule_free(s);
}

/* Lowering a lowered schedule, or one with transfers and steps, adds nothing. */
static void lowering_keeps_what_is_there(void **unused)
{
    (void)unused;
    fr_schedule *s = make("zb-h1", 3, 1, 4, 1);
    int n[3];
    for (int w = 0; w < 3; w++) n[w] = s->lists[w].n;
    assert_ok(ctx, fr__schedule_lower(ctx, s, false));
    for (int w = 0; w < 3; w++) assert_int_equal(s->lists[w].n, n[w]);
    assert_ok(ctx, fr__schedule_lower(ctx, s, true)); /* one more REDUCE, before the STEP */
    for (int w = 0; w < 3; w++) {
        assert_int_equal(s->lists[w].n, n[w] + 1);
        assert_true(place_of(s, FR_DO_REDUCE, w, 0, -1) < place_of(s, FR_DO_STEP, w, 0, -1));
    }
    fr_schedule_free(s);
}

static void placement(void **unused)
{
    (void)unused;
    static const int bent[] = {0, 1, 2, 2, 1, 0}; /* a V: the last stage is on the first worker */
    for (int m = 1; m <= 9; m++) {
        fr_schedule *s = make_desc(
            "forward", (fr_schedule_desc){.n_stages = 6, .n_micro = m, .worker_of = bent});
        assert_int_equal(s->n_workers, 3);
        assert_int_equal(s->n_backward, 0);
        check_transfers(s);
        check_clock(s, NULL);
        fr_schedule_free(s);
    }
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(slot_counts),
        cmocka_unit_test(no_spare_on_one_worker),
        cmocka_unit_test(skip_links),
        cmocka_unit_test(reductions),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(receives_keep_the_senders_order),
        cmocka_unit_test(slots_out_of_turn),
        cmocka_unit_test(lowering_keeps_what_is_there),
        cmocka_unit_test(placement),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
