/* test_hash.c -- XXH3 against published values, in any pieces; hashes of tensor files. */
#include "io/hash.h"
#include "io/safetensors.h"
#include "support/check.h"

static fr_ctx *ctx;

static void in_any_pieces(void **state)
{
    (void)state;
    char text[FR_HASH_TEXT], whole[FR_HASH_TEXT], data[1000];
    fr__hash_of("", 0, text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f"); /* of no bytes, as published */
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * i);
    fr__hash_of(data, sizeof data, whole);
    for (size_t piece = 1; piece < sizeof data; piece += 13) {
        fr__hash *h = fr__hash_create();
        assert_non_null(h);
        fr__hash_update(h, NULL, 0);
        for (size_t at = 0; at < sizeof data; at += piece)
            fr__hash_update(h, data + at, sizeof data - at < piece ? sizeof data - at : piece);
        fr__hash_text(h, text);
        fr__hash_free(h);
        assert_string_equal(text, whole);
    }
    data[999] ^= 1;
    fr__hash_of(data, sizeof data, text);
    assert_string_not_equal(text, whole);
    fr__hash_free(NULL);
}

/* Three tensors, read in the order of the digits (3: skipped). */
static void tensors_in_any_order(void **state)
{
    const char *path = support_path(state, "a.safetensors");
    char written[FR_HASH_TEXT], read[FR_HASH_TEXT], file[4096];
    fr_tensor_writer *w;
    const int64_t n[1] = {100};
    float values[100];
    assert_ok(ctx, fr_tensor_writer_create(ctx, path, &w));
    for (int i = 0; i < 3; i++)
        assert_ok(ctx,
                  fr_tensor_writer_declare(w, (const char *[]){"a", "b", "c"}[i], "F32", 1, n));
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 100; j++) values[j] = (float)(i + j);
        assert_ok(ctx, fr_tensor_writer_data(w, values, sizeof values));
    }
    assert_ok(ctx, fr_tensor_writer_finish(w));
    fr__tensor_writer_hash(w, written);
    fr_tensor_writer_free(w);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t bytes = fread(file, 1, sizeof file, f);
    fclose(f);
    fr__hash_of(file, bytes, read);
    assert_string_equal(read, written);
    static const char *const orders[] = {"012", "210", "00112", "3", "033", "20", "1"};
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        fr_tensors *t;
        assert_ok(ctx, fr_tensors_open(ctx, path, &t));
        for (const char *at = orders[k]; *at; at++)
            if (*at < '3') assert_ok(ctx, fr_tensors_read(t, *at - '0', values, sizeof values));
        assert_ok(ctx, fr__tensors_hash(t, read));
        assert_string_equal(read, written);
        fr_tensors_close(t);
    }
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_pieces),
        cmocka_unit_test(tensors_in_any_order),
    };
    int code = cmocka_run_group_tests_name("hash", tests, support_dir_make, support_dir_remove);
    fr_ctx_free(ctx);
    return code;
}
