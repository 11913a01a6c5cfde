/* run_fixture.h -- shared by tests of runs: a scratch folder, a config, a context. */
#ifndef TESTS_SUPPORT_RUN_FIXTURE_H
#define TESTS_SUPPORT_RUN_FIXTURE_H

#include "support/test.h"
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <forerun/forerun.h>

typedef struct fixture {
    fr_ctx *ctx;
    char dir[64];     /* scratch folder, removed at the end */
    char config[128]; /* dir/net.yaml */
    char out[128];    /* dir/run */
    char log[8192];   /* all log lines */
} fixture;

static inline void fixture_log(void *user, fr_log_level level, const char *line)
{
    fixture *f = user;
    (void)level;
    size_t n = strlen(f->log);
    snprintf(f->log + n, sizeof f->log - n, "%s\n", line);
}

static inline int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->ctx = fr_ctx_create();
    assert_non_null(f->ctx);
    fr_ctx_set_log(f->ctx, fixture_log, f);
    snprintf(f->dir, sizeof f->dir, "/tmp/forerun-test-");
    memset(f->dir + strlen(f->dir), 'X', 6); /* the pattern of mkdtemp */
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->config, sizeof f->config, "%s/net.yaml", f->dir);
    snprintf(f->out, sizeof f->out, "%s/run", f->dir);
    *state = f;
    return 0;
}

static inline int fixture_remove(const char *path, const struct stat *info, int kind,
                                 struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static inline int fixture_teardown(void **state)
{
    fixture *f = *state;
    nftw(f->dir, fixture_remove, 16, FTW_DEPTH | FTW_PHYS);
    fr_ctx_free(f->ctx);
    free(f);
    return 0;
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Whole file, zero-terminated; the caller frees. */
static inline char *read_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)n, file), n);
    fclose(file);
    if (bytes) *bytes = (size_t)n;
    return text;
}

/* The call failed with this status, and its text holds each of these words. */
#define assert_failed(f, call, wanted, ...)                                          \
    do {                                                                             \
        const char *words[] = {__VA_ARGS__, NULL};                                   \
        assert_int_equal((call), (wanted));                                          \
        for (int word = 0; words[word]; word++)                                      \
            if (!strstr(fr_ctx_error((f)->ctx), words[word]))                        \
                fail_msg("'%s' is not in: %s", words[word], fr_ctx_error((f)->ctx)); \
        assert_null(strchr(fr_ctx_error((f)->ctx), '\n'));                           \
        fr_ctx_clear((f)->ctx);                                                      \
    } while (0)

#define assert_done(f, call)                                              \
    do {                                                                  \
        fr_status done_status = (call);                                   \
        if (done_status != FR_OK) fail_msg("%s", fr_ctx_error((f)->ctx)); \
    } while (0)

#endif
