/* test_backends.c -- every backend gives ref's numbers on odd shapes, fused chains, shared values;
 * and the numbers do not depend on the kind of calls: split or joint, accumulated or reported,
 * fused or not, cached or not, on zeroed or on used memory. In floats, in bf16, and in mixtures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel.h"
#include "support/backend.h"
#include "support/cases.h"
#include "support/harness.h"
#include "support/test.h"

/* See net_set_types. */
typedef struct types {
    const char *name;
    fr_dtype precision;
    uint64_t others;
} types;
static const types floats = {"f32", FR_F32, 0}, bf16 = {"bf16", FR_BF16, 0};

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

/* A case on a backend, and its plain runs, which the others are compared with. */
typedef struct subject {
    const net *n;
    const net_case *c;
    const fr_backend *b;
    const types *t;
    harness plain[2]; /* training, evaluation */
} subject;

static void blame(const subject *s, const char *what, const verdict *v)
{
    fail_msg("%s, %s, %s: %s: %s", fr_backend_name(s->b), s->t->name, what, s->c->line, v->text);
}

static harness_options options_of(const subject *s, bool eval)
{
    return (harness_options){.backend = s->b, .batch = s->c->batch, .eval = eval};
}

/* A run with these options gives the bits of the plain one. */
static void expect_same(const subject *s, const harness_options *options, const char *what)
{
    harness h;
    verdict v;
    run_filled(&h, s->n, options);
    if (!harness_same(&v, &s->plain[options->eval], &h, 0)) blame(s, what, &v);
    harness_close(&h);
}

/* Of numbers that go on into a product or a node. Attention may round p and its gradient, too. */
static int n_roundings(const net *n)
{
    int count = 0;
    for (int i = n->stage.first; i < n->stage.last; i++) {
        const fr_operator op = fr_graph_node(n->graph, i)->op;
        const bool attends =
            op == FR_OP_ATTENTION || op == FR_OP_CROSS_ATTENTION || op == FR_OP_SDPA;
        count += attends ? 3 : 1;
    }
    return count;
}

/* Sums of floats in another order differ in the last digits. If a node rounds once, only what is
 * rounded may move by one unit in the last place. In a chain this is 2^-8 of the largest number on
 * average, and each rounding may add one. */
static void expect_near(const subject *s, const harness_options *options, const char *what)
{
    const double tolerance = s->c->tolerance > 0 ? s->c->tolerance : 1e-5;
    const harness *plain = &s->plain[options->eval];
    const int n = n_roundings(s->n);
    harness h;
    verdict v;
    run_filled(&h, s->n, options);
    const bool is_near = s->t == &floats || n == 1 ? harness_same_as(&v, plain, &h, tolerance)
                                                   : harness_same(&v, plain, &h, n * 0x1p-8);
    if (!is_near) blame(s, what, &v);
    harness_close(&h);
}

static void against_ref(const subject *s)
{
    for (int eval = 0; eval < 2; eval++) {
        harness_options ref = options_of(s, eval), two_threads = ref;
        ref.backend = &fr__backend_ref;
        expect_near(s, &ref, eval ? "evaluation by ref" : "training by ref");
        two_threads.n_threads = 2;
        if (!eval) expect_near(s, &two_threads, "two threads");
    }
}

static void split_backward(const subject *s)
{
    harness_options split = options_of(s, false);
    split.split = true;
    expect_same(s, &split, "split backward");
}

static void gradients_are_reported_once(const subject *s)
{
    harness_options transient = options_of(s, false);
    transient.transient = true;
    expect_same(s, &transient, "gradients as reported");
    transient.split = true;
    expect_same(s, &transient, "gradients as reported by a split backward");
}

/* The plain runs have garbage there. */
static void memory_is_not_read_before_it_is_written(const subject *s)
{
    for (int eval = 0; eval < 2; eval++) {
        harness_options zeros = options_of(s, eval);
        zeros.zeroed = true;
        expect_same(s, &zeros, "zeros in memory");
    }
}

static void without_fusion(const subject *s)
{
    if (!s->b->fuse) return;
    fr_backend lone = *s->b;
    lone.fuse = NULL;
    for (int eval = 0; eval < 2; eval++) {
        harness_options options = options_of(s, eval);
        options.backend = &lone;
        expect_same(s, &options, "without fusion");
    }
}

static void derived_weights_follow_the_weights(const subject *s)
{
    harness_options options = options_of(s, false);
    harness again;
    verdict v;
    open_filled(&again, s->n, &options, 4); /* other weights first, under another id */
    again.pass.weights_id = 1;
    if (harness_run(&again) != FR_OK) fail_msg("%s", fr_ctx_error(again.ctx));
    harness_fill(&again, s->n, 9);
    again.pass.weights_id = 2;
    for (int i = 0; i < 2; i++) { /* the second time with the cache of the first */
        if (harness_run(&again) != FR_OK) fail_msg("%s", fr_ctx_error(again.ctx));
        if (!harness_same(&v, &again, &s->plain[0], 0)) blame(s, "derived weights", &v);
    }
    harness_close(&again);
}

/* Accumulating onto gradients gives their sum. */
static void gradients_accumulate(const subject *s)
{
    harness_options options = options_of(s, false);
    harness h;
    verdict v;
    float *sum[HARNESS_MAX_PARAMS] = {0};
    open_filled(&h, s->n, &options, 9);
    for (int i = 0; i < h.n_params; i++) {
        if (!h.dw[i]) continue;
        sum[i] = malloc(h.n_w[i] * sizeof(float));
        assert_non_null(sum[i]);
        harness_random(8, (uint32_t)i, h.dw[i], h.n_w[i]);
        for (size_t j = 0; j < h.n_w[i]; j++) sum[i][j] = h.dw[i][j] + s->plain[0].dw[i][j];
    }
    h.pass.accumulate = true;
    if (harness_run(&h) != FR_OK) fail_msg("%s", fr_ctx_error(h.ctx));
    for (int i = 0; i < h.n_params; i++) {
        if (sum[i] && !harness_near(&v, "sum", h.dw[i], sum[i], h.n_w[i], 1e-6))
            blame(s, "accumulation", &v);
        free(sum[i]);
    }
    harness_close(&h);
}

typedef void (*check)(const subject *s);
static const check all_checks[] = {against_ref,
                                   split_backward,
                                   gradients_are_reported_once,
                                   memory_is_not_read_before_it_is_written,
                                   without_fusion,
                                   derived_weights_follow_the_weights,
                                   gradients_accumulate,
                                   NULL},
                   checks_of_types[] = {against_ref, split_backward, without_fusion, NULL};

/* Operators alone in a net whose output, or input of the loss, is bf16. */
static bool met[FR_OPERATOR_COUNT];

static void note_operator(const net *n)
{
    const fr_node *last = fr_graph_node(n->graph, n->stage.last - 1);
    const bool is_loss = fr_operator_is_loss(last->op);
    const fr_node *stored = is_loss ? fr_graph_node(n->graph, last->inputs[0]) : last;
    if (n->stage.last - n->stage.first == 1) met[last->op] |= stored->dtype == FR_BF16;
}

static void check_case(const net_case *c, const fr_backend *b, const types *t, const check *checks)
{
    net n;
    subject s = {.n = &n, .c = c, .b = b, .t = t};
    net_build(&n, c->line);
    if (t != &floats) net_set_types(&n, t->precision, t->others);
    note_operator(&n);
    for (int eval = 0; eval < 2; eval++) {
        harness_options options = options_of(&s, eval);
        run_filled(&s.plain[eval], &n, &options);
    }
    for (size_t i = 0; checks[i]; i++) checks[i](&s);
    for (int eval = 0; eval < 2; eval++) harness_close(&s.plain[eval]);
    net_free(&n);
}

static void all_cases(const types *t, const check *checks)
{
    FOR_EACH_BACKEND(b)
    {
        for (size_t i = 0; i < n_operator_cases; i++) check_case(&operator_cases[i], *b, t, checks);
        for (size_t i = 0; i < n_network_cases; i++) check_case(&network_cases[i], *b, t, checks);
    }
}

static void in_floats(void **state)
{
    (void)state;
    all_cases(&floats, all_checks);
}

static void in_bf16(void **state)
{
    (void)state;
    memset(met, 0, sizeof met);
    all_cases(&bf16, all_checks);
    for (int op = FR_OP_INPUT + 1; op < FR_OPERATOR_COUNT; op++)
        if (!met[op]) fail_msg("no case of %s in bf16", fr_operator_name((fr_operator)op));
}

/* Rounds what is stored as bf16 in another net. */
static void round_like(harness *h, const harness *other)
{
    for (int i = 0; i < h->n_out; i++)
        if (fr_program_output(other->program, i)->dtype == FR_BF16)
            harness_round_values(h->y[i], h->n_y[i]);
    for (int i = 0; i < h->n_in; i++)
        if (h->dx[i]) harness_round_values(h->dx[i], h->n_x[i]);
}

/* What ref computes in bf16 is what it computes in floats from the same numbers, then rounded. The
 * backward of some operators reads their output, which is rounded: gradients are near. */
static void ref_rounds_once(void **state)
{
    static const fr_operator readers[] = {FR_OP_SELU, FR_OP_TANH,    FR_OP_SIGMOID,
                                          FR_OP_ELU,  FR_OP_SOFTMAX, FR_OP_LSTM};
    const harness_options options[] = {{.backend = &fr__backend_ref},
                                       {.backend = &fr__backend_ref, .eval = true}};
    (void)state;
    for (size_t i = 0; i < 2 * n_operator_cases && test_uses(&fr__backend_ref); i++) {
        const net_case *c = &operator_cases[i / 2];
        harness_options o = options[i % 2];
        net n[2];
        harness h[2]; /* in floats, in bf16 */
        verdict v;
        double tolerance = 0;
        o.batch = c->batch;
        for (int k = 0; k < 2; k++) {
            net_build(&n[k], c->line);
            if (k) net_set_types(&n[k], FR_BF16, 0);
            open_filled(&h[k], &n[k], &o, 9);
            harness_round(&h[k]);
            if (harness_run(&h[k]) != FR_OK) fail_msg("%s", fr_ctx_error(h[k].ctx));
        }
        round_like(&h[0], &h[1]);
        const fr_operator op = fr_graph_node(n[1].graph, n[1].stage.last - 1)->op;
        for (size_t k = 0; k < sizeof readers / sizeof *readers; k++)
            if (op == readers[k] && !o.eval) tolerance = 0x1p-7;
        if (!harness_near(&v, "y", h[1].y[0], h[0].y[0], h[0].n_y[0], 0) ||
            !harness_same(&v, &h[1], &h[0], tolerance))
            fail_msg("%s: %s", c->line, v.text);
        for (int k = 0; k < 2; k++) harness_close(&h[k]), net_free(&n[k]);
    }
}

/* Every other node in the other type, and every other pair: any two neighbours are met in any two
 * types. Weights of bf16 and of floats. */
static void in_mixtures(void **state)
{
    (void)state;
    static const types mixtures[] = {{"bf16, every other node f32", FR_BF16, 0x5555555555555555},
                                     {"bf16, other pairs f32", FR_BF16, 0x3333333333333333},
                                     {"f32, every other node bf16", FR_F32, 0x5555555555555555},
                                     {"f32, other pairs bf16", FR_F32, 0x3333333333333333},
                                     {"f32 weights, nodes of bf16", FR_F32, ~UINT64_C(0)}};
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
        all_cases(&mixtures[i], checks_of_types);
}

/* Requesting the value of an inner node changes nothing else. */
static void extra_output_is_seen(void **state)
{
    (void)state;
    static const net_case c = {
        "a = x 6,5,5; b = conv2d a out=10 kernel=3,3 pad=1,1; d = relu b; e = flatten d; "
        "f = linear e out=4; y = relu f",
        3, 1e-4};
    FOR_EACH_BACKEND(b)
    {
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
    FOR_EACH_BACKEND(b)
    {
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
        cmocka_unit_test(in_floats),
        cmocka_unit_test(ref_rounds_once),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(in_mixtures),
        cmocka_unit_test(extra_output_is_seen),
        cmocka_unit_test(tied_parameters_share_values),
    };
    return cmocka_run_group_tests_name("conformance/backends", tests, NULL, NULL);
}
