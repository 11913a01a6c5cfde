/* test_loader.c -- the stream of mini-batches: order, epochs, resume, padding, errors, shutdown.
 *
 * Most tests use a data set whose samples contain their index and draw number. */
#include "base/thread.h"
#include "data/source.h"
#include "scratch.h"
#include "support/quiet.h"

enum { WIDTH = 3, HELD_NS = 5000000 };

typedef struct probe_set {
    fr_dataset base;
    int64_t fail_at;   /* index whose read fails; -1: none */
    int64_t ignore_at; /* index with ignored targets */
    useconds_t delay;
    bool is_held; /* read sample 0 only when the caller waits, and 5 ms later */
} probe_set;

static fr_status probe_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                            uint64_t draw, void *input, void *target, int32_t *length)
{
    const probe_set *p = (const probe_set *)d;
    int32_t *x = input, *y = target;
    if (p->delay) usleep(p->delay);
    if (p->is_held && index == 0) {
        quiet_wait();
        fr__sleep_ns(HELD_NS);
    }
    if (index == p->fail_at)
        return fr_fail(d->ctx, FR_INVALID, "sample %d cannot be read", (int)index);
    x[0] = (int32_t)index;
    x[1] = draw == FR_DRAW_PLAIN ? -1 : (int32_t)draw;
    x[2] = (int32_t)seed;
    y[0] = index == p->ignore_at ? FR_TARGET_IGNORE : (int32_t)split;
    y[1] = (int32_t)index;
    *length = (int32_t)(index % WIDTH + 1);
    return FR_OK;
}

static const fr__data_ops probe_ops = {.read = probe_read};

static probe_set *probe(scratch *s, int64_t n_train, int64_t n_eval)
{
    probe_set *p = fr__dataset_new(s->ctx, sizeof *p, &probe_ops);
    assert_non_null(p);
    p->fail_at = p->ignore_at = -1;
    p->base.info = (fr_data_info){.n_train = n_train,
                                  .n_eval = n_eval,
                                  .input = FR_SHAPE(WIDTH),
                                  .input_dtype = FR_I32,
                                  .target = FR_SHAPE(2),
                                  .n_classes = 1000,
                                  .vocab = 1000,
                                  .has_length = true};
    return p;
}

static fr_loader *make(scratch *s, const fr_loader_desc *desc)
{
    fr_loader *l;
    if (fr_loader_create(s->ctx, desc, &l) != FR_OK) fail_msg("%s", fr_ctx_error(s->ctx));
    return l;
}

static const fr_batch *next(fr_loader *l)
{
    const fr_batch *b;
    assert_int_equal(fr_loader_next(l, &b), FR_OK);
    return b;
}

/* Collect the indices of n_steps mini-batches from first on; check draws, lengths and targets. */
static void collect(scratch *s, probe_set *p, int batch, int64_t first, int64_t n_steps, int ahead,
                    uint64_t seed, int32_t *index)
{
    fr_loader *l = make(s, &(fr_loader_desc){.data = &p->base,
                                             .batch = batch,
                                             .seed = seed,
                                             .first_step = first,
                                             .n_steps = n_steps,
                                             .ahead = ahead});
    for (int64_t k = 0; k < n_steps; k++) {
        const fr_batch *b = next(l);
        assert_non_null(b);
        assert_int_equal(b->step, first + k);
        assert_int_equal(b->n_samples, batch);
        assert_int_equal(b->n_targets, 2 * batch);
        for (int i = 0; i < batch; i++) {
            const int32_t *x = (const int32_t *)b->input + i * WIDTH;
            assert_int_equal(x[1], (first + k) * batch + i);
            assert_int_equal(x[2], seed);
            assert_int_equal(((int32_t *)b->target)[2 * i], FR_TRAIN);
            assert_int_equal(((int32_t *)b->target)[2 * i + 1], x[0]);
            assert_int_equal(b->length[i], x[0] % WIDTH + 1);
            index[k * batch + i] = x[0];
        }
        fr_loader_release(l, b);
    }
    assert_null(next(l));
    assert_null(next(l));
    fr_loader_free(l);
}

/* Every epoch has every sample once, in another order; epochs end inside mini-batches. */
static void epochs(void **state)
{
    scratch *s = *state;
    enum { N = 50, BATCH = 7, STEPS = 30, EPOCHS = BATCH * STEPS / N };
    int32_t a[BATCH * STEPS], b[BATCH * STEPS];
    probe_set *p = probe(s, N, 0);
    collect(s, p, BATCH, 0, STEPS, 3, 11, a);
    for (int e = 0; e < EPOCHS; e++) {
        int seen[N] = {0}, in_place = 0, as_before = 0;
        for (int i = 0; i < N; i++) {
            assert_int_equal(seen[a[e * N + i]]++, 0);
            in_place += a[e * N + i] == i;
            as_before += e && a[e * N + i] == a[(e - 1) * N + i];
        }
        assert_true(in_place < N / 3 && as_before < N / 3);
    }
    collect(s, p, BATCH, 0, STEPS, 1, 11, b);
    assert_memory_equal(a, b, sizeof a);
    collect(s, p, BATCH, 0, STEPS, 2, 12, b);
    assert_memory_not_equal(a, b, sizeof a);
    /* another size of mini-batch cuts the same stream elsewhere */
    collect(s, p, 2 * BATCH, 0, STEPS / 2, 2, 11, b);
    assert_memory_equal(a, b, sizeof a);
    fr_dataset_close(&p->base);
}

/* The permutation is uniform: each sample is first about equally often. */
static void shuffle_is_fair(void **state)
{
    scratch *s = *state;
    enum { N = 5, EPOCHS = 2000 };
    static int32_t index[N * EPOCHS];
    int at[N][N] = {{0}};
    probe_set *p = probe(s, N, 0);
    collect(s, p, N, 0, EPOCHS, 2, 3, index);
    for (int i = 0; i < N * EPOCHS; i++) at[i % N][index[i]]++;
    for (int i = 0; i < N * N; i++) /* 400 expected, standard deviation 18 */
        assert_int_in_range(at[i / N][i % N], 310, 490);
    fr_dataset_close(&p->base);
}

static void resume_at_any_step(void **state)
{
    scratch *s = *state;
    enum { N = 23, BATCH = 4, STEPS = 20 };
    int32_t all[BATCH * STEPS], part[BATCH * STEPS];
    probe_set *p = probe(s, N, 0);
    collect(s, p, BATCH, 0, STEPS, 2, 5, all);
    for (int first = 1; first < STEPS; first++) {
        collect(s, p, BATCH, first, STEPS - first, 2, 5, part);
        assert_memory_equal(all + first * BATCH, part,
                            sizeof(int32_t) * BATCH * (size_t)(STEPS - first));
    }
    fr_dataset_close(&p->base);
}

/* A mini-batch may be larger than the data set. */
static void batch_over_epochs(void **state)
{
    scratch *s = *state;
    int32_t index[30];
    int count[3] = {0};
    probe_set *p = probe(s, 3, 0);
    collect(s, p, 10, 0, 3, 2, 1, index);
    for (int i = 0; i < 30; i++) count[index[i]]++;
    for (int i = 0; i < 3; i++) assert_int_equal(count[i], 10);
    fr_dataset_close(&p->base);
}

static void in_order(void **state)
{
    scratch *s = *state;
    probe_set *p = probe(s, 5, 0);
    fr_loader *l =
        make(s, &(fr_loader_desc){.data = &p->base, .batch = 2, .n_steps = 6, .in_order = true});
    for (int k = 0; k < 6; k++) {
        const fr_batch *b = next(l);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(((const int32_t *)b->input)[i * WIDTH], (2 * k + i) % 5);
            assert_int_equal(((const int32_t *)b->input)[i * WIDTH + 1], -1);
        }
        fr_loader_release(l, b);
    }
    assert_null(next(l));
    fr_loader_free(l);
    fr_dataset_close(&p->base);
}

/* Evaluation: each sample once, in order; the last mini-batch is padded, also in reused buffers. */
static void evaluation(void **state)
{
    scratch *s = *state;
    enum { N = 11, BATCH = 4 };
    probe_set *p = probe(s, 2, N);
    p->ignore_at = 5;
    for (int ahead = 1; ahead <= 5; ahead++) {
        fr_loader *l = make(
            s,
            &(fr_loader_desc){
                .data = &p->base, .split = FR_EVAL, .batch = BATCH, .n_steps = 99, .ahead = ahead});
        for (int k = 0; k < 3; k++) {
            const fr_batch *b = next(l);
            assert_int_equal(b->step, k);
            assert_int_equal(b->n_samples, k < 2 ? 4 : 3);
            assert_int_equal(b->n_targets, k == 0 ? 8 : k == 1 ? 7 : 6);
            for (int i = 0; i < BATCH; i++) {
                const int32_t *x = (const int32_t *)b->input + i * WIDTH;
                bool real = k * BATCH + i < N;
                assert_int_equal(x[0], real ? k * BATCH + i : 0);
                assert_int_equal(x[1], real ? -1 : 0);
                assert_int_equal(((int32_t *)b->target)[2 * i + 1],
                                 real ? k * BATCH + i : FR_TARGET_IGNORE);
                assert_int_equal(b->length[i], real ? x[0] % WIDTH + 1 : 1);
            }
            fr_loader_release(l, b);
        }
        assert_null(next(l));
        fr_loader_free(l);
    }
    fr_dataset_close(&p->base);
}

static void holding_several(void **state)
{
    scratch *s = *state;
    const fr_batch *held[3], *extra;
    probe_set *p = probe(s, 100, 0);
    fr_loader *l =
        make(s, &(fr_loader_desc){.data = &p->base, .batch = 2, .n_steps = 10, .ahead = 3});
    for (int i = 0; i < 3; i++) held[i] = next(l);
    for (int i = 0; i < 3; i++) assert_int_equal(held[i]->step, i);
    assert_int_equal(fr_loader_next(l, &extra), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(s->ctx), "all 3 are held"));
    fr_ctx_clear(s->ctx);
    /* release out of order, of NULL, and a second time after the slot was refilled */
    fr_loader_release(l, held[1]);
    fr_loader_release(l, held[0]);
    fr_loader_release(l, NULL);
    quiet_wait();
    fr_loader_release(l, held[0]);
    for (int i = 3; i < 5; i++) {
        extra = next(l);
        assert_int_equal(extra->step, i);
    }
    assert_int_equal(held[2]->step, 2);
    fr_loader_free(l);
    fr_dataset_close(&p->base);
}

/* Mini-batches read before the error come first, then the error at every call. */
static void error_in_the_thread(void **state)
{
    scratch *s = *state;
    const fr_batch *b;
    probe_set *p = probe(s, 100, 0);
    p->fail_at = 9;
    fr_loader *l =
        make(s, &(fr_loader_desc){
                    .data = &p->base, .batch = 3, .n_steps = 10, .ahead = 2, .in_order = true});
    for (int i = 0; i < 3; i++) {
        b = next(l);
        assert_int_equal(b->step, i);
        fr_loader_release(l, b);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fr_loader_next(l, &b), FR_INVALID);
        assert_null(b);
    }
    assert_string_equal(fr_ctx_error(s->ctx), "sample 9 cannot be read");
    fr_loader_free(l);
    fr_dataset_close(&p->base);
}

/* Stop while the thread fills, while it waits for a free slot, before and after the end. */
static void stop_at_any_time(void **state)
{
    scratch *s = *state;
    probe_set *p = probe(s, 40, 0);
    for (int run = 0; run < 60; run++) {
        p->delay = run % 2 ? 200 : 0;
        fr_loader *l = make(
            s, &(fr_loader_desc){.data = &p->base, .batch = 4, .n_steps = 5, .ahead = 1 + run % 3});
        for (int k = 0; k < run % 7; k++) {
            const fr_batch *b = next(l);
            if (k < 5) assert_non_null(b);
            if (!b || run % 3 == 0) fr_loader_release(l, b);
            if (b && run % 3 != 0) break; /* and free with one held */
        }
        if (run % 5 == 0) usleep(1000);
        fr_loader_free(l);
    }
    fr_loader_free(NULL);
    fr_dataset_close(&p->base);
}

static void no_allocation_and_waiting(void **state)
{
    scratch *s = *state;
    probe_set *p = probe(s, 64, 0);
    p->is_held = true;
    fr_loader *l = make(s, &(fr_loader_desc){.data = &p->base, .batch = 8, .n_steps = 40});
    uint64_t before = fr__alloc_count(), begin = fr__now_ns();
    for (int k = 0; k < 40; k++) fr_loader_release(l, next(l));
    uint64_t took = fr__now_ns() - begin;
    assert_int_equal(fr__alloc_count(), before);
    /* sample 0 is drawn five times in 40 mini-batches of 8 out of 64 */
    assert_int_in_range(fr_loader_wait_ns(l), (uint64_t)5 * HELD_NS, took);
    assert_true(fr_loader_bytes(l) >= 2 * 8 * (WIDTH + 2 + 1) * sizeof(int32_t) + 64 * 8);
    fr_loader_free(l);
    fr_dataset_close(&p->base);
}

static void bad_descriptions(void **state)
{
    scratch *s = *state;
    probe_set *p = probe(s, 10, 0);
    fr_loader *l;
    const fr_loader_desc bad[] = {
        {.data = &p->base, .batch = 0, .n_steps = 1},
        {.data = &p->base, .batch = 1, .n_steps = -1},
        {.data = &p->base, .batch = 1, .first_step = -1, .n_steps = 1},
        {.data = &p->base, .batch = 1, .n_steps = 1, .ahead = -1},
        {.data = &p->base, .batch = 1 << 20, .first_step = INT64_MAX / 2, .n_steps = 1},
        {.data = &p->base, .batch = 1, .split = FR_EVAL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_ctx_clear(s->ctx);
        assert_int_equal(fr_loader_create(s->ctx, &bad[i], &l), FR_INVALID);
        assert_null(l);
    }
    assert_non_null(strstr(fr_ctx_error(s->ctx), "no evaluation part"));
    fr_dataset_close(&p->base);
}

static void out_of_memory(void **state)
{
    scratch *s = *state;
    probe_set *p = probe(s, 10, 0);
    int n_failed = 0;
    for (int64_t n = 0;; n++) {
        fr_loader *l;
        fr_ctx_clear(s->ctx);
        fr__alloc_fail_after(n);
        fr_status status = fr_loader_create(
            s->ctx, &(fr_loader_desc){.data = &p->base, .batch = 2, .n_steps = 3}, &l);
        fr__alloc_fail_after(-1);
        if (status == FR_OK) {
            fr_loader_free(l);
            break;
        }
        assert_int_equal(status, FR_NO_MEMORY);
        assert_null(l);
        n_failed++;
    }
    assert_int_equal(n_failed, 4);
    fr_dataset_close(&p->base);
}

/* With a real source, the loader returns the samples of fr_dataset_read. */
static void same_as_reading(void **state)
{
    scratch *s = *state;
    enum { CONTEXT = 6 };
    unsigned char text[300];
    int32_t x[CONTEXT], y[CONTEXT];
    for (int i = 0; i < 300; i++) text[i] = (unsigned char)(i * 7);
    put_file(s, "text", text, sizeof text);
    fr_dataset *d = open_good(s, NULL, "{name: text, path: '@/text', context: 6}");
    int64_t n = fr_dataset_info(d)->n_train, position = 0;
    fr_loader *l = make(s, &(fr_loader_desc){.data = d, .batch = 5, .seed = 9, .n_steps = 40});
    for (const fr_batch *b; (b = next(l)); fr_loader_release(l, b))
        for (int i = 0; i < b->n_samples; i++, position++) {
            int matches = 0;
            for (int64_t w = 0; w < n; w++) {
                assert_int_equal(fr_dataset_read(d, FR_TRAIN, w, 9, (uint64_t)position, x, y, NULL),
                                 FR_OK);
                matches += memcmp(x, (const int32_t *)b->input + i * CONTEXT, sizeof x) == 0 &&
                           memcmp(y, (int32_t *)b->target + i * CONTEXT, sizeof y) == 0;
            }
            assert_true(matches >= 1);
            assert_null(b->length);
        }
    assert_int_equal(position, 200);
    fr_loader_free(l);
    fr_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(epochs),          T(shuffle_is_fair),           T(resume_at_any_step),
        T(in_order),        T(batch_over_epochs),         T(evaluation),
        T(holding_several), T(error_in_the_thread),       T(stop_at_any_time),
        T(out_of_memory),   T(no_allocation_and_waiting), T(bad_descriptions),
        T(same_as_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
