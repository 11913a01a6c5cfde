/* observe.h -- the workers' records, read from the engine at the end of a run: trace and idle time.
 */
#ifndef FR_RUNLOG_OBSERVE_H
#define FR_RUNLOG_OBSERVE_H

#include "checkpoint/folder.h"
#include "config/setup.h"
#include "forecast/bubble.h"

/* Writes OUT/trace.json of this session; nothing if no events were recorded. */
fr_status fr__observe_trace(const fr__setup *s, const fr_engine *e, const fr__folder *f);

/* Splits the time of n_batches mini-batches, trained in n_calls calls of the engine. */
fr_status fr__observe_bubble(const fr__setup *s, const fr_engine *e, int64_t n_batches,
                             int64_t n_calls, fr__bubble *out);

#endif
