/* token_file.h -- files of tokens that other programs wrote, mapped into memory.
 *
 *     llm.c     256 numbers of 32 bits (magic 20240520, version 1, number of tokens), then tokens
 * of 16 bits; or magic 20240801, version 7, and tokens of 32 bits Megatron  NAME.bin, nothing but
 * tokens, and NAME.idx, which says what they are plain     nothing but tokens
 *
 * All numbers are little-endian. Pages are read when they are needed, and processes share them. */
#ifndef FR_DATA_TOKEN_FILE_H
#define FR_DATA_TOKEN_FILE_H

#include <forerun/base.h>

typedef struct fr__token_file {
    const unsigned char *tokens; /* (n) of `width` bytes */
    int64_t n;
    int width;
    void *map; /* the mapped file; NULL: */
    size_t map_bytes;
    unsigned char *block; /* the file in memory, because it was compressed */
} fr__token_file;         /* zero is none */

/* Is it a file of llm.c or Megatron? */
bool fr__token_file_is_known(const char *path);
/* Map it and check it. width: bytes of a token in a plain file. A call that fails may leave a part
 * in *f, for close. */
fr_status fr__token_file_open(fr_ctx *ctx, const char *path, int width, size_t max_bytes,
                              fr__token_file *f);
void fr__token_file_close(fr__token_file *f);

#endif
