/* test_recompute.c -- a program that recomputes a set of nodes gives the bits of one that keeps all
 * values, on every backend, for random sets: nets of all operators, and stages of models. Between
 * forward and backward the harness destroys whatever a recompute must make again. */
#include <forerun/models.h>

#include <stdio.h>

#include "base/philox.h"
#include "support/backend.h"
#include "support/cases.h"
#include "support/harness.h"
#include "support/test.h"

enum { MAX_NODES = 512, N_SETS = 4 };

/* A stage that is computed with and without recompute. */
typedef struct subject {
    const char *name;
    const fr_graph *graph;
    const fr_stage *stage;
    const net *n; /* NULL: a model */
    harness_options options;
} subject;

static void run(harness *h, const subject *s, const harness_options *options)
{
    if (harness_open_graph(h, s->graph, s->stage, options) != FR_OK)
        fail_msg("%s: %s", s->name, fr_ctx_error(h->ctx));
    harness_fill(h, s->n, 9);
    h->pass.step = 3;
    h->pass.loss_scale = 0.25f;
    if (harness_run(h) != FR_OK)
        fail_msg("%s on %s: %s", s->name, fr_backend_name(options->backend), fr_ctx_error(h->ctx));
}

/* All nodes, then sets of a quarter, half and three quarters of them. */
static void choose(const fr_graph *g, uint64_t seed, int set, bool *recompute)
{
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        uint32_t words[4];
        fr__random4(seed, FR_STREAM_SYNTHETIC, (uint32_t)i, (uint64_t)set, 0, words);
        recompute[i] = set == 0 || words[0] % 4 < (uint32_t)set;
    }
}

/* With all nodes nothing is left in the slot, and the area has what was there. */
static void check_sizes(const subject *s, const harness *plain, const harness *h, bool is_all)
{
    const fr_program_sizes *was = fr_program_sizes_of(plain->program);
    const fr_program_sizes *is = fr_program_sizes_of(h->program);
    if (is->n_recomputed == 0) {
        assert_int_equal(is->area_bytes, 0);
        assert_int_equal(is->slot_bytes, was->slot_bytes);
    } else if (is_all && (is->slot_bytes != 0 || is->area_bytes != was->slot_bytes)) {
        fail_msg("%s: %zu bytes kept and %zu recomputed, of %zu", s->name, is->slot_bytes,
                 is->area_bytes, was->slot_bytes);
    }
}

/* Returns the number of kernels that ran again. */
static int check(const subject *s, uint64_t seed)
{
    int n_again = 0;
    bool recompute[MAX_NODES];
    assert_true(fr_graph_n_nodes(s->graph) <= MAX_NODES);
    for (int split = 0; split < 2; split++) {
        harness plain, h;
        harness_options options = s->options;
        verdict v;
        options.split = split;
        run(&plain, s, &options);
        for (int set = split; set < N_SETS; set += 1 + (set > 0)) {
            choose(s->graph, seed, set, recompute);
            options.recompute = recompute;
            run(&h, s, &options);
            if (!harness_same(&v, &plain, &h, 0))
                fail_msg("%s on %s, set %d, split %d: %s", s->name,
                         fr_backend_name(options.backend), set, split, v.text);
            check_sizes(s, &plain, &h, set == 0);
            n_again += fr_program_sizes_of(h.program)->n_recomputed;
            harness_close(&h);
        }
        harness_close(&plain);
    }
    return n_again;
}

static void check_nets(const net_case *cases, size_t n_cases)
{
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < n_cases; i++) {
        net n;
        net_build(&n, cases[i].line);
        check(&(subject){.name = cases[i].line,
                         .graph = n.graph,
                         .stage = &n.stage,
                         .n = &n,
                         .options = {.backend = *b, .batch = cases[i].batch}},
              i);
        net_free(&n);
    }
}

static void every_operator(void **state)
{
    (void)state;
    check_nets(operator_cases, n_operator_cases);
}

static void every_network(void **state)
{
    (void)state;
    check_nets(network_cases, n_network_cases);
}

/* Residual sums, batch norm, dropout, attention, LSTMs: stages of `length` nodes. */
static void stages_of_models(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int first, length;
    } stages[] = {{"mlp", 1, 6},  {"vgg16", 1, 12}, {"resnet50", 1, 26}, {"resnet50", 20, 20},
                  {"gpt", 1, 14}, {"gpt", 12, 20},  {"reslstm", 1, 12},  {"transformer", 2, 14}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const fr_model *model = fr_model_find(stages[i].name);
        fr_model_options o = {.inputs = 12, .depth = 3, .width = 24, .classes = 4};
        o.layers = 3, o.heads = 2, o.context = 6, o.vocab = 11, o.dropout = 0.2;
        o.channels = 3, o.image = 32, o.width_factor = 1. / 16, o.batch_norm = true;
        fr_ctx *ctx = fr_ctx_create();
        fr_graph *g;
        if (fr_model_build(ctx, model, &o, &g) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
        int n = fr_graph_n_nodes(g), last = stages[i].first + stages[i].length;
        fr_stage stage = {.first = stages[i].first, .last = last < n ? last : n};
        FOR_EACH_BACKEND(b)
        assert_true(check(&(subject){.name = stages[i].name,
                                     .graph = g,
                                     .stage = &stage,
                                     .options = {.backend = *b, .batch = 2}},
                          i) > 0);
        fr_graph_free(g);
        fr_ctx_free(ctx);
    }
}

static int count(const char *line, const char *const *names)
{
    net n;
    harness h;
    bool recompute[NET_MAX_NODES] = {false};
    net_build(&n, line);
    for (; *names; names++) recompute[fr_graph_find(n.graph, *names)] = true;
    harness_options options = {.backend = test_backend("ref"), .batch = 2, .recompute = recompute};
    assert_int_equal(harness_open(&h, &n, &options), FR_OK);
    int n_again = fr_program_sizes_of(h.program)->n_recomputed;
    harness_close(&h);
    net_free(&n);
    return n_again;
}

/* The backward of linear reads its input, that of relu its output. */
static void what_no_backward_needs_is_not_recomputed(void **state)
{
    (void)state;
    static const char line[] =
        "a = x 4; b = linear a out=5; c = relu b; d = linear c out=3; e = add d d";
    assert_int_equal(count(line, (const char *[]){"b", "c", "d", "e", NULL}), 2);
    assert_int_equal(count(line, (const char *[]){"b", "d", "e", NULL}), 0);
    assert_int_equal(count(line, (const char *[]){"c", NULL}), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator),
        cmocka_unit_test(every_network),
        cmocka_unit_test(stages_of_models),
        cmocka_unit_test(what_no_backward_needs_is_not_recomputed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
