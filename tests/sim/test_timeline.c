/* test_timeline.c -- timelines of schedules run on the virtual clock, written, read back by Jansson
 * and checked by the rules of Perfetto: tracks, slices in order, arrows with both ends inside
 * slices. */
#include <forerun/clock.h>

#include "sim/timeline.h"
#include "support/check.h"

#include <jansson.h>

enum { MAX_WORKERS = 4, MAX_EVENTS = 1000, N_MICRO = 4, UNIT_NS = 100000 };

typedef struct run {
    fr_ctx *ctx;
    const fr_schedule *s;
    fr_event at[MAX_WORKERS][MAX_EVENTS];
    const fr_event *lists[MAX_WORKERS];
    int n[MAX_WORKERS];
    fr__timeline t;
} run;

/* Events as of an engine: each instruction, with the wait before it as a wait event. */
static void note(run *r, const fr_clock *c, int w, int i)
{
    const fr_instr *in = &r->s->lists[w].at[i];
    bool is_step = in->action == FR_DO_STEP || in->action == FR_DO_REDUCE;
    fr_event e = {.action = in->action,
                  .stage = in->stage,
                  .peer = in->peer,
                  .batch = 5 + (is_step ? in->micro : in->micro / N_MICRO),
                  .micro = is_step ? -1 : in->micro % N_MICRO,
                  .version = 5,
                  .ahead = 2};
    double idle_from = i ? c->end[w][i - 1] : 0;
    e.start_ns = 1000000 + (uint64_t)(c->start[w][i] * (double)UNIT_NS) + (uint64_t)i * 2;
    e.end_ns = 1000000 + (uint64_t)(c->end[w][i] * (double)UNIT_NS) + (uint64_t)i * 2 + 1;
    if (c->start[w][i] > idle_from) {
        fr_event wait = e;
        wait.is_wait = true;
        wait.start_ns = 1000000 + (uint64_t)(idle_from * (double)UNIT_NS) + (uint64_t)i * 2;
        /* A worker that lost its core records less waiting than it did. */
        bool is_receive = in->action == FR_DO_RECV_F || in->action == FR_DO_RECV_B;
        if (is_receive && i % 2) e.start_ns -= (e.start_ns - wait.start_ns) / 2;
        wait.end_ns = e.start_ns;
        r->at[w][r->n[w]++] = wait;
    }
    r->at[w][r->n[w]++] = e;
}

static void open_run(run *r, const char *generator, int n_stages, int chunks)
{
    static const double late[16] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    const fr_costs costs = {.send_forward = late, .send_backward = late};
    fr_clock c;
    memset(r, 0, sizeof *r);
    r->ctx = fr_ctx_create();
    fr_schedule_desc d = {
        .n_stages = n_stages, .chunks = chunks, .n_micro = N_MICRO, .n_batches = 1};
    assert_ok(r->ctx, fr_schedule_create(r->ctx, fr_generator_find(generator), &d, &r->s));
    assert_ok(r->ctx, fr_schedule_clock(r->ctx, r->s, &costs, &c));
    for (int w = 0; w < r->s->n_workers; w++) {
        r->lists[w] = r->at[w];
        for (int i = 0; i < r->s->lists[w].n; i++) note(r, &c, w, i);
    }
    fr_clock_free(&c);
    r->t = (fr__timeline){.title = "test",
                          .n_workers = r->s->n_workers,
                          .n_stages = n_stages,
                          .n_micro = N_MICRO,
                          .worker_of = r->s->worker_of,
                          .events = r->lists,
                          .n_events = r->n};
}

static void close_run(run *r)
{
    fr_schedule_free(r->s);
    fr_ctx_free(r->ctx);
}

static json_t *write_and_read(run *r, const char *path)
{
    json_error_t error;
    assert_ok(r->ctx, fr__timeline_write(r->ctx, path, &r->t));
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fail_msg("line %d: %s", error.line, error.text);
    return root;
}

static const char *text(json_t *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event, key));
    return value ? value : "";
}

static double number(json_t *event, const char *key)
{
    json_t *value = json_object_get(event, key);
    if (!json_is_number(value)) fail_msg("%s of \"%s\" is no number", key, text(event, "name"));
    return json_number_value(value);
}

static int64_t integer(json_t *event, const char *key)
{
    if (!json_is_integer(json_object_get(event, key)))
        fail_msg("%s of \"%s\" is no integer", key, text(event, "name"));
    return json_integer_value(json_object_get(event, key));
}

static bool is_phase(json_t *event, char phase) { return text(event, "ph")[0] == phase; }

/* Slices of a track do not overlap, and are in order. Returns their number. */
static int check_slices(json_t *events)
{
    double end[MAX_WORKERS + 1] = {0};
    size_t i;
    json_t *e;
    int n = 0;
    json_array_foreach(events, i, e)
    {
        if (!is_phase(e, 'X')) continue;
        int64_t tid = integer(e, "tid");
        assert_int_equal(integer(e, "pid"), 1);
        assert_int_in_range(tid, 1, MAX_WORKERS);
        if (number(e, "ts") < end[tid] - 1e-6)
            fail_msg("%s begins before the slice before it ends", text(e, "name"));
        end[tid] = number(e, "ts") + number(e, "dur");
        n++;
    }
    return n;
}

static bool is_inside_a_slice(json_t *events, json_t *flow)
{
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        if (!is_phase(e, 'X') || integer(e, "tid") != integer(flow, "tid")) continue;
        double ts = number(flow, "ts"), start = number(e, "ts");
        const char *want = is_phase(flow, 's') ? "SEND_" : "RECV_";
        if (strstr(text(e, "name"), want) && ts >= start && ts <= start + number(e, "dur"))
            return true;
    }
    return false;
}

/* Each tail has one head, not before it and on another track, and each head has a tail. */
static int check_arrows(json_t *events)
{
    size_t i, k;
    json_t *e, *f;
    int n = 0;
    json_array_foreach(events, i, e)
    {
        if (!is_phase(e, 's') && !is_phase(e, 'f')) continue;
        int n_others = 0;
        assert_true(is_inside_a_slice(events, e));
        json_array_foreach(events, k, f)
        {
            if (!is_phase(f, is_phase(e, 's') ? 'f' : 's') || integer(f, "id") != integer(e, "id"))
                continue;
            assert_string_equal(text(f, "name"), text(e, "name"));
            assert_string_equal(text(f, "cat"), text(e, "cat"));
            assert_true(integer(f, "tid") != integer(e, "tid"));
            if (is_phase(e, 's')) assert_true(number(f, "ts") >= number(e, "ts"));
            n_others++;
        }
        if (n_others != 1) fail_msg("an arrow has %d ends opposite one", n_others);
        n += is_phase(e, 's');
    }
    return n;
}

static void schedules_become_timelines(void **state)
{
    static const struct {
        const char *generator;
        int n_stages, chunks, n_arrows;
    } cases[] = {
        {"1f1b", 3, 1, 2 * 2 * N_MICRO},
        {"gpipe", 4, 1, 2 * 3 * N_MICRO},
        {"zb-h1", 2, 1, 2 * N_MICRO},
        {"interleaved", 4, 2, 2 * 3 * N_MICRO},
        {"1f1b", 1, 1, 0},
    };
    static run r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_run(&r, cases[i].generator, cases[i].n_stages, cases[i].chunks);
        json_t *root = write_and_read(&r, support_path(state, "trace.json"));
        json_t *events = json_object_get(root, "traceEvents");
        int n = 0;
        for (int w = 0; w < r.t.n_workers; w++) n += r.n[w];
        assert_int_equal(check_slices(events), n);
        assert_int_equal(check_arrows(events), cases[i].n_arrows);
        json_decref(root);
        close_run(&r);
    }
}

static json_t *find(json_t *events, char phase, const char *name, int64_t tid)
{
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        if (is_phase(e, phase) && strcmp(text(e, "name"), name) == 0 &&
            (tid == 0 || integer(e, "tid") == tid))
            return e;
    }
    fail_msg("no '%c' called %s on track %d", phase, name, (int)tid);
    return NULL;
}

static const char *track_name(json_t *events, int64_t tid)
{
    return text(json_object_get(find(events, 'M', "thread_name", tid), "args"), "name");
}

static void names_and_arguments(void **state)
{
    static run r;
    open_run(&r, "1f1b", 2, 1);
    json_t *root = write_and_read(&r, support_path(state, "trace.json"));
    json_t *events = json_object_get(root, "traceEvents");
    assert_string_equal(track_name(events, 1), "worker 0, stage 0");
    assert_string_equal(track_name(events, 2), "worker 1, stage 1");
    json_t *f = json_object_get(find(events, 'X', "F22", 2), "args"); /* 5 * 4 + 2 */
    assert_int_equal(integer(f, "stage"), 1);
    assert_int_equal(integer(f, "mini_batch"), 5);
    assert_int_equal(integer(f, "micro_batch"), 2);
    assert_int_equal(integer(f, "version"), 5);
    assert_int_equal(integer(f, "ahead"), 2);
    assert_null(json_object_get(f, "peer"));
    json_t *send = find(events, 'X', "SEND_B23", 2);
    assert_string_equal(text(send, "cat"), "transfer");
    assert_int_equal(integer(json_object_get(send, "args"), "peer"), 0);
    assert_string_equal(text(find(events, 'X', "wait RECV_F20", 2), "cat"), "wait");
    json_t *step = json_object_get(find(events, 'X', "STEP5", 1), "args");
    assert_null(json_object_get(step, "micro_batch"));
    json_t *version = json_object_get(find(events, 'C', "version of stage 1", 0), "args");
    assert_int_equal((int64_t)number(version, "updates"), 5);
    json_decref(root);
    close_run(&r);
    open_run(&r, "interleaved", 4, 2);
    root = write_and_read(&r, support_path(state, "trace.json"));
    events = json_object_get(root, "traceEvents");
    assert_string_equal(track_name(events, 2), "worker 1, stages 1, 3");
    find(events, 'X', "3F21", 2);
    json_decref(root);
    close_run(&r);
}

/* Lists that were full: arrows are drawn only where both ends were kept. */
static void lists_cut_short(void **state)
{
    static run r;
    open_run(&r, "1f1b", 3, 1);
    for (int w = 0; w < 3; w++) r.n[w] = r.n[w] * (w + 1) / 4;
    json_t *root = write_and_read(&r, support_path(state, "trace.json"));
    int n = check_arrows(json_object_get(root, "traceEvents"));
    assert_int_in_range(n, 1, 15);
    json_decref(root);
    r.n[0] = r.n[1] = r.n[2] = 0;
    json_decref(write_and_read(&r, support_path(state, "trace.json")));
    close_run(&r);
}

static fr_status write_again(fr_ctx *ctx, void *user)
{
    const run *r = user;
    return fr__timeline_write(ctx, "trace-memory.json", &r->t);
}

static void faults(void **state)
{
    static run r;
    open_run(&r, "1f1b", 2, 1);
    const char *path = support_path(state, "none.json");
    assert_true(support_walk_memory(write_again, &r) >= 3);
    remove("trace-memory.json");
    assert_fails(r.ctx, fr__timeline_write(r.ctx, support_path(state, "no/trace.json"), &r.t),
                 FR_INVALID, "no/trace.json");
    r.at[1][3].start_ns = 0;
    assert_fails(r.ctx, fr__timeline_write(r.ctx, path, &r.t), FR_INTERNAL, "event 3 of worker 1");
    assert_int_not_equal(access(path, F_OK), 0);
    close_run(&r);
}

/* Replicas have their own tracks and counters, ranks their own processes. */
static void replicas_and_ranks(void **state)
{
    (void)state;
    static const int two[] = {2, 2}, rank_of[] = {0, 0, 1, 1};
    static const char *const names[] = {"rank 0 (host a)", "rank 1 (host b)"};
    static const fr_event steps[4] = {
        {.start_ns = 10, .end_ns = 20, .action = FR_DO_STEP, .stage = 0, .micro = -1},
        {.start_ns = 11, .end_ns = 20, .action = FR_DO_STEP, .stage = 0, .micro = -1},
        {.start_ns = 12, .end_ns = 20, .action = FR_DO_STEP, .stage = 1, .micro = -1},
        {.start_ns = 13, .end_ns = 20, .action = FR_DO_STEP, .stage = 1, .micro = -1}};
    static const int worker_of[] = {0, 2}, one[] = {1, 1, 1, 1};
    const fr_event *const lists[] = {&steps[0], &steps[1], &steps[2], &steps[3]};
    fr_ctx *ctx = fr_ctx_create();
    fr__timeline t = {.title = "net",
                      .n_workers = 4,
                      .n_stages = 2,
                      .n_micro = 2,
                      .worker_of = worker_of,
                      .replicas = two,
                      .n_ranks = 2,
                      .rank_names = names,
                      .rank_of = rank_of,
                      .events = lists,
                      .n_events = one};
    char path[] = "replicas-trace.json";
    assert_ok(ctx, fr__timeline_write(ctx, path, &t));
    json_error_t error;
    json_t *o = json_load_file(path, 0, &error), *e;
    assert_non_null(o);
    char *text = json_dumps(o, JSON_COMPACT);
    static const char *const words[] = {
        "net: rank 0 (host a)", "rank 1 (host b)", "worker 1, stage 0, replica 1",
        "worker 2, stage 1, replica 0", "version of stage 1, replica 1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i])) fail_msg("'%s' is not in the trace", words[i]);
    size_t i;
    json_array_foreach(json_object_get(o, "traceEvents"), i, e)
    {
        json_int_t tid = json_integer_value(json_object_get(e, "tid"));
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0) continue;
        assert_int_equal(json_integer_value(json_object_get(e, "pid")), rank_of[tid - 1] + 1);
    }
    free(text);
    json_decref(o);
    remove(path);
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_become_timelines),
        cmocka_unit_test(names_and_arguments),
        cmocka_unit_test(lists_cut_short),
        cmocka_unit_test(faults),
        cmocka_unit_test(replicas_and_ranks),
    };
    return cmocka_run_group_tests(tests, support_dir_make, support_dir_remove);
}
