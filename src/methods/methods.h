/* methods.h -- inside the module: the parts of an execution plan. */
#ifndef FR_METHODS_METHODS_H
#define FR_METHODS_METHODS_H

#include <forerun/exec_plan.h>

#include "base/arena.h"

/* Fills p->n_weight_blocks[stage]: blocks of weights that are needed at once (weight_walk.c). */
fr_status fr__count_blocks(fr_ctx *ctx, fr_exec_plan *p, int stage);
/* The weights that the forwards of one mini-batch read once the pipeline is full: [stage][micro] of
 * mini-batch *batch, the last one walked (weight_walk.c). */
fr_status fr__steady_forwards(fr_ctx *ctx, const fr_exec_plan *p, fr_weight_read *reads,
                              int *batch);

#endif
