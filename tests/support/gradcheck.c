/* gradcheck.c -- directional derivatives.
 *
 * For a tensor v with gradient g of a loss L, and a direction d, the derivative of L(v + h d) at
 * h = 0 must be g . d. It is measured with the five-point formula, whose error falls with h^4, so
 * that h can be large enough for float32. Directions: g itself, which detects an error of g's
 * length, and random ones, which detect any other. */
#include "support/gradcheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel.h"
#include "support/test.h"

#define STEP 0.01
#define TOLERANCE 2e-3
#define BF16_TOLERANCE                                                                 \
    0x1p-7         /* gradients are rounded to 8 bits, and so is what they are made of \
                    */
#define FLOOR 1e-4 /* derivatives below this count as zero */
#define N_DIRECTIONS 4

/* The number whose gradients the program gives. */
static double loss_of(const harness *h)
{
    double sum = 0;
    for (int i = 0; i < h->n_out; i++) {
        for (size_t j = 0; h->dy[i] && j < h->n_y[i]; j++)
            sum += (double)h->y[i][j] * (double)h->dy[i][j];
        const fr_node *node = fr_graph_node(h->graph, fr_program_output(h->program, i)->node);
        for (size_t j = 0; fr_operator_is_loss(node->op) && j < h->n_y[i]; j += 3)
            sum += (double)h->y[i][j] * (double)h->pass.loss_scale;
    }
    return sum;
}

static double loss_at(harness *h, float *v, const float *from, const float *d, size_t n,
                      double step)
{
    for (size_t i = 0; i < n; i++) v[i] = (float)((double)from[i] + step * (double)d[i]);
    if (harness_forward(h) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
    return loss_of(h);
}

static double slope(harness *h, float *v, const float *d, size_t n)
{
    float *from = malloc(n * sizeof *from);
    assert_non_null(from);
    memcpy(from, v, n * sizeof *from);
    double near = loss_at(h, v, from, d, n, STEP) - loss_at(h, v, from, d, n, -STEP);
    double far = loss_at(h, v, from, d, n, 2 * STEP) - loss_at(h, v, from, d, n, -2 * STEP);
    memcpy(v, from, n * sizeof *from);
    free(from);
    return (8 * near - far) / (12 * STEP);
}

/* Direction number k: the gradient, made no longer than 1 anywhere, or a random one. */
static void choose_direction(int k, const float *g, float *d, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(g[i]));
    if (k == 0 && largest > 0)
        for (size_t i = 0; i < n; i++) d[i] = g[i] / largest;
    else
        harness_random(77, (uint32_t)k, d, n);
}

static bool check_tensor(verdict *v, harness *oracle, const char *what, float *values,
                         const float *g, size_t n, double tolerance)
{
    float *d = malloc(n * sizeof *d);
    assert_non_null(d);
    bool good = true;
    for (int k = 0; k < N_DIRECTIONS && good; k++) {
        choose_direction(k, g, d, n);
        double told = 0, norm_g = 0, norm_d = 0;
        for (size_t i = 0; i < n; i++) {
            told += (double)g[i] * (double)d[i];
            norm_g += (double)g[i] * (double)g[i];
            norm_d += (double)d[i] * (double)d[i];
        }
        double measured = slope(oracle, values, d, n);
        double usual = sqrt(norm_g * norm_d / (double)n); /* size of g . d for a random d */
        good = fabs(told - measured) <= tolerance * (fmax(fabs(told), usual) + FLOOR);
        if (!good)
            snprintf(v->text, sizeof v->text,
                     "%s, direction %d: gradient says %.6g, differences say %.6g", what, k, told,
                     measured);
    }
    free(d);
    return good;
}

static const float *sort_by;
static int by_value(const void *a, const void *b)
{
    float x = sort_by[*(const int *)a], y = sort_by[*(const int *)b];
    return (x > y) - (x < y);
}

/* Numbers in the same order, at least 1/16 apart: of bf16. */
static void set_apart(float *v, size_t n)
{
    int *order = malloc(n * sizeof *order);
    assert_non_null(order);
    for (size_t i = 0; i < n; i++) order[i] = (int)i;
    sort_by = v;
    qsort(order, n, sizeof *order, by_value);
    for (size_t i = 0; i < n; i++) v[order[i]] = 0x1p-4f * ((float)i - (float)(n / 2));
    free(order);
}

static bool has_any(const fr_graph *g, const fr_operator *ops, size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n; i++) found |= fr_graph_find_op(g, ops[i]) >= 0;
    return found;
}
#define HAS_ANY(g, ops) has_any((g), (ops), sizeof(ops) / sizeof *(ops))

/* Where straight lines meet: at 0, -3, 3 and 6. Numbers of -1 to 1 are spread over all of them. */
static float between_lines(float x)
{
    static const float kinks[] = {-3, 0, 3, 6};
    x = x * 8 + 1;
    for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++)
        if (fabsf(x - kinks[i]) < 0.1f) return kinks[i] + (x < kinks[i] ? -0.125f : 0.125f);
    return x;
}

static void avoid_kinks(harness *h)
{
    static const fr_operator bent[] = {FR_OP_RELU, FR_OP_SELU, FR_OP_LEAKY_RELU, FR_OP_ELU},
                             straight[] = {FR_OP_RELU6, FR_OP_HARDSWISH, FR_OP_HARDSIGMOID};
    const fr_graph *g = h->graph;
    bool at_zero = HAS_ANY(g, bent), at_lines = HAS_ANY(g, straight);
    bool at_ties = fr_graph_find_op(g, FR_OP_MAX_POOL) >= 0;
    for (int i = 0; i < h->n_in; i++) {
        float *x = h->x[i];
        if (!h->dx[i]) continue;
        for (size_t j = 0; at_zero && j < h->n_x[i]; j++) x[j] += x[j] < 0 ? -0.1f : 0.1f;
        for (size_t j = 0; at_lines && j < h->n_x[i]; j++) x[j] = between_lines(x[j]);
        if (at_ties) set_apart(x, h->n_x[i]);
    }
}

static void prepare(harness *h, const net *n, int batch, const fr_backend *backend, bool is_rounded)
{
    harness_options options = {.backend = backend, .batch = batch};
    if (harness_open(h, n, &options) != FR_OK) fail_msg("%s", fr_ctx_error(h->ctx));
    harness_fill(h, n, 5);
    avoid_kinks(h);
    if (is_rounded) harness_round(h);
}

bool gradcheck(verdict *v, const char *line, int batch, const fr_backend *backend, fr_dtype type)
{
    const bool is_rounded = type == FR_BF16;
    net n, in_floats;
    harness judged, oracle;
    bool good = true;
    net_build(&n, line), net_build(&in_floats, line);
    if (is_rounded) net_set_types(&n, type, 0);
    /* Gradients of bf16 are rounded to 8 bits, and so is what every node hands on. */
    const int n_roundings = 1 + n.stage.last - n.stage.first;
    const double tolerance = is_rounded ? n_roundings * 0x1p-8 : TOLERANCE;
    prepare(&judged, &n, batch, backend, is_rounded);
    prepare(&oracle, &in_floats, batch, &fr__backend_ref, is_rounded);
    if (harness_run(&judged) != FR_OK) fail_msg("%s", fr_ctx_error(judged.ctx));
    for (int i = 0; i < judged.n_in && good; i++)
        if (judged.dx[i])
            good = check_tensor(
                v, &oracle, fr_graph_node(n.graph, fr_program_input(judged.program, i)->node)->name,
                oracle.x[i], judged.dx[i], judged.n_x[i], tolerance);
    for (int i = 0; i < judged.n_params && good; i++)
        if (judged.dw[i])
            good = check_tensor(
                v, &oracle,
                fr_graph_param(n.graph, fr_program_placement(judged.program, i)->param)->name,
                oracle.w[i], judged.dw[i], judged.n_w[i], tolerance);
    harness_close(&oracle);
    harness_close(&judged);
    net_free(&n), net_free(&in_floats);
    return good;
}
