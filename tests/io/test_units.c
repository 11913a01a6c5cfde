/* test_units.c -- amounts with units, from text and to text. */
#include "io/units.h"

#include "support/test.h"

#include <string.h>

static void reads_what_people_write(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fr__amount_unit unit;
        double value;
    } good[] = {
        {"16 GB", FR_UNIT_BYTES, 16e9},
        {"24GiB", FR_UNIT_BYTES, 24. * (1 << 30)},
        {"1.5 kB", FR_UNIT_BYTES, 1500},
        {"7", FR_UNIT_BYTES, 7},
        {"1e3", FR_UNIT_BYTES, 1000},
        {"12 GB/s", FR_UNIT_RATE, 12e9},
        {"10 Gbit/s", FR_UNIT_RATE, 1.25e9},
        {"800 Mbps", FR_UNIT_RATE, 1e8},
        {"5 us", FR_UNIT_SECONDS, 5e-6},
        {"5 \xC2\xB5s", FR_UNIT_SECONDS, 5e-6},
        {"0.1 ms", FR_UNIT_SECONDS, 1e-4},
        {"2 s", FR_UNIT_SECONDS, 2},
        {"15.7 TFLOP/s", FR_UNIT_FLOPS, 15.7e12},
        {"2 GFLOPS", FR_UNIT_FLOPS, 2e9},
    };
    static const struct {
        const char *text;
        fr__amount_unit unit;
    } bad[] = {
        {"", FR_UNIT_BYTES},      {"GB", FR_UNIT_BYTES},     {"16 GB/s", FR_UNIT_BYTES},
        {"16 gb", FR_UNIT_BYTES}, {"1 mB", FR_UNIT_BYTES},   {"1 ks", FR_UNIT_SECONDS},
        {"10 GB", FR_UNIT_RATE},  {"1 2 GB", FR_UNIT_BYTES}, {"16 GB ", FR_UNIT_BYTES},
        {"1e999", FR_UNIT_BYTES}, {"nan", FR_UNIT_BYTES},    {"5 ", FR_UNIT_SECONDS},
        {"0x10", FR_UNIT_BYTES},  {"1 XB", FR_UNIT_BYTES},   {"1 /s", FR_UNIT_RATE},
    };
    double value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!fr__amount_scan(good[i].text, good[i].unit, &value) || value != good[i].value)
            fail_msg("%s: %.17g", good[i].text, value);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (fr__amount_scan(bad[i].text, bad[i].unit, &value)) fail_msg("%s", bad[i].text);
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    uint64_t seed = 3;
    char text[48];
    double back;
    fr__amount_format(12e9, FR_UNIT_RATE, text);
    assert_string_equal(text, "12 GB/s");
    fr__amount_format(5e-6, FR_UNIT_SECONDS, text);
    assert_string_equal(text, "5 us");
    fr__amount_format(0, FR_UNIT_SECONDS, text);
    assert_string_equal(text, "0");
    fr__amount_format(24. * (1 << 30), FR_UNIT_BYTES, text);
    assert_string_equal(text, "24 GiB");
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        fr__amount_unit unit = (fr__amount_unit)(seed >> 33 & 3);
        double value = (double)(seed >> 40) * (unit == FR_UNIT_SECONDS ? 1e-9 : 1000);
        if (seed >> 35 & 1) value /= 7;
        fr__amount_format(value, unit, text);
        if (!fr__amount_scan(text, unit, &back) || back != value)
            fail_msg("%.17g: %s", value, text);
    }
}

static void writes_three_digits(void **state)
{
    (void)state;
    assert_string_equal(fr__brief_count(0).text, "0");
    assert_string_equal(fr__brief_count(3921).text, "3.92 k");
    assert_string_equal(fr__brief_bytes(999.4).text, "999 B");
    assert_string_equal(fr__brief_bytes(999.6).text, "1 kB"); /* not 1e+03 B */
    assert_string_equal(fr__brief_bytes(33.56e6).text, "33.6 MB");
    assert_string_equal(fr__brief_bytes(5e15).text, "5e+03 TB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_people_write),
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(writes_three_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
