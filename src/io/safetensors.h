/* safetensors.h -- parts of the format shared by reader, writer and fuzzer.
 *
 *     8 bytes  length N of the header, little-endian
 *     N bytes  JSON: {"__metadata__": {text: text}, NAME: {"dtype": "F32", "shape": [2, 3],
 *              "data_offsets": [begin, end]}, ...}, blanks at its end
 *     rest     the values, little-endian, C order; every byte belongs to exactly one tensor */
#ifndef FR_IO_SAFETENSORS_H
#define FR_IO_SAFETENSORS_H

#include "io/hash.h"
#include <forerun/io.h>

enum { FR_TENSOR_MAX_DIMS = 8, FR_TENSOR_LENGTH_BYTES = 8 };
#define FR_TENSOR_MAX_HEADER                                            \
    ((uint64_t)100 * 1000 * 1000) /* bytes; the same bound as elsewhere \
                                   */
#define FR_TENSOR_META "__metadata__"

/* Open a file that is in memory; `file` must outlive *out. */
fr_status fr__tensors_parse(fr_ctx *ctx, const char *name, const unsigned char *file, size_t bytes,
                            fr_tensors **out);

/* The stored name of a dtype and the size of one value; NULL and 0 if there is none. */
size_t fr__tensor_dtype(const char *name, const char **stored);

/* fr_tensor_writer_create relative to an open folder (see file.h); dir must stay open until the
 * writer is freed. */
fr_status fr__tensor_writer_create_in(fr_ctx *ctx, int dir, const char *path,
                                      fr_tensor_writer **out);

/* Hash of all bytes of the file. Writer: call after finish. Reader: hash of the bytes as they were
 * read; bytes that were not read, or not in file order, are read now. */
void fr__tensor_writer_hash(const fr_tensor_writer *w, char text[FR_HASH_TEXT]);
fr_status fr__tensors_hash(fr_tensors *t, char text[FR_HASH_TEXT]);

/* Part of tensor i: `bytes` bytes from byte `from` of its values. */
fr_status fr__tensors_read_part(fr_tensors *t, int i, uint64_t from, void *to, size_t bytes);

/* Size of all values; false if negative or beyond 2^62 bytes. */
bool fr__tensor_bytes(int n_dims, const int64_t *dims, size_t item_bytes, uint64_t *bytes);

#endif
