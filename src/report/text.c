/* text.c -- escaping.
 *
 * In JSON a < occurs only inside a string, where \u003c means the same. So </script> and <!--
 * cannot appear, whatever names and configs contain. U+2028 and U+2029 end lines in older
 * JavaScript. */
#include "report/text.h"

#include "base/utf8.h"

#include <string.h>

/* Replacement of the character at `at`, which has *n bytes; NULL: none. */
static const char *stand_in(const char *at, size_t left, size_t *n)
{
    *n = 1;
    if (*at == '<') return "\\u003c";
    if (left < 3 || memcmp(at, "\xE2\x80", 2) != 0) return NULL;
    *n = 3;
    return at[2] == '\xA8' ? "\\u2028" : at[2] == '\xA9' ? "\\u2029" : NULL;
}

bool fr__text_put_json(void *text, const char *piece, size_t n)
{
    fr__text *t = text;
    size_t from = 0, width;
    for (size_t i = 0; i < n; i += width) {
        width = 1;
        if (piece[i] != '<' && piece[i] != '\xE2') continue;
        const char *word = stand_in(piece + i, n - i, &width);
        if (!word) continue;
        fr__text_put_bytes(t, piece + from, i - from);
        fr__text_put(t, word);
        from = i + width;
    }
    fr__text_put_bytes(t, piece + from, n - from);
    return !t->failed;
}

void fr__text_put_html(fr__text *t, const char *piece)
{
    size_t n;
    for (; *piece; piece += n) {
        switch (fr__utf8_next(piece, &n)) {
        case '&': fr__text_put(t, "&amp;"); break;
        case '<': fr__text_put(t, "&lt;"); break;
        case '>': fr__text_put(t, "&gt;"); break;
        case '"': fr__text_put(t, "&quot;"); break;
        case -1: fr__text_put(t, "\xEF\xBF\xBD"); break;
        default: fr__text_put_bytes(t, piece, n);
        }
    }
}
