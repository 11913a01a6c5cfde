/* checkpoint.h -- everything a run needs to go on bit for bit, as plain files:
 *
 *     step-N/model.safetensors       parameters, then running statistics, by name
 *            optimizer.safetensors   `<state>.<parameter>`: exp_avg.fc.weight; then what the
 *                                    weight policy remembers: previous.fc.weight
 *            state.json              position in run and data, and what the rest must match
 *
 * Random numbers need no state: they are functions of seed, step and sample. */
#ifndef FR_TRAIN_CHECKPOINT_H
#define FR_TRAIN_CHECKPOINT_H

#include "train/metrics.h"
#include "train/setup.h"
#include <forerun/state.h>

/* Where a run stands after `step` updates. */
typedef struct fr_position {
    int64_t step, samples;
    double epoch_loss;     /* sum over the targets of the current epoch */
    int64_t epoch_targets; /* that counted */
    double elapsed_s;
} fr_position;

/* A checkpoint to be written. */
typedef struct fr_draft {
    fr_ctx *ctx; /* of the thread that writes */
    const fr_setup *s;
    const fr_folder *folder;
    fr_metrics *metrics; /* whose lines must be on the disk first; or NULL */
    fr_snapshot *snapshot;
    const char *memory; /* fr_engine_memory_name */
    fr_position at;
    float *plain;                   /* (largest parameter) */
    char path[FR_PATH], sha256[65]; /* filled: the folder; of the weights */
} fr_draft;

/* Writes checkpoint step-N, whole or not at all, then removes all but the newest settings.keep. On
 * any thread of rank 0, for the snapshot is a copy. Takes all of its items, whatever happens. */
fr_status fr__checkpoint_write(fr_draft *d);
/* What the other ranks do meanwhile. */
fr_status fr__checkpoint_send(fr_snapshot *s);
/* Both, and the snapshot before, without a thread of their own: a process alone. */
fr_status fr__checkpoint_save(fr_setup *s, fr_engine *e, const fr_folder *f, const fr_position *p,
                              char path[FR_PATH], char sha256[65]);

/* Reads one step folder into an engine. *is_damaged tells a file that is cut or changed (an older
 * checkpoint may do) from one that is fine but belongs to another model or config. */
fr_status fr__checkpoint_load(fr_setup *s, fr_engine *e, const char *folder, fr_position *p,
                              bool *is_damaged);
/* The weights alone, for evaluation. */
fr_status fr__checkpoint_load_model(fr_setup *s, fr_engine *e, const char *folder, char sha256[65],
                                    bool *is_damaged);

/* Loads the newest checkpoint in `checkpoints` that is whole; a damaged one is logged and the one
 * before it taken. p NULL: weights only. path is "" if there is no checkpoint at all. */
fr_status fr__checkpoint_load_newest(fr_setup *s, fr_engine *e, const char *checkpoints,
                                     fr_position *p, char path[FR_PATH]);

/* What follows touches values: with a team, inside fr__lead, as the calls above that load. */
/* Over all trained parameters in graph order, fp32, plain layout; tied ones and running
 * statistics left out. */
fr_status fr__weights_sha256(fr_setup *s, fr_engine *e, char sha256[65]);
fr_status fr__weights_finite(fr_setup *s, fr_engine *e, bool *is_finite);

#endif
