/* test_tensor_set.c -- one file, a folder, several files with an index; indexes that lie. */
#include "io/tensor_set.h"
#include "support/check.h"

#include <sys/stat.h>

static fr_ctx *ctx;

static const char *path_of(const char *folder, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    support_write(path_of(folder, name), text, strlen(text));
}

/* A file with tensors of two values: 10 i and 10 i + 1. Names end with NULL. */
static void write_tensors(const char *folder, const char *file, int first, const char *const *names)
{
    fr_tensor_writer *w;
    assert_ok(ctx, fr_tensor_writer_create(ctx, path_of(folder, file), &w));
    for (int i = 0; names[i]; i++)
        assert_ok(ctx, fr_tensor_writer_declare(w, names[i], "F32", 1, (int64_t[]){2}));
    for (int i = 0; names[i]; i++) {
        float values[] = {(float)(10 * (first + i)), (float)(10 * (first + i) + 1)};
        assert_ok(ctx, fr_tensor_writer_data(w, values, sizeof values));
    }
    assert_ok(ctx, fr_tensor_writer_finish(w));
    fr_tensor_writer_free(w);
}

static void check(fr__tensor_set *s, const char *name, float first)
{
    float value;
    int at = fr__tensor_set_find(s, name);
    assert_true(at >= 0);
    assert_string_equal(fr__tensor_set_at(s, at)->info->name, name);
    assert_ok(ctx, fr__tensor_set_read(s, at, 0, &value, sizeof value));
    assert_true(value == first);
    assert_ok(ctx, fr__tensor_set_read(s, at, 4, &value, sizeof value));
    assert_true(value == first + 1);
    assert_fails(ctx, fr__tensor_set_read(s, at, 5, &value, sizeof value), FR_INTERNAL, "byte 5");
}

static const char *make(void **state, const char *name)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%s/%s", (const char *)*state, name);
    assert_int_equal(mkdir(folder, 0777), 0);
    return folder;
}

static void one_file(void **state)
{
    const char *folder = make(state, "one");
    fr__tensor_set *s;
    write_tensors(folder, FR_SET_FILE, 1, (const char *const[]){"a", "b", NULL});
    for (int k = 0; k < 2; k++) {
        assert_ok(ctx, fr__tensor_set_open(ctx, k ? folder : path_of(folder, FR_SET_FILE), &s));
        assert_int_equal(fr__tensor_set_count(s), 2);
        check(s, "b", 20);
        check(s, "a", 10);
        assert_int_equal(fr__tensor_set_find(s, "c"), -1);
        fr__tensor_set_close(s);
    }
    fr__tensor_set_close(NULL);
}

#define INDEX(map) "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" map "}}"

static const char *make_shards(void **state, const char *name)
{
    const char *folder = make(state, name);
    write_tensors(folder, "m-1.safetensors", 1, (const char *const[]){"a", "b", NULL});
    write_tensors(folder, "m-2.safetensors", 3, (const char *const[]){"c", NULL});
    return folder;
}

#define GOOD                                                                      \
    INDEX("\"c\": \"m-2.safetensors\", \"a\": \"m-1.safetensors\", \"b\": \"m-1." \
          "safetensors\"")

static void several_files(void **state)
{
    const char *folder = make_shards(state, "several");
    fr__tensor_set *s;
    write_text(folder, FR_SET_INDEX, GOOD);
    for (int k = 0; k < 2; k++) {
        assert_ok(ctx, fr__tensor_set_open(ctx, k ? folder : path_of(folder, FR_SET_INDEX), &s));
        assert_int_equal(fr__tensor_set_count(s), 3);
        check(s, "a", 10);
        check(s, "c", 30);
        check(s, "b", 20);
        fr__tensor_set_close(s);
    }
}

static void indexes_that_lie(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "line"},
        {"[1]", "weight_map"},
        {"{\"weight_map\": 3}", "no object \"weight_map\""},
        {INDEX("\"a\": 3"), "tensor \"a\""},
        {INDEX("\"a\": \"\""), "same folder"},
        {INDEX("\"a\": \"../bad/m-1.safetensors\""), "\"../bad/m-1.safetensors\"; it must be"},
        {INDEX("\"a\": \"/etc/passwd\""), "same folder"},
        {INDEX("\"a\": \"..\""), "same folder"},
        {INDEX("\"a\": \"x\\\\y\""), "same folder"},
        {INDEX("\"a\": \"m-3.safetensors\""), "m-3.safetensors, which is not there"},
        {INDEX("\"a\": \"m-1.safetensors\", \"a\": \"m-2.safetensors\""), "duplicate"},
        {INDEX("\"a\": \"m-2.safetensors\""), "which does not hold it"},
        {INDEX("\"a\": \"m-1.safetensors\""), "does not list tensor \"b\""},
        {INDEX("\"a\": \"m-1.safetensors\", \"b\": \"m-1.safetensors\", \"c\": "
               "\"model.safetensors.index.json\""),
         "safetensors file"},
    };
    const char *folder = make_shards(state, "bad");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr__tensor_set *s;
        write_text(folder, FR_SET_INDEX, bad[i].text);
        assert_fails(ctx, fr__tensor_set_open(ctx, folder, &s), FR_INVALID, bad[i].says);
        assert_null(s);
    }
    /* the same name in two files */
    fr__tensor_set *s;
    write_tensors(folder, "m-2.safetensors", 3, (const char *const[]){"c", "a", NULL});
    write_text(folder, FR_SET_INDEX, GOOD);
    assert_fails(ctx, fr__tensor_set_open(ctx, folder, &s), FR_INVALID,
                 "does not list tensor \"a\"");
}

static void other_folders(void **state)
{
    const char *folder = make(state, "other");
    fr__tensor_set *s;
    assert_fails(ctx, fr__tensor_set_open(ctx, folder, &s), FR_INVALID, "holds neither");
    write_text(folder, "pytorch_model.bin", "x");
    assert_fails(ctx, fr__tensor_set_open(ctx, folder, &s), FR_UNSUPPORTED, "Python pickle");
    assert_fails(ctx, fr__tensor_set_open(ctx, path_of(folder, "no.safetensors"), &s), FR_INVALID,
                 "no.safetensors");
}

static void without_memory(void **state)
{
    const char *folder = make_shards(state, "memory");
    fr__tensor_set *s;
    write_text(folder, FR_SET_INDEX, GOOD);
    fr_status status = FR_NO_MEMORY;
    for (int64_t n = 0; status != FR_OK; n++) {
        fr__alloc_fail_after(n);
        status = fr__tensor_set_open(ctx, folder, &s);
        fr__alloc_fail_after(-1);
        assert_true(status == FR_OK || (status == FR_NO_MEMORY && !s));
    }
    fr__tensor_set_close(s);
}

static int set_up(void **state)
{
    ctx = fr_ctx_create();
    return support_dir_make(state);
}

static int tear_down(void **state)
{
    fr_ctx_free(ctx);
    return support_dir_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file),         cmocka_unit_test(several_files),
        cmocka_unit_test(indexes_that_lie), cmocka_unit_test(other_folders),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
