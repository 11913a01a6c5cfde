/* test_stages.c -- costs and links of stages, against numbers computed by hand and against the
 * links of the graph. */
#include <forerun/cost.h>
#include <forerun/graph.h>
#include <forerun/models.h>

#include "support/check.h"

#include <math.h>

/* x -> a (3 s back, 100 B) -> relu (1 s) -> b (4 s, 300 B) -> loss; forward 1 s each. */
static const fr_profile *chain(fr_ctx *ctx, bool has_workspaces)
{
    static const int in[4] = {0, 1, 2, 3};
    fr_profile_node nodes[5] = {
        {.is_input = true, .output_bytes = 1000, .forward_s = 99},
        {.backward_s = 3,
         .param_bytes = 100,
         .update_s = 0.25,
         .back_input_s = 1,
         .back_weight_s = 2},
        {.backward_s = 1, .back_input_s = 1, .back_weight_s = 0},
        {.backward_s = 4,
         .param_bytes = 300,
         .update_s = 0.5,
         .back_input_s = NAN,
         .back_weight_s = NAN},
        {.backward_s = 0, .back_input_s = 0, .back_weight_s = 0},
    };
    for (int i = 1; i < 5; i++) {
        nodes[i].forward_s = 1;
        nodes[i].n_inputs = 1;
        nodes[i].inputs = &in[i - 1];
        nodes[i].output_bytes = 10 * i;
        nodes[i].kept_bytes = 100 * i;
        nodes[i].fixed_bytes = 1000 * i;
        if (!has_workspaces) continue;
        nodes[i].values_bytes = 7000 - 1000 * i;
        nodes[i].scratch_bytes = 100 * i;
        nodes[i].edge_bytes = i;
    }
    fr_profile by_hand = {.n_nodes = 5, .nodes = nodes, .workspace_bytes = 5e6};
    const fr_profile *p;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    return p;
}

static const bool every[5] = {true, true, true, true, true};

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-12) fail_msg("%.17g, expected %.17g", a, b);
}

static void sums(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p = chain(ctx, false);
    fr_stage_cost c;
    for (int round = 0; round < 2; round++) { /* the second from the cache */
        assert_ok(ctx, fr_profile_stage(ctx, p, 0, 5, NULL, &c));
        assert_near(c.forward, 4);
        assert_near(c.backward, 8);
        assert_near(c.back_input, 1 + 1 + 2);
        assert_near(c.back_weight, 2 + 0 + 2);
        assert_near(c.step, 0.75);
        assert_int_equal(c.param_bytes, 400);
        assert_int_equal(c.kept_bytes, 1000);
        assert_int_equal(c.fixed_bytes, 10000);
        assert_ok(ctx, fr_profile_stage(ctx, p, 1, 4, every, &c));
        assert_near(c.forward, 3);
        assert_near(c.backward, 8 + 3);
        assert_near(c.back_input, 4 + 3);
        assert_near(c.back_weight, 4);
        assert_int_equal(c.kept_bytes, 30); /* b leaves, a and relu do not */
        assert_ok(ctx, fr_profile_stage(ctx, p, 4, 5, every, &c));
        assert_int_equal(c.kept_bytes, 40); /* read nowhere */
    }
    assert_fails(ctx, fr_profile_stage(ctx, p, 3, 3, NULL, &c), FR_INVALID, "nodes 0 to 4");
    assert_fails(ctx, fr_profile_stage(ctx, p, 0, 6, NULL, &c), FR_INVALID, "nodes 0 to 4");
    fr_profile loose = *p;
    loose.arena = NULL;
    assert_fails(ctx, fr_profile_stage(ctx, &loose, 0, 1, NULL, &c), FR_INVALID, "fr_profile_copy");
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

/* The largest values, the largest scratch, and the bytes across the cuts of the stage. */
static void workspaces(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p = chain(ctx, false);
    fr_stage_cost c;
    assert_ok(ctx, fr_profile_stage(ctx, p, 2, 4, NULL, &c));
    assert_int_equal(c.workspace_bytes, 5000000); /* nodes without these numbers */
    fr_profile_free(p);
    p = chain(ctx, true);
    assert_ok(ctx, fr_profile_stage(ctx, p, 0, 5, NULL, &c));
    assert_int_equal(c.workspace_bytes, 6000 + 400);
    assert_ok(ctx, fr_profile_stage(ctx, p, 0, 2, NULL, &c));
    assert_int_equal(c.workspace_bytes, 6000 + 100 + 1);
    assert_ok(ctx, fr_profile_stage(ctx, p, 2, 4, every, &c));
    assert_int_equal(c.workspace_bytes, 5000 + 300 + 1 + 3);
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

/* b is final after 4 of 8 s, a at the end; recompute goes before the backward. */
static void curves(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    const fr_profile *p = chain(ctx, false);
    fr_stage_cost c;
    assert_ok(ctx, fr_profile_stage(ctx, p, 0, 5, NULL, &c));
    assert_near(c.final.time[0], 0);
    assert_near(c.final.bytes[c.final.n - 1], 1);
    for (int i = 1; i < c.final.n; i++)
        assert_true(c.final.time[i] >= c.final.time[i - 1] &&
                    c.final.bytes[i] >= c.final.bytes[i - 1]);
    assert_near(fr_curve_time(&c.final, 0), 0);
    assert_near(fr_curve_time(&c.final, 0.01), 0.5);
    assert_near(fr_curve_time(&c.final, 0.75), 0.5);
    assert_near(fr_curve_time(&c.final, 0.76), 1);
    assert_near(fr_curve_time(&c.final, 1), 1);
    assert_ok(ctx, fr_profile_stage(ctx, p, 0, 5, every, &c));
    assert_near(c.recompute, 4);
    assert_near(c.backward, 12);
    assert_near(fr_curve_time(&c.final, 0.75), 0.5);
    assert_ok(ctx, fr_profile_stage(ctx, p, 4, 5, NULL, &c));
    assert_int_equal(c.final.n, 0);
    assert_near(fr_curve_time(&c.final, 0.3), 0.3);
    double time[] = {0, 0.5, 1}, bytes[] = {0, 0.8, 1};
    fr_curve straight = {3, time, bytes};
    assert_near(fr_curve_time(&straight, 0.4), 0.25);
    assert_near(fr_curve_time(&straight, 0.9), 0.75);
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

/* More trained nodes than a curve has points: never earlier than the truth, at most 1/64 late. */
static void long_curve(void **state)
{
    enum { N = 1000 };
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_profile_node *nodes = calloc(N, sizeof *nodes);
    for (int i = 0; i < N; i++) nodes[i].backward_s = 1, nodes[i].param_bytes = 4;
    fr_profile by_hand = {.n_nodes = N, .nodes = nodes};
    const fr_profile *p;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    fr_stage_cost c;
    assert_ok(ctx, fr_profile_stage(ctx, p, 0, N, NULL, &c));
    for (double b = 0.001; b < 1; b += 0.001) {
        double t = fr_curve_time(&c.final, b);
        assert_true(t >= b - 1e-9 && t <= b + 1. / 60);
    }
    free(nodes);
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

/* --- links against the graph's ---------------------------------------------------------------- */

static const fr_profile *profile_of(fr_ctx *ctx, const fr_graph *g)
{
    int n = fr_graph_n_nodes(g);
    fr_profile_node *nodes = calloc((size_t)n, sizeof *nodes);
    for (int i = 0; i < n; i++) {
        const fr_node *from = fr_graph_node(g, i);
        nodes[i].name = from->name;
        nodes[i].n_inputs = from->n_inputs;
        nodes[i].inputs = from->inputs;
        nodes[i].is_input = from->op == FR_OP_INPUT;
        nodes[i].output_bytes = 4;
        for (int d = 0; d < from->shape.n_dims; d++) nodes[i].output_bytes *= from->shape.dim[d];
        for (int k = 0; k < from->n_params; k++)
            if (!fr_graph_param(g, from->params[k])->is_buffer) nodes[i].param_bytes += 4;
    }
    fr_profile by_hand = {.n_nodes = n, .nodes = nodes};
    const fr_profile *p;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    free(nodes);
    return p;
}

static void compare_cut(fr_ctx *ctx, fr_graph *g, const fr_profile *p, int n, const int *cuts)
{
    enum { ROOM = 28 };
    fr_stage stages[8];
    fr_stage_link f[ROOM], b[ROOM], pf[ROOM], pb[ROOM];
    size_t fb[ROOM], bb[ROOM];
    int nf, nb, npf, npb;
    assert_ok(ctx, fr_graph_cut(g, n - 1, cuts, stages));
    assert_ok(ctx, fr_graph_links(g, n, stages, &nf, f, &nb, b));
    assert_ok(ctx, fr_profile_links(ctx, p, n, cuts, &npf, pf, fb, &npb, pb, bb));
    assert_int_equal(nf, npf);
    assert_int_equal(nb, npb);
    assert_memory_equal(f, pf, (size_t)nf * sizeof *f);
    assert_memory_equal(b, pb, (size_t)nb * sizeof *b);
    if (n != 2) return;
    size_t sum = 0;
    for (int i = 0; i < npf; i++) sum += fb[i];
    assert_int_equal(sum, fr_graph_cut_bytes(g, cuts[0]));
}

static void links_of_models(void **state)
{
    static const char *const models[] = {"mlp", "resnet50", "gpt", "inception3", "reslstm"};
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        fr_graph *g;
        fr_model_options sizes = {0};
        assert_ok(ctx, fr_model_build(ctx, fr_model_find(models[m]), &sizes, &g));
        const fr_profile *p = profile_of(ctx, g);
        for (int n = 1; n <= 8; n++) {
            int cuts[8];
            assert_ok(ctx, fr_graph_balance(g, n, cuts));
            compare_cut(ctx, g, p, n, cuts);
        }
        fr_profile_free(p);
        fr_graph_free(g);
    }
    fr_ctx_free(ctx);
}

/* A value that two later stages read goes forward to each; its gradient goes 2 -> 1 -> 0. A value
 * without trained weights before it goes forward only. */
static void skip_links(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    static const int zero[] = {0}, one[] = {1}, both[] = {1, 3}, all[] = {1, 2, 4};
    fr_profile_node nodes[] = {
        {.is_input = true, .output_bytes = 1},
        {.output_bytes = 10, .param_bytes = 1, .n_inputs = 1, .inputs = zero}, /* stage 0 */
        {.output_bytes = 7, .n_inputs = 1, .inputs = zero},                    /* nothing trained */
        {.output_bytes = 100, .n_inputs = 1, .inputs = one},                   /* stage 1 */
        {.output_bytes = 1000, .n_inputs = 2, .inputs = both},
        {.output_bytes = 1, .n_inputs = 3, .inputs = all}, /* stage 2 */
    };
    fr_profile by_hand = {.n_nodes = 6, .nodes = nodes};
    const fr_profile *p;
    assert_ok(ctx, fr_profile_copy(ctx, &by_hand, &p));
    fr_stage_link f[3], b[3];
    size_t fb[3], bb[3];
    int nf, nb, cuts[] = {3, 5};
    assert_ok(ctx, fr_profile_links(ctx, p, 3, cuts, &nf, f, fb, &nb, b, bb));
    const fr_stage_link to[] = {{0, 1}, {0, 2}, {1, 2}}, back[] = {{1, 0}, {2, 1}};
    assert_int_equal(nf, 3);
    assert_int_equal(nb, 2);
    assert_memory_equal(f, to, sizeof to);
    assert_memory_equal(b, back, sizeof back);
    assert_true(fb[0] == 10 && fb[1] == 10 + 7 && fb[2] == 1000);
    assert_true(bb[0] == 10 && bb[1] == 10 + 1000);
    int at_input[] = {1, 5}, falling[] = {5, 3};
    assert_fails(ctx, fr_profile_links(ctx, p, 3, at_input, &nf, f, fb, &nb, b, bb), FR_INVALID,
                 "holds inputs only");
    assert_fails(ctx, fr_profile_links(ctx, p, 3, falling, &nf, f, fb, &nb, b, bb), FR_INVALID,
                 "must ascend");
    fr_profile_free(p);
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),       cmocka_unit_test(curves),
        cmocka_unit_test(long_curve), cmocka_unit_test(links_of_models),
        cmocka_unit_test(skip_links), cmocka_unit_test(workspaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
