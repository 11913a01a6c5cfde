/* test_gradients.c -- every operator of every backend against finite differences, in floats and in
 * bf16; and proof that a gradient that is wrong by one percent, or in its sign, is detected. */
#include <stdio.h>
#include <string.h>

#include "backend/kernel.h"
#include "support/backend.h"
#include "support/cases.h"
#include "support/gradcheck.h"
#include "support/test.h"

static const fr_dtype precisions[] = {FR_F32, FR_BF16};

static void check_slopes(const char *line, int batch)
{
    FOR_EACH_BACKEND(b)
    for (int i = 0; i < 2; i++) {
        verdict v;
        if (!gradcheck(&v, line, batch, *b, precisions[i]))
            fail_msg("%s, %s, %s: %s", fr_backend_name(*b), i ? "bf16" : "f32", line, v.text);
    }
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_operator_cases; i++)
        check_slopes(operator_cases[i].line, operator_cases[i].batch);
}

/* A whole smooth network, to test sums of gradients over several paths. */
static void network_gradients_are_slopes(void **state)
{
    (void)state;
    static const char line[] =
        "a = x 3,6,6; t = ids - 0 3; b = conv2d a out=5 kernel=3,3 pad=1,1 no_bias=1; "
        "c = batch_norm b; d = tanh c; e = conv2d d out=5 kernel=1,1; f = add e d; "
        "g = concat f d a; h = avg_pool g kernel=2,2; i = flatten h; j = linear i out=7; "
        "k = gelu j; l = linear k out=4; y = cross_entropy l t label_smoothing=0.1";
    check_slopes(line, 3);
}

static void every_operator_is_checked(void **state)
{
    (void)state;
    for (int op = FR_OP_INPUT + 1; op < FR_OPERATOR_COUNT; op++) {
        char text[40];
        bool found = false;
        snprintf(text, sizeof text, "y = %s ", fr_operator_name((fr_operator)op));
        for (size_t i = 0; i < n_operator_cases; i++)
            found |= strstr(operator_cases[i].line, text) != NULL;
        if (!found) fail_msg("no case of %s", fr_operator_name((fr_operator)op));
    }
}

/* A backend like ref, except that one gradient of one operator is `factor` times too large: that of
 * parameter `param`, or of the inputs if it is negative. */
static struct {
    int param;
    float factor;
    bool is_used;
    const fr__kernel_ops *real;
    bool passes_dx;
} fault;

static void scale(float *v, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(float); i++) v[i] *= fault.factor;
    fault.is_used = true;
}

static fr_status faulty_input(fr__kernel *k, const fr__kernel_args *a)
{
    if (!fault.passes_dx) FR_TRY(fault.real->backward_input(k, a));
    for (int i = 0; i < k->node->n_inputs; i++) {
        size_t bytes = fr__plain_layout(k->graph, k->node->inputs[i], k->batch).bytes;
        if (!a->dx[i]) continue;
        if (fault.passes_dx) memcpy(a->dx[i], a->dy, bytes);
        scale(a->dx[i], bytes);
    }
    return FR_OK;
}

static fr_status faulty_weight(fr__kernel *k, const fr__kernel_args *a)
{
    FR_TRY(fault.real->backward_weight(k, a));
    if (fault.param >= 0) scale(a->dw[fault.param], k->w[fault.param].bytes);
    return FR_OK;
}

static fr_status make_faulty(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    fr_operator op = fr_graph_node(spec->graph, spec->nodes[0])->op;
    FR_TRY(fr__backend_ref.makers[op](spec, arena, out));
    fr__kernel *k = *out;
    static fr__kernel_ops ops;
    ops = *k->ops;
    fault.real = k->ops;
    fault.passes_dx = k->pass_dx != 0;
    if (fault.param < 0) {
        ops.backward_input = faulty_input;
        k->pass_dx = 0;
        k->can_add_dx = 0;
    } else {
        ops.backward_weight = faulty_weight;
    }
    k->ops = &ops;
    return FR_OK;
}

/* Whether both finite differences and the comparison with ref must detect the fault. */
static void expect_red(const net_case *c, const fr_backend *faulty)
{
    verdict v;
    fault.is_used = false;
    if (gradcheck(&v, c->line, c->batch, faulty, FR_F32))
        fail_msg("%s: differences do not see factor %g of gradient %d", c->line,
                 (double)fault.factor, fault.param);
    assert_true(fault.is_used);
    net n;
    harness bad, good;
    net_build(&n, c->line);
    harness_options options = {.backend = faulty, .batch = c->batch};
    assert_int_equal(harness_open(&bad, &n, &options), FR_OK);
    options.backend = &fr__backend_ref;
    assert_int_equal(harness_open(&good, &n, &options), FR_OK);
    harness_fill(&bad, &n, 3), harness_fill(&good, &n, 3);
    assert_int_equal(harness_run(&bad), FR_OK);
    assert_int_equal(harness_run(&good), FR_OK);
    if (harness_same(&v, &bad, &good, 1e-4))
        fail_msg("%s: the comparison does not see factor %g of gradient %d", c->line,
                 (double)fault.factor, fault.param);
    harness_close(&bad), harness_close(&good);
    net_free(&n);
}

static void wrong_gradients_turn_red(void **state)
{
    (void)state;
    static const float factors[] = {1.01f, -1, 0};
    for (size_t i = 0; i < n_operator_cases; i++) {
        const net_case *c = &operator_cases[i];
        fr__kernel_maker makers[FR_OPERATOR_COUNT];
        fr_backend faulty = fr__backend_ref;
        net n;
        memcpy(makers, fr__backend_ref.makers, sizeof makers);
        faulty.makers = makers;
        net_build(&n, c->line);
        const fr_node *node = fr_graph_node(n.graph, n.stage.last - 1);
        makers[node->op] = make_faulty;
        for (int p = node->op == FR_OP_EMBEDDING ? 0 : -1; p < node->n_params; p++) {
            if (p >= 0 && fr_graph_param(n.graph, node->params[p])->is_buffer) continue;
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
                fault.param = p;
                fault.factor = factors[f];
                expect_red(c, &faulty);
            }
        }
        net_free(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_is_checked),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(network_gradients_are_slopes),
        cmocka_unit_test(wrong_gradients_turn_red),
    };
    return cmocka_run_group_tests_name("conformance/gradients", tests, NULL, NULL);
}
