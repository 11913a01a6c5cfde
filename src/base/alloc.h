/* alloc.h -- allocation of all heap memory of the library.
 *
 * Counters let a test prove that a training loop allocates nothing. Failure on demand lets a test
 * walk every out-of-memory path. Callable from any thread. */
#ifndef FR_BASE_ALLOC_H
#define FR_BASE_ALLOC_H

#include <forerun/base.h>

#define FR_ALIGN 64 /* bytes; alignment of every block and of every tensor inside a block */

static inline size_t fr__align_up(size_t bytes)
{
    return (bytes + FR_ALIGN - 1) / FR_ALIGN * FR_ALIGN;
}

/* Zeroed memory, aligned to FR_ALIGN; NULL if memory is exhausted or bytes is absurdly large. Large
 * blocks request huge pages. */
void *fr__alloc(size_t bytes);
void *fr__alloc_raw(size_t bytes);                            /* not zeroed */
void *fr__realloc(void *old, size_t old_bytes, size_t bytes); /* grown part zeroed */
void fr__free(void *block);                                   /* NULL allowed */
char *fr__strdup(const char *text);

/* n * size for fr__alloc; an overflow gives an absurdly large size. */
size_t fr__array_bytes(size_t n, size_t size);
#define FR_NEW(type) ((type *)fr__alloc(sizeof(type)))
#define FR_NEW_ARRAY(type, n) ((type *)fr__alloc(fr__array_bytes((size_t)(n), sizeof(type))))

/* Number of calls of fr__alloc and fr__realloc since the program started. */
uint64_t fr__alloc_count(void);
/* For tests: let `n` allocations pass and fail all after them; negative = never fail. */
void fr__alloc_fail_after(int64_t n);

/* Report a failed allocation: fr_fail with the requested size. */
fr_status fr__no_memory(fr_ctx *ctx, size_t bytes, const char *what);

#endif
