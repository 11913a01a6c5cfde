/* checkpoint.h -- everything a run needs to go on bit for bit, as plain files:
 *
 *     step-N/model.safetensors       parameters, then running statistics, by name
 *            optimizer.safetensors   `<state>.<parameter>`: exp_avg.fc.weight
 *            state.json              position in run and data, and what the rest must match
 *
 * Random numbers need no state: they are functions of seed, step and sample. */
#ifndef FR_TRAIN_CHECKPOINT_H
#define FR_TRAIN_CHECKPOINT_H

#include "train/folder.h"
#include "train/setup.h"

/* Where a run stands after `step` updates. */
typedef struct fr_position {
    int64_t step, samples;
    double epoch_loss;     /* sum over the targets of the current epoch */
    int64_t epoch_targets; /* that counted */
    double elapsed_s;
} fr_position;

/* Writes checkpoint step-N of an engine, whole or not at all, then removes all but the newest
 * settings.keep. `sha256`: of the weights. */
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

/* Over all trained parameters in graph order, fp32, plain layout; tied ones and running
 * statistics left out. */
fr_status fr__weights_sha256(fr_setup *s, fr_engine *e, char sha256[65]);
fr_status fr__weights_finite(fr_setup *s, fr_engine *e, bool *is_finite);

#endif
