/* metrics.h -- the metrics of each mini-batch in metrics.jsonl, metrics.csv and TensorBoard's event
 * file. */
#ifndef FR_RUNLOG_METRICS_H
#define FR_RUNLOG_METRICS_H

#include "checkpoint/folder.h"
#include "io/tfevents.h"
#include "runlog/stage_rules.h"
#include <forerun/train.h>

/* Optional files. */
enum { FR_METRICS_CSV = 1, FR_METRICS_TENSORBOARD = 2 };

typedef struct fr__metrics {
    fr_ctx *ctx;
    const fr__folder *folder;
    FILE *file, *csv; /* csv, events.file: NULL if not requested */
    fr__tfevents events;
    fr__stage_rules rules; /* lines of metrics.jsonl have what the policy changes */
    uint64_t flushed_ns;
    char path[FR_PATH], csv_path[FR_PATH];
} fr__metrics;

/* The folder must live until fr__metrics_close. Opens OUT/metrics.jsonl and `more` of the others
 * for a run that has done `step` updates: later lines and an incomplete last line are dropped; with
 * step 0 the files start empty. */
fr_status fr__metrics_open(fr_ctx *ctx, const fr__folder *f, int64_t step, int more,
                           fr__metrics *m);
void fr__metrics_close(fr__metrics *m); /* a zeroed one is fine */
/* The line of metrics.jsonl has been passed to the system when the call returns; the others follow
 * within seconds. FR_IO if the folder, or metrics.jsonl in it, was replaced. Allocates nothing. */
fr_status fr__metrics_write(fr__metrics *m, const fr_progress *p);
/* Passes all lines so far to the system. */
fr_status fr__metrics_flush(fr__metrics *m);
/* Makes flushed lines survive a power failure: called before a checkpoint of the same step. On any
 * thread with its own context. */
fr_status fr__metrics_sync(fr__metrics *m, fr_ctx *ctx);

#endif
