/* data.c -- run folders as the JSON that the page reads (docs/report.md).
 *
 * Runs are read and written one by one, so memory holds the text and one run. Missing parts are
 * null: an unfinished run is shown as far as it got. */
#include "report/data.h"

#include <forerun/io.h>

#include "checkpoint/folder.h"
#include "io/file.h"
#include "io/json.h"
#include "report/curves.h"
#include "report/runs.h"
#include "report/timeline.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_POINTS = 1000,
    MAX_EVENTS = 60000,
    MAX_CONFIG = 1 << 24,
    LEAST_EVENT = 150 /* lower bound of an event's bytes in a trace */
};

typedef struct report {
    fr_ctx *ctx;
    const fr_report_options *o;
    fr__runs runs;
    int64_t *budgets; /* [run]: events of its timeline */
    fr__json json;
    /* For the title: common to all runs, else "". */
    char model[128], data[256];
    bool has_named; /* a summary has been read */
} report;

/* --- distribution of events --------------------------------------------------------------- */

/* Max-min fair shares: small wishes are met in full, the others divide the rest evenly. */
static void share_out(int64_t total, size_t n, const int64_t *wishes, int64_t *shares)
{
    size_t n_open = n;
    for (size_t i = 0; i < n; i++) shares[i] = -1;
    for (bool has_changed = true; has_changed && n_open > 0;) {
        int64_t fair = total / (int64_t)n_open;
        has_changed = false;
        for (size_t i = 0; i < n; i++) {
            if (shares[i] >= 0 || wishes[i] > fair) continue;
            shares[i] = wishes[i];
            total -= wishes[i];
            n_open--;
            has_changed = true;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (shares[i] < 0) shares[i] = total / (int64_t)n_open;
}

static fr_status plan_events(report *q)
{
    size_t n = q->runs.list.n;
    if (n == 0) return FR_OK;
    int64_t *wishes = FR_ARENA_ARRAY(&q->runs.arena, int64_t, n);
    q->budgets = FR_ARENA_ARRAY(&q->runs.arena, int64_t, n);
    if (!wishes || !q->budgets) return fr__no_memory(q->ctx, n * sizeof *wishes, "events");
    for (size_t i = 0; i < n; i++) {
        char path[FR_PATH];
        struct stat info;
        FR_TRY(fr__path(q->ctx, path, "%s/trace.json", q->runs.list.at[i].folder));
        wishes[i] = stat(path, &info) == 0 ? (int64_t)info.st_size / LEAST_EVENT : 0;
    }
    share_out(q->o->max_events > 0 ? q->o->max_events : MAX_EVENTS, n, wishes, q->budgets);
    return FR_OK;
}

/* --- one run ------------------------------------------------------------------------------ */

/* Remove the blanks between JSON tokens. */
static size_t squeeze(char *text, size_t n)
{
    size_t to = 0;
    bool in_text = false, is_escaped = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (!in_text && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) continue;
        if (c == '"' && !is_escaped) in_text = !in_text;
        is_escaped = in_text && c == '\\' && !is_escaped;
        text[to++] = c;
    }
    return to;
}

/* `to` keeps its value if all runs agree, else it becomes "". */
static void agree(char *to, size_t room, const json_t *o, const char *key, bool is_first)
{
    const char *text = json_string_value(json_object_get(o, key));
    if (is_first)
        snprintf(to, room, "%s", text ? text : "");
    else if (!text || strcmp(to, text) != 0)
        to[0] = '\0';
}

static fr_status write_summary(report *q, const char *folder, bool *is_there, bool *is_emulated)
{
    char path[FR_PATH], *text;
    size_t n;
    json_t *o;
    FR_TRY(fr__path(q->ctx, path, "%s/summary.json", folder));
    *is_there = !q->o->live && fr__file_exists(path);
    *is_emulated = false;
    if (!*is_there) return fr__json_null(&q->json, "summary"), FR_OK;
    FR_TRY(fr__load_object(q->ctx, path, &text, &n, &o));
    *is_emulated = json_is_object(json_object_get(o, "emulated"));
    agree(q->model, sizeof q->model, o, "model", !q->has_named);
    agree(q->data, sizeof q->data, o, "data", !q->has_named);
    q->has_named = true;
    fr__json_raw(&q->json, "summary", text, squeeze(text, n));
    json_decref(o);
    fr__free(text);
    return FR_OK;
}

/* The comment at the head of the text, without comment marks, or NULL. Modifies the text. */
static char *head_comment(char *text)
{
    char *from = text, *to = text;
    while (*from == '#') {
        from += 1 + (from[1] == ' ');
        size_t n = strcspn(from, "\n");
        memmove(to, from, n);
        to += n;
        from += n;
        if (*from == '\n') *to++ = *from++;
    }
    while (to > text && to[-1] == '\n') to--;
    if (to == text) return NULL;
    *to = '\0';
    return text;
}

/* Only the config of an unfinished run describes its hardware. */
static fr_status is_on_cluster(report *q, const char *text, size_t n, const char *path, bool *is_so)
{
    fr_conf *root, *parallel;
    const char *cluster = "";
    FR_TRY(fr_conf_parse(q->ctx, text, n, path, &root));
    fr_status status = fr_conf_section(root, "parallel", &parallel);
    if (status == FR_OK && fr_conf_has(parallel, "cluster"))
        status = fr_conf_text(parallel, "cluster", "", &cluster);
    *is_so = cluster[0] != '\0';
    fr_conf_free(root);
    return status;
}

static fr_status write_config(report *q, const char *folder, bool has_summary, bool *is_emulated)
{
    char path[FR_PATH];
    unsigned char *data;
    size_t n;
    FR_TRY(fr__path(q->ctx, path, "%s/config.yaml", folder));
    if (!fr__file_exists(path)) {
        fr__json_text(&q->json, "config", "");
        fr__json_null(&q->json, "plan");
        return FR_OK;
    }
    FR_TRY(fr__file_read_regular(q->ctx, path, MAX_CONFIG, &data, &n));
    char *text = (char *)data;
    fr_status status = has_summary ? FR_OK : is_on_cluster(q, text, n, path, is_emulated);
    fr__json_text(&q->json, "config", text);
    fr__json_text(&q->json, "plan", head_comment(text));
    fr__free(data);
    return status;
}

static fr_status write_curves(report *q, const char *folder)
{
    char path[FR_PATH];
    fr__curves c;
    FR_TRY(fr__path(q->ctx, path, "%s/metrics.jsonl", folder));
    FR_TRY(fr__curves_read(q->ctx, path, q->o->max_points > 0 ? q->o->max_points : MAX_POINTS, &c));
    fr__curves_write(&c, &q->json);
    fr__curves_fini(&c);
    return FR_OK;
}

static fr_status write_timeline(report *q, const char *folder, int64_t budget)
{
    char path[FR_PATH];
    fr__lanes t;
    FR_TRY(fr__path(q->ctx, path, "%s/trace.json", folder));
    if (!fr__file_exists(path)) return fr__json_null(&q->json, "timeline"), FR_OK;
    FR_TRY(fr__lanes_read(q->ctx, path, budget, &t));
    fr__lanes_write(&t, &q->json, "timeline");
    fr__lanes_fini(&t);
    return FR_OK;
}

static fr_status write_run(report *q, size_t i)
{
    const fr__shown *s = &q->runs.list.at[i];
    bool has_summary, is_emulated;
    fr__json_object(&q->json, NULL);
    fr__json_text(&q->json, "name", s->name);
    fr__json_text(&q->json, "folder", s->folder);
    FR_TRY(write_summary(q, s->folder, &has_summary, &is_emulated));
    FR_TRY(write_config(q, s->folder, has_summary, &is_emulated));
    fr__json_text(&q->json, "kind", is_emulated ? "emulated" : "measured");
    FR_TRY(write_curves(q, s->folder));
    FR_TRY(write_timeline(q, s->folder, q->budgets[i]));
    fr__json_end(&q->json);
    return FR_OK;
}

/* --- all runs ----------------------------------------------------------------------------- */

static fr_status write_compare(report *q)
{
    const char *path = q->o->compare ? q->o->compare : q->runs.compare;
    char *text;
    size_t n;
    json_t *o;
    if (!path) return fr__json_null(&q->json, "compare"), FR_OK;
    FR_TRY(fr__load_object(q->ctx, path, &text, &n, &o));
    fr__json_raw(&q->json, "compare", text, squeeze(text, n));
    json_decref(o);
    fr__free(text);
    return FR_OK;
}

/* "seed-1: vgg16 on cifar10", "dp, 1f1b and 6 more: ..." */
static const char *make_title(report *q)
{
    const fr__shown *s = q->runs.list.at;
    size_t n = q->runs.list.n;
    char more[48] = "", about[400] = "";
    if (q->o->title) return q->o->title;
    if (q->runs.title) return q->runs.title;
    if (n == 0) return "comparison";
    if (n > 3) snprintf(more, sizeof more, " and %zu more", n - 2);
    if (q->model[0] && q->data[0]) snprintf(about, sizeof about, ": %s on %s", q->model, q->data);
    return fr__arena_printf(&q->runs.arena, "%s%s%s%s%s%s%s", s[0].name, n > 1 ? ", " : "",
                            n > 1 ? s[1].name : "", n == 3 ? ", " : "", n == 3 ? s[2].name : "",
                            more, about);
}

static fr_status write_all(report *q, fr__text *title)
{
    fr__json *j = &q->json;
    FR_TRY(plan_events(q));
    fr__json_object(j, NULL);
    fr__json_int(j, "format", 1);
    fr__json_text(j, "forerun", fr_version());
    fr__json_bool(j, "live", q->o->live);
    fr__json_list(j, "runs");
    for (size_t i = 0; i < q->runs.list.n; i++) FR_TRY(write_run(q, i));
    fr__json_end(j);
    FR_TRY(write_compare(q));
    const char *text = make_title(q);
    if (text) fr__text_put(title, text);
    if (!text || title->failed) return fr__no_memory(q->ctx, 0, "title of the report");
    fr__json_text(j, "title", text);
    fr__json_end(j);
    return FR_OK;
}

fr_status fr__report_data(fr_ctx *ctx, int n, const char *const *folders,
                          const fr_report_options *o, fr__text *data, fr__text *title)
{
    static const fr_report_options presets;
    report q = {.ctx = ctx, .o = o ? o : &presets};
    if (n < 1 && !q.o->compare) return fr_fail(ctx, FR_INVALID, "a report needs a run");
    FR_TRY(fr__runs_find(ctx, n, folders, &q.runs));
    fr__json_to(&q.json, fr__text_put_json, data);
    fr_status status = write_all(&q, title);
    if (status == FR_OK && !fr__json_finish(&q.json))
        status = fr__no_memory(ctx, data->n, "data of the report");
    fr__runs_fini(&q.runs);
    if (status == FR_OK) return FR_OK;
    fr__text_fini(data);
    fr__text_fini(title);
    return status;
}
