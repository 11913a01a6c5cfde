/* test_fixtures.c -- every operator of every backend against the numbers of PyTorch, in floats and,
 * within its rounding, in bf16. */
#include <stdio.h>
#include <string.h>

#include "support/backend.h"
#include "support/fixture.h"
#include "support/harness.h"
#include "support/test.h"

/* Within 1e-5 of the largest number of a tensor; 1e-4 with long sums or recurrences. */
static const struct {
    fr_operator op;
    double tolerance;
} table[] = {{FR_OP_LINEAR, 1e-5},     {FR_OP_CONV2D, 1e-4},       {FR_OP_BATCH_NORM, 1e-5},
             {FR_OP_RELU, 1e-5},       {FR_OP_LAYER_NORM, 1e-5},   {FR_OP_GELU, 1e-5},
             {FR_OP_SELU, 1e-5},       {FR_OP_TANH, 1e-5},         {FR_OP_SIGMOID, 1e-5},
             {FR_OP_MAX_POOL, 1e-5},   {FR_OP_AVG_POOL, 1e-5},     {FR_OP_GLOBAL_POOL, 1e-5},
             {FR_OP_ADD, 1e-5},        {FR_OP_CONCAT, 1e-5},       {FR_OP_FLATTEN, 1e-5},
             {FR_OP_EMBEDDING, 1e-5},  {FR_OP_ATTENTION, 1e-5},    {FR_OP_LSTM, 1e-4},
             {FR_OP_MEAN_TIME, 1e-5},  {FR_OP_LAST_TIME, 1e-5},    {FR_OP_CROSS_ENTROPY, 1e-5},
             {FR_OP_SLICE, 1e-5},      {FR_OP_REVERSE_TIME, 1e-5}, {FR_OP_CROSS_ATTENTION, 1e-5},
             {FR_OP_SILU, 1e-5},       {FR_OP_GELU_EXACT, 1e-5},   {FR_OP_RELU6, 1e-5},
             {FR_OP_HARDSWISH, 1e-5},  {FR_OP_HARDSIGMOID, 1e-5},  {FR_OP_LEAKY_RELU, 1e-5},
             {FR_OP_ELU, 1e-5},        {FR_OP_MUL, 1e-5},          {FR_OP_SUBTRACT, 1e-5},
             {FR_OP_SDPA, 1e-5},       {FR_OP_SOFTMAX, 1e-5},      {FR_OP_RMS_NORM, 1e-5},
             {FR_OP_GROUP_NORM, 1e-5}, {FR_OP_ROPE, 1e-5},         {FR_OP_MSE, 1e-5},
             {FR_OP_SMOOTH_L1, 1e-5},  {FR_OP_BCE, 1e-5},          {FR_OP_COSINE, 1e-5},
             {FR_OP_SELECT, 1e-5},     {FR_OP_TRANSPOSE, 1e-5},    {FR_OP_RESHAPE, 1e-5},
             {FR_OP_PAD, 1e-5},        {FR_OP_MATMUL, 1e-5}};

/* PyTorch computed with floats; here the inputs are rounded to 8 bits, too. */
#define BF16_TOLERANCE 0x1p-6

/* The case as a line of net.h: "x0 = x 3,8; y = conv2d x0 out=4 kernel=3,3". */
static void write_line(const fixture_case *c, fr_operator op, char *line, size_t room)
{
    size_t at = 0;
    char inputs[64] = "", name[8];
    for (int i = 0; i < FR_MAX_INPUTS; i++) {
        snprintf(name, sizeof name, "x%d", i);
        const fixture_tensor *x = fixture_find(c, name);
        if (!x) break;
        const char *kind = x->is_int ? "ids" : i == 1 && fr_operator_is_loss(op) ? "data" : "x";
        at += (size_t)snprintf(line + at, room - at, "%s = %s ", name, kind);
        for (int d = 1; d < x->n_dims; d++)
            at += (size_t)snprintf(line + at, room - at, "%s%d", d > 1 ? "," : "", (int)x->dim[d]);
        at += (size_t)snprintf(line + at, room - at, "%s%s; ", x->n_dims < 2 ? "-" : "",
                               x->is_int ? " 0 0" : "");
        strcat(strcat(inputs, " "), name);
    }
    at += (size_t)snprintf(line + at, room - at, "y = %s%s", fr_operator_name(op), inputs);
    for (int i = 0; i < c->n_settings; i++) {
        const fixture_setting *s = &c->settings[i];
        if (strcmp(s->key, "eval") == 0 || strcmp(s->key, "loss_scale") == 0) continue;
        at += (size_t)snprintf(line + at, room - at, " %s=", s->key);
        for (int k = 0; k < s->n; k++)
            at += (size_t)snprintf(line + at, room - at, "%s%.9g", k ? "," : "", s->v[k]);
    }
    assert_true(at < room);
}

/* An array of the harness from a tensor of the case. */
static void take(const fixture_case *c, const char *prefix, int i, void *to, size_t n)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", prefix, i);
    const fixture_tensor *t = fixture_need(c, name);
    assert_int_equal(t->count, n);
    memcpy(to, t->is_int ? (const void *)t->i : t->f, n * 4);
}

static bool check(const fixture_case *c, const char *prefix, int i, const float *got, size_t n,
                  double tolerance, verdict *v)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", prefix, i);
    const fixture_tensor *t = fixture_need(c, name);
    assert_int_equal(t->count, n);
    return harness_near(v, name, got, t->f, n, tolerance);
}

static void run_case(const fr_backend *backend, fr_dtype type, fr_operator op,
                     const fixture_case *c, double tolerance)
{
    char line[512];
    net n;
    harness h;
    verdict v;
    bool eval = fixture_number(c, "eval", 0) != 0;
    write_line(c, op, line, sizeof line);
    net_build(&n, line);
    /* Of numbers that differ by less than their rounding, nothing is left: such inputs stay floats.
     */
    const bool is_shifted = type == FR_BF16 && strcmp(c->name, "shifted") == 0;
    net_set_types(&n, type, is_shifted ? (UINT64_C(1) << n.stage.first) - 1 : 0);
    harness_options options = {
        .backend = backend, .batch = (int)fixture_need(c, "x0")->dim[0], .eval = eval};
    if (harness_open(&h, &n, &options) != FR_OK) fail_msg("%s: %s", line, fr_ctx_error(h.ctx));
    h.pass.loss_scale = (float)fixture_number(c, "loss_scale", 1);
    for (int i = 0; i < h.n_in; i++) take(c, "x", i, h.x[i], h.n_x[i]);
    for (int i = 0; i < h.n_params; i++) take(c, "w", i, h.w[i], h.n_w[i]);
    if (h.dy[0]) memcpy(h.dy[0], fixture_need(c, "dy")->f, h.n_y[0] * sizeof(float));
    bool good = harness_run(&h) == FR_OK;
    if (!good) fail_msg("%s: %s", line, fr_ctx_error(h.ctx));
    good = harness_near(&v, "y", h.y[0], fixture_need(c, "y")->f, h.n_y[0], tolerance);
    for (int i = 0; i < h.n_in && good; i++)
        if (h.dx[i]) good = check(c, "dx", i, h.dx[i], h.n_x[i], tolerance, &v);
    for (int i = 0; i < h.n_params && good && !eval; i++)
        good = h.dw[i] ? check(c, "dw", i, h.dw[i], h.n_w[i], tolerance, &v)
                       : check(c, "after", i, h.after[i], h.n_w[i], tolerance, &v);
    if (!good)
        fail_msg("%s, %s, %s %s: %s", fr_backend_name(backend), type == FR_BF16 ? "bf16" : "f32",
                 fr_operator_name(op), c->name, v.text);
    harness_close(&h);
    net_free(&n);
}

static void operators_agree_with_pytorch(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(b)
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        fixture f;
        fixture_load(&f, fr_operator_name(table[i].op));
        for (int c = 0; c < f.n_cases; c++) {
            run_case(*b, FR_F32, table[i].op, &f.cases[c], table[i].tolerance);
            run_case(*b, FR_BF16, table[i].op, &f.cases[c], BF16_TOLERANCE);
        }
        fixture_free(&f);
    }
}

/* Every operator except the random ones has a fixture. */
static void every_operator_has_a_fixture(void **state)
{
    (void)state;
    for (int op = 0; op < FR_OPERATOR_COUNT; op++) {
        bool found = op == FR_OP_INPUT || op == FR_OP_DROPOUT || op == FR_OP_ALPHA_DROPOUT ||
                     op == FR_OP_STOCHASTIC_DEPTH;
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) found |= (int)table[i].op == op;
        if (!found) fail_msg("no fixture of %s", fr_operator_name((fr_operator)op));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_fixture),
        cmocka_unit_test(operators_agree_with_pytorch),
    };
    return cmocka_run_group_tests_name("conformance/fixtures", tests, NULL, NULL);
}
