/* test_by_operator.c -- a profile by kind of operator: nothing is lost or counted twice, kernels of
 * several nodes are one kind, and no projection is above the time it projects. */
#include <forerun/models.h>
#include <forerun/probe.h>

#include "support/check.h"

#include <math.h>

enum { N_SMALL = 2 }; /* models that are fast on every backend, and beside a sanitizer */
#ifdef FR_SANITIZED
enum { N_MODELS = N_SMALL };
#else
enum { N_MODELS = 5 };
#endif

static const fr_operator_cost *row(const fr_operator_table *t, const char *kind)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->at[i].kind, kind) == 0) return &t->at[i];
    fail_msg("there is no row %s", kind);
    return NULL;
}

static void assert_real(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.15g; expected %.15g", value, expected);
}

/* A convolution with its relu, two linear layers, a norm with a sum; an input whose time does not
 * count; a view that takes none. 2 micro-batches. */
static const int to[] = {0, 1, 2, 3, 4, 5, 6, 1, 7};
static fr_profile_node nodes[] = {
    {.name = "x", .about = "input (4)", .is_input = true, .forward_s = 9},
    {.name = "a",
     .about = "conv2d (2, 3)",
     .forward_s = 1,
     .backward_s = 3,
     .back_input_s = 1,
     .back_weight_s = 2,
     .flops = 30,
     .param_bytes = 8,
     .update_s = 0.5,
     .n_inputs = 1,
     .inputs = &to[0]},
    {.name = "b", .about = "relu (2, 3)", .flops = 2, .n_inputs = 1, .inputs = &to[1]},
    {.name = "c", .about = "flatten (6)", .n_inputs = 1, .inputs = &to[2]},
    {.name = "d",
     .about = "linear (2)",
     .forward_s = 2,
     .backward_s = 2,
     .back_input_s = NAN,
     .back_weight_s = NAN,
     .flops = 40,
     .param_bytes = 8,
     .update_s = 0.25,
     .fetch_forward_s = 0.125,
     .n_inputs = 1,
     .inputs = &to[3]},
    {.name = "e",
     .about = "linear (2)",
     .forward_s = 1,
     .backward_s = 1,
     .back_input_s = 1,
     .flops = 60,
     .n_inputs = 1,
     .inputs = &to[4]},
    {.name = "f", .about = "Pool(2), max", .forward_s = 0.5, .n_inputs = 1, .inputs = &to[5]},
    {.name = "g",
     .about = "norm (2)",
     .forward_s = 0.25,
     .flops = 1,
     .n_inputs = 1,
     .inputs = &to[6]},
    {.name = "h", .about = "add (2)", .flops = 1, .n_inputs = 2, .inputs = &to[7]}, /* a + g */
};

static fr_profile hand_made(void)
{
    return (fr_profile){.model = "hand-made",
                        .batch = 4,
                        .n_micro = 2,
                        .n_nodes = sizeof nodes / sizeof *nodes,
                        .nodes = nodes,
                        .step_s = 24};
}

static void formulas(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_profile made = hand_made();
    const fr_profile *p;
    fr_operator_table t;
    assert_ok(ctx, fr_profile_copy(ctx, &made, &p));
    assert_ok(ctx, fr_profile_by_operator(ctx, p, &t));
    static const char *const order[] = {"linear", "conv2d+relu", "Pool", "norm+add",
                                        "update", "prediction",  "other"};
    assert_int_equal(t.n, sizeof order / sizeof *order);
    for (int i = 0; i < t.n; i++) assert_string_equal(t.at[i].kind, order[i]);
    const fr_operator_cost *r = row(&t, "conv2d+relu");
    assert_int_equal(r->calls, 2);
    assert_real(r->forward_s, 2), assert_real(r->back_input_s, 2), assert_real(r->back_weight_s, 4);
    assert_real(r->total_s, 8), assert_real(r->flops, 64), assert_real(r->best_flops_per_s, 8);
    assert_real(r->projected_s, 8);
    r = row(&t, "linear"); /* 80 in 8 s and 120 in 4 s; halves of a backward in one */
    assert_int_equal(r->calls, 4);
    assert_real(r->forward_s, 6), assert_real(r->back_input_s, 4), assert_real(r->back_weight_s, 2);
    assert_real(r->total_s, 12), assert_real(r->flops, 200), assert_real(r->best_flops_per_s, 30);
    assert_real(r->projected_s, 200 / 30.0);
    r = row(&t, "Pool"); /* without a count: no rate, no projection */
    assert_real(r->total_s, 1), assert_real(r->flops, 0), assert_real(r->projected_s, 1);
    assert_real(row(&t, "norm+add")->flops, 4);
    assert_real(row(&t, "update")->total_s, 0.75);
    assert_int_equal(row(&t, "update")->calls, 2);
    assert_real(row(&t, "prediction")->total_s, 0.125);
    assert_real(row(&t, "other")->total_s, 24 - 22.375);
    assert_real(t.step_s, 24), assert_real(t.sum_s, 24);
    assert_real(t.projected_s, 24 - 12 + 200 / 30.0);
    fr_operator_table_free(&t);
    fr_profile_free(p);

    made.step_s = 0; /* not measured: rows are all there is */
    assert_ok(ctx, fr_profile_copy(ctx, &made, &p));
    assert_ok(ctx, fr_profile_by_operator(ctx, p, &t));
    assert_int_equal(t.n, 6);
    assert_real(t.step_s, 22.375), assert_real(t.sum_s, 22.375);
    fr_operator_table_free(&t);
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

static fr_probe_desc describe(const fr_graph *g, const char *backend)
{
    fr_probe_desc d = {.graph = g,
                       .backend = fr_backend_find(backend),
                       .n_threads = 1,
                       .batch = 4,
                       .n_micro = 2,
                       .update_in_backward = true,
                       .optimizer = fr_optim_find("sgd"),
                       .seconds = 0.01};
    d.optimizer->defaults(&d.options);
    d.options.lr = 0.1, d.options.momentum = 0.9;
    return d;
}

/* Measured: rows are the whole step, operations those of the graph, whatever the backend fuses. */
static void assert_whole(fr_ctx *ctx, const fr_graph *g, const char *backend)
{
    fr_probe_desc d = describe(g, backend);
    const fr_profile *p;
    fr_operator_table t;
    double sum = 0, flops = 0, expected = 0, projected = 0;
    assert_ok(ctx, fr_probe_nodes(ctx, 1, &d, &p));
    assert_ok(ctx, fr_profile_by_operator(ctx, p, &t));
    for (int i = 0; i < t.n; i++) {
        const fr_operator_cost *r = &t.at[i];
        sum += r->total_s;
        flops += r->flops;
        projected += r->projected_s;
        assert_true(r->total_s > 0 && r->projected_s > 0 && r->projected_s <= r->total_s);
        double parts = r->forward_s + r->back_input_s + r->back_weight_s;
        if (r->flops > 0) {
            assert_true(fabs(parts - r->total_s) <= 1e-9 * r->total_s && r->calls > 0);
            assert_true(r->flops / r->total_s <= r->best_flops_per_s * (1 + 1e-9));
        }
    }
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        expected += 8 * (n->flops_forward + n->flops_back_input + n->flops_back_weight);
    }
    (void)row(&t, "update");
    (void)row(&t, "cross_entropy");
    assert_true(fabs(sum - t.sum_s) <= 1e-9 * sum && fabs(projected - t.projected_s) <= 1e-9 * sum);
    assert_true(t.step_s == p->step_s && sum >= (1 - 1e-9) * t.step_s);
    if (!(fabs(flops - expected) <= 1e-9 * expected))
        fail_msg("%s on %s: %g operations, the graph has %g", fr_graph_name(g), backend, flops,
                 expected);
    fr_operator_table_free(&t);
    fr_profile_free(p);
}

static void measured(void **state)
{
    static const char *const names[] = {"mlp", "gpt", "cnn", "reslstm", "resnet50"};
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    for (int i = 0; i < N_MODELS; i++)
        for (const fr_backend *const *b = fr_backend_list(); *b; b++) {
            fr_graph *g;
            if (i >= N_SMALL && b != fr_backend_list()) continue;
#ifdef __SANITIZE_THREAD__ /* it does not see through OpenMP */
            if (strcmp(fr_backend_name(*b), "ref") != 0) continue;
#endif
            fr_model_options o = {.depth = 3,
                                  .width = 16,
                                  .layers = 2,
                                  .heads = 2,
                                  .context = 8,
                                  .vocab = 20,
                                  .classes = 5,
                                  .image = 32,
                                  .width_factor = 0.1};
            assert_ok(ctx, fr_model_build(ctx, fr_model_find(names[i]), &o, &g));
            assert_whole(ctx, g, fr_backend_name(*b));
            fr_graph_free(g);
        }
    fr_ctx_free(ctx);
}

static void peak(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip_because("a rate", "ThreadSanitizer does not see through OpenMP, and ref is slow");
#endif
    fr_ctx *ctx = fr_ctx_create();
    fr_probe_desc d = describe(NULL, fr_backend_name(fr_backend_list()[0]));
    double flops_per_s;
    assert_ok(ctx, fr_probe_peak(ctx, 2, &d, FR_F32, &flops_per_s));
    assert_true(flops_per_s > 0 && isfinite(flops_per_s));
    fr_ctx_free(ctx);
}

static fr_status tabulate(fr_ctx *ctx, void *profile)
{
    fr_operator_table t;
    fr_status status = fr_profile_by_operator(ctx, profile, &t);
    fr_operator_table_free(&t);
    return status;
}

static void no_memory(void **state)
{
    (void)state;
    fr_profile p = hand_made();
    assert_true(support_walk_memory(tabulate, &p) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formulas), cmocka_unit_test(measured),
                                       cmocka_unit_test(peak), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
