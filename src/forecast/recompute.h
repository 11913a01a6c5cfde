/* recompute.h -- parallel.recompute: auto, and the memory that a worker may take. */
#ifndef FR_FORECAST_RECOMPUTE_H
#define FR_FORECAST_RECOMPUTE_H

#include "config/setup.h"

struct fr__json;

/* Bytes that a worker may take: those of its device in the cluster (NULL: none), or
 * parallel.memory, the smaller; 0: no limit is known. */
size_t fr__worker_limit(const fr__settings *t, const fr_cluster *cluster, int worker);

/* After the pipeline is made, before an engine is: with parallel.recompute: auto, the cheapest
 * nodes with which each worker is within its limit, by the compiled sizes of the engine. They are
 * written to the pipeline and to the log. All ranks call it together: rank 0 chooses. Refused where
 * even everything recomputed does not fit. Does nothing without auto. */
fr_status fr__recompute_choose(fr__setup *s);

/* The member "recompute" of a summary. */
void fr__recompute_write(struct fr__json *j, const fr__setup *s);

#endif
