/* units.c -- amounts with units. A unit is a base (B, bit/s, s, ...) with a prefix: small prefixes
 * for seconds, large ones for all others. 1 GB is 10^9 bytes, 1 GiB is 2^30 bytes. */
#include "io/units.h"

#include "io/conf.h"
#include "io/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first base of a kind is used for writing. */
static const struct {
    const char *name;
    fr__amount_unit unit;
    double factor;
} bases[] = {
    {"B", FR_UNIT_BYTES, 1},      {"B/s", FR_UNIT_RATE, 1},     {"bit/s", FR_UNIT_RATE, 0.125},
    {"bps", FR_UNIT_RATE, 0.125}, {"FLOP/s", FR_UNIT_FLOPS, 1}, {"FLOPS", FR_UNIT_FLOPS, 1},
    {"flops", FR_UNIT_FLOPS, 1},  {"s", FR_UNIT_SECONDS, 1},
};

static const struct {
    const char *name;
    double factor;
    bool is_small; /* a divisor, so that 5 us is the double nearest to 5e-6 */
} prefixes[] = {
    {"P", 1e15, false},
    {"T", 1e12, false},
    {"G", 1e9, false},
    {"M", 1e6, false},
    {"k", 1e3, false},
    {"K", 1e3, false},
    {"Ti", 1099511627776., false},
    {"Gi", 1073741824., false},
    {"Mi", 1048576., false},
    {"Ki", 1024., false},
    {"m", 1e3, true},
    {"u", 1e6, true},
    {"\xC2\xB5", 1e6, true},
    {"\xCE\xBC", 1e6, true}, /* micro sign and the letter mu */
    {"n", 1e9, true},
};

enum { N_BASES = sizeof bases / sizeof *bases, N_PREFIXES = sizeof prefixes / sizeof *prefixes };

static const struct {
    const char *what, *example;
} kinds[] = {
    [FR_UNIT_BYTES] = {"a size", "16 GB or 24 GiB"},
    [FR_UNIT_RATE] = {"a rate", "12 GB/s or 10 Gbit/s"},
    [FR_UNIT_SECONDS] = {"a time", "5 us or 0.1 ms"},
    [FR_UNIT_FLOPS] = {"a rate of computation", "11.76 TFLOP/s"},
};

/* *value is in the base unit. */
static bool scan_unit(const char *text, fr__amount_unit unit, double *value)
{
    for (int b = 0; b < N_BASES; b++) {
        size_t n = strlen(text), base = strlen(bases[b].name);
        if (bases[b].unit != unit || n < base || strcmp(text + n - base, bases[b].name) != 0)
            continue;
        *value *= bases[b].factor;
        if (n == base) return true;
        for (int p = 0; p < N_PREFIXES; p++)
            if (strlen(prefixes[p].name) == n - base &&
                strncmp(text, prefixes[p].name, n - base) == 0 &&
                prefixes[p].is_small == (unit == FR_UNIT_SECONDS)) {
                if (prefixes[p].is_small)
                    *value /= prefixes[p].factor;
                else
                    *value *= prefixes[p].factor;
                return true;
            }
    }
    return false;
}

bool fr__amount_scan(const char *text, fr__amount_unit unit, double *value)
{
    char number[64];
    /* An exponent is part of the number; no unit starts with an e. */
    size_t n = strspn(text, "+-.0123456789eE"), gap = strspn(text + n, " ");
    if (n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = '\0';
    if (!fr__real_scan(number, value)) return false;
    if (text[n + gap] ? !scan_unit(text + n + gap, unit, value) : gap > 0) return false;
    return isfinite(*value);
}

void fr__amount_format(double value, fr__amount_unit unit, char text[48])
{
    char number[32];
    size_t best = fr__real_format(value, number);
    snprintf(text, 48, "%s", number);
    int base = 0;
    while (bases[base].unit != unit) base++;
    for (int p = 0; p < N_PREFIXES; p++) {
        char with_unit[48];
        double back;
        if (prefixes[p].is_small != (unit == FR_UNIT_SECONDS)) continue;
        double factor = prefixes[p].factor;
        size_t n = fr__real_format(prefixes[p].is_small ? value * factor : value / factor, number);
        snprintf(with_unit, sizeof with_unit, "%s %s%s", number, prefixes[p].name,
                 bases[base].name);
        if (n >= best || strpbrk(number, "en") || !fr__amount_scan(with_unit, unit, &back) ||
            back != value)
            continue;
        best = n;
        memcpy(text, with_unit, sizeof with_unit);
    }
}

fr_status fr__conf_amount(fr_conf *c, const char *key, fr__amount_unit unit, double preset,
                          double min, double max, double *out)
{
    const char *text;
    char limits[2][48];
    bool is_given = fr_conf_has(c, key);
    FR_TRY(fr_conf_text(c, key, "", &text));
    *out = preset;
    if (!is_given) return FR_OK;
    if (!fr__amount_scan(text, unit, out))
        return fr_conf_fail(c, key, "%s: expected %s such as %s, found \"%.60s\"", key,
                            kinds[unit].what, kinds[unit].example, text);
    if (*out >= min && *out <= max) return FR_OK;
    fr__amount_format(min, unit, limits[0]);
    fr__amount_format(max, unit, limits[1]);
    return fr_conf_fail(c, key, "%s: expected %s from %s to %s, found \"%.60s\"", key,
                        kinds[unit].what, limits[0], limits[1], text);
}

static fr__brief in_brief(double value, const char *const units[5])
{
    fr__brief b;
    int unit = 0;
    for (; value >= 999.5 && unit < 4; unit++) value /= 1000;
    snprintf(b.text, sizeof b.text, "%.3g%s", value, units[unit]);
    return b;
}

fr__brief fr__brief_count(double n)
{
    return in_brief(n, (const char *const[]){"", " k", " M", " G", " T"});
}

fr__brief fr__brief_bytes(double bytes)
{
    return in_brief(bytes, (const char *const[]){" B", " kB", " MB", " GB", " TB"});
}
