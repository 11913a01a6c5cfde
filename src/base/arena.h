/* arena.h -- memory of whole-run objects: many small pieces, freed together.
 * Owned by one thread at a time. */
#ifndef FR_BASE_ARENA_H
#define FR_BASE_ARENA_H

#include "base/alloc.h"

typedef struct fr_arena {
    struct fr_arena_chunk *chunks;
} fr_arena; /* zero is an empty arena */

void *fr__arena_alloc(fr_arena *a, size_t bytes); /* zeroed, FR_ALIGN'ed; NULL when exhausted */
/* The same, aligned to 8 bytes: for many small pieces that one thread writes. */
void *fr__arena_pack(fr_arena *a, size_t bytes);
char *fr__arena_strdup(fr_arena *a, const char *text);
char *fr__arena_printf(fr_arena *a, const char *format, ...) FR_PRINTF(2, 3);
void fr__arena_fini(fr_arena *a);
/* The same, and the arena itself, which is on the heap; NULL allowed. */
void fr__arena_free(fr_arena *a);

#define FR_ARENA_NEW(a, type) ((type *)fr__arena_alloc((a), sizeof(type)))
#define FR_ARENA_ARRAY(a, type, n) \
    ((type *)fr__arena_alloc((a), fr__array_bytes((size_t)(n), sizeof(type))))

#endif
