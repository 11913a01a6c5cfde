/* test_same.c -- flush schedules give the bits of one worker: weights, running statistics,
 * optimizer state, losses, gradient norms, evaluation; for any cut of the graph, any placement of
 * stages and any timing. */
#include "engine/rig.h"

enum { STEPS = 3 };

static const char *const generators[] = {"sequential",  "gpipe", "1f1b", "zb-h1",
                                         "interleaved", "zb-h2", "zbv",  "dualpipev"};
enum { N_GENERATORS = sizeof generators / sizeof *generators, INTERLEAVED = 4, ZBV = 6, DUALPIPEV };

/* All results of a run: STEPS steps, an evaluation, STEPS more steps. */
typedef struct outcome {
    char sha[65];
    fr_tally tally[2 * STEPS], eval;
    double norm[2 * STEPS];
} outcome;

static void run(int which, const rig_options *o, outcome *out)
{
    rig p;
    memset(out, 0, sizeof *out);
    if (rig_open(&p, which, o) != FR_OK) fail_msg("%s", rig_about(&p, o));
    rig_steps(&p, 0, STEPS);
    assert_ok(p.b.ctx, rig_eval(&p, N_DATA, &out->eval, NULL));
    rig_steps(&p, STEPS, STEPS);
    assert_int_equal(p.n_reports, 2 * STEPS);
    memcpy(out->tally, p.tally, sizeof out->tally);
    for (int i = 0; i < 2 * STEPS; i++) out->norm[i] = isnan(p.norm[i]) ? -1 : p.norm[i];
    rig_sha(&p, out->sha);
    rig_close(&p);
}

static void assert_same(int which, const rig_options *o, const outcome *one, const outcome *other)
{
    const char *what = strcmp(one->sha, other->sha) != 0                          ? "weights"
                       : memcmp(one->tally, other->tally, sizeof one->tally) != 0 ? "losses"
                       : memcmp(one->norm, other->norm, sizeof one->norm) != 0    ? "norms"
                       : memcmp(&one->eval, &other->eval, sizeof one->eval) != 0  ? "evaluations"
                                                                                  : NULL;
    if (what)
        fail_msg("%s: %s of %s with %d stages, %d micro-batches differ from one worker's",
                 nets[which].name, what, o->file ? o->file : o->generator, o->n_stages, o->n_micro);
}

/* Run `o` with every generator that supports it, and compare with `one`. */
static void compare_generators(int which, rig_options o, const outcome *one)
{
    outcome other;
    for (int g = 0; g < N_GENERATORS; g++) {
        o.generator = generators[g];
        bool is_in_twos = g == INTERLEAVED || g >= ZBV;
        o.chunks = is_in_twos ? 2 : 0;
        if (is_in_twos && o.n_stages % 2) continue;
        if (g == INTERLEAVED && o.n_micro % (o.n_stages / 2)) continue;
        if (g == DUALPIPEV && o.n_micro < o.n_stages) continue;
        run(which, &o, &other);
        assert_same(which, &o, one, &other);
    }
}

/* Every number of stages with every number of micro-batches, each pair on some of the nets. */
static void balanced_cuts(void **unused)
{
    (void)unused;
    enum { STEP = IS_SANITIZED ? 5 : 4 };
    for (int which = 0; which < N_NETS; which++) {
        int most = most_stages(which);
        for (int i = 0; 1 << i <= BATCH; i++) {
            rig_options o = {.n_micro = 1 << i};
            outcome one;
            run(which, &o, &one);
            for (o.n_stages = 1 + (which + i) % STEP; o.n_stages <= most; o.n_stages += STEP)
                compare_generators(which, o, &one);
        }
    }
}

/* Cut before any one or two nodes, every second time with norms; the graph refuses cuts with empty
 * stages. */
static void every_cut(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++) {
        bench b;
        outcome one[2], other;
        rig_options o = {.n_micro = 2};
        fr_stage stages[3];
        int n_cut = 0;
        for (int norm = 0; norm < 2; norm++) {
            o.want_norm = norm;
            run(which, &o, &one[norm]);
        }
        bench_init(&b, which);
        int n = fr_graph_n_nodes(b.graph), cuts[2];
        for (cuts[0] = 1; cuts[0] < n; cuts[0]++)
            for (cuts[1] = cuts[0] + 1; cuts[1] <= n; cuts[1] += IS_SANITIZED ? 3 : 1) {
                o.n_stages = cuts[1] == n ? 2 : 3;
                fr_ctx_clear(b.ctx);
                if (fr_graph_cut(b.graph, o.n_stages - 1, cuts, stages) != FR_OK) continue;
                o.cuts = cuts;
                o.want_norm = n_cut % 2;
                o.generator = generators[1 + n_cut++ % 3];
                run(which, &o, &other);
                assert_same(which, &o, &one[o.want_norm], &other);
            }
        assert_true(n_cut > (IS_SANITIZED ? 1 : 5));
        bench_fini(&b);
    }
}

/* Whatever needs the gradient of the whole model, and other optimizers. */
static void norms_clipping_optimizers(void **unused)
{
    (void)unused;
    static const rig_options variants[] = {{.want_norm = true},
                                           {.clip_norm = 0.1},
                                           {.clip_norm = 0.1, .optimizer = "adam"},
                                           {.keep_grads = true, .optimizer = "adamw"},
                                           {.optimizer = "nadam", .weight_decay = 0.01},
                                           {.optimizer = "muon", .lr = 0.01},
                                           {.optimizer = "lion", .lr = 0.01},
                                           {.clip_norm = 0.1, .optimizer = "muon"}};
    for (int which = 0; which < N_NETS; which++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            rig_options o = variants[v];
            int most = most_stages(which);
            outcome one;
            o.n_micro = 4;
            run(which, &o, &one);
            if (o.want_norm || o.clip_norm > 0) assert_true(one.norm[2 * STEPS - 1] > 0.1);
            for (o.n_stages = 2 + (which + (int)v) % 3; o.n_stages <= most;
                 o.n_stages += 4 * STRIDE)
                compare_generators(which, o, &one);
        }
}

/* Schedules that no generator makes: two stages of three on one worker, in an order of its own. */
static void by_hand(void **state)
{
    static const char *const csv[] = {
        "0F0,0F1,2F0,2B0,0B0,2F1,2B1,0B1\n1F0,1F1,1B0,1B1\n",
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,1B0,1B1\n",
        "1F0,1F1,1B0,1B1\n0F0,0F1,2F0,2B0,2F1,0B0,2B1,0B1\n",
    };
    const char *path = support_path(state, "hand.csv");
    for (int which = 0; which < N_NETS; which++) {
        outcome one, other;
        rig_options o = {.n_micro = 2, .clip_norm = 0.3};
        run(which, &o, &one);
        o.n_stages = 3;
        for (size_t i = 0; i < sizeof csv / sizeof *csv; i++) {
            support_write(path, csv[i], strlen(csv[i]));
            o.file = path;
            run(which, &o, &other);
            assert_same(which, &o, &one, &other);
        }
        o.file = NULL;
        o.generator = "sequential";
        o.worker_of = (const int[]){1, 0, 1};
        run(which, &o, &other);
        assert_same(which, &o, &one, &other);
    }
}

static void random_sleeps(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = {.n_micro = 4, .clip_norm = which % 2 ? 0.2 : 0};
        outcome one;
        run(which, &o, &one);
        o.fault = "jitter:ms=0.4,seed=3";
        o.n_stages = 4;
        compare_generators(which, o, &one);
    }
}

/* A worker with several kernel threads has the bits of one. */
static void kernel_threads(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++) {
        rig_options o = {.n_micro = 2, .n_threads = 2, .clip_norm = 0.2};
        outcome one, other;
        run(which, &o, &one);
        o.n_stages = 3, o.generator = "1f1b";
        run(which, &o, &other);
        assert_same(which, &o, &one, &other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balanced_cuts),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(norms_clipping_optimizers),
        cmocka_unit_test_setup_teardown(by_hand, support_dir_make, support_dir_remove),
        cmocka_unit_test(random_sleeps),
        cmocka_unit_test(kernel_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
