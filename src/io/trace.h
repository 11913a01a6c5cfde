/* trace.h -- a timeline as Chrome's trace JSON, which Perfetto (ui.perfetto.dev) shows.
 *
 *     fr_trace t;
 *     FR_TRY(fr__trace_open(ctx, &t, "trace.json", base_ns));
 *     fr__trace_thread(&t, pid, tid, "worker 1");
 *     fr__trace_slice(&t, &slice, n_args, args);
 *     FR_TRY(fr__trace_close(&t));
 *
 * Events are written as they come and nothing is allocated between open and close. Errors stick:
 * only close needs a check, and it must be called. The file appears under its name when it is
 * whole. Times are those of fr__now_ns; the file has microseconds since base_ns. */
#ifndef FR_IO_TRACE_H
#define FR_IO_TRACE_H

#include "io/json.h"

typedef struct fr_trace {
    fr_ctx *ctx;
    fr_json json;
    char *path, *part; /* the name to be, and the name while it is written */
    uint64_t base_ns;
} fr_trace;

/* Tracks: numbers from 1 on (0 is the idle thread of a core to Perfetto). */
typedef struct fr_trace_slice {
    int pid, tid;
    const char *name, *category;
    const char *colour; /* one of Chrome's reserved names, or NULL */
    uint64_t start_ns, end_ns;
} fr_trace_slice;

typedef struct fr_trace_arg {
    const char *key;
    int64_t value;
} fr_trace_arg;

fr_status fr__trace_open(fr_ctx *ctx, fr_trace *t, const char *path, uint64_t base_ns);
void fr__trace_process(fr_trace *t, int pid, const char *name);
void fr__trace_thread(fr_trace *t, int pid, int tid, const char *name);
/* Slices of one track lie side by side or inside each other, and come in order of their start. */
void fr__trace_slice(fr_trace *t, const fr_trace_slice *s, int n_args, const fr_trace_arg *args);
/* The tail and the head of an arrow between two slices: each at a time inside its slice. `id` is
 * the arrow's own. */
void fr__trace_flow(fr_trace *t, const fr_trace_slice *at, uint64_t ns, bool is_head,
                    const char *name, int64_t id);
/* Something that goes on beside the slices of a track, and may overlap others of its kind; `id` is
 * its own within the category. */
void fr__trace_beside(fr_trace *t, const fr_trace_slice *s, int64_t id, int n_args,
                      const fr_trace_arg *args);
void fr__trace_counter(fr_trace *t, int pid, uint64_t ns, const char *name, const char *unit,
                       double value);
/* FR_IO or FR_INVALID if anything went wrong since open; then there is no file. */
fr_status fr__trace_close(fr_trace *t);

#endif
