/* arena.c -- chunks of growing size, carved from the front; texts, which need no alignment, from
 * the back. */
#include "base/arena.h"

#include <stdio.h>
#include <string.h>

struct fr_arena_chunk {
    struct fr_arena_chunk *next;
    size_t size;       /* bytes behind the header */
    size_t used, room; /* of them those between used and room are free */
};

enum { HEADER = FR_ALIGN, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };
_Static_assert(sizeof(struct fr_arena_chunk) <= HEADER, "header fits its place");

/* The newest chunk, with room for so many bytes. */
static struct fr_arena_chunk *chunk_for(fr_arena *a, size_t bytes)
{
    struct fr_arena_chunk *c = a->chunks;
    if (c && c->room - c->used >= bytes) return c;
    size_t size = c ? 2 * c->size : FIRST_CHUNK;
    if (size > LARGEST_CHUNK) size = LARGEST_CHUNK;
    if (size < bytes) size = bytes;
    c = fr__alloc(HEADER + size);
    if (!c) return NULL;
    c->size = c->room = size;
    c->next = a->chunks;
    a->chunks = c;
    return c;
}

void *fr__arena_alloc(fr_arena *a, size_t bytes)
{
    if (bytes > PTRDIFF_MAX) return NULL;
    size_t whole = fr__align_up(bytes ? bytes : 1);
    struct fr_arena_chunk *c = chunk_for(a, whole);
    if (!c) return NULL;
    char *at = (char *)c + HEADER + c->used;
    c->used += whole;
    return at;
}

static char *text_alloc(fr_arena *a, size_t bytes)
{
    struct fr_arena_chunk *c = chunk_for(a, bytes);
    if (!c) return NULL;
    c->room -= bytes;
    return (char *)c + HEADER + c->room;
}

char *fr__arena_strdup(fr_arena *a, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = text_alloc(a, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *fr__arena_printf(fr_arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : text_alloc(a, (size_t)n + 1);
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
