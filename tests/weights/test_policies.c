/* test_policies.c -- the tables of every weight policy: the weights that forward and backward of
 * each micro-batch request, the predictions that an update writes, the rate of a stage. */
#include <forerun/weights.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

static fr_policy_context context_of(int n, int k, int t)
{
    return (fr_policy_context){.stage = k,
                               .n_stages = n,
                               .lead = n - 1 - k,
                               .n_micro = t,
                               .max_delay = (n - 1 + t - 1) / t,
                               .n_slots = n};
}

static fr_want forward_of(const char *name, const fr_policy_context *s, int micro)
{
    fr_want w;
    fr_policy_find(name)->forward(s, micro, &w);
    return w;
}

static fr_want backward_of(const char *name, const fr_policy_context *s, int micro)
{
    fr_want w;
    fr_policy_find(name)->backward(s, micro, &w);
    return w;
}

/* The rows of the methods' own tables, N = 4, stages 0 to 3, bellwethers. */
static void published_rows(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        int n_micro;
        fr_base forward, backward;
        int ahead_f[4], ahead_b[4];
    } rows[] = {
        {"live", 1, FR_NEWEST, FR_NEWEST, {0}, {0}},
        {"stash", 1, FR_NEWEST, FR_AS_FORWARD, {0}, {0}},
        {"stash", 4, FR_NEWEST, FR_AS_FORWARD, {0}, {0}},
        {"double-buffer", 4, FR_PREVIOUS, FR_PREVIOUS, {0}, {0}},
        {"spectrain", 1, FR_NEWEST, FR_NEWEST, {3, 2, 2, 1}, {0, 0, 1, 1}},
        {"spectrain", 2, FR_NEWEST, FR_NEWEST, {2, 1, 2, 1}, {0, 0, 1, 1}},
        {"spectrain-v2", 1, FR_NEWEST, FR_AS_FORWARD, {3, 2, 1, 0}, {0}},
        {"xpipe", 1, FR_AS_FIRST, FR_AS_FIRST, {3, 2, 2, 1}, {0, 0, 1, 1}},
        {"xpipe", 2, FR_AS_FIRST, FR_AS_FIRST, {2, 2, 2, 1}, {0, 0, 1, 1}},
        {"pipeoptim", 1, FR_NEWEST, FR_NEWEST, {3, 2, 1, 0}, {0}},
        {"decay-aware", 1, FR_NEWEST, FR_NEWEST, {3, 2, 1, 0}, {0}},
        {"pipemare", 1, FR_NEWEST, FR_NEWEST, {0}, {3, 2, 1, 0}},
        {"pipemare", 2, FR_NEWEST, FR_NEWEST, {0}, {2, 1, 1, 0}},
        {"lookahead", 1, FR_NEWEST, FR_NEWEST, {4, 3, 2, 1}, {0}},
        {"lookahead", 2, FR_NEWEST, FR_NEWEST, {3, 2, 2, 1}, {0}},
        {"lookahead", 4, FR_NEWEST, FR_NEWEST, {2, 2, 2, 1}, {0}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int k = 0; k < 4; k++) {
            fr_policy_context s = context_of(4, k, rows[r].n_micro);
            fr_want f = forward_of(rows[r].name, &s, 0), b = backward_of(rows[r].name, &s, 0);
            if (f.base != rows[r].forward || b.base != rows[r].backward ||
                f.ahead != rows[r].ahead_f[k] || b.ahead != rows[r].ahead_b[k])
                fail_msg("%s, T = %d, stage %d: forward %d ahead %d, backward %d ahead %d",
                         rows[r].name, rows[r].n_micro, k, f.base, f.ahead, b.base, b.ahead);
        }
}

/* Updates that a stage of 1F1B without flush has applied before the i-th forward (or backward),
 * counted by walking its list. */
static int updates_before(int n, int k, int t, bool is_backward, int i)
{
    int forwards = 0, backwards = 0;
    for (;;) {
        bool is_forward = forwards <= n - 1 - k + backwards; /* the lead, then one of each */
        if (is_forward && !is_backward && forwards == i) return backwards / t;
        if (!is_forward && is_backward && backwards == i) return backwards / t;
        is_forward ? forwards++ : backwards++;
    }
}

/* Every row for N = 1..8 and T = 1, 2, 4: distances by counting updates in the list itself. */
static void all_rows(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 8; n++)
        for (int k = 0; k < n; k++)
            for (int t = 1; t <= 4; t *= 2)
                for (int micro = 0; micro < t; micro++) {
                    fr_policy_context s = context_of(n, k, t);
                    int j = 40 * t + micro; /* far from the start */
                    int gap = updates_before(n, k, t, true, j) - updates_before(n, k, t, false, j);
                    int back = k / 2; /* time units after the backward, in micro-batches */
                    int s_b = (t - 1 + back) / t;
                    assert_int_equal(updates_before(n, k, t, true, j), 40);
                    assert_int_equal(forward_of("live", &s, micro).ahead, 0);
                    assert_int_equal(forward_of("stash", &s, micro).ahead, 0);
                    assert_int_equal(forward_of("pipeoptim", &s, micro).ahead, gap);
                    assert_int_equal(backward_of("pipeoptim", &s, micro).ahead, 0);
                    assert_int_equal(forward_of("decay-aware", &s, micro).ahead, gap);
                    assert_int_equal(forward_of("spectrain-v2", &s, micro).ahead, gap);
                    assert_int_equal(forward_of("spectrain", &s, micro).ahead, s_b + gap);
                    assert_int_equal(backward_of("spectrain", &s, micro).ahead, s_b);
                    assert_int_equal(backward_of("xpipe", &s, micro).ahead, s_b);
                    assert_int_equal(backward_of("pipemare", &s, micro).ahead,
                                     (n - 1 - k + t - 1) / t);
                    assert_int_equal(forward_of("lookahead", &s, micro).ahead,
                                     n > 1 ? (n - 1 - k + t - 1) / t + 1 : 0);
                    s.is_robust = true;
                    assert_int_equal(forward_of("lookahead", &s, micro).ahead,
                                     n > 1 ? (n - 1 + t - 1) / t + 1 : 0);
                    assert_true(forward_of("lookahead", &s, micro).grows);
                    assert_int_equal(backward_of("lookahead", &s, micro).ahead, 0);
                    s.exact = true;
                    int gap0 = micro == 0 ? gap : forward_of("pipeoptim", &s, 0).ahead;
                    assert_int_equal(forward_of("xpipe", &s, micro).ahead, s_b + gap0);
                    if (t > 1) continue;
                    assert_int_equal(gap, n - 1 - k);
                    assert_int_equal(forward_of("spectrain", &s, 0).ahead, k / 2 + n - k - 1);
                    s.exact = false;
                    assert_int_equal(forward_of("xpipe", &s, 0).ahead, k / 2 + n - k - 1);
                }
}

/* XPipe's rounding where it is not exact: halves go to the even number. */
static void xpipe_rounding(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 8; n++)
        for (int k = 0; k < n; k++)
            for (int t = 2; t <= 4; t *= 2) {
                fr_policy_context s = context_of(n, k, t);
                double twice = (2 * n + 2 * t - k - 4) / (double)t;
                int below = (int)floor(twice / 2);
                double rest = twice / 2 - below;
                int want = rest > 0.5 || (rest == 0.5 && below % 2) ? below + 1 : below;
                assert_int_equal(forward_of("xpipe", &s, 0).ahead, want);
            }
}

/* With the lead of a plain pipeline given explicitly, nothing changes; with another lead the stage
 * behaves as the stage of a plain pipeline with that lead. */
static void leads_are_taken(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int n = 2; n <= 8; n++)
            for (int k = 0; k < n; k++)
                for (int lead = 1; lead <= 7; lead++)
                    for (int t = 1; t <= 4; t++) {
                        fr_policy_context said = context_of(n, k, t),
                                          plain = context_of(k + 1 + lead, k, t);
                        int x[FR_MAX_AHEAD], y[FR_MAX_AHEAD];
                        said.lead = lead;
                        said.max_delay = plain.max_delay; /* of the whole pipeline */
                        for (int micro = 0; micro < t; micro++) {
                            fr_want f = forward_of((*p)->name, &said, micro),
                                    g = forward_of((*p)->name, &plain, micro);
                            assert_true(f.base == g.base && f.ahead == g.ahead);
                            f = backward_of((*p)->name, &said, micro);
                            g = backward_of((*p)->name, &plain, micro);
                            assert_true(f.base == g.base && f.ahead == g.ahead);
                        }
                        int n_after = (*p)->after(&said, x);
                        assert_int_equal(n_after, (*p)->after(&plain, y));
                        for (int i = 0; i < n_after; i++) assert_int_equal(x[i], y[i]);
                    }
}

/* A single stage has nothing to predict, keep or delay, with any policy. */
static void one_stage_is_plain(void **unused)
{
    (void)unused;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++)
        for (int t = 1; t <= 8; t++)
            for (int micro = 0; micro < t; micro++) {
                fr_policy_context s = context_of(1, 0, t);
                int ahead[FR_MAX_AHEAD];
                s.lr_warmup = 100;
                assert_null((*p)->check ? (*p)->check(&s) : NULL);
                fr_want f = forward_of((*p)->name, &s, micro), b = backward_of((*p)->name, &s, 0);
                assert_true(f.ahead == 0 && b.ahead == 0 && f.base != FR_PREVIOUS);
                for (int n = (*p)->after(&s, ahead); n-- > 0;) assert_int_equal(ahead[n], 0);
                if ((*p)->lr_factor) assert_true((*p)->lr_factor(&s, 0) == 1);
                fr_optim_options o = {.momentum = 0.1, .dampening = 0.3, .beta1 = 0.7}, same = o;
                if ((*p)->adapt) (*p)->adapt(&s, &o);
                assert_memory_equal(&o, &same, sizeof o);
            }
}

/* An update writes the prediction that the next forward requests. */
static void updates_write_for_the_next_pass(void **unused)
{
    (void)unused;
    const char *names[] = {"spectrain", "spectrain-v2", "pipeoptim", "decay-aware", "lookahead"};
    for (size_t p = 0; p < sizeof names / sizeof *names; p++)
        for (int n = 1; n <= 8; n++)
            for (int k = 0; k < n; k++)
                for (int t = 1; t <= 4; t++) {
                    fr_policy_context s = context_of(n, k, t);
                    int ahead[FR_MAX_AHEAD];
                    assert_int_equal(fr_policy_find(names[p])->after(&s, ahead), 1);
                    fr_want next = forward_of(names[p], &s, (n - 1 - k) % t);
                    assert_int_equal(ahead[0], next.ahead);
                }
}

static void double_buffer_needs_enough_micro_batches(void **unused)
{
    (void)unused;
    const fr_policy *p = fr_policy_find("double-buffer");
    fr_policy_context few = context_of(4, 0, 3), enough = context_of(4, 0, 4);
    assert_non_null(p->check(&few));
    assert_non_null(strstr(p->check(&few), "train.micro"));
    assert_null(p->check(&enough));
    few.lead = 2; /* more replicas further on: fewer in flight */
    assert_null(p->check(&few));
    enough.lead = 4;
    assert_non_null(p->check(&enough));
}

static void pipemare_rates(void **unused)
{
    (void)unused;
    const fr_policy *p = fr_policy_find("pipemare");
    fr_policy_context s = context_of(5, 0, 1); /* tau 4 */
    assert_true(p->lr_factor(&s, 0) == 1);
    s.lr_warmup = 10;
    assert_true(fabs(p->lr_factor(&s, 0) - 0.25) < 1e-12);
    assert_true(fabs(p->lr_factor(&s, 5) - 0.5) < 1e-12);
    assert_true(p->lr_factor(&s, 10) == 1 && p->lr_factor(&s, 1000) == 1);
    assert_true(fabs(p->drift_keep(&s) - pow(0.135, 0.25)) < 1e-12);
    s.n_micro = 2; /* tau 2 */
    assert_true(fabs(p->lr_factor(&s, 0) - 0.5) < 1e-12);
    s.stage = 4, s.lead = 0;
    assert_true(p->lr_factor(&s, 0) == 1);
}

/* Rate and momentum of a stage by its delay; a constant gradient makes the momentum that the
 * options of the run would make. */
static void lookahead_slows_late_stages(void **unused)
{
    (void)unused;
    const fr_policy *p = fr_policy_find("lookahead");
    for (int n = 2; n <= 16; n *= 2)
        for (int t = 1; t <= 4; t *= 2)
            for (int k = 0; k < n; k++) {
                fr_policy_context s = context_of(n, k, t);
                int d = (n - 1 - k + t - 1) / t;
                fr_optim_options o = {
                    .momentum = 0.9, .dampening = 0.5, .beta1 = 0.8, .beta2 = 0.7};
                p->adapt(&s, &o);
                assert_true(fabs(p->lr_factor(&s, 7) * sqrt(1 + d) - 1) < 1e-12);
                assert_true(fabs((1 - o.momentum) * (1 + d) - 0.1) < 1e-12);
                assert_true(fabs((1 - o.dampening) * (1 + d) - 0.5) < 1e-12);
                assert_true(fabs((1 - o.beta1) * (1 + d) - 0.2) < 1e-12);
                assert_true(fabs((1 - o.dampening) / (1 - o.momentum) - 0.5 / 0.1) < 1e-9);
                assert_true(o.beta2 == 0.7 && o.dampens_first == (d > 0));
                s.is_scale_free = true;
                o.momentum = 0.9, o.dampening = 0.5;
                p->adapt(&s, &o);
                assert_true(p->lr_factor(&s, 7) == 1);
                assert_true(fabs((1 - o.momentum) * sqrt(1 + d) - 0.1) < 1e-12);
                assert_true(fabs((1 - o.dampening) / (1 - o.momentum) - 0.5 / 0.1) < 1e-9);
            }
}

static void names_are_found(void **unused)
{
    (void)unused;
    const char *names[] = {"live",  "stash",     "double-buffer", "spectrain", "spectrain-v2",
                           "xpipe", "pipeoptim", "decay-aware",   "pipemare",  "lookahead"};
    int n = 0;
    for (const fr_policy *const *p = fr_policy_list(); *p; p++, n++) {
        assert_string_equal((*p)->name, names[n]);
        assert_ptr_equal(fr_policy_find(names[n]), *p);
        assert_true(strlen((*p)->summary) > 20);
    }
    assert_int_equal(n, 10);
    assert_null(fr_policy_find("crystal-ball"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_rows),
        cmocka_unit_test(all_rows),
        cmocka_unit_test(xpipe_rounding),
        cmocka_unit_test(leads_are_taken),
        cmocka_unit_test(one_stage_is_plain),
        cmocka_unit_test(updates_write_for_the_next_pass),
        cmocka_unit_test(double_buffer_needs_enough_micro_batches),
        cmocka_unit_test(pipemare_rates),
        cmocka_unit_test(lookahead_slows_late_stages),
        cmocka_unit_test(names_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
