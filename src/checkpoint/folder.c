/* folder.c -- a run's folder on disk.
 *
 * Names that begin with a dot are incomplete: a checkpoint is written as `.tmp-step-N` and
 * renamed when it is whole; an old one is renamed to `.old-step-N` before its files are removed. So
 * a folder called step-N is always complete, whenever a process is killed. */
#include "checkpoint/folder.h"

#include "io/file.h"
#include "io/number.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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
    /* Every run creates its metrics file first, so a config alone is not a run. */
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

/* Partial files of a killed run. */
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

static fr_status lock(fr_ctx *ctx, fr__folder *f)
{
    struct stat info;
    f->lock_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock_fd < 0 || fstat(f->lock_fd, &info) != 0)
        return fr__io_fail(ctx, "open folder", f->path);
    f->device = info.st_dev, f->inode = info.st_ino;
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) == 0) return FR_OK;
    if (errno == EWOULDBLOCK)
        return fr_fail(ctx, FR_INVALID,
                       "%s: another run is writing there; wait for it or choose another --out",
                       f->path);
    fr_log(ctx, FR_LOG_WARN, "%s: cannot be locked (%s): a second run there will not be refused",
           f->path, strerror(errno));
    return FR_OK;
}

fr_status fr__folder_open(fr_ctx *ctx, const char *path, bool resume, fr__folder *f)
{
    memset(f, 0, sizeof *f);
    f->lock_fd = f->checkpoint_fd = -1;
    FR_TRY(fr__path(ctx, f->path, "%s", path));
    FR_TRY(fr__path(ctx, f->checkpoints, "%s/checkpoint", path));
    FR_TRY(fr__folder_check(ctx, path, resume));
    FR_TRY(fr__dir_make(ctx, path));
    fr_status status = lock(ctx, f);
    /* Check again under the lock: the locked folder may have been removed, and two new runs may
     * have made the first check at the same time. */
    if (status == FR_OK) status = fr__folder_held(ctx, f);
    if (status == FR_OK) status = fr__folder_check(ctx, path, resume);
    if (status == FR_OK) status = remove_leftovers(ctx, f->path);
    if (status == FR_OK) status = remove_leftovers(ctx, f->checkpoints);
    if (status == FR_OK) status = fr__dir_make(ctx, f->checkpoints);
    if (status == FR_OK) {
        f->checkpoint_fd = fr__open_in(f->lock_fd, f->checkpoints, O_RDONLY | O_DIRECTORY);
        if (f->checkpoint_fd < 0) status = fr__io_fail(ctx, "open folder", f->checkpoints);
    }
    if (status != FR_OK) fr__folder_close(f);
    return status;
}

void fr__folder_close(fr__folder *f)
{
    if (f->lock_fd >= 0) close(f->lock_fd);
    if (f->checkpoint_fd >= 0) close(f->checkpoint_fd);
    f->lock_fd = f->checkpoint_fd = -1;
}

bool fr__folder_is_held(const fr__folder *f)
{
    struct stat info;
    return stat(f->path, &info) == 0 && info.st_dev == f->device && info.st_ino == f->inode;
}

fr_status fr__folder_held(fr_ctx *ctx, const fr__folder *f)
{
    return fr__folder_is_held(f) ? FR_OK : fr__folder_lost(ctx, f);
}

fr_status fr__folder_lost(fr_ctx *ctx, const fr__folder *f)
{
    return fr_fail(ctx, FR_IO,
                   "%s: the run's folder was moved, removed or replaced while the run wrote there; "
                   "the run ends here and writes nothing more. If it was moved, continue with "
                   "--resume and its new path as --out",
                   f->path);
}

fr_status fr__folder_file(fr_ctx *ctx, const fr__folder *f, const char *name, char path[FR_PATH])
{
    FR_TRY(fr__folder_held(ctx, f));
    FR_TRY(fr__path(ctx, path, "%s/%s", f->path, name));
    if (!fr__is_stream(-1, path)) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: a pipe or a device in place of a file of the run; remove it", path);
}

/* True only for names that the writer uses. */
static bool scan_step(const char *name, int64_t *step)
{
    char same[32];
    if (strncmp(name, "step-", 5) != 0 || !fr__int_scan(name + 5, step) || *step < 0) return false;
    snprintf(same, sizeof same, "step-%lld", (long long)*step);
    return strcmp(same, name) == 0;
}

bool fr__folder_step_of(const char *path, int64_t *step)
{
    char name[32];
    size_t end = strlen(path), begin;
    while (end > 0 && path[end - 1] == '/') end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';) begin--;
    if (end - begin >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), path + begin);
    return scan_step(name, step);
}

static int newer_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

fr_status fr__folder_steps(fr_ctx *ctx, const char *checkpoints, fr__steps *steps)
{
    memset(steps, 0, sizeof *steps);
    DIR *d = opendir(checkpoints);
    if (!d && errno == ENOENT) return FR_OK;
    if (!d) return fr__io_fail(ctx, "open folder", checkpoints);
    fr_status status = FR_OK;
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step;
        if (!scan_step(e->d_name, &step) || fr__vec_push(steps, step)) continue;
        status = fr__no_memory(ctx, 0, "list of checkpoints");
        break;
    }
    closedir(d);
    if (steps->n) qsort(steps->at, steps->n, sizeof *steps->at, newer_first);
    return status;
}

fr_status fr__folder_discard(fr_ctx *ctx, int dir, const char *parent, const char *name)
{
    char from[FR_PATH], to[FR_PATH];
    FR_TRY(fr__path(ctx, from, "%s/%s", parent, name));
    FR_TRY(fr__path(ctx, to, "%s/.old-%s", parent, name));
    FR_TRY(fr__rename_sync_in(ctx, dir, from, to));
    return fr__unlink_in(dir, to) == 0 ? FR_OK : fr__dir_remove_in(ctx, dir, to);
}
