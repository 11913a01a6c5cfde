/* test_ctx.c -- first failure wins, texts are cut and not overrun, log lines arrive. */
#include "base/alloc.h"
#include "support/check.h"

#include <pthread.h>

static void starts_clean(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    assert_non_null(ctx);
    assert_int_equal(fr_ctx_status(ctx), FR_OK);
    assert_string_equal(fr_ctx_error(ctx), "");
    fr_ctx_free(ctx);
    fr_ctx_free(NULL);
}

static void first_failure_wins(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    assert_int_equal(fr_fail(ctx, FR_IO, "disk %d", 7), FR_IO);
    assert_int_equal(fr_fail(ctx, FR_INVALID, "a consequence"), FR_INVALID);
    assert_int_equal(fr_ctx_status(ctx), FR_IO);
    assert_string_equal(fr_ctx_error(ctx), "disk 7");
    fr_ctx_clear(ctx);
    assert_int_equal(fr_ctx_status(ctx), FR_OK);
    assert_string_equal(fr_ctx_error(ctx), "");
    fr_fail(ctx, FR_INVALID, "next");
    assert_string_equal(fr_ctx_error(ctx), "next");
    fr_ctx_free(ctx);
}

static void long_text_is_cut(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fr_fail(ctx, FR_INVALID, "%s", text);
    size_t n = strlen(fr_ctx_error(ctx));
    assert_int_in_range(n, 500, sizeof text - 2);
    assert_memory_equal(fr_ctx_error(ctx), text, n);
    fr_ctx_free(ctx);
}

enum { THREADS = 4, FAILS = 200 };

static void *fail_often(void *user)
{
    for (int i = 0; i < FAILS; i++) fr_fail(user, FR_PEER, "same text from all");
    return NULL;
}

static void threads_may_share(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, fail_often, ctx), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(fr_ctx_status(ctx), FR_PEER);
    assert_string_equal(fr_ctx_error(ctx), "same text from all");
    fr_ctx_free(ctx);
}

static void keep_line(void *user, fr_log_level level, const char *line)
{
    snprintf(user, 64, "%d %s", (int)level, line);
}

static void log_lines_arrive(void **state)
{
    (void)state;
    char line[64] = "nothing yet";
    fr_ctx *ctx = fr_ctx_create();
    fr_log(ctx, FR_LOG_WARN, "dropped");
    assert_string_equal(line, "nothing yet");
    fr_ctx_set_log(ctx, keep_line, line);
    fr_log(ctx, FR_LOG_INFO, "step %d", 3);
    assert_string_equal(line, "1 step 3");
    fr_ctx_free(ctx);
}

/* Scripts rely on the exit codes. */
static void statuses_have_texts_and_codes(void **state)
{
    (void)state;
    static const struct {
        fr_status status;
        int code;
    } expected[] = {{FR_OK, 0},       {FR_NO_MEMORY, 1},     {FR_INVALID, 2},
                    {FR_IO, 1},       {FR_UNSUPPORTED, 2},   {FR_PEER, 3},
                    {FR_DIVERGED, 4}, {FR_INTERRUPTED, 130}, {FR_INTERNAL, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(fr_status_exit_code(expected[i].status), expected[i].code);
        assert_true(strlen(fr_status_text(expected[i].status)) > 1);
    }
    int major, minor, patch;
    assert_int_equal(sscanf(fr_version(), "%d.%d.%d", &major, &minor, &patch), 3);
}

static void no_memory_no_context(void **state)
{
    (void)state;
    fr__alloc_fail_after(0);
    fr_ctx *ctx = fr_ctx_create();
    fr__alloc_fail_after(-1);
    assert_null(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_clean),         cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(long_text_is_cut),     cmocka_unit_test(threads_may_share),
        cmocka_unit_test(log_lines_arrive),     cmocka_unit_test(statuses_have_texts_and_codes),
        cmocka_unit_test(no_memory_no_context),
    };
    return cmocka_run_group_tests_name("ctx", tests, NULL, NULL);
}
