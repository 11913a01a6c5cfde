/* utf8.h -- decodes text that may contain invalid UTF-8, one character at a time. */
#ifndef FR_BASE_UTF8_H
#define FR_BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The character at `text` (zero-terminated), with its length in *n. For an invalid byte (stray,
 * truncated, overlong, surrogate, too large) -1 with *n = 1. At the end 0 with *n = 0. */
static inline int32_t fr__utf8_next(const char *text, size_t *n)
{
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *t = (const unsigned char *)text;
    *n = t[0] != 0;
    if (t[0] < 0x80) return t[0];
    size_t length = t[0] >= 0xF0 ? 4 : t[0] >= 0xE0 ? 3 : 2;
    if (t[0] < 0xC0 || t[0] >= 0xF8) return -1;
    int32_t c = t[0] & (0x7F >> length);
    for (size_t i = 1; i < length; i++) {
        if ((t[i] & 0xC0) != 0x80) return -1;
        c = c << 6 | (t[i] & 0x3F);
    }
    if (c < least[length] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return -1;
    *n = length;
    return c;
}

static inline bool fr__utf8_is_valid(const char *text)
{
    size_t n;
    for (; *text; text += n)
        if (fr__utf8_next(text, &n) < 0) return false;
    return true;
}

#endif
