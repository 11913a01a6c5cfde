/* file.h -- whole files in memory, with gzip unpacked, and atomic replacement of files. */
#ifndef FR_IO_FILE_H
#define FR_IO_FILE_H

#include <forerun/base.h>

/* Read a whole file and unpack gzip (detected by the first bytes, not the name). A zero byte
 * follows the data. More than max_bytes of unpacked data is an error. Release with
 * fr__free(*data). */
fr_status fr__file_read(fr_ctx *ctx, const char *path, size_t max_bytes, unsigned char **data,
                        size_t *bytes);

/* A header that declares the size of its file: `size` receives the first `bytes` bytes of the
 * unpacked file, or all of a shorter one, and returns the total number of bytes. */
typedef struct fr__file_head {
    size_t bytes;
    fr_status (*size)(fr_ctx *ctx, const char *path, const unsigned char *data, size_t n,
                      size_t *total);
} fr__file_head;
/* The same, but the header is checked before anything beyond it is read or unpacked, and no more
 * than the declared bytes are read. head NULL: no header. */
fr_status fr__file_read_by(fr_ctx *ctx, const char *path, size_t max_bytes,
                           const fr__file_head *head, unsigned char **data, size_t *bytes);
/* For files that Forerun wrote: anything else than a regular file is an error. A pipe or device in
 * a run's folder would block or never end. */
fr_status fr__file_read_regular(fr_ctx *ctx, const char *path, size_t max_bytes,
                                unsigned char **data, size_t *bytes);
fr_status fr__open_regular(fr_ctx *ctx, const char *path, int *fd); /* on error *fd is -1 */
bool fr__file_exists(const char *path);
bool fr__dir_exists(const char *path);
/* mkdir -p */
fr_status fr__dir_make(fr_ctx *ctx, const char *path);
/* Write, fsync, rename over `path`, fsync the folder. A stream is written in place. */
fr_status fr__file_replace(fr_ctx *ctx, const char *path, const void *data, size_t bytes);
/* rename(from, to) and fsync of the parent: when it returns, the rename is durable. */
fr_status fr__rename_sync(fr_ctx *ctx, const char *from, const char *to);
/* Remove a folder and the regular files in it (one level); a missing folder is not an error. */
fr_status fr__dir_remove(fr_ctx *ctx, const char *path);

/* The same relative to an open folder, even if its path has changed: only the last part of a path
 * is used; messages name the whole path. dir -1: use the path. */
fr_status fr__file_replace_in(fr_ctx *ctx, int dir, const char *path, const void *data,
                              size_t bytes);
fr_status fr__rename_sync_in(fr_ctx *ctx, int dir, const char *from, const char *to);
fr_status fr__dir_remove_in(fr_ctx *ctx, int dir, const char *path);
/* A device or pipe, such as /dev/null or /dev/stdout (even if that is a regular file by now):
 * nothing may be renamed over it. */
bool fr__is_stream(int dir, const char *path);
/* Fails where a file cannot be: an empty name, a folder. */
fr_status fr__may_replace(fr_ctx *ctx, int dir, const char *path);
/* openat (new files with mode 0666, closed on exec), unlinkat; on error -1 and errno. */
int fr__open_in(int dir, const char *path, int flags);
int fr__unlink_in(int dir, const char *path);

/* Write all bytes to an open file; errors name `path`. */
fr_status fr__fd_write(fr_ctx *ctx, int fd, const char *path, const void *data, size_t bytes);
/* Fail with "cannot WHAT PATH: ", the text of errno and a remedy. FR_INVALID if the name is at
 * fault (missing, not permitted), FR_IO if the disk is (full, broken). */
fr_status fr__io_fail(fr_ctx *ctx, const char *what, const char *path);

#endif
