/* environment.h -- machine, system and libraries of a run, for its summary. */
#ifndef FR_RUNLOG_ENVIRONMENT_H
#define FR_RUNLOG_ENVIRONMENT_H

#include "config/settings.h"
#include "io/json.h"

/* started: seconds since 1970. */
void fr__environment_write(fr__json *j, const fr__settings *s, int64_t started);

#endif
