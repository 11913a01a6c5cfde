/* safetensors_write.c -- declares all tensors, then streams their values.
 *
 * Offsets follow from the declarations, so the header is written first and nothing is moved later.
 * Blanks at its end align the values to 8 bytes, so that readers can map the file. */
#include "io/safetensors.h"

#include "base/arena.h"
#include "base/names.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct meta {
    const char *key, *value;
};

struct fr_tensor_writer {
    fr_ctx *ctx;
    fr_arena arena;
    const char *path;
    int dir;         /* open folder that contains it; -1: use the path */
    int fd;          /* -1 after finish */
    bool may_remove; /* a regular file: never unlink a device */
    bool has_header, is_done;
    fr_status failed; /* first error; nothing is written after it */
    fr__hash *hash;   /* of the bytes written so far */
    FR_VEC(struct meta) meta;
    FR_VEC(fr_tensor_info) info;
    fr__names names;    /* of info */
    uint64_t end;       /* of all tensors declared, in the data part */
    size_t at;          /* tensor being written */
    uint64_t n_written; /* bytes of it */
};

static fr_status keep(fr_tensor_writer *w, fr_status status)
{
    if (w->failed == FR_OK) w->failed = status;
    return status;
}

static fr_status put(fr_tensor_writer *w, const void *data, size_t bytes)
{
    fr__hash_update(w->hash, data, bytes);
    return fr__fd_write(w->ctx, w->fd, w->path, data, bytes);
}

fr_status fr_tensor_writer_create(fr_ctx *ctx, const char *path, fr_tensor_writer **out)
{
    return fr__tensor_writer_create_in(ctx, -1, path, out);
}

fr_status fr__tensor_writer_create_in(fr_ctx *ctx, int dir, const char *path,
                                      fr_tensor_writer **out)
{
    *out = NULL;
    fr_tensor_writer *w = FR_NEW(fr_tensor_writer);
    if (!w) return fr__no_memory(ctx, sizeof *w, path);
    w->ctx = ctx;
    w->dir = dir;
    w->fd = -1;
    w->path = fr__arena_strdup(&w->arena, path);
    w->hash = fr__hash_create();
    if (!w->path || !w->hash) {
        fr_tensor_writer_free(w);
        return fr__no_memory(ctx, strlen(path), path);
    }
    w->fd = fr__open_in(dir, path, O_WRONLY | O_CREAT | O_TRUNC);
    if (w->fd < 0) {
        fr_status status = fr__io_fail(ctx, "create", path);
        fr_tensor_writer_free(w);
        return status;
    }
    struct stat info;
    w->may_remove = fstat(w->fd, &info) == 0 && S_ISREG(info.st_mode);
    *out = w;
    return FR_OK;
}

/* --- declarations ------------------------------------------------------------------------- */

static fr_status check_open(fr_tensor_writer *w, const char *what)
{
    if (w->failed != FR_OK) return w->failed;
    if (!w->has_header) return FR_OK;
    return keep(w, fr_fail(w->ctx, FR_INVALID, "%s: %s after the first data", w->path, what));
}

fr_status fr_tensor_writer_meta(fr_tensor_writer *w, const char *key, const char *value)
{
    FR_TRY(check_open(w, "metadata"));
    for (size_t i = 0; i < w->meta.n; i++)
        if (strcmp(w->meta.at[i].key, key) == 0)
            return keep(w,
                        fr_fail(w->ctx, FR_INVALID, "%s: duplicate metadata \"%s\"", w->path, key));
    if (!fr__utf8_is_valid(key) || !fr__utf8_is_valid(value))
        return keep(w,
                    fr_fail(w->ctx, FR_INVALID, "%s: metadata \"%s\" is not UTF-8", w->path, key));
    struct meta m = {fr__arena_strdup(&w->arena, key), fr__arena_strdup(&w->arena, value)};
    if (!m.key || !m.value || !fr__vec_push(&w->meta, m))
        return keep(w, fr__no_memory(w->ctx, strlen(value), w->path));
    return FR_OK;
}

static fr_status declare(fr_tensor_writer *w, const char *name, const char *dtype, int n_dims,
                         const int64_t *dims)
{
    fr_tensor_info info = {.n_dims = n_dims, .begin = w->end};
    size_t item_bytes = fr__tensor_dtype(dtype, &info.dtype);
    const char *wrong = fr__names_find(&w->names, name) >= 0 ? "declared twice" : NULL;
    if (strcmp(name, FR_TENSOR_META) == 0)
        wrong = "the name is reserved";
    else if (!fr__utf8_is_valid(name))
        wrong = "the name is not UTF-8";
    else if (!info.dtype)
        wrong = "unknown dtype";
    else if (n_dims < 0 || n_dims > FR_TENSOR_MAX_DIMS)
        wrong = "expected 0 to 8 dimensions";
    else if (!fr__tensor_bytes(n_dims, dims, item_bytes, &info.bytes) ||
             info.bytes > ((uint64_t)1 << 62) - w->end)
        wrong = "impossible shape";
    if (wrong)
        return fr_fail(w->ctx, FR_INVALID, "%s: tensor \"%s\" (%s): %s", w->path, name, dtype,
                       wrong);
    for (int i = 0; i < n_dims; i++) info.dim[i] = dims[i];
    info.name = fr__arena_strdup(&w->arena, name);
    if (!info.name || !fr__names_add(&w->names, info.name, (int)w->info.n) ||
        !fr__vec_push(&w->info, info))
        return fr__no_memory(w->ctx, sizeof info, w->path);
    w->end += info.bytes;
    return FR_OK;
}

fr_status fr_tensor_writer_declare(fr_tensor_writer *w, const char *name, const char *dtype,
                                   int n_dims, const int64_t *dims)
{
    FR_TRY(check_open(w, "a declaration"));
    return keep(w, declare(w, name, dtype, n_dims, dims));
}

/* --- the header --------------------------------------------------------------------------- */

static void format_header(const fr_tensor_writer *w, fr__json *j)
{
    fr__json_object(j, NULL);
    if (w->meta.n > 0) {
        fr__json_object(j, FR_TENSOR_META);
        for (size_t i = 0; i < w->meta.n; i++)
            fr__json_text(j, w->meta.at[i].key, w->meta.at[i].value);
        fr__json_end(j);
    }
    for (size_t i = 0; i < w->info.n; i++) {
        const fr_tensor_info *info = &w->info.at[i];
        fr__json_object(j, info->name);
        fr__json_text(j, "dtype", info->dtype);
        fr__json_list(j, "shape");
        for (int d = 0; d < info->n_dims; d++) fr__json_int(j, NULL, info->dim[d]);
        fr__json_end(j);
        fr__json_list(j, "data_offsets");
        fr__json_uint(j, NULL, info->begin);
        fr__json_uint(j, NULL, info->begin + info->bytes);
        fr__json_end(j);
        fr__json_end(j);
    }
    fr__json_end(j);
}

static fr_status write_header(fr_tensor_writer *w)
{
    fr__json j;
    fr__json_to_buffer(&j, NULL, 0, 0); /* only to count */
    format_header(w, &j);
    size_t text_bytes = j.bytes, length = (text_bytes + 7) / 8 * 8;
    if (length > FR_TENSOR_MAX_HEADER)
        return fr_fail(w->ctx, FR_INVALID,
                       "%s: %zu tensors make a header of more than %" PRIu64 " bytes", w->path,
                       w->info.n, FR_TENSOR_MAX_HEADER);
    char *block = fr__alloc(FR_TENSOR_LENGTH_BYTES + length + 1);
    if (!block) return fr__no_memory(w->ctx, length, w->path);
    for (int i = 0; i < FR_TENSOR_LENGTH_BYTES; i++) block[i] = (char)(length >> 8 * i & 0xFF);
    fr__json_to_buffer(&j, block + FR_TENSOR_LENGTH_BYTES, length + 1, 0);
    format_header(w, &j);
    memset(block + FR_TENSOR_LENGTH_BYTES + text_bytes, ' ', length - text_bytes);
    fr_status status = fr__json_finish(&j)
                           ? put(w, block, FR_TENSOR_LENGTH_BYTES + length)
                           : fr_fail(w->ctx, FR_INTERNAL, "%s: incomplete header", w->path);
    fr__free(block);
    w->has_header = true;
    return status;
}

/* --- the values --------------------------------------------------------------------------- */

/* The tensor whose bytes come next, or NULL. */
static const fr_tensor_info *wanting(fr_tensor_writer *w)
{
    while (w->at < w->info.n && w->n_written == w->info.at[w->at].bytes) {
        w->at++;
        w->n_written = 0;
    }
    return w->at < w->info.n ? &w->info.at[w->at] : NULL;
}

fr_status fr_tensor_writer_data(fr_tensor_writer *w, const void *data, size_t bytes)
{
    if (w->failed != FR_OK) return w->failed;
    if (!w->has_header) FR_TRY(keep(w, write_header(w)));
    if (bytes == 0) return FR_OK;
    const fr_tensor_info *info = wanting(w);
    if (!info)
        return keep(w, fr_fail(w->ctx, FR_INVALID, "%s: %zu bytes more than were declared", w->path,
                               bytes));
    if (bytes > info->bytes - w->n_written)
        return keep(w, fr_fail(w->ctx, FR_INVALID,
                               "%s: tensor \"%s\" needs %" PRIu64 " more bytes, %zu were given",
                               w->path, info->name, info->bytes - w->n_written, bytes));
    FR_TRY(keep(w, put(w, data, bytes)));
    w->n_written += bytes;
    return FR_OK;
}

fr_status fr_tensor_writer_finish(fr_tensor_writer *w)
{
    if (w->failed != FR_OK || w->is_done) return w->failed;
    if (!w->has_header) FR_TRY(keep(w, write_header(w)));
    const fr_tensor_info *info = wanting(w);
    if (info)
        return keep(w, fr_fail(w->ctx, FR_INVALID,
                               "%s: tensor \"%s\" is unfinished: %" PRIu64 " of %" PRIu64 " bytes",
                               w->path, info->name, w->n_written, info->bytes));
    if (fsync(w->fd) != 0) return keep(w, fr__io_fail(w->ctx, "sync", w->path));
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return keep(w, fr__io_fail(w->ctx, "close", w->path));
    w->is_done = true;
    return FR_OK;
}

void fr__tensor_writer_hash(const fr_tensor_writer *w, char text[FR_HASH_TEXT])
{
    fr__hash_text(w->hash, text);
}

void fr_tensor_writer_free(fr_tensor_writer *w)
{
    if (!w) return;
    fr__hash_free(w->hash);
    if (w->fd >= 0) close(w->fd);
    if (w->may_remove && !w->is_done) (void)fr__unlink_in(w->dir, w->path);
    fr__vec_fini(&w->meta);
    fr__vec_fini(&w->info);
    fr__names_fini(&w->names);
    fr__arena_fini(&w->arena);
    fr__free(w);
}
