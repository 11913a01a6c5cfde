/* timeline.c -- converts events to slices, arrows and counters.
 *
 * A message is identified by its kind, its two stages and its micro-batch; both ends compute the
 * same number of the arrow from these. Event lists are limited in length, so an end may be missing.
 * The numbers of all ends are sorted first, and an arrow is drawn only if both ends exist. */
#include "sim/timeline.h"

#include <forerun/sched.h>

#include "base/vec.h"
#include "io/trace.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BUCKETS = 4096 };

/* Appearance of an action; the colours are names reserved by Chrome. */
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
    [FR_DO_R] = {"R", "forward", "rail_response"},
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

static int64_t micro_of_run(const fr__timeline *t, const fr_event *e)
{
    return e->batch * t->n_micro + e->micro;
}

/* Values go to later stages and gradients to earlier ones, so the two stages also give the
 * direction. */
static int64_t arrow_id(const fr__timeline *t, const fr_event *e)
{
    bool is_send = end_kind(e) == 0;
    int from = is_send ? e->stage : e->peer, to = is_send ? e->peer : e->stage;
    return (micro_of_run(t, e) * t->n_stages + from) * t->n_stages + to;
}

/* Position of the ends of an arrow: at the start of a send, and at the last instant of a receive.
 * The message arrives only at the end of the receive, since a worker may lose its core in between.
 */
static uint64_t arrow_ns(const fr_event *e)
{
    if (end_kind(e) == 0 || e->end_ns == e->start_ns) return e->start_ns;
    return e->end_ns - 1;
}

static fr_status collect(fr_ctx *ctx, const fr__timeline *t, arrows *a)
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
    for (int kind = 0; kind < 2; kind++) qsort(a->ids[kind], a->n[kind], sizeof *ids, fr__by_int64);
    return FR_OK;
}

/* The replica of a stage on a worker; -1: the worker does not hold the stage. */
static int replica_of(const fr__timeline *t, int stage, int worker)
{
    int nth = worker - t->worker_of[stage];
    return nth >= 0 && nth < (t->replicas ? t->replicas[stage] : 1) ? nth : -1;
}

static int n_stages_of(const fr__timeline *t, int worker)
{
    int n = 0;
    for (int s = 0; s < t->n_stages; s++) n += replica_of(t, s, worker) >= 0;
    return n;
}

static int pid_of(const fr__timeline *t, int worker)
{
    return t->n_ranks ? t->rank_of[worker] + 1 : 1;
}

/* ", replica 2" if there are several. */
static const char *replica_text(const fr__timeline *t, int stage, int worker, char text[24])
{
    text[0] = '\0';
    if (t->replicas && t->replicas[stage] > 1)
        snprintf(text, 24, ", replica %d", replica_of(t, stage, worker));
    return text;
}

static void name_processes(fr__trace *out, const fr__timeline *t)
{
    if (t->n_ranks == 0) fr__trace_process(out, 1, t->title);
    for (int i = 0; i < t->n_ranks; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", i ? "" : t->title, i ? "" : ": ", t->rank_names[i]);
        fr__trace_process(out, i + 1, name);
    }
}

/* "worker 1, stage 1", "worker 1, stages 1, 3" or "worker 3, stage 1, replica 1". */
static void name_tracks(fr__trace *out, const fr__timeline *t)
{
    for (int w = 0; w < t->n_workers; w++) {
        char name[160], replica[24] = "";
        size_t at = (size_t)snprintf(name, sizeof name, "worker %d, stage%s", w,
                                     n_stages_of(t, w) > 1 ? "s" : "");
        const char *before = " ";
        for (int s = 0; s < t->n_stages && at < sizeof name - 48; s++) {
            if (replica_of(t, s, w) < 0) continue;
            at += (size_t)snprintf(name + at, sizeof name - at, "%s%d", before, s);
            before = ", ";
            replica_text(t, s, w, replica);
        }
        snprintf(name + at, sizeof name - at, "%s", replica);
        fr__trace_thread(out, pid_of(t, w), w + 1, name);
    }
}

static void write_args(fr__trace *out, const fr__timeline *t, const fr_event *e,
                       const fr__trace_slice *slice)
{
    bool uses_weights = e->action <= FR_DO_W || e->action == FR_DO_R;
    fr__trace_arg args[6] = {{"stage", e->stage}, {"mini_batch", e->batch}};
    int n = 2;
    if (e->micro >= 0) args[n++] = (fr__trace_arg){"micro_batch", e->micro};
    if (!e->is_wait && (uses_weights || e->action == FR_DO_STEP))
        args[n++] = (fr__trace_arg){"version", e->version};
    if (!e->is_wait && uses_weights) args[n++] = (fr__trace_arg){"ahead", e->ahead};
    if (e->peer >= 0 && e->peer < t->n_stages) args[n++] = (fr__trace_arg){"peer", e->peer};
    fr__trace_add(out, slice, n, args);
}

/* A sum over replicas, from submit to take: "sum 3.7" is bucket 7 of mini-batch 3. It runs while
 * the worker computes. */
static void write_beside(fr__trace *out, const fr__timeline *t, int worker, const fr_event *e)
{
    char name[64];
    snprintf(name, sizeof name, "sum %lld.%d", (long long)e->batch, e->micro);
    fr__trace_slice slice = {.pid = pid_of(t, worker),
                             .tid = worker + 1,
                             .name = name,
                             .category = "sum",
                             .start_ns = e->start_ns,
                             .end_ns = e->end_ns};
    fr__trace_arg args[] = {
        {"stage", e->stage}, {"mini_batch", e->batch}, {"bucket", e->micro}, {"worker", worker}};
    int64_t id = (e->batch * t->n_workers + worker) * MAX_BUCKETS + e->micro;
    fr__trace_beside(out, &slice, id, 4, args);
}

static void write_event(fr__trace *out, const fr__timeline *t, const arrows *a, int worker,
                        const fr_event *e)
{
    char name[64], prefix[16] = "";
    if (n_stages_of(t, worker) > 1) snprintf(prefix, sizeof prefix, "%d", e->stage);
    snprintf(name, sizeof name, "%s%s%s%lld", e->is_wait ? "wait " : "", prefix,
             looks[e->action].name, (long long)(e->micro < 0 ? e->batch : micro_of_run(t, e)));
    fr__trace_slice slice = {.pid = pid_of(t, worker),
                             .tid = worker + 1,
                             .name = name,
                             .category = e->is_wait ? "wait" : looks[e->action].category,
                             .colour = e->is_wait ? "grey" : looks[e->action].colour,
                             .start_ns = e->start_ns,
                             .end_ns = e->end_ns};
    write_args(out, t, e, &slice);
    if (e->action == FR_DO_STEP && !e->is_wait) {
        char replica[24];
        snprintf(name, sizeof name, "version of stage %d%s", e->stage,
                 replica_text(t, e->stage, worker, replica));
        fr__trace_counter(out, slice.pid, e->end_ns, name, "updates", (double)e->version);
    }
    int kind = end_kind(e);
    if (kind < 0) return;
    int64_t id = arrow_id(t, e);
    if (!bsearch(&id, a->ids[!kind], a->n[!kind], sizeof id, fr__by_int64)) return;
    const char *what =
        e->action == FR_DO_SEND_F || e->action == FR_DO_RECV_F ? "value" : "gradient";
    fr__trace_flow(out, &slice, arrow_ns(e), kind == 1, what, id);
}

static fr_status check(fr_ctx *ctx, const fr__timeline *t)
{
    for (int w = 0; w < t->n_workers; w++) {
        uint64_t last = 0;
        for (int i = 0; i < t->n_events[w]; i++) {
            const fr_event *e = &t->events[w][i];
            if (e->action >= FR_N_ACTIONS || e->stage < 0 || e->stage >= t->n_stages ||
                e->end_ns < e->start_ns || (!e->is_beside && e->start_ns < last))
                return fr_fail(ctx, FR_INTERNAL,
                               "event %d of worker %d (action %d, stage %d) is out of order or "
                               "range; no trace is written",
                               i, w, (int)e->action, e->stage);
            if (!e->is_beside) last = e->start_ns;
        }
    }
    return FR_OK;
}

fr_status fr__timeline_write(fr_ctx *ctx, const char *path, const fr__timeline *t)
{
    fr__trace out;
    arrows a = {{0}, {0}};
    uint64_t base_ns = UINT64_MAX;
    FR_TRY(check(ctx, t));
    for (int w = 0; w < t->n_workers; w++)
        for (int i = 0; i < t->n_events[w]; i++)
            if (t->events[w][i].start_ns < base_ns) base_ns = t->events[w][i].start_ns;
    fr_status status = collect(ctx, t, &a);
    if (status == FR_OK) status = fr__trace_open(ctx, &out, path, base_ns);
    if (status == FR_OK) {
        name_processes(&out, t);
        name_tracks(&out, t);
        for (int w = 0; w < t->n_workers; w++)
            for (int i = 0; i < t->n_events[w]; i++) {
                const fr_event *e = &t->events[w][i];
                if (e->is_beside)
                    write_beside(&out, t, w, e);
                else
                    write_event(&out, t, &a, w, e);
            }
        status = fr__trace_close(&out);
    }
    fr__free(a.ids[0]);
    return status;
}
