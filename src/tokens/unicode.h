/* unicode.h -- classes of characters, and the normal form NFC. */
#ifndef FR_TOKENS_UNICODE_H
#define FR_TOKENS_UNICODE_H

#include "base/vec.h"

enum { FR_N_CHARACTERS = 0x110000 };

typedef enum fr__char_class {
    FR_CHAR_OTHER,
    FR_CHAR_LETTER, /* \p{L} */
    FR_CHAR_NUMBER, /* \p{N} */
    FR_CHAR_SPACE   /* \s */
} fr__char_class;

typedef FR_VEC(unsigned char) fr__bytes;

/* The character at p < end, with its length in *n; for a byte that begins no whole character -1
 * with *n = 1. */
static inline int32_t fr__char_at(const unsigned char *p, const unsigned char *end, int *n)
{
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    *n = 1;
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xC2 || p[0] > 0xF4) return -1;
    int length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (end - p < length) return -1;
    int32_t c = p[0] & (0x7F >> length);
    for (int i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) return -1;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[length] || c >= FR_N_CHARACTERS || (c >= 0xD800 && c < 0xE000)) return -1;
    *n = length;
    return c;
}

/* Classes of all characters, two bits each; to be released with fr__free. NULL: no memory. */
unsigned char *fr__classes_create(void);

static inline fr__char_class fr__class_of(const unsigned char *classes, int32_t c)
{
    return c < 0 ? FR_CHAR_OTHER : (fr__char_class)(classes[c >> 2] >> 2 * (c & 3) & 3);
}

/* A set of characters, one bit each: those that NFC may change, or that may change what precedes
 * them. Text without one is in NFC. NULL: no memory. */
unsigned char *fr__nfc_marks_create(void);

typedef struct fr__nfc {
    const unsigned char *marks;
    FR_VEC(uint32_t) run; /* characters, each with its combining class << 24 */
    FR_VEC(uint32_t) sorted;
} fr__nfc;

/* Append the normal form of a text to *out. Unless it is the end of the text, the last characters
 * stay, because what follows may combine with them. *taken: bytes of the text that were read.
 * False: no memory. */
bool fr__nfc_append(fr__nfc *n, const unsigned char *text, size_t bytes, bool is_end,
                    fr__bytes *out, size_t *taken);
void fr__nfc_fini(fr__nfc *n);

bool fr__bytes_put(fr__bytes *out, const unsigned char *bytes, size_t n);

/* --- generated tables (scripts/make-unicode.py) --- */

extern const uint32_t fr__class_changes[]; /* first character << 2 | class from there on */
extern const int fr__n_class_changes;

typedef struct fr__decomposition {
    int32_t whole, first;
    int32_t second; /* character << 1 (0: none) | the pair composes to the whole */
} fr__decomposition;
extern const fr__decomposition fr__decompositions[]; /* by whole */
extern const int fr__n_decompositions;
extern const uint16_t fr__compositions[]; /* those that compose, by first and second character */
extern const int fr__n_compositions;

typedef struct fr__combining_run {
    int32_t first, last, kind; /* the combining class of these characters */
} fr__combining_run;
extern const fr__combining_run fr__combining_runs[];
extern const int fr__n_combining_runs;

#endif
