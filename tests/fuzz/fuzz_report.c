/* fuzz_report.c -- any bytes as the files of a run's folder, a zero byte between two: refused with
 * a text, or shown by JSON that another reader takes. */
#include <forerun/report.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const files[] = {"metrics.jsonl", "trace.json", "summary.json", "config.yaml",
                                    "compare.json"};
enum { N_FILES = sizeof files / sizeof *files };

static char folder[] = "/tmp/forerun-fuzz-XX"
                       "XX"
                       "XX";

static void must(bool holds)
{
    if (!holds) abort();
}

static void remove_folder(void)
{
    for (int i = 0; i < N_FILES; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* An empty part is a file that is not there. */
static void put(const char *name, const uint8_t *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    if (size == 0) return;
    FILE *f = fopen(path, "wb");
    must(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void fill_folder(const uint8_t *data, size_t size)
{
    for (int i = 0; i < N_FILES; i++) {
        const uint8_t *end = size ? memchr(data, 0, size) : NULL;
        size_t n = end && i < N_FILES - 1 ? (size_t)(end - data) : size;
        put(files[i], data, n);
        n += end != NULL && i < N_FILES - 1;
        data += n, size -= n;
    }
}

static void show(bool is_live)
{
    const char *const folders[] = {folder};
    const fr_report_options o = {.max_points = 8, .max_events = 32, .live = is_live};
    fr_ctx *ctx = fr_ctx_create();
    char *text;
    size_t n;
    if (fr_report_data(ctx, 1, folders, &o, &text, &n) == FR_OK) {
        json_t *back = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
        must(json_is_object(back) && json_is_array(json_object_get(back, "runs")));
        json_decref(back);
    } else {
        must(!text && *fr_ctx_error(ctx));
    }
    fr_report_free_text(text);
    fr_ctx_free(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_made;
    if (!is_made) {
        must(mkdtemp(folder) != NULL);
        atexit(remove_folder);
        is_made = true;
    }
    fill_folder(data, size);
    show(false);
    show(true);
    return 0;
}
