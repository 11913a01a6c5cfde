/* test_tsv.c -- labelled lines of text: words, vocabulary, labels, columns, errors. */
#include "data/vocab.h"
#include "scratch.h"

static void put_text(const scratch *s, const char *name, const char *text)
{
    put_file(s, name, text, strlen(text));
}

static void word_splitting(void **state)
{
    static const char text[] = "  It's\tGOOD-ish, \xc3\xa9t\xc3\xa9 x_1...\r\n";
    static const char *const words[] = {
        "It", "'", "s", "GOOD", "-", "ish", ",", "\xc3\xa9t\xc3\xa9", "x", "_", "1", ".", ".", "."};
    size_t pos = 0, begin, n, i = 0;
    (void)state;
    while ((n = fr__word_next(text, sizeof text - 1, &pos, &begin))) {
        assert_true(i < sizeof words / sizeof *words);
        assert_int_equal(n, strlen(words[i]));
        assert_memory_equal(text + begin, words[i], n);
        i++;
    }
    assert_int_equal(i, sizeof words / sizeof *words);
    assert_int_equal(fr__word_next("", 0, &(size_t){0}, &begin), 0);
}

/* More words than the initial tables hold; counts and order. */
static void vocabulary(void **state)
{
    enum { N = 5000 };
    fr__vocab v = {.lower = true};
    char word[16];
    (void)state;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N; i++) {
            int n = snprintf(word, sizeof word, "%s%d", i % 2 ? "w" : "W", i);
            if (i % (round + 1) == 0) assert_int_equal(fr__vocab_add(&v, word, (size_t)n), i);
        }
    assert_int_equal(v.words.n, N);
    assert_int_equal(fr__vocab_find(&v, "w4999", 5), 4999);
    assert_int_equal(fr__vocab_find(&v, "W4999", 5), 4999);
    assert_int_equal(fr__vocab_find(&v, "w499", 4), 499);
    assert_int_equal(fr__vocab_find(&v, "w5000", 5), -1);
    assert_string_equal(fr__vocab_text(&v, 42), "w42");
    assert_int_equal(v.words.at[6].count, 3);
    assert_int_equal(v.words.at[4].count, 2);
    assert_int_equal(v.words.at[5].count, 1);
    int32_t *order = fr__vocab_order(&v, true);
    assert_non_null(order);
    for (int i = 1; i < N; i++) {
        const fr__word *a = &v.words.at[order[i - 1]], *b = &v.words.at[order[i]];
        assert_true(a->count > b->count ||
                    (a->count == b->count &&
                     strcmp(fr__vocab_text(&v, order[i - 1]), fr__vocab_text(&v, order[i])) < 0));
    }
    fr__free(order);
    fr__vocab_fini(&v);
    assert_int_equal(fr__vocab_find(&v, "w1", 2), -1);
}

static void check_row(fr_dataset *d, fr_split split, int64_t index, int32_t label, int32_t length,
                      const int32_t ids[6])
{
    int32_t x[6], y, n;
    assert_int_equal(fr_dataset_read(d, split, index, 1, 1, x, &y, &n), FR_OK);
    assert_int_equal(y, label);
    assert_int_equal(n, length);
    for (int i = 0; i < 6; i++) assert_int_equal(x[i], ids[i]);
}

static void rows_and_vocabulary(void **state)
{
    scratch *s = *state;
    int32_t ids[8];
    size_t n;
    put_text(s, "train.tsv", "1\tgood good bad .\n0\tBad , bad film .\r\n\n1\t\n");
    put_text(s, "test.tsv.gz", "0\tgood unseen one two three four five six\n1\tfilm");
    put_text(s, "dev.tsv", "0\tnot this one\n0\tas test.tsv.gz comes first\n0\tx\n");
    fr_dataset *d = open_good(s, NULL, "{name: tsv, path: '@', context: 6}");
    const fr_data_info *info = fr_dataset_info(d);
    assert_int_equal(info->n_train, 3);
    assert_int_equal(info->n_eval, 2);
    assert_int_equal(info->n_classes, 2);
    assert_true(info->has_length);
    assert_int_equal(info->input_dtype, FR_I32);
    assert_true(fr_shape_equal(&info->input, &FR_SHAPE(6)));
    assert_int_equal(info->target.n_dims, 0);
    /* bad 3, then 2 each of "." and good, then 1 each of "," and film */
    static const char *const words[] = {"", "<unk>", "bad", ".", "good", ",", "film"};
    assert_int_equal(info->vocab, 7);
    for (int i = 0; i < 7; i++) {
        assert_string_equal(fr_dataset_token_text(d, i, &n), words[i]);
        assert_int_equal(n, strlen(words[i]));
    }
    assert_null(fr_dataset_token_text(d, 7, &n));
    check_row(d, FR_TRAIN, 0, 1, 4, (int32_t[]){4, 4, 2, 3, 0, 0});
    check_row(d, FR_TRAIN, 1, 0, 5, (int32_t[]){2, 5, 2, 6, 3, 0});
    check_row(d, FR_TRAIN, 2, 1, 1, (int32_t[]){1, 0, 0, 0, 0, 0});
    check_row(d, FR_EVAL, 0, 0, 6, (int32_t[]){4, 1, 1, 1, 1, 1});
    check_row(d, FR_EVAL, 1, 1, 1, (int32_t[]){6, 0, 0, 0, 0, 0});
    assert_int_equal(fr_dataset_encode(d, "A GOOD film.", 12, ids, 8), 4);
    assert_memory_equal(ids, ((int32_t[]){1, 4, 6, 3}), 16);
    assert_int_equal(fr_dataset_encode(d, "A GOOD film.", 12, ids, 2), 2);
    fr_dataset_close(d);

    /* the most frequent words only; case-sensitive */
    d = open_good(s, NULL, "{name: tsv, path: '@', context: 6, vocab: 4}");
    assert_int_equal(fr_dataset_info(d)->vocab, 4);
    check_row(d, FR_TRAIN, 0, 1, 4, (int32_t[]){1, 1, 2, 3, 0, 0});
    fr_dataset_close(d);
    d = open_good(s, &(fr_data_info){.vocab = 4, .input = FR_SHAPE(6)}, "{name: tsv, path: '@'}");
    assert_int_equal(fr_dataset_info(d)->vocab, 4);
    fr_dataset_close(d);
    d = open_good(s, NULL, "{name: tsv, path: '@', context: 6, lower: false}");
    assert_int_equal(fr_dataset_info(d)->vocab, 8);
    assert_string_equal(fr_dataset_token_text(d, 6, &n), "Bad");
    fr_dataset_close(d);
}

static int32_t label_at(fr_dataset *d, fr_split split, int64_t index)
{
    int32_t x[4], y, n;
    assert_int_equal(fr_dataset_read(d, split, index, 0, 0, x, &y, &n), FR_OK);
    return y;
}

static void label_order(void **state)
{
    scratch *s = *state;
    put_text(s, "names", "sad\ta\nHappy\tb\nangry\tc\nsad\td\n");
    put_text(s, "eval", "angry\tx\nsad\ty\n");
    fr_dataset *d =
        open_good(s, NULL, "{name: tsv, path: '@/names', eval_path: '@/eval', context: 4}");
    assert_int_equal(fr_dataset_info(d)->n_classes, 3);
    assert_int_equal(label_at(d, FR_TRAIN, 0), 2);
    assert_int_equal(label_at(d, FR_TRAIN, 1), 0); /* capitals before small letters */
    assert_int_equal(label_at(d, FR_TRAIN, 2), 1);
    assert_int_equal(label_at(d, FR_EVAL, 0), 1);
    assert_int_equal(label_at(d, FR_EVAL, 1), 2);
    fr_dataset_close(d);
    /* integers by value: 0 .. K-1 keep their numbers */
    put_text(s, "numbers", "10\ta\n9\ta\n0\ta\n1\ta\n2\ta\n3\ta\n4\ta\n5\ta\n6\ta\n7\ta\n8\ta\n");
    d = open_good(s, NULL, "{name: tsv, path: '@/numbers', context: 4}");
    assert_int_equal(fr_dataset_info(d)->n_eval, 0);
    assert_int_equal(fr_dataset_info(d)->n_classes, 11);
    assert_int_equal(label_at(d, FR_TRAIN, 0), 10);
    assert_int_equal(label_at(d, FR_TRAIN, 1), 9);
    assert_int_equal(label_at(d, FR_TRAIN, 2), 0);
    fr_dataset_close(d);
}

/* label, rating, number, text; and "label text" with a blank. */
static void columns_and_separators(void **state)
{
    scratch *s = *state;
    size_t n;
    put_text(s, "four.tsv", "0\t3\t17\tbad film\n1\t9\t18\tgood\tfilm\n");
    fr_dataset *d = open_good(s, NULL, "{name: tsv, path: '@/four.tsv', context: 6}");
    assert_int_equal(fr_dataset_info(d)->vocab, 5);
    check_row(d, FR_TRAIN, 0, 0, 2, (int32_t[]){3, 2, 0, 0, 0, 0});
    check_row(d, FR_TRAIN, 1, 1, 2, (int32_t[]){4, 2, 0, 0, 0, 0});
    fr_dataset_close(d);
    d = open_good(s, NULL, "{name: tsv, path: '@/four.tsv', context: 6, text_column: 2}");
    assert_int_equal(fr_dataset_info(d)->vocab, 9);
    fr_dataset_close(d);
    put_text(s, "blank.all", "1 two words\n0 one\tmore\n");
    d = open_good(s, NULL, "{name: tsv, path: '@/blank.all', separator: space, context: 6}");
    assert_int_equal(fr_dataset_info(d)->vocab, 6);
    assert_string_equal(fr_dataset_token_text(d, 2, &n), "more");
    check_row(d, FR_TRAIN, 1, 0, 2, (int32_t[]){3, 2, 0, 0, 0, 0});
    fr_dataset_close(d);
}

static void errors(void **state)
{
    scratch *s = *state;
    open_bad(s, NULL, "{name: tsv, path: '@'}", "test.yaml:1", "train.tsv", NULL);
    open_bad(s, NULL, "{name: tsv, path: '@/none'}", "none", NULL);
    put_text(s, "train.tsv", "0\tgood\n1\tbad\n");
    open_bad(s, NULL, "{name: tsv, path: '@', eval_path: '@/none'}", "none", "eval_path", NULL);
    open_bad(s, NULL, "{name: tsv, path: '@', separator: comma}", "comma", "tab, space", NULL);
    open_bad(s, NULL, "{name: tsv, path: '@', text_column: 1}", "text_column", NULL);
    put_text(s, "test.tsv", "0\tgood\n\n2\tfine\n");
    open_bad(s, NULL, "{name: tsv, path: '@'}", "test.tsv:3", "'2'", NULL);
    put_text(s, "test.tsv", "0\tgood\nno tab\n");
    open_bad(s, NULL, "{name: tsv, path: '@'}", "test.tsv:2", NULL);
    put_text(s, "test.tsv", "\n\n");
    open_bad(s, NULL, "{name: tsv, path: '@'}", "test.tsv", "no lines", NULL);
    put_text(s, "bad.tsv", "0\tgood\n\tbad\n");
    open_bad(s, NULL, "{name: tsv, path: '@/bad.tsv'}", "bad.tsv:2", "empty", NULL);
    put_text(s, "bad.tsv", "0\t1\tgood\n1\tbad\n");
    open_bad(s, NULL, "{name: tsv, path: '@/bad.tsv'}", "bad.tsv:2", "column 3", "text_column",
             NULL);
}

static void out_of_memory(void **state)
{
    scratch *s = *state;
    put_text(s, "train.tsv", "a\tgood good bad .\nb\tBad , bad film .\nc\tx\n");
    put_text(s, "test.tsv.gz", "a\tgood unseen\nc\tfilm");
    walk_out_of_memory(s, NULL, "{name: tsv, path: '@', context: 6}");
}

static void real_texts(void **state)
{
    const char *root = getenv("FR_DATA_DIR");
    char yaml[1024];
    int labels[6] = {0};
    if (!root) skip_because("the real IMDb and TREC", NO_DATA);
    snprintf(yaml, sizeof yaml, "{name: tsv, path: '%s/imdb-10k', context: 64}", root);
    fr_dataset *d = open_good(*state, NULL, yaml);
    assert_int_equal(fr_dataset_info(d)->n_train, 5000);
    assert_int_equal(fr_dataset_info(d)->n_eval, 5000);
    assert_int_equal(fr_dataset_info(d)->n_classes, 2);
    assert_int_equal(fr_dataset_info(d)->vocab, 10000);
    fr_dataset_close(d);
    snprintf(yaml, sizeof yaml,
             "{name: tsv, path: '%s/sentence-classification/TREC.train.all.gz', eval_path: "
             "'%s/sentence-classification/TREC.test.all.gz', separator: space, context: 40}",
             root, root);
    d = open_good(*state, NULL, yaml);
    assert_int_equal(fr_dataset_info(d)->n_train, 5452);
    assert_int_equal(fr_dataset_info(d)->n_eval, 500);
    assert_int_equal(fr_dataset_info(d)->n_classes, 6);
    for (int64_t i = 0; i < 5452; i++) {
        int32_t x[40], y, n;
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 0, 0, x, &y, &n), FR_OK);
        labels[y]++;
        assert_true(n >= 1 && n <= 40);
    }
    assert_int_equal(labels[2], 86);
    assert_int_equal(labels[5], 896);
    fr_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        cmocka_unit_test(word_splitting),
        cmocka_unit_test(vocabulary),
        T(rows_and_vocabulary),
        T(label_order),
        T(columns_and_separators),
        T(errors),
        T(out_of_memory),
        T(real_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
