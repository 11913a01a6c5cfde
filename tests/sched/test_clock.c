/* test_clock.c -- the virtual clock: times computed by hand, bounds of random schedules, messages
 * of deadlocks, memory. */
#include "sched/random.h"
#include "sched/sched.h"

static fr_schedule *by_hand(int n_stages, int n_micro)
{
    int worker_of[8];
    for (int k = 0; k < n_stages; k++) worker_of[k] = k;
    fr_schedule *s;
    assert_ok(ctx, fr__schedule_new(ctx, "by hand",
                                    &(fr_schedule_desc){
                                        .n_stages = n_stages, .n_micro = n_micro, .n_batches = 1},
                                    n_stages, worker_of, false, &s));
    return s;
}

/* Two stages, one micro-batch; all durations differ. */
static void times_by_hand(void **unused)
{
    (void)unused;
    fr_schedule *s = make("1f1b", 2, 1, 1, 1);
    fr_costs costs = {.forward = (double[]){1, 10},
                      .back_input = (double[]){2, 20},
                      .back_weight = (double[]){4, 40},
                      .step = (double[]){8, 80},
                      .send_forward = (double[]){100},
                      .send_backward = (double[]){200}};
    fr_clock c = timed(s, &costs);
    assert_near(start_of(s, &c, FR_DO_SEND_F, 0, 0), 1, "SEND_F");
    assert_near(start_of(s, &c, FR_DO_RECV_F, 1, 0), 101, "RECV_F");
    assert_near(end_of(s, &c, FR_DO_F, 1, 0), 111, "F");
    assert_near(end_of(s, &c, FR_DO_B, 1, 0), 171, "B");
    assert_near(end_of(s, &c, FR_DO_STEP, 1, 0), 251, "STEP");
    assert_near(start_of(s, &c, FR_DO_B, 0, 0), 371, "B");
    assert_near(end_of(s, &c, FR_DO_STEP, 0, 0), 385, "STEP");
    assert_near(c.makespan, 385, "makespan");
    assert_near(c.busy[0], 15, "busy");
    assert_near(c.busy[1], 150, "busy");
    fr_clock_free(&c);
    fr_schedule_free(s);
}

/* A schedule without transfers runs by its dependencies only, at the same times. */
static void computation_only(void **unused)
{
    (void)unused;
    double delay[3] = {0.5, 0.25, 2};
    fr_costs costs = {.send_forward = delay, .send_backward = delay};
    fr_schedule *bare = by_hand(4, 6), *s = make("1f1b", 4, 1, 6, 1);
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < s->lists[w].n; i++) {
            const fr_instr *at = &s->lists[w].at[i];
            if (at->action <= FR_DO_W) fr__emit(bare, w, at->action, at->stage, at->micro);
        }
    assert_false(fr__emit_failed(bare));
    fr_clock a = timed(s, &costs), b = timed(bare, &costs);
    assert_near(b.makespan, a.makespan, "makespan");
    for (int k = 0; k < 4; k++)
        for (int m = 0; m < 6; m++)
            assert_near(start_of(bare, &b, FR_DO_B, k, m), start_of(s, &a, FR_DO_B, k, m), "B");
    fr_clock_free(&a);
    fr_clock_free(&b);
    fr_schedule_free(bare);
    fr_schedule_free(s);
}

/* The makespan is at least the time of the busiest worker, and of one micro-batch through all
 * stages and back. */
static void bounds(void **unused)
{
    (void)unused;
    for (int n = 0; n < 300; n++) {
        random_case r;
        random_case_init(&r, 8, 10);
        r.d.forward = r.d.backward = NULL;
        fr_schedule *s = make_desc(r.g->name, r.d);
        double f[32], i[32], w[32], way = 0, busiest = 0, work = 0;
        for (int k = 0; k < s->n_stages; k++) {
            f[k] = random_unit(), i[k] = random_unit(), w[k] = random_unit();
            way += f[k] + (s->is_forward_only ? 0 : i[k]);
            if (!s->is_forward_only && !s->is_split) way += w[k];
            work += f[k] + (s->is_forward_only ? 0 : i[k] + w[k]);
        }
        fr_clock c = timed(s, &(fr_costs){.forward = f, .back_input = i, .back_weight = w});
        double all = 0;
        for (int v = 0; v < s->n_workers; v++) {
            busiest = fmax(busiest, c.busy[v]);
            all += c.busy[v];
        }
        assert_near(all, work * s->n_micro * s->n_batches, "work");
        if (c.makespan < busiest - 1e-9 || c.makespan < way - 1e-9 || c.makespan > all + 1e-9)
            fail_msg("%s: makespan %g, busiest %g, way %g, all %g", random_case_text(&r),
                     c.makespan, busiest, way, all);
        for (int v = 0; v < s->n_workers; v++)
            for (int k = 1; k < s->lists[v].n; k++) assert_true(c.start[v][k] >= c.end[v][k - 1]);
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

/* One slow stage sets the pace of an asynchronous pipeline. */
static void slow_stage(void **unused)
{
    (void)unused;
    for (int slow = 0; slow < 4; slow++) {
        double f[4] = {1, 1, 1, 1}, b[4] = {1, 1, 1, 1};
        f[slow] = 3, b[slow] = 4;
        fr_schedule *s = make("1f1b-async", 4, 1, 1, 40);
        fr_clock c = timed(s, &(fr_costs){.forward = f, .back_input = b, .back_weight = b});
        assert_near(start_of(s, &c, FR_DO_B, slow, 30) - start_of(s, &c, FR_DO_B, slow, 20),
                    10 * (3 + 8), "ten rounds of the slow stage");
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

/* A slot that is held too long delays the forward that needs it. */
static void slots_are_waited_for(void **unused)
{
    (void)unused;
    double one[2] = {1, 1}, slow[2] = {1, 10};
    fr_schedule *s = make("forward", 2, 1, 8, 1);
    assert_int_equal(s->n_slots[0], 3);
    fr_clock c = timed(s, &(fr_costs){.forward = slow});
    for (int m = 3; m < 8; m++) /* its slot is free when the reader has done m - 3 */
        assert_near(start_of(s, &c, FR_DO_F, 0, m), 1 + 10 * (m - 2), "start of F");
    fr_clock_free(&c);
    int *slots = s->slot_of;
    s->slot_of = NULL; /* not lowered yet: no waits for slots or buffers */
    c = timed(s, &(fr_costs){.forward = slow});
    for (int m = 0; m < 8; m++) assert_near(start_of(s, &c, FR_DO_F, 0, m), m, "start of F");
    fr_clock_free(&c);
    s->slot_of = slots;
    fr_schedule_free(s);

    s = make("gpipe", 2, 1, 8, 1);
    assert_int_equal(s->n_buffers[0], 3);
    c = timed(s, &(fr_costs){.back_input = (double[]){10, 1}, .back_weight = one});
    for (int m = 3; m < 8; m++) /* its buffer is free when the reader has done m - 3 */
        assert_near(start_of(s, &c, FR_DO_B, 1, m), end_of(s, &c, FR_DO_B, 0, m - 3), "start of B");
    fr_clock_free(&c);
    fr_schedule_free(s);
}

/* --- what cannot run ---------------------------------------------------------------------------*/

/* Append "0F0 0B0" to the list of worker w; transfers are to or from the neighbour. */
static void emit_text(fr_schedule *s, int w, const char *text)
{
    static const char *const names[FR_N_ACTIONS] = {
        "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "STEP"};
    for (int stage, micro, n; *text; text += n) {
        char name[16];
        assert_int_equal(sscanf(text, " %d%15[A-Z_]%d%n", &stage, name, &micro, &n), 3);
        int action = 0;
        while (strcmp(names[action], name) != 0) action++;
        int up = action == FR_DO_SEND_F || action == FR_DO_RECV_B ? stage + 1 : stage - 1;
        fr__emit_transfer(s, w, (fr_action)action, stage, micro, up);
    }
}

static void cannot_run(void **unused)
{
    (void)unused;
    const struct {
        const char *lists[2], *text;
    } rows[] = {
        {{"0B0 0F0", "1F0 1B0"},
         "worker 0, step 0 (0B0): deadlock: waits for 0F0, which this worker"},
        {{"0F0 0SEND_F0 0B0", "1RECV_F0 1B0 1F0"},
         "worker 1, step 1 (1B0): deadlock: waits for 1F0"},
        {{"0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0"},
         "worker 0, step 2 (0RECV_B0): deadlock: waits for 1SEND_B0, which worker 1 never runs"},
        {{"0RECV_B0 0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"},
         "worker 0, step 0 (0RECV_B0): deadlock: waits for 1SEND_B0, but worker 1 waits at "
         "step 0 (1RECV_F0)"},
        {{"0F0 0F0 0B0", "1F0 1B0"}, "worker 0, step 1 (0F0): it has already run"},
        {{"0F0 0B0", "1F0 1B0 1B0"}, "worker 1, step 2 (1B0): it has already run"},
        {{"0F0 0SEND_F0 0SEND_F0 0B0", "1F0 1B0"},
         "worker 0, step 2 (0SEND_F0): it has already run"},
        {{"0F0 0F1 0B0", "1F0 1B0"}, "worker 0, step 1 (0F1): micro-batches are 0 to 0"},
        {{"0F0 0B0 0STEP1", "1F0 1B0"}, "worker 0, step 2 (0STEP1): mini-batches are 0 to 0"},
        {{"0F0 1B0", "1F0 1B0"}, "worker 0, step 1 (1B0): stage 1 is on worker 1"},
        {{"0F0 2B0", "1F0 1B0"}, "worker 0, step 1 (2B0): stages are 0 to 1"},
        {{"0F0 0SEND_B0", "1F0 1B0"},
         "worker 0, step 1 (0SEND_B0): no link in this direction between"},
        {{"0F0 0B0 0STEP0 0REDUCE0", "1F0 1B0 1REDUCE0 1STEP0"},
         "worker 0, step 2 (0STEP0): deadlock: waits for 0REDUCE0, which this worker"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_schedule *s = by_hand(2, 1);
        for (int w = 0; w < 2; w++) emit_text(s, w, rows[i].lists[w]);
        fr_clock c;
        assert_fails(ctx, fr_schedule_clock(ctx, s, NULL, &c), FR_INVALID, rows[i].text);
        assert_null(c.arena);
        assert_int_equal(fr__schedule_lower(ctx, s, false), FR_INVALID);
        fr_ctx_clear(ctx);
        assert_false(s->is_lowered);
        fr_schedule_free(s);
    }
}

/* Slots that do not exist are refused, not indexed by. */
static void slots_out_of_range(void **unused)
{
    (void)unused;
    fr_schedule *s = make("1f1b", 3, 1, 4, 1);
    fr_clock c;
    s->slot_of[5] = s->n_slots[1];
    assert_fails(ctx, fr_schedule_clock(ctx, s, NULL, &c), FR_INVALID, "out of range");
    s->slot_of[5] = 0;
    s->buffer_of[0] = -1;
    assert_fails(ctx, fr_schedule_clock(ctx, s, NULL, &c), FR_INVALID, "out of range");
    fr_schedule_free(s);
}

/* A slot with two users at once causes a deadlock. */
static void slots_shared(void **unused)
{
    (void)unused;
    fr_schedule *s = make("gpipe", 1, 1, 2, 1);
    fr_clock c;
    s->slot_of[0] = s->slot_of[1] = 0;
    assert_fails(ctx, fr_schedule_clock(ctx, s, NULL, &c), FR_INVALID,
                 "worker 0, step 1 (0F1): deadlock: waits for 0B0, which this worker");
    fr_schedule_free(s);
}

/* Any order of the computations either runs or is refused with a worker and a step. */
static void shuffled(void **unused)
{
    (void)unused;
    int n_refused = 0;
    for (int n = 0; n < 500; n++) {
        fr_schedule *from = make("1f1b", random_int(1, 3), 1, random_int(1, 3), 1);
        fr_schedule *s = by_hand(from->n_stages, from->n_micro);
        for (int w = 0; w < from->n_workers; w++) {
            fr_instr *at = from->lists[w].at;
            for (int i = from->lists[w].n - 1; i > 0; i--) {
                int j = random_int(i > 2 ? i - 2 : 0, i);
                fr_instr other = at[i];
                at[i] = at[j], at[j] = other;
            }
            for (int i = 0; i < from->lists[w].n; i++)
                fr__emit_transfer(s, w, at[i].action, at[i].stage, at[i].micro, at[i].peer);
        }
        fr_status status = fr__schedule_lower(ctx, s, false);
        if (status != FR_OK) {
            n_refused++;
            assert_int_equal(status, FR_INVALID);
            assert_non_null(strstr(fr_ctx_error(ctx), "worker "));
            assert_non_null(strstr(fr_ctx_error(ctx), ", step "));
            fr_ctx_clear(ctx);
        }
        fr_schedule_free(from);
        fr_schedule_free(s);
    }
    assert_int_in_range(n_refused, 100, 499);
}

/* --- memory and size ---------------------------------------------------------------------------*/

static fr_status create_and_time(fr_ctx *inner, void *user)
{
    const char *name = user;
    bool has_chunks = fr_generator_find(name)->has_chunks;
    fr_schedule_desc d = {.n_stages = 4,
                          .chunks = has_chunks ? 2 : 1,
                          .n_micro = 4,
                          .n_batches = fr_generator_find(name)->is_flush ? 1 : 40,
                          .must_reduce = true};
    const fr_schedule *s = NULL;
    fr_clock c = {0};
    fr_status status = fr_schedule_create(inner, fr_generator_find(name), &d, &s);
    if (status == FR_OK) status = fr_schedule_clock(inner, s, NULL, &c);
    if (status != FR_OK && !s) assert_null(c.arena);
    fr_clock_free(&c);
    fr_schedule_free(s);
    return status;
}

static void out_of_memory(void **unused)
{
    (void)unused;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++) {
        char name[32];
        snprintf(name, sizeof name, "%s", (*g)->name);
        assert_true(support_walk_memory(create_and_time, name) > 10);
    }
}

/* A quadratic step anywhere would show here. */
static void large(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        int stages, chunks, micro, batches;
    } rows[] = {
        {"1f1b-async", 8, 1, 8, 1024}, {"nf1b", 8, 1, 8, 1024},  {"forward", 8, 1, 8, 1024},
        {"gpipe", 64, 1, 256, 1},      {"zb-h1", 64, 1, 256, 1}, {"interleaved", 256, 4, 256, 1},
        {"sequential", 64, 1, 256, 1}, {"1f1b", 4096, 1, 64, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_schedule *s =
            make(rows[i].name, rows[i].stages, rows[i].chunks, rows[i].micro, rows[i].batches);
        fr_clock c = timed(s, NULL);
        assert_true(c.makespan >= rows[i].micro * rows[i].chunks);
        fr_clock_free(&c);
        fr_schedule_free(s);
    }
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_by_hand),
        cmocka_unit_test(computation_only),
        cmocka_unit_test(bounds),
        cmocka_unit_test(slow_stage),
        cmocka_unit_test(slots_are_waited_for),
        cmocka_unit_test(cannot_run),
        cmocka_unit_test(slots_out_of_range),
        cmocka_unit_test(slots_shared),
        cmocka_unit_test(shuffled),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(large),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
