/* runs.c -- finds the runs of a report.
 *
 * compare.json lists the folders of a comparison's runs, relative to its own (docs/compare.md). */
#include "report/runs.h"

#include "checkpoint/folder.h"
#include "io/file.h"

#include <dirent.h>
#include <jansson.h>
#include <string.h>

enum { MAX_DOCUMENT = 1 << 28 }; /* bytes of a summary or of a comparison */

fr_status fr__load_object(fr_ctx *ctx, const char *path, char **text, size_t *n, json_t **object)
{
    json_error_t error;
    unsigned char *data;
    *object = NULL, *text = NULL;
    FR_TRY(fr__file_read_regular(ctx, path, MAX_DOCUMENT, &data, n));
    *object = json_loadb((const char *)data, *n, 0, &error);
    *text = (char *)data;
    fr_status status = FR_OK;
    if (!*object)
        status =
            fr_fail(ctx, FR_INVALID, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    else if (!json_is_object(*object))
        status = fr_fail(ctx, FR_INVALID, "%s: expected an object", path);
    if (status == FR_OK) return FR_OK;
    json_decref(*object);
    fr__free(*text);
    *object = NULL, *text = NULL;
    return status;
}

static bool holds(const char *folder, const char *file)
{
    char path[FR_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    return n > 0 && n < FR_PATH && fr__file_exists(path);
}

/* A run creates its metrics file first. */
static bool is_run(const char *folder)
{
    return holds(folder, "metrics.jsonl") || holds(folder, "summary.json");
}

/* Add a run once, even if it is named several times. */
static fr_status add(fr_ctx *ctx, fr__runs *r, const char *folder)
{
    for (size_t i = 0; i < r->list.n; i++)
        if (strcmp(r->list.at[i].folder, folder) == 0) return FR_OK;
    fr__shown s = {.folder = fr__arena_strdup(&r->arena, folder)};
    return s.folder && fr__vec_push(&r->list, s) ? FR_OK : fr__no_memory(ctx, sizeof s, folder);
}

static fr_status add_case(fr_ctx *ctx, fr__runs *r, const char *folder, const json_t *one)
{
    size_t i;
    const json_t *run;
    json_array_foreach(json_object_get(one, "runs"), i, run)
    {
        char path[FR_PATH];
        if (!json_is_string(run))
            return fr_fail(ctx, FR_INVALID, "%s/compare.json: expected names of folders in runs",
                           folder);
        FR_TRY(fr__path(ctx, path, "%s/%s", folder, json_string_value(run)));
        if (is_run(path)) FR_TRY(add(ctx, r, path)); /* skip runs that have not started */
    }
    return FR_OK;
}

static fr_status add_comparison(fr_ctx *ctx, fr__runs *r, const char *folder)
{
    char path[FR_PATH], *text;
    size_t n, i;
    json_t *o, *one;
    FR_TRY(fr__path(ctx, path, "%s/compare.json", folder));
    FR_TRY(fr__load_object(ctx, path, &text, &n, &o));
    fr_status status = FR_OK;
    json_array_foreach(json_object_get(o, "cases"), i, one)
    {
        if (status == FR_OK) status = add_case(ctx, r, folder, one);
    }
    const char *title = json_string_value(json_object_get(o, "title"));
    if (title && status == FR_OK) {
        r->title = fr__arena_strdup(&r->arena, title);
        if (!r->title) status = fr__no_memory(ctx, 0, path);
    }
    json_decref(o);
    fr__free(text);
    FR_TRY(status);
    r->compare = fr__arena_strdup(&r->arena, path);
    return r->compare ? FR_OK : fr__no_memory(ctx, sizeof path, path);
}

/* The message mentions runs one level below. */
static fr_status no_run(fr_ctx *ctx, const char *folder)
{
    const char *hint = "";
    DIR *d = opendir(folder);
    if (!d) return fr__io_fail(ctx, "open folder", folder);
    for (struct dirent *e; !hint[0] && (e = readdir(d));) {
        char path[FR_PATH];
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && n < FR_PATH && is_run(path))
            hint = "; there are runs in its subfolders: name those";
    }
    closedir(d);
    return fr_fail(
        ctx, FR_INVALID,
        "%s: not a run (no metrics.jsonl, no summary.json) and not a comparison (compare.json)%s",
        folder, hint);
}

fr_status fr__runs_find(fr_ctx *ctx, int n, const char *const *folders, fr__runs *r)
{
    int n_comparisons = 0;
    fr_status status = FR_OK;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < n && status == FR_OK; i++) {
        bool is_comparison = holds(folders[i], "compare.json");
        n_comparisons += is_comparison;
        if (is_comparison)
            status = add_comparison(ctx, r, folders[i]);
        else if (is_run(folders[i]))
            status = add(ctx, r, folders[i]);
        else
            status = no_run(ctx, folders[i]);
    }
    if (n != 1 || n_comparisons != 1) r->title = NULL;
    if (n_comparisons != 1) r->compare = NULL; /* shown only for a single comparison */
    if (status == FR_OK && r->list.n > 0) status = fr__name_runs(ctx, r);
    if (status != FR_OK) fr__runs_fini(r);
    return status;
}

void fr__runs_fini(fr__runs *r)
{
    fr__vec_fini(&r->list);
    fr__arena_fini(&r->arena);
    memset(r, 0, sizeof *r);
}
