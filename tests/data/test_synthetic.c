/* test_synthetic.c -- synthetic data: pure functions of (seed, index), correct shapes,
 * learnable. */
#include "base/thread.h"
#include "scratch.h"

#include <math.h>

static const fr_data_info images = {.input = {3, {3, 9, 6}}, .n_classes = 10};
static const fr_data_info letters = {.input = {1, {32}},
                                     .input_dtype = FR_I32,
                                     .target = {1, {32}},
                                     .vocab = 1000,
                                     .n_classes = 1000};
static const fr_data_info texts = {
    .input = {1, {33}}, .input_dtype = FR_I32, .vocab = 300, .n_classes = 4, .has_length = true};

static void pure_function(void **state)
{
    scratch *s = *state;
    float a[162], b[162], sum = 0, squares = 0;
    int32_t ya, yb;
    fr_dataset *d = open_good(s, &images, "{name: synthetic, n: 1000, n_eval: 20, seed: 5}");
    fr_dataset *same = open_good(s, &images, "{name: synthetic, seed: 5}");
    fr_dataset *other = open_good(s, &images, "{name: synthetic, seed: 6}");
    assert_int_equal(fr_dataset_info(d)->n_train, 1000);
    assert_int_equal(fr_dataset_info(d)->n_eval, 20);
    assert_int_equal(fr_dataset_info(same)->n_train, 4096);
    assert_int_equal(fr_dataset_info(same)->n_eval, 512);
    for (int64_t i = 0; i < 1000; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 1, a, &ya, NULL), FR_OK);
        assert_int_equal(fr_dataset_read(same, FR_TRAIN, i, 2, 2, b, &yb, NULL), FR_OK);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(ya, yb);
        for (int k = 0; k < 162; k++) sum += a[k], squares += a[k] * a[k];
    }
    assert_true(fabsf(sum / 162000) < 0.05f);
    assert_true(fabsf(squares / 162000 - 1) < 0.1f);
    assert_int_equal(fr_dataset_read(other, FR_TRAIN, 999, 1, 1, b, &yb, NULL), FR_OK);
    assert_true(memcmp(a, b, sizeof a) != 0);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 3, 1, 1, a, &ya, NULL), FR_OK);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 3, 1, 1, b, &yb, NULL), FR_OK);
    assert_true(memcmp(a, b, sizeof a) != 0);
    fr_dataset_close(d);
    fr_dataset_close(same);
    fr_dataset_close(other);
}

/* The nearest class mean of the training part must classify the evaluation part: so a linear model
 * can learn it. One-dimensional inputs too. */
static void check_classes(scratch *s, const fr_data_info *want)
{
    enum { MOST = 512 };
    static float mean[10][MOST];
    float x[MOST];
    int32_t y;
    int n = (int)fr_shape_count(&want->input), count[10] = {0}, right = 0;
    memset(mean, 0, sizeof mean);
    fr_dataset *d = open_good(s, want, "{name: synthetic}");
    for (int64_t i = 0; i < 4096; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 1, x, &y, NULL), FR_OK);
        assert_int_in_range(y, 0, 9);
        count[y]++;
        for (int k = 0; k < n; k++) mean[y][k] += x[k];
    }
    for (int c = 0; c < 10; c++) {
        assert_true(count[c] > 300);
        for (int k = 0; k < n; k++) mean[c][k] /= (float)count[c];
    }
    for (int64_t i = 0; i < 512; i++) {
        int best = 0;
        float least = INFINITY;
        assert_int_equal(fr_dataset_read(d, FR_EVAL, i, 1, 1, x, &y, NULL), FR_OK);
        for (int c = 0; c < 10; c++) {
            float far = 0;
            for (int k = 0; k < n; k++) far += (x[k] - mean[c][k]) * (x[k] - mean[c][k]);
            if (far < least) least = far, best = c;
        }
        right += best == y;
    }
    assert_true(right > 450);
    fr_dataset_close(d);
}

static void classes_can_be_learnt(void **state)
{
    check_classes(*state, &images);
    check_classes(*state, &(fr_data_info){.input = FR_SHAPE(100), .n_classes = 10});
    check_classes(*state, &(fr_data_info){.input = FR_SHAPE(20, 15), .n_classes = 10});
}

/* A text and its translation: a letter always has the same target, the decoder reads the targets
 * one step later, and tokens after the length are padding. */
static void pairs_translate(void **state)
{
    static const fr_data_info pairs = {.input = {1, {24}},
                                       .input_dtype = FR_I32,
                                       .target = {1, {12}},
                                       .vocab = 40,
                                       .n_classes = 40,
                                       .has_length = true};
    fr_dataset *d = open_good(*state, &pairs, "{name: synthetic}");
    int32_t ids[24], target[12], length, translation[40];
    bool is_short = false;
    for (int i = 0; i < 40; i++) translation[i] = -1;
    for (int64_t i = 0; i < 200; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 1, ids, target, &length), FR_OK);
        assert_int_in_range(length, 6, 12);
        is_short |= length < 12;
        for (int t = 0; t < 12; t++) {
            if (t >= length) {
                assert_true(ids[t] == 0 && ids[12 + t] == 0 && target[t] == FR_TARGET_IGNORE);
                continue;
            }
            assert_int_in_range(ids[t], 0, 39);
            if (translation[ids[t]] < 0) translation[ids[t]] = target[t];
            assert_int_equal(target[t], translation[ids[t]]);
            assert_int_equal(ids[12 + t], t > 0 ? target[t - 1] : 0);
        }
    }
    assert_true(is_short);
    fr_dataset_close(d);
}

/* Targets are the next tokens, and one rule explains most of them. */
static void next_tokens(void **state)
{
    scratch *s = *state;
    static int follows[1000][2]; /* last successor, and how often it repeated */
    int32_t x[32], y[32];
    int n = 0, held = 0;
    memset(follows, 0, sizeof follows);
    fr_dataset *d = open_good(s, &letters, "{name: synthetic}");
    for (int64_t i = 0; i < 4096; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 1, x, y, NULL), FR_OK);
        for (int t = 0; t < 32; t++) {
            assert_int_in_range(x[t], 0, 999);
            assert_int_in_range(y[t], 0, 999);
            if (t < 31) assert_int_equal(y[t], x[t + 1]);
            n++;
            held += follows[x[t]][0] == y[t];
            follows[x[t]][0] = y[t];
        }
    }
    double share = (double)held / n; /* (7/8)^2 and chance */
    assert_true(share > 0.7 && share < 0.85);
    fr_dataset_close(d);
}

/* The word counts of a text determine the class; padding is zero, after the length. */
static void texts_with_length(void **state)
{
    scratch *s = *state;
    static int count[4][300];
    int32_t x[33], y, length;
    int right = 0, shortest = 33, longest = 0;
    memset(count, 0, sizeof count);
    fr_dataset *d = open_good(s, &texts, "{name: synthetic}");
    for (int64_t i = 0; i < 4096 + 512; i++) {
        int64_t index = i < 4096 ? i : i - 4096;
        assert_int_equal(
            fr_dataset_read(d, i < 4096 ? FR_TRAIN : FR_EVAL, index, 1, 1, x, &y, &length), FR_OK);
        assert_int_in_range(y, 0, 3);
        if (length < shortest) shortest = length;
        if (length > longest) longest = length;
        double score[4] = {0};
        for (int t = 0; t < 33; t++) {
            if (t >= length) assert_int_equal(x[t], 0);
            if (t >= length) continue;
            assert_int_in_range(x[t], 2, 299);
            for (int c = 0; c < 4; c++) score[c] += log(count[c][x[t]] + 1);
            if (i < 4096) count[y][x[t]]++;
        }
        int best = 0;
        for (int c = 1; c < 4; c++)
            if (score[c] > score[best]) best = c;
        if (i >= 4096) right += best == y;
    }
    assert_int_equal(shortest, 17);
    assert_int_equal(longest, 33);
    assert_true(right > 450);
    fr_dataset_close(d);
}

static void small_and_odd_shapes(void **state)
{
    scratch *s = *state;
    int32_t x[4], y[4], length;
    fr_dataset *d = open_good(s,
                              &(fr_data_info){.input = FR_SHAPE(1),
                                              .input_dtype = FR_I32,
                                              .vocab = 1,
                                              .n_classes = 1,
                                              .has_length = true},
                              "{name: synthetic, n_eval: 0}");
    for (int64_t i = 0; i < 50; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 1, x, y, &length), FR_OK);
        assert_int_equal(x[0], 0);
        assert_int_equal(y[0], 0);
        assert_int_equal(length, 1);
    }
    fr_dataset_close(d);
    /* fewer classes than words: targets stay in range */
    d = open_good(s,
                  &(fr_data_info){.input = FR_SHAPE(4),
                                  .input_dtype = FR_I32,
                                  .target = FR_SHAPE(4),
                                  .vocab = 100,
                                  .n_classes = 3},
                  "{name: synthetic}");
    for (int64_t i = 0; i < 50; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 1, x, y, &length), FR_OK);
        for (int t = 0; t < 4; t++) assert_int_in_range(y[t], 0, 2);
    }
    fr_dataset_close(d);
}

static void errors(void **state)
{
    scratch *s = *state;
    open_bad(s, NULL, "{name: synthetic}", "test.yaml:1", "model", NULL);
    open_bad(s, &(fr_data_info){.input = FR_SHAPE(3, 0, 2), .n_classes = 2}, "{name: synthetic}",
             "model", NULL);
    open_bad(s, &(fr_data_info){.input = FR_SHAPE(1 << 20, 1 << 20), .n_classes = 2},
             "{name: synthetic}", "model", NULL);
    open_bad(s, &(fr_data_info){.input = FR_SHAPE(4), .input_dtype = FR_I32, .n_classes = 2},
             "{name: synthetic}", "vocab", NULL);
    open_bad(s, &images, "{name: synthetic, n: 0}", "n", NULL);
}

static void out_of_memory(void **state)
{
    scratch *s = *state;
    fr_dataset *d = NULL;
    for (int64_t n = 0; n < 2; n++) {
        parse_conf(s, "{name: synthetic}");
        /* keys are read first; then the set and its pool */
        fr_data_find("synthetic");
        fr__alloc_fail_after(n);
        fr_status status = fr_dataset_open(s->ctx, s->conf, &images, &d);
        fr__alloc_fail_after(-1);
        assert_int_equal(status, FR_NO_MEMORY);
        assert_null(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(pure_function),     T(classes_can_be_learnt), T(next_tokens), T(pairs_translate),
        T(texts_with_length), T(small_and_odd_shapes),  T(errors),      T(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
