/* folders.h -- artificial folders of runs, and the data of a report read back. */
#ifndef FR_TEST_REPORT_FOLDERS_H
#define FR_TEST_REPORT_FOLDERS_H

#include "support/check.h"
#include <forerun/report.h>

#include <jansson.h>
#include <sys/stat.h>

/* A context and a folder for all tests of a program. */
static fr_ctx *ctx;

static inline int folders_enter(void **state)
{
    ctx = fr_ctx_create();
    return ctx ? support_dir_make(state) : -1;
}

static inline int folders_leave(void **state)
{
    fr_ctx_free(ctx);
    return support_dir_remove(state);
}

typedef struct place {
    char path[512];
} place;

static inline place put_file(const char *folder, const char *name, const char *text)
{
    place p;
    mkdir(folder, 0777);
    assert_int_in_range(snprintf(p.path, sizeof p.path, "%s/%s", folder, name), 1,
                        sizeof p.path - 1);
    remove(p.path); /* some file systems flush what is cut back and written anew */
    support_write(p.path, text, strlen(text));
    return p;
}

/* A folder below that of the test. */
static inline place below(void **state, const char *name)
{
    place p;
    assert_int_in_range(snprintf(p.path, sizeof p.path, "%s/%s", (const char *)*state, name), 1,
                        sizeof p.path - 1);
    return p;
}

/* Loss 1 / step; an evaluation after the last one. */
static inline void put_metrics(const char *folder, int n_steps)
{
    place p = put_file(folder, "metrics.jsonl", "");
    FILE *f = fopen(p.path, "w");
    assert_non_null(f);
    for (int i = 1; i <= n_steps; i++)
        fprintf(f,
                "{\"step\": %d, \"samples\": %d, \"loss\": %.17g, \"lr\": 0.001, "
                "\"samples_per_s\": 1000.5, \"elapsed_s\": %.17g%s}\n",
                i, 8 * i, 1.0 / i, 0.125 * i,
                i == n_steps ? ", \"eval_loss\": 0.5, \"eval_accuracy\": 0.75" : "");
    assert_int_equal(fclose(f), 0);
}

static inline void put_run(const char *folder, int n_steps)
{
    put_metrics(folder, n_steps);
    put_file(folder, "summary.json",
             "{\n  \"status\": \"done\",\n  \"model\": \"mlp\",\n  \"data\": \"digits\"\n}\n");
    put_file(folder, "config.yaml", "model:\n  name: mlp\n");
}

/* A trace of n_workers workers, each with n_forwards forwards. */
static inline void put_trace(const char *folder, int n_workers, int n_events)
{
    place p = put_file(folder, "trace.json", "");
    FILE *f = fopen(p.path, "w");
    assert_non_null(f);
    fprintf(f, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int w = 0; w < n_workers; w++)
        fprintf(f,
                "%s{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": %d, "
                "\"args\": {\"name\": \"worker %d\"}}\n",
                w ? ", " : "", w + 1, w);
    for (int w = 0; w < n_workers; w++)
        for (int i = 0; i < n_events; i++)
            fprintf(f,
                    ", {\"ph\": \"X\", \"name\": \"F%d\", \"pid\": 1, \"tid\": %d, \"cat\": "
                    "\"forward\", \"ts\": %d.25, \"dur\": 7.5, \"args\": {\"stage\": %d, "
                    "\"mini_batch\": %d, \"micro_batch\": 0, \"version\": %d, \"ahead\": 2}}\n",
                    i, w + 1, 10 * i, w, i, i);
    fprintf(f, "]}\n");
    assert_int_equal(fclose(f), 0);
}

/* `text` with some of its bytes changed, removed or doubled, depending on the seed. */
static inline void spoil(const char *text, uint64_t seed, char *to, size_t room)
{
    static const char bytes[] = "{}[]\",:\\\n 0-.eE\x01\xFF"
                                "ntf";
    size_t n = 0;
    for (; *text && n + 2 < room; text++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t dice = seed >> 33;
        if (dice % 64 == 1) continue;
        if (dice % 64 == 2) to[n++] = *text;
        to[n++] = dice % 64 == 3 ? bytes[dice / 64 % (sizeof bytes - 1)] : *text;
    }
    to[n] = '\0';
}

/* The data of a report, which must be JSON. */
static inline json_t *data_of(int n, const char *const *folders, const fr_report_options *o)
{
    char *text;
    size_t bytes;
    json_error_t error;
    assert_ok(ctx, fr_report_data(ctx, n, folders, o, &text, &bytes));
    assert_int_equal(strlen(text), bytes);
    json_t *data = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!data) fail_msg("%d:%d: %s", error.line, error.column, error.text);
    fr_report_free_text(text);
    return data;
}

/* "runs.0.name": an item by the way to it. */
static inline json_t *item(json_t *from, const char *way)
{
    char part[64];
    while (from && *way) {
        size_t n = strcspn(way, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, way);
        from = json_is_array(from) ? json_array_get(from, strtoul(part, NULL, 10))
                                   : json_object_get(from, part);
        way += n + (way[n] == '.');
    }
    if (!from) fail_msg("nothing at %s", way);
    return from;
}

static inline double real_at(json_t *from, const char *way)
{
    json_t *number = item(from, way);
    if (!json_is_number(number)) fail_msg("%s is no number", way);
    return json_number_value(number);
}

static inline const char *text_at(json_t *from, const char *way)
{
    const char *text = json_string_value(item(from, way));
    if (!text) fail_msg("%s is no text", way);
    return text;
}

static inline size_t length_at(json_t *from, const char *way)
{
    return json_array_size(item(from, way));
}

#endif
