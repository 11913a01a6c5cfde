/* test_safetensors.c -- files written and read back, files of other writers, wrong headers,
 * truncated files, a full disk, no memory. */
#include "io/safetensors.h"
#include "support/check.h"

#include <forerun/io.h>
#include <signal.h>
#include <sys/resource.h>

static fr_ctx *ctx;

/* A file with this header and n bytes 0, 1, 2, ... of data, in memory of exactly its size. */
static unsigned char *build(const char *header, size_t n, size_t *bytes)
{
    size_t length = strlen(header);
    *bytes = 8 + length + n;
    unsigned char *file = malloc(*bytes);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < n; i++) file[8 + length + i] = (unsigned char)i;
    return file;
}

static fr_status parse(const char *header, size_t n)
{
    size_t bytes;
    unsigned char *file = build(header, n, &bytes);
    fr_tensors *t;
    fr_status status = fr__tensors_parse(ctx, "x.safetensors", file, bytes, &t);
    assert_int_equal(status == FR_OK, t != NULL);
    fr_tensors_close(t);
    free(file);
    return status;
}

/* --- reading ------------------------------------------------------------------------------ */

/* As Python's safetensors writes it: no blanks, sorted by size of type, blanks at the end. */
static const char python_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"i\":{\"dtype\":\"I64\",\"shape\":[1],"
    "\"data_offsets\":[0,8]},\"w.\\u00e9\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":"
    "[8,16]},\"none\":{\"dtype\":\"F16\",\"shape\":[0,9],\"data_offsets\":[16,16]},"
    "\"u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[16,17]}}   ";

static void check_python_file(fr_tensors *t)
{
    assert_int_equal(fr_tensors_count(t), 4);
    assert_string_equal(fr_tensors_meta(t, "format"), "pt");
    assert_null(fr_tensors_meta(t, "none"));
    int i = fr_tensors_find(t, "w.\xC3\xA9");
    assert_int_equal(i, 1); /* in the order of the data */
    const fr_tensor_info *info = fr_tensors_info(t, i);
    assert_string_equal(info->name, "w.\xC3\xA9");
    assert_string_equal(info->dtype, "F32");
    assert_int_equal(info->n_dims, 2);
    assert_int_equal(info->dim[0], 2);
    assert_int_equal(info->dim[1], 1);
    assert_int_equal(info->begin, 8);
    assert_int_equal(info->bytes, 8);
    unsigned char data[8];
    assert_ok(ctx, fr_tensors_read(t, i, data, sizeof data));
    assert_memory_equal(data, "\10\11\12\13\14\15\16\17", 8);
    assert_ok(ctx, fr_tensors_read(t, fr_tensors_find(t, "u"), data, 1));
    assert_int_equal(data[0], 16);
    assert_ok(ctx, fr_tensors_read(t, fr_tensors_find(t, "none"), NULL, 0));
    assert_int_equal(fr_tensors_find(t, "w"), -1);
    assert_null(fr_tensors_info(t, -1));
    assert_null(fr_tensors_info(t, 4));
    assert_fails(ctx, fr_tensors_read(t, i, data, 4), FR_INVALID,
                 "tensor \"w.\xC3\xA9\" has 8 bytes, 4 were expected");
    assert_fails(ctx, fr_tensors_read(t, 4, data, 4), FR_INVALID,
                 "tensor 4 requested, but there are 4");
}

static void reads_what_python_writes(void **state)
{
    size_t bytes;
    unsigned char *file = build(python_header, 17, &bytes);
    fr_tensors *t;
    assert_ok(ctx, fr__tensors_parse(ctx, "p", file, bytes, &t));
    check_python_file(t);
    fr_tensors_close(t);
    const char *path = support_path(state, "python.safetensors");
    support_write(path, file, bytes);
    assert_ok(ctx, fr_tensors_open(ctx, path, &t));
    check_python_file(t);
    /* the file shrinks while it is open */
    assert_int_equal(truncate(path, (off_t)bytes - 1), 0);
    unsigned char last;
    assert_fails(ctx, fr_tensors_read(t, 3, &last, 1), FR_IO, "it was longer when opened");
    fr_tensors_close(t);
    fr_tensors_close(NULL);
    free(file);
}

static void no_tensors_at_all(void **state)
{
    (void)state;
    assert_ok(ctx, parse("{}", 0));
    assert_ok(ctx, parse("{\"__metadata__\":{}}", 0));
    assert_fails(ctx, parse("{}", 3), FR_INVALID, "3 bytes of data belong to no tensor");
}

#define T(name, dtype, shape, range) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}"

static void headers_that_lie(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        fr_status status;
        const char *says;
    } bad[] = {
        {"{" T("a", "F32", "[2]", "[0,4]") "}", FR_INVALID, "\"a\": dtype F32 and shape do not"},
        {"{" T("a", "F32", "[3]", "[0,12]") "}", FR_INVALID, "outside the 8 bytes of data"},
        {"{" T("a", "F32", "[2]", "[8,0]") "}", FR_INVALID, "data_offsets [8, 0]"},
        {"{" T("a", "F32", "[2]", "[-8,0]") "}", FR_INVALID, "data_offsets [-8, 0]"},
        {"{" T("a", "F32", "[-2]", "[0,8]") "}", FR_INVALID, "numbers from 0"},
        {"{" T("a", "F32", "[2.0]", "[0,8]") "}", FR_INVALID, "numbers from 0"},
        {"{" T("a", "F32", "[4611686018427387906]", "[0,8]") "}", FR_INVALID, "do not make the 8"},
        {"{" T("a", "F32", "[4294967296,4294967296,0]", "[0,8]") "}", FR_INVALID, "do not make"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", FR_UNSUPPORTED, "9 dimensions"},
        {"{" T("a", "F33", "[2]", "[0,8]") "}", FR_UNSUPPORTED, "unknown dtype \"F33\""},
        {"{" T("a", "F32", "2", "[0,8]") "}", FR_INVALID, "no list \"shape\""},
        {"{" T("a", "F32", "[2]", "[0]") "}", FR_INVALID, "no pair of numbers"},
        {"{" T("a", "F32", "[2]", "[0,8,8]") "}", FR_INVALID, "no pair of numbers"},
        {"{" T("a", "F32", "[2]", "[0,\"8\"]") "}", FR_INVALID, "no pair of numbers"},
        {"{" T("a", "F32", "[2]", "{}") "}", FR_INVALID, "no pair of numbers"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", FR_INVALID, "no text \"dtype\""},
        {"{\"a\":7}", FR_INVALID, "x.safetensors: tensor \"a\": expected an object"},
        {"{" T("a", "U8", "[5]", "[0,5]") "," T("b", "U8", "[4]", "[4,8]") "}", FR_INVALID,
         "\"b\": its data begin at 4 and overlap the end of a at 5"},
        {"{" T("b", "U8", "[3]", "[5,8]") "," T("a", "U8", "[4]", "[0,4]") "}", FR_INVALID,
         "\"b\": its data begin at 5 and leave a hole after a at 4"},
        {"{" T("a", "U8", "[4]", "[0,4]") "}", FR_INVALID, "4 bytes of data belong to no tensor"},
        {"{" T("a", "U8", "[4]", "[4,8]") "}", FR_INVALID, "leave a hole after the start at 0"},
        {"{" T("a", "U8", "[8]", "[0,8]") "," T("a", "U8", "[8]", "[0,8]") "}", FR_INVALID,
         "header line 1 column "},
        {"{" T("a", "U8", "[8]", "[0,8]") "," T("b", "U8", "[8]", "[0,8]") "}", FR_INVALID,
         "overlap"},
        {"{" T("a", "U8", "[8]", "[0,8]") ",\"__metadata__\":[]}", FR_INVALID, "must be an object"},
        {"{" T("a", "U8", "[8]", "[0,8]") ",\"__metadata__\":{\"k\":1}}", FR_INVALID,
         "entry \"k\" must be a text"},
        {"{\n\"a\":}", FR_INVALID, "header line 2 column 5"},
        {"{\"a\\u0000b\":1}", FR_INVALID, "header line 1"},
        {"{" T("a", "U8", "[99999999999999999999]", "[0,8]") "}", FR_INVALID, "too big"},
        {"[]", FR_INVALID, "byte 8: a header starts with '{'"},
        {" {}", FR_INVALID, "byte 8: a header starts with '{'"},
        {"", FR_INVALID, "byte 8: a header starts with '{'"},
        {"{}x", FR_INVALID, "header line 1 column 3"},
        {"{\"\xFF\":1}", FR_INVALID, "header line 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(ctx, parse(bad[i].header, 8), bad[i].status, bad[i].says);
    assert_ok(ctx, parse("{" T("a", "F32", "[2]", "[0,8]") "}", 8)); /* the correct one */
}

static void lengths_that_lie(void **state)
{
    const char *path = support_path(state, "length.safetensors");
    static const uint64_t lengths[] = {300,        1000000,        100000001,
                                       UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    size_t bytes;
    unsigned char *file = build(python_header, 17, &bytes);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fr_tensors *t;
        uint64_t length = lengths[i] == 300 ? bytes - 7 : lengths[i];
        for (int b = 0; b < 8; b++) file[b] = (unsigned char)(length >> 8 * b);
        assert_fails(ctx, fr__tensors_parse(ctx, "l", file, bytes, &t), FR_INVALID,
                     "l: byte 0: a header of");
        support_write(path, file, bytes);
        assert_fails(ctx, fr_tensors_open(ctx, path, &t), FR_INVALID, "byte 0: a header of");
        assert_null(t);
    }
    free(file);
}

static void every_cut_is_seen(void **state)
{
    const char *path = support_path(state, "cut.safetensors");
    size_t bytes;
    unsigned char *file = build(python_header, 17, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        fr_tensors *t;
        support_write(path, file, cut);
        assert_fails(ctx, fr_tensors_open(ctx, path, &t), FR_INVALID, "cut.safetensors");
        unsigned char *part = malloc(cut ? cut : 1);
        memcpy(part, file, cut);
        assert_fails(ctx, fr__tensors_parse(ctx, "c", part, cut, &t), FR_INVALID, "c: ");
        free(part);
    }
    free(file);
}

static void no_plain_file(void **state)
{
    fr_tensors *t;
    assert_fails(ctx, fr_tensors_open(ctx, "none.safetensors", &t), FR_INVALID,
                 "cannot open none.safetensors: No such file");
    assert_null(t);
    assert_fails(ctx, fr_tensors_open(ctx, *state, &t), FR_INVALID, "not a regular file");
    assert_fails(ctx, fr_tensors_open(ctx, "/dev/zero", &t), FR_INVALID, "not a regular file");
}

/* The samples of the format's authors: nine types of [-3 .. 2], unaligned. */
static void published_samples(void **state)
{
    (void)state;
    const char *data = getenv("FR_DATA_DIR");
    if (!data) skip_because("the published samples of safetensors", NO_DATA);
    char path[1000];
    snprintf(path, sizeof path, "%s/safetensors-samples/overall.safetensors", data);
    fr_tensors *t;
    assert_ok(ctx, fr_tensors_open(ctx, path, &t));
    assert_int_equal(fr_tensors_count(t), 9);
    assert_string_equal(fr_tensors_meta(t, "test"), "a");
    float f[6];
    int16_t h[6];
    assert_ok(ctx, fr_tensors_read(t, fr_tensors_find(t, "f"), f, sizeof f));
    assert_ok(ctx, fr_tensors_read(t, fr_tensors_find(t, "h"), h, sizeof h));
    for (int i = 0; i < 6; i++) assert_true(f[i] == (float)(i - 3) && h[i] == i - 3);
    fr_tensors_close(t);
}

/* --- writing ------------------------------------------------------------------------------ */

static const int64_t dims[3] = {2, 3, 0};
static const float weights[6] = {1, 2, 3, 4, 5, 6};

static fr_status write_file(fr_ctx *c, const char *path)
{
    fr_tensor_writer *w;
    FR_TRY(fr_tensor_writer_create(c, path, &w));
    fr_status status;
    FR_TRY_GOTO(status, fr_tensor_writer_meta(w, "step", "12"), done);
    FR_TRY_GOTO(status, fr_tensor_writer_meta(w, "quote", "\"\\\n"), done);
    FR_TRY_GOTO(status, fr_tensor_writer_declare(w, "odd", "U8", 1, &dims[1]), done);
    FR_TRY_GOTO(status, fr_tensor_writer_declare(w, "empty", "F64", 3, dims), done);
    FR_TRY_GOTO(status, fr_tensor_writer_declare(w, "a.weight", "F32", 2, dims), done);
    FR_TRY_GOTO(status, fr_tensor_writer_declare(w, "scalar", "I64", 0, NULL), done);
    FR_TRY_GOTO(status, fr_tensor_writer_data(w, "\1\2\3", 3), done);
    FR_TRY_GOTO(status, fr_tensor_writer_data(w, NULL, 0), done); /* the empty one */
    FR_TRY_GOTO(status, fr_tensor_writer_data(w, weights, 4), done);
    FR_TRY_GOTO(status, fr_tensor_writer_data(w, weights + 1, 20), done); /* in pieces */
    FR_TRY_GOTO(status, fr_tensor_writer_data(w, &(int64_t){-7}, 8), done);
    status = fr_tensor_writer_finish(w);
done:
    fr_tensor_writer_free(w);
    return status;
}

static void check_file(fr_ctx *c, const char *path)
{
    fr_tensors *t;
    assert_ok(c, fr_tensors_open(c, path, &t));
    assert_int_equal(fr_tensors_count(t), 4);
    assert_string_equal(fr_tensors_meta(t, "step"), "12");
    assert_string_equal(fr_tensors_meta(t, "quote"), "\"\\\n");
    unsigned char odd[3];
    float back[6];
    int64_t scalar;
    assert_ok(c, fr_tensors_read(t, fr_tensors_find(t, "odd"), odd, 3));
    assert_memory_equal(odd, "\1\2\3", 3);
    assert_ok(c, fr_tensors_read(t, fr_tensors_find(t, "a.weight"), back, sizeof back));
    assert_memory_equal(back, weights, sizeof back);
    assert_ok(c, fr_tensors_read(t, fr_tensors_find(t, "scalar"), &scalar, 8));
    assert_int_equal(scalar, -7);
    const fr_tensor_info *info = fr_tensors_info(t, fr_tensors_find(t, "empty"));
    assert_int_equal(info->n_dims, 3);
    assert_int_equal(info->bytes, 0);
    fr_tensors_close(t);
}

static void round_trip(void **state)
{
    const char *path = support_path(state, "a.safetensors");
    support_write(path, "something longer than the new file? no, but it must go", 55);
    assert_ok(ctx, write_file(ctx, path));
    check_file(ctx, path);
    unsigned char first[8];
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(first, 1, 8, f), 8);
    fclose(f);
    assert_int_equal(first[0] % 8, 0); /* the values start at a multiple of 8 */
}

static void empty_file(void **state)
{
    const char *path = support_path(state, "empty.safetensors");
    fr_tensor_writer *w;
    fr_tensors *t;
    assert_ok(ctx, fr_tensor_writer_create(ctx, path, &w));
    assert_ok(ctx, fr_tensor_writer_finish(w));
    assert_ok(ctx, fr_tensor_writer_finish(w)); /* a second call does nothing */
    fr_tensor_writer_free(w);
    assert_ok(ctx, fr_tensors_open(ctx, path, &t));
    assert_int_equal(fr_tensors_count(t), 0);
    assert_null(fr_tensors_meta(t, "x"));
    fr_tensors_close(t);
    fr_tensor_writer_free(NULL);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* One wrong call: all later calls fail with its status, and the file is removed. */
static void wrong_call(void **state, int which, const char *says)
{
    const char *path = support_path(state, "wrong.safetensors");
    fr_tensor_writer *w;
    fr_status status = FR_OK;
    assert_ok(ctx, fr_tensor_writer_create(ctx, path, &w));
    assert_ok(ctx, fr_tensor_writer_declare(w, "a", "F32", 1, dims));
    assert_ok(ctx, fr_tensor_writer_meta(w, "k", "v"));
    if (which >= 8) assert_ok(ctx, fr_tensor_writer_data(w, weights, 4));
    switch (which) {
    case 0: status = fr_tensor_writer_declare(w, "a", "F32", 1, dims); break;
    case 1: status = fr_tensor_writer_declare(w, "b", "FLOAT", 1, dims); break;
    case 2: status = fr_tensor_writer_declare(w, "b", "F32", 9, dims); break;
    case 3: status = fr_tensor_writer_declare(w, "b", "F32", 1, (int64_t[]){INT64_MAX}); break;
    case 4: status = fr_tensor_writer_declare(w, "__metadata__", "F32", 1, dims); break;
    case 5: status = fr_tensor_writer_declare(w, "\xFF", "F32", 1, dims); break;
    case 6: status = fr_tensor_writer_meta(w, "k", "again"); break;
    case 7: status = fr_tensor_writer_meta(w, "b", "\xFF"); break;
    case 8: status = fr_tensor_writer_declare(w, "b", "F32", 1, dims); break;
    case 9: status = fr_tensor_writer_data(w, weights, 8); break;
    case 10: status = fr_tensor_writer_finish(w); break;
    case 11:
        assert_ok(ctx, fr_tensor_writer_data(w, weights, 4));
        status = fr_tensor_writer_data(w, weights, 4);
        break;
    default: fail();
    }
    assert_fails(ctx, status, FR_INVALID, says);
    assert_int_equal(fr_tensor_writer_data(w, weights, 4), FR_INVALID);
    assert_int_equal(fr_tensor_writer_finish(w), FR_INVALID);
    fr_ctx_clear(ctx);
    assert_true(exists(path));
    fr_tensor_writer_free(w);
    assert_false(exists(path));
}

static void wrong_calls(void **state)
{
    wrong_call(state, 0, "tensor \"a\" (F32): declared twice");
    wrong_call(state, 1, "unknown dtype");
    wrong_call(state, 2, "0 to 8 dimensions");
    wrong_call(state, 3, "impossible shape");
    wrong_call(state, 4, "reserved");
    wrong_call(state, 5, "not UTF-8");
    wrong_call(state, 6, "duplicate metadata \"k\"");
    wrong_call(state, 7, "not UTF-8");
    wrong_call(state, 8, "a declaration after the first data");
    wrong_call(state, 9, "tensor \"a\" needs 4 more bytes, 8 were given");
    wrong_call(state, 10, "tensor \"a\" is unfinished: 4 of 8 bytes");
    wrong_call(state, 11, "4 bytes more than were declared");
}

static void cannot_create(void **state)
{
    (void)state;
    fr_tensor_writer *w;
    assert_fails(ctx, fr_tensor_writer_create(ctx, "no/such/a", &w), FR_INVALID,
                 "cannot create no/such/a: No such file or directory");
    assert_null(w);
}

/* Opened through a link, so that a wrong removal would remove the link and not the device. */
static void full_disk(void **state)
{
    char path[300];
    snprintf(path, sizeof path, "%s", support_path(state, "full.safetensors"));
    if (access("/dev/full", W_OK) != 0) skip_because("a full disk", "there is no /dev/full");
    assert_int_equal(symlink("/dev/full", path), 0);
    fr_status status = write_file(ctx, path);
    char says[400];
    snprintf(says, sizeof says, "cannot write %s: No space left on device", path);
    assert_fails(ctx, status, FR_IO, says);
    assert_true(exists(path)); /* a device is never removed */
}

/* The disk fills up in the middle of the values: part of a write succeeds, then none. */
static void disk_fills_up(void **state)
{
    const char *path = support_path(state, "part.safetensors");
    fr_tensor_writer *w;
    float *data = calloc(100000, sizeof *data);
    assert_ok(ctx, fr_tensor_writer_create(ctx, path, &w));
    assert_ok(ctx, fr_tensor_writer_declare(w, "a", "F32", 1, (int64_t[]){100000}));
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 9000;
    setrlimit(RLIMIT_FSIZE, &small);
    fr_status status = fr_tensor_writer_data(w, data, 400000);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_fails(ctx, status, FR_IO, "cannot write");
    assert_int_equal(fr_tensor_writer_finish(w), FR_IO); /* not afterwards either */
    fr_ctx_clear(ctx);
    fr_tensor_writer_free(w);
    assert_false(exists(path));
    free(data);
}

/* --- memory ------------------------------------------------------------------------------- */

static fr_status write_and_read(fr_ctx *c, void *path)
{
    fr_tensors *t;
    FR_TRY(write_file(c, path));
    FR_TRY(fr_tensors_open(c, path, &t));
    fr_tensors_close(t);
    return FR_OK;
}

static void memory_runs_out(void **state)
{
    char path[300];
    snprintf(path, sizeof path, "%s", support_path(state, "walk.safetensors"));
    assert_int_in_range(support_walk_memory(write_and_read, path), 5, 100);
    check_file(ctx, path);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_python_writes),
        cmocka_unit_test(no_tensors_at_all),
        cmocka_unit_test(headers_that_lie),
        cmocka_unit_test(lengths_that_lie),
        cmocka_unit_test(every_cut_is_seen),
        cmocka_unit_test(no_plain_file),
        cmocka_unit_test(published_samples),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(empty_file),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(cannot_create),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(disk_fills_up),
        cmocka_unit_test(memory_runs_out),
    };
    int code =
        cmocka_run_group_tests_name("safetensors", tests, support_dir_make, support_dir_remove);
    fr_ctx_free(ctx);
    return code;
}
