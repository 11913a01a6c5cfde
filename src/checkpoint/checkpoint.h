/* checkpoint.h -- everything a run needs to go on bit for bit, as plain files:
 *
 *     step-N/model.safetensors       parameters, then running statistics, by name
 *            optimizer.safetensors   `<state>.<parameter>`: exp_avg.fc.weight; then what the
 *                                    weight policy remembers: previous.fc.weight
 *            state.json              position in run and data, what the rest must match, and a
 *                                    hash of each file
 *
 * A checkpoint is whole if every file is as it was written and every value is finite. Random
 * numbers need no state: they are functions of seed, step and sample. */
#ifndef FR_CHECKPOINT_CHECKPOINT_H
#define FR_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/folder.h"
#include "config/setup.h"
#include <forerun/state.h>

/* Where a run stands after `step` updates. */
typedef struct fr__position {
    int64_t step, samples;
    double epoch_loss;     /* sum over the targets of the current epoch */
    int64_t epoch_targets; /* that counted */
    double elapsed_s;
} fr__position;

/* A checkpoint to be written. */
typedef struct fr__checkpoint_job {
    fr_ctx *ctx; /* NULL: what the writing thread meets is its own to tell */
    const fr__setup *s;
    const fr__folder *folder;
    /* Called first, on the writing thread: puts on the disk what belongs to the updates before this
     * one. May be NULL. */
    fr_status (*sync)(void *user, fr_ctx *ctx);
    void *user;
    fr_snapshot *snapshot; /* NULL: the start of a run, made from its seed */
    const char *memory;    /* fr_engine_memory_name */
    fr__position at;
    float *plain;                   /* (largest parameter) */
    char path[FR_PATH], sha256[65]; /* filled: the folder; of the weights */
} fr__checkpoint_job;

/* Writes checkpoint step-N, whole or not at all, then removes all but the newest settings.keep; one
 * of a later step, which was found damaged, is left. On any thread of rank 0, for the snapshot is a
 * copy. Takes all of its items, whatever happens. FR_DIVERGED: a value is not finite. */
fr_status fr__checkpoint_write(fr__checkpoint_job *job);
/* What the other ranks do meanwhile. */
fr_status fr__checkpoint_send(fr_snapshot *s);
/* Both, and the snapshot before, without a thread of their own: a process alone. e NULL: not what
 * an engine holds, but what the run began with, as step 0. */
fr_status fr__checkpoint_save(fr__setup *s, fr_engine *e, const fr__folder *f,
                              const fr__position *p, char path[FR_PATH], char sha256[65]);

/* Reads one step folder into an engine. *is_damaged tells a checkpoint with a file that is missing,
 * cut or changed (an older one may do) from one that is whole but belongs to another model or
 * config. */
fr_status fr__checkpoint_load(fr__setup *s, fr_engine *e, const char *folder, fr__position *p,
                              bool *is_damaged);
/* The weights alone, for evaluation. A folder that is not called step-N need not have a state.json:
 * weights from elsewhere. */
fr_status fr__checkpoint_load_model(fr__setup *s, fr_engine *e, const char *folder,
                                    bool *is_damaged);

/* Loads the newest checkpoint in `checkpoints` that is whole; a damaged one is logged and the one
 * before it taken. p NULL: weights only. path is "" if there is no checkpoint at all. */
fr_status fr__checkpoint_load_newest(fr__setup *s, fr_engine *e, const char *checkpoints,
                                     fr__position *p, char path[FR_PATH]);

/* Over all trained parameters in graph order, fp32, plain layout; tied ones and running statistics
 * left out. Touches values: with a team, inside fr__rank0_work, as the calls above that load. */
fr_status fr__weights_sha256(fr__setup *s, fr_engine *e, char sha256[65]);

#endif
