/* scratch.h -- for the tests of this folder: a temporary folder, tiny files, a data set from a line
 * of YAML. */
#ifndef FR_TEST_DATA_SCRATCH_H
#define FR_TEST_DATA_SCRATCH_H

#include "support/test.h"

#include "base/alloc.h"
#include <forerun/data.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

typedef struct scratch {
    fr_ctx *ctx;
    fr_conf *conf; /* of the last open */
    char dir[64];
} scratch;

static inline int scratch_setup(void **state)
{
    scratch *s = calloc(1, sizeof *s);
    if (!s) return -1;
    snprintf(s->dir, sizeof s->dir,
             "/tmp/forerun-data-XX"
             "XX"
             "XX");
    s->ctx = fr_ctx_create();
    *state = s;
    return s->ctx && mkdtemp(s->dir) ? 0 : -1;
}

static inline int scratch_teardown(void **state)
{
    scratch *s = *state;
    fr_conf_free(s->conf);
    fr_ctx_free(s->ctx);
    DIR *dir = opendir(s->dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", s->dir, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(s->dir);
    free(s);
    return 0;
}

/* Write a file; names that end in .gz are packed. */
static inline void put_file(const scratch *s, const char *name, const void *data, size_t bytes)
{
    char path[512];
    size_t n = strlen(name);
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    if (n > 3 && strcmp(name + n - 3, ".gz") == 0) {
        gzFile f = gzopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(gzwrite(f, data, (unsigned)bytes), (int)bytes);
        assert_int_equal(gzclose(f), Z_OK);
    } else {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(data, 1, bytes, f), bytes);
        assert_int_equal(fclose(f), 0);
    }
}

static inline void drop_file(const scratch *s, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    unlink(path);
}

/* Open the data section in YAML, with every @ replaced by the scratch folder. */
static inline void parse_conf(scratch *s, const char *yaml)
{
    char text[2048];
    size_t n = 0;
    for (const char *c = yaml; *c; c++)
        n += (size_t)snprintf(text + n, sizeof text - n, *c == '@' ? "%s" : "%.1s",
                              *c == '@' ? s->dir : c);
    fr_conf_free(s->conf);
    s->conf = NULL;
    fr_ctx_clear(s->ctx);
    assert_int_equal(fr_conf_parse(s->ctx, text, n, "test.yaml", &s->conf), FR_OK);
}

static inline fr_status open_data(scratch *s, const fr_data_info *want, const char *yaml,
                                  fr_dataset **out)
{
    parse_conf(s, yaml);
    return fr_dataset_open(s->ctx, s->conf, want, out);
}

static inline fr_dataset *open_good(scratch *s, const fr_data_info *want, const char *yaml)
{
    fr_dataset *d;
    if (open_data(s, want, yaml, &d) != FR_OK) fail_msg("%s", fr_ctx_error(s->ctx));
    assert_non_null(d);
    /* exactly the keys that were read are known */
    assert_int_equal(fr_conf_finish(s->conf), FR_OK);
    return d;
}

/* The open must fail with FR_INVALID and a one-line text that contains all given parts
 * (NULL-terminated list). */
static inline void open_bad(scratch *s, const fr_data_info *want, const char *yaml, ...)
{
    fr_dataset *d;
    va_list parts;
    assert_int_equal(open_data(s, want, yaml, &d), FR_INVALID);
    assert_null(d);
    const char *text = fr_ctx_error(s->ctx);
    assert_null(strchr(text, '\n'));
    va_start(parts, yaml);
    for (const char *part; (part = va_arg(parts, const char *));)
        if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
    va_end(parts);
}

/* Let the 1st, 2nd, ... allocation of an open fail until it succeeds. */
static inline void walk_out_of_memory(scratch *s, const fr_data_info *want, const char *yaml)
{
    int n_failed = 0;
    for (int64_t n = 0;; n++) {
        fr_dataset *d = NULL;
        parse_conf(s, yaml);
        fr__alloc_fail_after(n);
        fr_status status = fr_dataset_open(s->ctx, s->conf, want, &d);
        fr__alloc_fail_after(-1);
        if (status == FR_OK) {
            fr_dataset_close(d);
            break;
        }
        n_failed++;
        if (status != FR_NO_MEMORY) fail_msg("allocation %d: %s", (int)n, fr_ctx_error(s->ctx));
        assert_null(d);
    }
    assert_true(n_failed > 2);
}

#endif
