/* test_conf_save.c -- a saved config holds all resolved values and loads back unchanged. */
#include "io/file.h"
#include "support/check.h"

#include <float.h>
#include <forerun/io.h>
#include <math.h>

static fr_ctx *ctx;

static const char *saved(void **state, fr_conf *c, char *text, size_t room)
{
    const char *path = support_path(state, "saved.yaml");
    assert_ok(ctx, fr_conf_save(c, path));
    FILE *f = fopen(path, "rb");
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
    return text;
}

static fr_conf *parse(const char *text)
{
    fr_conf *c;
    assert_ok(ctx, fr_conf_parse(ctx, text, strlen(text), "s.yaml", &c));
    return c;
}

static void shows_every_answer(void **state)
{
    fr_conf *c = parse("train: {lr: 1e-2, batch: 0012, on: TRUE}\nname: 'a b' # gone\n"
                       "sizes: 5\nlayers: [{w: 1}, {}]\nunasked: [x, {y: ~}, \"2\", [], [[z]]]\n");
    fr_conf *train, *item;
    int64_t i;
    int n;
    double r;
    bool b;
    const char *t;
    assert_ok(ctx, fr_conf_section(c, "train", &train));
    assert_ok(ctx, fr_conf_int(train, "batch", 1, 1, 99, &i));
    assert_ok(ctx, fr_conf_real(train, "lr", 1, 0, 1, &r));
    assert_ok(ctx, fr_conf_bool(train, "on", false, &b));
    assert_ok(ctx, fr_conf_int(train, "unset", -1, 0, 9, &i)); /* out of range: "not set" */
    assert_ok(ctx, fr_conf_real(train, "unset2", NAN, 0, 9, &r));
    assert_ok(ctx, fr_conf_real(train, "limit", INFINITY, 0, INFINITY, &r));
    assert_ok(ctx, fr_conf_text(c, "name", NULL, &t));
    assert_ok(ctx, fr_conf_text(c, "default", "", &t));
    assert_ok(ctx, fr_conf_ints(c, "sizes", 1, &i, &n));
    assert_ok(ctx, fr_conf_ints(c, "absent", 1, &i, &n));
    assert_ok(ctx, fr_conf_list_item(c, "layers", 0, &item));
    assert_ok(ctx, fr_conf_int(item, "w", 0, 0, 9, &i));
    assert_ok(ctx, fr_conf_int(item, "h", 7, 0, 9, &i));
    assert_ok(ctx, fr_conf_section(c, "empty", &item));
    assert_ok(ctx, fr_conf_record(train, "steps", "900"));
    assert_ok(ctx, fr_conf_record(c, "made", "{a: [1, b], c: 'x'}"));
    char text[2000];
    assert_string_equal(saved(state, c, text, sizeof text), "train:\n"
                                                            "  lr: 0.01\n"
                                                            "  batch: 12\n"
                                                            "  \"on\": true\n"
                                                            "  limit: .inf\n"
                                                            "  steps: 900\n"
                                                            "name: \"a b\"\n"
                                                            "sizes: [5]\n"
                                                            "layers:\n"
                                                            "  - w: 1\n"
                                                            "    h: 7\n"
                                                            "  - {}\n"
                                                            "unasked:\n"
                                                            "  - x\n"
                                                            "  - \"y\": null\n"
                                                            "  - \"2\"\n"
                                                            "  - []\n"
                                                            "  -\n"
                                                            "    -\n"
                                                            "      - z\n"
                                                            "default: \"\"\n"
                                                            "made:\n"
                                                            "  a:\n"
                                                            "    - 1\n"
                                                            "    - b\n"
                                                            "  c: x\n");
    fr_conf_free(c);
    /* a config that is loaded and saved without reading stays the same */
    char again[2][2000];
    for (int turn = 0; turn < 2; turn++) {
        c = parse(turn == 0 ? text : again[0]);
        saved(state, c, again[turn], sizeof again[turn]);
        fr_conf_free(c);
    }
    assert_string_equal(again[0], again[1]);
}

static void nothing_to_show(void **state)
{
    fr_conf *c = parse("");
    char text[100];
    assert_string_equal(saved(state, c, text, sizeof text), "{}\n");
    fr_conf_free(c);
}

static void doubles_come_back(void **state)
{
    static const double values[] = {
        0.1,          1.0 / 3, 1e-300, DBL_MAX,       DBL_MIN,
        DBL_TRUE_MIN, -0.0,    1e22,   123456789.125, 0x1.fffffffffffffp-3,
        2.5e-8};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[200];
        double back;
        fr_conf *c = parse("");
        assert_ok(ctx, fr_conf_real(c, "x", values[i], -INFINITY, INFINITY, &back));
        saved(state, c, text, sizeof text);
        fr_conf_free(c);
        c = parse(text);
        assert_ok(ctx, fr_conf_real(c, "x", 7, -INFINITY, INFINITY, &back));
        assert_memory_equal(&back, &values[i], sizeof back);
        fr_conf_free(c);
    }
}

/* Texts that YAML could misread. */
static const char *const odd_texts[] = {
    "",
    "plain",
    "a b",
    "true",
    "No",
    "null",
    "~",
    "12",
    "1e5",
    ".inf",
    "- x",
    "a: b",
    "a #b",
    "#x",
    "[a",
    "{",
    "*x",
    "&x",
    "!x",
    "|",
    ">",
    "'",
    "\"",
    "a\\b",
    "line\nline",
    "\ttab\r",
    " lead",
    "trail ",
    "%x",
    "@x",
    "`x",
    "a,b",
    "/path/to.x-1",
    "---",
    "...",
    "\x7f\x1b",
    "\xC3\xA9",
    "\xE2\x80\xA8",
    "\xC2\x85",
    "\xEF\xBB\xBF",
    "\xF0\x9F\x98\x80",
    "y",
    "_",
    "a=b",
    "<<",
    "=",
    "0x1F",
    "-",
    "?",
    ":",
    "a:",
    "null ",
    "~x",
    "C:\\dir",
    "\n",
};

static void texts_come_back(void **state)
{
    for (size_t i = 0; i < sizeof odd_texts / sizeof *odd_texts; i++) {
        char text[300];
        const char *back[2];
        int n;
        fr_conf *c = parse("");
        assert_ok(ctx, fr_conf_text(c, "x", odd_texts[i], &back[0]));
        saved(state, c, text, sizeof text);
        fr_conf_free(c);
        c = parse(text);
        assert_ok(ctx, fr_conf_text(c, "x", NULL, &back[0]));
        assert_string_equal(back[0], odd_texts[i]);
        fr_conf_free(c);
        /* the same inside a list, and as a key */
        char list[400];
        snprintf(list, sizeof list, "l:\n  - %sl2: 0\n", text + 3);
        c = parse(list);
        assert_ok(ctx, fr_conf_texts(c, "l", 2, back, &n));
        saved(state, c, text, sizeof text);
        fr_conf_free(c);
        c = parse(text);
        assert_ok(ctx, fr_conf_texts(c, "l", 2, back, &n));
        assert_int_equal(n, 1);
        assert_string_equal(back[0], odd_texts[i]);
        fr_conf_free(c);
    }
}

/* Plain texts that were never read are written unchanged and must keep their meaning. */
static void unasked_values_come_back(void **state)
{
    fr_conf *c = parse("a: one\n  two\n\n  three\nb: {x: a b, y: \"q: r\"}\nc: |\n  l1\n  l2\n"
                       "? 'odd: key'\n: 1\nd: -1\ne: [?]\nf: [False, +.inf]\n");
    char text[300];
    const char *t;
    int64_t v;
    saved(state, c, text, sizeof text);
    fr_conf_free(c);
    c = parse(text);
    assert_ok(ctx, fr_conf_text(c, "a", NULL, &t));
    assert_string_equal(t, "one two\nthree");
    assert_ok(ctx, fr_conf_text(c, "c", NULL, &t));
    assert_string_equal(t, "l1\nl2\n");
    assert_ok(ctx, fr_conf_int(c, "odd: key", 0, 0, 9, &v));
    assert_int_equal(v, 1);
    assert_ok(ctx, fr_conf_int(c, "d", 0, -9, 9, &v));
    assert_int_equal(v, -1);
    fr_conf *b;
    assert_ok(ctx, fr_conf_section(c, "b", &b));
    assert_ok(ctx, fr_conf_text(b, "y", NULL, &t));
    assert_string_equal(t, "q: r");
    fr_conf_free(c);
}

static void records(void **state)
{
    (void)state;
    fr_conf *c = parse("steps: 0\n");
    int64_t v;
    assert_ok(ctx, fr_conf_int(c, "steps", 5, 0, 9999, &v));
    assert_ok(ctx, fr_conf_record(c, "steps", "900"));
    assert_ok(ctx, fr_conf_int(c, "steps", 5, 0, 9999, &v)); /* recorded from now on */
    assert_int_equal(v, 900);
    assert_ok(ctx, fr_conf_record(c, "sub", "{a: 1}"));
    assert_false(fr_conf_has(c, "sub")); /* the user did not give it */
    assert_fails(ctx, fr_conf_record(c, "bad", "[1"), FR_INVALID, "value computed for bad: ");
    assert_ok(ctx, fr_conf_finish(c));
    fr_conf_free(c);
}

static void defaults_must_be_utf8(void **state)
{
    (void)state;
    fr_conf *c = parse("");
    const char *t;
    assert_fails(ctx, fr_conf_text(c, "x", "\xFF", &t), FR_INVALID, "x: the default is not UTF-8");
    fr_conf_free(c);
}

static void cannot_write(void **state)
{
    (void)state;
    fr_conf *c = parse("a: 1");
    assert_fails(ctx, fr_conf_save(c, "no/such/x.yaml"), FR_INVALID, "no/such/x.yaml");
    fr_conf_free(c);
}

static fr_status save_once(fr_ctx *c, void *path)
{
    fr_conf *top;
    fr_status status = fr_conf_parse(c, "a: [x, y]\nb: {c: 1}", 19, "m.yaml", &top);
    if (status != FR_OK) return status;
    status = fr_conf_save(top, path);
    fr_conf_free(top);
    return status;
}

static void memory_runs_out(void **state)
{
    char path[300];
    snprintf(path, sizeof path, "%s", support_path(state, "walk.yaml"));
    assert_int_in_range(support_walk_memory(save_once, path), 3, 100);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_every_answer),       cmocka_unit_test(nothing_to_show),
        cmocka_unit_test(doubles_come_back),        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(unasked_values_come_back), cmocka_unit_test(records),
        cmocka_unit_test(defaults_must_be_utf8),    cmocka_unit_test(cannot_write),
        cmocka_unit_test(memory_runs_out),
    };
    int code =
        cmocka_run_group_tests_name("conf_save", tests, support_dir_make, support_dir_remove);
    fr_ctx_free(ctx);
    return code;
}
