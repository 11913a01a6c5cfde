/* types.h -- inside the engine: the names of its types, so that headers can refer to each other. */
#ifndef FR_ENGINE_TYPES_H
#define FR_ENGINE_TYPES_H

#include <forerun/exec_plan.h>
#include <forerun/state.h>

typedef struct fr__worker fr__worker;
typedef struct fr__part fr__part;
typedef struct fr__record fr__record;
typedef struct fr__coordinator fr__coordinator;
typedef struct fr__link_channel fr__link_channel;
typedef struct fr__link_buffers fr__link_buffers;

#endif
