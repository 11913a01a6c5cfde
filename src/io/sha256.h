/* sha256.h -- SHA-256 (FIPS 180-4), fed piece by piece. */
#ifndef FR_IO_SHA256_H
#define FR_IO_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct fr_sha256 {
    uint32_t state[8];
    uint64_t bytes;          /* fed so far */
    unsigned char block[64]; /* bytes % 64 of it in use */
} fr_sha256;

void fr__sha256_init(fr_sha256 *s);
void fr__sha256_update(fr_sha256 *s, const void *data, size_t bytes);
/* 64 hexadecimal digits and a zero. Afterwards s must be initialised anew. */
void fr__sha256_final(fr_sha256 *s, char hex[65]);

#endif
