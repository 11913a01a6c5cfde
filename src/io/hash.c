/* hash.c -- XXH3 by libxxhash. */
#include "io/hash.h"

#include <stdio.h>
#include <xxhash.h>

fr__hash *fr__hash_create(void)
{
    fr__hash *h = XXH3_createState();
    if (h) (void)XXH3_128bits_reset(h); /* fails for NULL only, like update */
    return h;
}

void fr__hash_update(fr__hash *h, const void *data, size_t bytes)
{
    if (bytes > 0) (void)XXH3_128bits_update(h, data, bytes);
}

static void format(XXH128_hash_t hash, char text[FR_HASH_TEXT])
{
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    for (size_t i = 0; i < sizeof bytes.digest; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes.digest[i]);
}

void fr__hash_text(const fr__hash *h, char text[FR_HASH_TEXT])
{
    format(XXH3_128bits_digest(h), text);
}

void fr__hash_free(fr__hash *h) { (void)XXH3_freeState(h); }

void fr__hash_of(const void *data, size_t bytes, char text[FR_HASH_TEXT])
{
    format(XXH3_128bits(data, bytes), text);
}
