/* test_precision.c -- runs whose passes read bf16 while the newest weights are floats: all that a
 * checkpoint holds goes over to another engine, of the same precision without a trace, and of the
 * other one; evaluation reads the weights as they are now; messages and activations take half the
 * bytes, weights 4 and 2 for each block that passes read. */
#include "engine/rig.h"

#include <forerun/state.h>

enum { HALF = 7, STEPS = 2 * HALF };

static void choose(bool bf16)
{
    assert_int_equal(setenv("FR_PRECISION", bf16 ? "bf16" : "", 1), 0);
}

static void open_rig(rig *r, int which, const rig_options *o, bool bf16)
{
    choose(bf16);
    if (rig_open(r, which, o) != FR_OK) fail_msg("%s", rig_about(r, o));
}

/* All that a checkpoint holds. */
static void hand_over(rig *from, rig *to)
{
    static float plain[MAX_PARAM];
    fr_snapshot *s;
    fr_item item;
    assert_ok(from->b.ctx, fr_engine_snapshot(from->engine, &s));
    for (;;) {
        fr_status status = FR_OK;
        assert_ok(from->b.ctx, fr_snapshot_next(s, &item, plain));
        if (item.param < 0) return;
        switch (item.kind) {
        case FR_ITEM_PARAM: status = fr_engine_set_param(to->engine, item.param, plain); break;
        case FR_ITEM_STATE:
            if (to->desc.schedule)
                status = fr_engine_set_state(to->engine, item.which, item.param, plain);
            break;
        case FR_ITEM_MEMORY:
            if (to->desc.schedule) status = fr_engine_set_memory(to->engine, item.param, plain);
            break;
        }
        assert_ok(to->b.ctx, status);
    }
}

/* A run that is continued by itself, by an engine of the same precision, and by one of the other.
 */
static void resume(int which, const rig_options *o, bool bf16)
{
    rig run, same, other;
    char whole[65], resumed[65];
    open_rig(&run, which, o, bf16);
    rig_steps(&run, 0, HALF);
    open_rig(&other, which, o, !bf16);
    open_rig(&same, which, o, bf16);
    hand_over(&run, &same), hand_over(&run, &other);
    rig_steps(&run, HALF, HALF), rig_steps(&same, HALF, HALF);
    double loss = rig_steps(&other, HALF, HALF);
    rig_sha(&run, whole), rig_sha(&same, resumed);
    if (strcmp(whole, resumed) != 0) fail_msg("%s other weights", rig_about(&run, o));
    double off = rig_distance(&run, &other);
    /* A sign does not change with the last bits of a gradient. */
    bool may_be_same = o->optimizer && strcmp(o->optimizer, "lion") == 0;
    if (!((off > 0 || may_be_same) && off < 0.03 && isfinite(loss)))
        fail_msg("%s %g away in the other precision, loss %g", rig_about(&run, o), off, loss);
    rig_close(&run), rig_close(&same), rig_close(&other);
}

/* Segments end with HALF, so the run drains there. */
static void every_policy_resumes(void **unused)
{
    (void)unused;
    static const char *const optimizers[] = {NULL, "adam", "muon", "nadam", "lion"};
    static const int used[] = {MLP, BRANCHES, TIED};
    int nth = 0;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int bf16 = 0; bf16 < 2; bf16++, nth++) {
            rig_options o = {.generator = "1f1b-async",
                             .policy = (*p)->name,
                             .optimizer = optimizers[nth % 5],
                             .n_stages = 3,
                             .n_micro = 4,
                             .n_batches = HALF,
                             .lr = 0.002,
                             .clip_norm = nth % 3 ? 0 : 0.5};
            resume(used[nth % 3], &o, bf16);
        }
}

static void flush_schedules_resume(void **unused)
{
    (void)unused;
    static const char *const generators[] = {"sequential", "gpipe", "1f1b", "zb-h1"};
    for (int g = 0; g < 4; g++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            resume(g % 2 ? CNN : TIED,
                   &(rig_options){.generator = generators[g],
                                  .optimizer = g < 2 ? "adamw" : NULL,
                                  .n_stages = g ? 3 : 1,
                                  .n_micro = 2,
                                  .lr = 0.002},
                   bf16);
}

/* An engine that only evaluates follows weights that are written between two evaluations. */
static void evaluations(void **unused)
{
    (void)unused;
    for (int which = 0; which < N_NETS; which++) {
        rig run, eval;
        fr_tally first, mine, its;
        rig_options o = {.generator = "1f1b", .n_stages = 2, .n_micro = 2};
        open_rig(&run, which, &o, true);
        o.evaluates_only = true;
        open_rig(&eval, which, &o, true);
        assert_ok(eval.b.ctx, rig_eval(&eval, N_DATA, &first, NULL));
        rig_steps(&run, 0, HALF);
        hand_over(&run, &eval);
        assert_ok(run.b.ctx, rig_eval(&run, N_DATA, &its, NULL));
        assert_ok(eval.b.ctx, rig_eval(&eval, N_DATA, &mine, NULL));
        assert_true(mine.loss == its.loss && mine.loss != first.loss);
        rig_close(&run), rig_close(&eval);
    }
}

/* What is read as logits has the precision of the run. */
static void logits_are_floats(void **unused)
{
    (void)unused;
    static float logits[2][N_DATA * BATCH * TIME * 7];
    for (int which = 0; which < N_NETS; which++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            rig r;
            fr_tally tally;
            size_t n = (size_t)(N_DATA * BATCH * nets[which].n_target * nets[which].n_classes);
            open_rig(&r, which, &(rig_options){.n_micro = 2, .want_logits = true}, bf16);
            assert_ok(r.b.ctx, rig_eval(&r, N_DATA, &tally, logits[bf16]));
            rig_close(&r);
            for (size_t i = 0; i < n && bf16; i++) {
                double x = (double)logits[1][i];
                assert_true(x == stored(x));
                assert_true(fabs(x - (double)logits[0][i]) < 0.03);
            }
        }
}

/* Blocks of four stages beside the master. The newest weights are one only where passes read them:
 * spectrain and xpipe predict for both passes from the third stage on. */
static const struct blocks {
    const char *policy;
    int n_micro, n[4];
} table[] = {{"live", 1, {1, 1, 1, 1}},          {"stash", 1, {4, 3, 2, 1}},
             {"double-buffer", 4, {2, 2, 2, 2}}, {"spectrain", 1, {2, 2, 1, 1}},
             {"spectrain-v2", 1, {4, 3, 2, 1}},  {"xpipe", 1, {2, 2, 2, 1}},
             {"pipeoptim", 1, {2, 2, 2, 1}},     {"decay-aware", 1, {2, 2, 2, 1}},
             {"pipemare", 1, {2, 2, 2, 1}},      {"lookahead", 1, {2, 2, 2, 2}}};

/* Of the same run in both precisions. */
static void bytes_of(const struct blocks *b)
{
    rig r[2];
    rig_options o = {.generator = "1f1b-async",
                     .policy = b->policy,
                     .n_stages = 4,
                     .n_micro = b->n_micro,
                     .n_batches = STEPS,
                     .lr = 0.001};
    for (size_t i = 0; i < 2; i++) {
        open_rig(&r[i], DEEP, &o, i);
        rig_steps(&r[i], 0, STEPS);
        const fr_traffic t = fr_engine_traffic(r[i].engine);
        const size_t message = fr__align_up((size_t)r[i].desc.micro_batch * 6 * (i ? 2 : 4));
        assert_int_equal(t.forward, (size_t)(STEPS * b->n_micro * 3) * message);
        assert_int_equal(t.backward, t.forward);
    }
    for (int k = 0; k < 4; k++) {
        const fr_memory_use *f32 = fr_engine_predicted(r[0].engine, k),
                            *bf16 = fr_engine_predicted(r[1].engine, k);
        const bool has_drift = strcmp(b->policy, "pipemare") == 0;
        assert_int_equal(bf16->weight_copies, b->n[k]);
        assert_int_equal(bf16->weights,
                         bf16->optimizer / (has_drift ? 8 : 4) * (4 + 2 * (size_t)b->n[k]));
        if (b->n_micro == 1) assert_true(bf16->slots < f32->slots && bf16->io <= f32->io);
        assert_int_equal(bf16->grads, f32->grads);
        assert_int_equal(bf16->total, fr_engine_peak_bytes(r[1].engine, k));
    }
    rig_close(&r[0]), rig_close(&r[1]);
}

static void bytes(void **unused)
{
    (void)unused;
    int n_policies = 0;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++) n_policies++;
    assert_int_equal(n_policies, sizeof table / sizeof *table);
    for (int i = 0; i < n_policies; i++) bytes_of(&table[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_resumes),
        cmocka_unit_test(flush_schedules_resume),
        cmocka_unit_test(evaluations),
        cmocka_unit_test(logits_are_floats),
        cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
