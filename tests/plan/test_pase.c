/* test_pase.c -- planner pase: its published count, enumeration, the layers of a graph. */
#include "plan/pase.h"

#include "base/philox.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static fr_ctx *ctx; /* of the program */

/* --- numbers ---------------------------------------------------------------------------------- */

/* Linear layers with a relu between them. */
static fr_graph *perceptron(int n, const int *widths)
{
    fr_graph *g;
    char name[16];
    assert_int_equal(fr_graph_create(ctx, "perceptron", &g), FR_OK);
    fr_attrs a = {.input = {.shape = FR_SHAPE(widths[0])}};
    int last = fr_graph_add(g, FR_OP_INPUT, "in", &a, 0, NULL);
    for (int i = 1; i < n; i++) {
        snprintf(name, sizeof name, "l%d", i);
        fr_attrs linear = {.linear = {.out = widths[i]}};
        last = fr_graph_add(g, FR_OP_LINEAR, name, &linear, 1, &last);
        snprintf(name, sizeof name, "r%d", i);
        if (i + 1 < n) last = fr_graph_add(g, FR_OP_RELU, name, NULL, 1, &last);
    }
    assert_int_equal(fr_graph_finish(g), FR_OK);
    return g;
}

static fr_plan *plan_of(const fr_plan_problem *p)
{
    fr_plan *plan = NULL;
    fr_status status = fr_planner_find("pase")->plan(ctx, p, &plan);
    if (status != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    return plan;
}

static void published(void **unused)
{
    (void)unused;
    static const struct {
        int batch, widths[4];
        double ratio, cost, by_batch;
        int split[3][3];
    } rows[] = {
        {64, {1024, 1024, 1024, 16}, 100, 115642368, 418578432, {{1, 2, 2}, {1, 2, 2}, {1, 1, 2}}},
        {64, {1024, 1024, 1024, 16}, 5000, 406192128, 0, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
        {4096, {256, 256, 256, 16}, 100, 437084160, 437084160, {{4, 1, 1}, {4, 1, 1}, {4, 1, 1}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fr_graph *g = perceptron(4, rows[i].widths);
        fr_plan *plan = plan_of(&(fr_plan_problem){
            .graph = g, .batch = rows[i].batch, .n_devices = 4, .ratio = rows[i].ratio});
        const fr_plan_splits *s = plan->splits;
        assert_non_null(s);
        assert_int_equal(s->n, 3);
        assert_true(plan->is_optimal && plan->n_stages == 0);
        if (s->cost != rows[i].cost) fail_msg("%.1f, expected %.1f", s->cost, rows[i].cost);
        if (rows[i].by_batch > 0) assert_true(s->batch_cost == rows[i].by_batch);
        if (i == 1) assert_true(s->whole_cost == s->cost);
        for (int v = 0; v < 3; v++)
            for (int d = 0; d < 3; d++) assert_int_equal(s->at[v].split[d], rows[i].split[v][d]);
        char *json = fr_plan_to_json(plan, NULL);
        assert_non_null(strstr(json, "\"can_run\": false"));
        assert_non_null(strstr(json, "\"name\": \"l2\""));
        fr_text_free(json);
        fr_plan_free(plan);
        fr_graph_free(g);
    }
}

/* --- enumeration ------------------------------------------------------------------------------ */

enum { MOST = 8, MOST_EDGES = 24 };

typedef struct net {
    fr__layers l;
    fr__layer at[MOST];
    fr__layer_edge edges[MOST_EDGES];
    fr_arena arena;
    fr__cuttings ways[MOST];
    uint64_t number;
    uint32_t drawn;
} net;

static int draw(net *n, int least, int most)
{
    uint32_t out[4];
    fr__random4(11, FR_STREAM_SAMPLE, 3, n->number, n->drawn++, out);
    return least + (int)(out[0] % (uint32_t)(most - least + 1));
}

static void make_layer(net *n, int v, int b, int out, int in)
{
    fr__layer *x = &n->at[v];
    *x = (fr__layer){.name = "x", .size = {b, out, in}, .parts = {b, out, in}};
    x->products = 3.0 * b * out * in;
    x->points = 3.0 * draw(n, 0, 2) * b * out;
    x->sum[FR__ROWS] = (double)out * in, x->sum[FR__OUT] = (double)b * in;
    x->sum[FR__IN] = (double)b * out;
    x->reads = draw(n, 0, 3) ? FR__IN : FR__OUT;
}

static void make_net(net *n, uint64_t number)
{
    static const int sizes[] = {4, 6, 8, 16, 24, 64};
    *n = (net){.number = number};
    n->l = (fr__layers){.ctx = ctx, .arena = &n->arena, .at = n->at, .edges = n->edges};
    n->l.n = draw(n, 1, MOST);
    n->l.n_devices = draw(n, 1, n->l.n > 5 ? 3 : 6);
    n->l.ratio = draw(n, 0, 3) * 17.5;
    for (int v = 0; v < n->l.n; v++)
        make_layer(n, v, 16, sizes[draw(n, 0, 5)], sizes[draw(n, 0, 5)]);
    for (int v = 1; v < n->l.n; v++)
        for (int u = 0; u < v && n->l.n_edges < MOST_EDGES; u++)
            if (u == v - 1 ? draw(n, 0, 9) > 0 : draw(n, 0, 2) == 0)
                n->edges[n->l.n_edges++] = (fr__layer_edge){u, v, draw(n, 1, 5) * 64.0};
    double all = 1;
    for (int v = 0; v < n->l.n; v++) {
        assert_int_equal(fr__layer_cuttings(&n->l, v, &n->ways[v]), FR_OK);
        all *= n->ways[v].n;
        if (all <= 20000) continue;
        n->at[v].parts[1] = n->at[v].parts[2] = 1; /* too many to enumerate */
        all /= n->ways[v].n;
        assert_int_equal(fr__layer_cuttings(&n->l, v, &n->ways[v]), FR_OK);
        all *= n->ways[v].n;
    }
}

/* The least cost of layers v and above, those below being cut as in `split`. */
static double enumerate(const net *n, int v, int (*split)[3])
{
    double best = INFINITY;
    if (v == n->l.n) return 0;
    for (int i = 0; i < n->ways[v].n; i++) {
        memcpy(split[v], n->ways[v].at[i], sizeof split[v]);
        double cost = fr__layer_cost(&n->l, v, split[v]);
        for (int e = 0; e < n->l.n_edges; e++)
            if (n->edges[e].to == v)
                cost += fr__edge_cost(&n->l, &n->edges[e], split[n->edges[e].from], split[v]);
        best = fmin(best, cost + enumerate(n, v + 1, split));
    }
    return best;
}

static void check_net(const net *n)
{
    int split[MOST][3], any[MOST][3];
    double cost, least = enumerate(n, 0, any);
    assert_int_equal(fr__layers_solve(&n->l, split, &cost), FR_OK);
    if (fabs(cost - least) > 1e-9 * least)
        fail_msg("graph %d: %.9g, least %.9g", (int)n->number, cost, least);
    if (fabs(cost - fr__layers_cost(&n->l, split)) > 1e-9 * least)
        fail_msg("graph %d: splits do not have the cost", (int)n->number);
    for (int v = 0; v < n->l.n; v++) {
        const int *c = split[v];
        assert_true(c[0] * c[1] * c[2] <= n->l.n_devices);
        for (int d = 0; d < 3; d++)
            assert_true(c[d] == 1 ||
                        (n->at[v].parts[d] % c[d] == 0 && n->at[v].parts[d] / c[d] >= 4));
    }
}

static void equals_enumeration(void **unused)
{
    (void)unused;
    for (uint64_t i = 0; i < 1000; i++) {
        net n;
        make_net(&n, i);
        check_net(&n);
        fr__arena_fini(&n.arena);
    }
}

/* Layer 0 is read by 1 and 2, layer 3 reads both; then two of them in a row. */
static void diamonds(void **unused)
{
    (void)unused;
    static const int ends[][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}, {3, 5}, {4, 6}, {5, 6}};
    for (int many = 0; many < 2; many++)
        for (uint64_t i = 0; i < 20; i++) {
            net n = {.number = 5000 + i};
            n.l = (fr__layers){.ctx = ctx, .arena = &n.arena, .at = n.at, .edges = n.edges};
            n.l.n = many ? 7 : 4, n.l.n_edges = many ? 8 : 4;
            n.l.n_devices = many ? 2 : 4, n.l.ratio = draw(&n, 1, 200);
            for (int v = 0; v < n.l.n; v++) make_layer(&n, v, 16, 64, 64);
            for (int e = 0; e < n.l.n_edges; e++)
                n.edges[e] = (fr__layer_edge){ends[e][0], ends[e][1], 16 * 64};
            for (int v = 0; v < n.l.n; v++)
                assert_int_equal(fr__layer_cuttings(&n.l, v, &n.ways[v]), FR_OK);
            check_net(&n);
            fr__arena_fini(&n.arena);
        }
}

/* --- layers of a graph ------------------------------------------------------------------------ */

static void expect_layer(const fr__layers *l, int v, const char *name, const double size[3],
                         const int64_t parts[3], double points)
{
    const fr__layer *x = &l->at[v];
    assert_string_equal(x->name, name);
    for (int d = 0; d < 3; d++) {
        if (x->size[d] != size[d]) fail_msg("%s: size %d is %g", name, d, x->size[d]);
        if (x->parts[d] != parts[d]) fail_msg("%s: parts %d: %d", name, d, (int)x->parts[d]);
    }
    if (x->points != points) fail_msg("%s: %g pointwise operations", name, x->points);
}

static int node(fr_graph *g, fr_operator op, const char *name, fr_attrs a, int n, const int *inputs)
{
    return fr_graph_add(g, op, name, &a, n, inputs);
}
#define NODE(op, name, attrs, ...)                                                                \
    node(g, FR_OP_##op, name, (fr_attrs)attrs, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), \
         (int[]){__VA_ARGS__})
#define WITH(...)   \
    {               \
        __VA_ARGS__ \
    }

static void text_layers(void **unused)
{
    (void)unused;
    fr_graph *g;
    fr_arena a = {0};
    fr__layers l;
    assert_int_equal(fr_graph_create(ctx, "text", &g), FR_OK);
    fr_attrs ids = {.input = {.shape = FR_SHAPE(6), .dtype = FR_I32}};
    int in = fr_graph_add(g, FR_OP_INPUT, "in", &ids, 0, NULL);
    int e = NODE(EMBEDDING, "e", WITH(.embedding = {.vocab = 100, .width = 8}), in);
    int q = NODE(LINEAR, "q", WITH(.linear = {.out = 24}), e);
    int t = NODE(ATTENTION, "t", WITH(.attention = {.heads = 2}), q);
    int s = NODE(ADD, "s", WITH(.weight_init = {.kind = FR_INIT_DEFAULT}), e, t);
    int n = NODE(LAYER_NORM, "n", WITH(.norm = {.eps = 1e-5f}), s);
    NODE(LSTM, "r", WITH(.lstm = {.hidden = 16, .projection = 4}), n);
    assert_int_equal(fr_graph_finish(g), FR_OK);
    assert_int_equal(fr__layers_of(ctx, &a, g, 10, &l), FR_OK);
    assert_int_equal(l.n, 6);
    expect_layer(&l, 0, "e", (double[]){60, 8, 100}, (int64_t[]){10, 8, 100}, 3 * 480);
    expect_layer(&l, 1, "q", (double[]){60, 24, 8}, (int64_t[]){10, 24, 8}, 0);
    expect_layer(&l, 2, "t", (double[]){60, 8, 12}, (int64_t[]){10, 2, 1}, 0);
    expect_layer(&l, 3, "s", (double[]){60, 8, 1}, (int64_t[]){10, 8, 1}, 2 * 3 * 480);
    expect_layer(&l, 4, "r", (double[]){60, 64, 12}, (int64_t[]){10, 16, 8}, 0);
    expect_layer(&l, 5, "r.projection", (double[]){60, 4, 16}, (int64_t[]){10, 4, 16}, 0);
    assert_true(l.at[0].products == 0 && l.at[2].products == 3 * 60 * 8 * 12);
    assert_int_equal(l.n_edges, 6);
    static const fr__layer_edge edges[] = {{0, 1, 480}, {1, 2, 1440}, {0, 3, 480},
                                           {2, 3, 480}, {4, 5, 960},  {3, 4, 480}};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(l.edges[i].from, edges[i].from);
        assert_int_equal(l.edges[i].to, edges[i].to);
        assert_true(l.edges[i].words == edges[i].words);
    }
    fr__arena_fini(&a);
    fr_graph_free(g);
}

static void image_layers(void **unused)
{
    (void)unused;
    fr_graph *g;
    fr_arena a = {0};
    fr__layers l;
    assert_int_equal(fr_graph_create(ctx, "image", &g), FR_OK);
    fr_attrs image = {.input = {.shape = FR_SHAPE(4, 8, 8)}};
    int in = fr_graph_add(g, FR_OP_INPUT, "in", &image, 0, NULL);
    int c = NODE(CONV2D, "c", WITH(.conv2d = {.out = 16, .kernel = {3, 3}, .pad = {1, 1}}), in);
    int r = NODE(RELU, "r", WITH(.weight_init = {.kind = FR_INIT_DEFAULT}), c);
    int p = NODE(MAX_POOL, "p", WITH(.pool = {.kernel = {2, 2}}), r);
    int f = NODE(FLATTEN, "f", WITH(.weight_init = {.kind = FR_INIT_DEFAULT}), p);
    NODE(LINEAR, "h", WITH(.linear = {.out = 12}), f);
    assert_int_equal(fr_graph_finish(g), FR_OK);
    assert_int_equal(fr__layers_of(ctx, &a, g, 32, &l), FR_OK);
    assert_int_equal(l.n, 2);
    expect_layer(&l, 0, "c", (double[]){32 * 64, 16, 36}, (int64_t[]){32, 16, 4},
                 3 * (32.0 * 16 * 64 + 32 * 16 * 16));
    expect_layer(&l, 1, "h", (double[]){32, 12, 256}, (int64_t[]){32, 12, 256}, 0);
    assert_int_equal(l.n_edges, 1);
    assert_true(l.edges[0].words == 32 * 256);
    fr__arena_fini(&a);
    fr_graph_free(g);
}

/* --- ratio, refusals, memory ------------------------------------------------------------------ */

static void refused(const fr_plan_problem *p, fr_status expected, const char *text)
{
    fr_plan *plan = NULL;
    assert_int_equal(fr_planner_find("pase")->plan(ctx, p, &plan), expected);
    assert_null(plan);
    if (!strstr(fr_ctx_error(ctx), text)) fail_msg("%s", fr_ctx_error(ctx));
}

static void ratios_and_refusals(void **unused)
{
    (void)unused;
    fr_graph *g = perceptron(3, (int[]){16, 16, 8});
    fr_cluster *c;
    assert_int_equal(fr_cluster_flat(ctx, 3, 4e9, 0, &c), FR_OK);
    fr_plan_problem p = {.graph = g, .batch = 32, .cluster = c};
    for (int i = 0; i < 3; i++) c->devices[i].speed = 2;
    refused(&p, FR_INVALID, "has no FLOP/s");
    p.machine_flops = 1e12;
    c->devices[1].flops = 1.5e12;
    fr_plan *plan = plan_of(&p);
    assert_int_equal(plan->splits->n_devices, 3);
    assert_true(fabs(plan->splits->ratio - 1500) < 1e-9);
    fr_plan_free(plan);
    p.ratio = 7, p.n_devices = 2;
    plan = plan_of(&p);
    assert_int_equal(plan->splits->n_devices, 2);
    assert_true(plan->splits->ratio == 7);
    fr_plan_free(plan);
    refused(&(fr_plan_problem){.graph = g, .batch = 8, .n_devices = 2}, FR_INVALID, "the ratio");
    refused(&(fr_plan_problem){.graph = g, .batch = 8, .n_devices = 100000, .ratio = 1}, FR_INVALID,
            "100000 devices");
    refused(&(fr_plan_problem){.n_devices = 2, .ratio = 1}, FR_UNSUPPORTED, "give a config");
    fr_cluster_free(c);
    fr_graph_free(g);
}

/* All layers read each other: tables over all of them are refused. */
static void too_many(void **unused)
{
    (void)unused;
    net n = {.number = 1};
    double cost;
    int split[MOST][3];
    n.l = (fr__layers){.ctx = ctx, .arena = &n.arena, .at = n.at, .edges = n.edges, .n = 7};
    n.l.n_devices = 64, n.l.ratio = 1;
    for (int v = 0; v < 7; v++) make_layer(&n, v, 1024, 1024, 1024);
    for (int v = 0; v < 7; v++)
        for (int u = 0; u < v; u++) n.edges[n.l.n_edges++] = (fr__layer_edge){u, v, 1};
    assert_int_equal(fr__layers_solve(&n.l, split, &cost), FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(ctx), "fewer devices"));
    fr__arena_fini(&n.arena);
}

static void out_of_memory(void **unused)
{
    (void)unused;
    fr_graph *g = perceptron(4, (int[]){16, 16, 16, 8});
    const fr_plan_problem p = {.graph = g, .batch = 32, .n_devices = 4, .ratio = 10};
    fr_status status = FR_NO_MEMORY;
    int k = 0;
    for (; status == FR_NO_MEMORY; k++) {
        fr_plan *plan = NULL;
        fr__alloc_fail_after(k);
        status = fr_planner_find("pase")->plan(ctx, &p, &plan);
        fr__alloc_fail_after(-1);
        assert_true(!plan == (status != FR_OK));
        fr_plan_free(plan);
        assert_true(k < 10000);
    }
    assert_int_equal(status, FR_OK);
    assert_true(k > 3);
    fr_graph_free(g);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published),    cmocka_unit_test(equals_enumeration),
        cmocka_unit_test(diamonds),     cmocka_unit_test(text_layers),
        cmocka_unit_test(image_layers), cmocka_unit_test(ratios_and_refusals),
        cmocka_unit_test(too_many),     cmocka_unit_test(out_of_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fr_ctx_free(ctx);
    return failed;
}
