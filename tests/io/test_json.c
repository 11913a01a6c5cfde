/* test_json.c -- the output of the writer, as read by Jansson; misuse fails. */
#include "io/json.h"
#include "support/check.h"

#include <jansson.h>
#include <math.h>

static void write_sample(fr__json *j)
{
    fr__json_object(j, NULL);
    fr__json_int(j, "min", INT64_MIN);
    fr__json_uint(j, "max", UINT64_MAX);
    fr__json_real(j, "third", 1.0 / 3);
    fr__json_real(j, "nan", NAN);
    fr__json_real(j, "inf", -INFINITY);
    fr__json_bool(j, "yes", true);
    fr__json_text(j, "text", "a\"b\\c\n\t\x01\x7f/\xC3\xA9");
    fr__json_text(j, "none", NULL);
    fr__json_list(j, "list");
    fr__json_int(j, NULL, 1);
    fr__json_object(j, NULL);
    fr__json_end(j);
    fr__json_list(j, NULL);
    fr__json_end(j);
    fr__json_null(j, NULL);
    fr__json_end(j);
    fr__json_end(j);
}

static const char sample[] =
    "{\"min\": -9223372036854775808, \"max\": 18446744073709551615, "
    "\"third\": 0.3333333333333333, \"nan\": null, \"inf\": null, \"yes\": true, "
    "\"text\": \"a\\\"b\\\\c\\n\\u0009\\u0001\\u007f/\xC3\xA9\", \"none\": null, "
    "\"list\": [1, {}, [], null]}";

static void one_line(void **state)
{
    (void)state;
    char text[1000];
    fr__json j;
    fr__json_to_buffer(&j, text, sizeof text, 0);
    write_sample(&j);
    assert_true(fr__json_finish(&j));
    assert_string_equal(text, sample);
    assert_int_equal(j.bytes, strlen(sample));
}

static void indented_is_the_same(void **state)
{
    (void)state;
    char text[1000];
    fr__json j;
    fr__json_to_buffer(&j, text, sizeof text, 2);
    fr__json_object(&j, NULL);
    fr__json_list(&j, "a");
    fr__json_int(&j, NULL, 1);
    fr__json_int(&j, NULL, 2);
    fr__json_end(&j);
    fr__json_object(&j, "b");
    fr__json_end(&j);
    fr__json_end(&j);
    assert_true(fr__json_finish(&j));
    assert_string_equal(text, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}

static void jansson_reads_it(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    fr__json j;
    fr__json_to_file(&j, f, 4);
    fr__json_object(&j, NULL);
    fr__json_text(&j, "bad \xFF key", "cut \xE2\x82");
    fr__json_real(&j, "x", 0.1);
    fr__json_end(&j);
    assert_true(fr__json_finish(&j));
    rewind(f);
    json_error_t error;
    json_t *value = json_loadf(f, 0, &error);
    assert_non_null(value);
    assert_string_equal(json_string_value(json_object_get(value, "bad \xEF\xBF\xBD key")),
                        "cut \xEF\xBF\xBD\xEF\xBF\xBD");
    assert_true(json_real_value(json_object_get(value, "x")) == 0.1);
    json_decref(value);
    fclose(f);
}

/* Every buffer that is too small fails, is not overrun, is zero-terminated, and gives the needed
 * size. */
static void small_buffers(void **state)
{
    (void)state;
    size_t needed = strlen(sample) + 1;
    for (size_t room = 0; room <= needed; room++) {
        char *text = malloc(room ? room : 1); /* exact, so that a sanitizer sees an overrun */
        fr__json j;
        fr__json_to_buffer(&j, text, room, 0);
        write_sample(&j);
        assert_int_equal(fr__json_finish(&j), room == needed);
        assert_int_equal(j.bytes, needed - 1);
        if (room) assert_non_null(memchr(text, '\0', room));
        free(text);
    }
}

static void nothing_is_allocated(void **state)
{
    (void)state;
    char text[1000];
    fr__json j;
    uint64_t before = fr__alloc_count();
    fr__json_to_buffer(&j, text, sizeof text, 0);
    write_sample(&j);
    assert_true(fr__json_finish(&j));
    assert_int_equal(fr__alloc_count(), before);
}

enum misuse {
    KEY_IN_LIST,
    NO_KEY_IN_OBJECT,
    KEY_AT_TOP,
    TWO_AT_TOP,
    NOT_ENDED,
    ENDED_TWICE,
    EMPTY,
    TOO_DEEP,
    N_MISUSES
};

static void misuse_one(fr__json *j, enum misuse how)
{
    if (how == EMPTY) return;
    if (how == TOO_DEEP) {
        for (int i = 0; i < FR_JSON_DEPTH + 5; i++) fr__json_list(j, NULL);
        for (int i = 0; i < FR_JSON_DEPTH + 5; i++) fr__json_end(j);
        return;
    }
    fr__json_list(j, how == KEY_AT_TOP ? "key" : NULL);
    if (how == KEY_IN_LIST) fr__json_int(j, "key", 1);
    if (how == NO_KEY_IN_OBJECT) {
        fr__json_object(j, NULL);
        fr__json_int(j, NULL, 1);
        fr__json_end(j);
    }
    if (how != NOT_ENDED) fr__json_end(j);
    if (how == ENDED_TWICE) fr__json_end(j);
    if (how == TWO_AT_TOP) fr__json_int(j, NULL, 1);
}

static void misuse_fails(void **state)
{
    (void)state;
    for (int how = 0; how < N_MISUSES; how++) {
        char text[1000];
        fr__json j;
        fr__json_to_buffer(&j, text, sizeof text, 0);
        misuse_one(&j, (enum misuse)how);
        if (fr__json_finish(&j)) fail_msg("misuse %d passed: %s", how, text);
    }
}

static void full_disk_fails(void **state)
{
    (void)state;
    FILE *f = fopen("/dev/full", "w");
    if (!f) skip_because("a full disk", "there is no /dev/full");
    fr__json j;
    fr__json_to_file(&j, f, 0);
    write_sample(&j);
    assert_false(fr__json_finish(&j));
    fclose(f);
}

typedef struct pieces {
    char text[256];
    size_t n, room;
} pieces;

static bool take(void *user, const char *text, size_t n)
{
    pieces *p = user;
    if (p->n + n >= p->room) return false;
    memcpy(p->text + p->n, text, n);
    p->text[p->n += n] = '\0';
    return true;
}

static void pieces_go_where_they_are_taken(void **state)
{
    (void)state;
    static const char want[] = "{\"a\": [1, {\"x\":[]}, null], \"b\": true}";
    for (size_t room = 1; room <= sizeof want; room++) {
        pieces p = {.room = room};
        fr__json j;
        fr__json_to(&j, take, &p);
        fr__json_object(&j, NULL);
        fr__json_list(&j, "a"), fr__json_int(&j, NULL, 1);
        fr__json_raw(&j, NULL, "{\"x\":[]}rest", 8);
        fr__json_null(&j, NULL), fr__json_end(&j);
        fr__json_raw(&j, "b", "true", 4);
        fr__json_end(&j);
        assert_int_equal(fr__json_finish(&j), room == sizeof want); /* a failure is permanent */
        if (room == sizeof want) assert_string_equal(p.text, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line),
        cmocka_unit_test(indented_is_the_same),
        cmocka_unit_test(jansson_reads_it),
        cmocka_unit_test(small_buffers),
        cmocka_unit_test(nothing_is_allocated),
        cmocka_unit_test(misuse_fails),
        cmocka_unit_test(full_disk_fails),
        cmocka_unit_test(pieces_go_where_they_are_taken),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
