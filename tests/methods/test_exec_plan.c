/* test_exec_plan.c -- the execution plan: blocks of weights against the formulas of the methods'
 * papers, fused updates and sums by table, refusals, cores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "methods/plans.h"

enum { MOST = 8 };

static const fr_schedule *make_with(const char *name, int n, int n_micro, int n_batches,
                                    const int *replicas, bool must_reduce)
{
    const fr_schedule_desc d = {.n_stages = n,
                                .n_micro = n_micro,
                                .n_batches = n_batches,
                                .replicas = replicas,
                                .must_reduce = must_reduce};
    return make_of(name, &d);
}

static fr_exec_plan *plan_of(fr_exec_desc d)
{
    fr_exec_plan *p;
    fr_exec_refusal why;
    if (fr_exec_plan_create(ctx, &d, &p, &why) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    assert_int_equal(why, FR_REFUSED_NOT);
    return p;
}

/* --- blocks of weights ------------------------------------------------------------------------ */

static int ceil_div(int a, int b) { return a > 0 ? (a + b - 1) / b : 0; }

/* Blocks in 1F1B without flush: w micro-batches ahead, T in an update, stage k of n. */
static int one(int n, int k, int w, int t, bool exact)
{
    (void)n, (void)k, (void)w, (void)t, (void)exact;
    return 1;
}
static int stash(int n, int k, int w, int t, bool exact)
{
    (void)n, (void)k, (void)exact;
    return ceil_div(w, t) + 1;
}
static int two_versions(int n, int k, int w, int t, bool exact)
{
    (void)k, (void)w, (void)t, (void)exact;
    return n > 1 ? 2 : 1;
}
static int spectrain(int n, int k, int w, int t, bool exact)
{
    (void)n, (void)exact;
    return (t - 1 + k / 2) / t + ceil_div(w, t) > 0 ? 2 : 1;
}
static int by_gap(int n, int k, int w, int t, bool exact)
{
    (void)n, (void)k, (void)exact;
    return w > 0 && t > 0 ? 2 : 1;
}
/* Different predictions among w + 1 micro-batches in a row, and the newest weights. Micro-batch j
 * forecasts from floor((j - w) / T) to floor(j / T); where these are the same it reads the newest.
 */
static int kept_predictions(int n, int k, int w, int t, bool exact)
{
    (void)n, (void)k, (void)exact;
    int most = 0, base = ceil_div(w, t) * t; /* so that j - w >= 0 */
    for (int first = base; first < base + t; first++) {
        int different = 0;
        for (int j = first; j <= first + w; j++) {
            bool same = j > first && (j - w) % t && j % t;
            if (!same && j / t != (j - w) / t) different++;
        }
        if (different > most) most = different;
    }
    return most + 1;
}
static int xpipe(int n, int k, int w, int t, bool exact)
{
    int back = (t - 1 + k / 2) / t, forward = back + ceil_div(w, t);
    if (!exact && t > 1) forward = (int)nearbyint((w + t + k / 2.0 - 1) / t);
    if (n == 1) forward = 0;
    if (w == 0 && forward == back) return forward > 0 ? 2 : 1;
    return 1 + (forward > 0) + (back > 0);
}

static const struct {
    const char *name;
    int (*blocks)(int n, int k, int w, int t, bool exact);
} formulas[] = {
    {"live", one},
    {"stash", stash},
    {"double-buffer", two_versions},
    {"spectrain", spectrain},
    {"spectrain-v2", kept_predictions},
    {"xpipe", xpipe},
    {"pipeoptim", by_gap},
    {"decay-aware", by_gap},
    {"pipemare", by_gap},
    {"lookahead", two_versions},
};
#define N_FORMULAS (sizeof formulas / sizeof *formulas)

/* All policies on one schedule; w by k. */
static void compare(const fr_schedule *s, bool exact)
{
    for (size_t f = 0; f < N_FORMULAS; f++) {
        const fr_exec_desc d = {.schedule = s,
                                .policy = fr_policy_find(formulas[f].name),
                                .policy_options = {.exact = exact}};
        fr_exec_plan *p;
        fr_exec_refusal why;
        if (fr_exec_plan_create(ctx, &d, &p, &why) != FR_OK) {
            assert_string_equal(formulas[f].name, "double-buffer");
            assert_int_equal(why, FR_REFUSED_WEIGHTS);
            fr_ctx_clear(ctx);
            continue;
        }
        for (int k = 0; k < s->n_stages; k++) {
            int t = s->n_micro / s->replicas[k], w = p->context[k].lead;
            int expected = formulas[f].blocks(s->n_stages, k, w, t, exact);
            if (p->n_weight_blocks[k] != expected)
                fail_msg("%s, stage %d of %d, %d ahead, %d in an update, segment %d: %d blocks, "
                         "expected %d",
                         formulas[f].name, k, s->n_stages, w, t, s->n_batches,
                         p->n_weight_blocks[k], expected);
        }
        fr_exec_plan_free(p);
    }
}

static void blocks_as_published(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MOST; n++)
        for (int t = 1; t <= 12; t++)
            for (int i = 0; i < 3; i++) { /* however long the segment is */
                const fr_schedule *s =
                    make_with("1f1b-async", n, t, (int[]){1, 5, 40}[i], NULL, false);
                for (int k = 0; k < n; k++) assert_int_equal(fr_schedule_lead(s, k), n - 1 - k);
                compare(s, i == 1);
                fr_schedule_free(s);
            }
}

static void blocks_of_replicas(void **unused)
{
    (void)unused;
    const int table[][4] = {{1, 1, 2}, {2, 1, 1}, {3, 1, 2}, {1, 3, 1}, {2, 2, 2}, {1, 1, 6}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int t = 6; t <= 24; t += 6) {
            const fr_schedule *s =
                make_with("1f1b-async", 3, t, 1 + 20 * (t % 4 == 0), table[i], false);
            compare(s, false);
            fr_schedule_free(s);
        }
}

/* Backwards of a mini-batch together: stage k is N - 1 - k updates behind for all of them. */
static void blocks_of_nf1b(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 6; n++)
        for (int t = 1; t <= 6; t++)
            for (int segment = 1; segment <= 31; segment += 10) {
                const fr_schedule *s = make_with("nf1b", n, t, segment, NULL, false);
                fr_exec_plan *kept = plan_of(
                                 (fr_exec_desc){.schedule = s, .policy = fr_policy_find("stash")}),
                             *ahead = plan_of((fr_exec_desc){
                                 .schedule = s, .policy = fr_policy_find("spectrain-v2")});
                for (int k = 0; k < n; k++) {
                    fr_want want;
                    assert_int_equal(kept->context[k].lead, (n - 1 - k) * t);
                    assert_int_equal(kept->n_weight_blocks[k], n - k);
                    assert_int_equal(ahead->n_weight_blocks[k], k < n - 1 ? n - k + 1 : 1);
                    for (int j = 0; j < t; j++) {
                        fr_policy_find("pipeoptim")->forward(&kept->context[k], j, &want);
                        assert_int_equal(want.ahead, n - 1 - k);
                    }
                }
                fr_exec_plan_free(kept);
                fr_exec_plan_free(ahead);
                fr_schedule_free(s);
            }
}

/* A schedule from a text. */
static const fr_schedule *read_text(const char *text, int n_micro)
{
    const fr_schedule *s;
    const fr_schedule_desc none = {0};
    char path[] = "/tmp/forerun-plan-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    if (fr_schedule_read(ctx, path, n_micro, &none, &s) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    unlink(path);
    return s;
}

/* A file says nothing about its generator: the lead is measured, all blocks are counted. */
static void files_are_counted(void **unused)
{
    (void)unused;
    const char *names[] = {"1f1b-async", "nf1b"};
    for (int i = 0; i < 2; i++)
        for (int t = 1; t <= 4; t++) {
            const fr_schedule *s = make_with(names[i], 4, t, 12, NULL, false);
            char *text = fr_schedule_to_text(s);
            const fr_schedule *again = read_text(text, t);
            fr_text_free(text);
            for (const fr_policy *const *policy = fr_policy_list(); *policy; policy++) {
                if (strcmp((*policy)->name, "double-buffer") == 0) continue;
                fr_exec_plan *p = plan_of((fr_exec_desc){.schedule = s, .policy = *policy});
                fr_exec_plan *q = plan_of((fr_exec_desc){.schedule = again, .policy = *policy});
                for (int k = 0; k < 4; k++) {
                    assert_int_equal(p->context[k].lead, q->context[k].lead);
                    assert_int_equal(p->n_weight_blocks[k], q->n_weight_blocks[k]);
                }
                fr_exec_plan_free(p);
                fr_exec_plan_free(q);
            }
            fr_schedule_free(s);
            fr_schedule_free(again);
        }
}

static void too_many_blocks(void **unused)
{
    (void)unused;
    fr_exec_plan *p;
    const fr_schedule *s = make_with("1f1b-async", 70, 1, 1, NULL, false);
    const fr_exec_desc d = {.schedule = s, .policy = fr_policy_find("stash")};
    assert_int_equal(fr_exec_plan_create(ctx, &d, &p, NULL), FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(ctx), "more than 64 blocks"));
    assert_null(p);
    fr_ctx_clear(ctx);
    fr_schedule_free(s);
}

/* --- sums and fused updates ------------------------------------------------------------------- */

static void decisions(void **unused)
{
    (void)unused;
    static const struct {
        const char *schedule;
        int n_stages, n_micro, n_replicas;
        fr_exec_desc d;
        bool sums_stages, fused[4], whole;
    } rows[] = {
        {"sequential", 1, 2, 1, {0}, false, {true}, false},
        {"1f1b-async", 2, 2, 1, {0}, false, {true, true}, false},
        /* stage 0 waits for the gradients of stage 1 */
        {"1f1b", 2, 2, 1, {0}, false, {true, false}, false},
        {"zb-h1", 2, 2, 1, {0}, false, {true, true}, false},
        /* stage 3 ends with a B, whose gradients stage 2 waits for on the other worker */
        {"dualpipev", 4, 4, 1, {0}, false, {true, true, true, false}, false},
        {"1f1b", 2, 2, 1, {.clip_norm = 1}, true, {false, false}, true},
        {"1f1b", 2, 2, 1, {.want_norm = true}, true, {false, false}, true},
        {"1f1b-async", 2, 2, 1, {.want_norm = true}, false, {false, false}, true},
        {"sequential", 1, 2, 1, {.clip_norm = 1}, false, {false}, true},
        {"1f1b-async", 2, 2, 1, {.keep_grads = true}, false, {false, false}, true},
        {"1f1b-async", 2, 2, 1, {.exact_sum = true}, false, {false, false}, false},
        {"1f1b-async", 2, 1, 1, {.exact_sum = true}, false, {true, true}, false},
        {"1f1b-async", 2, 2, 2, {0}, false, {false, false}, false},
        {"1f1b-async", 2, 2, 2, {.lone_sync = "average"}, false, {true, true}, false},
        {"1f1b", 2, 2, 2, {.lone_sync = "average", .want_norm = true}, false, {0}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = rows[i].n_replicas, replicas[] = {n, n, n, n};
        bool is_flush = fr_generator_find(rows[i].schedule)->is_flush;
        fr_exec_desc d = rows[i].d;
        const fr_schedule *s =
            make_with(rows[i].schedule, rows[i].n_stages, rows[i].n_micro, is_flush ? 1 : 4,
                      replicas, fr_exec_must_reduce(is_flush, false, d.clip_norm, d.want_norm));
        d.schedule = s;
        fr_exec_plan *p = plan_of(d);
        assert_int_equal(p->sums_stages, rows[i].sums_stages);
        assert_int_equal(p->sums_replicas, n > 1 && !d.lone_sync);
        assert_int_equal(p->needs_norm, d.clip_norm > 0 || d.want_norm);
        for (int k = 0; k < s->n_stages; k++) {
            if (p->update_in_backward[k] != rows[i].fused[k] ||
                p->needs_whole_gradient[k] != rows[i].whole)
                fail_msg("row %zu, stage %d: fused %d, whole %d", i, k, p->update_in_backward[k],
                         p->needs_whole_gradient[k]);
            assert_int_equal(p->context[k].n_micro, s->n_micro / n);
            assert_int_equal(p->context[k].n_slots, s->n_slots[k]);
        }
        fr_exec_plan_free(p);
        fr_schedule_free(s);
    }
}

/* Norms that all stages know: as late as the stage whose gradients are the latest. */
static void late_norms(void **unused)
{
    (void)unused;
    static const struct {
        const char *schedule;
        int n_stages, n_micro, lag;
    } rows[] = {{"1f1b-async", 4, 1, 3}, {"1f1b-async", 4, 2, 2}, {"1f1b-async", 4, 4, 1},
                {"nf1b", 3, 2, 2},       {"1f1b-async", 1, 1, 0}, {"1f1b", 4, 1, 0}};
    fr_exec_plan *p;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_flush = fr_generator_find(rows[i].schedule)->is_flush;
        const fr_schedule *s = make_with(rows[i].schedule, rows[i].n_stages, rows[i].n_micro,
                                         is_flush ? 1 : 9, NULL, is_flush);
        p = plan_of((fr_exec_desc){.schedule = s, .clip_norm = 1, .clip_late = true});
        assert_int_equal(p->norm_lag, rows[i].lag);
        fr_exec_plan_free(p);
        fr_schedule_free(s);
    }
    const fr_schedule *s = read_text("0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n", 1);
    const fr_exec_desc d = {.schedule = s, .clip_norm = 1, .clip_late = true};
    assert_false(s->is_flush);
    assert_int_equal(fr_exec_plan_create(ctx, &d, &p, NULL), FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(ctx), "worker 0 has stages 0 and 1"));
    fr_ctx_clear(ctx);
    fr_schedule_free(s);
}

static void reductions_are_needed(void **unused)
{
    (void)unused;
    fr_exec_plan *p;
    const fr_schedule *s = make_with("1f1b", 2, 2, 1, NULL, false);
    const fr_exec_desc d = {.schedule = s, .want_norm = true};
    assert_int_equal(fr_exec_plan_create(ctx, &d, &p, NULL), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(ctx), "no reductions, but norms"));
    fr_ctx_clear(ctx);
    fr_schedule_free(s);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refusals(void **unused)
{
    (void)unused;
    const fr_policy *stash = fr_policy_find("stash"), *two = fr_policy_find("double-buffer");
    const struct {
        const char *schedule;
        int n_stages, n_micro, n_replicas;
        fr_exec_desc d;
        fr_exec_refusal why;
        const char *text;
    } rows[] = {
        {"1f1b-async", 2, 2, 1, {.clip_norm = 1}, FR_REFUSED_NOT, NULL},
        {"1f1b-async", 1, 2, 1, {.clip_norm = 1}, FR_REFUSED_NOT, NULL},
        {"1f1b", 2, 2, 1, {.clip_norm = 1}, FR_REFUSED_NOT, NULL},
        {"1f1b", 2, 2, 1, {.policy = stash}, FR_REFUSED_WEIGHTS, "'stash' are for a pipeline"},
        {"1f1b-async", 3, 2, 1, {.policy = two}, FR_REFUSED_WEIGHTS, "train.micro"},
        {"1f1b-async", 3, 3, 1, {.policy = two}, FR_REFUSED_NOT, NULL},
        {"nf1b", 3, 3, 1, {.policy = two}, FR_REFUSED_WEIGHTS, "train.micro"},
        {"nf1b", 1, 3, 1, {.policy = two}, FR_REFUSED_NOT, NULL},
        {"1f1b", 2, 2, 2, {.clip_norm = 1, .lone_sync = "wsp"}, FR_REFUSED_SYNC, "sync 'wsp'"},
        {"1f1b", 2, 2, 1, {.clip_norm = 1, .lone_sync = "wsp"}, FR_REFUSED_NOT, NULL},
        {"sequential", 1, 2, 2, {.clip_norm = 1, .lone_sync = "wsp"}, FR_REFUSED_NOT, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = rows[i].n_replicas, replicas[] = {n, n, n};
        const fr_generator *g = fr_generator_find(rows[i].schedule);
        fr_exec_desc d = rows[i].d;
        fr_exec_plan *p;
        fr_exec_refusal why;
        const fr_schedule *s =
            make_with(g->name, rows[i].n_stages, rows[i].n_micro, g->is_flush ? 1 : 4, replicas,
                      g->is_flush && d.clip_norm > 0);
        d.schedule = s;
        fr_status status = fr_exec_plan_create(ctx, &d, &p, &why);
        if (why != rows[i].why || (status == FR_OK) != (why == FR_REFUSED_NOT))
            fail_msg("row %zu: refusal %d, %s", i, (int)why, fr_ctx_error(ctx));
        if (rows[i].text && !strstr(fr_ctx_error(ctx), rows[i].text))
            fail_msg("row %zu: %s", i, fr_ctx_error(ctx));
        if (d.policy) { /* known before there is a schedule */
            const fr_schedule_desc shape = {
                .n_stages = s->n_stages, .n_micro = s->n_micro, .replicas = replicas};
            assert_int_equal(fr_exec_takes_policy(g, &shape, d.policy), status == FR_OK);
        }
        fr_ctx_clear(ctx);
        fr_exec_plan_free(p);
        fr_schedule_free(s);
    }
}

/* --- cores ------------------------------------------------------------------------------------ */

static void cores(void **unused)
{
    (void)unused;
    fr_exec_cores all = fr_exec_share_cores(NULL, 1, 0, true);
    assert_true(all.n_threads >= 1 && all.n_at_once == 1 && all.first_cpu == 0);
    int n = all.n_threads; /* of this machine */
    fr_exec_cores c = fr_exec_share_cores(NULL, n, 0, true);
    assert_true(c.n_threads == 1 && c.n_at_once == n);
    for (int i = 0; i < n; i++) assert_int_equal(fr_exec_first_cpu(&c, n, i), i);
    c = fr_exec_share_cores(NULL, n + 1, 1, true); /* they take turns */
    assert_true(c.n_at_once == n && c.first_cpu == 0);
    assert_int_equal(fr_exec_first_cpu(&c, n + 1, 0), -1);
    c = fr_exec_share_cores(NULL, 2, 4 * n, true);
    assert_true(c.n_threads == 4 * n && c.n_at_once == 1 && c.first_cpu == -1);
    c = fr_exec_share_cores(NULL, n, 0, false);
    assert_int_equal(fr_exec_first_cpu(&c, n, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_as_published),
        cmocka_unit_test(blocks_of_replicas),
        cmocka_unit_test(blocks_of_nf1b),
        cmocka_unit_test(files_are_counted),
        cmocka_unit_test(too_many_blocks),
        cmocka_unit_test(decisions),
        cmocka_unit_test(late_norms),
        cmocka_unit_test(reductions_are_needed),
        cmocka_unit_test(refusals),
        cmocka_unit_test(cores),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
