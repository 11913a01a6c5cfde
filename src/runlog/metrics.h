/* metrics.h -- what a run measures, mini-batch by mini-batch, in the files that others read:
 * metrics.jsonl, metrics.csv, and TensorBoard's events. */
#ifndef FR_RUNLOG_METRICS_H
#define FR_RUNLOG_METRICS_H

#include "checkpoint/folder.h"
#include "io/tfevents.h"
#include <forerun/train.h>

/* Files beside metrics.jsonl. */
enum { FR_METRICS_CSV = 1, FR_METRICS_TENSORBOARD = 2 };

typedef struct fr__metrics {
    fr_ctx *ctx;
    const fr__folder *folder;
    FILE *file, *csv; /* csv, events.file: NULL where they are not wanted */
    fr_tfevents events;
    uint64_t flushed_ns;
    char path[FR_PATH], csv_path[FR_PATH];
} fr__metrics;

/* The folder must live until fr__metrics_close. Opens OUT/metrics.jsonl and `more` of the others
 * for a run that has done `step` updates: later lines, and a last line that was cut off, are
 * dropped; with step 0 files start empty. */
fr_status fr__metrics_open(fr_ctx *ctx, const fr__folder *f, int64_t step, int more,
                           fr__metrics *m);
void fr__metrics_close(fr__metrics *m); /* a zeroed one is fine */
/* The line of metrics.jsonl is with the system when the call returns, the others within seconds.
 * FR_IO if the folder, or metrics.jsonl in it, is not the run's any more. Allocates nothing. */
fr_status fr__metrics_write(fr__metrics *m, const fr_progress *p);
/* All lines so far are with the system. */
fr_status fr__metrics_flush(fr__metrics *m);
/* What was flushed survives a power failure: before a checkpoint that counts on it. On any thread,
 * which has its own context. */
fr_status fr__metrics_sync(fr__metrics *m, fr_ctx *ctx);

#endif
