/* observe.h -- what the workers noted, taken from the engine when a run ends: a timeline, and where
 * the time went. */
#ifndef FR_RUNLOG_OBSERVE_H
#define FR_RUNLOG_OBSERVE_H

#include "checkpoint/folder.h"
#include "config/setup.h"
#include "forecast/bubble.h"

/* OUT/trace.json of this session; nothing if nothing was noted. */
fr_status fr__observe_trace(const fr__setup *s, const fr_engine *e, const fr__folder *f);

/* Where the time of n_batches mini-batches went, trained in n_calls calls of the engine. */
fr_status fr__observe_bubble(const fr__setup *s, const fr_engine *e, int64_t n_batches,
                             int64_t n_calls, fr__bubble *out);

#endif
