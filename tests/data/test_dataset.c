/* test_dataset.c -- the registry: names, keys, sections that name no source; data of the caller's
 * own. */
#include "scratch.h"

#include "io/key.h"

#include <math.h>

static void registry(void **state)
{
    static const char *const names[] = {"fashion-mnist", "mnist",    "cifar10",  "text",
                                        "tsv",           "pairs",    "multi30k", "npy",
                                        "csv",           "synthetic"};
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

/* Every listed key is read, and a key that is not listed is refused at the end. */
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
                 " tokens: bytes, tokenizer: '', vocab: 256, XX: 1}"},
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

/* --- data sets of the caller's own --- */

static const float pictures[3][2] = {{1, 2}, {3, 4}, {5, 6}};
static const int32_t ids[3][2] = {{0, 1}, {2, 3}, {4, 4}};
static const int32_t classes[3] = {0, 2, FR_TARGET_IGNORE}, lengths[3] = {1, 2, 1};

static fr_dataset_desc given_pictures(void)
{
    return (fr_dataset_desc){
        .info = {.n_train = 3, .n_eval = 1, .input = FR_SHAPE(2), .n_classes = 3},
        .samples = {{pictures, classes, NULL}, {pictures[1], classes + 1, NULL}}};
}

static fr_dataset_desc given_ids(void)
{
    return (fr_dataset_desc){.info = {.n_train = 3,
                                      .input = FR_SHAPE(2),
                                      .input_dtype = FR_I32,
                                      .n_classes = 3,
                                      .vocab = 5,
                                      .has_length = true},
                             .samples[FR_TRAIN] = {ids, classes, lengths}};
}

static void given_arrays(void **state)
{
    scratch *s = *state;
    fr_dataset *d;
    fr_dataset_desc desc = given_pictures();
    float x[2];
    int32_t y, n, pair[2];
    assert_int_equal(fr_dataset_create(s->ctx, &desc, &d), FR_OK);
    assert_int_equal(fr_dataset_info(d)->n_train, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, 2, x, &y, NULL), FR_OK);
        assert_memory_equal(x, pictures[i], sizeof x);
        assert_int_equal(y, classes[i]);
    }
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 1, 2, x, &y, NULL), FR_OK);
    assert_true(x[0] == 3 && y == 2);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 1, 1, 2, x, &y, NULL), FR_INVALID);
    fr_dataset_close(d);
    desc = given_ids();
    assert_int_equal(fr_dataset_create(s->ctx, &desc, &d), FR_OK);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 1, 1, 2, pair, &y, &n), FR_OK);
    assert_true(pair[0] == 2 && pair[1] == 3 && n == 2);
    fr_dataset_close(d);
}

static void refuse(scratch *s, const fr_dataset_desc *desc, const char *part)
{
    fr_dataset *d;
    fr_ctx_clear(s->ctx);
    assert_int_equal(fr_dataset_create(s->ctx, desc, &d), FR_INVALID);
    assert_null(d);
    if (!strstr(fr_ctx_error(s->ctx), part)) fail_msg("%s: %s", part, fr_ctx_error(s->ctx));
}

static void given_refused(void **state)
{
    static const float broken[3][2] = {{1, 2}, {3, 4}, {5, NAN}};
    scratch *s = *state;
    fr_dataset_desc d;
#define REFUSE(make, change, part) (d = make(), (change), refuse(s, &d, part))
    REFUSE(given_pictures, d.info.n_train = 0, "0 training");
    REFUSE(given_pictures, d.info.n_eval = -1, "-1 evaluation");
    REFUSE(given_pictures, d.info.input.n_dims = 5, "0 to 4 dimensions");
    REFUSE(given_pictures, d.info.input.dim[0] = 0, "at least 1");
    REFUSE(given_pictures, d.info.input_dtype = FR_BF16, "neither float nor int32");
    REFUSE(given_pictures, d.info.n_classes = 0, "0 classes");
    REFUSE(given_pictures, d.info.n_classes = 2,
           "training sample 1 has target 2, expected -1 to 1");
    REFUSE(given_pictures, d.samples[FR_EVAL].input = NULL, "1 evaluation samples, but no array");
    REFUSE(given_pictures, d.samples[FR_TRAIN].input = broken, "not finite");
    REFUSE(given_ids, d.info.vocab = 4, "training sample 2 has id 4, expected 0 to 3");
    REFUSE(given_ids, d.info.vocab = 0, "0 ids");
    REFUSE(given_ids, d.samples[FR_TRAIN].length = NULL, "or lengths");
    REFUSE(given_ids, d.samples[FR_TRAIN].length = classes,
           "sample 0 has length 0, expected 1 to 2");
#undef REFUSE
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(registry), T(unknown_names), T(listed_keys), T(given_arrays), T(given_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
