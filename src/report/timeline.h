/* timeline.h -- the first events of each worker, from trace.json. */
#ifndef FR_REPORT_TIMELINE_H
#define FR_REPORT_TIMELINE_H

#include "base/vec.h"
#include "io/json.h"

typedef struct fr__slice {
    int64_t start_ns, took_ns;
    int64_t batch, version;
    int stage, micro, ahead; /* version and ahead -1: uses no weights; micro -1: none */
    signed char action;      /* index into the table in timeline.c */
    bool is_wait;
} fr__slice;

typedef struct fr__lane {
    int64_t process, thread; /* numbers of the trace */
    char *name;              /* NULL: unnamed */
    FR_VEC(fr__slice) slices;
} fr__lane;

typedef struct fr__lanes {
    FR_VEC(fr__lane) lanes;
    int64_t n_events; /* events in the file */
    size_t last;      /* lane of the previous event, tried first */
} fr__lanes;

/* max_events: of all workers together, divided evenly. */
fr_status fr__lanes_read(fr_ctx *ctx, const char *path, int64_t max_events, fr__lanes *t);
void fr__lanes_write(const fr__lanes *t, fr__json *j, const char *key);
void fr__lanes_fini(fr__lanes *t);

#endif
