/* test_text.c -- windows of a long text: values, shifts by epoch, 16-bit tokens, errors. */
#include "scratch.h"

enum { TEXT = 1000, CONTEXT = 8 };

static unsigned char letter(int64_t i) { return (unsigned char)(i * 37 + i / 256); }

static void put_text(const scratch *s, const char *name, int64_t first, size_t n)
{
    unsigned char data[TEXT];
    for (size_t i = 0; i < n; i++) data[i] = letter(first + (int64_t)i);
    put_file(s, name, data, n);
}

/* "a" 2, "b" 3, "c." 4; the evaluation part does not affect the vocabulary. */
static void words(void **state)
{
    scratch *s = *state;
    int32_t x[4], y[4];
    static const char text[] = "a b  a c.\n\ta\nb a\n"; /* 10 words and line ends */
    put_file(s, "train.gz", text, strlen(text));
    put_file(s, "eval", "a d\nb", 5);
    fr_dataset *d = open_good(s, NULL,
                              "{name: text, tokens: words, path: '@/train.gz', eval_path: '@/eval',"
                              " context: 4}");
    assert_int_equal(fr_dataset_info(d)->vocab, 2 + 3);
    assert_int_equal(fr_dataset_info(d)->n_classes, 5);
    assert_int_equal(fr_dataset_info(d)->n_train, 1);
    assert_int_equal(fr_dataset_info(d)->n_eval, 1);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 0, 1, UINT64_MAX, x, y, NULL), FR_OK);
    assert_memory_equal(x, ((int32_t[]){2, 3, 2, 4}), sizeof x);
    assert_memory_equal(y, ((int32_t[]){3, 2, 4, 1}), sizeof y);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 1, 1, x, y, NULL), FR_OK);
    assert_memory_equal(x, ((int32_t[]){2, 0, 1, 0}), sizeof x);
    assert_memory_equal(y, ((int32_t[]){0, 1, 3, FR_TARGET_IGNORE}), sizeof y);
    fr_dataset_close(d);
    /* the last fifth of the words is for evaluation: b, a, </s> of the last line less one */
    fr_data_info want = {.vocab = 3};
    d = open_good(
        s, &want,
        "{name: text, tokens: words, path: '@/train.gz', eval_fraction: 0.2, context: 2}");
    assert_int_equal(fr_dataset_info(d)->vocab, 3);
    assert_int_equal(fr_dataset_info(d)->n_eval, 1);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 1, 1, x, y, NULL), FR_OK);
    assert_true(x[0] == 2 && y[0] == 1 && y[1] == FR_TARGET_IGNORE);
    fr_dataset_close(d);
    open_bad(s, NULL, "{name: text, tokens: words, path: '@/eval', vocab: 2}", "at least 3", NULL);
    open_bad(s, NULL, "{name: text, tokens: words, path: '@/eval'}", "training part", NULL);
    walk_out_of_memory(s, NULL,
                       "{name: text, tokens: words, path: '@/train.gz', eval_path: '@/eval', "
                       "context: 4}");
}

static void byte_windows(void **state)
{
    scratch *s = *state;
    int32_t x[CONTEXT], y[CONTEXT];
    put_text(s, "text.gz", 0, TEXT);
    fr_dataset *d = open_good(s, NULL, "{name: text, path: '@/text.gz', context: 8}");
    const fr_data_info *info = fr_dataset_info(d);
    assert_int_equal(info->n_train, 900 / 8 - 1);
    assert_int_equal(info->n_eval, 13); /* 99 targets: 12 whole windows and one of 3 */
    assert_int_equal(info->vocab, 256);
    assert_int_equal(info->n_classes, 256);
    assert_int_equal(info->input_dtype, FR_I32);
    assert_false(info->has_length);
    assert_true(fr_shape_equal(&info->input, &FR_SHAPE(CONTEXT)));
    assert_true(fr_shape_equal(&info->target, &FR_SHAPE(CONTEXT)));
    for (int64_t w = 0; w < 13; w++) {
        assert_int_equal(fr_dataset_read(d, FR_EVAL, w, 1, 5, x, y, NULL), FR_OK);
        for (int64_t i = 0; i < CONTEXT; i++) {
            int64_t at = w * CONTEXT + i;
            assert_int_equal(x[i], at < 99 ? letter(900 + at) : 0);
            assert_int_equal(y[i], at < 99 ? letter(900 + at + 1) : FR_TARGET_IGNORE);
        }
    }
    fr_dataset_close(d);
}

/* All windows of an epoch shift by the same number of tokens; every number below the context
 * occurs; nothing is read beyond the training part. */
static void shift_by_epoch(void **state)
{
    scratch *s = *state;
    int seen[CONTEXT] = {0}, n_seen = 0;
    put_text(s, "text", 0, TEXT);
    fr_dataset *d = open_good(s, NULL, "{name: text, path: '@/text', context: 8}");
    int64_t n = fr_dataset_info(d)->n_train;
    for (int64_t epoch = 0; epoch < 100; epoch++) {
        int64_t shift = -1;
        for (int64_t w = 0; w < n; w++) {
            int32_t x[CONTEXT], y[CONTEXT];
            uint64_t draw = (uint64_t)(epoch * n + (w * 17) % n);
            assert_int_equal(fr_dataset_read(d, FR_TRAIN, w, 3, draw, x, y, NULL), FR_OK);
            for (int64_t k = 0; shift < 0 && k < CONTEXT; k++)
                if (x[0] == letter(k) && x[1] == letter(k + 1)) shift = k;
            assert_true(shift >= 0);
            for (int64_t i = 0; i < CONTEXT; i++) {
                assert_int_equal(x[i], letter(w * CONTEXT + shift + i));
                assert_int_equal(y[i], letter(w * CONTEXT + shift + i + 1));
            }
            assert_true(w * CONTEXT + shift + CONTEXT < 900);
        }
        n_seen += !seen[shift]++;
    }
    assert_int_equal(n_seen, CONTEXT);
    fr_dataset_close(d);
}

static void sizes(void **state)
{
    scratch *s = *state;
    fr_data_info want = {.input = FR_SHAPE(50)};
    put_text(s, "a", 0, 100);
    put_text(s, "b", 500, 10);
    /* the model's context, and a separate evaluation file */
    fr_dataset *d = open_good(s, &want, "{name: text, path: '@/a', eval_path: '@/b'}");
    int32_t x[50], y[50];
    assert_true(fr_shape_equal(&fr_dataset_info(d)->input, &FR_SHAPE(50)));
    assert_int_equal(fr_dataset_info(d)->n_train, 1);
    assert_int_equal(fr_dataset_info(d)->n_eval, 1);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 0, 0, x, y, NULL), FR_OK);
    assert_int_equal(x[0], letter(500));
    assert_int_equal(y[8], letter(509));
    assert_int_equal(y[9], FR_TARGET_IGNORE);
    fr_dataset_close(d);
    /* no evaluation part; the shortest valid text */
    d = open_good(s, NULL, "{name: text, path: '@/b', context: 9, eval_fraction: 0}");
    assert_int_equal(fr_dataset_info(d)->n_train, 1);
    assert_int_equal(fr_dataset_info(d)->n_eval, 0);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 0, 1, 77, x, y, NULL), FR_OK);
    assert_int_equal(y[8], letter(509));
    fr_dataset_close(d);
}

static void bytes_and_text(void **state)
{
    scratch *s = *state;
    int32_t ids[8];
    size_t n;
    put_text(s, "text", 0, TEXT);
    fr_dataset *d = open_good(s, NULL, "{name: text, path: '@/text', context: 8}");
    assert_int_equal(fr_dataset_encode(d, "h\xc3\xa9!", 4, ids, 8), 4);
    assert_int_equal(ids[1], 0xc3);
    for (int i = 0; i < 4; i++) {
        const char *text = fr_dataset_token_text(d, ids[i], &n);
        assert_int_equal(n, 1);
        assert_int_equal(text[0], "h\xc3\xa9!"[i]);
    }
    assert_int_equal(fr_dataset_encode(d, "longer than the room", 20, ids, 3), 3);
    assert_null(fr_dataset_token_text(d, 256, &n));
    assert_null(fr_dataset_token_text(d, -1, &n));
    fr_dataset_close(d);
}

static void tokens_of_16_bits(void **state)
{
    scratch *s = *state;
    unsigned char data[2 * 40];
    int32_t x[4], y[4], ids[1];
    size_t n;
    for (int i = 0; i < 40; i++) {
        int id = (i * 613) % 30000;
        data[2 * i] = (unsigned char)(id & 255);
        data[2 * i + 1] = (unsigned char)(id >> 8);
    }
    put_file(s, "tokens", data, sizeof data);
    fr_dataset *d =
        open_good(s, NULL, "{name: text, path: '@/tokens', tokens: uint16, context: 4}");
    assert_int_equal(fr_dataset_info(d)->vocab, 39 * 613 + 1);
    assert_int_equal(fr_dataset_info(d)->n_train, 8);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 0, 0, x, y, NULL), FR_OK);
    assert_int_equal(x[0], 36 * 613);
    assert_int_equal(y[2], 39 * 613);
    assert_int_equal(y[3], FR_TARGET_IGNORE);
    assert_int_equal(fr_dataset_encode(d, "a", 1, ids, 1), -1);
    assert_null(fr_dataset_token_text(d, 0, &n));
    fr_dataset_close(d);
    d = open_good(s, NULL,
                  "{name: text, path: '@/tokens', tokens: uint16, context: 4, vocab: 50257}");
    assert_int_equal(fr_dataset_info(d)->vocab, 50257);
    fr_dataset_close(d);
    open_bad(s, NULL, "{name: text, path: '@/tokens', tokens: uint16, context: 4, vocab: 23294}",
             "tokens: token 38 is 23294", "vocab", NULL);
    put_file(s, "odd", data, 79);
    open_bad(s, NULL, "{name: text, path: '@/odd', tokens: uint16, context: 4}", "odd: 79 bytes",
             NULL);
}

static void errors(void **state)
{
    scratch *s = *state;
    put_text(s, "text", 0, 100);
    open_bad(s, NULL, "{name: text}", "path", NULL);
    open_bad(s, NULL, "{name: text, path: '@/none'}", "test.yaml:1", "none", NULL);
    open_bad(s, NULL, "{name: text, path: '@'}", "test.yaml:1", "no file", NULL);
    open_bad(s, NULL, "{name: text, path: '@/text', eval_path: '@/none'}", "eval_path", NULL);
    open_bad(s, NULL, "{name: text, path: '@/text', context: 90}", "text: ", "90 tokens",
             "at least 91", NULL);
    open_bad(s, NULL, "{name: text, path: '@/text', tokens: letters}", "letters", "bytes, uint16",
             NULL);
    open_bad(s, NULL, "{name: text, path: '@/text', vocab: 100}", "256", NULL);
    open_bad(s, NULL, "{name: text, path: '@/text', eval_fraction: 1.5}", "eval_fraction", NULL);
}

static void out_of_memory(void **state)
{
    scratch *s = *state;
    put_text(s, "a", 0, 100);
    put_text(s, "b.gz", 0, 100);
    walk_out_of_memory(s, NULL, "{name: text, path: '@/a', eval_path: '@/b.gz', context: 8}");
}

static void real_text(void **state)
{
    const char *root = getenv("FR_DATA_DIR");
    char yaml[1024];
    int32_t x[128], y[128];
    if (!root) skip_because("the real tiny Shakespeare", NO_DATA);
    snprintf(yaml, sizeof yaml, "{name: text, path: '%s/tinyshakespeare/input.txt', context: 128}",
             root);
    fr_dataset *d = open_good(*state, NULL, yaml);
    assert_int_equal(fr_dataset_info(d)->n_train, 1003854 / 128 - 1);
    assert_int_equal(fr_dataset_info(d)->n_eval, (111540 - 1 + 127) / 128);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 0, 0, UINT64_MAX, x, y, NULL), FR_OK);
    for (int i = 0; i < 14; i++) assert_int_equal(x[i], "First Citizen:"[i]);
    fr_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(words),  T(byte_windows),   T(shift_by_epoch),
        T(sizes),  T(bytes_and_text), T(tokens_of_16_bits),
        T(errors), T(out_of_memory),  T(real_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
