/* test_device.c -- operations on device memory (backend/device.h): every backend, with one thread
 * and with two, gives the bits of plain loops. */
#include "backend/device.h"
#include "base/bf16.h"
#include "optim/optim.h"

#include "base/philox.h"
#include "support/backend.h"

#include <string.h>

enum { N = 30011, MAX_TERMS = 9 }; /* N: not a multiple of any grain or vector */

typedef struct bed {
    fr_ctx *ctx;
    fr_device *dev;
    float *at[MAX_TERMS]; /* (N) on the device */
} bed;

/* The expected content of block b. */
static float host[MAX_TERMS][N], got[N], expected[N];

static void open_bed(bed *t, const fr_backend *b, int n_threads)
{
    fr_device_desc d = {.n_threads = n_threads};
    t->ctx = fr_ctx_create();
    assert_non_null(t->ctx);
    assert_int_equal(fr_device_open(t->ctx, b, &d, &t->dev), FR_OK);
    for (int k = 0; k < MAX_TERMS; k++) {
        for (int i = 0; i < N; i++) {
            uint32_t r[4];
            fr__random4(6, FR_STREAM_SYNTHETIC, (uint32_t)k, (uint64_t)i, 0, r);
            host[k][i] = (2 * fr__unit_float(r[0]) - 1) * (float)(1u << (r[1] % 20));
        }
        t->at[k] = device_floats(t->dev, N);
        device_put(t->dev, t->at[k], host[k], N);
    }
}

static void close_bed(bed *t)
{
    for (int k = 0; k < MAX_TERMS; k++) fr_device_release(t->dev, t->at[k], sizeof host[k]);
    fr_device_close(t->dev);
    fr_ctx_free(t->ctx);
}

/* Block `k` holds the first n of `expected`; the rest is unchanged. */
static void assert_block(bed *t, int k, size_t n, const char *what)
{
    device_get(t->dev, got, t->at[k], N);
    if (memcmp(got, expected, n * sizeof(float)) != 0) fail_msg("%s: other bits", what);
    if (memcmp(got + n, host[k] + n, (N - n) * sizeof(float)) != 0)
        fail_msg("%s: written behind the end", what);
    device_put(t->dev, t->at[k], host[k], N);
}

static void copies(bed *t)
{
    size_t n = N - 3;
    memcpy(expected, host[1], sizeof expected);
    assert_int_equal(fr__device_copy(t->dev, t->at[0], t->at[1], n * sizeof(float)), FR_OK);
    assert_block(t, 0, n, "copy");
    memset(expected, 0, sizeof expected);
    assert_int_equal(fr__device_copy(t->dev, t->at[0], NULL, n * sizeof(float)), FR_OK);
    assert_block(t, 0, n, "copy of zeros");
    for (size_t i = 0; i < 300; i++) expected[i] = host[2][i * 100];
    assert_int_equal(fr__device_pick(t->dev, got, FR_F32, t->at[2], 300, 100), FR_OK);
    assert_memory_equal(got, expected, 300 * sizeof(float));
    for (size_t i = 0; i < 300; i++) { /* the same memory as bf16 */
        uint16_t bf16;
        memcpy(&bf16, (const char *)host[2] + i * 101 * sizeof bf16, sizeof bf16);
        expected[i] = fr__bf16_value(bf16);
    }
    assert_int_equal(fr__device_pick(t->dev, got, FR_BF16, t->at[2], 300, 101), FR_OK);
    assert_memory_equal(got, expected, 300 * sizeof(float));
}

static void passes(bed *t)
{
    static const char *const names[] = {"scale", "divide", "add part", "rest"};
    const size_t n = N - 5;
    const float by = 3;
    for (size_t i = 0; i < n; i++) expected[i] = host[0][i] + host[1][i];
    fr__device_add(t->dev, FR_F32, t->at[0], t->at[1], n);
    assert_block(t, 0, n, "add");
    for (int kind = FR_BLEND_SCALE; kind <= FR_BLEND_REST; kind++) {
        for (size_t i = 0; i < n; i++) {
            float y = host[0][i], x = host[1][i];
            expected[i] = kind == FR_BLEND_SCALE      ? x * by
                          : kind == FR_BLEND_DIVIDE   ? x / by
                          : kind == FR_BLEND_ADD_PART ? y + x / by
                                                      : x - y;
        }
        fr__device_blend(t->dev, (fr__blend)kind, t->at[0], t->at[1], by, n);
        assert_block(t, 0, n, names[kind]);
    }
}

static void sums(bed *t)
{
    enum { N_SPANS = N / 1000 - 2 };
    fr__span spans[N_SPANS];
    double squares[N_SPANS];
    for (size_t i = 0; i < N_SPANS; i++) spans[i] = (fr__span){i * 1000 + i % 7, 1 + 37 * i};
    fr__device_squares(t->dev, t->at[0], spans, N_SPANS, squares);
    for (size_t i = 0; i < N_SPANS; i++)
        assert_true(squares[i] == fr__sum_squares(host[0] + spans[i].offset, spans[i].count));
    for (int n = 1; n <= MAX_TERMS; n++) {
        const float *from[MAX_TERMS], *plain[MAX_TERMS];
        for (int k = 0; k < n; k++) from[k] = t->at[k], plain[k] = host[k];
        fr__tree_sum(expected, plain, n, N - 1);
        fr__device_tree_sum(t->dev, t->at[n - 1], from, n, N - 1);
        assert_block(t, n - 1, N - 1, "tree sum");
    }
}

/* Blocks of a sweep: from, grad, two of state, drift, to, two predictions. */
static fr_sweep sweep_over(float *const *at, size_t n, bool has_drift, bool in_place, int n_ahead)
{
    return (fr_sweep){
        .n = n,
        .from = at[0],
        .to = in_place ? at[0] : at[5],
        .grad = at[1],
        .state = {at[2], at[3]},
        .drift = has_drift ? at[4] : NULL,
        .n_ahead = n_ahead,
        .ahead = {at[6], at[7]},
        .ahead_coef = {.by = {0.1f, 0.3f}, .unbias2 = 1.5f, .eps = 1e-3f, .keep = 0.7f}};
}

/* of: whose settings they are, the optimizer itself or that of a rule for matrices */
static void sweeps(bed *t, const fr_optimizer *opt, const fr_optimizer *of)
{
    static float model[8][N];
    float *plain[8];
    fr_optim_options o;
    fr_optim_coef coef;
    of->defaults(&o);
    fr_optim_prepare(opt->prepare ? opt : of->matrices->apply, &o, 3, 0.01, 0.5, &coef);
    for (int x = 0; x < 48; x++) {
        bool has_drift = x & 1, in_place = x & 2, is_step = x & 4, is_bf16 = x >= 24;
        int n_ahead = is_step ? x % 24 / 8 : 1 + x % 24 / 16;
        if (is_bf16 && !in_place) continue;
        if (!is_step && !opt->predict) continue;
        for (int k = 0; k < 8; k++) {
            memcpy(plain[k] = model[k], host[k], sizeof model[k]);
            for (size_t i = 0; k == 3 && i < N; i++) model[3][i] = host[3][i] * host[3][i];
            device_put(t->dev, t->at[k], model[k], N);
        }
        fr_sweep expects = sweep_over(plain, N - 2, has_drift, in_place, n_ahead);
        fr_sweep sweep = sweep_over(t->at, N - 2, has_drift, in_place, n_ahead);
        sweep.ahead_is_bf16 = expects.ahead_is_bf16 = is_bf16;
        if (is_step)
            opt->step(&coef, &expects);
        else
            opt->predict(&expects);
        fr__device_sweep(t->dev, opt, is_step ? &coef : NULL, &sweep);
        for (int k = 0; k < 8; k++) {
            device_get(t->dev, got, t->at[k], N);
            if (memcmp(got, model[k], sizeof got) != 0)
                fail_msg("%s, sweep %d: block %d has other bits", opt->name, x, k);
        }
    }
    for (int k = 0; k < 8; k++) device_put(t->dev, t->at[k], host[k], N);
}

static void same_bits(void **unused)
{
    (void)unused;
    FOR_EACH_BACKEND(b)
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        bed t;
        open_bed(&t, *b, n_threads);
        copies(&t);
        passes(&t);
        sums(&t);
        for (const fr_optimizer *const *opt = fr_optim_list(); *opt; opt++) {
            sweeps(&t, *opt, *opt);
            if (!(*opt)->matrices) continue;
            sweeps(&t, (*opt)->matrices->gather, *opt);
            sweeps(&t, (*opt)->matrices->apply, *opt);
        }
        assert_int_equal(fr_device_sync(t.dev), FR_OK);
        close_bed(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
