/* test_layouts.c -- every operator of the cpu backend in every layout of images, not only that of
 * this processor: the numbers of ref, and zeros in the padding after each kernel. */
#include "support/cases.h"
#include "support/harness.h"
#include "support/judge.h"
#include "support/test.h"

static void run(harness *h, const net *n, const net_case *c, const harness_options *options)
{
    if (harness_open(h, n, options) != FR_OK) fail_msg("%s: %s", c->line, fr_ctx_error(h->ctx));
    harness_fill(h, n, 9);
    h->pass.step = 3;
    h->pass.first_sample = 8;
    if (harness_run(h) != FR_OK) fail_msg("%s: %s", c->line, fr_ctx_error(h->ctx));
}

static void check(const net_case *c, judge_layout layout, const harness_options *how)
{
    net n;
    harness want, got;
    verdict v;
    harness_options options = *how;
    options.batch = c->batch;
    options.backend = &fr__backend_ref;
    net_build(&n, c->line);
    run(&want, &n, c, &options);
    options.backend = judge_cpu(layout);
    run(&got, &n, c, &options);
    if (!harness_same(&v, &got, &want, c->tolerance > 0 ? c->tolerance : 1e-5))
        fail_msg("%s, %s: %s", judge_layout_names[layout], c->line, v.text);
    harness_close(&got), harness_close(&want);
    net_free(&n);
}

static void all_cases(judge_layout layout, const harness_options *how)
{
    for (size_t i = 0; i < n_operator_cases; i++) check(&operator_cases[i], layout, how);
    for (size_t i = 0; i < n_network_cases; i++) check(&network_cases[i], layout, how);
}

static void training(void **state)
{
    (void)state;
    for (judge_layout layout = 0; layout < JUDGE_LAYOUT_COUNT; layout++)
        all_cases(layout, &(harness_options){0});
}

static void split_backward_by_two_threads(void **state)
{
    (void)state;
    all_cases(JUDGE_MIXED, &(harness_options){.n_threads = 2, .split = true});
}

static void evaluation(void **state)
{
    (void)state;
    for (judge_layout layout = 0; layout < JUDGE_LAYOUT_COUNT; layout++)
        all_cases(layout, &(harness_options){.eval = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training),
        cmocka_unit_test(split_backward_by_two_threads),
        cmocka_unit_test(evaluation),
    };
    return cmocka_run_group_tests_name("conformance/layouts", tests, NULL, NULL);
}
