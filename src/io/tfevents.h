/* tfevents.h -- writes scalars for TensorBoard: an events.out.tfevents.* file.
 *
 *     fr__tfevents t;
 *     FR_TRY(fr__tfevents_open(ctx, "runs/one", 40, &t));
 *     FR_TRY(fr__tfevents_write(&t, 41, 1, &(fr__tf_scalar){"loss/train", 0.3}));
 *     FR_TRY(fr__tfevents_flush(&t));
 *     FR_TRY(fr__tfevents_close(&t));
 *
 * fr__tfevents_write allocates nothing. A writer belongs to one thread; another thread may sync the
 * file descriptor. */
#ifndef FR_IO_TFEVENTS_H
#define FR_IO_TFEVENTS_H

#include <forerun/base.h>
#include <stdio.h>

enum { FR_TF_SCALARS = 16 }; /* limit per step */

typedef struct fr__tfevents {
    fr_ctx *ctx;
    FILE *file; /* NULL: not open */
    char path[4096];
} fr__tfevents;

typedef struct fr__tf_scalar {
    const char *tag; /* at most 64 bytes are used */
    double value;
} fr__tf_scalar;

/* Create a file in `folder` whose name sorts after those of earlier sessions. `step` updates are
 * done: TensorBoard drops later steps of earlier sessions. */
fr_status fr__tfevents_open(fr_ctx *ctx, const char *folder, int64_t step, fr__tfevents *t);
fr_status fr__tfevents_write(fr__tfevents *t, int64_t step, int n, const fr__tf_scalar *scalars);
/* Pass written data to the system, so that they survive the end of this process. */
fr_status fr__tfevents_flush(fr__tfevents *t);
fr_status fr__tfevents_close(fr__tfevents *t); /* accepts a zeroed writer */

/* CRC-32C (Castagnoli), as in TFRecord. */
uint32_t fr__crc32c(const void *data, size_t bytes);

#endif
