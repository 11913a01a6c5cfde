/* arena.c -- chunks of growing size, up to a limit, carved from the front. What is larger than that
 * has a chunk of its own size: nothing is taken that nobody asked for. */
#include "base/arena.h"

#include <stdio.h>
#include <string.h>

struct fr_arena_chunk {
    struct fr_arena_chunk *next;
    size_t used, room; /* bytes behind the header */
};

enum { HEADER = FR_ALIGN, FIRST_CHUNK = 4096, MOST_CHUNK = 1 << 20 };
_Static_assert(sizeof(struct fr_arena_chunk) <= HEADER, "header fits its place");

void *fr__arena_alloc(fr_arena *a, size_t bytes)
{
    if (bytes > PTRDIFF_MAX) return NULL;
    size_t whole = fr__align_up(bytes ? bytes : 1);
    struct fr_arena_chunk *c = a->chunks;
    if (!c || c->room - c->used < whole) {
        bool is_large = whole >= MOST_CHUNK; /* has a chunk for itself, behind the one in use */
        size_t room = c ? 2 * c->room : FIRST_CHUNK;
        if (room > MOST_CHUNK) room = MOST_CHUNK;
        if (is_large || room < whole) room = whole;
        struct fr_arena_chunk *made = fr__alloc(HEADER + room);
        if (!made) return NULL;
        made->room = room;
        made->next = is_large && c ? c->next : c;
        if (is_large && c)
            c->next = made;
        else
            a->chunks = made;
        c = made;
    }
    char *at = (char *)c + HEADER + c->used;
    c->used += whole;
    return at;
}

char *fr__arena_strdup(fr_arena *a, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fr__arena_alloc(a, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *fr__arena_printf(fr_arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : fr__arena_alloc(a, (size_t)n + 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

void fr__arena_fini(fr_arena *a)
{
    while (a->chunks) {
        struct fr_arena_chunk *next = a->chunks->next;
        fr__free(a->chunks);
        a->chunks = next;
    }
}
