/* test_async.c -- schedules without a flush under every weight policy: they learn, they do not
 * depend on timing, one stage equals the plain run, calls may be short and many, and the ledger has
 * the versions of the papers. */
#include "engine/rig.h"

static const char *const policies[] = {"live",         "stash",    "double-buffer", "spectrain",
                                       "spectrain-v2", "xpipe",    "pipeoptim",     "decay-aware",
                                       "pipemare",     "lookahead"};
enum { N_POLICIES = sizeof policies / sizeof *policies };
static const int nets_used[] = {MLP, CNN, MASKED, BRANCHES};
enum { N_USED = sizeof nets_used / sizeof *nets_used };

static int least(int a, int b) { return a < b ? a : b; }

static bool can(const rig_options *o)
{
    bool is_double = strcmp(o->policy, "double-buffer") == 0;
    return !is_double || o->n_stages == 1 || o->n_micro >= o->n_stages;
}

static void open_rig(rig *r, int which, const rig_options *o)
{
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

static double eval_loss(rig *r)
{
    fr_tally t;
    assert_ok(r->b.ctx, rig_eval(r, N_DATA, &t, NULL));
    return t.loss / (double)t.targets;
}

static void learns(int which, const rig_options *o)
{
    rig r;
    open_rig(&r, which, o);
    double before = eval_loss(&r);
    rig_steps(&r, 0, 20);
    rig_steps(&r, 20, 20);
    double after = eval_loss(&r);
    if (!(after < 0.97 * before)) fail_msg("%sloss %g to %g", rig_about(&r, o), before, after);
    rig_close(&r);
}

/* Each policy on each net with every fourth number of stages, so that it has each on some net. */
static void every_policy_learns(void **unused)
{
    (void)unused;
    for (int u = 0; u < N_USED; u++)
        for (int p = 0; p < N_POLICIES; p++)
            for (int n_micro = 1; n_micro <= 4; n_micro *= 4) {
                rig_options o = {.generator = "1f1b-async",
                                 .policy = policies[p],
                                 .n_micro = n_micro,
                                 .n_batches = 20,
                                 .lr = 0.004};
                int most = least(8, most_stages(nets_used[u]));
                for (o.n_stages = 1 + (p + u) % 4; o.n_stages <= most; o.n_stages += 4)
                    if (can(&o)) learns(nets_used[u], &o);
            }
}

static void newest_weights_learn_by_nf1b(void **unused)
{
    (void)unused;
    for (int u = 0; u < N_USED; u++)
        for (int n = 1; n <= 4; n++)
            learns(nets_used[u], &(rig_options){.generator = "nf1b",
                                                .n_micro = 2,
                                                .n_batches = 20,
                                                .n_stages = n,
                                                .lr = 0.004});
}

/* A single stage cannot run ahead. */
static void one_stage_is_single(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which += IS_SANITIZED ? 3 : 1)
        for (int i = 0; i < 3; i++) {
            char single[65], other[65];
            bool adam = (which + i) % 2;
            rig_options o = {.n_micro = 1 << i,
                             .n_stages = 1,
                             .optimizer = adam ? "adam" : NULL,
                             .want_norm = adam && i == 1};
            rig_clean_sha(which, &o, 7, single);
            o.generator = "1f1b-async", o.n_batches = 4;
            for (int p = 0; p < N_POLICIES; p++) {
                o.policy = policies[p];
                rig_clean_sha(which, &o, 7, other);
                assert_string_equal(single, other);
            }
            o.generator = "nf1b";
            rig_clean_sha(which, &o, 7, other);
            assert_string_equal(single, other);
        }
}

/* Same weights whatever the workers' speed. */
static void timing_does_not_matter(void **unused)
{
    (void)unused;
    static const char *const faults[] = {"jitter:ms=0.5,seed=1", "slow:worker=1,step=2,ms=0.1"};
    for (int u = 0; u < N_USED; u++)
        for (int p = 0; p < N_POLICIES; p++) {
            rig_options o = {.generator = "1f1b-async",
                             .policy = policies[p],
                             .optimizer = p % 2 ? "adam" : NULL,
                             .n_micro = 4,
                             .n_batches = 6,
                             .n_stages = 2 + (u + p) % 3,
                             .lr = 0.01};
            char calm[65], hurried[65];
            rig_clean_sha(nets_used[u], &o, 6, calm);
            rig r;
            o.fault = faults[(u + p) % 2];
            open_rig(&r, nets_used[u], &o);
            rig_steps(&r, 0, 6);
            rig_sha(&r, hurried);
            if (strcmp(calm, hurried) != 0) fail_msg("%s: other weights", rig_about(&r, &o));
            rig_close(&r);
        }
}

/* The pipeline drains between segments and between calls; they differ in nothing else. A call may
 * be shorter than the schedule's segment, or need it several times. */
static void segments(void **unused)
{
    (void)unused;
    for (int p = 0; p < N_POLICIES; p++) {
        rig_options o = {.generator = "1f1b-async",
                         .policy = policies[p],
                         .n_micro = 3 + (p % 2),
                         .n_batches = 4,
                         .n_stages = 3,
                         .lr = 0.01};
        o.n_micro = 4;
        char by_call[65], by_segment[65], whole[65];
        rig r;
        open_rig(&r, CNN, &o);
        rig_steps(&r, 0, 10); /* 4, 4, 2 */
        rig_sha(&r, by_segment);
        rig_close(&r);

        o.n_batches = 32;
        open_rig(&r, CNN, &o);
        rig_steps(&r, 0, 4);
        rig_steps(&r, 4, 4);
        rig_steps(&r, 8, 2);
        rig_sha(&r, by_call);
        rig_close(&r);
        assert_string_equal(by_call, by_segment);

        rig_clean_sha(CNN, &o, 10, whole);
        bool has_delay = strcmp(policies[p], "double-buffer") != 0; /* b - 1 across a drain too */
        assert_int_equal(strcmp(whole, by_call) != 0, has_delay);
    }
}

/* --- the ledger: N = 4, as the table of methods has it -------------------------------------- */

typedef struct expected {
    const char *policy;
    int n_micro;
    bool exact;
    int gap[4]; /* versions between forward and backward, if no prediction is expected */
    int ahead_f[4], ahead_b[4];
    int stale[4]; /* updates between the forward's version and its own update; -1: see gap */
} expected;

static const expected table[] = {
    {"live", 1, false, {3, 2, 1, 0}, {0}, {0}, {3, 2, 1, 0}},
    {"stash", 1, false, {0}, {0}, {0}, {3, 2, 1, 0}},
    {"double-buffer", 4, false, {0}, {0}, {0}, {1, 1, 1, 1}},
    {"spectrain", 1, false, {3, 2, 1, 0}, {3, 2, 2, 1}, {0, 0, 1, 1}, {3, 2, 1, 0}},
    {"spectrain-v2", 1, false, {0}, {3, 2, 1, 0}, {3, 2, 1, 0}, {3, 2, 1, 0}},
    {"xpipe", 2, false, {2, 1, 1, 0}, {2, 2, 2, 1}, {0, 0, 1, 1}, {2, 1, 1, 0}},
    {"xpipe", 1, true, {3, 2, 1, 0}, {3, 2, 2, 1}, {0, 0, 1, 1}, {3, 2, 1, 0}},
    {"pipeoptim", 1, false, {3, 2, 1, 0}, {3, 2, 1, 0}, {0}, {3, 2, 1, 0}},
    {"decay-aware", 1, false, {3, 2, 1, 0}, {3, 2, 1, 0}, {0}, {3, 2, 1, 0}},
    {"lookahead", 1, false, {3, 2, 1, 0}, {4, 3, 2, 1}, {0}, {3, 2, 1, 0}},
    {"lookahead", 2, false, {2, 1, 1, 0}, {3, 2, 2, 1}, {0}, {2, 1, 1, 0}},
};

/* Rows of one mini-batch in the steady state; first micro-batches only, which decide for xpipe.
 * lookahead sees as far on every stage as on the first where batch norm follows every layer. */
static bool audit(rig *r, const fr_batch_report *report)
{
    const expected *e = r->user;
    bool is_far = strcmp(e->policy, "lookahead") == 0 && fr_graph_is_batch_normed(r->b.graph);
    assert_int_equal(report->n_ledger, 4 * 2 * e->n_micro);
    int64_t forward[4] = {-1, -1, -1, -1};
    for (size_t i = 0; i < report->n_ledger; i++) {
        const fr_ledger_row *row = &report->ledger[i];
        int k = row->stage;
        assert_int_equal(row->micro / e->n_micro, report->step);
        assert_true(row->version >= 0 && row->version <= report->step);
        assert_int_equal(row->live, row->pass == 'B' ? report->step : -1);
        if (report->step < 8 || row->micro % e->n_micro != 0) continue;
        int ahead_f = e->ahead_f[is_far ? 0 : k];
        assert_int_equal(row->ahead, row->pass == 'F' ? ahead_f : e->ahead_b[k]);
        if (row->pass == 'F') {
            assert_int_equal(report->step - row->version, e->stale[k]);
            forward[k] = row->version;
        } else
            assert_int_equal(row->version - forward[k], e->gap[k]);
    }
    return true;
}

static void ledger(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int u = 0; u < N_USED; u++) {
            rig_options o = {.generator = "1f1b-async",
                             .policy = table[i].policy,
                             .n_micro = table[i].n_micro,
                             .exact = table[i].exact,
                             .n_batches = 12,
                             .n_stages = 4,
                             .want_ledger = true,
                             .lr = 0.001};
            rig r;
            open_rig(&r, nets_used[u], &o);
            r.on_report = audit;
            r.user = (void *)(uintptr_t)&table[i];
            rig_steps(&r, 0, 12);
            rig_close(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_learns),
        cmocka_unit_test(newest_weights_learn_by_nf1b),
        cmocka_unit_test(one_stage_is_single),
        cmocka_unit_test(timing_does_not_matter),
        cmocka_unit_test(segments),
        cmocka_unit_test(ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
