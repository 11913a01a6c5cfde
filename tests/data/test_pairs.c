/* test_pairs.c -- parallel text: samples, vocabularies, files by name, errors. */
#include "scratch.h"

#include <sys/stat.h>

static void put_text(const scratch *s, const char *name, const char *text)
{
    put_file(s, name, text, strlen(text));
}

/* Ids by frequency, equal ones by their bytes: de "ein" 4, "hund" 5, "katze" 6, "schläft" 7. */
static void put_small(const scratch *s)
{
    put_text(s, "a.de", "ein hund schläft\nein Hund, eine katze ein\n\nkatze\n");
    put_text(s, "a.en.gz", "a dog sleeps\na dog a cat\ncat\ncat sleeps");
    put_text(s, "b.de", "ein vogel\n");
    put_text(s, "b.en", "a bird sleeps\n");
}

static void expect(fr_dataset *d, fr_split split, int64_t index, const int32_t *ids,
                   const int32_t *target, int32_t length)
{
    int32_t x[64], y[32], n = -1;
    int64_t context = fr_dataset_info(d)->target.dim[0];
    assert_int_equal(fr_dataset_read(d, split, index, 1, 1, x, y, &n), FR_OK);
    for (int64_t i = 0; i < 2 * context; i++)
        if (x[i] != ids[i]) fail_msg("sample %d: id %d is %d", (int)index, (int)i, x[i]);
    for (int64_t i = 0; i < context; i++) assert_int_equal(y[i], target[i]);
    assert_int_equal(n, length);
}
#define IDS(...) \
    (const int32_t[]) { __VA_ARGS__ }

static void samples(void **state)
{
    scratch *s = *state;
    put_small(s);
    fr_dataset *d = open_good(s, NULL,
                              "{name: pairs, train: ['@/a.de', '@/a.en.gz'], "
                              "eval: ['@/b.de', '@/b.en'], context: 5}");
    const fr_data_info *info = fr_dataset_info(d);
    assert_int_equal(info->n_train, 4);
    assert_int_equal(info->n_eval, 1);
    assert_int_equal(info->n_classes, 4 + 4); /* a, cat, dog, sleeps */
    assert_int_equal(info->vocab, 4 + 6);     /* ein, hund, katze, ",", eine, schläft */
    assert_true(info->input.dim[0] == 10 && info->target.dim[0] == 5 && info->has_length);
    assert_int_equal(info->input_dtype, FR_I32);
    /* ein hund schläft </s> <pad> | <s> a dog sleeps </s>, without its last word */
    expect(d, FR_TRAIN, 0, IDS(4, 5, 9, 3, 0, 2, 4, 6, 7, 0), IDS(4, 6, 7, 3, -1), 4);
    /* cut: ein hund , eine katze | a dog a cat */
    expect(d, FR_TRAIN, 1, IDS(4, 5, 7, 8, 6, 2, 4, 6, 4, 5), IDS(4, 6, 4, 5, 3), 5);
    expect(d, FR_TRAIN, 2, IDS(3, 0, 0, 0, 0, 2, 5, 0, 0, 0), IDS(5, 3, -1, -1, -1), 1);
    expect(d, FR_TRAIN, 3, IDS(6, 3, 0, 0, 0, 2, 5, 7, 0, 0), IDS(5, 7, 3, -1, -1), 2);
    /* words that training did not have */
    expect(d, FR_EVAL, 0, IDS(4, 1, 3, 0, 0, 2, 4, 1, 7, 0), IDS(4, 1, 7, 3, -1), 3);
    fr_dataset_close(d);

    d = open_good(s, NULL,
                  "{name: pairs, train: ['@/a.de', '@/a.en.gz'], context: 3, vocab: 6, "
                  "split: spaces, lower: false}");
    assert_int_equal(fr_dataset_info(d)->n_eval, 0);
    assert_int_equal(fr_dataset_info(d)->vocab, 6);
    /* "Hund," is one word, and a rare one */
    expect(d, FR_TRAIN, 1, IDS(4, 1, 1, 2, 4, 1), IDS(4, 1, 4), 3);
    fr_dataset_close(d);
}

/* Sizes that the model does not set come from the data, and vice versa. */
static void sizes_of_the_model(void **state)
{
    scratch *s = *state;
    put_small(s);
    fr_data_info want = {.input = FR_SHAPE(14), .vocab = 5};
    fr_dataset *d = open_good(s, &want, "{name: pairs, train: ['@/a.de', '@/a.en.gz']}");
    assert_int_equal(fr_dataset_info(d)->target.dim[0], 7);
    assert_int_equal(fr_dataset_info(d)->vocab, 5);
    fr_dataset_close(d);
}

static void multi30k(void **state)
{
    scratch *s = *state;
    put_text(s, "train.de", "Ein Hund.\nZwei\n");
    put_text(s, "train.fr", "Un chien.\nDeux\n");
    put_text(s, "val.de", "Zwei\n");
    put_text(s, "val.fr.gz", "Deux\n");
    fr_dataset *d = open_good(s, NULL, "{name: multi30k, path: '@', target: fr, context: 4}");
    assert_int_equal(fr_dataset_info(d)->n_train, 2);
    assert_int_equal(fr_dataset_info(d)->n_eval, 1);
    assert_int_equal(fr_dataset_info(d)->vocab, 4 + 4); /* raw: the full stop is a word */
    fr_dataset_close(d);
    /* tokenised files have priority if all exist */
    put_text(s, "train.lc.norm.tok.de", "ein hund.\n");
    put_text(s, "train.lc.norm.tok.fr", "un chien.\n");
    put_text(s, "val.lc.norm.tok.de", "a\n");
    d = open_good(s, NULL, "{name: multi30k, path: '@', target: fr, context: 4}");
    assert_int_equal(fr_dataset_info(d)->n_train, 2);
    fr_dataset_close(d);
    put_text(s, "val.lc.norm.tok.fr", "a\n");
    d = open_good(s, NULL, "{name: multi30k, path: '@', target: fr, context: 4}");
    assert_int_equal(fr_dataset_info(d)->n_train, 1);
    assert_int_equal(fr_dataset_info(d)->vocab, 4 + 2);
    fr_dataset_close(d);
    open_bad(s, NULL, "{name: multi30k, path: '@'}", "train.lc.norm.tok.en", "train.en", NULL);
    open_bad(s, NULL, "{name: multi30k, path: '@', target: fr, eval: test}", "neither", "test.de",
             NULL);
    open_bad(s, NULL, "{name: multi30k, path: '@/none'}", "no folder", NULL);
}

static void errors(void **state)
{
    scratch *s = *state;
    put_small(s);
    put_text(s, "empty", "");
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de', '@/b.en']}", "a.de has 4 lines",
             "b.en has 1", NULL);
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de', '@/none']}", "no file", "none", NULL);
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de']}", "1 files", "[source, target]", NULL);
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de', '@/empty']}", "empty: the file is empty",
             NULL);
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de', '@/a.en.gz'], eval: ['@/a.de', '@/b.en']}",
             "b.en has 1", NULL);
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de', '@/a.en.gz'], split: no}", "no way to split",
             NULL);
    open_bad(s, NULL, "{name: pairs, train: ['@/a.de', '@/a.en.gz'], vocab: 4}", "vocab", NULL);
}

/* Lines without words count as lines. */
static void only_blanks(void **state)
{
    scratch *s = *state;
    put_text(s, "x", "\n \n");
    put_text(s, "y", "\t\n\n");
    fr_dataset *d = open_good(s, NULL, "{name: pairs, train: ['@/x', '@/y'], context: 2}");
    expect(d, FR_TRAIN, 1, IDS(3, 0, 2, 0), IDS(3, -1), 1);
    fr_dataset_close(d);
}

static void out_of_memory(void **state)
{
    put_small(*state);
    walk_out_of_memory(*state, NULL,
                       "{name: pairs, train: ['@/a.de', '@/a.en.gz'], eval: ['@/b.de', '@/b.en']}");
}

static void real_captions(void **state)
{
    const char *root = getenv("FR_DATA_DIR");
    char yaml[1024];
    if (!root) skip_because("the real Multi30k", NO_DATA);
    snprintf(yaml, sizeof yaml, "{name: multi30k, path: '%s/multi30k', context: 24, vocab: 8000}",
             root);
    fr_dataset *d = open_good(*state, NULL, yaml);
    assert_int_equal(fr_dataset_info(d)->n_train, 29000);
    assert_int_equal(fr_dataset_info(d)->n_eval, 1014);
    assert_int_equal(fr_dataset_info(d)->vocab, 8000);
    fr_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(samples),     T(sizes_of_the_model), T(multi30k),      T(errors),
        T(only_blanks), T(out_of_memory),      T(real_captions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
