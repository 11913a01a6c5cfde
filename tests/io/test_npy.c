/* test_npy.c -- arrays as NumPy writes them, and wrong headers. */
#include "io/npy.h"
#include "support/check.h"

#include <zlib.h>

static fr_ctx *ctx;

/* A file with this header text (padded to `align` bytes if that is not 0) and n bytes 0, 1, 2. */
static size_t build(unsigned char *out, int version, const char *header, size_t align, size_t n)
{
    size_t start = version == 1 ? 10 : 12, length = strlen(header) + 1;
    if (align) length = (start + length + align - 1) / align * align - start;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)version, out[7] = 0;
    for (size_t i = 0; i < start - 8; i++) out[8 + i] = (unsigned char)(length >> 8 * i);
    memset(out + start, ' ', length);
    memcpy(out + start, header, strlen(header));
    out[start + length - 1] = '\n';
    for (size_t i = 0; i < n; i++) out[start + length + i] = (unsigned char)i;
    return start + length + n;
}

static void reads_every_version_and_type(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        fr__npy_type type;
        size_t bytes;
    } types[] = {{"<f4", FR_NPY_F32, 4}, {"<f8", FR_NPY_F64, 8}, {"|u1", FR_NPY_U8, 1},
                 {"<i4", FR_NPY_I32, 4}, {"<i8", FR_NPY_I64, 8}, {"<u2", FR_NPY_U16, 2}};
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            char header[100];
            unsigned char data[1000];
            fr__npy a;
            snprintf(header, sizeof header,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }", types[i].descr);
            size_t n = build(data, version, header, 64, 6 * types[i].bytes);
            assert_ok(ctx, fr__npy_parse(ctx, "a.npy", data, n, &a));
            assert_int_equal(a.type, types[i].type);
            assert_int_equal(a.n_dims, 2);
            assert_int_equal(a.dim[0], 2);
            assert_int_equal(a.dim[1], 3);
            assert_ptr_equal(a.data, data + n - 6 * types[i].bytes);
            assert_null(a.block);
        }
}

static void odd_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n;
        int n_dims;
        int64_t first;
    } known[] = {
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 1, 0, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }", 5, 1, 5},
        {"{\"shape\":(5),\"fortran_order\":False,\"descr\":\"|u1\"}", 5, 1, 5},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 7), }", 0, 2, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,2), }", 2, 8, 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned char data[1000];
        fr__npy a;
        size_t n = build(data, 1, known[i].header, 16, known[i].n);
        assert_ok(ctx, fr__npy_parse(ctx, "a.npy", data, n, &a));
        assert_int_equal(a.n_dims, known[i].n_dims);
        assert_int_equal(a.dim[0], known[i].first);
    }
}

static void headers_that_lie(void **state)
{
    (void)state;
#define HEAD "{'descr': '|u1', 'fortran_order': False, 'shape': "
    static const struct {
        const char *header;
        fr_status status;
        const char *says;
    } bad[] = {
        {HEAD "(7,), }", FR_INVALID, "needs 7 bytes of values, but the file has 6"},
        {HEAD "(5,), }", FR_INVALID, "needs 5 bytes of values, but the file has 6"},
        {HEAD "(4294967296, 4294967296), }", FR_INVALID, "the file has 6"},
        {HEAD "(9223372036854775807, 9223372036854775807, 0), }", FR_INVALID, "a smaller"},
        {HEAD "(4611686018427387904, 4611686018427387904, 0), }", FR_INVALID, "needs 0 bytes"},
        {HEAD "(99999999999999999999,), }", FR_INVALID, "a smaller dimension"},
        {HEAD "(-6,), }", FR_INVALID, "a dimension"},
        {HEAD "(6 6), }", FR_INVALID, "',' or ')'"},
        {HEAD "(6,", FR_INVALID, "a dimension"},
        {HEAD "6}", FR_INVALID, "a shape such as"},
        {HEAD "(1,1,1,1,1,1,1,1,6), }", FR_INVALID, "at most 8 dimensions"},
        {HEAD "(6,), } x", FR_INVALID, "nothing more"},
        {HEAD "(6,), 'more': 1}", FR_INVALID, "once"},
        {HEAD "(6,), 'shape': (6,)}", FR_INVALID, "once"},
        {HEAD "(6,)", FR_INVALID, "',' or '}'"},
        {"{'descr': '|u1', 'shape': (6,)}", FR_INVALID, "'descr', 'fortran_order' and 'shape'"},
        {"{}", FR_INVALID, "'descr', 'fortran_order' and 'shape'"},
        {"{'descr: 1", FR_INVALID, "a key in quotes"},
        {"{'descr' 1", FR_INVALID, "':'"},
        {"[1]", FR_INVALID, "'{'"},
        {"", FR_INVALID, "'{'"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", FR_UNSUPPORTED, "'>f4'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (6,), }", FR_UNSUPPORTED, "'|O'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False}", FR_INVALID, "a simple type"},
        {"{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", FR_UNSUPPORTED, "Fortran"},
        {"{'descr': '|u1', 'fortran_order': 0, 'shape': (2, 3), }", FR_INVALID, "True or False"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        unsigned char data[1000];
        fr__npy a;
        size_t n = build(data, 1, bad[i].header, 16, 6);
        assert_fails(ctx, fr__npy_parse(ctx, "bad.npy", data, n, &a), bad[i].status, bad[i].says);
        assert_null(a.data);
    }
}

static void every_cut_is_seen(void **state)
{
    (void)state;
    unsigned char whole[1000];
    for (int version = 1; version <= 2; version++) {
        size_t n = build(whole, version, HEAD "(6,), }", 64, 6);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *data = malloc(cut ? cut : 1);
            memcpy(data, whole, cut);
            fr__npy a;
            assert_fails(ctx, fr__npy_parse(ctx, "cut.npy", data, cut, &a), FR_INVALID, "cut.npy");
            free(data);
        }
    }
}

static void wrong_starts(void **state)
{
    (void)state;
    unsigned char data[1000];
    fr__npy a;
    size_t n = build(data, 1, HEAD "(6,), }", 64, 6);
    data[6] = 4;
    assert_fails(ctx, fr__npy_parse(ctx, "v", data, n, &a), FR_UNSUPPORTED, "version 4.0");
    data[6] = 1, data[0] = 'P';
    assert_fails(ctx, fr__npy_parse(ctx, "v", data, n, &a), FR_INVALID, "not a .npy file");
    n = build(data, 2, HEAD "(6,), }", 64, 6);
    data[11] = 0xFF;
    assert_fails(ctx, fr__npy_parse(ctx, "v", data, n, &a), FR_INVALID, "byte 8: a header of 42");
}

/* From a file the values are aligned, wherever the header ends. */
static void loads_aligned(void **state)
{
    unsigned char data[1000];
    char path[300];
    fr__npy a;
    snprintf(path, sizeof path, "%s", support_path(state, "a.npy"));
    for (size_t pad = 0; pad < 9; pad++) {
        char header[100];
        snprintf(header, sizeof header,
                 "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}%*s", (int)pad, "");
        support_write(path, data, build(data, 1, header, 0, 16));
        assert_ok(ctx, fr__npy_load(ctx, path, &a));
        assert_int_equal((uintptr_t)a.data % 8, 0);
        assert_int_equal(((const int64_t *)a.data)[0], 0x0706050403020100);
        assert_int_equal(((const int64_t *)a.data)[1], 0x0F0E0D0C0B0A0908);
        fr__npy_fini(&a);
        assert_null(a.block);
    }
    fr__npy_fini(&a);
    assert_fails(ctx, fr__npy_load(ctx, "none.npy", &a), FR_INVALID, "none.npy");
    support_write(path, data, 50);
    assert_fails(ctx, fr__npy_load(ctx, path, &a), FR_INVALID, path);
    assert_null(a.block);
}

static void loads_gzip(void **state)
{
    unsigned char data[1000];
    fr__npy a;
    const char *path = support_path(state, "a.npy.gz");
    size_t n = build(data, 1, HEAD "(2, 3), }", 64, 6);
    gzFile f = gzopen(path, "wb");
    assert_int_equal(gzwrite(f, data, (unsigned)n), n);
    gzclose(f);
    assert_ok(ctx, fr__npy_load(ctx, path, &a));
    assert_int_equal(((const unsigned char *)a.data)[5], 5);
    fr__npy_fini(&a);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_version_and_type),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(headers_that_lie),
        cmocka_unit_test(every_cut_is_seen),
        cmocka_unit_test(wrong_starts),
        cmocka_unit_test(loads_aligned),
        cmocka_unit_test(loads_gzip),
    };
    int code = cmocka_run_group_tests_name("npy", tests, support_dir_make, support_dir_remove);
    fr_ctx_free(ctx);
    return code;
}
