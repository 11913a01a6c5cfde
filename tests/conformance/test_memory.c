/* test_memory.c -- the harness of all conformance tests detects a kernel that writes outside its
 * memory, leaves a gradient unwritten, or relies on memory that it does not own. The kernels here
 * are ref's, each with one fault. */
#include <math.h>
#include <string.h>

#include "backend/kernel.h"
#include "support/harness.h"
#include "support/test.h"

typedef void (*misdeed)(fr__kernel *k, const fr__kernel_args *a);

static struct {
    misdeed in_forward, in_input, in_weight;
    const fr__kernel_ops *real;
} fault;

static fr_status forward(fr__kernel *k, const fr__kernel_args *a)
{
    FR_TRY(fault.real->forward(k, a));
    if (fault.in_forward) fault.in_forward(k, a);
    return FR_OK;
}

static fr_status backward_input(fr__kernel *k, const fr__kernel_args *a)
{
    FR_TRY(fault.real->backward_input(k, a));
    if (fault.in_input) fault.in_input(k, a);
    return FR_OK;
}

static fr_status backward_weight(fr__kernel *k, const fr__kernel_args *a)
{
    FR_TRY(fault.real->backward_weight(k, a));
    if (fault.in_weight) fault.in_weight(k, a);
    return FR_OK;
}

static fr_status make(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    static const fr__kernel_ops ops = {
        .forward = forward, .backward_input = backward_input, .backward_weight = backward_weight};
    FR_TRY(fr__backend_ref.makers[FR_OP_LAYER_NORM](spec, arena, out));
    fault.real = (*out)->ops;
    (*out)->ops = &ops;
    return FR_OK;
}

/* Parameters of 12 numbers, aligned to 16. */
static const char line[] = "a = x 2,12; y = layer_norm a";
enum { BATCH = 3, NUMBERS = BATCH * 2 * 12 };

static void past_y(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    ((float *)a->y)[NUMBERS] = 1;
}
static void before_saved(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    ((char *)a->saved)[-1] = 1;
}
static void past_saved(fr__kernel *k, const fr__kernel_args *a)
{
    size_t room = (k->saved_bytes + FR_ALIGN - 1) / FR_ALIGN * FR_ALIGN;
    ((char *)a->saved)[room + 2] = 1;
}
static void past_scratch(fr__kernel *k, const fr__kernel_args *a)
{
    ((char *)a->scratch)[k->scratch_bytes] = 1;
}
static void over_x(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    ((float *)(uintptr_t)a->x[0])[5] += 1;
}
static void over_weights(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    ((float *)(uintptr_t)a->w[1])[3] += 1;
}
static void over_dy(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    ((float *)(uintptr_t)a->dy)[7] += 1;
}
static void past_dx(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    ((float *)a->dx[0])[NUMBERS] = 1;
}
static void past_dw(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    a->dw[1][16] = 1;
}
static void between_dw(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    a->dw[0][13] = 1;
}
static void half_dw(fr__kernel *k, const fr__kernel_args *a)
{
    (void)k;
    a->dw[0][9] = NAN; /* as if never written */
}

static const struct {
    misdeed in_forward, in_input, in_weight;
    const char *text;
} faults[] = {
    {past_y, NULL, NULL, "an output: written 0 bytes behind it"},
    {before_saved, NULL, NULL, "slot: written 1 bytes before it"},
    {past_saved, NULL, NULL, "slot: written 2 bytes behind it"},
    {past_scratch, NULL, NULL, "workspace: written 0 bytes behind it"},
    {over_x, NULL, NULL, "an input was changed"},
    {over_weights, NULL, NULL, "weights were changed"},
    {NULL, over_x, NULL, "an input was changed"},
    {NULL, over_dy, NULL, "a given gradient was changed"},
    {NULL, past_dx, NULL, "an input gradient: written 0 bytes behind it"},
    {NULL, over_weights, NULL, "weights were changed"},
    {NULL, NULL, past_dw, "grads: written 0 bytes behind it"},
    {NULL, NULL, between_dw, "grads: written between parameters or in their padding"},
    {NULL, NULL, half_dw, "gradient of y.weight: number 9 of 12 is NaN"},
};

static void faults_are_seen(void **state)
{
    (void)state;
    fr__kernel_maker makers[FR_OPERATOR_COUNT];
    fr_backend faulty = fr__backend_ref;
    memcpy(makers, fr__backend_ref.makers, sizeof makers);
    makers[FR_OP_LAYER_NORM] = make;
    faulty.makers = makers;
    for (size_t i = 0; i <= sizeof faults / sizeof faults[0]; i++) {
        bool is_faulty = i < sizeof faults / sizeof faults[0]; /* the last run has no fault */
        net n;
        harness h;
        memset(&fault, 0, sizeof fault);
        if (is_faulty) {
            fault.in_forward = faults[i].in_forward;
            fault.in_input = faults[i].in_input;
            fault.in_weight = faults[i].in_weight;
        }
        net_build(&n, line);
        harness_options options = {.backend = &faulty, .batch = BATCH};
        assert_int_equal(harness_open(&h, &n, &options), FR_OK);
        harness_fill(&h, &n, 1);
        assert_int_equal(harness_run(&h), is_faulty ? FR_INTERNAL : FR_OK);
        assert_string_equal(fr_ctx_error(h.ctx), is_faulty ? faults[i].text : "");
        harness_close(&h);
        net_free(&n);
    }
}

/* A kernel that reads a value it did not request to be kept: NaN, or later content. */
static fr_status make_forgetful(const fr__kernel_spec *spec, fr_arena *arena, fr__kernel **out)
{
    FR_TRY(fr__backend_ref.makers[FR_OP_LINEAR](spec, arena, out));
    (*out)->needs_x = 0;
    return FR_OK;
}

static void lost_values_are_seen(void **state)
{
    (void)state;
    static const char *const lines[] = {"a = x 16; y = linear a out=16", /* at the border */
                                        "a = x 16; b = layer_norm a; y = linear b out=16"};
    fr__kernel_maker makers[FR_OPERATOR_COUNT];
    fr_backend faulty = fr__backend_ref;
    memcpy(makers, fr__backend_ref.makers, sizeof makers);
    makers[FR_OP_LINEAR] = make_forgetful;
    faulty.makers = makers;
    for (int i = 0; i < 2; i++) {
        net n;
        harness bad, good;
        verdict v;
        net_build(&n, lines[i]);
        harness_options options = {.backend = &faulty, .batch = BATCH};
        assert_int_equal(harness_open(&bad, &n, &options), FR_OK);
        options.backend = &fr__backend_ref;
        assert_int_equal(harness_open(&good, &n, &options), FR_OK);
        harness_fill(&bad, &n, 1), harness_fill(&good, &n, 1);
        assert_int_equal(harness_run(&good), FR_OK);
        if (harness_run(&bad) == FR_OK) assert_false(harness_same(&v, &bad, &good, 1e-5));
        harness_close(&bad), harness_close(&good);
        net_free(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_seen),
        cmocka_unit_test(lost_values_are_seen),
    };
    return cmocka_run_group_tests_name("conformance/memory", tests, NULL, NULL);
}
