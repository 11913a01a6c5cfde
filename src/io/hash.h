/* hash.h -- 128-bit XXH3 (libxxhash), which detects damage to files. It is fast enough to run
 * during reading and writing. It is not a signature: SHA-256 (sha256.h) identifies weights.
 *
 * The text equals the output of `xxhsum -H128 FILE`. A hash is used by one thread at a time. */
#ifndef FR_IO_HASH_H
#define FR_IO_HASH_H

#include <stddef.h>

#define FR_HASH_TEXT 33 /* 32 hexadecimal digits and a zero */

typedef struct XXH3_state_s fr__hash;

/* Create an empty hash; NULL: no memory. The library allocates the state, because its size differs
 * between versions. */
fr__hash *fr__hash_create(void);
void fr__hash_update(fr__hash *h, const void *data, size_t bytes);
/* Hash of all bytes so far; more may follow. */
void fr__hash_text(const fr__hash *h, char text[FR_HASH_TEXT]);
void fr__hash_free(fr__hash *h); /* NULL allowed */

/* Hash of one block of memory. */
void fr__hash_of(const void *data, size_t bytes, char text[FR_HASH_TEXT]);

#endif
