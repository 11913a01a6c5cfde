/* memory.h -- forecast of the memory of each process, and the check that it is available. */
#ifndef FR_FORECAST_MEMORY_H
#define FR_FORECAST_MEMORY_H

#include "config/setup.h"

struct fr__json;

/* Bytes of this process. */
typedef struct fr__footprint {
    size_t base;      /* resident when the engine was planned: program, libraries, data */
    size_t engine;    /* blocks of its workers */
    size_t host;      /* other blocks: checkpoints, mini-batches in flight */
    size_t measuring; /* for measuring stages, freed before the engine allocates */
    size_t total;     /* the largest at any time */
    size_t largest;   /* total of the largest process; rank 0 only */
} fr__footprint;

/* Plans an engine, fills *f and compares the bytes still to be allocated with those available to
 * the machine and the control group; processes on one machine are added. All ranks call it
 * together. If the run does not fit: FR_NO_MEMORY with layouts that would, or a warning
 * (run.memory). After a failure *out is NULL. */
fr_status fr__memory_plan(fr__setup *s, const fr_engine_desc *d, fr__footprint *f, fr_engine **out);

/* The member "memory" of a summary. */
void fr__memory_write(struct fr__json *j, const fr__footprint *f);

#endif
