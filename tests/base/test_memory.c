/* test_memory.c -- alloc, arena, vec and text: zeroed, aligned, counted, and failing on demand. */
#include "base/arena.h"
#include "base/text.h"
#include "base/vec.h"
#include "support/check.h"

static bool is_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void blocks_are_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4097, (size_t)5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int round = 0; round < 2; round++) { /* the second gets used memory back */
            unsigned char *p = fr__alloc(sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % FR_ALIGN, 0);
            assert_true(is_zero(p, sizes[i]));
            memset(p, 0xFF, sizes[i]);
            fr__free(p);
        }
    fr__free(NULL);
}

static void absurd_sizes_fail(void **state)
{
    (void)state;
    assert_null(fr__alloc(SIZE_MAX));
    assert_null(fr__alloc(PTRDIFF_MAX));
    assert_int_equal(fr__array_bytes(SIZE_MAX / 2, 3), SIZE_MAX);
    assert_int_equal(fr__array_bytes(7, 3), 21);
    assert_int_equal(fr__array_bytes(7, 0), 0);
    assert_null(FR_NEW_ARRAY(double, SIZE_MAX / 4));
}

static void realloc_keeps_and_zeroes(void **state)
{
    (void)state;
    unsigned char *p = fr__alloc(10);
    memset(p, 7, 10);
    p = fr__realloc(p, 10, 300);
    for (int i = 0; i < 10; i++) assert_int_equal(p[i], 7);
    assert_true(is_zero(p + 10, 290));
    p = fr__realloc(p, 300, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(p[i], 7);
    fr__free(p);
    p = fr__realloc(NULL, 0, 8);
    assert_true(is_zero(p, 8));
    fr__free(p);
}

static void counts_and_fails_on_demand(void **state)
{
    (void)state;
    uint64_t before = fr__alloc_count();
    fr__free(fr__alloc(1));
    assert_int_equal(fr__alloc_count(), before + 1);
    fr__alloc_fail_after(2);
    void *a = fr__alloc(1), *b = fr__alloc(1), *c = fr__alloc(1), *d = fr__alloc(1);
    char *text = fr__strdup("x");
    fr__alloc_fail_after(-1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_null(d); /* and all later ones fail after the first failure */
    assert_null(text);
    fr__free(a);
    fr__free(b);
    text = fr__strdup("text");
    assert_string_equal(text, "text");
    fr__free(text);
}

static void failed_realloc_keeps_the_old(void **state)
{
    (void)state;
    char *p = fr__strdup("still here");
    fr__alloc_fail_after(0);
    void *grown = fr__realloc(p, 11, 100);
    fr__alloc_fail_after(-1);
    assert_null(grown);
    assert_string_equal(p, "still here");
    fr__free(p);
}

static void no_memory_says_how_much(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    assert_fails(ctx, fr__no_memory(ctx, 2500000, "the weights"), FR_NO_MEMORY,
                 "the weights needed 2.5 MB");
    fr_ctx_free(ctx);
}

static void arena_pieces_do_not_touch(void **state)
{
    (void)state;
    enum { PIECES = 200 };
    fr_arena arena = {0};
    unsigned char *piece[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        bool is_packed = i % 3 == 1;
        piece[i] = is_packed ? fr__arena_pack(&arena, i * 37) : fr__arena_alloc(&arena, i * 37);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % (is_packed ? 8 : FR_ALIGN), 0);
        assert_true(is_zero(piece[i], i * 37));
        memset(piece[i], (int)i, i * 37);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t b = 0; b < i * 37; b++) assert_int_equal(piece[i][b], (unsigned char)i);
    unsigned char *first = fr__arena_pack(&arena, 72), *second = fr__arena_pack(&arena, 72);
    assert_ptr_equal(second, first + 72); /* nothing between them */
    unsigned char *large = fr__arena_alloc(&arena, 1 << 20);
    assert_true(is_zero(large, 1 << 20));
    assert_null(fr__arena_alloc(&arena, SIZE_MAX));
    assert_null(FR_ARENA_ARRAY(&arena, double, SIZE_MAX / 2));
    fr__arena_fini(&arena);
    assert_null(arena.chunks);
    fr__arena_fini(&arena);
}

/* A large piece takes exactly its own bytes, and small pieces continue in the current chunk. */
static void arena_keeps_large_pieces_apart(void **state)
{
    (void)state;
    fr_arena arena = {0};
    assert_non_null(fr__arena_alloc(&arena, 1));
    uint64_t before = fr__alloc_count();
    for (int i = 1; i <= 4; i++) {
        assert_non_null(fr__arena_alloc(&arena, 3 << 20));
        assert_int_equal(fr__alloc_count() - before, i);
    }
    assert_non_null(fr__arena_alloc(&arena, 1));
    assert_int_equal(fr__alloc_count() - before, 4);
    fr__arena_fini(&arena);
    assert_non_null(fr__arena_alloc(&arena, 3 << 20)); /* also as the first piece */
    assert_non_null(fr__arena_alloc(&arena, 3 << 20));
    assert_non_null(fr__arena_alloc(&arena, 1));
    fr__arena_fini(&arena);
}

static void arena_texts(void **state)
{
    (void)state;
    fr_arena arena = {0};
    const char *a = fr__arena_strdup(&arena, "one"), *b = fr__arena_printf(&arena, "%d-%s", 2, a);
    assert_string_equal(a, "one");
    assert_string_equal(b, "2-one");
    fr__arena_fini(&arena);
    fr__alloc_fail_after(0);
    assert_null(fr__arena_alloc(&arena, 1));
    assert_null(fr__arena_strdup(&arena, "x"));
    assert_null(fr__arena_printf(&arena, "x"));
    fr__alloc_fail_after(-1);
    fr__arena_fini(&arena);
}

static void vec_grows(void **state)
{
    (void)state;
    FR_VEC(int) v = {0};
    for (int i = 0; i < 1000; i++) assert_true(fr__vec_push(&v, i * i));
    assert_int_equal(v.n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(v.at[i], i * i);
    while (v.n < v.room) assert_true(fr__vec_push(&v, 0));
    size_t n = v.n;
    fr__alloc_fail_after(0);
    bool pushed = fr__vec_push(&v, 1);
    fr__alloc_fail_after(-1);
    assert_false(pushed);
    assert_int_equal(v.n, n); /* unchanged */
    assert_int_equal(v.at[999], 999 * 999);
    v.n = 1000;
    assert_true(fr__vec_fit(&v, v.n));
    assert_int_equal(v.room, 1000);
    assert_int_equal(v.at[999], 999 * 999);
    fr__vec_fini(&v);
    assert_null(v.at);
    assert_int_equal(v.n, 0);
}

static void text_grows(void **state)
{
    (void)state;
    fr__text t = {0};
    size_t n = 0;
    char number[16];
    for (int i = 0; i < 1000; i++) {
        fr__text_printf(&t, "%d,", i);
        n += (size_t)snprintf(number, sizeof number, "%d,", i);
        assert_int_equal(t.n, n);
        assert_string_equal(t.at + t.n - strlen(number), number);
    }
    assert_memory_equal(t.at, "0,1,2,", 6);
    fr__alloc_fail_after(0);
    while (!t.failed) fr__text_put(&t, "more");
    fr__text_put_bytes(&t, "", 1);
    char *text = fr__text_take(&t);
    fr__alloc_fail_after(-1);
    assert_null(text); /* an incomplete text is none */
    text = fr__text_take(&t);
    assert_string_equal(text, "");
    fr__free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_and_aligned),
        cmocka_unit_test(absurd_sizes_fail),
        cmocka_unit_test(realloc_keeps_and_zeroes),
        cmocka_unit_test(counts_and_fails_on_demand),
        cmocka_unit_test(failed_realloc_keeps_the_old),
        cmocka_unit_test(no_memory_says_how_much),
        cmocka_unit_test(arena_pieces_do_not_touch),
        cmocka_unit_test(arena_keeps_large_pieces_apart),
        cmocka_unit_test(arena_texts),
        cmocka_unit_test(vec_grows),
        cmocka_unit_test(text_grows),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
