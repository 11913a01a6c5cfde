/* alloc.c -- counted, zeroed, aligned heap memory. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* The only mutable globals of the library: counters only. */
static atomic_uint_fast64_t n_allocs;
static atomic_int_fast64_t allowance = -1;

static bool may_allocate(void)
{
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    int_fast64_t left = atomic_load_explicit(&allowance, memory_order_relaxed);
    /* Stays at zero once reached: after the first failure, all later allocations fail. */
    while (left > 0 && !atomic_compare_exchange_weak(&allowance, &left, left - 1)) continue;
    return left != 0;
}

uint64_t fr__alloc_count(void) { return atomic_load(&n_allocs); }

void fr__alloc_fail_after(int64_t n) { atomic_store(&allowance, n); }

void *fr__alloc_raw(size_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * HUGE_PAGE || !may_allocate()) return NULL;
    bool is_large = bytes >= 2 * HUGE_PAGE;
    size_t align = is_large ? HUGE_PAGE : FR_ALIGN;
    size_t whole = (bytes + align - 1) / align * align;
    void *block = aligned_alloc(align, whole ? whole : FR_ALIGN);
    if (!block) return NULL;
    if (is_large) (void)madvise(block, whole, MADV_HUGEPAGE); /* a hint; failure is harmless */
    return block;
}

void *fr__alloc(size_t bytes)
{
    void *block = fr__alloc_raw(bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

void *fr__realloc(void *old, size_t old_bytes, size_t bytes)
{
    size_t kept = !old ? 0 : old_bytes < bytes ? old_bytes : bytes;
    char *block = fr__alloc_raw(bytes);
    if (!block) return NULL;
    if (kept) memcpy(block, old, kept);
    memset(block + kept, 0, bytes - kept);
    free(old);
    return block;
}

void fr__free(void *block) { free(block); }

char *fr__strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fr__alloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

size_t fr__array_bytes(size_t n, size_t size)
{
    return size && n > SIZE_MAX / size ? SIZE_MAX : n * size;
}

fr_status fr__no_memory(fr_ctx *ctx, size_t bytes, const char *what)
{
    return fr_fail(ctx, FR_NO_MEMORY,
                   "out of memory: %s needed %.1f MB; try a smaller model or batch", what,
                   (double)bytes / 1e6);
}
