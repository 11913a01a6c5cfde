/* test_file.c -- plain and gzip files, bounds, atomic replacement, folders. */
#include "io/file.h"
#include "support/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static fr_ctx *ctx;

static unsigned char *pattern(size_t n)
{
    unsigned char *data = malloc(n ? n : 1);
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * i / 7 + i);
    return data;
}

static void write_gzip(const char *path, const void *data, size_t bytes, const char *mode)
{
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    if (bytes) assert_int_equal(gzwrite(f, data, (unsigned)bytes), bytes);
    assert_int_equal(gzclose(f), Z_OK);
}

static void check_content(const char *path, size_t max, const void *expected, size_t bytes)
{
    unsigned char *data;
    size_t n;
    assert_ok(ctx, fr__file_read(ctx, path, max, &data, &n));
    assert_int_equal(n, bytes);
    if (bytes) assert_memory_equal(data, expected, bytes);
    assert_int_equal(data[n], 0);
    fr__free(data);
}

static fr_status try_read(const char *path, size_t max)
{
    unsigned char *data;
    size_t n;
    fr_status status = fr__file_read(ctx, path, max, &data, &n);
    if (status != FR_OK) {
        assert_null(data);
        assert_int_equal(n, 0);
    }
    fr__free(data);
    return status;
}

/* Sizes around those of the internal buffers, each with the tightest limit. */
static void reads_plain_and_gzip(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 65533, 65534, 65535, 65536, 65537, 131072, 700001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *data = pattern(sizes[i]);
        const char *path = support_path(state, "plain");
        support_write(path, data, sizes[i]);
        check_content(path, sizes[i], data, sizes[i]);
        path = support_path(state, "zipped"); /* detected by content, not by name */
        write_gzip(path, data, sizes[i], "wb6");
        check_content(path, sizes[i], data, sizes[i]);
        write_gzip(path, data, sizes[i], "wb0"); /* stored: larger than its content */
        check_content(path, sizes[i], data, sizes[i]);
        free(data);
    }
}

static void members_are_joined(void **state)
{
    const char *path = support_path(state, "members.gz");
    write_gzip(path, "first ", 6, "wb");
    write_gzip(path, "", 0, "ab");
    write_gzip(path, "second", 6, "ab");
    check_content(path, 100, "first second", 12);
}

static void bounds_hold(void **state)
{
    size_t n = (size_t)3 << 20;
    unsigned char *zeros = calloc(n, 1);
    const char *path = support_path(state, "bomb.gz");
    write_gzip(path, zeros, n, "wb9"); /* about 3 KB packed */
    assert_fails(ctx, try_read(path, n - 1), FR_INVALID, "more than 3145727 bytes");
    assert_fails(ctx, try_read(path, 0), FR_INVALID, "more than 0 bytes");
    assert_ok(ctx, try_read(path, n));
    path = support_path(state, "large");
    support_write(path, zeros, n);
    assert_fails(ctx, try_read(path, n - 1), FR_INVALID, "large: more than 3145727 bytes");
    assert_fails(ctx, try_read("/dev/zero", 100000), FR_INVALID, "more than 100000 bytes");
    free(zeros);
}

/* A header of one byte: the number of kilobytes that follow. */
static fr_status size_by_first(fr_ctx *c, const char *path, const unsigned char *data, size_t n,
                               size_t *total)
{
    if (n < 1 || data[0] == 0xFF) return fr_fail(c, FR_INVALID, "%s: a bad header", path);
    *total = 1 + (size_t)data[0] * 1024;
    return FR_OK;
}

static fr_status try_read_by(const char *path, unsigned char **data, size_t *n)
{
    static const fr__file_head head = {.bytes = 1, .size = size_by_first};
    fr_status status = fr__file_read_by(ctx, path, (size_t)1 << 30, &head, data, n);
    if (status != FR_OK) assert_null(*data);
    return status;
}

/* The header is checked before anything beyond it is read or unpacked. */
static void headers_come_first(void **state)
{
    size_t n = 1 + 3 * 1024, many = (size_t)40 << 20;
    unsigned char *whole = pattern(n), *data, *zeros = calloc(many, 1);
    char plain[300], packed[300];
    size_t got;
    snprintf(plain, sizeof plain, "%s", support_path(state, "headed"));
    snprintf(packed, sizeof packed, "%s", support_path(state, "headed.gz"));
    whole[0] = 3;
    support_write(plain, whole, n);
    write_gzip(packed, whole, n, "wb");
    const char *const paths[] = {plain, packed};
    for (int i = 0; i < 2; i++) {
        assert_ok(ctx, try_read_by(paths[i], &data, &got));
        assert_int_equal(got, n);
        assert_memory_equal(data, whole, n);
        fr__free(data);
    }
    whole[0] = 2; /* less than there is */
    support_write(plain, whole, n);
    write_gzip(packed, whole, n, "wb");
    assert_fails(ctx, try_read_by(plain, &data, &got), FR_INVALID,
                 "declares 2049 bytes, but the file has 3073");
    assert_fails(ctx, try_read_by(packed, &data, &got), FR_INVALID,
                 "declares 2049 bytes, but the file has more");
    /* A file that would exhaust the memory is not unpacked. */
    zeros[0] = 0xFF;
    write_gzip(packed, zeros, many, "wb1");
    assert_fails(ctx, try_read_by(packed, &data, &got), FR_INVALID, "a bad header");
    assert_int_equal(truncate(plain, (off_t)1 << 40), 0); /* sparse */
    assert_fails(ctx, try_read_by(plain, &data, &got), FR_INVALID, "the file has 1099511627776");
    zeros[0] = 0;
    write_gzip(packed, zeros, many, "wb1");
    assert_fails(ctx, try_read_by(packed, &data, &got), FR_INVALID, "declares 1 bytes");
    assert_fails(ctx, try_read(packed, (size_t)1 << 30), FR_INVALID,
                 "unpacks to more than 200 times its size");
    free(whole);
    free(zeros);
}

static void every_cut_of_gzip_is_seen(void **state)
{
    unsigned char *data = pattern(3000), packed[4000];
    const char *path = support_path(state, "cut.gz");
    write_gzip(path, data, 3000, "wb");
    FILE *f = fopen(path, "rb");
    size_t n = fread(packed, 1, sizeof packed, f);
    fclose(f);
    assert_int_in_range(n, 100, sizeof packed - 1);
    for (size_t cut = 2; cut < n; cut += cut < 30 || cut > n - 20 ? 1 : 37) {
        support_write(path, packed, cut);
        assert_fails(ctx, try_read(path, 100000), FR_INVALID, "cut.gz: the gzip data end early");
    }
    packed[n - 6] ^= 1; /* the checksum */
    support_write(path, packed, n);
    assert_fails(ctx, try_read(path, 100000), FR_INVALID, "broken gzip data after 3000");
    packed[n - 6] ^= 1;
    packed[n] = 'x'; /* trailing bytes */
    support_write(path, packed, n + 1);
    assert_fails(ctx, try_read(path, 100000), FR_INVALID, "cut.gz");
    free(data);
}

static void missing_and_folders(void **state)
{
    assert_fails(ctx, try_read("no/such/file", 10), FR_INVALID,
                 "cannot open no/such/file: No such file or directory");
    assert_fails(ctx, try_read(*state, 10), FR_INVALID, "Is a directory");
    assert_false(fr__file_exists("no/such/file"));
    assert_false(fr__file_exists(*state));
    assert_true(fr__dir_exists(*state));
    assert_false(fr__dir_exists("no/such/file"));
}

/* A pipe without a writer is refused at once; to open it as usual would wait. */
static void regular_files_only(void **state)
{
    const char *path = support_path(state, "regular");
    unsigned char *data;
    size_t n;
    assert_ok(ctx, fr__file_replace(ctx, path, "text", 4));
    assert_ok(ctx, fr__file_read_regular(ctx, path, 10, &data, &n));
    assert_int_equal(n, 4);
    fr__free(data);
    path = support_path(state, "lonely pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    const char *const others[] = {path, "/dev/zero", *state};
    for (int i = 0; i < 3; i++) {
        assert_fails(ctx, fr__file_read_regular(ctx, others[i], 10, &data, &n), FR_INVALID,
                     "not a regular file");
        assert_null(data);
    }
    assert_fails(ctx, fr__file_read_regular(ctx, "no/such", 10, &data, &n), FR_INVALID, "no/such");
}

static void replaces(void **state)
{
    const char *path = support_path(state, "replaced");
    assert_ok(ctx, fr__file_replace(ctx, path, "one", 3));
    check_content(path, 10, "one", 3);
    assert_ok(ctx, fr__file_replace(ctx, path, "twotwo", 6));
    check_content(path, 10, "twotwo", 6);
    assert_ok(ctx, fr__file_replace(ctx, path, NULL, 0));
    check_content(path, 10, "", 0);
    assert_true(fr__file_exists(path));
    assert_fails(ctx, fr__file_replace(ctx, "no/such/file", "x", 1), FR_INVALID, "no/such/file");
    assert_fails(ctx, fr__file_replace(ctx, "", "x", 1), FR_INVALID, "no name");
    assert_fails(ctx, fr__file_replace(ctx, *state, "x", 1), FR_INVALID, "Is a directory");
}

/* A file size limit shortens a write just like a full disk: the old content must stay, and no other
 * file may be left. */
/* A pipe gets the bytes and stays a pipe; so does a device such as /dev/null. */
static void streams_are_written_in_place(void **state)
{
    const char *path = support_path(state, "pipe");
    char got[8] = "";
    struct stat at;
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR); /* so that opening it for writing does not wait */
    assert_true(fd >= 0);
    assert_ok(ctx, fr__file_replace(ctx, path, "piece", 5));
    assert_int_equal(stat(path, &at), 0);
    assert_true(S_ISFIFO(at.st_mode));
    assert_int_equal(read(fd, got, sizeof got), 5);
    assert_string_equal(got, "piece");
    close(fd);
}

/* /dev/stdout is such a link: with a rename over it, it would be gone for everybody. */
static void links_to_open_files_stay(void **state)
{
    char link[300], to[64], got[8] = "";
    struct stat at;
    snprintf(link, sizeof link, "%s", support_path(state, "link"));
    FILE *f = fopen(support_path(state, "open"), "w+");
    assert_non_null(f);
    snprintf(to, sizeof to, "/proc/self/fd/%d", fileno(f));
    assert_int_equal(symlink(to, link), 0);
    assert_ok(ctx, fr__file_replace(ctx, link, "piece", 5));
    assert_int_equal(lstat(link, &at), 0);
    assert_true(S_ISLNK(at.st_mode));
    assert_int_equal(fread(got, 1, sizeof got - 1, f), 5);
    assert_string_equal(got, "piece");
    fclose(f);
}

static void full_disk_keeps_the_old(void **state)
{
    const char *folder = support_path(state, "full");
    char path[300];
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_ok(ctx, fr__file_replace(ctx, path, "old", 3));
    unsigned char *data = pattern(100000);
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 5000;
    setrlimit(RLIMIT_FSIZE, &small);
    fr_status status = fr__file_replace(ctx, path, data, 100000);
    setrlimit(RLIMIT_FSIZE, &before);
    free(data);
    assert_fails(ctx, status, FR_IO, "cannot write");
    check_content(path, 10, "old", 3);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
}

static void write_says_no_space(void **state)
{
    (void)state;
    FILE *f = fopen("/dev/full", "w");
    if (!f) skip_because("a full disk", "there is no /dev/full");
    assert_fails(ctx, fr__fd_write(ctx, fileno(f), "the file", "x", 1), FR_IO,
                 "cannot write the file: No space left on device");
    fclose(f);
}

static void folders(void **state)
{
    char deep[300], file[400];
    snprintf(deep, sizeof deep, "%s/a//b/c/", (const char *)*state);
    assert_ok(ctx, fr__dir_make(ctx, deep));
    assert_ok(ctx, fr__dir_make(ctx, deep)); /* again */
    assert_true(fr__dir_exists(deep));
    snprintf(file, sizeof file, "%s/file", deep);
    support_write(file, "x", 1);
    assert_fails(ctx, fr__dir_make(ctx, file), FR_INVALID, "cannot make folder");
    char below[500];
    snprintf(below, sizeof below, "%s/below", file);
    assert_fails(ctx, fr__dir_make(ctx, below), FR_INVALID, "cannot make folder");
    char *endless = malloc(10000);
    memset(endless, 'x', 9999);
    endless[9999] = '\0';
    assert_fails(ctx, fr__dir_make(ctx, endless), FR_INVALID, "too long");
    assert_fails(ctx, fr__file_replace(ctx, endless, "", 0), FR_INVALID, "too long");
    free(endless);
    assert_fails(ctx, fr__dir_make(ctx, ""), FR_INVALID, "too short");
    assert_ok(ctx, fr__dir_remove(ctx, deep));
    assert_false(fr__dir_exists(deep));
    assert_ok(ctx, fr__dir_remove(ctx, deep)); /* a missing folder is not an error */
    /* a folder in it is not removed */
    assert_fails(ctx, fr__dir_remove(ctx, support_path(state, "a")), FR_IO, "a/b");
    assert_true(fr__dir_exists(support_path(state, "a/b")));
}

static void renames(void **state)
{
    char from[300], to[300];
    snprintf(from, sizeof from, "%s", support_path(state, "from"));
    snprintf(to, sizeof to, "%s", support_path(state, "to"));
    support_write(from, "x", 1);
    assert_ok(ctx, fr__rename_sync(ctx, from, to));
    assert_false(fr__file_exists(from));
    assert_true(fr__file_exists(to));
    assert_fails(ctx, fr__rename_sync(ctx, from, to), FR_IO, "cannot rename");
    snprintf(from, sizeof from, "%s", support_path(state, "folder/"));
    snprintf(to, sizeof to, "%s", support_path(state, "moved/"));
    assert_ok(ctx, fr__dir_make(ctx, from));
    assert_ok(ctx, fr__rename_sync(ctx, from, to)); /* a slash at the end is still that folder */
    assert_true(fr__dir_exists(to));
}

static fr_status read_once(fr_ctx *c, void *path)
{
    unsigned char *data;
    size_t n;
    fr_status status = fr__file_read(c, path, 1 << 20, &data, &n);
    fr__free(data);
    return status;
}

static void memory_runs_out(void **state)
{
    unsigned char *data = pattern(200000);
    char path[300];
    snprintf(path, sizeof path, "%s", support_path(state, "walk.gz"));
    write_gzip(path, data, 200000, "wb");
    assert_int_equal(support_walk_memory(read_once, path), 4); /* piece, and 64, 128, 256 KiB */
    free(data);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_gzip),
        cmocka_unit_test(members_are_joined),
        cmocka_unit_test(headers_come_first),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(every_cut_of_gzip_is_seen),
        cmocka_unit_test(missing_and_folders),
        cmocka_unit_test(regular_files_only),
        cmocka_unit_test(replaces),
        cmocka_unit_test(streams_are_written_in_place),
        cmocka_unit_test(links_to_open_files_stay),
        cmocka_unit_test(full_disk_keeps_the_old),
        cmocka_unit_test(write_says_no_space),
        cmocka_unit_test(folders),
        cmocka_unit_test(renames),
        cmocka_unit_test(memory_runs_out),
    };
    int code = cmocka_run_group_tests_name("file", tests, support_dir_make, support_dir_remove);
    fr_ctx_free(ctx);
    return code;
}
