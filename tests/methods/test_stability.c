/* test_stability.c -- limits of stability: closed forms, the eigenvalues of an independent
 * implementation, replicas, schedule files. */
#include <forerun/stability.h>

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "methods/plans.h"

/* --- known limits ----------------------------------------------------------------------------- */

static fr_status judge_schedule(const fr_schedule *s, const fr_policy *policy,
                                const char *optimizer, const fr_optim_options *options,
                                fr_stability *out)
{
    const fr_exec_desc d = {
        .schedule = s,
        .policy = policy,
        .policy_options = {.bounded_steps = fr_optim_find(optimizer)->bounds_steps}};
    fr_exec_plan *p;
    if (fr_exec_plan_create(ctx, &d, &p, NULL) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    fr_status status = fr_exec_plan_stability(ctx, p, fr_optim_find(optimizer), options, out);
    fr_exec_plan_free(p);
    return status;
}

static fr_stability judge_on(const char *generator, const fr_policy *policy, int n_stages,
                             int n_micro, const char *optimizer, const fr_optim_options *options)
{
    const fr_schedule *s = make(generator, n_stages, n_micro, 1);
    fr_stability out;
    if (judge_schedule(s, policy, optimizer, options, &out) != FR_OK)
        fail_msg("%s", fr_ctx_error(ctx));
    fr_schedule_free(s);
    return out;
}

static fr_stability judge(const char *policy, int n_stages, int n_micro, const char *optimizer,
                          const fr_optim_options *options)
{
    return judge_on("1f1b-async", fr_policy_find(policy), n_stages, n_micro, optimizer, options);
}

static void same(double limit, double expected, const char *what)
{
    if (!(fabs(limit - expected) <= 2e-5 * expected))
        fail_msg("%s: the limit is %.7g, expected %.7g", what, limit, expected);
}

/* z = -1 is the first root on the circle. */
static void closed_forms_of_one_worker(void **state)
{
    (void)state;
    for (double m = 0; m < 0.95; m += 0.3) {
        const fr_optim_options plain = {.momentum = m}, dampened = {.momentum = m, .dampening = m},
                               nesterov = {.momentum = m, .nesterov = true}, mean = {.beta1 = m};
        same(judge("live", 1, 1, "sgd", &plain).one_worker, 2 * (1 + m), "momentum");
        same(judge("live", 1, 1, "sgd", &dampened).one_worker, 2 * (1 + m) / (1 - m), "dampening");
        same(judge("live", 1, 1, "adam", &mean).one_worker, 2 * (1 + m) / (1 - m), "adam");
        if (m > 0)
            same(judge("live", 1, 1, "sgd", &nesterov).one_worker, 2 * (1 + m) / (1 + 2 * m),
                 "nesterov");
    }
}

/* Gradient descent with a delay of d updates, Stépán's bound. */
static void closed_form_of_a_delay(void **state)
{
    (void)state;
    for (int d = 0; d < 20; d++) {
        fr_stability s = judge("live", d + 1, 1, "sgd", &(fr_optim_options){0});
        same(s.within, 2 * sin(3.14159265358979 / (2 * (2 * d + 1))), "a delay");
        assert_int_equal(s.stage, 0);
    }
}

static void a_flush_is_one_worker(void **state)
{
    (void)state;
    const fr_optim_options o = {.momentum = 0.9};
    fr_stability s = judge_on("1f1b", NULL, 4, 8, "sgd", &o);
    same(s.one_worker, 3.8, "one worker");
    same(s.shared, 3.8, "shared");
    same(s.within, 3.8, "within");
    same(fr_stability_factor(&s), 1, "the factor");
    s = judge("live", 4, 1, "sgd", &o);
    same(fr_stability_factor(&s), s.one_worker / s.shared, "the factor");
}

/* Spectral radius of the companion matrix, bisected, by an independent implementation: a running
 * mean of gradients with factor beta1, delays of N - 1 - k updates. The prediction of xpipe goes by
 * the bias corrections of update 1, here of beta2 = 0.999. */
static void limits_by_eigenvalues(void **state)
{
    (void)state;
    static const struct {
        const char *policy;
        int n;
        double beta1, shared, within; /* within: 0: not known */
    } rows[] = {
        {"live", 2, 0.5, 2.0, 0},
        {"live", 2, 0.9, 2.0, 1.0},
        {"live", 4, 0.5, 0.88316, 0},
        {"live", 4, 0.9, 0.70488, 0.347841},
        {"live", 8, 0.5, 0.46492, 0},
        {"live", 8, 0.9, 0.32267, 0.157520},
        {"pipeoptim", 2, 0.5, 1.56155, 0},
        {"pipeoptim", 2, 0.9, 4.0, 2.701562},
        {"pipeoptim", 4, 0.5, 0.63558, 0},
        {"pipeoptim", 4, 0.9, 1.31272, 0.722590},
        {"pipeoptim", 8, 0.5, 0.29698, 0},
        {"pipeoptim", 8, 0.9, 0.47430, 0.232064},
        {"spectrain", 4, 0.5, 0.72951, 0},
        {"spectrain", 4, 0.9, 1.69538, 0},
        {"spectrain", 8, 0.5, 0.35708, 0},
        {"spectrain", 8, 0.9, 0.59316, 0},
        {"stash", 8, 0.9, 0.32267, 0},
        {"pipemare", 8, 0.9, 0.32267, 0},
        {"xpipe", 2, 0.9, 2.599136, 0},
        {"xpipe", 4, 0.9, 1.061945, 0},
        {"decay-aware", 2, 0.9, 3.851386, 0},
        {"decay-aware", 4, 0.9, 1.280950, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const fr_optim_options o = {.beta1 = rows[i].beta1, .beta2 = 0.999, .eps = 1e-8};
        fr_stability s = judge(rows[i].policy, rows[i].n, 1, "adamw", &o);
        same(s.shared, rows[i].shared, rows[i].policy);
        if (rows[i].within > 0) same(s.within, rows[i].within, rows[i].policy);
    }
}

/* The same implementation, for a policy with rates and momentum of its own on each stage. */
static void limits_of_lookahead(void **state)
{
    (void)state;
    static const struct {
        int n;
        double shared, within;
        int stage;
    } rows[] = {{2, 18.973538, 7.6, 1}, {4, 23.418239, 3.978874, 0}, {8, 23.803549, 2.235294, 7}};
    const fr_optim_options o = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_stability s =
            judge_on("1f1b-async", fr_policy_find("lookahead"), rows[i].n, 1, "adamw", &o);
        same(s.shared, rows[i].shared, "shared");
        same(s.within, rows[i].within, "within");
        assert_int_equal(s.stage, rows[i].stage);
    }
}

/* Two replicas with a share of two micro-batches each. */
static void replicas_share_the_micro_batches(void **state)
{
    (void)state;
    const fr_optim_options o = {.momentum = 0.9};
    const fr_schedule *s;
    fr_stability got;
    const fr_schedule_desc d = {
        .n_stages = 3, .n_micro = 4, .n_batches = 1, .replicas = (const int[]){2, 2, 2}};
    assert_int_equal(fr_schedule_create(ctx, fr_generator_find("1f1b-async"), &d, &s), FR_OK);
    assert_int_equal(judge_schedule(s, fr_policy_find("spectrain"), "sgd", &o, &got), FR_OK);
    fr_stability wanted = judge("spectrain", 3, 2, "sgd", &o);
    same(got.shared, wanted.shared, "shared");
    same(got.within, wanted.within, "within");
    fr_schedule_free(s);
}

/* --- schedule files --------------------------------------------------------------------------- */

static fr_status judge_file(int n_batches, fr_stability *out)
{
    static const char path[] = "stability.csv";
    const fr_schedule *s = make("1f1b-async", 4, 1, n_batches), *read;
    char *text = fr_schedule_to_csv(s);
    FILE *f = fopen(path, "w");
    assert_true(text && f && fputs(text, f) >= 0 && fclose(f) == 0);
    assert_int_equal(fr_schedule_read(ctx, path, 1, &(fr_schedule_desc){0}, &read), FR_OK);
    fr_status status =
        judge_schedule(read, fr_policy_find("live"), "sgd", &(fr_optim_options){0}, out);
    remove(path);
    fr_text_free(text);
    fr_schedule_free(read);
    fr_schedule_free(s);
    return status;
}

static void a_file_fills_its_pipeline(void **state)
{
    (void)state;
    fr_stability got, wanted = judge("live", 4, 1, "sgd", &(fr_optim_options){0});
    assert_int_equal(judge_file(9, &got), FR_OK);
    same(got.shared, wanted.shared, "a file");
    assert_int_equal(judge_file(2, &got), FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(ctx), "2 mini-batches, ends before the pipeline is full"));
}

/* --- failures --------------------------------------------------------------------------------- */

static void memory_runs_out(void **state)
{
    (void)state;
    const fr_schedule *s = make("1f1b-async", 3, 2, 1);
    const fr_exec_desc d = {.schedule = s, .policy = fr_policy_find("spectrain")};
    fr_exec_plan *p;
    fr_stability out;
    assert_int_equal(fr_exec_plan_create(ctx, &d, &p, NULL), FR_OK);
    fr_status status = FR_NO_MEMORY;
    int64_t n = 0;
    for (; status == FR_NO_MEMORY; n++) {
        fr__alloc_fail_after(n);
        status = fr_exec_plan_stability(ctx, p, fr_optim_find("sgd"), &(fr_optim_options){0}, &out);
        fr__alloc_fail_after(-1);
    }
    assert_int_equal(status, FR_OK);
    assert_true(n > 5);
    fr_exec_plan_free(p);
    fr_schedule_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_forms_of_one_worker),
        cmocka_unit_test(closed_form_of_a_delay),
        cmocka_unit_test(a_flush_is_one_worker),
        cmocka_unit_test(limits_by_eigenvalues),
        cmocka_unit_test(limits_of_lookahead),
        cmocka_unit_test(replicas_share_the_micro_batches),
        cmocka_unit_test(a_file_fills_its_pipeline),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
