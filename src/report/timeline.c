/* timeline.c -- reads the trace that sim/timeline.c and io/trace.c write.
 *
 * The name of an event gives its kind: "F3", "wait B0", "1SEND_F7" (stage 1 of several), "sum 3.7".
 * Worker names precede their events, so the limit of events per worker is known at the first
 * event. */
#include "report/timeline.h"

#include "report/reader.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const actions[] = {"F",      "B",      "I",      "W",    "SEND_F", "RECV_F",
                                      "SEND_B", "RECV_B", "REDUCE", "STEP", "R",      "sum"};
enum { N_ACTIONS = sizeof actions / sizeof *actions, MAX_LANES = 10000 };

/* The used fields of an event in the file. */
typedef struct event {
    char phase; /* X: slice; b, e: begin and end of a sum; M: name of a track */
    fr__field name, args;
    double start_us, took_us;
    int64_t process, thread, id;
} event;

/* --- one event ---------------------------------------------------------------------------- */

/* Integers in the range of int64_t only; else `missing`. */
static int64_t whole(const fr__field *f, int64_t missing)
{
    double v = f->real;
    return fabs(v) < 9e18 ? (int64_t)v : missing; /* false for NaN */
}

static bool scan_event(const fr__piece *text, event *e)
{
    fr__fields f;
    fr__field field;
    *e = (event){.phase = ' '};
    fr__fields_open(&f, text->text, text->n);
    while (fr__fields_next(&f, &field)) {
        if (fr__field_is(&field, "ph") && field.kind == FR_A_TEXT && field.n_value == 3)
            e->phase = field.value[1];
        else if (fr__field_is(&field, "name") && field.kind == FR_A_TEXT)
            e->name = field;
        else if (fr__field_is(&field, "args") && field.kind == FR_AN_OBJECT)
            e->args = field;
        else if (fr__field_is(&field, "ts"))
            e->start_us = field.real;
        else if (fr__field_is(&field, "dur"))
            e->took_us = field.real;
        else if (fr__field_is(&field, "pid"))
            e->process = whole(&field, 0);
        else if (fr__field_is(&field, "tid"))
            e->thread = whole(&field, 0);
        else if (fr__field_is(&field, "id"))
            e->id = whole(&field, 0);
    }
    return !f.failed;
}

static bool name_is(const event *e, const char *name)
{
    size_t n = strlen(name);
    return e->name.value && e->name.n_value == n + 2 && memcmp(e->name.value + 1, name, n) == 0;
}

/* -1: unknown. */
static int action_of(const event *e, bool *is_wait)
{
    const char *t = e->name.value ? e->name.value + 1 : "", *end = t;
    if (e->name.value) end += e->name.n_value - 2;
    *is_wait = end - t > 5 && memcmp(t, "wait ", 5) == 0;
    if (*is_wait) t += 5;
    while (t < end && *t >= '0' && *t <= '9') t++;
    size_t n = 0;
    while (t + n < end && (t[n] == '_' || (t[n] | 0x20) >= 'a')) n++;
    for (int i = 0; i < N_ACTIONS; i++)
        if (n == strlen(actions[i]) && memcmp(t, actions[i], n) == 0) return i;
    return -1;
}

static int to_int(int64_t v) { return v > INT32_MAX || v < -1 ? -1 : (int)v; }

static bool slice_of(const event *e, fr__slice *s)
{
    bool is_wait;
    int action = action_of(e, &is_wait);
    if (action < 0 || !(e->start_us >= 0 && e->start_us < 9e15) || !(e->took_us < 9e15))
        return false;
    *s = (fr__slice){.start_ns = llround(e->start_us * 1000),
                     .took_ns = e->took_us > 0 ? llround(e->took_us * 1000) : 0,
                     .action = (signed char)action,
                     .is_wait = is_wait,
                     .version = -1,
                     .micro = -1,
                     .ahead = -1};
    fr__fields f;
    fr__field field;
    if (!e->args.value) return true;
    fr__fields_open(&f, e->args.value, e->args.n_value);
    while (fr__fields_next(&f, &field)) {
        int64_t v = whole(&field, -1);
        if (fr__field_is(&field, "stage"))
            s->stage = to_int(v);
        else if (fr__field_is(&field, "mini_batch"))
            s->batch = v;
        else if (fr__field_is(&field, "micro_batch") || fr__field_is(&field, "bucket"))
            s->micro = to_int(v);
        else if (fr__field_is(&field, "version"))
            s->version = v;
        else if (fr__field_is(&field, "ahead"))
            s->ahead = to_int(v);
    }
    return true;
}

/* --- all events --------------------------------------------------------------------------- */

/* The lane of an event, created if missing; NULL: no memory. */
static fr__lane *lane_of(fr__lanes *t, const event *e)
{
    for (size_t k = 0; k <= t->lanes.n; k++) {
        size_t i = k ? k - 1 : t->last;
        if (i >= t->lanes.n) continue;
        fr__lane *lane = &t->lanes.at[i];
        if (lane->process == e->process && lane->thread == e->thread) return t->last = i, lane;
    }
    fr__lane made = {.process = e->process, .thread = e->thread};
    if (!fr__vec_push(&t->lanes, made)) return NULL;
    t->last = t->lanes.n - 1;
    return &t->lanes.at[t->last];
}

/* "name" of its arguments; jansson decodes escapes. */
static bool name_lane(fr__lane *lane, const event *e)
{
    json_t *args = json_loadb(e->args.value ? e->args.value : "", e->args.n_value, 0, NULL);
    const char *name = json_string_value(json_object_get(args, "name"));
    if (name) {
        fr__free(lane->name);
        lane->name = fr__strdup(name);
    }
    bool ok = !name || lane->name;
    json_decref(args);
    return ok;
}

/* The end of a sum that was kept. */
static void end_sum(fr__lane *lane, const event *e, int64_t open_id)
{
    if (lane->slices.n == 0 || open_id != e->id) return;
    fr__slice *s = &lane->slices.at[lane->slices.n - 1];
    int64_t end_ns = llround(e->start_us * 1000);
    if (end_ns > s->start_ns) s->took_ns = end_ns - s->start_ns;
}

static fr_status read_events(fr__reader *r, int64_t max_events, fr__lanes *t)
{
    int64_t most = 0, open_id = -1; /* events per worker; id of a sum without its end */
    for (;;) {
        fr__piece text;
        event e;
        fr__slice slice;
        FR_TRY(fr__reader_object(r, &text));
        if (!text.text) return FR_OK;
        if (!scan_event(&text, &e)) return fr__reader_fail(r, "not an event of a trace");
        bool is_name = e.phase == 'M' && name_is(&e, "thread_name");
        if (!is_name && !strchr("Xbe", e.phase)) continue;
        fr__lane *lane = lane_of(t, &e);
        if (t->lanes.n > MAX_LANES) return fr__reader_fail(r, "more than 10000 tracks");
        if (!lane || (is_name && !name_lane(lane, &e)))
            return fr__no_memory(r->ctx, sizeof *lane, "workers");
        if (e.phase == 'e') end_sum(lane, &e, open_id);
        if (e.phase == 'e') open_id = -1;
        if (e.phase == 'e' || is_name || !slice_of(&e, &slice)) continue;
        if (most == 0) most = max_events / (int64_t)t->lanes.n;
        if (most == 0) most = 1;
        t->n_events++;
        if ((int64_t)lane->slices.n >= most) continue;
        if (!fr__vec_push(&lane->slices, slice))
            return fr__no_memory(r->ctx, sizeof slice, "events");
        open_id = e.phase == 'b' ? e.id : -1;
    }
}

/* Order by start. Sums are recorded when they end, so they are late in the file. */
static int by_start(const void *a, const void *b)
{
    const fr__slice *x = a, *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return (x->took_ns < y->took_ns) - (x->took_ns > y->took_ns); /* the outer slice first */
}

fr_status fr__lanes_read(fr_ctx *ctx, const char *path, int64_t max_events, fr__lanes *t)
{
    fr__reader r;
    *t = (fr__lanes){.n_events = 0};
    FR_TRY(fr__reader_open(ctx, path, &r));
    fr_status status = fr__reader_list(&r);
    if (status == FR_OK) status = read_events(&r, max_events, t);
    fr__reader_close(&r);
    for (size_t i = 0; i < t->lanes.n; i++)
        if (t->lanes.at[i].slices.n)
            qsort(t->lanes.at[i].slices.at, t->lanes.at[i].slices.n, sizeof(fr__slice), by_start);
    if (status != FR_OK) fr__lanes_fini(t);
    return status;
}

void fr__lanes_fini(fr__lanes *t)
{
    for (size_t i = 0; i < t->lanes.n; i++) {
        fr__free(t->lanes.at[i].name);
        fr__vec_fini(&t->lanes.at[i].slices);
    }
    fr__vec_fini(&t->lanes);
}

/* --- as JSON ------------------------------------------------------------------------------ */

/* Microseconds, without zeros at the end. */
static int put_us(char *to, int64_t ns)
{
    int n = sprintf(to, "%lld", (long long)(ns / 1000)), rest = (int)(ns % 1000);
    if (rest == 0) return n;
    n += sprintf(to + n, ".%03d", rest);
    while (to[n - 1] == '0') n--;
    return n;
}

static void write_slice(fr__json *j, const fr__slice *s)
{
    char text[224]; /* nine numbers of at most 21 bytes */
    int n = 0;
    text[n++] = '[';
    n += put_us(text + n, s->start_ns);
    text[n++] = ',';
    n += put_us(text + n, s->took_ns);
    n += sprintf(text + n, ",%d,%d,%d,%lld,%d,%lld,%d]", s->action, s->is_wait, s->stage,
                 (long long)s->batch, s->micro, (long long)s->version, s->ahead);
    fr__json_raw(j, NULL, text, (size_t)n);
}

void fr__lanes_write(const fr__lanes *t, fr__json *j, const char *key)
{
    fr__json_object(j, key);
    fr__json_int(j, "n_events", t->n_events);
    fr__json_list(j, "actions");
    for (int i = 0; i < N_ACTIONS; i++) fr__json_text(j, NULL, actions[i]);
    fr__json_end(j);
    fr__json_list(j, "workers");
    for (size_t i = 0; i < t->lanes.n; i++) {
        const fr__lane *lane = &t->lanes.at[i];
        char number[40];
        snprintf(number, sizeof number, "worker %zu", i);
        fr__json_object(j, NULL);
        fr__json_text(j, "name", lane->name ? lane->name : number);
        fr__json_list(j, "events");
        for (size_t k = 0; k < lane->slices.n; k++) write_slice(j, &lane->slices.at[k]);
        fr__json_end(j);
        fr__json_end(j);
    }
    fr__json_end(j);
    fr__json_end(j);
}
