/* trace.c -- writes Chrome's trace JSON (the "Trace Event Format"): one object per event. Its phase
 * is M (name of a track), X (slice), s and f (ends of an arrow) or C (counter). */
#include "io/trace.h"

#include "base/alloc.h"
#include "io/file.h"

#include <string.h>

fr_status fr__trace_open(fr_ctx *ctx, fr__trace *t, const char *path, uint64_t base_ns)
{
    FR_TRY(fr__may_replace(ctx, -1, path));
    *t = (fr__trace){.ctx = ctx, .base_ns = base_ns, .path = fr__strdup(path)};
    size_t room = strlen(path) + sizeof ".part";
    t->part = fr__alloc(room);
    if (!t->path || !t->part) {
        fr__free(t->path);
        fr__free(t->part);
        return fr__no_memory(ctx, 2 * room, "the name of a trace");
    }
    snprintf(t->part, room, "%s.part", path);
    FILE *file = fopen(t->part, "w");
    if (!file) {
        fr_status status = fr__io_fail(ctx, "write", path);
        fr__free(t->path);
        fr__free(t->part);
        return status;
    }
    fr__json_to_file(&t->json, file, 0);
    fr__json_object(&t->json, NULL);
    fr__json_text(&t->json, "displayTimeUnit", "ms");
    fr__json_list(&t->json, "traceEvents");
    return FR_OK;
}

/* Start an event; the caller ends the object. */
static fr__json *event(fr__trace *t, const char *phase, const char *name, int pid)
{
    fr__json *j = &t->json;
    if (j->file) fputc('\n', j->file); /* one line per event: readable, and easy to grep */
    fr__json_object(j, NULL);
    fr__json_text(j, "ph", phase);
    fr__json_text(j, "name", name);
    fr__json_int(j, "pid", pid);
    return j;
}

/* Whole nanoseconds, so at most three decimals. */
static void add_time(fr__trace *t, const char *key, uint64_t ns)
{
    fr__json_real(&t->json, key, (double)ns / 1000);
}

static void add_stamp(fr__trace *t, uint64_t ns)
{
    add_time(t, "ts", ns > t->base_ns ? ns - t->base_ns : 0);
}

static void name_track(fr__trace *t, const char *what, int pid, int tid, const char *name)
{
    fr__json *j = event(t, "M", what, pid);
    if (tid) fr__json_int(j, "tid", tid);
    fr__json_object(j, "args");
    fr__json_text(j, "name", name);
    fr__json_end(j);
    fr__json_end(j);
}

void fr__trace_process(fr__trace *t, int pid, const char *name)
{
    name_track(t, "process_name", pid, 0, name);
}

void fr__trace_thread(fr__trace *t, int pid, int tid, const char *name)
{
    name_track(t, "thread_name", pid, tid, name);
    fr__json *j = event(t, "M", "thread_sort_index",
                        pid); /* otherwise tracks are in order of their first event */
    fr__json_int(j, "tid", tid);
    fr__json_object(j, "args");
    fr__json_int(j, "sort_index", tid);
    fr__json_end(j);
    fr__json_end(j);
}

static void add_args(fr__json *j, int n_args, const fr__trace_arg *args)
{
    if (n_args == 0) return;
    fr__json_object(j, "args");
    for (int i = 0; i < n_args; i++) fr__json_int(j, args[i].key, args[i].value);
    fr__json_end(j);
}

void fr__trace_add(fr__trace *t, const fr__trace_slice *s, int n_args, const fr__trace_arg *args)
{
    fr__json *j = event(t, "X", s->name, s->pid);
    fr__json_int(j, "tid", s->tid);
    fr__json_text(j, "cat", s->category);
    add_stamp(t, s->start_ns);
    add_time(t, "dur", s->end_ns > s->start_ns ? s->end_ns - s->start_ns : 0);
    if (s->colour) fr__json_text(j, "cname", s->colour);
    add_args(j, n_args, args);
    fr__json_end(j);
}

static void end_of_span(fr__trace *t, const fr__trace_slice *s, bool is_end, int64_t id, int n_args,
                        const fr__trace_arg *args)
{
    fr__json *j = event(t, is_end ? "e" : "b", s->name, s->pid);
    fr__json_int(j, "tid", s->tid);
    fr__json_text(j, "cat", s->category);
    fr__json_int(j, "id", id);
    add_stamp(t, is_end ? s->end_ns : s->start_ns);
    add_args(j, n_args, args);
    fr__json_end(j);
}

void fr__trace_beside(fr__trace *t, const fr__trace_slice *s, int64_t id, int n_args,
                      const fr__trace_arg *args)
{
    end_of_span(t, s, false, id, n_args, args);
    end_of_span(t, s, true, id, 0, NULL);
}

void fr__trace_flow(fr__trace *t, const fr__trace_slice *at, uint64_t ns, bool is_head,
                    const char *name, int64_t id)
{
    fr__json *j = event(t, is_head ? "f" : "s", name, at->pid);
    fr__json_int(j, "tid", at->tid);
    fr__json_text(j, "cat", "flow"); /* readers match both ends by category, name and id */
    fr__json_int(j, "id", id);
    add_stamp(t, ns);
    if (is_head)
        fr__json_text(j, "bp", "e"); /* binds to the enclosing slice, not to the next one */
    fr__json_end(j);
}

void fr__trace_counter(fr__trace *t, int pid, uint64_t ns, const char *name, const char *unit,
                       double value)
{
    fr__json *j = event(t, "C", name, pid);
    add_stamp(t, ns);
    fr__json_object(j, "args");
    fr__json_real(j, unit, value);
    fr__json_end(j);
    fr__json_end(j);
}

fr_status fr__trace_close(fr__trace *t)
{
    fr_status status = FR_OK;
    FILE *file = t->json.file;
    fr__json_end(&t->json);
    fr__json_end(&t->json);
    bool is_whole = fr__json_finish(&t->json);
    if (fclose(file) != 0 || !is_whole)
        status = fr__io_fail(t->ctx, "write", t->path);
    else
        status = fr__rename_sync(t->ctx, t->part, t->path);
    if (status != FR_OK) remove(t->part);
    fr__free(t->path);
    fr__free(t->part);
    *t = (fr__trace){0};
    return status;
}
