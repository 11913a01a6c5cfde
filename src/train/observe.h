/* observe.h -- what the workers noted, taken from the engine when a run ends: trace.json. */
#ifndef FR_TRAIN_OBSERVE_H
#define FR_TRAIN_OBSERVE_H

#include "train/folder.h"
#include "train/setup.h"

/* OUT/trace.json of this session; nothing if nothing was noted. */
fr_status fr__observe_trace(const fr_setup *s, const fr_engine *e, const fr_folder *f);

#endif
