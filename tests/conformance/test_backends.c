/* test_backends.c -- every backend gives ref's numbers on odd shapes, fused chains, shared values;
 * and the numbers do not depend on the kind of calls: split or joint, accumulated or reported,
 * fused or not, cached or not, on zeroed or on used memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel.h"
#include "support/cases.h"
#include "support/harness.h"
#include "support/test.h"

static double tolerance_of(const net_case *c) { return c->tolerance > 0 ? c->tolerance : 1e-5; }

static void open_filled(harness *h, const net *n, const harness_options *options, uint64_t seed)
{
    if (harness_open(h, n, options) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
    harness_fill(h, n, seed);
    h->pass.step = 3;
    h->pass.first_sample = 8;
    h->pass.loss_scale = 0.25f;
}

static void run_filled(harness *h, const net *n, const harness_options *options)
{
    open_filled(h, n, options, 9);
    if (harness_run(h) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
}

static void blame(const harness_options *o, const net_case *c, const char *what, const verdict *v)
{
    fail_msg("%s, %d threads, %s: %s: %s", fr_backend_name(o->backend), o->n_threads, what, c->line,
             v->text);
}

/* One test per function: `body` for each backend and case. */
typedef void (*case_body)(const net *n, const net_case *c, const fr_backend *b);

static void each_case(const net_case *cases, size_t n_cases, case_body body)
{
    for (const fr_backend *const *b = fr_backend_list(); *b; b++)
        for (size_t i = 0; i < n_cases; i++) {
            net n;
            net_build(&n, cases[i].line);
            body(&n, &cases[i], *b);
            net_free(&n);
        }
}

static void all_cases(case_body body)
{
    each_case(operator_cases, n_operator_cases, body);
    each_case(network_cases, n_network_cases, body);
}

static void against_ref(const net *n, const net_case *c, const fr_backend *b)
{
    for (int eval = 0; eval < 2; eval++) {
        harness_options options = {.backend = &fr__backend_ref, .batch = c->batch, .eval = eval};
        harness want, got;
        verdict v;
        run_filled(&want, n, &options);
        options.backend = b;
        for (options.n_threads = 1; options.n_threads <= (eval ? 1 : 2); options.n_threads++) {
            run_filled(&got, n, &options);
            if (!harness_same(&v, &got, &want, tolerance_of(c)))
                blame(&options, c, eval ? "evaluation" : "training", &v);
            harness_close(&got);
        }
        harness_close(&want);
    }
}

static void backends_agree_with_ref(void **state)
{
    (void)state;
    all_cases(against_ref);
}

/* Two kinds of calls that must give the same bits. */
static void expect_same_bits(const net *n, const net_case *c, const harness_options *one,
                             const harness_options *other, const char *what)
{
    harness a, b;
    verdict v;
    run_filled(&a, n, one);
    run_filled(&b, n, other);
    if (!harness_same(&v, &a, &b, 0)) blame(other, c, what, &v);
    harness_close(&a), harness_close(&b);
}

static void split_and_joint(const net *n, const net_case *c, const fr_backend *b)
{
    harness_options joint = {.backend = b, .batch = c->batch}, split = joint;
    split.split = true;
    expect_same_bits(n, c, &joint, &split, "split backward");
}

static void split_backward_gives_the_same_bits(void **state)
{
    (void)state;
    all_cases(split_and_joint);
}

static void kept_and_transient(const net *n, const net_case *c, const fr_backend *b)
{
    harness_options kept = {.backend = b, .batch = c->batch}, transient = kept;
    transient.transient = true;
    expect_same_bits(n, c, &kept, &transient, "gradients as reported");
    transient.split = true;
    expect_same_bits(n, c, &kept, &transient, "gradients as reported by a split backward");
}

static void gradients_are_reported_once(void **state)
{
    (void)state;
    all_cases(kept_and_transient);
}

static void nan_and_zero(const net *n, const net_case *c, const fr_backend *b)
{
    for (int eval = 0; eval < 2; eval++) {
        harness_options garbage = {.backend = b, .batch = c->batch, .eval = eval}, zeros = garbage;
        zeros.zeroed = true;
        expect_same_bits(n, c, &zeros, &garbage, "garbage in memory");
    }
}

static void memory_is_not_read_before_it_is_written(void **state)
{
    (void)state;
    all_cases(nan_and_zero);
}

static void fused_and_lone(const net *n, const net_case *c, const fr_backend *b)
{
    if (!b->fuse) return;
    fr_backend lone = *b;
    lone.fuse = NULL;
    for (int eval = 0; eval < 2; eval++) {
        harness_options options = {.backend = &lone, .batch = c->batch, .eval = eval};
        harness_options fused = options;
        fused.backend = b;
        expect_same_bits(n, c, &options, &fused, "fusion");
    }
}

static void fusion_gives_the_same_bits(void **state)
{
    (void)state;
    all_cases(fused_and_lone);
}

static void repeated(const net *n, const net_case *c, const fr_backend *b)
{
    harness_options options = {.backend = b, .batch = c->batch};
    harness first, again;
    verdict v;
    run_filled(&first, n, &options);
    open_filled(&again, n, &options, 4); /* other weights first, under another id */
    again.pass.weights_id = 1;
    if (harness_run(&again) != FR_OK) fail_msg("%s", fr_ctx_error(again.ctx));
    harness_fill(&again, n, 9);
    again.pass.weights_id = 2;
    for (int i = 0; i < 2; i++) { /* the second time with the cache of the first */
        if (harness_run(&again) != FR_OK) fail_msg("%s", fr_ctx_error(again.ctx));
        if (!harness_same(&v, &again, &first, 0)) blame(&options, c, "derived weights", &v);
    }
    harness_close(&first), harness_close(&again);
}

static void derived_weights_follow_the_weights(void **state)
{
    (void)state;
    all_cases(repeated);
}

/* Accumulating onto gradients gives their sum. */
static void accumulated(const net *n, const net_case *c, const fr_backend *b)
{
    harness_options options = {.backend = b, .batch = c->batch};
    harness first, second;
    verdict v;
    float *sum[HARNESS_MAX_PARAMS] = {0};
    run_filled(&first, n, &options);
    run_filled(&second, n, &options);
    for (int i = 0; i < first.n_params; i++) {
        if (!first.dw[i]) continue;
        sum[i] = malloc(first.n_w[i] * sizeof(float));
        assert_non_null(sum[i]);
        harness_random(8, (uint32_t)i, first.dw[i], first.n_w[i]);
        for (size_t j = 0; j < first.n_w[i]; j++) sum[i][j] = first.dw[i][j] + second.dw[i][j];
    }
    first.pass.accumulate = true;
    if (harness_run(&first) != FR_OK) fail_msg("%s", fr_ctx_error(first.ctx));
    for (int i = 0; i < first.n_params; i++) {
        if (sum[i] && !harness_near(&v, "sum", first.dw[i], sum[i], first.n_w[i], 1e-6))
            blame(&options, c, "accumulation", &v);
        free(sum[i]);
    }
    harness_close(&first), harness_close(&second);
}

static void gradients_accumulate(void **state)
{
    (void)state;
    all_cases(accumulated);
}

/* Requesting the value of an inner node changes nothing else. */
static void extra_output_is_seen(void **state)
{
    (void)state;
    static const net_case c = {
        "a = x 6,5,5; b = conv2d a out=10 kernel=3,3 pad=1,1; d = relu b; e = flatten d; "
        "f = linear e out=4; y = relu f",
        3, 1e-4};
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) {
        static const char *const names[] = {"b", "d", "e", "f"};
        net n;
        harness plain, more;
        verdict v;
        net_build(&n, c.line);
        harness_options options = {.backend = *b, .batch = c.batch};
        run_filled(&plain, &n, &options);
        for (int i = 0; i < 4; i++) {
            options.extra_output = fr_graph_find(n.graph, names[i]);
            run_filled(&more, &n, &options);
            int extra = fr_program_find_output(more.program, options.extra_output);
            assert_int_equal(more.n_out, 2);
            assert_int_equal(extra, 0);
            assert_true(harness_near(&v, "y", more.y[1], plain.y[0], plain.n_y[0], 1e-5));
            assert_true(harness_near(&v, "dx", more.dx[0], plain.dx[0], plain.n_x[0], 1e-4));
            harness_close(&more);
        }
        harness_close(&plain);
        net_free(&n);
    }
}

/* A tied parameter has its owner's values and its own gradient, and adds the gradient to the
 * owner's on request. */
static void tied_parameters_share_values(void **state)
{
    (void)state;
    static const char line[] =
        "t = ids 6 0 20; u = ids 6 0 20; e = embedding t vocab=21 width=16 positions=6; "
        "n = layer_norm e; z = linear n out=21 no_bias=1; y = cross_entropy z u";
    char tied_line[sizeof line + 32];
    snprintf(tied_line, sizeof tied_line, "%s; tie z.weight e.weight", line);
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) {
        net apart_net, tied_net;
        harness apart, tied;
        verdict v;
        harness_options options = {.backend = *b, .batch = 3};
        net_build(&apart_net, line), net_build(&tied_net, tied_line);
        open_filled(&apart, &apart_net, &options, 9), open_filled(&tied, &tied_net, &options, 9);
        enum { OWNER = 0, TIED = 4, N_PARAMS = 5 }; /* e.weight, e.position, n (2), z.weight */
        assert_int_equal(apart.n_params, N_PARAMS);
        assert_int_equal(tied.n_params, N_PARAMS);
        memcpy(apart.w[TIED], apart.w[OWNER], apart.n_w[OWNER] * sizeof(float));
        assert_int_equal(harness_run(&apart), FR_OK);
        assert_int_equal(harness_run(&tied), FR_OK);
        if (!harness_same(&v, &tied, &apart, 1e-6)) fail_msg("%s", v.text);
        fr_program_sum_ties(tied.program, tied.pass.grads);
        float *sum = malloc(tied.n_w[OWNER] * sizeof(float));
        assert_non_null(sum);
        assert_int_equal(fr_program_read_param(tied.program, tied.pass.grads, OWNER, sum), FR_OK);
        for (size_t i = 0; i < tied.n_w[OWNER]; i++)
            tied.dw[OWNER][i] = tied.dw[OWNER][i] + tied.dw[TIED][i];
        assert_true(harness_near(&v, "sum", sum, tied.dw[OWNER], tied.n_w[OWNER], 0));
        free(sum);
        harness_close(&apart), harness_close(&tied);
        net_free(&apart_net), net_free(&tied_net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_agree_with_ref),
        cmocka_unit_test(split_backward_gives_the_same_bits),
        cmocka_unit_test(gradients_are_reported_once),
        cmocka_unit_test(memory_is_not_read_before_it_is_written),
        cmocka_unit_test(fusion_gives_the_same_bits),
        cmocka_unit_test(derived_weights_follow_the_weights),
        cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(extra_output_is_seen),
        cmocka_unit_test(tied_parameters_share_values),
    };
    return cmocka_run_group_tests_name("conformance/backends", tests, NULL, NULL);
}
