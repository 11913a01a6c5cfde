/* test_ctx.c -- the last failure is reported with its causes, long texts are cut, log lines arrive.
 */
#include "base/alloc.h"
#include "base/ctx.h"
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

/* After a caller has handled one failure, the next one is reported. */
static void last_failure_is_told(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    assert_int_equal(fr_fail(ctx, FR_IO, "disk %d", 7), FR_IO);
    assert_int_equal(fr_ctx_status(ctx), FR_IO);
    assert_string_equal(fr_ctx_error(ctx), "disk 7");
    assert_int_equal(fr_fail(ctx, FR_INVALID, "another matter"), FR_INVALID);
    assert_int_equal(fr_ctx_status(ctx), FR_INVALID);
    assert_string_equal(fr_ctx_error(ctx), "another matter");
    fr_ctx_clear(ctx);
    assert_int_equal(fr_ctx_status(ctx), FR_OK);
    assert_string_equal(fr_ctx_error(ctx), "");
    fr_ctx_free(ctx);
}

static void causes_are_chained(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_fail(ctx, FR_IO, "no room");
    fr_fail(ctx, FR_IO, "net.bin: %s", fr_ctx_error(ctx));
    fr_fail(ctx, FR_INVALID, "run 7: %s", fr_ctx_error(ctx));
    assert_int_equal(fr_ctx_status(ctx), FR_INVALID);
    assert_string_equal(fr_ctx_error(ctx), "run 7: net.bin: no room");
    fr_ctx_free(ctx);
}

/* A later failure during cleanup does not replace the first. */
static void failure_is_kept(void **state)
{
    (void)state;
    fr__failure first;
    fr_ctx *ctx = fr_ctx_create();
    fr_fail(ctx, FR_DIVERGED, "the loss is infinite");
    fr__failure_save(ctx, &first);
    fr_fail(ctx, FR_IO, "nor can it be saved");
    fr__failure_restore(ctx, &first);
    assert_int_equal(fr_ctx_status(ctx), FR_DIVERGED);
    assert_string_equal(fr_ctx_error(ctx), "the loss is infinite");
    fr_fail(NULL, FR_IO, "a thread's");
    fr__failure_save(NULL, &first);
    fr_fail(ctx, FR_IO, "another");
    fr__failure_restore(NULL, &first);
    assert_string_equal(fr_ctx_error(NULL), "a thread's");
    assert_string_equal(fr_ctx_error(ctx), "another");
    fr_ctx_free(ctx);
}

/* Without a context the text is the thread's own. */
static void thread_has_its_own(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_ctx_clear(NULL);
    assert_string_equal(fr_ctx_error(NULL), "");
    fr_fail(ctx, FR_IO, "first");
    assert_string_equal(fr_ctx_error(NULL), "first");
    assert_int_equal(fr_fail(NULL, FR_INVALID, "after %s", fr_ctx_error(NULL)), FR_INVALID);
    assert_string_equal(fr_ctx_error(NULL), "after first");
    assert_string_equal(fr_ctx_error(ctx), "first");
    assert_int_equal(fr_ctx_status(NULL), FR_OK);
    fr_log(NULL, FR_LOG_WARN, "dropped");
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

/* Each finds its own text, whatever the others do to the shared one, which is always a whole one.
 */
static void *fail_often(void *user)
{
    char text[32];
    bool is_fine = true;
    snprintf(text, sizeof text, "thread %p", (void *)text); /* an address that no other has */
    for (int i = 0; i < FAILS; i++) {
        fr_fail(user, FR_PEER, "%s", text);
        is_fine = is_fine && strcmp(fr_ctx_error(NULL), text) == 0 &&
                  strncmp(fr_ctx_error(user), "thread 0x", 9) == 0;
    }
    return is_fine ? user : NULL;
}

static void threads_may_share(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, fail_often, ctx), 0);
    for (int i = 0; i < THREADS; i++) {
        void *is_fine;
        pthread_join(thread[i], &is_fine);
        assert_non_null(is_fine);
    }
    assert_int_equal(fr_ctx_status(ctx), FR_PEER);
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

/* Characters that a terminal would act on, that would break a log, or that are invisible. */
static void hostile_text_is_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *shown;
    } cases[] = {
        {"plain \\ text, 100 %", "plain \\ text, 100 %"},
        {"gr\xc3\xb6\xc3\x9f"
         "er \xe2\x86\x92 \xf0\x9f\x98\x80",
         "gr\xc3\xb6\xc3\x9f"
         "er \xe2\x86\x92 \xf0\x9f\x98\x80"},
        {"a\nforerun: done", "a\\nforerun: done"},
        {"\x1b[2J\ttab\rreturn\x7f", "\\x1b[2J\\ttab\\rreturn\\x7f"},
        {"\xc2\x9b"
         "31m",
         "\\u009b31m"},
        {"\xe2\x80\xaegnp.exe\xe2\x80\xac", "\\u202egnp.exe\\u202c"},
        {"\xe2\x81\xa6x\xe2\x81\xa9\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c",
         "\\u2066x\\u2069\\u200e\\u200f\\u061c"},
        {"\xe2\x80\xa8"
         "line",
         "\\u2028line"},
        {"\xff\xc3(\xed\xa0\x80", "\\xff\\xc3(\\xed\\xa0\\x80"},
        {"\\n stays", "\\n stays"},
    };
    fr_ctx *ctx = fr_ctx_create();
    char line[64], text[4000];
    fr_ctx_set_log(ctx, keep_line, line);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fr_fail(ctx, FR_INVALID, "%s", cases[i].raw);
        assert_string_equal(fr_ctx_error(ctx), cases[i].shown);
        snprintf(text, sizeof text, "%s", fr_ctx_error(ctx));
        fr_ctx_clear(ctx);
        fr_fail(ctx, FR_INVALID, "%s", text); /* escaping again changes nothing */
        assert_string_equal(fr_ctx_error(ctx), cases[i].shown);
        fr_ctx_clear(ctx);
        fr_log(ctx, FR_LOG_WARN, "%s", cases[i].raw);
        assert_string_equal(line + 2, cases[i].shown);
    }
    for (size_t room = 0; room < 8; room++) { /* no half of an escape */
        memset(text, '#', 16);
        fr_escape("a\nb\n", text, room);
        if (room)
            assert_string_equal(text, room < 2   ? ""
                                      : room < 4 ? "a"
                                      : room < 5 ? "a\\n"
                                      : room < 7 ? "a\\nb"
                                                 : "a\\nb\\n");
        assert_int_equal(text[room], '#');
    }
    for (size_t pad = 0; pad < 4; pad++) { /* and no half of a character */
        memset(text, 'x', pad);
        for (size_t i = 0; i < 1000; i++) memcpy(text + pad + 3 * i, "\xe2\x86\x92", 3);
        text[pad + 3000] = '\0';
        fr_fail(ctx, FR_INVALID, "%s", text);
        assert_null(strchr(fr_ctx_error(ctx), '\\'));
        fr_ctx_clear(ctx);
    }
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
        cmocka_unit_test(starts_clean),
        cmocka_unit_test(last_failure_is_told),
        cmocka_unit_test(causes_are_chained),
        cmocka_unit_test(failure_is_kept),
        cmocka_unit_test(thread_has_its_own),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(threads_may_share),
        cmocka_unit_test(log_lines_arrive),
        cmocka_unit_test(statuses_have_texts_and_codes),
        cmocka_unit_test(no_memory_no_context),
        cmocka_unit_test(hostile_text_is_escaped),
    };
    return cmocka_run_group_tests_name("ctx", tests, NULL, NULL);
}
