/* trace.c -- events to slices, arrows and counters.
 *
 * A message is known by what travels, from where to where, and which micro-batch: that gives each
 * arrow a number that both ends work out for themselves. Event lists are cut at some length, so an
 * end may be missing; the numbers of all ends are sorted first, and an arrow is drawn only where
 * both are there. */
#include "train/trace.h"

#include <forerun/sched.h>

#include "base/alloc.h"
#include "io/trace.h"

#include <stdlib.h>
#include <string.h>

enum { PID = 1 };

/* How an action looks; colours are names that Chrome reserves. */
static const struct {
    const char *name, *category, *colour;
} looks[FR_N_ACTIONS] = {
    [FR_DO_F] = {"F", "forward", "rail_response"},
    [FR_DO_B] = {"B", "backward", "rail_animation"},
    [FR_DO_I] = {"I", "backward", "rail_animation"},
    [FR_DO_W] = {"W", "weight", "olive"},
    [FR_DO_SEND_F] = {"SEND_F", "transfer", "generic_work"},
    [FR_DO_RECV_F] = {"RECV_F", "transfer", "generic_work"},
    [FR_DO_SEND_B] = {"SEND_B", "transfer", "generic_work"},
    [FR_DO_RECV_B] = {"RECV_B", "transfer", "generic_work"},
    [FR_DO_REDUCE] = {"REDUCE", "transfer", "generic_work"},
    [FR_DO_STEP] = {"STEP", "step", "good"},
};

/* The ends of arrows: [0] sends, [1] receives. */
typedef struct arrows {
    size_t n[2];
    int64_t *ids[2];
} arrows;

/* -1: not an end of an arrow. */
static int end_kind(const fr_event *e)
{
    if (e->is_wait) return -1;
    switch (e->action) {
    case FR_DO_SEND_F:
    case FR_DO_SEND_B: return 0;
    case FR_DO_RECV_F:
    case FR_DO_RECV_B: return 1;
    default: return -1;
    }
}

static int64_t micro_of_run(const fr_timeline *t, const fr_event *e)
{
    return e->batch * t->n_micro + e->micro;
}

/* Values go up and gradients go down, so the two ends also say which of the two it is. */
static int64_t arrow_id(const fr_timeline *t, const fr_event *e)
{
    bool is_send = end_kind(e) == 0;
    int from = is_send ? e->stage : e->peer, to = is_send ? e->peer : e->stage;
    return (micro_of_run(t, e) * t->n_stages + from) * t->n_stages + to;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static fr_status collect(fr_ctx *ctx, const fr_timeline *t, arrows *a)
{
    size_t n = 0;
    for (int w = 0; w < t->n_workers; w++)
        for (int i = 0; i < t->n_events[w]; i++) n += end_kind(&t->events[w][i]) >= 0;
    int64_t *ids = FR_NEW_ARRAY(int64_t, 2 * n + 1);
    if (!ids) return fr__no_memory(ctx, 2 * n * sizeof *ids, "the arrows of a trace");
    a->ids[0] = ids, a->ids[1] = ids + n;
    for (int w = 0; w < t->n_workers; w++)
        for (int i = 0; i < t->n_events[w]; i++) {
            int kind = end_kind(&t->events[w][i]);
            if (kind >= 0) a->ids[kind][a->n[kind]++] = arrow_id(t, &t->events[w][i]);
        }
    for (int kind = 0; kind < 2; kind++) qsort(a->ids[kind], a->n[kind], sizeof *ids, by_value);
    return FR_OK;
}

static int n_stages_of(const fr_timeline *t, int worker)
{
    int n = 0;
    for (int s = 0; s < t->n_stages; s++) n += t->worker_of[s] == worker;
    return n;
}

/* "worker 1, stage 1" or "worker 1, stages 1, 3". */
static void name_tracks(fr_trace *out, const fr_timeline *t)
{
    fr__trace_process(out, PID, t->title);
    for (int w = 0; w < t->n_workers; w++) {
        char name[128];
        size_t at = (size_t)snprintf(name, sizeof name, "worker %d, stage%s", w,
                                     n_stages_of(t, w) > 1 ? "s" : "");
        const char *before = " ";
        for (int s = 0; s < t->n_stages && at < sizeof name - 16; s++) {
            if (t->worker_of[s] != w) continue;
            at += (size_t)snprintf(name + at, sizeof name - at, "%s%d", before, s);
            before = ", ";
        }
        fr__trace_thread(out, PID, w + 1, name);
    }
}

static void write_args(fr_trace *out, const fr_timeline *t, const fr_event *e,
                       const fr_trace_slice *slice)
{
    bool uses_weights = e->action == FR_DO_F || e->action == FR_DO_B || e->action == FR_DO_I ||
                        e->action == FR_DO_W;
    fr_trace_arg args[6] = {{"stage", e->stage}, {"mini_batch", e->batch}};
    int n = 2;
    if (e->micro >= 0) args[n++] = (fr_trace_arg){"micro_batch", e->micro};
    if (!e->is_wait && (uses_weights || e->action == FR_DO_STEP))
        args[n++] = (fr_trace_arg){"version", e->version};
    if (!e->is_wait && uses_weights) args[n++] = (fr_trace_arg){"ahead", e->ahead};
    if (e->peer >= 0 && e->peer < t->n_stages) args[n++] = (fr_trace_arg){"peer", e->peer};
    fr__trace_slice(out, slice, n, args);
}

static void write_event(fr_trace *out, const fr_timeline *t, const arrows *a, int worker,
                        const fr_event *e)
{
    char name[64], prefix[16] = "";
    if (n_stages_of(t, worker) > 1) snprintf(prefix, sizeof prefix, "%d", e->stage);
    snprintf(name, sizeof name, "%s%s%s%lld", e->is_wait ? "wait " : "", prefix,
             looks[e->action].name, (long long)(e->micro < 0 ? e->batch : micro_of_run(t, e)));
    fr_trace_slice slice = {.pid = PID,
                            .tid = worker + 1,
                            .name = name,
                            .category = e->is_wait ? "wait" : looks[e->action].category,
                            .colour = e->is_wait ? "grey" : looks[e->action].colour,
                            .start_ns = e->start_ns,
                            .end_ns = e->end_ns};
    write_args(out, t, e, &slice);
    if (e->action == FR_DO_STEP && !e->is_wait) {
        snprintf(name, sizeof name, "version of stage %d", e->stage);
        fr__trace_counter(out, PID, e->end_ns, name, "updates", (double)e->version);
    }
    int kind = end_kind(e);
    if (kind < 0) return;
    int64_t id = arrow_id(t, e);
    if (!bsearch(&id, a->ids[!kind], a->n[!kind], sizeof id, by_value)) return;
    const char *what =
        e->action == FR_DO_SEND_F || e->action == FR_DO_RECV_F ? "value" : "gradient";
    fr__trace_flow(out, &slice, e->start_ns, kind == 1, what, id);
}

static fr_status check(fr_ctx *ctx, const fr_timeline *t)
{
    for (int w = 0; w < t->n_workers; w++)
        for (int i = 0; i < t->n_events[w]; i++) {
            const fr_event *e = &t->events[w][i];
            if (e->action >= FR_N_ACTIONS || e->stage < 0 || e->stage >= t->n_stages ||
                e->end_ns < e->start_ns || (i && e->start_ns < t->events[w][i - 1].start_ns))
                return fr_fail(ctx, FR_INTERNAL,
                               "event %d of worker %d (action %d, stage %d) is out of order or "
                               "range; no trace is written",
                               i, w, (int)e->action, e->stage);
        }
    return FR_OK;
}

fr_status fr__timeline_write(fr_ctx *ctx, const char *path, const fr_timeline *t)
{
    fr_trace out;
    arrows a = {{0}, {0}};
    uint64_t base_ns = UINT64_MAX;
    FR_TRY(check(ctx, t));
    for (int w = 0; w < t->n_workers; w++)
        if (t->n_events[w] && t->events[w][0].start_ns < base_ns)
            base_ns = t->events[w][0].start_ns;
    fr_status status = collect(ctx, t, &a);
    if (status == FR_OK) status = fr__trace_open(ctx, &out, path, base_ns);
    if (status == FR_OK) {
        name_tracks(&out, t);
        for (int w = 0; w < t->n_workers; w++)
            for (int i = 0; i < t->n_events[w]; i++) write_event(&out, t, &a, w, &t->events[w][i]);
        status = fr__trace_close(&out);
    }
    fr__free(a.ids[0]);
    return status;
}
