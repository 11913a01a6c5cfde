/* efficiency.h -- declarations shared by the files of a study of batch sizes. */
#ifndef FR_STUDY_EFFICIENCY_H
#define FR_STUDY_EFFICIENCY_H

#include <forerun/efficiency.h>

#include "base/arena.h"
#include "base/vec.h"
#include "checkpoint/folder.h"

typedef struct fr__study {
    fr_ctx *ctx;
    const fr_efficiency_options *o;
    fr_arena *arena;
    char file[FR_PATH]; /* OUT/efficiency.json */
    char config[65];    /* SHA-256 of the config's text and the sets */
    const char *method; /* of the config */
    int stages;
    int64_t n_train;
    int64_t batch, micro_batch; /* of the config: samples per update, per micro-batch */
    uint64_t seed;
    double lr, epochs, max_epochs;    /* of the config; of a trial at most */
    int64_t warmup, every, timescale; /* of the config's schedule, updates; 0: none */
    int n_evals;                      /* per epoch */
    FR_VEC(fr_trial *) trials;        /* requested now, and others in the file */
} fr__study;

/* The trial of a batch and a seed, created if there is none. NULL: no memory. */
fr_trial *fr__study_trial(fr__study *s, int64_t batch, uint64_t seed);
/* Loads trials of an earlier call, if the file exists; it must be of the same config and options.
 */
fr_status fr__study_load(fr__study *s);
/* rows: so far; NULL: none yet. */
fr_status fr__study_save(const fr__study *s, const fr_goal *goal, int n_rows,
                         const fr_efficiency_row *rows);

/* Allocates `room` points; none are filled. */
fr_status fr__scaling_open(fr_ctx *ctx, int ways, int room, fr_scaling *out);

#endif
