/* test_cpu_products.c -- products of a layer, by Forerun's own kernels and by oneDNN: correct for
 * every number of rows and columns, nothing read or written outside the matrices. With Forerun's
 * own kernels a row has the same bits alone, among others, and on any number of threads. */
#include <math.h>
#include <string.h>

#include "backend/cpu/gemm.h"
#include "support/harness.h"
#include "support/test.h"

enum { MOST_ROWS = 33, GAP = 5, MAX_NUMBERS = 1 << 20 };

static fr_ctx *ctx;
static fr_device *devs[2]; /* of one thread and of three */

static float w[MAX_NUMBERS], from[MAX_NUMBERS], to[MAX_NUMBERS], again[MAX_NUMBERS];

static int setup(void **state)
{
    (void)state;
    ctx = fr_ctx_create();
    for (int i = 0; ctx && i < 2; i++) {
        const fr_device_desc desc = {.n_threads = 1 + 2 * i};
        if (fr_device_open(ctx, &fr__backend_cpu, &desc, &devs[i]) != FR_OK) return -1;
    }
    return ctx ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) fr_device_close(devs[i]);
    fr_ctx_free(ctx);
    return 0;
}

/* Random numbers in rows that are `ld` apart, with NaN between them. */
static void fill(uint32_t stream, float *at, int64_t rows, int64_t columns, int64_t ld)
{
    assert_true(rows * ld <= MAX_NUMBERS);
    for (int64_t i = 0; i < rows * ld; i++) at[i] = NAN;
    for (int64_t r = 0; r < rows; r++)
        harness_random(stream, (uint32_t)r, at + r * ld, (size_t)columns);
}

static void check(const fr__product *p, const float *before)
{
    const int64_t n = p->is_dx ? p->w.in : p->w.out, depth = p->is_dx ? p->w.out : p->w.in;
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t c = 0; c < p->ld_to; c++) {
            const float is = p->to[r * p->ld_to + c];
            double due = p->add ? (double)before[r * p->ld_to + c] : 0, size = 1;
            for (int64_t i = 0; i < depth && c < n; i++) {
                const float weight = p->w.at[p->is_dx ? i * p->w.ld + c : c * p->w.ld + i];
                const double term = (double)weight * (double)p->from[r * p->ld_from + i];
                due += term;
                size += fabs(term);
            }
            if (c < n ? !(fabs((double)is - due) <= 1e-6 * size) : !isnan(is))
                fail_msg("%s of %d rows, in %d, out %d, add %d: (%d, %d) is %g, not %g",
                         p->is_dx ? "dx" : "y", (int)p->rows, (int)p->w.in, (int)p->w.out, p->add,
                         (int)r, (int)c, (double)is, due);
        }
    }
}

/* Whether Forerun's own kernels compute a product with all its rows; the result is discarded. */
static bool is_own(const fr__product *p)
{
    fr__product copy = *p;
    copy.to = again;
    return fr__multiply_few(devs[0], &copy);
}

static void check_rows_alone(const fr__product *p, const float *before)
{
    fr__product one = *p;
    one.rows = 1;
    const size_t bytes = (size_t)p->ld_to * sizeof(float);
    for (int64_t r = 0; r < p->rows; r++) {
        memcpy(again, before + r * p->ld_to, bytes);
        one.from = p->from + r * p->ld_from;
        one.to = again;
        fr__multiply(devs[1], &one);
        if (memcmp(again, p->to + r * p->ld_to, bytes) != 0)
            fail_msg("%s of %d rows, in %d, out %d: row %d has other bits alone",
                     p->is_dx ? "dx" : "y", (int)p->rows, (int)p->w.in, (int)p->w.out, (int)r);
    }
}

static void products_are_right(void **state)
{
    (void)state;
    /* Around the widths of tiles (3 and 6 columns of y, 24 and 96 of dx) and above the rows of W
     * that dx takes at a time; with lengths that Forerun's own kernels do not support. */
    static const int sizes[][2] = {{256, 1},    {272, 7},   {272, 20},  {1024, 9},
                                   {1040, 300}, {1136, 17}, {1032, 12}, {40, 30}};
    static const int counts[] = {1, 2, 3, 4, 5, 8, 11, 32, 33};
    static float before[MAX_NUMBERS];
    int n_own = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < 4 * sizeof counts / sizeof *counts; j++) {
            fr__product p = {.w = {w, sizes[i][1], sizes[i][0], sizes[i][0] + GAP},
                             .is_dx = j % 2,
                             .add = j % 4 > 1,
                             .rows = counts[j / 4],
                             .from = from,
                             .to = to};
            const int64_t n = p.is_dx ? p.w.in : p.w.out, depth = p.is_dx ? p.w.out : p.w.in;
            p.ld_from = depth + GAP;
            p.ld_to = n + GAP;
            fill(1, w, p.w.out, p.w.in, p.w.ld);
            fill(2, from, p.rows, depth, p.ld_from);
            fill(3, before, p.rows, n, p.ld_to);
            memcpy(to, before, sizeof to);
            fr__multiply(devs[0], &p);
            check(&p, before);
            if (!is_own(&p)) continue;
            n_own++;
            check_rows_alone(&p, before);
        }
    }
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2) assert_true(n_own > 0);
}

static void check_weight_grad(const fr__weight_grad_args *g, const float *before)
{
    for (int64_t o = 0; o < g->out; o++) {
        for (int64_t c = 0; c < g->ld_dw; c++) {
            const float is = g->dw[o * g->ld_dw + c];
            double due = g->add ? (double)before[o * g->ld_dw + c] : 0, size = 1;
            for (int64_t r = 0; r < g->rows && c < g->in; r++) {
                const double term = (double)g->dy[r * g->ld_dy + o] * (double)g->x[r * g->in + c];
                due += term;
                size += fabs(term);
            }
            if (c < g->in ? !(fabs((double)is - due) <= 1e-6 * size) : !isnan(is))
                fail_msg("dW of %d rows, in %d, out %d, add %d: (%d, %d) is %g, not %g",
                         (int)g->rows, (int)g->in, (int)g->out, g->add, (int)o, (int)c, (double)is,
                         due);
        }
    }
}

/* On three threads, and in two panels of rows, the bits are the same. */
static void check_panels(const fr__weight_grad_args *g, const float *before)
{
    fr__weight_grad_args part = *g;
    memcpy(again, before, sizeof again);
    const int64_t half = g->out / 2;
    for (int i = 0; i < 2; i++) {
        part.dy = g->dy + i * half;
        part.dw = again + i * half * g->ld_dw;
        part.out = i ? g->out - half : half;
        if (part.out) fr__weight_grad(devs[1], &part);
    }
    if (memcmp(again, g->dw, (size_t)(g->out * g->ld_dw) * sizeof(float)) != 0)
        fail_msg("dW of %d rows, in %d, out %d: other bits in panels", (int)g->rows, (int)g->in,
                 (int)g->out);
}

static void weight_grads_are_right(void **state)
{
    (void)state;
    static const int sizes[][2] = {{768, 9}, {784, 30}, {1024, 1}, {2048, 5}, {776, 4}, {48, 20}};
    static const int counts[] = {1, 2, 7, 16, 32, 33};
    static float before[MAX_NUMBERS];
    int n_own = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < 2 * sizeof counts / sizeof *counts; j++) {
            fr__weight_grad_args g = {.dy = from,
                                      .x = w,
                                      .dw = to,
                                      .rows = counts[j / 2],
                                      .out = sizes[i][1],
                                      .in = sizes[i][0],
                                      .ld_dy = sizes[i][1] + GAP,
                                      .ld_dw = sizes[i][0] + GAP,
                                      .add = j % 2};
            fill(1, w, g.rows, g.in, g.in);
            fill(2, from, g.rows, g.out, g.ld_dy);
            fill(3, before, g.out, g.in, g.ld_dw);
            memcpy(to, before, sizeof to);
            fr__weight_grad(devs[0], &g);
            check_weight_grad(&g, before);
            fr__weight_grad_args copy = g;
            copy.dw = again;
            if (!fr__weight_grad_few(devs[0], &copy)) continue;
            n_own++;
            check_panels(&g, before);
        }
    }
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) assert_true(n_own > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_right),
                                       cmocka_unit_test(weight_grads_are_right)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
