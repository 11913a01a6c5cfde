/* test_timeline.c -- reads traces: of the real writer event by event, of 64 workers, in other
 * layouts, and broken ones. */
#include "report/timeline.h"

#include <forerun/sched.h>

#include "report/folders.h"
#include "sim/timeline.h"

/* One event of each action and wait, on a worker of two stages. */
static void reads_what_train_writes(void **state)
{
    enum { N = 2 * FR_N_ACTIONS + 1 };
    fr_event events[N];
    const fr_event *lists[] = {events};
    int n = N, workers[] = {0, 0}, replicas[] = {2, 2};
    for (int i = 0; i < 2 * FR_N_ACTIONS; i++) {
        bool is_step = i / 2 == FR_DO_STEP || i / 2 == FR_DO_REDUCE;
        events[i] = (fr_event){.start_ns = 5000 + 1001 * (uint64_t)i,
                               .end_ns = 5000 + 1001 * (uint64_t)i + 250,
                               .action = (uint8_t)(i / 2),
                               .is_wait = i % 2 == 0,
                               .stage = i % 2,
                               .peer = 1,
                               .batch = 7,
                               .micro = is_step ? -1 : 3,
                               .version = 6,
                               .ahead = 2};
    }
    events[N - 1] = (fr_event){.start_ns = 5500,
                               .end_ns = 9500,
                               .action = FR_DO_REDUCE,
                               .is_beside = true,
                               .stage = 1,
                               .batch = 7,
                               .micro = 12};
    fr__timeline t = {.title = "t",
                      .n_workers = 1,
                      .n_stages = 2,
                      .n_micro = 4,
                      .worker_of = workers,
                      .replicas = replicas,
                      .events = lists,
                      .n_events = &n};
    place p = below(state, "trace.json");
    assert_ok(ctx, fr__timeline_write(ctx, p.path, &t));
    fr__lanes lanes;
    assert_ok(ctx, fr__lanes_read(ctx, p.path, 1000, &lanes));
    assert_int_equal(lanes.lanes.n, 1);
    assert_int_equal(lanes.n_events, N);
    assert_int_equal(lanes.lanes.at[0].slices.n, N);
    assert_non_null(strstr(lanes.lanes.at[0].name, "worker 0, stages 0, 1"));
    for (int k = 0, i = 0; k < N; k++) {
        const fr__slice *s = &lanes.lanes.at[0].slices.at[k];
        if (k == 1) { /* the sum, which started after the first */
            assert_true(s->start_ns == 500 && s->took_ns == 4000 && s->action == FR_N_ACTIONS);
            assert_true(s->stage == 1 && s->batch == 7 && s->micro == 12 && s->version == -1);
            continue;
        }
        const fr_event *e = &events[i++];
        bool uses = !e->is_wait && (e->action <= FR_DO_W || e->action == FR_DO_R),
             steps = e->action == FR_DO_STEP;
        assert_int_equal(s->start_ns, (int64_t)e->start_ns - 5000);
        assert_int_equal(s->took_ns, 250);
        assert_int_equal(s->action, e->action);
        assert_int_equal(s->is_wait, e->is_wait);
        assert_int_equal(s->stage, e->stage);
        assert_int_equal(s->batch, 7);
        assert_int_equal(s->micro, e->micro);
        assert_int_equal(s->version, uses || (steps && !e->is_wait) ? 6 : -1);
        assert_int_equal(s->ahead, uses ? 2 : -1);
    }
    fr__lanes_fini(&lanes);
}

static void shares_events_out_over_64_workers(void **state)
{
    fr__lanes lanes;
    put_trace(*state, 64, 300);
    assert_ok(ctx, fr__lanes_read(ctx, below(state, "trace.json").path, 6400, &lanes));
    assert_int_equal(lanes.lanes.n, 64);
    assert_int_equal(lanes.n_events, 64 * 300);
    for (int w = 0; w < 64; w++) {
        const fr__lane *lane = &lanes.lanes.at[w];
        assert_int_equal(lane->slices.n, 100);
        for (int i = 0; i < 100; i++) { /* the first ones, which include the fill of the pipeline */
            assert_int_equal(lane->slices.at[i].start_ns, 10000 * i + 250);
            assert_int_equal(lane->slices.at[i].batch, i);
            assert_int_equal(lane->slices.at[i].stage, w);
        }
    }
    fr__lanes_fini(&lanes);
    assert_ok(ctx, fr__lanes_read(ctx, below(state, "trace.json").path, 3, &lanes));
    for (int w = 0; w < 64; w++) assert_int_equal(lanes.lanes.at[w].slices.n, 1);
    fr__lanes_fini(&lanes);
}

static fr_status read_text(void **state, const char *text, fr__lanes *t)
{
    place p = put_file(*state, "trace.json", text);
    return fr__lanes_read(ctx, p.path, 100, t);
}

static void layout_does_not_matter(void **state)
{
    fr__lanes t;
    assert_ok(ctx, read_text(state,
                             "{\n  \"other\": {\"traceEvents\": \"[{\\\"\", \"x\": {\"y\": [1]}},\n"
                             "  \"traceEvents\": [\n    {\n      \"ph\": \"X\",\n"
                             "      \"name\": \"wait 3RECV_B17\",\n      \"pid\": 1,\n"
                             "      \"tid\": 9,\n      \"ts\": 1.5,\n      \"dur\": 2\n    },"
                             "{\"ph\":\"i\",\"name\":\"[{\"},{\"ph\":\"X\",\"name\":\"dance\","
                             "\"ts\":0,\"tid\":9,\"pid\":1}]}",
                             &t));
    assert_int_equal(t.n_events, 1); /* an unknown action */
    assert_int_equal(t.lanes.n, 1);
    assert_null(t.lanes.at[0].name);
    const fr__slice *s = &t.lanes.at[0].slices.at[0];
    assert_true(s->action == 7 && s->is_wait && s->start_ns == 1500 && s->took_ns == 2000);
    fr__lanes_fini(&t);
    assert_ok(ctx, read_text(state, "{\"traceEvents\": []}", &t));
    assert_true(t.n_events == 0 && t.lanes.n == 0);
    fr__lanes_fini(&t);
}

static void broken_traces_are_told(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "trace.json:1: ends early"},
               {"{}", "trace.json:1: expected an object with a list"},
               {"nonsense", "trace.json:1: expected an object with a list"},
               {"{\"traceEvents\": [\n{\"ph\": \"X\"},\n{\"ph\": ", "trace.json:3: ends early"},
               {"{\"traceEvents\": [\n{\"ph\": \"X\"}\n", "trace.json:3: ends early"},
               {"{\"traceEvents\": [\n{\"ph\": \"X\", }]}", "trace.json:2: not an event"},
               {"{\"traceEvents\": [\n\n7]}", "trace.json:3: expected an event"},
               {"{\"traceEvents\": [{\n\"ph\":\n\"X\"},\n7]}", "trace.json:4: expected an event"}};
    fr__lanes t;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(ctx, read_text(state, bad[i].text, &t), FR_INVALID, bad[i].says);
}

/* Pieces that cross the ends of the buffer, wherever they are. */
static void buffers_end_anywhere(void **state)
{
    enum { N = 20000 };
    fr__lanes t;
    put_trace(*state, 1, N);
    assert_ok(ctx, fr__lanes_read(ctx, below(state, "trace.json").path, N, &t));
    assert_int_equal(t.lanes.at[0].slices.n, N);
    for (int i = 0; i < N; i++) assert_int_equal(t.lanes.at[0].slices.at[i].version, i);
    fr__lanes_fini(&t);
}

/* Any file is read or refused. */
static void noise_is_survived(void **state)
{
    static const char text[] =
        "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
        "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 1, "
        "\"args\": {\"name\": \"worker 0\"}}\n"
        ", {\"ph\": \"X\", \"name\": \"wait 1F3\", \"pid\": 1, \"tid\": 1, \"ts\": 1.5e3, "
        "\"dur\": 2.25, \"args\": {\"stage\": 0, \"mini_batch\": 3, \"version\": 2}}\n"
        ", {\"ph\": \"b\", \"name\": \"sum 1.2\", \"pid\": 1, \"tid\": 1, \"id\": 5, \"ts\": 7}\n"
        ", {\"ph\": \"e\", \"name\": \"sum 1.2\", \"pid\": 1, \"tid\": 1, \"id\": 5, \"ts\": "
        "9}]}\n";
    int n_read = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        char noisy[2 * sizeof text];
        fr__lanes t;
        spoil(text, seed, noisy, sizeof noisy);
        fr_status status = read_text(state, noisy, &t);
        assert_true(status == FR_OK || status == FR_INVALID);
        fr_ctx_clear(ctx);
        n_read += status == FR_OK;
        if (status == FR_OK) fr__lanes_fini(&t);
    }
    assert_int_in_range(n_read, 1, 1999); /* both outcomes must occur */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_train_writes),
        cmocka_unit_test(shares_events_out_over_64_workers),
        cmocka_unit_test(layout_does_not_matter),
        cmocka_unit_test(broken_traces_are_told),
        cmocka_unit_test(buffers_end_anywhere),
        cmocka_unit_test(noise_is_survived),
    };
    return cmocka_run_group_tests(tests, folders_enter, folders_leave);
}
