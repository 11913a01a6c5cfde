/* test_nodes.c -- measured profiles: the whole time of a step and all memory are accounted for,
 * with any policy, cut and kind of update. */
#include <forerun/models.h>
#include <forerun/probe.h>

#include "base/thread.h"
#include "support/check.h"

#include <math.h>

#ifdef FR_SANITIZED /* slow, and a few cases suffice */
enum { STRIDE = 3, N_MODELS = 2 };
#else
enum { STRIDE = 1, N_MODELS = 7 };
#endif

/* ThreadSanitizer does not see through OpenMP. */
static const fr_backend *backend(void)
{
#ifdef __SANITIZE_THREAD__
    return fr_backend_find("ref");
#else
    return fr_backend_list()[0];
#endif
}

static fr_graph *build(fr_ctx *ctx, const char *name)
{
    fr_graph *g;
    fr_model_options o = {.depth = 4,
                          .width = 64,
                          .layers = 2,
                          .heads = 2,
                          .context = 16,
                          .vocab = 50,
                          .classes = 10,
                          .image = 32,
                          .width_factor = 0.25,
                          .tied = strcmp(name, "gpt") == 0};
    assert_ok(ctx, fr_model_build(ctx, fr_model_find(name), &o, &g));
    return g;
}

static fr_probe_desc describe(const fr_graph *g, const char *policy)
{
    fr_probe_desc d = {.graph = g,
                       .backend = backend(),
                       .n_threads = 1,
                       .batch = 8,
                       .n_micro = 2,
                       .update_in_backward = true,
                       .optimizer = fr_optim_find("sgd"),
                       .policy = fr_policy_find(policy),
                       .seconds = 0.05};
    d.optimizer->defaults(&d.options);
    d.options.lr = 0.1, d.options.momentum = 0.9;
    return d;
}

/* Seconds of a mini-batch that the nodes account for. The share depends on the load of the machine.
 */
static double assert_whole(const fr_profile *p)
{
    double sum = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const fr_profile_node *n = &p->nodes[i];
        assert_true(n->forward_s >= 0 && n->backward_s >= 0 && n->update_s >= 0);
        assert_true(fabs(n->back_input_s + n->back_weight_s - n->backward_s) < 1e-12);
        if (n->is_input) assert_true(n->forward_s == 0 && n->kept_bytes == 0);
        if (n->param_bytes > 0) assert_true(n->update_s > 0 && n->back_weight_s > 0);
        double fetch = n->fetch_forward_s + n->fetch_backward_s;
        if (n->param_bytes > 0) assert_true(n->fetch_forward_s > 0 && n->fetch_backward_s > 0);
        if (n->param_bytes == 0) assert_true(n->update_s == 0 && fetch == 0);
        sum += p->n_micro * (n->forward_s + n->backward_s) + n->update_s + fetch;
    }
    assert_true(p->step_s > 0);
    assert_true(fabs(sum / p->step_s - p->accounted) < 1e-9);
    return sum;
}

static void models(void **state)
{
    static const char *const names[] = {"mlp",         "gpt",      "cnn", "reslstm",
                                        "transformer", "resnet50", "gnmt"};
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    for (int i = 0; i < N_MODELS; i++) {
        fr_graph *g = build(ctx, names[i]);
        fr_probe_desc d = describe(g, "live");
        const fr_profile *p;
        assert_ok(ctx, fr_probe_nodes(ctx, 1, &d, &p));
        double sum = assert_whole(p);
        assert_string_equal(p->model, fr_graph_name(g));
        assert_non_null(strstr(p->machine, "1 at once"));
        assert_int_equal(p->n_nodes, fr_graph_n_nodes(g));
        double flops = 0;
        int64_t fixed = 0;
        int64_t n_params = 0;
        for (int k = 0; k < p->n_nodes; k++) {
            const fr_node *n = fr_graph_node(g, k);
            assert_string_equal(p->nodes[k].name, n->name);
            assert_int_equal(p->nodes[k].is_input, n->op == FR_OP_INPUT);
            assert_int_equal(p->nodes[k].n_inputs, n->n_inputs);
            assert_int_equal(p->nodes[k].output_bytes, 8 * 4 * fr_shape_count(&n->shape));
            flops += p->nodes[k].flops;
            fixed += p->nodes[k].fixed_bytes;
            n_params += p->nodes[k].param_bytes / 4;
        }
        assert_true(flops > 0);
        if (strcmp(names[i], "mlp") == 0) assert_int_equal(fixed, 0);
        if (strcmp(names[i], "resnet50") == 0) assert_true(fixed > 0); /* batch norm */
        assert_true(n_params >= fr_graph_param_count(g) &&             /* padding */
                    (double)n_params < 1.5 * (double)fr_graph_param_count(g));
        assert_true(p->state_per_weight == 1 && p->batch == 8 && p->n_micro == 2);
        fr_stage_cost cost;
        assert_ok(ctx, fr_profile_stage(ctx, p, 0, p->n_nodes, NULL, &cost));
        double parts = 2 * (cost.forward + cost.backward) + cost.step + cost.fetch_forward +
                       cost.fetch_backward;
        assert_true(fabs(parts - sum) < 1e-9 * sum);
        fr_profile_free(p);
        fr_graph_free(g);
    }
    fr_ctx_free(ctx);
}

static size_t slot_bytes(fr_ctx *ctx, const fr_graph *g, const fr_stage *stage, bool split)
{
    fr_device *dev;
    fr_program *program;
    fr_program_desc d = {
        .graph = g, .stage = stage, .batch = 8, .training = true, .split_backward = split};
    assert_ok(ctx, fr_device_open(ctx, backend(), &(fr_device_desc){.n_threads = 1}, &dev));
    assert_ok(ctx, fr_program_create(ctx, dev, &d, &program));
    size_t bytes = fr_program_sizes_of(program)->slot_bytes;
    fr_program_free(program);
    fr_device_close(dev);
    return bytes;
}

/* Both stages of a cut at the same time, under every policy, combined into one profile. */
static void stages_at_once(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = build(ctx, "mlp");
    int cut;
    fr_stage stages[2];
    assert_ok(ctx, fr_graph_balance(g, 2, &cut));
    assert_ok(ctx, fr_graph_cut(g, 1, &cut, stages));
    for (const fr_policy *const *policy = fr_policy_list(); *policy; policy++)
        for (int way = 0; way < 4; way += STRIDE) { /* fused or not, split or not */
            fr_probe_desc d[2];
            const fr_profile *parts[2], *whole;
            for (int k = 0; k < 2; k++) {
                d[k] = describe(g, (*policy)->name);
                d[k].stage = &stages[k];
                d[k].context = (fr_policy_context){.stage = k, .n_stages = 2, .lead = 1 - k};
                d[k].update_in_backward = way & 1;
                d[k].split_backward = way & 2;
                d[k].seconds = 0.005;
            }
            assert_ok(ctx, fr_probe_nodes(ctx, 2, d, parts));
            for (int k = 0; k < 2; k++) {
                int64_t kept = 0;
                (void)assert_whole(parts[k]);
                for (int i = 0; i < parts[k]->n_nodes; i++) kept += parts[k]->nodes[i].kept_bytes;
                assert_int_equal(kept, slot_bytes(ctx, g, &stages[k], way & 2));
                assert_non_null(strstr(parts[k]->machine, "2 at once"));
            }
            assert_ok(ctx, fr_profile_join(ctx, 2, (const fr_profile *const *)parts, &whole));
            assert_int_equal(whole->n_nodes, fr_graph_n_nodes(g));
            for (int i = 0; i < whole->n_nodes; i++)
                assert_string_equal(whole->nodes[i].name, fr_graph_node(g, i)->name);
            fr_profile_free(parts[0]);
            fr_profile_free(parts[1]);
            fr_profile_free(whole);
        }
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

/* One of two cannot be set up: both end, and there is no result. */
static void failures(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = build(ctx, "mlp");
    fr_probe_desc d[2] = {describe(g, "live"), describe(g, "live")};
    const fr_profile *out[2];
    d[1].batch = 0;
    assert_fails(ctx, fr_probe_nodes(ctx, 2, d, out), FR_INVALID, "of 0 samples");
    assert_null(out[0]);
    assert_null(out[1]);
    d[1] = describe(g, "double-buffer");
    d[1].context = (fr_policy_context){.n_stages = 4, .lead = 3};
    assert_fails(ctx, fr_probe_nodes(ctx, 2, d, out), FR_INVALID, "double-buffer");
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

static fr_status probe_once(fr_ctx *ctx, void *graph)
{
    fr_probe_desc d = describe(graph, "spectrain");
    const fr_profile *p;
    d.backend = fr_backend_find("ref"); /* compiles in no time */
    d.context = (fr_policy_context){.n_stages = 2, .lead = 1};
    d.seconds = 0;
    fr_status status = fr_probe_nodes(ctx, 1, &d, &p);
    fr_profile_free(p);
    return status;
}

/* Terabytes are refused before any memory is allocated. */
static void too_large(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g;
    fr_model_options o = {.inputs = 64, .depth = 12, .width = 260000, .classes = 4};
    size_t before = fr__peak_rss();
    assert_ok(ctx, fr_model_build(ctx, fr_model_find("mlp"), &o, &g));
    fr_probe_desc d = describe(g, "live");
    const fr_profile *p;
    assert_fails(ctx, fr_probe_nodes(ctx, 1, &d, &p), FR_NO_MEMORY, "are available");
    assert_true(fr__peak_rss() - before < (size_t)100 << 20);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

static void no_memory(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g = build(ctx, "mlp");
    assert_true(support_walk_memory(probe_once, g) > 10);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models),    cmocka_unit_test(stages_at_once), cmocka_unit_test(failures),
        cmocka_unit_test(too_large), cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
