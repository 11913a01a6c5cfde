/* test_cuts.c -- every model cut into balanced stages, and links across skips and branches. */
#include <forerun/models.h>

#include "support/check.h"

enum { MAX_STAGES = 8, MAX_LINKS = MAX_STAGES * (MAX_STAGES - 1) / 2 };

typedef struct cut_model {
    fr_ctx *ctx;
    fr_graph *g;
    int n_stages, n_forward, n_backward;
    fr_stage stages[MAX_STAGES];
    fr_stage_link forward[MAX_LINKS], backward[MAX_LINKS];
} cut_model;

static void open_model(cut_model *m, const fr_model *model, const fr_model_options *o)
{
    *m = (cut_model){.ctx = fr_ctx_create()};
    assert_non_null(m->ctx);
    assert_ok(m->ctx, fr_model_build(m->ctx, model, o, &m->g));
}

static void close_model(cut_model *m)
{
    fr_graph_free(m->g);
    fr_ctx_free(m->ctx);
}

static void cut(cut_model *m, int n_stages, const int *cuts)
{
    m->n_stages = n_stages;
    assert_ok(m->ctx, fr_graph_cut(m->g, n_stages - 1, cuts, m->stages));
    assert_ok(m->ctx, fr_graph_links(m->g, n_stages, m->stages, &m->n_forward, m->forward,
                                     &m->n_backward, m->backward));
}

static bool has_link(int n, const fr_stage_link *links, int from, int to)
{
    for (int i = 0; i < n; i++)
        if (links[i].from == from && links[i].to == to) return true;
    return false;
}

static int stage_of(const cut_model *m, int node)
{
    int s = 0;
    while (node >= m->stages[s].last) s++;
    return s;
}

/* The definition, edge by edge: every edge between stages has a forward link, backward links lead
 * from each reader of a value to its producer, and no other links exist. */
static void check_links(const cut_model *m)
{
    bool is_caused[2][MAX_STAGES][MAX_STAGES] = {{{false}}};
    for (int x = 0; x < fr_graph_n_nodes(m->g); x++) {
        const fr_node *node = fr_graph_node(m->g, x);
        bool reads[MAX_STAGES] = {false};
        if (node->op == FR_OP_INPUT) continue;
        for (int y = x + 1; y < fr_graph_n_nodes(m->g); y++)
            for (int k = 0; k < fr_graph_node(m->g, y)->n_inputs; k++)
                if (fr_graph_node(m->g, y)->inputs[k] == x) reads[stage_of(m, y)] = true;
        int home = stage_of(m, x), before = home;
        for (int s = home + 1; s < m->n_stages; s++) {
            if (!reads[s]) continue;
            is_caused[0][home][s] = true;
            if (node->needs_grad) is_caused[1][s][before] = true;
            before = s;
        }
    }
    for (int a = 0; a < m->n_stages; a++)
        for (int b = 0; b < m->n_stages; b++) {
            assert_int_equal(has_link(m->n_forward, m->forward, a, b), is_caused[0][a][b]);
            assert_int_equal(has_link(m->n_backward, m->backward, a, b), is_caused[1][a][b]);
        }
    for (int i = 1; i < m->n_forward; i++)
        assert_true(m->forward[i - 1].from * 64 + m->forward[i - 1].to <
                    m->forward[i].from * 64 + m->forward[i].to);
    for (int i = 1; i < m->n_backward; i++)
        assert_true(m->backward[i - 1].from * 64 + m->backward[i - 1].to <
                    m->backward[i].from * 64 + m->backward[i].to);
}

static double stage_flops(const cut_model *m, int s)
{
    double sum = 0;
    for (int i = m->stages[s].first; i < m->stages[s].last; i++) {
        const fr_node *node = fr_graph_node(m->g, i);
        sum += node->flops_forward + node->flops_back_input + node->flops_back_weight;
    }
    return sum;
}

static bool is_trained(const cut_model *m, int s)
{
    for (int i = m->stages[s].first; i < m->stages[s].last; i++)
        if (fr_graph_node(m->g, i)->n_params > 0) return true;
    return false;
}

static void every_model_is_cut(void **state)
{
    (void)state;
    int n_models = 0;
    for (const fr_model *const *model = fr_model_list(); *model; model++, n_models++) {
        cut_model m;
        open_model(&m, *model, &(fr_model_options){0});
        static const int counts[] = {1, 2, 3, 4, 8};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            int cuts[MAX_STAGES], n = counts[k], n_bare = 0;
            assert_ok(m.ctx, fr_graph_balance(m.g, n, cuts));
            cut(&m, n, cuts);
            check_links(&m);
            for (int s = 0; s < n; s++) n_bare += !is_trained(&m, s);
            /* lenet has five layers with parameters, biglstm four; all others have enough. */
            int n_layers = strcmp((*model)->name, "lenet") == 0     ? 5
                           : strcmp((*model)->name, "biglstm") == 0 ? 4
                                                                    : n;
            assert_int_equal(n_bare, n > n_layers ? n - n_layers : 0);
        }
        close_model(&m);
    }
    assert_int_equal(n_models, 15);
}

/* Largest stage over the mean, in FLOPs: 1 is perfect. Layers are indivisible, so each model has
 * its own bound. */
static void balance_of_the_benchmarks(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        fr_model_options o;
        double most[9]; /* by stages */
    } cases[] = {
        {"mlp",
         {.inputs = 2048, .depth = 8, .width = 2048, .classes = 10},
         {[2] = 1.13, [3] = 1.2, [4] = 1.05, [8] = 1.05}},
        {"vgg16",
         {.image = 32, .channels = 3, .classes = 10},
         {[2] = 1.1, [3] = 1.15, [4] = 1.25, [8] = 1.5}},
        {"gpt",
         {.layers = 6, .width = 384, .heads = 6, .context = 128, .vocab = 256},
         {[2] = 1.05, [3] = 1.05, [4] = 1.15, [8] = 1.25}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cut_model m;
        open_model(&m, fr_model_find(cases[i].name), &cases[i].o);
        for (int n = 2; n <= 8; n += n < 4 ? 1 : 4) {
            int cuts[MAX_STAGES];
            double largest = 0, sum = 0;
            assert_ok(m.ctx, fr_graph_balance(m.g, n, cuts));
            cut(&m, n, cuts);
            for (int s = 0; s < n; s++) {
                double flops = stage_flops(&m, s);
                sum += flops;
                if (flops > largest) largest = flops;
            }
            print_message("%-6s %d stages: largest / mean %.3f\n", cases[i].name, n,
                          largest / sum * n);
            assert_true(largest / sum * n < cases[i].most[n]);
        }
        close_model(&m);
    }
}

/* Cut inside a residual block: the skip passes a stage, and its gradient is relayed. */
static void skips_of_resnet(void **state)
{
    (void)state;
    cut_model m;
    int cuts[3], n_found = 0;
    open_model(&m, fr_model_find("resnet50"),
               &(fr_model_options){.image = 32, .width_factor = 0.25});
    /* The first addition with one input more than three nodes before the other. */
    int add = 0;
    for (int i = 0; i < fr_graph_n_nodes(m.g) && !add; i++) {
        const fr_node *node = fr_graph_node(m.g, i);
        if (node->op == FR_OP_ADD && node->inputs[0] - node->inputs[1] > 6) add = i;
        if (node->op == FR_OP_ADD && node->inputs[1] - node->inputs[0] > 6) add = i;
    }
    assert_true(add > 0);
    const fr_node *node = fr_graph_node(m.g, add);
    int early = node->inputs[0] < node->inputs[1] ? node->inputs[0] : node->inputs[1];
    cuts[0] = early + 1, cuts[1] = early + 4, cuts[2] = add;
    cut(&m, 4, cuts);
    check_links(&m);
    n_found += has_link(m.n_forward, m.forward, 0, 3);   /* the skip */
    n_found += has_link(m.n_forward, m.forward, 0, 1);   /* the branch reads it too */
    n_found += has_link(m.n_backward, m.backward, 3, 1); /* relayed by the other reader */
    n_found += !has_link(m.n_backward, m.backward, 3, 0);
    assert_int_equal(n_found, 4);
    close_model(&m);
}

/* Cut between the branches of an inception block: all of them read one value and end in one
 * concat. */
static void branches_of_inception(void **state)
{
    (void)state;
    cut_model m;
    open_model(&m, fr_model_find("inception3"),
               &(fr_model_options){.image = 75, .width_factor = 0.25});
    int concat = 0;
    while (fr_graph_node(m.g, concat)->op != FR_OP_CONCAT) concat++;
    const fr_node *node = fr_graph_node(m.g, concat);
    assert_true(node->n_inputs >= 4);
    /* A stage ends with each of the first three branches; the last holds the rest and the concat.
     */
    int cuts[3] = {node->inputs[0] + 1, node->inputs[1] + 1, node->inputs[2] + 1};
    cut(&m, 4, cuts);
    check_links(&m);
    for (int s = 0; s < 3; s++) assert_true(has_link(m.n_forward, m.forward, s, 3));
    for (int s = 1; s < 4; s++) assert_true(has_link(m.n_backward, m.backward, s, s - 1));
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_is_cut),
        cmocka_unit_test(balance_of_the_benchmarks),
        cmocka_unit_test(skips_of_resnet),
        cmocka_unit_test(branches_of_inception),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
