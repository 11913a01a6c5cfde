/* test_ranges.c -- an update submitted by several threads at once, on every backend and with any
 * number of kernel threads, gives the bits of one sweep; padding is unchanged. */
#include <forerun/weights.h>

#include "base/philox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/backend.h"

/* ThreadSanitizer does not see the locks of an OpenMP runtime: with it, ref alone. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FR_ONLY_REF true
#endif
#elif defined(__SANITIZE_THREAD__)
#define FR_ONLY_REF true
#endif
#ifndef FR_ONLY_REF
#define FR_ONLY_REF false
#endif

enum { SIZE = 60000, PAD = 64, PARTS = 3, BATCHES = 5, MAX_BLOCKS = 3 };

static float first[SIZE], grad[BATCHES][SIZE];

static int fill(void **unused)
{
    (void)unused;
    for (int b = 0; b <= BATCHES; b++)
        for (int i = 0; i < SIZE; i++) {
            uint32_t r[4];
            fr__random4(4, FR_STREAM_SYNTHETIC, (uint32_t)b, (uint64_t)i, 0, r);
            *(b < BATCHES ? &grad[b][i] : &first[i]) = 2 * fr__unit_float(r[0]) - 1;
        }
    return 0;
}

/* Part p: every PARTS-th chunk; the last PAD floats of the block are never submitted. */
typedef struct part {
    fr_store *store;
    const float *grad; /* (SIZE) on the device */
    int p;
} part;

static void *hand_in(void *arg)
{
    const part *x = arg;
    enum { CHUNK = 4099 };
    for (size_t c = (size_t)x->p; c * CHUNK < SIZE; c += PARTS) {
        size_t at = c * CHUNK, n = SIZE - at < CHUNK ? SIZE - at : CHUNK;
        fr_store_range(x->store, at, n, x->grad + at);
    }
    return NULL;
}

static void update(fr_store *s, int batch, const float *given, bool is_parallel)
{
    part parts[PARTS];
    pthread_t threads[PARTS];
    fr_store_begin(s, batch, 0.5);
    for (int p = 0; p < PARTS; p++) {
        parts[p] = (part){.store = s, .grad = given, .p = p};
        if (is_parallel)
            assert_int_equal(pthread_create(&threads[p], NULL, hand_in, &parts[p]), 0);
        else
            hand_in(&parts[p]);
    }
    for (int p = 0; p < PARTS && is_parallel; p++) pthread_join(threads[p], NULL);
    assert_int_equal(fr_store_end(s, SIZE), FR_OK);
}

/* The weights that the last forward and the last backward read, one after the other. */
static void run(const char *backend, int n_threads, bool is_parallel, const char *policy,
                float *out)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_device *dev;
    fr_store *s;
    fr_view view;
    fr_device_desc device = {.n_threads = n_threads};
    assert_int_equal(fr_device_open(ctx, fr_backend_find(backend), &device, &dev), FR_OK);
    size_t stride = SIZE + PAD;
    const size_t n = (MAX_BLOCKS + 4) * stride;
    float *room = device_floats(dev, n), *given = room + (MAX_BLOCKS + 3) * stride;
    static float plain[SIZE + PAD];
    fr_store_desc d = {
        .policy = fr_policy_find(policy),
        .context = {.stage = 2, .n_stages = 4, .lead = 1, .n_micro = 1, .n_slots = 2},
        .n_blocks = MAX_BLOCKS,
        .device = dev,
        .optimizer = fr_optim_find("adam"),
        .lr = {.name = "constant"},
        .n = stride,
        .blocks = room,
        .stride = stride,
        .state = {room + MAX_BLOCKS * stride, room + (MAX_BLOCKS + 1) * stride},
        .drift = room + (MAX_BLOCKS + 2) * stride,
        .n_samples = 100};
    d.optimizer->defaults(&d.options);
    device_put(dev, room, first, SIZE);
    /* earlier content of the memory must not matter */
    memset(plain, 0xff, sizeof plain);
    for (size_t b = 1; b < MAX_BLOCKS; b++) device_put(dev, room + b * stride, plain, stride);
    if (fr_store_create(ctx, &d, &s) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    for (int j = 0; j < BATCHES; j++) {
        assert_int_equal(fr_store_forward(s, j, 0, &view), FR_OK);
        device_get(dev, plain, view.weights, stride);
        if (j == BATCHES - 1) memcpy(out, plain, SIZE * sizeof(float));
        for (int i = SIZE; i < SIZE + PAD; i++) assert_true(plain[i] == 0);
        if (j == 0) continue;
        assert_int_equal(fr_store_backward(s, j - 1, 0, &view), FR_OK);
        device_get(dev, plain, view.weights, stride);
        if (j == BATCHES - 1) memcpy(out + SIZE, plain, SIZE * sizeof(float));
        for (int i = SIZE; i < SIZE + PAD; i++) assert_true(plain[i] == 0);
        fr_store_done(s, j - 1, 0);
        device_put(dev, given, grad[j - 1], SIZE);
        update(s, j - 1, given, is_parallel);
    }
    fr_store_free(s);
    fr_device_release(dev, room, n * sizeof(float));
    fr_device_close(dev);
    fr_ctx_free(ctx);
}

static void same_bits(void **unused)
{
    (void)unused;
    static float one[2 * SIZE], other[2 * SIZE];
    const char *policies[] = {"live", "stash", "spectrain", "spectrain-v2", "xpipe", "pipemare"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        run("ref", 1, false, policies[p], one);
        for (const fr_backend *const *b = fr_backend_list(); *b; b++)
            for (int n_threads = 1; n_threads <= 2; n_threads++)
                for (int is_parallel = 0; is_parallel < 2; is_parallel++) {
                    if (FR_ONLY_REF && strcmp(fr_backend_name(*b), "ref")) continue;
                    run(fr_backend_name(*b), n_threads, is_parallel, policies[p], other);
                    assert_memory_equal(one, other, sizeof one);
                }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, fill, NULL);
}
