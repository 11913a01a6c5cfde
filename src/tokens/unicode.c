/* unicode.c -- tables of characters, expanded from the generated ones when a tokenizer is opened.
 * They are made for lookups: a text has a lookup per character. */
#include "tokens/unicode.h"

#include <string.h>

unsigned char *fr__classes_create(void)
{
    unsigned char *classes = fr__alloc(FR_N_CHARACTERS / 4);
    if (!classes) return NULL;
    for (int i = 0; i < fr__n_class_changes; i++) {
        uint32_t kind = fr__class_changes[i] & 3, c = fr__class_changes[i] >> 2;
        uint32_t end =
            i + 1 < fr__n_class_changes ? fr__class_changes[i + 1] >> 2 : FR_N_CHARACTERS;
        for (; kind && c < end; c++)
            classes[c >> 2] = (unsigned char)(classes[c >> 2] | kind << 2 * (c & 3));
    }
    return classes;
}

static void mark(unsigned char *marks, int32_t first, int32_t last)
{
    for (int32_t c = first; c <= last; c++)
        marks[c >> 3] = (unsigned char)(marks[c >> 3] | 1 << (c & 7));
}

unsigned char *fr__nfc_marks_create(void)
{
    unsigned char *marks = fr__alloc(FR_N_CHARACTERS / 8);
    if (!marks) return NULL;
    for (int i = 0; i < fr__n_decompositions; i++) {
        const fr__decomposition *d = &fr__decompositions[i];
        int32_t c = d->second & 1 ? d->second >> 1 : d->whole;
        mark(marks, c, c);
    }
    for (int i = 0; i < fr__n_combining_runs; i++)
        mark(marks, fr__combining_runs[i].first, fr__combining_runs[i].last);
    mark(marks, 0x1161, 0x1175); /* vowels and finals of Hangul combine with what precedes them */
    mark(marks, 0x11A8, 0x11C2);
    return marks;
}

bool fr__bytes_put(fr__bytes *out, const unsigned char *bytes, size_t n)
{
    if (n == 0) return true;
    if (out->room - out->n < n) {
        size_t room = out->n + n > 2 * out->room ? out->n + n : 2 * out->room;
        if (!fr__vec_fit(out, room)) return false;
    }
    memcpy(out->at + out->n, bytes, n);
    out->n += n;
    return true;
}
