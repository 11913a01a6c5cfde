/* sha256.h -- SHA-256 (FIPS 180-4) of data in pieces, by Nettle, which uses the SHA instructions of
 * the processor if it has them. */
#ifndef FR_IO_SHA256_H
#define FR_IO_SHA256_H

#include <nettle/sha2.h>
#include <stddef.h>

typedef struct sha256_ctx fr__sha256;

void fr__sha256_init(fr__sha256 *s);
void fr__sha256_update(fr__sha256 *s, const void *data, size_t bytes);
/* 64 hexadecimal digits and a zero. Initialise s again before further use. */
void fr__sha256_final(fr__sha256 *s, char hex[65]);

#endif
