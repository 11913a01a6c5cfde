/* arena.c -- chunks of growing size, up to a limit. Pieces are taken from the front, texts, which
 * need no alignment, from the back. A piece larger than the limit has its own chunk of exactly its
 * size. */
#include "base/arena.h"

#include <stdio.h>
#include <string.h>

struct fr_arena_chunk {
    struct fr_arena_chunk *next;
    size_t size;       /* bytes after the header */
    size_t used, room; /* bytes between used and room are free */
};

enum { HEADER = FR_ALIGN, FIRST_CHUNK = 4096, MOST_CHUNK = 1 << 20, PACKED_ALIGN = 8 };
_Static_assert(sizeof(struct fr_arena_chunk) <= HEADER, "header fits its place");

/* A chunk with room for this many bytes: the newest, or a new one. A large piece has its own chunk,
 * behind the current one. */
static struct fr_arena_chunk *chunk_for(fr_arena *a, size_t bytes)
{
    struct fr_arena_chunk *newest = a->chunks;
    if (newest && newest->room - newest->used >= bytes) return newest;
    bool is_large = bytes >= MOST_CHUNK;
    size_t size = newest ? 2 * newest->size : FIRST_CHUNK;
    if (size > MOST_CHUNK) size = MOST_CHUNK;
    if (is_large || size < bytes) size = bytes;
    struct fr_arena_chunk *c = fr__alloc(HEADER + size);
    if (!c) return NULL;
    c->size = c->room = size;
    struct fr_arena_chunk **place = is_large && newest ? &newest->next : &a->chunks;
    c->next = *place;
    *place = c;
    return c;
}

static size_t round_up(size_t n, size_t align) { return (n + align - 1) / align * align; }

/* `align`: a power of two, at most FR_ALIGN. */
static void *piece_alloc(fr_arena *a, size_t bytes, size_t align)
{
    if (bytes > PTRDIFF_MAX) return NULL;
    size_t whole = round_up(bytes ? bytes : 1, align);
    const struct fr_arena_chunk *newest = a->chunks;
    size_t skipped = newest ? round_up(newest->used, align) - newest->used : 0;
    struct fr_arena_chunk *c = chunk_for(a, skipped + whole);
    if (!c) return NULL;
    if (c == newest) c->used += skipped;
    char *at = (char *)c + HEADER + c->used;
    c->used += whole;
    return at;
}

void *fr__arena_alloc(fr_arena *a, size_t bytes) { return piece_alloc(a, bytes, FR_ALIGN); }

void *fr__arena_pack(fr_arena *a, size_t bytes) { return piece_alloc(a, bytes, PACKED_ALIGN); }

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

void fr__arena_free(fr_arena *a)
{
    if (a) fr__arena_fini(a);
    fr__free(a);
}
