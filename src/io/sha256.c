/* sha256.c -- SHA-256 as text, by Nettle. */
#include "io/sha256.h"

#include <nettle/version.h>
#include <stdio.h>

void fr__sha256_init(fr__sha256 *s) { sha256_init(s); }

void fr__sha256_update(fr__sha256 *s, const void *data, size_t bytes)
{
    if (bytes > 0) sha256_update(s, bytes, data);
}

void fr__sha256_final(fr__sha256 *s, char hex[65])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
#if NETTLE_VERSION_MAJOR >= 4
    sha256_digest(s, digest);
#else
    sha256_digest(s, sizeof digest, digest);
#endif
    for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
