/* file.h -- whole files in memory, gzip undone on the way, and files replaced atomically. */
#ifndef FR_IO_FILE_H
#define FR_IO_FILE_H

#include <forerun/base.h>

/* A whole file, unpacked if it is gzip (by its first bytes, not its name). One byte of zero follows
 * the data. Refuses more than max_bytes of unpacked data. The caller releases with fr__free(*data).
 */
fr_status fr__file_read(fr_ctx *ctx, const char *path, size_t max_bytes, unsigned char **data,
                        size_t *bytes);

/* A header that says how large its file is: `size` is given the first `bytes` bytes of the
 * unpacked file, or all of a shorter one, and tells how many there must be in all. */
typedef struct fr_file_head {
    size_t bytes;
    fr_status (*size)(fr_ctx *ctx, const char *path, const unsigned char *data, size_t n,
                      size_t *total);
} fr_file_head;
/* The same, but nothing beyond the header is read or unpacked before it has been judged, and no
 * more than it asks for. head NULL: there is none. */
fr_status fr__file_read_by(fr_ctx *ctx, const char *path, size_t max_bytes,
                           const fr_file_head *head, unsigned char **data, size_t *bytes);
bool fr__file_exists(const char *path);
bool fr__dir_exists(const char *path);
/* mkdir -p */
fr_status fr__dir_make(fr_ctx *ctx, const char *path);
/* Write, fsync, rename over `path`, fsync the folder. */
fr_status fr__file_replace(fr_ctx *ctx, const char *path, const void *data, size_t bytes);
/* rename(from, to) and fsync of the parent: after it returns, the rename has lasted. */
fr_status fr__rename_sync(fr_ctx *ctx, const char *from, const char *to);
/* Remove a folder and the plain files in it (one level); missing is fine. */
fr_status fr__dir_remove(fr_ctx *ctx, const char *path);

/* The same for what is in an open folder, wherever its path leads by now: of paths the last part
 * alone is used, the whole of them in messages. dir -1: no such folder, the path leads. */
fr_status fr__file_replace_in(fr_ctx *ctx, int dir, const char *path, const void *data,
                              size_t bytes);
fr_status fr__rename_sync_in(fr_ctx *ctx, int dir, const char *from, const char *to);
fr_status fr__dir_remove_in(fr_ctx *ctx, int dir, const char *path);
/* openat (new files by mode 0666, closed on exec), unlinkat; -1 and errno. */
int fr__open_in(int dir, const char *path, int flags);
int fr__unlink_in(int dir, const char *path);

/* Write all of it to an open file, however many calls that takes; errors name `path`. */
fr_status fr__fd_write(fr_ctx *ctx, int fd, const char *path, const void *data, size_t bytes);
/* "cannot WHAT PATH: ", the text of errno and a remedy. FR_INVALID where the name is at fault
 * (missing, not permitted), FR_IO where the disk is (full, broken). */
fr_status fr__io_fail(fr_ctx *ctx, const char *what, const char *path);

#endif
