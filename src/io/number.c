/* number.c -- converts numbers to text and back. printf and strtod depend on the locale of the
 * calling program, so they are called only here, with the C locale set for the calling thread. */
#include "io/number.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc returns a static object for the "C" locale, so this allocates nothing. */
static locale_t enter_c_locale(locale_t *c)
{
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *c ? uselocale(*c) : (locale_t)0;
}

static void leave_c_locale(locale_t c, locale_t before)
{
    if (before) uselocale(before);
    if (c) freelocale(c);
}

/* A decimal of up to DBL_DIG digits survives conversion to a normal double and back, so %.15g
 * prints it if the value has one that short. Only subnormal numbers may need fewer digits. */
size_t fr__real_format(double value, char text[32])
{
    if (!isfinite(value))
        return (size_t)snprintf(text, 32, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    locale_t c, before = enter_c_locale(&c);
    int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    do {
        snprintf(text, 32, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && ++digits <= DBL_DECIMAL_DIG);
    leave_c_locale(c, before);
    return strlen(text);
}

static const char *skip_digits(const char *t)
{
    while (*t >= '0' && *t <= '9') t++;
    return t;
}

bool fr__int_scan(const char *text, int64_t *value)
{
    const char *digits = text + (*text == '-' || *text == '+'), *end = skip_digits(digits);
    if (end == digits || *end) return false;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno) return false;
    *value = v;
    return true;
}

bool fr__real_scan(const char *text, double *value)
{
    const char *whole = text + (*text == '-' || *text == '+'), *at = skip_digits(whole);
    bool has_digits = at > whole;
    if (*at == '.') {
        const char *part = at + 1;
        at = skip_digits(part);
        has_digits = has_digits || at > part;
    }
    if (has_digits && (*at == 'e' || *at == 'E')) {
        const char *power = at + 1 + (at[1] == '-' || at[1] == '+');
        at = skip_digits(power);
        if (at == power) return false;
    }
    if (!has_digits || *at) return false;
    locale_t c, before = enter_c_locale(&c);
    double v = strtod(text, NULL);
    leave_c_locale(c, before);
    if (!isfinite(v)) return false;
    *value = v;
    return true;
}

/* By bits and without branches, so that compilers vectorise it. */
bool fr__are_finite(const float *values, size_t n)
{
    const uint32_t exponent = 0x7F800000;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}
