/* metrics.h -- metrics.jsonl: one line a mini-batch, on the disk when the call returns. */
#ifndef FR_TRAIN_METRICS_H
#define FR_TRAIN_METRICS_H

#include "train/folder.h"
#include <forerun/train.h>

typedef struct fr_metrics {
    fr_ctx *ctx;
    FILE *file;
    char path[FR_PATH];
} fr_metrics;

/* Opens OUT/metrics.jsonl for a run that has done `step` updates: later lines, and a last line that
 * was cut off, are dropped; with step 0 the file starts empty. */
fr_status fr__metrics_open(fr_ctx *ctx, const fr_folder *f, int64_t step, fr_metrics *m);
void fr__metrics_close(fr_metrics *m); /* a zeroed one is fine */
/* Allocates nothing. */
fr_status fr__metrics_write(fr_metrics *m, const fr_progress *p);
/* The lines so far survive a power failure: before a checkpoint that counts on them. On any thread,
 * which has its own context. */
fr_status fr__metrics_sync(fr_metrics *m, fr_ctx *ctx);

#endif
