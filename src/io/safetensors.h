/* safetensors.h -- what reader, writer and fuzzer share of the format.
 *
 *     8 bytes  length N of the header, little-endian
 *     N bytes  JSON: {"__metadata__": {text: text}, NAME: {"dtype": "F32", "shape": [2, 3],
 *              "data_offsets": [begin, end]}, ...}, blanks at its end
 *     rest     the values, little-endian, C order; every byte belongs to exactly one tensor */
#ifndef FR_IO_SAFETENSORS_H
#define FR_IO_SAFETENSORS_H

#include <forerun/io.h>

enum { FR_TENSOR_MAX_DIMS = 8, FR_TENSOR_LENGTH_BYTES = 8 };
#define FR_TENSOR_MAX_HEADER                                            \
    ((uint64_t)100 * 1000 * 1000) /* bytes; the same bound as elsewhere \
                                   */
#define FR_TENSOR_META "__metadata__"

/* A file that is in memory already; `file` must outlive *out. */
fr_status fr__tensors_parse(fr_ctx *ctx, const char *name, const unsigned char *file, size_t bytes,
                            fr_tensors **out);

/* The stored name of a dtype and the size of one value, 0 and NULL if there is none. */
size_t fr__tensor_dtype(const char *name, const char **stored);

/* Size of all values; false if negative or beyond 2^62 bytes. */
bool fr__tensor_bytes(int n_dims, const int64_t *dims, size_t item_bytes, uint64_t *bytes);

#endif
