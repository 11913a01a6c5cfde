/* text.c -- a growing text.
 *
 * In JSON a < occurs only inside a string, where \u003c means the same. So </script> and <!--
 * cannot appear, whatever names and configs contain. U+2028 and U+2029 end lines in older
 * JavaScript. */
#include "report/text.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <string.h>

bool fr__text_put(fr_text *t, const char *piece, size_t n)
{
    if (t->room - t->n <= n) { /* plus the terminating zero */
        size_t room = 2 * (t->n + n) + 4096;
        char *grown = fr__realloc(t->at, t->n, room);
        if (!grown) return false;
        t->at = grown, t->room = room;
    }
    memcpy(t->at + t->n, piece, n);
    t->n += n;
    t->at[t->n] = '\0';
    return true;
}

static bool put_word(fr_text *t, const char *word) { return fr__text_put(t, word, strlen(word)); }

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
    fr_text *t = text;
    size_t from = 0, width;
    for (size_t i = 0; i < n; i += width) {
        width = 1;
        if (piece[i] != '<' && piece[i] != '\xE2') continue;
        const char *word = stand_in(piece + i, n - i, &width);
        if (!word) continue;
        if (!fr__text_put(t, piece + from, i - from) || !put_word(t, word)) return false;
        from = i + width;
    }
    return fr__text_put(t, piece + from, n - from);
}

bool fr__text_put_html(fr_text *t, const char *piece)
{
    size_t n;
    for (bool ok = true; *piece; piece += n) {
        switch (fr__utf8_next(piece, &n)) {
        case '&': ok = put_word(t, "&amp;"); break;
        case '<': ok = put_word(t, "&lt;"); break;
        case '>': ok = put_word(t, "&gt;"); break;
        case '"': ok = put_word(t, "&quot;"); break;
        case -1: ok = put_word(t, "\xEF\xBF\xBD"); break;
        default: ok = fr__text_put(t, piece, n);
        }
        if (!ok) return false;
    }
    return true;
}

void fr__text_fini(fr_text *t)
{
    fr__free(t->at);
    *t = (fr_text){0};
}
