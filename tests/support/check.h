/* check.h -- checks of statuses with their texts, a private folder, and a loop over all ways to run
 * out of memory. */
#ifndef FR_TEST_SUPPORT_CHECK_H
#define FR_TEST_SUPPORT_CHECK_H

#include <forerun/base.h>

#include "base/alloc.h"
#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The call succeeds, or the test fails with the text of the context. */
#define assert_ok(ctx, call)                                               \
    do {                                                                   \
        if ((call) != FR_OK) fail_msg("%s: %s", #call, fr_ctx_error(ctx)); \
    } while (0)

/* The call fails with this status and a text that holds `part`; the context is cleared. */
#define assert_fails(ctx, call, status, part)                                                     \
    do {                                                                                          \
        fr_status got_status = (call);                                                            \
        if (got_status != (status) || !strstr(fr_ctx_error(ctx), part))                           \
            fail_msg("%s: status %d, \"%s\"; expected status %d, \"%s\"", #call, (int)got_status, \
                     fr_ctx_error(ctx), (int)(status), (part));                                   \
        fr_ctx_clear(ctx);                                                                        \
    } while (0)

static inline void support_write(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* A private folder below the working directory, for a group's setup and teardown: *state is its
 * name. */
static inline int support_dir_make(void **state)
{
    char *name = strdup("test-XX"
                        "XX"
                        "XX");
    *state = name && mkdtemp(name) ? name : NULL;
    return *state ? 0 : -1;
}

static inline int support_remove_one(const char *path, const struct stat *info, int type,
                                     struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static inline int support_dir_remove(void **state)
{
    int code = nftw(*state, support_remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return code;
}

/* Path of a file in that folder; good until the call after the next. */
static inline const char *support_path(void **state, const char *name)
{
    static char paths[2][256];
    static int turn;
    turn = !turn;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", (const char *)*state, name);
    return paths[turn];
}

/* Let `run` fail at its first allocation, at its second, ... until it succeeds: each time it must
 * return FR_NO_MEMORY and (with a sanitizer) leak nothing. Returns the number of failures. */
static inline int support_walk_memory(fr_status (*run)(fr_ctx *ctx, void *user), void *user)
{
    fr_ctx *ctx = fr_ctx_create();
    assert_non_null(ctx);
    for (int n = 0;; n++) {
        assert_true(n < 100000);
        fr__alloc_fail_after(n);
        fr_status status = run(ctx, user);
        fr__alloc_fail_after(-1);
        if (status != FR_OK && status != FR_NO_MEMORY)
            fail_msg("allocation %d: status %d, %s", n, (int)status, fr_ctx_error(ctx));
        if (status == FR_OK) {
            fr_ctx_free(ctx);
            return n;
        }
        assert_int_equal(fr_ctx_status(ctx), FR_NO_MEMORY);
        fr_ctx_clear(ctx);
    }
}

#endif
