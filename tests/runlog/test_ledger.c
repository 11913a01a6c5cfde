/* test_ledger.c -- the weights that every pass used, against the tables of the papers.
 *
 * All asynchronous methods, N = 1 .. 8 stages, T = 1, 2, 4 micro-batches in an update. Expected
 * values come from formulas, not from the schedule: stage k runs w = N - 1 - k forwards ahead, so
 * the forward of micro-batch m (counted over the run) finds floor((m - w) / T) updates applied, its
 * backward floor(m / T). */
#include "support/lab.h"

static const char net[] = "model: {name: mlp, inputs: 6, depth: 8, width: 8, classes: 3}\n"
                          "data: {name: synthetic, n: 64, n_eval: 0}\n"
                          "train: {batch: 4, optimizer: {name: sgd, lr: 0.01, momentum: 0.9}}\n"
                          "parallel: {backend: ref, threads: 1, pin: false}\n"
                          "run: {trace: 0, prediction_samples: 0}\n";

/* A pass of micro-batch m (number j in mini-batch b) on stage k. */
typedef struct place {
    int n, k, t; /* stages, stage, micro-batches in an update */
    int m, b, j;
    char pass;
} place;
typedef struct use {
    int version, ahead;
} use;

static int most(int a, int b) { return a > b ? a : b; }
static int ceil_div(int a, int b) { return a <= 0 ? 0 : (a + b - 1) / b; }
static int lead(const place *p) { return p->n - 1 - p->k; }
/* Updates between forward and backward of this micro-batch once the pipeline is full. */
static int gap(const place *p) { return ceil_div(lead(p) - p->j, p->t); }
/* Updates from the backward to the end of the round trip. */
static int round_trip(const place *p) { return ceil_div(p->k / 2, p->t); }
static int newest(const place *p) { return p->pass == 'F' ? most(0, p->m - lead(p)) / p->t : p->b; }
static int at_forward(const place *p) { return most(0, p->m - lead(p)) / p->t; }

static use live(const place *p) { return (use){newest(p), 0}; }
static use stash(const place *p) { return (use){at_forward(p), 0}; }
static use double_buffer(const place *p) { return (use){p->n == 1 ? p->b : most(0, p->b - 1), 0}; }
static use spectrain(const place *p)
{
    return (use){newest(p), round_trip(p) + (p->pass == 'F' ? gap(p) : 0)};
}
static use spectrain_v2(const place *p) { return (use){at_forward(p), gap(p)}; }
static use pipeoptim(const place *p) { return (use){newest(p), p->pass == 'F' ? gap(p) : 0}; }
static use pipemare(const place *p)
{
    return (use){newest(p), p->pass == 'B' ? ceil_div(lead(p), p->t) : 0};
}
/* One update ahead in the first mini-batch, then one more in each, as the pipeline fills. */
static use lookahead(const place *p)
{
    int farthest = ceil_div(lead(p), p->t) + 1, ahead = p->b + 1 < farthest ? p->b + 1 : farthest;
    return (use){newest(p), p->pass == 'F' && p->n > 1 ? ahead : 0};
}
/* The first micro-batch of the mini-batch decides for all. The paper's round() takes halves to the
 * even side; with one micro-batch an update it is SpecTrain. */
static use xpipe(const place *p, bool is_exact)
{
    if (p->pass == 'B') return (use){p->b, round_trip(p)};
    int exact = round_trip(p) + ceil_div(lead(p), p->t);
    int paper = (int)rint((p->n + p->t - p->k / 2.0 - 2) / p->t);
    int ahead = is_exact || p->t == 1 ? exact : paper;
    return (use){most(0, p->b * p->t - lead(p)) / p->t, p->n == 1 ? 0 : ahead};
}
static use xpipe_paper(const place *p) { return xpipe(p, false); }
static use xpipe_exact(const place *p) { return xpipe(p, true); }
/* Whole mini-batches ahead. */
static use timeprest(const place *p)
{
    return (use){p->pass == 'F' ? most(0, p->b - lead(p)) : p->b, 0};
}

static const struct row {
    const char *method, *set;
    use (*expect)(const place *p);
} rows[] = {{"vanilla-async", NULL, live},
            {"paci", NULL, live},
            {"pipedream", NULL, stash},
            {"nesterov-async", NULL, stash},
            {"pipedream-2bw", NULL, double_buffer},
            {"spectrain", NULL, spectrain},
            {"spectrain-v2", NULL, spectrain_v2},
            {"xpipe", NULL, xpipe_paper},
            {"xpipe", "parallel.xpipe.exact=true", xpipe_exact},
            {"pipeoptim", NULL, pipeoptim},
            {"decay-aware", NULL, pipeoptim},
            {"pipemare", NULL, pipemare},
            {"forerun", NULL, lookahead},
            {"timeprest", NULL, timeprest}};

typedef struct auditor {
    const struct row *row;
    int n, t;
    int64_t n_rows, n_batches;
    bool seen[8][64][2]; /* stage, micro-batch of the run, pass */
    char wrong[256];
} auditor;

static bool audit(void *user, const fr_batch_report *r)
{
    auditor *a = user;
    a->n_batches++;
    for (size_t i = 0; i < r->n_ledger && !a->wrong[0]; i++) {
        const fr_ledger_row *row = &r->ledger[i];
        place p = {a->n,
                   row->stage,
                   a->t,
                   (int)row->micro,
                   (int)row->micro / a->t,
                   (int)row->micro % a->t,
                   row->pass};
        use want = a->row->expect(&p);
        a->n_rows++;
        bool is_new = row->stage < 8 && row->micro < 64;
        if (is_new) {
            is_new = !a->seen[row->stage][row->micro][row->pass == 'B'];
            a->seen[row->stage][row->micro][row->pass == 'B'] = true;
        }
        int64_t live_at = row->pass == 'B' ? p.b : -1;
        if (is_new && row->version == want.version && row->ahead == want.ahead &&
            row->live == live_at && row->replica == 0 && p.b == (int)r->step)
            continue;
        snprintf(a->wrong, sizeof a->wrong,
                 "%s, N = %d, T = %d: stage %d, micro-batch %d, %c: version %d + %d, live %d; "
                 "expected %d + %d, live %d%s",
                 a->row->method, a->n, a->t, row->stage, p.m, row->pass, (int)row->version,
                 row->ahead, (int)row->live, want.version, want.ahead, (int)live_at,
                 is_new ? "" : "; seen before");
    }
    return !a->wrong[0];
}

static void check(fixture *f, const struct row *row, int n, int t)
{
    char sets[5][64];
    lab l;
    auditor a = {.row = row, .n = n, .t = t};
    int n_steps = 2 * ((n + t - 1) / t) + 4;
    if (strcmp(row->method, "timeprest") == 0) n_steps = 2 * n + 2;
    if (n_steps * t > 64) n_steps = 64 / t;
    snprintf(sets[0], sizeof *sets, "parallel.method=%s", row->method);
    snprintf(sets[1], sizeof *sets, "parallel.stages=%d", n);
    snprintf(sets[2], sizeof *sets, "train.micro=%d", t);
    snprintf(sets[3], sizeof *sets, "train.steps=%d", n_steps);
    snprintf(sets[4], sizeof *sets, "%s", row->set ? row->set : "");
    const char *list[] = {sets[0], sets[1], sets[2], sets[3], sets[4]};
    fr_status status = lab_open(f, row->set ? 5 : 4, list, true, &l);
    if (row->expect == double_buffer && n > 1 && t < n) {
        assert_failed(f, status, FR_INVALID, "double-buffer", "train.micro", "--set");
        return;
    }
    assert_done(f, status);
    assert_done(f, lab_train(&l, audit, &a));
    if (a.wrong[0]) fail_msg("%s", a.wrong);
    assert_int_equal(a.n_batches, n_steps);
    assert_int_equal(a.n_rows, 2 * n * t * n_steps);
    lab_close(&l);
}

static void test_tables(void **state)
{
    fixture *f = *state;
    write_text(f->config, net);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int n = 1; n <= 8; n++)
            for (int t = 1; t <= 4; t *= 2) check(f, &rows[i], n, t);
}

/* The printed numbers: four stages, one micro-batch an update, in the steady state. */
static void test_printed_rows(void **state)
{
    (void)state;
    static const struct {
        use (*expect)(const place *p);
        int t, forward[4], backward[4]; /* ahead */
    } printed[] = {
        {spectrain, 1, {3, 2, 2, 1}, {0, 0, 1, 1}},   {spectrain_v2, 1, {3, 2, 1, 0}, {3, 2, 1, 0}},
        {pipeoptim, 1, {3, 2, 1, 0}, {0, 0, 0, 0}},   {xpipe_paper, 1, {3, 2, 2, 1}, {0, 0, 1, 1}},
        {xpipe_exact, 1, {3, 2, 2, 1}, {0, 0, 1, 1}}, {xpipe_paper, 2, {2, 2, 2, 1}, {0, 0, 1, 1}}};
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
        for (int k = 0; k < 4; k++) {
            place p = {4, k, printed[i].t, 8 * printed[i].t, 8, 0, 'F'};
            assert_int_equal(printed[i].expect(&p).ahead, printed[i].forward[k]);
            p.pass = 'B';
            assert_int_equal(printed[i].expect(&p).ahead, printed[i].backward[k]);
        }
    for (int k = 0; k < 4; k++) { /* 3, 2, 1, 0 updates between forward and backward */
        place p = {4, k, 1, 8, 8, 0, 'F'};
        assert_int_equal(8 - live(&p).version, 3 - k);
        assert_int_equal(8 - stash(&p).version, 3 - k);
        p.pass = 'B';
        assert_int_equal(live(&p).version, 8);
        assert_int_equal(8 - stash(&p).version, 3 - k);
        p.t = 4, p.m = 32;
        assert_int_equal(8 - double_buffer(&p).version, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printed_rows),
        cmocka_unit_test_setup_teardown(test_tables, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
