/* test_dataset.c -- the registry: names, keys, sections that name no source. */
#include "scratch.h"

#include "io/key.h"

static void registry(void **state)
{
    static const char *const names[] = {"fashion-mnist", "mnist",    "cifar10", "text",     "tsv",
                                        "pairs",         "multi30k", "npy",     "synthetic"};
    const fr_data_source *const *list = fr_data_list();
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_non_null(list[i]);
        assert_string_equal(list[i]->name, names[i]);
        assert_ptr_equal(fr_data_find(names[i]), list[i]);
        assert_true(strlen(list[i]->summary) > 10);
    }
    assert_null(list[sizeof names / sizeof *names]);
    assert_null(fr_data_find("imagenet"));
}

static void unknown_names(void **state)
{
    scratch *s = *state;
    open_bad(s, NULL, "{name: imagenet}", "test.yaml:1:8", "'imagenet'", "fashion-mnist, mnist",
             "synthetic", NULL);
    open_bad(s, NULL, "{path: x}", "name", NULL);
    open_bad(s, NULL, "{name: [mnist]}", "name", NULL);
}

/* A key that is listed is asked for, and a key that is not listed is refused at the end. */
static void listed_keys(void **state)
{
    scratch *s = *state;
    const fr_data_info want = {.input = FR_SHAPE(4), .n_classes = 2};
    fr_dataset *d;
    put_file(s, "train.tsv", "0\ta\n", 4);
    put_file(s, "text", "some text that is long enough", 29);
    static const char *const captions[] = {"train.de", "train.en", "val.de", "val.en"};
    for (int i = 0; i < 4; i++) put_file(s, captions[i], "some text", 9);
    static const struct {
        const char *name, *yaml;
    } sets[] = {
        {"synthetic", "{name: synthetic, n: 1, n_eval: 1, seed: 1, XX: 1}"},
        {"text", "{name: text, path: '@/text', eval_path: '@/text', eval_fraction: 0.5, context: 4,"
                 " tokens: bytes, vocab: 256, XX: 1}"},
        {"tsv", "{name: tsv, path: '@', eval_path: '@/train.tsv', context: 4, vocab: 9, "
                "lower: true, separator: tab, text_column: 2, XX: 1}"},
        {"pairs", "{name: pairs, train: ['@/text', '@/text'], eval: ['@/text', '@/text'], "
                  "split: words, context: 4, vocab: 9, lower: true, XX: 1}"},
        {"multi30k", "{name: multi30k, path: '@', source: de, target: en, eval: val, context: 4, "
                     "vocab: 9, lower: true, XX: 1}"},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const fr_key *key = fr_data_keys();
        for (; (key = fr__key_next(key, "data.", sets[i].name)); key++) {
            char quoted[32];
            snprintf(quoted, sizeof quoted, "%s:", fr__key_name(key));
            if (!strstr(sets[i].yaml, quoted)) fail_msg("%s: %s", sets[i].name, key->path);
        }
        assert_int_equal(open_data(s, &want, sets[i].yaml, &d), FR_OK);
        assert_int_equal(fr_conf_finish(s->conf), FR_INVALID);
        assert_non_null(strstr(fr_ctx_error(s->ctx), "XX"));
        fr_dataset_close(d);
    }
    fr_dataset_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(registry),
        T(unknown_names),
        T(listed_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
