/* memory.h -- what a process of a run will hold, said before it is taken, and whether there is room
 * for it. */
#ifndef FR_FORECAST_MEMORY_H
#define FR_FORECAST_MEMORY_H

#include "config/setup.h"

struct fr_json;

/* Bytes of this process. */
typedef struct fr__footprint {
    size_t base;      /* resident when the engine was planned: program, libraries, data */
    size_t engine;    /* blocks of its workers */
    size_t host;      /* beside them: checkpoints, mini-batches on their way */
    size_t measuring; /* of a look at the stages, given back before the engine takes its own */
    size_t total;     /* the most at any time */
    size_t largest;   /* total of the process that holds the most; known to rank 0 */
} fr__footprint;

/* Plans an engine, fills *f and compares the bytes still to be taken with what machine and control
 * group have left; processes of one machine count together. By all ranks together. Where they do
 * not fit: FR_NO_MEMORY with what would, or a warning (run.memory). After a failure *out is NULL.
 */
fr_status fr__memory_plan(fr__setup *s, const fr_engine_desc *d, fr__footprint *f, fr_engine **out);

/* The member "memory" of a summary. */
void fr__memory_write(struct fr_json *j, const fr__footprint *f);

#endif
