/* timeline.h -- the first events of each worker, from trace.json. */
#ifndef FR_REPORT_TIMELINE_H
#define FR_REPORT_TIMELINE_H

#include "base/vec.h"
#include "io/json.h"

typedef struct fr_slice {
    int64_t start_ns, took_ns;
    int64_t batch, version;
    int stage, micro, ahead; /* version and ahead -1: uses no weights; micro -1: none */
    signed char action;      /* index into the table in timeline.c */
    bool is_wait;
} fr_slice;

typedef struct fr_lane {
    int64_t process, thread; /* numbers of the trace */
    char *name;              /* NULL: unnamed */
    FR_VEC(fr_slice) slices;
} fr_lane;

typedef struct fr_lanes {
    FR_VEC(fr_lane) lanes;
    int64_t n_events; /* events in the file */
    size_t last;      /* lane of the previous event, tried first */
} fr_lanes;

/* max_events: of all workers together, divided evenly. */
fr_status fr__lanes_read(fr_ctx *ctx, const char *path, int64_t max_events, fr_lanes *t);
void fr__lanes_write(const fr_lanes *t, fr_json *j, const char *key);
void fr__lanes_fini(fr_lanes *t);

#endif
