/* file.c -- reads whole files into memory and replaces files atomically.
 *
 * A name is durable only after its folder has been synced, so every rename here also syncs the
 * folder. */
#include "io/file.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 16, MAX_PATH = 4096 };
/* Beyond this many unpacked bytes, the ratio of a packed file is limited. Data shrink to a fifth or
 * a tenth; a file that shrinks to a thousandth is made to exhaust the memory. */
enum { MOST_FREE = (1 << 25) - CHUNK, MOST_RATIO = 200 }; /* reached before room doubles there */

/* A missing or forbidden name is bad input, which the user can correct; other errors are those of
 * the disk. */
static fr_status status_of(int code, const char **remedy)
{
    *remedy = "";
    switch (code) {
    case EACCES:
    case EPERM:
    case EROFS: *remedy = "; choose another place or change its permissions"; return FR_INVALID;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG: return FR_INVALID;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: *remedy = "; free some space or choose another disk"; return FR_IO;
    default: return FR_IO;
    }
}

fr_status fr__io_fail(fr_ctx *ctx, const char *what, const char *path)
{
    int code = errno;
    const char *remedy;
    fr_status status = status_of(code, &remedy);
    return fr_fail(ctx, status, "cannot %s %s: %s%s", what, path, strerror(code), remedy);
}

fr_status fr__fd_write(fr_ctx *ctx, int fd, const char *path, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return fr__io_fail(ctx, "write", path);
        from += n, bytes -= (size_t)n;
    }
    return FR_OK;
}

/* --- reading ------------------------------------------------------------------------------ */

/* Bytes read so far. One more than max_bytes may be read, to distinguish "full" from "too much". */
struct sink {
    fr_ctx *ctx;
    const char *path;
    unsigned char *data;
    size_t n, room, max_bytes;
    size_t n_packed;           /* gzip bytes that they were unpacked from */
    const fr__file_head *head; /* header to check; NULL: none, or already checked */
    bool is_judged;            /* max_bytes comes from the header */
};

/* When the header, or the whole file, has been read, the header determines how much to read. */
static fr_status sink_judge(struct sink *s, bool at_end)
{
    const fr__file_head *head = s->head;
    size_t bytes = 0;
    if (!head || (s->n < head->bytes && !at_end)) return FR_OK;
    s->head = NULL;
    FR_TRY(head->size(s->ctx, s->path, s->data, s->n, &bytes));
    if (bytes > s->max_bytes)
        return fr_fail(s->ctx, FR_INVALID, "%s: the header declares %zu bytes; the limit is %zu",
                       s->path, bytes, s->max_bytes);
    fr_machine m = {0};
    if (bytes > MOST_FREE) fr_machine_read(&m);
    if (m.memory_bytes > 0 && bytes > m.memory_bytes)
        return fr_fail(s->ctx, FR_NO_MEMORY,
                       "%s: the header declares %.1f GB, but this machine has %.1f GB of memory",
                       s->path, (double)bytes / 1e9, (double)m.memory_bytes / 1e9);
    s->max_bytes = bytes;
    s->is_judged = true;
    return FR_OK;
}

static fr_status too_much(const struct sink *s)
{
    return fr_fail(s->ctx, FR_INVALID,
                   s->is_judged ? "%s: the header declares %zu bytes, but the file has more"
                                : "%s: more than %zu bytes of data",
                   s->path, s->max_bytes);
}

/* Make room for at least one more byte and the terminating zero. */
static fr_status sink_grow(struct sink *s, size_t hint)
{
    if (s->n > s->max_bytes) return too_much(s);
    if (s->room - s->n > 1) return FR_OK;
    size_t room = s->room ? 2 * s->room : hint;
    if (room < hint) room = hint;
    if (room < CHUNK) room = CHUNK;
    if (room - 2 > s->max_bytes) room = s->max_bytes + 2;
    unsigned char *grown = fr__realloc(s->data, s->n, room);
    if (!grown) return fr__no_memory(s->ctx, room, s->path);
    s->data = grown;
    s->room = room;
    return FR_OK;
}

/* *n = 0 at the end of the file. */
static fr_status read_some(fr_ctx *ctx, int fd, const char *path, void *to, size_t room, size_t *n)
{
    ssize_t got;
    do {
        got = read(fd, to, room);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fr__io_fail(ctx, "read", path);
    *n = (size_t)got;
    return FR_OK;
}

/* size: of the file; 0 if unknown (a pipe). */
static fr_status read_plain(struct sink *s, int fd, size_t size)
{
    size_t got = 0;
    if (size > s->max_bytes && !s->head) return too_much(s);
    do {
        FR_TRY(sink_grow(s, s->head ? s->head->bytes + 2 : size + 2));
        FR_TRY(read_some(s->ctx, fd, s->path, s->data + s->n, s->room - 1 - s->n, &got));
        s->n += got;
        FR_TRY(sink_judge(s, got == 0));
        if (s->is_judged && size > 0 && size != s->max_bytes)
            return fr_fail(
                s->ctx, FR_INVALID,
                "%s: the header declares %zu bytes, but the file has %zu; is it complete?", s->path,
                s->max_bytes, size);
    } while (got > 0);
    return FR_OK;
}

/* Inflate one piece of input. *at_end: it stopped between two members. If the output is full, the
 * rest follows with the next piece, because at least the checksum is still unread. */
static fr_status inflate_piece(struct sink *s, z_stream *z, bool *at_end)
{
    while (z->avail_in > 0) {
        if (*at_end && inflateReset(z) != Z_OK)
            return fr_fail(s->ctx, FR_INTERNAL, "%s: zlib refused a reset", s->path);
        if (s->n > MOST_FREE && s->n / MOST_RATIO > s->n_packed)
            return fr_fail(s->ctx, FR_INVALID,
                           "%s: unpacks to more than %d times its size; if this is intended, "
                           "unpack it first (gunzip)",
                           s->path, MOST_RATIO);
        FR_TRY(sink_grow(s, 0));
        size_t room = s->room - 1 - s->n;
        uInt step = room < ((uInt)1 << 30) ? (uInt)room : (uInt)1 << 30;
        z->next_out = s->data + s->n;
        z->avail_out = step;
        uInt before = z->avail_in;
        int code = inflate(z, Z_NO_FLUSH);
        s->n_packed += before - z->avail_in;
        s->n += step - z->avail_out;
        FR_TRY(sink_judge(s, false));
        *at_end = code == Z_STREAM_END;
        if (code == Z_MEM_ERROR) return fr__no_memory(s->ctx, CHUNK, "zlib");
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return fr_fail(s->ctx, FR_INVALID, "%s: broken gzip data after %zu unpacked bytes: %s",
                           s->path, s->n, z->msg ? z->msg : "no details");
    }
    return FR_OK;
}

static fr_status read_gzip(struct sink *s, int fd, unsigned char *piece)
{
    z_stream z = {0};
    if (inflateInit2(&z, 15 + 16) != Z_OK) return fr__no_memory(s->ctx, CHUNK, "zlib");
    fr_status status;
    size_t got = 0;
    bool at_end = false;
    do {
        FR_TRY_GOTO(status, read_some(s->ctx, fd, s->path, piece, CHUNK, &got), done);
        z.next_in = piece;
        z.avail_in = (uInt)got;
        FR_TRY_GOTO(status, inflate_piece(s, &z, &at_end), done);
    } while (got > 0);
    if (!at_end)
        status =
            fr_fail(s->ctx, FR_INVALID,
                    "%s: the gzip data end early, after %zu unpacked bytes; is the file complete?",
                    s->path, s->n);
    else
        status = sink_judge(s, true);
    if (status == FR_OK) status = sink_grow(s, 0);
done:
    inflateEnd(&z);
    return status;
}

static fr_status read_open(struct sink *s, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return fr__io_fail(s->ctx, "read", s->path);
    size_t size = S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size : 0;
    unsigned char magic[2];
    bool is_gzip = pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1F && magic[1] == 0x8B;
    if (!is_gzip) return read_plain(s, fd, size);
    unsigned char *piece = fr__alloc(CHUNK);
    if (!piece) return fr__no_memory(s->ctx, CHUNK, s->path);
    fr_status status = read_gzip(s, fd, piece);
    fr__free(piece);
    return status;
}

static fr_status read_and_close(fr_ctx *ctx, int fd, const char *path, size_t max_bytes,
                                const fr__file_head *head, unsigned char **data, size_t *bytes)
{
    struct sink s = {.ctx = ctx, .path = path, .max_bytes = max_bytes, .head = head};
    if (s.max_bytes > PTRDIFF_MAX / 2) s.max_bytes = PTRDIFF_MAX / 2;
    fr_status status = read_open(&s, fd);
    close(fd);
    if (status != FR_OK) {
        fr__free(s.data);
        return status;
    }
    s.data[s.n] = '\0';
    *data = s.data;
    *bytes = s.n;
    return FR_OK;
}

fr_status fr__file_read(fr_ctx *ctx, const char *path, size_t max_bytes, unsigned char **data,
                        size_t *bytes)
{
    return fr__file_read_by(ctx, path, max_bytes, NULL, data, bytes);
}

fr_status fr__file_read_by(fr_ctx *ctx, const char *path, size_t max_bytes,
                           const fr__file_head *head, unsigned char **data, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *data = NULL;
    *bytes = 0;
    return fd < 0 ? fr__io_fail(ctx, "open", path)
                  : read_and_close(ctx, fd, path, max_bytes, head, data, bytes);
}

fr_status fr__open_regular(fr_ctx *ctx, const char *path, int *fd)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (*fd < 0) return fr__io_fail(ctx, "open", path);
    if (fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)) return FR_OK;
    close(*fd);
    *fd = -1;
    return fr_fail(ctx, FR_INVALID, "%s: not a regular file", path);
}

fr_status fr__file_read_regular(fr_ctx *ctx, const char *path, size_t max_bytes,
                                unsigned char **data, size_t *bytes)
{
    int fd;
    *data = NULL;
    *bytes = 0;
    FR_TRY(fr__open_regular(ctx, path, &fd));
    return read_and_close(ctx, fd, path, max_bytes, NULL, data, bytes);
}

/* --- names -------------------------------------------------------------------------------- */

bool fr__file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool fr__dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static fr_status copy_path(fr_ctx *ctx, const char *path, const char *suffix, char to[MAX_PATH])
{
    int n = snprintf(to, MAX_PATH, "%s%s", path, suffix);
    if (n > 0 && n < MAX_PATH) return FR_OK;
    return fr_fail(ctx, FR_INVALID, "a path of %d characters is %s: %.60s", n,
                   n > 0 ? "too long" : "too short", path);
}

fr_status fr__dir_make(fr_ctx *ctx, const char *path)
{
    char part[MAX_PATH];
    FR_TRY(copy_path(ctx, path, "", part));
    for (char *at = part + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        char mark = *at;
        *at = '\0';
        if (mkdir(part, 0777) != 0 && !(errno == EEXIST && fr__dir_exists(part)))
            return fr__io_fail(ctx, "make folder", part);
        if (mark == '\0') return FR_OK;
        *at = mark;
    }
}

/* Some file systems cannot sync a folder and return EINVAL; ignore it. */
static fr_status sync_folder(fr_ctx *ctx, int fd, const char *path)
{
    bool failed = fsync(fd) != 0 && errno != EINVAL;
    return failed ? fr__io_fail(ctx, "sync folder", path) : FR_OK;
}

static fr_status sync_parent(fr_ctx *ctx, const char *path)
{
    char folder[MAX_PATH];
    FR_TRY(copy_path(ctx, path, "", folder));
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') folder[--n] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    else
        strcpy(folder, ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fr__io_fail(ctx, "open folder", folder);
    fr_status status = sync_folder(ctx, fd, folder);
    close(fd);
    return status;
}

/* The folder that a name is relative to, and the name. */
static int base_of(int dir) { return dir < 0 ? AT_FDCWD : dir; }

static const char *name_in(int dir, const char *path)
{
    const char *slash = dir < 0 ? NULL : strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int fr__open_in(int dir, const char *path, int flags)
{
    return openat(base_of(dir), name_in(dir, path), flags | O_CLOEXEC, 0666);
}

int fr__unlink_in(int dir, const char *path)
{
    return unlinkat(base_of(dir), name_in(dir, path), 0);
}

fr_status fr__rename_sync(fr_ctx *ctx, const char *from, const char *to)
{
    return fr__rename_sync_in(ctx, -1, from, to);
}

fr_status fr__rename_sync_in(fr_ctx *ctx, int dir, const char *from, const char *to)
{
    int base = base_of(dir);
    if (renameat(base, name_in(dir, from), base, name_in(dir, to)) != 0) {
        int code = errno;
        return fr_fail(ctx, FR_IO, "cannot rename %s to %s: %s", from, to, strerror(code));
    }
    return dir < 0 ? sync_parent(ctx, to) : sync_folder(ctx, dir, to);
}

/* 0: there is no such name. */
static mode_t mode_of(int dir, const char *path)
{
    struct stat at;
    return fstatat(base_of(dir), name_in(dir, path), &at, 0) == 0 ? at.st_mode : 0;
}

/* /dev/stdout is a link to what the process has open, which may be a regular file. */
static bool is_link_to_proc(int dir, const char *path)
{
    char to[6];
    return readlinkat(base_of(dir), name_in(dir, path), to, sizeof to) == sizeof to &&
           memcmp(to, "/proc/", sizeof to) == 0;
}

bool fr__is_stream(int dir, const char *path)
{
    mode_t mode = mode_of(dir, path);
    if (is_link_to_proc(dir, path)) return true;
    return mode && !S_ISREG(mode) && !S_ISDIR(mode);
}

fr_status fr__may_replace(fr_ctx *ctx, int dir, const char *path)
{
    if (!*path) return fr_fail(ctx, FR_INVALID, "a file to be written has no name");
    if (!S_ISDIR(mode_of(dir, path))) return FR_OK;
    errno = EISDIR;
    return fr__io_fail(ctx, "write", path);
}

fr_status fr__file_replace(fr_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    return fr__file_replace_in(ctx, -1, path, data, bytes);
}

fr_status fr__file_replace_in(fr_ctx *ctx, int dir, const char *path, const void *data,
                              size_t bytes)
{
    char name[MAX_PATH], suffix[32] = "";
    FR_TRY(fr__may_replace(ctx, dir, path));
    bool in_place = fr__is_stream(dir, path);
    if (!in_place) snprintf(suffix, sizeof suffix, ".%ld.tmp", (long)getpid());
    FR_TRY(copy_path(ctx, path, suffix, name));
    int fd = fr__open_in(dir, name, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return fr__io_fail(ctx, "create", name);
    fr_status status = fr__fd_write(ctx, fd, name, data, bytes);
    if (status == FR_OK && !in_place && fsync(fd) != 0) status = fr__io_fail(ctx, "sync", name);
    if (close(fd) != 0 && status == FR_OK) status = fr__io_fail(ctx, "close", name);
    if (in_place) return status;
    if (status == FR_OK) status = fr__rename_sync_in(ctx, dir, name, path);
    if (status != FR_OK) (void)fr__unlink_in(dir, name);
    return status;
}

fr_status fr__dir_remove(fr_ctx *ctx, const char *path) { return fr__dir_remove_in(ctx, -1, path); }

fr_status fr__dir_remove_in(fr_ctx *ctx, int dir, const char *path)
{
    int fd = fr__open_in(dir, path, O_RDONLY | O_DIRECTORY);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        fr_status failed = errno == ENOENT ? FR_OK : fr__io_fail(ctx, "open folder", path);
        if (fd >= 0) close(fd);
        return failed;
    }
    fr_status status = FR_OK;
    struct dirent *entry;
    while (status == FR_OK && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT) continue;
        int code = errno;
        status =
            fr_fail(ctx, FR_IO, "cannot remove %s/%s: %s", path, entry->d_name, strerror(code));
    }
    closedir(folder);
    if (status == FR_OK && unlinkat(base_of(dir), name_in(dir, path), AT_REMOVEDIR) != 0 &&
        errno != ENOENT)
        status = fr__io_fail(ctx, "remove folder", path);
    return status;
}
