/* test_number.c -- number text in both directions, and UTF-8. */
#include "base/utf8.h"
#include "io/number.h"
#include "support/check.h"

#include <float.h>
#include <locale.h>
#include <math.h>

static void shortest_text(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } known[] = {{0.1, "0.1"},
                 {1, "1"},
                 {-0.0, "-0"},
                 {1e-3, "0.001"},
                 {1e300, "1e+300"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {1.0 / 3, "0.3333333333333333"},
                 {123456789, "123456789"},
                 {DBL_TRUE_MIN, "5e-324"},
                 {DBL_MAX, "1.7976931348623157e+308"},
                 {INFINITY, "inf"},
                 {-INFINITY, "-inf"}};
    char text[32];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(fr__real_format(known[i].value, text), strlen(known[i].text));
        assert_string_equal(text, known[i].text);
    }
    fr__real_format(NAN, text);
    assert_string_equal(text, "nan");
}

static void doubles_come_back(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252u; /* xorshift */
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double value, back;
        char text[32];
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        size_t n = fr__real_format(value, text);
        assert_true(n < 32 && strlen(text) == n);
        assert_true(fr__real_scan(text, &back));
        assert_memory_equal(&back, &value, sizeof value);
    }
}

static void integers(void **state)
{
    (void)state;
    int64_t v = 0;
    assert_true(fr__int_scan("9223372036854775807", &v) && v == INT64_MAX);
    assert_true(fr__int_scan("-9223372036854775808", &v) && v == INT64_MIN);
    assert_true(fr__int_scan("+007", &v) && v == 7);
    static const char *const bad[] = {
        "",    "-",   "9223372036854775808", "1.0", "1e3", " 1", "1 ", "0x1", "--1",
        "1_0", "nan", "-9223372036854775809"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(fr__int_scan(bad[i], &v));
    assert_int_equal(v, 7); /* untouched */
}

static void reals(void **state)
{
    (void)state;
    double v = 0;
    assert_true(fr__real_scan("-.5", &v) && v == -0.5);
    assert_true(fr__real_scan("5.", &v) && v == 5);
    assert_true(fr__real_scan("+1.25E-2", &v) && v == 0.0125);
    assert_true(fr__real_scan("1e-400", &v) && v == 0);
    v = 7;
    static const char *const bad[] = {"",    ".",     "-",  "e5", "1e",  "1e+",   "0x10",    "inf",
                                      "nan", "1e999", " 1", "1 ", "1,5", "1.2.3", "infinity"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(fr__real_scan(bad[i], &v));
    assert_true(v == 7);
}

/* A program that uses the library may have set a locale with a decimal comma. Few machines have one
 * installed, so the test creates it. */
static void locale_does_not_matter(void **state)
{
    static const char numbers[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\n"
                                  "grouping -1\nEND LC_NUMERIC\n";
    char command[500];
    support_write(support_path(state, "source"), numbers, strlen(numbers));
    snprintf(command, sizeof command, "cd '%s' && localedef -c -i ./source ./comma >log 2>&1",
             (const char *)*state);
    (void)!system(command); /* not 0: all other categories are absent */
    assert_int_equal(setenv("LOCPATH", *state, 1), 0);
    if (!setlocale(LC_NUMERIC, "comma"))
        skip_because("a locale with a decimal comma", "localedef cannot make one");
    char text[32];
    double v = 0;
    fr__real_format(1.5, text);
    bool is_read = fr__real_scan("2.5", &v);
    const char *point = localeconv()->decimal_point;
    assert_string_equal(point, ","); /* still the program's own */
    setlocale(LC_ALL, "C");
    assert_string_equal(text, "1.5");
    assert_true(is_read && v == 2.5);
}

static void utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t c;
        size_t n;
    } known[] = {{"", 0, 0},
                 {"a", 'a', 1},
                 {"\xC3\xA9", 0xE9, 2},
                 {"\xE2\x82\xAC", 0x20AC, 3},
                 {"\xF0\x9F\x98\x80", 0x1F600, 4},
                 {"\xF4\x8F\xBF\xBF", 0x10FFFF, 4},
                 {"\xF4\x90\x80\x80", -1, 1}, /* beyond the last */
                 {"\xC0\x80", -1, 1},         /* overlong */
                 {"\xE0\x80\xAF", -1, 1},
                 {"\xED\xA0\x80", -1, 1}, /* surrogate */
                 {"\x80", -1, 1},
                 {"\xE2\x82", -1, 1}, /* cut short */
                 {"\xFF", -1, 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = 99;
        assert_int_equal(fr__utf8_next(known[i].text, &n), known[i].c);
        assert_int_equal(n, known[i].n);
    }
    assert_true(fr__utf8_is_valid("gr\xC3\xBC\xC3\x9F"));
    assert_false(fr__utf8_is_valid("gr\xFC\xDF"));
}

static void finite_values(void **state)
{
    (void)state;
    float values[67] = {0};
    values[3] = FLT_MAX, values[5] = -FLT_MAX, values[7] = FLT_MIN / 2, values[9] = -0.0F;
    for (size_t n = 0; n <= 67; n++) assert_true(fr__are_finite(values, n));
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 67; i++)
        for (int k = 0; k < 3; k++) {
            float was = values[i];
            values[i] = bad[k];
            assert_false(fr__are_finite(values, 67));
            assert_true(fr__are_finite(values, (size_t)i)); /* those before it */
            values[i] = was;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_values),
        cmocka_unit_test(shortest_text),
        cmocka_unit_test(doubles_come_back),
        cmocka_unit_test(integers),
        cmocka_unit_test(reals),
        cmocka_unit_test(utf8),
        cmocka_unit_test_setup_teardown(locale_does_not_matter, support_dir_make,
                                        support_dir_remove),
    };
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
