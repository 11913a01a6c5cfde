/* test_idx.c -- complete files, every truncation, and wrong headers. */
#include "io/idx.h"
#include "support/check.h"

static fr_ctx *ctx;

/* (2, 3) bytes */
static const unsigned char sample[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 15};

static void reads_whole(void **state)
{
    (void)state;
    fr__idx a;
    assert_ok(ctx, fr__idx_parse(ctx, "a", sample, sizeof sample, &a));
    assert_int_equal(a.n_dims, 2);
    assert_int_equal(a.dim[0], 2);
    assert_int_equal(a.dim[1], 3);
    assert_ptr_equal(a.data, sample + 12);
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9};
    assert_ok(ctx, fr__idx_parse(ctx, "a", labels, sizeof labels, &a));
    assert_int_equal(a.n_dims, 1);
    assert_int_equal(a.data[1], 9);
}

static void every_cut_is_seen(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof sample; n++) {
        unsigned char *cut = malloc(n ? n : 1); /* exact, for sanitizers */
        memcpy(cut, sample, n);
        fr__idx a;
        assert_fails(ctx, fr__idx_parse(ctx, "cut.idx", cut, n, &a), FR_INVALID, "cut.idx: byte ");
        assert_int_equal(a.n_dims, 0);
        assert_null(a.data);
        free(cut);
    }
}

static void lies(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char value;
        const char *says;
    } lie[] = {
        {0, 1, "l.idx: byte 0: an IDX file starts with 00 00, this one with 01 00"},
        {1, 0x8B, "byte 0"},
        {2, 0x0D, "l.idx: byte 2: IDX type 0d found"},
        {3, 0, "l.idx: byte 3: 0 dimensions found"},
        {3, 5, "l.idx: byte 3: 5 dimensions found"},
        {4, 0xFF, "l.idx: byte 4: dimension 0 is 4278190082"},
        {7, 0, "l.idx: byte 4: dimension 0 is zero"},
        {7, 3, "byte 8: dimension 1 is 3"},
        {7, 1, "l.idx: byte 12: 3 bytes of data expected from the header, 6 found"},
        {8, 0x80, "byte 8: dimension 1 is"},
    };
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        unsigned char data[sizeof sample];
        fr__idx a;
        memcpy(data, sample, sizeof sample);
        data[lie[i].at] = lie[i].value;
        assert_fails(ctx, fr__idx_parse(ctx, "l.idx", data, sizeof data, &a), FR_INVALID,
                     lie[i].says);
    }
}

/* 65536^4 wraps to zero in 64 bits. */
static void product_cannot_wrap(void **state)
{
    (void)state;
    unsigned char data[20] = {0, 0, 8, 4};
    for (int i = 0; i < 4; i++) data[5 + 4 * i] = 1;
    fr__idx a;
    assert_fails(ctx, fr__idx_parse(ctx, "w", data, sizeof data, &a), FR_INVALID, "byte 4");
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_whole),
        cmocka_unit_test(every_cut_is_seen),
        cmocka_unit_test(lies),
        cmocka_unit_test(product_cannot_wrap),
    };
    int code = cmocka_run_group_tests_name("idx", tests, NULL, NULL);
    fr_ctx_free(ctx);
    return code;
}
