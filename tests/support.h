/* support.h -- what the test programs share: cmocka with its includes, a context whose error is
 * shown when a call fails, a folder of one's own. */
#ifndef FR_TESTS_SUPPORT_H
#define FR_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <forerun/base.h>

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

#endif
