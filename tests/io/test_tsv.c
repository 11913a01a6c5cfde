/* test_tsv.c -- rows, line numbers, odd line ends, lines without a tab. */
#include "io/tsv.h"
#include "support/check.h"

static fr_ctx *ctx;

/* All rows as "line|label|text\n"; the input is copied, so that no byte follows it. */
static fr_status rows(const char *input, size_t bytes, char *out, size_t room)
{
    unsigned char *data = malloc(bytes ? bytes : 1);
    memcpy(data, input, bytes);
    size_t pos = 0, used = 0;
    int64_t line = 0;
    fr__tsv_row row;
    bool more = true;
    fr_status status;
    out[0] = '\0';
    while ((status = fr__tsv_next(ctx, "f.tsv", data, bytes, &pos, &line, &row, &more)) == FR_OK &&
           more)
        used += (size_t)snprintf(out + used, room - used, "%d|%.*s|%.*s\n", (int)row.line,
                                 (int)row.label_bytes, row.label, (int)row.text_bytes, row.text);
    free(data);
    return status;
}

static void splits(void **state)
{
    (void)state;
    static const struct {
        const char *input, *output;
    } known[] = {
        {"", ""},
        {"\n\n", ""},
        {"1\tone", "1|1|one\n"},
        {"1\tone\n", "1|1|one\n"},
        {"1\tone\r\n0\ttwo\r\n", "1|1|one\n2|0|two\n"},
        {"1\ta\n\n\r\n2\tb", "1|1|a\n4|2|b\n"},
        {"\t\n", "1||\n"},
        {"x\ta\tb\n", "1|x|a\tb\n"},
        {"1\tmid\rdle\n", "1|1|mid\rdle\n"},
    };
    char out[200];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_ok(ctx, rows(known[i].input, strlen(known[i].input), out, sizeof out));
        assert_string_equal(out, known[i].output);
    }
}

static void no_tab_fails(void **state)
{
    (void)state;
    char out[200];
    assert_fails(ctx, rows("1\ta\nno tab here\n", 16, out, sizeof out), FR_INVALID,
                 "f.tsv:2: expected LABEL<TAB>TEXT, found no tab in \"no tab here\"");
    assert_string_equal(out, "1|1|a\n");
    char longer[300];
    memset(longer, 'x', sizeof longer);
    assert_fails(ctx, rows(longer, sizeof longer, out, sizeof out), FR_INVALID, "xxx\"...");
}

/* Zero bytes are ordinary text. */
static void zero_bytes(void **state)
{
    (void)state;
    const unsigned char data[] = {'1', '\t', 'a', 0, 'b', '\n', '2', '\t'};
    size_t pos = 0;
    int64_t line = 0;
    fr__tsv_row row;
    bool more;
    assert_ok(ctx, fr__tsv_next(ctx, "z", data, sizeof data, &pos, &line, &row, &more));
    assert_true(more);
    assert_int_equal(row.text_bytes, 3);
    assert_ok(ctx, fr__tsv_next(ctx, "z", data, sizeof data, &pos, &line, &row, &more));
    assert_true(more);
    assert_int_equal(row.text_bytes, 0);
    assert_ok(ctx, fr__tsv_next(ctx, "z", data, sizeof data, &pos, &line, &row, &more));
    assert_false(more);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(no_tab_fails),
        cmocka_unit_test(zero_bytes),
    };
    int code = cmocka_run_group_tests_name("tsv", tests, NULL, NULL);
    fr_ctx_free(ctx);
    return code;
}
