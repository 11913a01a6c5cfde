/* test_matrices.c -- updates of whole matrices (muon) on every backend: PyTorch's numbers, nearly
 * orthogonal steps, the same bits for any ranges and number of threads, predictions along the last
 * step, and adamw for all other weights. */
#include <forerun/weights.h>

#include "backend/kernel.h"
#include "base/bf16.h"
#include "base/philox.h"

#include <math.h>
#include <stdio.h>

#include "support/backend.h"
#include "support/fixture.h"

/* A block: BEFORE weights, a matrix with padded rows, AFTER weights, a second matrix, none. */
enum { BEFORE = 5, AFTER = 11, PAD = 3, MAX = 40000, MAX_BLOCKS = 3 };

typedef struct bed {
    fr_ctx *ctx;
    fr_device *dev;
    fr_store *store;
    fr_store_desc d;
    fr_matrix matrices[2];
    float *room, *grad; /* on the device */
    size_t n_room;
} bed;

static float noise(uint32_t stream, uint64_t i)
{
    uint32_t r[4];
    fr__random4(5, FR_STREAM_SYNTHETIC, stream, i, 0, r);
    return 2 * fr__unit_float(r[0]) - 1;
}

static size_t count_of(const fr_matrix *m) { return (size_t)(m->rows * m->ld); }

/* Numbers for all weights, with zeros in the padding. */
static void fill(const bed *b, uint32_t stream, float *to)
{
    for (size_t i = 0; i < b->d.n; i++) to[i] = noise(stream, i);
    for (int k = 0; k < 2; k++)
        for (int64_t r = 0; r < b->matrices[k].rows; r++)
            for (int64_t c = b->matrices[k].cols; c < b->matrices[k].ld; c++)
                to[b->matrices[k].offset + (size_t)(r * b->matrices[k].ld + c)] = 0;
}

static void open_device(bed *b, const fr_backend *backend, int n_threads)
{
    *b = (bed){.ctx = fr_ctx_create()};
    fr_device_desc desc = {.n_threads = n_threads};
    assert_int_equal(fr_device_open(b->ctx, backend, &desc, &b->dev), FR_OK);
}

static void open_bed(bed *b, const fr_backend *backend, int n_threads, const char *policy,
                     const char *optimizer, int64_t rows, int64_t cols)
{
    open_device(b, backend, n_threads);
    b->matrices[0] = (fr_matrix){BEFORE, rows, cols, cols + PAD};
    b->matrices[1] = (fr_matrix){BEFORE + count_of(&b->matrices[0]) + AFTER, cols, rows, rows};
    size_t n = b->matrices[1].offset + count_of(&b->matrices[1]);
    size_t scratch = 0;
    for (int k = 0; k < 2; k++)
        if (fr_store_scratch_floats(&b->matrices[k]) > scratch)
            scratch = fr_store_scratch_floats(&b->matrices[k]);
    assert_true(n <= MAX);
    b->n_room = (MAX_BLOCKS + 4) * n + scratch;
    b->room = device_floats(b->dev, b->n_room);
    b->grad = b->room + (MAX_BLOCKS + 3) * n;
    b->d = (fr_store_desc){
        .policy = fr_policy_find(policy),
        .context = {.stage = 0, .n_stages = 3, .lead = 2, .n_micro = 1, .n_slots = 3},
        .device = b->dev,
        .optimizer = fr_optim_find(optimizer),
        .lr = {.name = "constant"},
        .n_blocks = MAX_BLOCKS,
        .n = n,
        .blocks = b->room,
        .stride = n,
        .state = {b->room + MAX_BLOCKS * n, b->room + (MAX_BLOCKS + 1) * n},
        .drift = b->room + (MAX_BLOCKS + 2) * n};
    b->d.optimizer->defaults(&b->d.options);
    if (!b->d.optimizer->matrices) return;
    b->d.n_matrices = 2, b->d.matrices = b->matrices;
    b->d.scratch = b->room + (MAX_BLOCKS + 4) * n;
}

static void start(bed *b)
{
    static float host[MAX];
    fill(b, 1, host);
    device_put(b->dev, b->room, host, b->d.n);
    if (fr_store_create(b->ctx, &b->d, &b->store) != FR_OK) fail_msg("%s", fr_ctx_error(b->ctx));
}

static void close_bed(bed *b)
{
    fr_store_free(b->store);
    fr_device_release(b->dev, b->room, b->n_room * sizeof(float));
    fr_device_close(b->dev);
    fr_ctx_free(b->ctx);
}

/* The update of a mini-batch in ranges of at most `chunk` floats, from the last to the first. */
static void update(bed *b, int64_t batch, const float *grad, size_t chunk)
{
    fr_view view;
    device_put(b->dev, b->grad, grad, b->d.n);
    assert_int_equal(fr_store_forward(b->store, batch, 0, &view), FR_OK);
    assert_int_equal(fr_store_backward(b->store, batch, 0, &view), FR_OK);
    fr_store_done(b->store, batch, 0);
    fr_store_begin(b->store, batch, 1);
    for (size_t c = (b->d.n + chunk - 1) / chunk; c-- > 0;) {
        size_t at = c * chunk, n = b->d.n - at < chunk ? b->d.n - at : chunk;
        fr_store_range(b->store, at, n, b->grad + at);
    }
    assert_int_equal(fr_store_end(b->store, b->d.n), FR_OK);
}

/* --- PyTorch ---------------------------------------------------------------------------------- */

/* Copies the matrix of a fixture to the first one of a block, or compares with it. */
static void each_value(const bed *b, float *block, const float *from, const char *compare)
{
    const fr_matrix *m = &b->matrices[0];
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++) {
            float *at = &block[m->offset + (size_t)(r * m->ld + c)], value = from[r * m->cols + c];
            if (!compare)
                *at = value;
            else if (!(fabs((double)*at - (double)value) <= 1e-5))
                fail_msg("%s: weight (%d, %d) is %.9g, PyTorch %.9g", compare, (int)r, (int)c,
                         (double)*at, (double)value);
        }
}

static void follow_case(const fr_backend *backend, const fixture_case *c)
{
    static float host[MAX], plain[MAX];
    const fixture_tensor *lr = fixture_need(c, "lr"), *grads = fixture_need(c, "grads");
    const fixture_tensor *weights = fixture_need(c, "weights"); /* (steps + 1, rows, cols) */
    int64_t rows = weights->dim[1], cols = weights->dim[2];
    bed b, adamw;
    open_bed(&b, backend, 2, "live", "muon", rows, cols);
    b.d.options.weight_decay = fixture_number(c, "weight_decay", -1);
    b.d.options.momentum = fixture_number(c, "momentum", -1);
    b.d.options.nesterov = fixture_number(c, "nesterov", -1) > 0;
    b.d.options.match_rms_adamw = fixture_number(c, "match_rms_adamw", -1) > 0;
    b.d.lr = (fr_lr_options){.name = "step", .every = 6, .gamma = 0.4};
    b.d.options.lr = (double)lr->f[0];
    open_bed(&adamw, backend, 2, "live", "adamw", rows, cols);
    adamw.d.options = b.d.options, adamw.d.lr = b.d.lr;
    start(&b), start(&adamw);
    device_get(b.dev, host, fr_store_newest(b.store), b.d.n);
    each_value(&b, host, weights->f, NULL);
    device_put(b.dev, fr_store_newest(b.store), host, b.d.n);
    assert_int_equal((int)lr->count, 10);
    for (int t = 0; t < 10; t++) {
        assert_true(fabs(fr_store_lr(b.store, t) - (double)lr->f[t]) < 1e-7);
        fill(&b, 2 + (uint32_t)t, host);
        each_value(&b, host, grads->f + t * rows * cols, NULL);
        update(&b, t, host, 7), update(&adamw, t, host, 1000);
        device_get(b.dev, host, fr_store_newest(b.store), b.d.n);
        device_get(adamw.dev, plain, fr_store_newest(adamw.store), b.d.n);
        each_value(&b, host, weights->f + (t + 1) * rows * cols, c->name);
        size_t end = BEFORE + count_of(&b.matrices[0]);
        assert_memory_equal(host, plain, BEFORE * sizeof *host);
        assert_memory_equal(host + end, plain + end, AFTER * sizeof *host);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = cols; k < cols + PAD; k++)
                assert_true(host[BEFORE + r * (cols + PAD) + k] == 0);
    }
    close_bed(&b), close_bed(&adamw);
}

static void follows_torch(void **unused)
{
    (void)unused;
    fixture f;
    fixture_load(&f, "optim_muon");
    assert_int_equal(f.n_cases, 12);
    FOR_EACH_BACKEND(b)
    for (int i = 0; i < f.n_cases; i++) follow_case(*b, &f.cases[i]);
    fixture_free(&f);
}

/* --- orthogonalisation ------------------------------------------------------------------------ */

/* Random numbers orthogonalised; out: (rows, cols). */
static void orthogonalise(const fr_backend *backend, int n_threads, int64_t rows, int64_t cols,
                          int64_t ld, float *out)
{
    static float host[MAX];
    fr_matrix m = {.rows = rows, .cols = cols, .ld = ld};
    bed b;
    open_device(&b, backend, n_threads);
    size_t n_scratch = fr__orthogonalise_floats(&m);
    float *x = device_floats(b.dev, count_of(&m)), *scratch = device_floats(b.dev, n_scratch);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < ld; c++)
            host[r * ld + c] = c < cols ? 3 * noise(9, (uint64_t)(r * cols + c)) : 0;
    float *garbage = malloc(n_scratch * sizeof *garbage);
    assert_non_null(garbage);
    memset(garbage, 0xff, n_scratch * sizeof *garbage);
    device_put(b.dev, scratch, garbage, n_scratch);
    device_put(b.dev, x, host, count_of(&m));
    fr__device_orthogonalise(b.dev, x, &m, scratch);
    device_get(b.dev, host, x, count_of(&m));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < ld; c++) {
            if (c < cols)
                out[r * cols + c] = host[r * ld + c];
            else
                assert_true(host[r * ld + c] == 0);
        }
    free(garbage);
    fr_device_release(b.dev, x, count_of(&m) * sizeof(float));
    fr_device_release(b.dev, scratch, n_scratch * sizeof(float));
    fr_device_close(b.dev);
    fr_ctx_free(b.ctx);
}

/* The largest eigenvalue of sign * (O^T O or O O^T) + shift, by power iteration. */
static double largest(const float *o, int64_t rows, int64_t cols, double sign, double shift)
{
    static double v[256], u[256], t[256];
    bool is_tall = rows > cols;
    int64_t n = is_tall ? cols : rows, length = is_tall ? rows : cols;
    double norm = 0;
#define AT(i, k) (double)o[is_tall ? (k)*cols + (i) : (i)*cols + (k)]
    for (int64_t i = 0; i < n; i++) v[i] = noise(10, (uint64_t)i);
    for (int round = 0; round < 300; round++) {
        for (int64_t k = 0; k < length; k++) {
            t[k] = 0;
            for (int64_t i = 0; i < n; i++) t[k] += AT(i, k) * v[i];
        }
        norm = 0;
        for (int64_t i = 0; i < n; i++) {
            u[i] = shift * v[i];
            for (int64_t k = 0; k < length; k++) u[i] += sign * AT(i, k) * t[k];
            norm += u[i] * u[i];
        }
        norm = sqrt(norm);
        for (int64_t i = 0; i < n; i++) v[i] = u[i] / norm;
    }
#undef AT
    return norm;
}

static void steps_are_orthogonal(void **unused)
{
    (void)unused;
    static const int64_t sizes[][3] = {{1, 9, 9},     {9, 1, 1},      {40, 90, 96},   {90, 40, 40},
                                       {150, 70, 75}, {64, 128, 128}, {130, 200, 200}};
    static float plain[MAX], other[MAX];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t rows = sizes[s][0], cols = sizes[s][1], n = rows * cols;
        orthogonalise(&fr__backend_ref, 1, rows, cols, cols, plain);
        double most = sqrt(largest(plain, rows, cols, 1, 0));
        double least = sqrt(2 - largest(plain, rows, cols, -1, 2));
        if (!(least > 0.65 && most < 1.25))
            fail_msg("%d x %d: singular values from %g to %g", (int)rows, (int)cols, least, most);
        FOR_EACH_BACKEND(b)
        {
            static float one[MAX];
            orthogonalise(*b, 1, rows, cols, sizes[s][2], one);
            for (int64_t i = 0; i < n; i++)
                if (!(fabs((double)one[i] - (double)plain[i]) <= 2e-5))
                    fail_msg("%s, %d x %d: %.9g, ref %.9g", fr_backend_name(*b), (int)rows,
                             (int)cols, (double)one[i], (double)plain[i]);
            for (int n_threads = 2; n_threads <= 3; n_threads++) {
                orthogonalise(*b, n_threads, rows, cols, sizes[s][2], other);
                assert_memory_equal(one, other, (size_t)n * sizeof *one);
            }
        }
    }
}

/* --- ranges and predictions ------------------------------------------------------------------- */

/* Four updates; out: the newest weights, then what the next forward reads. */
static void run(const fr_backend *backend, const char *policy, size_t chunk, bool is_fused,
                float *out, bed *keep)
{
    static float host[MAX];
    fr_policy own = *fr_policy_find(policy);
    bed b;
    fr_view view;
    open_bed(&b, backend, 1, policy, "muon", 30, 17);
    if (!is_fused) own.after = fr_policy_find("live")->after;
    b.d.policy = &own;
    start(&b);
    for (int t = 0; t < 4; t++) {
        fill(&b, 20 + (uint32_t)t, host);
        update(&b, t, host, chunk);
    }
    device_get(b.dev, out, fr_store_newest(b.store), b.d.n);
    assert_int_equal(fr_store_forward(b.store, 4, 0, &view), FR_OK);
    device_get(b.dev, out + b.d.n, view.weights, b.d.n);
    if (keep)
        *keep = b;
    else
        close_bed(&b);
}

static void same_bits_for_any_ranges(void **unused)
{
    (void)unused;
    static float one[2 * MAX], other[2 * MAX];
    static const char *const policies[] = {"live",     "stash",       "spectrain", "pipeoptim",
                                           "pipemare", "decay-aware", "xpipe"};
    FOR_EACH_BACKEND(b)
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        run(*b, policies[p], MAX, true, one, NULL);
        for (size_t chunk = 1; chunk < 2000; chunk = 3 * chunk + 1) {
            run(*b, policies[p], chunk, chunk % 2, other, NULL);
            assert_memory_equal(one, other, sizeof one);
        }
    }
}

/* The forward of stage 0 of 3 reads weights two updates ahead: two steps like the last one. */
static void predicts_along_the_last_step(void **unused)
{
    (void)unused;
    static float seen[2 * MAX], step[MAX];
    static const char *const policies[] = {"pipeoptim", "decay-aware", "xpipe"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        bed b;
        run(test_backend("ref"), policies[p], MAX, true, seen, &b);
        device_get(b.dev, step, b.d.state[1], b.d.n);
        for (int k = 0; k < 2; k++) {
            const fr_matrix *m = &b.matrices[k];
            double by = 2 * 1e-3 * 0.2 * sqrt(30), squares = 0;
            for (size_t i = m->offset; i < m->offset + count_of(m); i++) {
                double moved = (double)seen[i] - (double)seen[b.d.n + i];
                assert_true(fabs(moved - by * (double)step[i]) < 1e-6);
                squares += (double)step[i] * (double)step[i];
            }
            /* 17 singular values near 1 */
            assert_true(squares > 17 * 0.4 && squares < 17 * 1.5);
        }
        fr_store_done(b.store, 4, 0);
        close_bed(&b);
    }
}

/* --- bf16 ------------------------------------------------------------------------------------- */

/* Passes that read bf16 see the rounded weights and predictions of a store of floats. */
static void images(void **unused)
{
    (void)unused;
    static float grad[MAX], view[MAX];
    static uint16_t bf16[MAX];
    const char *policies[] = {"live", "spectrain", "pipeoptim", "pipemare"};
    FOR_EACH_BACKEND(backend)
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        bed b[2];
        for (int x = 0; x < 2; x++) {
            open_bed(&b[x], *backend, 2, policies[p], "muon", 24, 17);
            b[x].d.type = x ? FR_BF16 : FR_F32;
            b[x].d.master = b[x].room; /* blocks of bf16 are behind it */
            if (x) b[x].d.blocks = b[x].room + b[x].d.n;
            start(&b[x]);
        }
        for (int64_t batch = 0; batch < 5; batch++) {
            for (int x = 0; x < 2; x++) {
                fr_view f;
                fill(&b[x], 10 + (uint32_t)batch, grad);
                update(&b[x], batch, grad, x ? 100 : MAX);
                assert_int_equal(fr_store_forward(b[x].store, batch + 1, 0, &f), FR_OK);
                fr_store_abandon(b[x].store);
                assert_int_equal(f.version, batch + 1);
                if (x == 0)
                    device_get(b[x].dev, view, f.weights, b[x].d.n);
                else
                    assert_int_equal(
                        fr_device_download(b[x].dev, bf16, f.weights, b[x].d.n * sizeof *bf16),
                        FR_OK);
            }
            for (size_t i = 0; i < b[0].d.n; i++)
                if (bf16[i] != fr__bf16_of(view[i]))
                    fail_msg("%s, update %d, weight %d: not the rounded one", policies[p],
                             (int)batch, (int)i);
        }
        close_bed(&b[0]), close_bed(&b[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_torch),
        cmocka_unit_test(steps_are_orthogonal),
        cmocka_unit_test(same_bits_for_any_ranges),
        cmocka_unit_test(predicts_along_the_last_step),
        cmocka_unit_test(images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
