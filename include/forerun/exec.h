/* exec.h -- what a stage executor takes and reports: data, losses, sizes, and the rules by which
 * the replicas of a stage agree. */
#ifndef FORERUN_EXEC_H
#define FORERUN_EXEC_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mini-batch in host memory, batch first. */
typedef struct fr_feed {
    const void *input;
    const void *target;    /* int32_t classes, or floats, as the loss reads */
    const int32_t *length; /* NULL where the model has none */
    int64_t n_targets;     /* that count, in the whole mini-batch; of cosine, vectors */
} fr_feed;

/* The loss and its hits, summed over samples. */
typedef struct fr_tally {
    double loss;     /* sum over targets that count */
    int64_t targets; /* that counted */
    int64_t correct; /* hits among them: of the arg max; bce: of the sign */
    double error;    /* mse, smooth_l1: sum of absolute errors */
} fr_tally;

/* Device memory of a worker in bytes, known before anything is allocated. */
typedef struct fr_memory_use {
    size_t weights; /* all copies */
    size_t grads, optimizer, buffers, slots, workspace, cache, io, total;
    int weight_copies; /* most of any stage of the worker */
} fr_memory_use;

/* How the replicas of a stage agree. */
typedef struct fr_sync_options {
    const char *name; /* of fr_sync_list; NULL: allreduce */
    int every;    /* required; average: updates from one mean to the next; wsp: updates of a wave */
    int distance; /* wsp: waves that a replica may be ahead of the others */
} fr_sync_options;
typedef struct fr_sync {
    const char *name, *summary;
    bool has_every, has_distance;
    bool steps_alone; /* each replica with its own gradient */
} fr_sync;
FR_API const fr_sync *const *fr_sync_list(void);      /* NULL-terminated, allreduce first */
FR_API const fr_sync *fr_sync_find(const char *name); /* NULL name: allreduce; NULL: no such rule */

#ifdef __cplusplus
}
#endif
#endif
