/* folder.c -- a run's folder on disk.
 *
 * Names that begin with a dot are half made or half removed: a checkpoint is written as
 * `.tmp-step-N` and renamed when whole, an old one is renamed to `.old-step-N` before its files go.
 * So a folder called step-N is complete at every moment, whatever is killed when. */
#include "train/folder.h"

#include "io/file.h"
#include "io/number.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

fr_status fr__path(fr_ctx *ctx, char out[FR_PATH], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, FR_PATH, format, args);
    va_end(args);
    if (n >= 0 && n < FR_PATH) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "%.60s...: the path is longer than %d bytes", out, FR_PATH);
}

static bool exists_in(const char *folder, const char *name)
{
    char path[FR_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && n < FR_PATH && access(path, F_OK) == 0;
}

fr_status fr__folder_check(fr_ctx *ctx, const char *path, bool resume)
{
    static const char *const files[] = {"checkpoint", "metrics.jsonl", "summary.json",
                                        "config.yaml"};
    /* Every run makes its metrics file first, so a config alone is somebody else's. */
    if (resume) {
        if (exists_in(path, "config.yaml") && !exists_in(path, "metrics.jsonl") &&
            !exists_in(path, "checkpoint"))
            return fr_fail(ctx, FR_INVALID,
                           "%s: has a config.yaml but no run; choose another folder with --out",
                           path);
        return FR_OK;
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (exists_in(path, files[i]))
            return fr_fail(ctx, FR_INVALID,
                           "%s: already holds a run (%s is there); continue it with --resume or "
                           "choose another folder with --out",
                           path, files[i]);
    return FR_OK;
}

static bool is_leftover(const char *name)
{
    static const char *const patterns[] = {".tmp-*", ".old-*", "*.json.*.tmp", "*.yaml.*.tmp",
                                           "*.html.*.tmp"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return false;
}

/* What a killed run was in the middle of. */
static fr_status remove_leftovers(fr_ctx *ctx, const char *parent)
{
    DIR *d = opendir(parent);
    if (!d) return FR_OK;
    fr_status status = FR_OK;
    for (struct dirent *e; status == FR_OK && (e = readdir(d));) {
        char path[FR_PATH];
        if (!is_leftover(e->d_name)) continue;
        status = fr__path(ctx, path, "%s/%s", parent, e->d_name);
        if (status == FR_OK && unlink(path) != 0) status = fr__dir_remove(ctx, path);
    }
    closedir(d);
    return status;
}

fr_status fr__folder_open(fr_ctx *ctx, const char *path, bool resume, fr_folder *f)
{
    memset(f, 0, sizeof *f);
    f->lock_fd = -1;
    FR_TRY(fr__path(ctx, f->path, "%s", path));
    FR_TRY(fr__path(ctx, f->checkpoints, "%s/checkpoint", path));
    FR_TRY(fr__folder_check(ctx, path, resume));
    FR_TRY(fr__dir_make(ctx, path));
    f->lock_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock_fd < 0) return fr__io_fail(ctx, "open folder", path);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        fr__folder_close(f);
        return fr_fail(ctx, FR_INVALID,
                       "%s: another run is writing there; wait for it or choose another --out",
                       path);
    }
    /* Once more under the lock: two new runs may have looked at the same moment. */
    fr_status status = fr__folder_check(ctx, path, resume);
    if (status == FR_OK) status = remove_leftovers(ctx, f->path);
    if (status == FR_OK) status = remove_leftovers(ctx, f->checkpoints);
    if (status == FR_OK) status = fr__dir_make(ctx, f->checkpoints);
    if (status != FR_OK) fr__folder_close(f);
    return status;
}

void fr__folder_close(fr_folder *f)
{
    if (f->lock_fd >= 0) close(f->lock_fd);
    f->lock_fd = -1;
}

static int newer_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

fr_status fr__folder_steps(fr_ctx *ctx, const char *checkpoints, fr_steps *steps)
{
    memset(steps, 0, sizeof *steps);
    DIR *d = opendir(checkpoints);
    if (!d && errno == ENOENT) return FR_OK;
    if (!d) return fr__io_fail(ctx, "open folder", checkpoints);
    fr_status status = FR_OK;
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step;
        char name[32];
        if (strncmp(e->d_name, "step-", 5) != 0 || !fr__int_scan(e->d_name + 5, &step)) continue;
        snprintf(name, sizeof name, "step-%lld", (long long)step);
        if (step < 0 || strcmp(name, e->d_name) != 0) continue;
        if (fr__vec_push(steps, step)) continue;
        status = fr__no_memory(ctx, 0, "list of checkpoints");
        break;
    }
    closedir(d);
    if (steps->n) qsort(steps->at, steps->n, sizeof *steps->at, newer_first);
    return status;
}

fr_status fr__folder_discard(fr_ctx *ctx, const char *parent, const char *name)
{
    char from[FR_PATH], to[FR_PATH];
    FR_TRY(fr__path(ctx, from, "%s/%s", parent, name));
    FR_TRY(fr__path(ctx, to, "%s/.old-%s", parent, name));
    FR_TRY(fr__rename_sync(ctx, from, to));
    return fr__dir_remove(ctx, to);
}
