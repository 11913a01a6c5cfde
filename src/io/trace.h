/* trace.h -- writes a timeline as Chrome's trace JSON, for Perfetto (ui.perfetto.dev).
 *
 *     fr__trace t;
 *     FR_TRY(fr__trace_open(ctx, &t, "trace.json", base_ns));
 *     fr__trace_thread(&t, pid, tid, "worker 1");
 *     fr__trace_add(&t, &slice, n_args, args);
 *     FR_TRY(fr__trace_close(&t));
 *
 * Events are written immediately, and nothing is allocated between open and close. Errors are
 * recorded: only close needs a check, and it must be called. The file gets its final name when it
 * is complete. Times are those of fr__now_ns; the file has microseconds since base_ns. */
#ifndef FR_IO_TRACE_H
#define FR_IO_TRACE_H

#include "io/json.h"

typedef struct fr__trace {
    fr_ctx *ctx;
    fr__json json;
    char *path, *part; /* final name, and name during writing */
    uint64_t base_ns;
} fr__trace;

/* Tracks: numbers from 1 on (Perfetto treats 0 as the idle thread of a core). */
typedef struct fr__trace_slice {
    int pid, tid;
    const char *name, *category;
    const char *colour; /* one of Chrome's reserved names, or NULL */
    uint64_t start_ns, end_ns;
} fr__trace_slice;

typedef struct fr__trace_arg {
    const char *key;
    int64_t value;
} fr__trace_arg;

fr_status fr__trace_open(fr_ctx *ctx, fr__trace *t, const char *path, uint64_t base_ns);
void fr__trace_process(fr__trace *t, int pid, const char *name);
void fr__trace_thread(fr__trace *t, int pid, int tid, const char *name);
/* Slices of one track must be disjoint or nested, and in order of their start. */
void fr__trace_add(fr__trace *t, const fr__trace_slice *s, int n_args, const fr__trace_arg *args);
/* Tail and head of an arrow between two slices, each at a time inside its slice. `id` identifies
 * the arrow. */
void fr__trace_flow(fr__trace *t, const fr__trace_slice *at, uint64_t ns, bool is_head,
                    const char *name, int64_t id);
/* An activity beside the slices of a track, which may overlap others of its kind; `id` is unique
 * within the category. */
void fr__trace_beside(fr__trace *t, const fr__trace_slice *s, int64_t id, int n_args,
                      const fr__trace_arg *args);
void fr__trace_counter(fr__trace *t, int pid, uint64_t ns, const char *name, const char *unit,
                       double value);
/* FR_IO or FR_INVALID if an error occurred since open; then there is no file. */
fr_status fr__trace_close(fr__trace *t);

#endif
