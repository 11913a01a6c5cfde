/* test_retype.c -- every model once more with other element types: nothing else changes. */
#include <forerun/models.h>

#include "support/check.h"

static void compare_nodes(const fr_graph *a, const fr_graph *b, fr_dtype precision,
                          const fr_dtype *types)
{
    assert_int_equal(fr_graph_n_nodes(a), fr_graph_n_nodes(b));
    for (int i = 0; i < fr_graph_n_nodes(a); i++) {
        const fr_node *x = fr_graph_node(a, i), *y = fr_graph_node(b, i);
        bool is_fixed = x->op == FR_OP_INPUT || fr_operator_is_loss(x->op) || x->dtype == FR_I32;
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->op, y->op);
        assert_int_equal(x->n_inputs, y->n_inputs);
        assert_memory_equal(x->inputs, y->inputs, (size_t)x->n_inputs * sizeof(int));
        assert_memory_equal(&x->attrs, &y->attrs, sizeof x->attrs);
        assert_true(fr_shape_equal(&x->shape, &y->shape) && x->needs_grad == y->needs_grad);
        assert_true(x->flops_forward == y->flops_forward &&
                    x->flops_back_input == y->flops_back_input &&
                    x->flops_back_weight == y->flops_back_weight);
        assert_int_equal(y->dtype, is_fixed ? x->dtype : types ? types[i] : precision);
    }
}

static void compare_params(const fr_graph *a, const fr_graph *b)
{
    assert_int_equal(fr_graph_n_params(a), fr_graph_n_params(b));
    for (int i = 0; i < fr_graph_n_params(a); i++) {
        const fr_param *x = fr_graph_param(a, i), *y = fr_graph_param(b, i);
        assert_string_equal(x->name, y->name);
        assert_true(fr_shape_equal(&x->shape, &y->shape));
        assert_true(x->init.kind == y->init.kind && x->init.scale == y->init.scale);
        assert_true(x->node == y->node && x->tied_to == y->tied_to && x->has_ties == y->has_ties &&
                    x->is_buffer == y->is_buffer);
    }
}

/* All of one precision; then every third node of bf16; then back. */
static void check(fr_ctx *ctx, const fr_model *model, const fr_model_options *o)
{
    fr_graph *g, *half, *mixed, *back;
    fr_dtype types[4096];
    assert_ok(ctx, fr_model_build(ctx, model, o, &g));
    assert_true(fr_graph_n_nodes(g) <= 4096);
    assert_ok(ctx, fr_graph_retype(ctx, g, FR_BF16, NULL, &half));
    assert_int_equal(fr_graph_precision(half), FR_BF16);
    compare_nodes(g, half, FR_BF16, NULL);
    compare_params(g, half);
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *n = fr_graph_node(g, i);
        bool may = n->op != FR_OP_INPUT && !fr_operator_is_loss(n->op) && n->dtype == FR_F32;
        types[i] = may && i % 3 == 0 ? FR_BF16 : n->dtype;
    }
    assert_ok(ctx, fr_graph_retype(ctx, half, FR_F32, types, &mixed));
    assert_int_equal(fr_graph_precision(mixed), FR_F32);
    compare_nodes(g, mixed, FR_F32, types);
    assert_ok(ctx, fr_graph_retype(ctx, mixed, FR_F32, NULL, &back));
    compare_nodes(g, back, FR_F32, NULL);
    compare_params(g, back);
    fr_graph_free(back);
    fr_graph_free(mixed);
    fr_graph_free(half);
    fr_graph_free(g);
}

static void test_models(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    for (const fr_model *const *m = fr_model_list(); *m; m++) check(ctx, *m, NULL);
    check(ctx, fr_model_find("gpt"), &(fr_model_options){.tied = true, .dropout = 0.1});
    check(ctx, fr_model_find("vgg16"), &(fr_model_options){.batch_norm = true});
    fr_ctx_free(ctx);
}

static void test_refused(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_graph *g, *copy;
    fr_dtype types[64] = {FR_BF16}; /* the input, too */
    assert_ok(ctx, fr_model_build(ctx, fr_model_find("mlp"), NULL, &g));
    assert_int_equal(fr_graph_retype(ctx, g, FR_F32, types, &copy), FR_INVALID);
    assert_null(copy);
    assert_int_equal(fr_graph_retype(ctx, g, FR_I32, NULL, &copy), FR_INVALID);
    assert_null(copy);
    fr_graph_free(g);
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
