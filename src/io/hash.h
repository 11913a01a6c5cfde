/* hash.h -- XXH3 of 128 bits (libxxhash), by which damage to a file is noticed. It is fast enough
 * to run along with reading and writing; it is no signature: SHA-256 (sha256.h) names weights.
 *
 * The text is what `xxhsum -H128 FILE` prints. One thread at a time uses a hash. */
#ifndef FR_IO_HASH_H
#define FR_IO_HASH_H

#include <stddef.h>

#define FR_HASH_TEXT 33 /* 32 hexadecimal digits and a zero */

typedef struct XXH3_state_s fr_hash;

/* Nothing fed yet. NULL: no memory; the library allocates its state itself, for its size differs
 * from version to version. */
fr_hash *fr__hash_create(void);
void fr__hash_update(fr_hash *h, const void *data, size_t bytes);
/* Of all that was fed so far; more may follow. */
void fr__hash_text(const fr_hash *h, char text[FR_HASH_TEXT]);
void fr__hash_free(fr_hash *h); /* NULL allowed */

/* Of what is in memory as a whole. */
void fr__hash_of(const void *data, size_t bytes, char text[FR_HASH_TEXT]);

#endif
