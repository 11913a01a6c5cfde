/* test_text.c -- written schedules can be read back, and errors name their place. */
#include "sched/common.h"
#include "sched/read.h"
#include "support/v_csv.h"

static fr_schedule *parse(const char *text, int n_micro, const fr_schedule_desc *d)
{
    fr_schedule *s = NULL;
    assert_ok(ctx, fr__schedule_parse(ctx, "a/file", text, strlen(text), n_micro, d, &s));
    return s;
}

/* name: false if the form does not contain it. */
static void assert_same(const fr_schedule *a, const fr_schedule *b, bool has_name)
{
    size_t all = (size_t)(a->n_micro * a->n_batches);
    if (has_name) assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_stages, b->n_stages);
    assert_int_equal(a->n_workers, b->n_workers);
    assert_int_equal(a->n_micro, b->n_micro);
    assert_int_equal(a->n_batches, b->n_batches);
    assert_int_equal(a->is_flush, b->is_flush);
    assert_int_equal(a->is_forward_only, b->is_forward_only);
    assert_int_equal(a->is_split, b->is_split);
    assert_int_equal(a->n_forward, b->n_forward);
    assert_int_equal(a->n_backward, b->n_backward);
    assert_memory_equal(a->worker_of, b->worker_of, (size_t)a->n_stages * sizeof(int));
    assert_memory_equal(a->replicas, b->replicas, (size_t)a->n_stages * sizeof(int));
    for (int l = 0; l < a->n_forward; l++)
        assert_memory_equal(&a->forward[l], &b->forward[l], sizeof(fr_link));
    for (int l = 0; l < a->n_backward; l++)
        assert_memory_equal(&a->backward[l], &b->backward[l], sizeof(fr_link));
    for (int w = 0; w < a->n_workers; w++) {
        assert_int_equal(a->lists[w].n, b->lists[w].n);
        for (int i = 0; i < a->lists[w].n; i++) {
            char x[48], y[48];
            assert_string_equal(fr_instr_text(&a->lists[w].at[i], x),
                                fr_instr_text(&b->lists[w].at[i], y));
        }
    }
    assert_memory_equal(a->n_slots, b->n_slots, (size_t)a->n_stages * sizeof(int));
    assert_memory_equal(a->slot_of, b->slot_of, (size_t)a->n_stages * all * sizeof(int));
    for (int l = 0; l < a->n_backward; l++)
        for (int m = 0; m < (int)all; m++)
            assert_int_equal(fr_schedule_buffer(a, l, m), fr_schedule_buffer(b, l, m));
}

static void round_trip(fr_schedule *s, const fr_schedule_desc *d)
{
    char *text = fr_schedule_to_text(s), *csv = fr_schedule_to_csv(s);
    assert_true(text && csv);
    fr_schedule *again = parse(text, 0, NULL);
    char *twice = fr_schedule_to_text(again);
    assert_string_equal(text, twice);
    assert_same(s, again, true);
    assert_ok(ctx, fr_schedule_check(ctx, again));
    fr_schedule_free(again);
    assert_null(strstr(csv, "STEP"));
    assert_null(strstr(csv, "REDUCE"));
    again = parse(csv, s->n_micro, d);
    assert_same(s, again, false);
    fr_schedule_free(again);
    fr_text_free(text), fr_text_free(csv), fr_text_free(twice);
    fr_schedule_free(s);
}

static void all_round_trips(void **state)
{
    (void)state;
    const fr_link forward[] = {{0, 1}, {1, 2}, {0, 2}}, backward[] = {{2, 1}, {1, 0}, {2, 0}};
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        for (int p = 1; p <= 4; p++)
            for (int v = 1; v <= 3; v++)
                for (int m = 1; takes_chunks(*g, v) && m <= 4; m++)
                    for (int reduce = 0; reduce < 2; reduce++) {
                        fr_schedule_desc d = {.n_stages = p * v,
                                              .chunks = v,
                                              .n_micro = m,
                                              .n_batches = (*g)->is_flush ? 1 : 3,
                                              .must_reduce = reduce};
                        if ((*g)->check && (*g)->check(&d)) continue;
                        if (p * v == 3) {
                            d.n_forward = 3, d.n_backward = (*g)->is_forward_only ? 0 : 3;
                            d.forward = forward, d.backward = backward;
                        }
                        round_trip(make_desc((*g)->name, d), &d);
                    }
}

/* Files of PyTorch are the lists of our generators; the placement follows from the rows. */
static void dumped_by_pytorch(void **state)
{
    (void)state;
    const struct {
        const char *name, *csv;
    } rows[] = {{"zbv", zbv_csv}, {"dualpipev", dualpipev_csv}};
    for (int i = 0; i < 2; i++) {
        fr_schedule *want = make(rows[i].name, 4, 2, 4, 1), *s = parse(rows[i].csv, 0, NULL);
        for (int k = 0; k < 4; k++) assert_int_equal(s->worker_of[k], k < 2 ? k : 3 - k);
        assert_same(want, s, false);
        assert_ok(ctx, fr_schedule_check(ctx, s));
        char *csv = fr_schedule_to_csv(want);
        fr_schedule *again = parse(csv, 0, NULL); /* with transfers */
        assert_same(want, again, false);
        fr_text_free(csv);
        fr_schedule_free(again), fr_schedule_free(want), fr_schedule_free(s);
    }
}

static void replicas_round_trips(void **state)
{
    (void)state;
    int n = 0;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        for (int p = 1; p <= 3; p++)
            for (int v = 1; v <= 2; v++)
                for (int kind = 0; takes_chunks(*g, v) && kind < 4; kind++) {
                    static const int of[4][3] = {{2, 2, 2}, {3, 3, 3}, {3, 1, 2}, {1, 2, 3}};
                    int replicas[6];
                    if (kind > 1 && (p == 1 || !(*g)->any_replicas)) continue;
                    for (int k = 0; k < p * v; k++) replicas[k] = of[kind][k % p];
                    fr_schedule_desc d = {.n_stages = p * v,
                                          .chunks = v,
                                          .n_micro = 6 * p,
                                          .n_batches = (*g)->is_flush ? 1 : 2,
                                          .replicas = replicas};
                    fr_schedule *s = make_desc((*g)->name, d);
                    char *text = fr_schedule_to_text(s);
                    assert_non_null(strstr(text, "\nreplicas "));
                    fr_text_free(text);
                    round_trip(s, &d);
                    n++;
                }
    assert_true(n > 40);
    fr_schedule *s = make("1f1b", 2, 1, 2, 1); /* one replica each is the default */
    char *text = fr_schedule_to_text(s);
    assert_null(strstr(text, "replicas"));
    fr_text_free(text);
    fr_schedule_free(s);
}

/* A file of one pipeline is replicated, whatever it contains. */
static void one_pipeline_becomes_several(void **state)
{
    (void)state;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        for (int v = 1; v <= 2; v++)
            for (int r = 1; takes_chunks(*g, v) && r <= 3; r++)
                for (int form = 0; form < 3; form++) {
                    const int replicas[] = {r, r, r, r};
                    fr_schedule_desc d = {.n_stages = 2 * v,
                                          .chunks = v,
                                          .n_micro = 4,
                                          .n_batches = (*g)->is_flush ? 1 : 2,
                                          .must_reduce = form == 2};
                    fr_schedule *one = make_desc((*g)->name, d);
                    char *text = form ? fr_schedule_to_text(one) : fr_schedule_to_csv(one);
                    d.n_micro = 4 * r, d.replicas = replicas, d.must_reduce = form == 2;
                    fr_schedule *want = make_desc((*g)->name, d);
                    fr_schedule *s = parse(text, 4 * r, &d);
                    if (form != 1 || v == 1) assert_same(want, s, form > 0); /* steps given: kept */
                    assert_ok(ctx, fr_schedule_check(ctx, s));
                    fr_schedule_free(s);
                    s = parse(text, 0, &(fr_schedule_desc){.replicas = replicas});
                    assert_int_equal(s->n_workers, want->n_workers); /* without number of stages */
                    fr_schedule_free(s);
                    fr_text_free(text);
                    fr_schedule_free(one);
                    fr_schedule_free(want);
                }
}

/* Reductions are added to a file with steps, before the steps of the worker's other stages. */
static void steps_wait_for_reductions(void **state)
{
    (void)state;
    const char *file = "0F0,1F0,1B0,1STEP0,0B0,0STEP0\n";
    fr_schedule *s = parse(file, 0, &(fr_schedule_desc){.n_stages = 2, .must_reduce = true});
    static const char *const want[] = {"0F0", "1F0",      "1B0",    "1REDUCE0",
                                       "0B0", "0REDUCE0", "1STEP0", "0STEP0"};
    char text[48];
    assert_int_equal(s->lists[0].n, 8);
    for (int i = 0; i < 8; i++)
        assert_string_equal(fr_instr_text(&s->lists[0].at[i], text), want[i]);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    fr_schedule_free(s);
}

static void replicas_that_do_not_fit(void **state)
{
    (void)state;
    static const char one[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    static const char three[] = "0F0,0B0\n0F1,0B1\n1F0,1B0,1F1,1B1\n";
    static const char text[] = "forerun-schedule 1\nreplicas 2 1\nworker 0: 0F0 0B0\n"
                               "worker 1: 0F1 0B1\nworker 2: 1F0 1B0 1F1 1B1\n";
    static const struct {
        const char *file, *says;
        int n_micro, replicas[2];
    } cases[] = {
        {one, "f: 3 micro-batches per mini-batch do not divide among 2 replicas", 3, {2, 2}},
        {one, "f: the file has micro-batches 0 to 1, 2 in all", 8, {2, 2}},
        {one,
         "f: the file is for one pipeline, which can be replicated only as a whole",
         0,
         {2, 1}},
        {one, "f: 0 replicas of stage 1", 0, {1, 0}},
        {one, "are too many", 0, {1 << 20, 1 << 20}},
        {three,
         "f:2: entry 1: stage 0 is on worker 0, but this is worker 1; the stage has 1 replica",
         0,
         {1, 1}},
        {three, "stage 0 has 3 replicas for 2 micro-batches", 0, {3, 1}},
        {text, "f: the file is for 2 replicas of stage 0, not for 3", 0, {3, 1}},
        {"forerun-schedule 1\nmicro 2\nworker 0: 0F0 0F1 0B0 0B1\nworker 1: 1F0 1B0 1F1 1B1\n",
         "the file is for 2 micro-batches per mini-batch, not for 6 shared by 2 replicas",
         6,
         {2, 2}},
        {"forerun-schedule 1\nreplicas 2\nworker 0: 0F0 0B0 1F0 1B0\n",
         "replicas lists 1 stages",
         0,
         {1, 1}},
        {"forerun-schedule 1\nreplicas 2 0\n",
         "f:2: entry 2: expected the number of replicas",
         0,
         {1, 1}},
        {"forerun-schedule 1\nreplicas 1 1\nreplicas 1 1\n", "f:3: duplicate replicas", 0, {1, 1}},
        {"forerun-schedule 1\nreplicas 2 1\nworker 0: 0F0 0F1 0B0 0B1\nworker 1: 0F2 0B2\n"
         "worker 2: 1F0 1B0 1F1 1B1\n",
         "f: ",
         0,
         {1, 1}},
        {"forerun-schedule 1\nreplicas 2 1\nworker 0: 0F1 0B1\nworker 1: 0F0 0B0\n"
         "worker 2: 1F0 1B0 1F1 1B1\n",
         "worker 0, step 0 (0F1): micro-batch 1 of stage 0 belongs to worker 1",
         0,
         {1, 1}},
        {"forerun-schedule 1\nreplicas 2 3\nworker 0: 0F0 0B0 1F0 1B0\nworker 1: 0F1 0B1 1F1 1B1\n",
         "train.micro must be a multiple",
         0,
         {1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_schedule *s;
        const char *file = cases[i].file;
        const fr_schedule_desc d = {.n_stages = 2, .replicas = cases[i].replicas};
        assert_fails(ctx,
                     fr__schedule_parse(ctx, "f", file, strlen(file), cases[i].n_micro, &d, &s),
                     FR_INVALID, cases[i].says);
        assert_null(s);
    }
    fr_schedule *s = parse(text, 0, NULL); /* accepted unchanged */
    assert_int_equal(s->n_workers, 3);
    fr_schedule_free(s);
    s = parse(three, 2, &(fr_schedule_desc){.n_stages = 2, .replicas = (int[]){2, 1}});
    assert_int_equal(s->worker_of[1], 2);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    fr_schedule_free(s);
}

/* A step at another place is not omitted. */
static void csv_keeps_odd_steps(void **state)
{
    (void)state;
    fr_schedule *s = parse("0F0,0F1,0B0,0STEP0,0B1,0STEP1\n", 1, NULL);
    char *csv = fr_schedule_to_csv(s);
    assert_string_equal(csv, "0F0,0F1,0B0,0B1\n");
    fr_text_free(csv);
    fr_schedule_free(s);
    s = parse("0F0,0B0,0F1,0STEP0,0B1,0STEP1\n", 1, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    csv = fr_schedule_to_csv(s);
    assert_string_equal(csv, "0F0,0B0,0F1,0STEP0,0B1,0STEP1\n");
    fr_text_free(csv);
    fr_schedule_free(s);
}

/* --- reading ------------------------------------------------------------------------------- */

/* Output of PyTorch 2.6 for ScheduleInterleavedZeroBubble, two ranks with two stages, and for a
 * V-shaped schedule: rows end with CRLF, idle slots are empty. */
static void reads_pytorch(void **state)
{
    (void)state;
    fr_schedule *s = parse("0F0,0F1,2F0,2F1,,2I0,2W0,2I1,2W1,0I0,0W0,0I1,0W1\r\n"
                           ",1F0,1F1,3F0,3I0,3F1,3I1,3W0,3W1,1I0,1I1,1W0,1W1\r\n",
                           0, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_int_equal(s->n_workers, 2);
    assert_int_equal(s->n_micro, 2);
    assert_true(s->is_split && s->is_flush);
    assert_int_equal(s->worker_of[2], 0);
    fr_schedule_free(s);
    s = parse("0UNSHARD,3UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,"
              "3B1,3SEND_B1,3REDUCE_GRAD,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD,3RESHARD\n"
              "1RECV_F0,1F0,2F0,2SEND_F0,1RECV_F1,1F1,2F1,2SEND_F1,2RECV_B0,2B0,1B0,1SEND_B0,"
              "2RECV_B1,2B1,1B1,1SEND_B1\n",
              0, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_int_equal(s->worker_of[3], 0);
    assert_int_equal(s->worker_of[2], 1);
    fr_schedule_free(s);
}

static void assert_same_lists(const fr_schedule *a, const fr_schedule *b)
{
    char x[48], y[48];
    assert_int_equal(a->n_workers, b->n_workers);
    for (int w = 0; w < a->n_workers; w++) {
        assert_int_equal(a->lists[w].n, b->lists[w].n);
        for (int i = 0; i < a->lists[w].n; i++)
            assert_string_equal(fr_instr_text(&a->lists[w].at[i], x),
                                fr_instr_text(&b->lists[w].at[i], y));
    }
}

/* Output of PyTorch 2.15 with transfers: receives are posted as soon as the other end sends, sends
 * have waits, gradients of sharded weights are reduced, two computations overlap. It must equal the
 * schedule of its computation alone: the same lists, hence the same times and proof. */
static void reads_posted_transfers(void **state)
{
    (void)state;
    static const struct {
        const char *computation, *all;
    } cases[] = {
        {"0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n",
         "0UNSHARD,2UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,"
         "2RECV_B0,2RECV_B1,0RECV_B0,2B0,2WAIT_SEND_F0,2SEND_B0,2B1,2WAIT_SEND_F1,2SEND_B1,"
         "2REDUCE_GRAD,0RECV_B1,0B0,0WAIT_SEND_F0,0B1,0WAIT_SEND_F1,2WAIT_REDUCE_GRAD,0REDUCE_GRAD,"
         "0RESHARD,2WAIT_SEND_B0,2WAIT_SEND_B1,0WAIT_REDUCE_GRAD\n"
         "1RECV_F0,1RECV_F1,1F0,1SEND_F0,3RECV_F0,1F1,1SEND_F1,3F0,3RECV_F1,3B0,3SEND_B0,3F1,"
         "1RECV_B0,3B1,3SEND_B1,1RECV_B1,1B0,1WAIT_SEND_F0,1SEND_B0,1B1,1WAIT_SEND_F1,1SEND_B1,"
         "3WAIT_SEND_B0,3WAIT_SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n"},
        {"0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n",
         "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,(0F2;0B0)OVERLAP_F_B,0SEND_F2,0RECV_B1,0B1,0RECV_B2,"
         "0B2\n"
         "1RECV_F0,1F0,1RECV_F1,1RECV_F2,(1B0;1F1)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1,1F2,1B2,"
         "1SEND_B2\n"},
        {zbv_two_csv, zbv_lowered_csv},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_schedule *alone = parse(cases[i].computation, 0, NULL);
        fr_schedule *all = parse(cases[i].all, 0, NULL);
        assert_ok(ctx, fr_schedule_check(ctx, all));
        assert_same_lists(alone, all);
        fr_schedule_free(alone);
        fr_schedule_free(all);
    }
    /* Messages of a link arrive in the order of sending: the first is received before the second is
     * used. */
    fr_schedule *s = parse("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1RECV_F1,1F1,1F0\n", 0, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_true(place_of(s, FR_DO_RECV_F, 1, 0, 0) < place_of(s, FR_DO_RECV_F, 1, 1, 0));
    assert_true(place_of(s, FR_DO_RECV_F, 1, 1, 0) < place_of(s, FR_DO_F, 1, 1, -1));
    fr_schedule_free(s);
    /* In Forerun's own format a receive waits at its place. */
    s = parse("forerun-schedule 1\nworker 0: 0F0 0SEND_F0 0F1 0SEND_F1\n"
              "worker 1: 1RECV_F0 1RECV_F1 1F0 1F1\n",
              0, NULL);
    assert_true(place_of(s, FR_DO_RECV_F, 1, 1, 0) < place_of(s, FR_DO_F, 1, 0, -1));
    fr_schedule_free(s);
}

static void reads_loosely_written(void **state)
{
    (void)state;
    fr_schedule *s = parse("\xEF\xBB\xBF# two ranks\n\n  0F0 ,\t\"0F1\",,0B0, 0B1   # end\r\n \r\n"
                           "1F0,1B0,1F1,1B1,,,\n#1F7\n",
                           0, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_int_equal(s->n_micro, 2);
    assert_string_equal(s->name, "file");
    fr_schedule_free(s);
    s = parse("forerun-schedule 1 # by hand\n\nmicro 2\nworker 0: 0F0\t0F1  0B0 0B1\n"
              "worker 1:1F0 1B0 1F1 1B1",
              0, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_int_equal(s->n_stages, 2);
    assert_true(s->is_flush);
    fr_schedule_free(s);
    s = parse("0F0,0F1,0B0,0B1,0F2,0B2,0F3,0B3\n", 2, NULL); /* two mini-batches of two */
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_int_equal(s->n_batches, 2);
    assert_false(s->is_flush);
    fr_schedule_free(s);
    s = parse("0F0,0F1\n1F0,1F1\n", 0, NULL);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_true(s->is_forward_only && s->n_backward == 0);
    fr_schedule_free(s);
}

/* The model gives the links between stages. */
static void takes_the_models_links(void **state)
{
    (void)state;
    const fr_link forward[] = {{0, 1}, {1, 2}, {0, 2}}, backward[] = {{2, 1}, {1, 0}, {2, 0}};
    fr_schedule_desc d = {.n_stages = 3,
                          .n_forward = 3,
                          .n_backward = 3,
                          .forward = forward,
                          .backward = backward,
                          .must_reduce = true};
    fr_schedule *s = parse("0F0,0B0\n1F0,1B0\n2F0,2B0\n", 1, &d);
    assert_ok(ctx, fr_schedule_check(ctx, s));
    assert_true(place_of(s, FR_DO_RECV_F, 2, 0, 0) >= 0);
    assert_true(place_of(s, FR_DO_REDUCE, 1, 0, -1) >= 0);
    fr_schedule_free(s);
    const char *file = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0\n"
                       "2RECV_F0,2F0,2B0,2SEND_B0\n";
    s = parse(file, 0, &d); /* its transfers are kept unchanged */
    assert_fails(ctx, fr_schedule_check(ctx, s), FR_INVALID,
                 "worker 0, step 3 (0B0): its gradient from stage 2 (2B0 on worker 2) is never "
                 "sent");
    fr_schedule_free(s);
    d.n_stages = 4;
    assert_fails(ctx, fr__schedule_parse(ctx, "f", file, strlen(file), 0, &d, &s), FR_INVALID,
                 "f: the file has 3 stages, but the model is cut into 4");
}

static void points_at_errors(void **state)
{
    (void)state;
    static const struct {
        const char *file, *says;
        int n_micro;
    } cases[] = {
        {"", "f: the file has no instructions", 0},
        {"# nothing\n\n", "f: the file has no instructions", 0},
        {"0F0,0B0\n,,,\n", "f:2: row 1 has no instruction", 0},
        {"0F0,,0X0", "f:1: entry 3: 0X0: expected an instruction", 0},
        {"0F0,0B", "f:1: entry 2: 0B: expected", 0},
        {"0F0,F0", "f:1: entry 2: F0: expected", 0},
        {"0F0,0B0junk", "f:1: entry 2: 0B0junk", 0},
        {"0F0,0B0>1", "f:1: entry 2: 0B0>1", 0},
        {"0F0,0SEND_F0>", "f:1: entry 2: 0SEND_F0>", 0},
        {"0F-1", "f:1: entry 1: 0F-1", 0},
        {"999999999F0", "f:1: entry 1: 999999999F0: expected", 0},
        {"99999999999999999999999F0", "f:1: entry 1", 0},
        {"0F0,0B999999", "f: 2 instructions are too few for 1 stages with 1000000", 0},
        {"99999F0,99999B0", "f: 2 instructions are too few for 100000 stages", 0},
        {"1F0,1B0", "f: no worker runs stage 0", 0},
        {"0F0,0B0\n\n0F1,0B1\n", "f:3: entry 1: stage 0 is on worker 0, but this is worker 1", 0},
        {"0F0,0B0,0STEP1", "f:1: entry 3: no mini-batch 1; there is 1", 0},
        {"0F0,0B0,0SEND_F0", "f:1: entry 3: peer stage 1", 0},
        {"0F0,0B0,0RECV_F0", "f:1: entry 3: peer stage -1", 0},
        {"(0F0;1B1)OVERLAP", "expected two instructions, as in (0F1;1B0)OVERLAP_F_B", 0},
        {"(0F0;)OVERLAP_F_B,(", "expected two instructions", 0},
        {"((0F0;0F1);0B0)OVERLAP_F_B", "expected two instructions", 0},
        {"0WAIT_SEND_F", "0WAIT_SEND_F: expected an instruction", 0},
        {"0UNSHARDED", "0UNSHARDED: expected an instruction", 0},
        {"0WAIT_RECV_F0", "0WAIT_RECV_F0: expected an instruction", 0},
        {"0F0,0F1,0F2,0B0,0B1,0B2", "micro-batches 0 to 2, 3 in all; expected a multiple of 2", 2},
        {"0F0,0B0,0W0", "worker 0, step 2 (0W0): already done at step 1 (0B0); a backward", 0},
        {"0B0,0F0", "f: worker 0, step 0 (0B0): its forward, 0F0, comes later", 0},
        {"0F0,0B0,0F0", "worker 0, step 3 (0F0): already done at step 0", 0},
        {"forerun-schedule 2\n", "f:1: expected \"forerun-schedule 1\"", 0},
        {"forerun-schedule 1\nstagse 3\n", "f:2: stagse: expected one of name, stages", 0},
        {"forerun-schedule 1\nstages 0\n", "f:2: stages 0: expected a number from 1", 0},
        {"forerun-schedule 1\nstages 1\nstages 1\n", "f:3: duplicate stages", 0},
        {"forerun-schedule 1\nflush maybe\n", "f:2: flush maybe: expected yes or no", 0},
        {"forerun-schedule 1\nforward 0>1 12\n", "f:2: entry 2: expected a link", 0},
        {"forerun-schedule 1\nworker_of 0 x\n", "f:2: entry 2: expected the number", 0},
        {"forerun-schedule 1\nworker 1: 1F0\n", "f:2: expected \"worker 0: ...\"", 0},
        {"forerun-schedule 1\nworker 0: 0F0 0G0\n", "f:2: entry 2: 0G0: expected", 0},
        {"forerun-schedule 1\nworkers 2\nworker 0: 0F0 0B0\n", "workers 2, but there are 1", 0},
        {"forerun-schedule 1\nworker_of 0 0\nworker 0: 0F0 0B0\n", "worker_of lists 2 stages", 0},
        {"forerun-schedule 1\nworker_of 3\nworker 0: 0F0 0B0\n", "stage 0 is on worker 3", 0},
        {"forerun-schedule 1\nstages 9\nworker 0: 0F0 0B0\n", "too few for 9 stages", 0},
        {"forerun-schedule 1\nstages 1\nworker 0: 0F0 0B0 1F0 1B0\n", "no stage 1; there are 1", 0},
        {"forerun-schedule 1\nforward 1>0\nworker 0: 0F0 0B0 1F0 1B0\n", "forward link", 0},
        {"forerun-schedule 1\nmicro 2\nworker 0: 0F0 0F1 0B0 0B1\n", "for 2 micro-batches", 1},
        {"forerun-schedule 1\nmicro 2\nbatches 3\nworker 0: 0F0 0F1 0B0 0B1\n", "2 in all", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_schedule *s;
        const char *file = cases[i].file;
        assert_fails(ctx,
                     fr__schedule_parse(ctx, "f", file, strlen(file), cases[i].n_micro, NULL, &s),
                     FR_INVALID, cases[i].says);
        assert_null(s);
    }
    const fr_schedule *s;
    assert_fails(ctx, fr_schedule_read(ctx, "no/such/file", 0, NULL, &s), FR_INVALID,
                 "no/such/file");
}

/* --- JSON and grid ------------------------------------------------------------------------- */

static void json_form(void **state)
{
    (void)state;
    fr_schedule *s = make("1f1b", 2, 1, 1, 1);
    fr_clock c = timed(s, NULL);
    assert_ok(ctx, fr_schedule_period(ctx, s, NULL, &c.period));
    char *text = fr_schedule_to_json(s, &c);
    assert_string_equal(text, "{\"method\": \"1f1b\", \"stages\": 2, \"micro\": 1, \"batches\": 1, "
                              "\"replicas\": [1, 1], "
                              "\"makespan\": 6, \"period\": 6, \"peak_live\": [1, 1], \"workers\": "
                              "[[\"0F0\", \"0SEND_F0\", \"0RECV_B0\", \"0B0\", \"0STEP0\"], "
                              "[\"1RECV_F0\", \"1F0\", \"1B0\", \"1SEND_B0\", \"1STEP0\"]]}\n");
    fr_text_free(text);
    fr_clock_free(&c);
    fr_schedule_free(s);
}

static char *grid_of(fr_schedule *s, int columns, bool in_colour)
{
    fr_clock c = timed(s, NULL);
    char *text = fr_schedule_to_grid(s, &c, columns, in_colour);
    assert_non_null(text);
    fr_clock_free(&c);
    fr_schedule_free(s);
    return text;
}

static void grid_form(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int stages, chunks, micro, batches, columns;
        const char *grid;
    } cases[] = {
        {"1f1b", 2, 1, 2, 1, 0,
         "1f1b: 2 stages on 2 workers, 2 micro-batches\n"
         "    0              5\n"
         "w0  F0 F1 .  .  B0--- .  B1---|\n"
         "w1  .  F0 B0--- F1 B1---|.  .\n"
         "makespan 9; bubble 33.3 %; live 2 1; slots 2 1; | is an update\n"},
        {"1f1b", 2, 1, 2, 1, 24, /* no gaps */
         "1f1b: 2 stages on 2 workers, 2 micro-batches\n"
         "    0         5\n"
         "w0  F0F1. . B0--. B1-|\n"
         "w1  . F0B0--F1B1-|. .\n"
         "makespan 9; bubble 33.3 %; live 2 1; slots 2 1; | is an update\n"},
        {"zb-h1", 2, 1, 2, 1, 18, /* no gaps, and no room for a mark */
         "zb-h1: 2 stages on 2 workers, 2 micro-batches\n"
         "    0         5\n"
         "w0  F0F1. I0W0I1W1\n"
         "w1  . F0I0F1I1W0W1\n"
         "makespan 7; bubble 14.3 %; live 2 each; slots 2 each\n"},
        {"1f1b", 2, 1, 2, 1, 20, /* bands, of five columns or a multiple; a block across them */
         "1f1b: 2 stages on 2 workers, 2 micro-batches\n"
         "    0\n"
         "w0  F0 F1 .  .  B0\n"
         "w1  .  F0 B0--- F1\n"
         "\n"
         "    5\n"
         "w0  -- .  B1---|\n"
         "w1  B1---|.  .\n"
         "makespan 9; bubble 33.3 %; live 2 1; slots 2 1; | is an update\n"},
        {"1f1b-async", 2, 1, 1, 3, 0,
         "1f1b-async: 2 stages on 2 workers, 1 micro-batch per mini-batch, 3 mini-batches (a, b, "
         "...)\n    0              5              10\nw0  Fa Fb .  .  Ba---|Fc Bb---|.  Bc---|\nw1 "
         " .  Fa Ba---|Fb Bb---|Fc Bc---|.  .\nmakespan 12; bubble 25.0 %; live 2 1; slots 2 1; | "
         "is an update\n"},
        {"interleaved", 2, 2, 2, 1, 0,
         "interleaved: 2 stages on 1 worker, 2 micro-batches\n"
         "    0                   5                   10\n"
         "w0  0F0 1F0 1B0---- 0F1 0B0---- 1F1 1B1----|0B1----|\n"
         "makespan 12; bubble 0.0 %; live 2; slots 2 1; | is an update\n"},
        {"forward", 1, 1, 3, 1, 0,
         "forward: 1 stage on 1 worker, 3 micro-batches\n"
         "    0\n"
         "w0  F0 F1 F2\n"
         "makespan 3; bubble 0.0 %; live 1; slots 2\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = grid_of(
            make(cases[i].name, cases[i].stages, cases[i].chunks, cases[i].micro, cases[i].batches),
            cases[i].columns, false);
        assert_string_equal(text, cases[i].grid);
        fr_text_free(text);
    }
    fr_schedule_desc d = {.n_stages = 2, .n_micro = 2, .replicas = (int[]){2, 1}};
    char *text = grid_of(make_desc("1f1b", d), 0, false);
    assert_string_equal(text, "1f1b: 2 stages on 3 workers, 2 micro-batches\n"
                              "         0              5\n"
                              "w0 s0r0  F0 .  .  .  B0---|.  .  .\n"
                              "w1 s0r1  F1 .  .  .  .  .  .  B1---|\n"
                              "w2 s1    .  F0 B0--- F1 B1---|.  .\n"
                              "makespan 9; bubble 55.6 %; live 1 each; slots 1 each; | is an "
                              "update\n");
    fr_text_free(text);
    text = grid_of(make("1f1b", 2, 1, 2, 1), 0, true);
    assert_non_null(strstr(text, "\033[30;48;5;117mF0\033[0m \033[30;48;5;117mF1\033[0m "));
    assert_non_null(strstr(text, "mB1   \033[0m|\n")); /* ends its colour before the line does */
    fr_text_free(text);
}

/* Too large to show: the end is cut off, with a note. */
static void grid_is_cut(void **state)
{
    (void)state;
    char *text = grid_of(make("1f1b", 60, 1, 40, 1), 100, false);
    assert_non_null(strstr(text, "(31 of 297 columns; "));
    assert_non_null(strstr(text, "\nw59"));
    fr_text_free(text);
}

/* Every row fits, whatever the window. */
static void grid_fits(void **state)
{
    (void)state;
    for (int columns = 20; columns <= 200; columns += 9)
        for (int m = 1; m <= 64; m *= 4) {
            char *text = grid_of(make("zb-h1", 12, 1, m, 1), columns, false);
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
                if (line[0] == 'w') assert_true((int)strlen(line) <= columns);
            fr_text_free(text);
        }
}

/* --- memory -------------------------------------------------------------------------------- */

static fr_status read_and_write(fr_ctx *own, void *user)
{
    fr_schedule *s;
    FR_TRY(fr__schedule_parse(own, "f", user, strlen(user), 0, NULL, &s));
    fr_clock c;
    fr_status status = fr_schedule_clock(own, s, NULL, &c);
    if (status == FR_OK) {
        char *texts[] = {fr_schedule_to_text(s), fr_schedule_to_json(s, &c),
                         fr_schedule_to_grid(s, &c, 80, true), fr_schedule_to_csv(s),
                         fr_schedule_to_svg(s, &c, NULL)};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            if (!texts[i]) status = FR_NO_MEMORY;
            fr_text_free(texts[i]);
        }
        fr_clock_free(&c);
    }
    fr_schedule_free(s);
    return status == FR_OK ? FR_OK : fr__no_memory(own, 1, "a test");
}

static void memory_runs_out(void **state)
{
    (void)state;
    char csv[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    char text[] = "forerun-schedule 1\nworker_of 0 1\nforward 0>1\nbackward 1>0\n"
                  "worker 0: 0F0 0F1 0B0 0B1\nworker 1: 1F0 1B0 1F1 1B1\n";
    assert_true(support_walk_memory(read_and_write, csv) > 10);
    assert_true(support_walk_memory(read_and_write, text) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_round_trips),
        cmocka_unit_test(replicas_round_trips),
        cmocka_unit_test(dumped_by_pytorch),
        cmocka_unit_test(one_pipeline_becomes_several),
        cmocka_unit_test(steps_wait_for_reductions),
        cmocka_unit_test(replicas_that_do_not_fit),
        cmocka_unit_test(csv_keeps_odd_steps),
        cmocka_unit_test(reads_pytorch),
        cmocka_unit_test(reads_posted_transfers),
        cmocka_unit_test(reads_loosely_written),
        cmocka_unit_test(takes_the_models_links),
        cmocka_unit_test(points_at_errors),
        cmocka_unit_test(json_form),
        cmocka_unit_test(grid_form),
        cmocka_unit_test(grid_is_cut),
        cmocka_unit_test(grid_fits),
        cmocka_unit_test(memory_runs_out),
    };
    ctx = fr_ctx_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
