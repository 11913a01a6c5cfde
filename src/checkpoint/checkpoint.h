/* checkpoint.h -- everything a run needs to continue bit for bit, as plain files:
 *
 *     step-N/model.safetensors       parameters, then running statistics, by name
 *            optimizer.safetensors   `<state>.<parameter>`: exp_avg.fc.weight; then the state of
 *                                    the weight policy: previous.fc.weight
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

/* Position of a run after `step` updates. */
typedef struct fr__position {
    int64_t step, samples;
    double epoch_loss;     /* sum over the targets of the current epoch */
    int64_t epoch_targets; /* that counted */
    double elapsed_s;
    double best;         /* evaluation, by train.stop.metric */
    int64_t best_step;   /* of the update behind which it was made; 0: there is none */
    int64_t n_worse;     /* evaluations since */
    int64_t judged_step; /* of the last evaluation that counts */
} fr__position;

/* A checkpoint to be written. */
typedef struct fr__checkpoint_job {
    fr_ctx *ctx; /* NULL: failures are kept on the writing thread */
    const fr__setup *s;
    const fr__folder *folder;
    /* Called first, on the writing thread: puts on the disk what belongs to the updates before this
     * one. May be NULL. */
    fr_status (*sync)(void *user, fr_ctx *ctx);
    void *user;
    fr_snapshot *snapshot; /* NULL: the initial weights, computed from the seed */
    const char *memory;    /* fr_engine_memory_name */
    fr__position at;
    float *plain;                   /* (largest parameter) */
    char path[FR_PATH], sha256[65]; /* filled: the folder; of the weights */
} fr__checkpoint_job;

/* Writes checkpoint step-N, whole or not at all, then removes all but the newest settings.keep, and
 * with settings.keep_best the best. A later step, which was found damaged, is kept. Any thread of
 * rank 0 may call it. Always reads all items of the snapshot. FR_DIVERGED: a value is not finite.
 */
fr_status fr__checkpoint_write(fr__checkpoint_job *job);
/* The part of the other ranks. */
fr_status fr__checkpoint_send(fr_snapshot *s);
/* Takes a snapshot and writes it on the calling thread, in a single process. e NULL: the initial
 * weights of the run, as step 0. */
fr_status fr__checkpoint_save(fr__setup *s, fr_engine *e, const fr__folder *f,
                              const fr__position *p, char path[FR_PATH], char sha256[65]);

/* Reads one step folder into an engine. *is_damaged: a file is missing, truncated or changed, and
 * an older checkpoint may work; else the checkpoint is whole but belongs to another model or
 * config. */
fr_status fr__checkpoint_load(fr__setup *s, fr_engine *e, const char *folder, fr__position *p,
                              bool *is_damaged);
/* The weights alone, for evaluation. A folder not called step-N needs no state.json: it may
 * hold weights of another program. */
fr_status fr__checkpoint_load_model(fr__setup *s, fr_engine *e, const char *folder,
                                    bool *is_damaged);

/* The same without an engine: each parameter, then each buffer, in graph order, is handed to `put`
 * (NULL: the file is only verified). The values may turn out to be damaged after the last one. */
typedef fr_status (*fr__param_put)(void *user, int param, float *plain);
fr_status fr__checkpoint_read_model(fr__setup *s, const char *folder, fr__param_put put, void *user,
                                    bool *is_damaged);

/* Loads the newest whole checkpoint in `checkpoints`; logs damaged ones. p NULL: weights only. path
 * is "" if there is no checkpoint. */
fr_status fr__checkpoint_load_newest(fr__setup *s, fr_engine *e, const char *checkpoints,
                                     fr__position *p, char path[FR_PATH]);

/* Over all trained parameters in graph order, fp32, plain layout, without tied parameters and
 * running statistics. Reads values: with a team, call it inside fr__rank0_work, like the calls
 * above that load. */
fr_status fr__weights_sha256(fr__setup *s, fr_engine *e, char sha256[65]);

#endif
