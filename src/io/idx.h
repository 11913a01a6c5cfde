/* idx.h -- the IDX format of MNIST: bytes in up to four dimensions. */
#ifndef FR_IO_IDX_H
#define FR_IO_IDX_H

#include "io/file.h"

typedef struct fr__idx {
    int n_dims;
    int64_t dim[4];
    const unsigned char *data; /* (dim[0], ..), inside the block that was parsed */
} fr__idx;

/* Unsigned bytes only; the size of the block must match the header. Errors give `name` and the byte
 * offset. */
fr_status fr__idx_parse(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                        fr__idx *out);

/* For fr__file_read_by. */
extern const fr__file_head fr__idx_head;

#endif
