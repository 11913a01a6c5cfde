/* tfevents.h -- scalars as TensorBoard reads them: an events.out.tfevents.* file.
 *
 *     fr_tfevents t;
 *     FR_TRY(fr__tfevents_open(ctx, "runs/one", 40, &t));
 *     FR_TRY(fr__tfevents_write(&t, 41, 1, &(fr_tf_scalar){"loss/train", 0.3}));
 *     FR_TRY(fr__tfevents_flush(&t));
 *     FR_TRY(fr__tfevents_close(&t));
 *
 * Nothing is allocated by fr__tfevents_write. Owned by one thread; the file's descriptor may be
 * synced by another. */
#ifndef FR_IO_TFEVENTS_H
#define FR_IO_TFEVENTS_H

#include <forerun/base.h>
#include <stdio.h>

enum { FR_TF_SCALARS = 16 }; /* of one step, at most */

typedef struct fr_tfevents {
    fr_ctx *ctx;
    FILE *file; /* NULL: not open */
    char path[4096];
} fr_tfevents;

typedef struct fr_tf_scalar {
    const char *tag; /* at most 64 bytes count */
    double value;
} fr_tf_scalar;

/* A new file in `folder`, whose name sorts behind those of earlier sessions. `step` updates are
 * done: TensorBoard drops what an earlier session wrote of later ones. */
fr_status fr__tfevents_open(fr_ctx *ctx, const char *folder, int64_t step, fr_tfevents *t);
fr_status fr__tfevents_write(fr_tfevents *t, int64_t step, int n, const fr_tf_scalar *scalars);
/* What was written is with the system: it survives the end of this process. */
fr_status fr__tfevents_flush(fr_tfevents *t);
fr_status fr__tfevents_close(fr_tfevents *t); /* a zeroed one is fine */

/* CRC-32C (Castagnoli), as TFRecord has it. */
uint32_t fr__crc32c(const void *data, size_t bytes);

#endif
