/* text.c -- a text that grows. */
#include "base/text.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Room for n more bytes and a zero. */
static bool make_room(fr__text *t, size_t n)
{
    if (t->failed || t->room - t->n > n) return !t->failed;
    size_t room = 2 * (t->n + n) + 64;
    char *grown = fr__realloc(t->at, t->room, room);
    if (!grown) return t->failed = true, false;
    t->at = grown, t->room = room;
    return true;
}

void fr__text_put_bytes(fr__text *t, const char *bytes, size_t n)
{
    if (!make_room(t, n)) return;
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = '\0';
}

void fr__text_put(fr__text *t, const char *text) { fr__text_put_bytes(t, text, strlen(text)); }

void fr__text_printf(fr__text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0) t->failed = true;
    if (n >= 0 && make_room(t, (size_t)n))
        t->n += (size_t)vsnprintf(t->at + t->n, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
}

char *fr__text_take(fr__text *t)
{
    fr__text_put(t, ""); /* an empty text is a text */
    char *text = t->failed ? NULL : t->at;
    if (!text) fr__free(t->at);
    *t = (fr__text){0};
    return text;
}

void fr__text_fini(fr__text *t)
{
    fr__free(t->at);
    *t = (fr__text){.failed = t->failed};
}
