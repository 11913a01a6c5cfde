/* safetensors_read.c -- opens a safetensors file and checks its header before reading any value, so
 * that every offset is valid afterwards. Jansson parses the JSON, refuses duplicate names and
 * reports line and column. */
#include "io/safetensors.h"

#include "base/arena.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fr_tensors {
    fr_ctx *ctx;
    fr_arena arena;
    const char *name;
    int fd;                      /* or -1: */
    const unsigned char *memory; /* the whole file */
    uint64_t data_begin, data_bytes;
    fr__hash *hash;  /* of a file: */
    uint64_t hashed; /* bytes hashed so far, from its start */
    int n;
    fr_tensor_info *info;     /* (n), in the order of their data */
    fr_tensor_info **by_name; /* (n), sorted */
    json_t *meta;             /* object of strings, or NULL */
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    {"F32", 4},  {"I32", 4},  {"I64", 8},     {"U8", 1},      {"F64", 8}, {"F16", 2},
    {"BF16", 2}, {"BOOL", 1}, {"I8", 1},      {"I16", 2},     {"U16", 2}, {"U32", 4},
    {"U64", 8},  {"C64", 8},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
};

size_t fr__tensor_dtype(const char *name, const char **stored)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *stored = dtypes[i].name;
            return dtypes[i].bytes;
        }
    *stored = NULL;
    return 0;
}

bool fr__tensor_bytes(int n_dims, const int64_t *dims, size_t item_bytes, uint64_t *bytes)
{
    uint64_t total = item_bytes;
    bool is_empty = false;
    for (int i = 0; i < n_dims; i++) {
        if (dims[i] < 0) return false;
        is_empty = is_empty || dims[i] == 0;
    }
    for (int i = 0; i < n_dims && !is_empty; i++) {
        if ((uint64_t)dims[i] > ((uint64_t)1 << 62) / total) return false;
        total *= (uint64_t)dims[i];
    }
    *bytes = is_empty ? 0 : total;
    return true;
}

/* --- the header --------------------------------------------------------------------------- */

static fr_status bad(fr_tensors *t, const char *tensor, const char *what)
{
    return fr_fail(t->ctx, FR_INVALID, "%s: tensor \"%s\": %s", t->name, tensor, what);
}

static fr_status read_shape(fr_tensors *t, fr_tensor_info *info, const json_t *shape)
{
    if (!json_is_array(shape)) return bad(t, info->name, "no list \"shape\"");
    size_t n = json_array_size(shape);
    if (n > FR_TENSOR_MAX_DIMS)
        return fr_fail(t->ctx, FR_UNSUPPORTED, "%s: tensor \"%s\": %zu dimensions, at most %d",
                       t->name, info->name, n, FR_TENSOR_MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return bad(t, info->name, "\"shape\" must be a list of numbers from 0");
        info->dim[i] = json_integer_value(d);
    }
    info->n_dims = (int)n;
    return FR_OK;
}

static fr_status read_range(fr_tensors *t, fr_tensor_info *info, const json_t *range)
{
    const json_t *b = json_array_get(range, 0), *e = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return bad(t, info->name, "no pair of numbers \"data_offsets\"");
    int64_t begin = json_integer_value(b), end = json_integer_value(e);
    if (begin < 0 || end < begin || (uint64_t)end > t->data_bytes)
        return fr_fail(t->ctx, FR_INVALID,
                       "%s: tensor \"%s\": data_offsets [%" PRId64 ", %" PRId64
                       "] outside the %" PRIu64 " bytes of data; is the file whole?",
                       t->name, info->name, begin, end, t->data_bytes);
    info->begin = (uint64_t)begin;
    info->bytes = (uint64_t)(end - begin);
    return FR_OK;
}

static fr_status read_tensor(fr_tensors *t, fr_tensor_info *info, const char *name,
                             const json_t *entry)
{
    info->name = fr__arena_strdup(&t->arena, name);
    if (!info->name) return fr__no_memory(t->ctx, strlen(name), t->name);
    if (!json_is_object(entry)) return bad(t, name, "expected an object with dtype and shape");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return bad(t, name, "no text \"dtype\"");
    size_t item_bytes = fr__tensor_dtype(dtype, &info->dtype);
    if (!info->dtype)
        return fr_fail(t->ctx, FR_UNSUPPORTED, "%s: tensor \"%s\": unknown dtype \"%.20s\"",
                       t->name, name, dtype);
    FR_TRY(read_shape(t, info, json_object_get(entry, "shape")));
    FR_TRY(read_range(t, info, json_object_get(entry, "data_offsets")));
    uint64_t bytes;
    if (!fr__tensor_bytes(info->n_dims, info->dim, item_bytes, &bytes) || bytes != info->bytes)
        return fr_fail(t->ctx, FR_INVALID,
                       "%s: tensor \"%s\": dtype %s and shape do not make the %" PRIu64
                       " bytes of its data_offsets",
                       t->name, name, info->dtype, info->bytes);
    return FR_OK;
}

static fr_status read_meta(fr_tensors *t, json_t *meta)
{
    const char *key;
    json_t *value;
    if (!json_is_object(meta))
        return fr_fail(t->ctx, FR_INVALID, "%s: " FR_TENSOR_META " must be an object", t->name);
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value))
            return fr_fail(t->ctx, FR_INVALID,
                           "%s: " FR_TENSOR_META " entry \"%.60s\" must be a text", t->name, key);
    }
    t->meta = json_incref(meta);
    return FR_OK;
}

static int compare_place(const void *a, const void *b)
{
    const fr_tensor_info *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b)
{
    return strcmp((*(fr_tensor_info *const *)a)->name, (*(fr_tensor_info *const *)b)->name);
}

/* Sorted by offset, each tensor must start where the one before it ends. */
static fr_status check_places(fr_tensors *t)
{
    uint64_t end = 0;
    const char *before = "the start";
    for (int i = 0; i < t->n; i++) {
        const fr_tensor_info *info = &t->info[i];
        if (info->begin != end)
            return fr_fail(t->ctx, FR_INVALID,
                           "%s: tensor \"%s\": its data begin at %" PRIu64 " and %s %s at %" PRIu64,
                           t->name, info->name, info->begin,
                           info->begin < end ? "overlap the end of" : "leave a hole after", before,
                           end);
        end += info->bytes;
        before = info->name;
    }
    if (end == t->data_bytes) return FR_OK;
    return fr_fail(t->ctx, FR_INVALID,
                   "%s: %" PRIu64 " bytes of data belong to no tensor (the last one, %s, ends at "
                   "%" PRIu64 ")",
                   t->name, t->data_bytes - end, before, end);
}

static fr_status read_entries(fr_tensors *t, json_t *header)
{
    if (!json_is_object(header))
        return fr_fail(t->ctx, FR_INVALID, "%s: the header is not a JSON object", t->name);
    size_t room = json_object_size(header);
    t->info = FR_ARENA_ARRAY(&t->arena, fr_tensor_info, room);
    t->by_name = FR_ARENA_ARRAY(&t->arena, fr_tensor_info *, room);
    if (!t->info || !t->by_name) return fr__no_memory(t->ctx, room * sizeof *t->info, t->name);
    const char *key;
    json_t *value;
    json_object_foreach(header, key, value)
    {
        if (strcmp(key, FR_TENSOR_META) == 0)
            FR_TRY(read_meta(t, value));
        else
            FR_TRY(read_tensor(t, &t->info[t->n++], key, value));
    }
    qsort(t->info, (size_t)t->n, sizeof *t->info, compare_place);
    for (int i = 0; i < t->n; i++) t->by_name[i] = &t->info[i];
    qsort(t->by_name, (size_t)t->n, sizeof *t->by_name, compare_name);
    return check_places(t);
}

static fr_status read_header(fr_tensors *t, const char *text, size_t bytes)
{
    if (bytes == 0 || text[0] != '{')
        return fr_fail(t->ctx, FR_INVALID,
                       "%s: byte 8: a header starts with '{', this one does not; is it a "
                       "safetensors file?",
                       t->name);
    json_error_t error;
    json_t *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!header)
        return fr_fail(t->ctx, FR_INVALID, "%s: header line %d column %d: %s", t->name, error.line,
                       error.column, error.text);
    fr_status status = read_entries(t, header);
    json_decref(header);
    return status;
}

static fr_status read_length(fr_tensors *t, const unsigned char first[8], uint64_t file_bytes,
                             uint64_t *length)
{
    *length = 0;
    for (int i = 7; i >= 0; i--) *length = *length << 8 | first[i];
    if (*length > FR_TENSOR_MAX_HEADER || *length > file_bytes - FR_TENSOR_LENGTH_BYTES)
        return fr_fail(t->ctx, FR_INVALID,
                       "%s: byte 0: a header of %" PRIu64 " bytes in a file of %" PRIu64
                       "; is it a safetensors file, and whole?",
                       t->name, *length, file_bytes);
    t->data_begin = FR_TENSOR_LENGTH_BYTES + *length;
    t->data_bytes = file_bytes - t->data_begin;
    return FR_OK;
}

/* --- opening and reading ------------------------------------------------------------------ */

static fr_status create(fr_ctx *ctx, const char *name, fr_tensors **out)
{
    fr_tensors *t = FR_NEW(fr_tensors);
    if (!t) return fr__no_memory(ctx, sizeof *t, name);
    t->ctx = ctx;
    t->fd = -1;
    t->name = fr__arena_strdup(&t->arena, name);
    if (!t->name) {
        fr_tensors_close(t);
        return fr__no_memory(ctx, strlen(name), name);
    }
    *out = t;
    return FR_OK;
}

static fr_status read_at(fr_tensors *t, uint64_t from, void *to, size_t bytes)
{
    char *at = to;
    if (t->memory) {
        if (bytes) memcpy(to, t->memory + from, bytes);
        return FR_OK;
    }
    while (bytes > 0) {
        ssize_t n = pread(t->fd, at, bytes, (off_t)from);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fr__io_fail(t->ctx, "read", t->name);
        if (n == 0)
            return fr_fail(t->ctx, FR_IO, "%s: ends at byte %" PRIu64 ", it was longer when opened",
                           t->name, from);
        at += n, from += (uint64_t)n, bytes -= (size_t)n;
    }
    return FR_OK;
}

/* read_at of a file; hashes the bytes if all earlier bytes have been hashed. */
static fr_status read_hashed(fr_tensors *t, uint64_t from, void *to, size_t bytes)
{
    FR_TRY(read_at(t, from, to, bytes));
    if (!t->hash || from != t->hashed) return FR_OK;
    fr__hash_update(t->hash, to, bytes);
    t->hashed += bytes;
    return FR_OK;
}

static fr_status too_short(fr_tensors *t, uint64_t bytes)
{
    return fr_fail(t->ctx, FR_INVALID, "%s: %" PRIu64 " bytes are too few for a safetensors file",
                   t->name, bytes);
}

static fr_status open_file(fr_tensors *t)
{
    struct stat info;
    FR_TRY(fr__open_regular(t->ctx, t->name, &t->fd));
    if (fstat(t->fd, &info) != 0) return fr__io_fail(t->ctx, "read", t->name);
    uint64_t file_bytes = (uint64_t)info.st_size, length;
    unsigned char first[FR_TENSOR_LENGTH_BYTES];
    if (file_bytes < sizeof first) return too_short(t, file_bytes);
    t->hash = fr__hash_create();
    if (!t->hash) return fr__no_memory(t->ctx, sizeof first, t->name);
    FR_TRY(read_hashed(t, 0, first, sizeof first));
    FR_TRY(read_length(t, first, file_bytes, &length));
    char *text = fr__alloc(length);
    if (!text) return fr__no_memory(t->ctx, length, t->name);
    fr_status status = read_hashed(t, sizeof first, text, length);
    if (status == FR_OK) status = read_header(t, text, length);
    fr__free(text);
    return status;
}

fr_status fr_tensors_open(fr_ctx *ctx, const char *path, fr_tensors **out)
{
    *out = NULL;
    fr_tensors *t = NULL;
    FR_TRY(create(ctx, path, &t));
    fr_status status = open_file(t);
    if (status == FR_OK)
        *out = t;
    else
        fr_tensors_close(t);
    return status;
}

fr_status fr__tensors_parse(fr_ctx *ctx, const char *name, const unsigned char *file, size_t bytes,
                            fr_tensors **out)
{
    *out = NULL;
    fr_tensors *t = NULL;
    FR_TRY(create(ctx, name, &t));
    t->memory = file;
    uint64_t length = 0;
    fr_status status =
        bytes < FR_TENSOR_LENGTH_BYTES ? too_short(t, bytes) : read_length(t, file, bytes, &length);
    if (status == FR_OK)
        status = read_header(t, (const char *)file + FR_TENSOR_LENGTH_BYTES, length);
    if (status == FR_OK)
        *out = t;
    else
        fr_tensors_close(t);
    return status;
}

void fr_tensors_close(fr_tensors *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    fr__hash_free(t->hash);
    json_decref(t->meta);
    fr__arena_fini(&t->arena);
    fr__free(t);
}

int fr_tensors_count(const fr_tensors *t) { return t->n; }

const fr_tensor_info *fr_tensors_info(const fr_tensors *t, int i)
{
    return i >= 0 && i < t->n ? &t->info[i] : NULL;
}

int fr_tensors_find(const fr_tensors *t, const char *name)
{
    fr_tensor_info key = {.name = name}, *key_at = &key;
    fr_tensor_info **found =
        bsearch(&key_at, t->by_name, (size_t)t->n, sizeof *t->by_name, compare_name);
    return found ? (int)(*found - t->info) : -1;
}

fr_status fr_tensors_read(fr_tensors *t, int i, void *to, size_t bytes)
{
    const fr_tensor_info *info = fr_tensors_info(t, i);
    if (!info)
        return fr_fail(t->ctx, FR_INVALID, "%s: tensor %d requested, but there are %d", t->name, i,
                       t->n);
    if (bytes != info->bytes)
        return fr_fail(t->ctx, FR_INVALID,
                       "%s: tensor \"%s\" has %" PRIu64 " bytes, %zu were expected; does the file "
                       "belong to this model?",
                       t->name, info->name, info->bytes, bytes);
    return read_hashed(t, t->data_begin + info->begin, to, bytes);
}

fr_status fr__tensors_read_part(fr_tensors *t, int i, uint64_t from, void *to, size_t bytes)
{
    const fr_tensor_info *info = fr_tensors_info(t, i);
    if (!info || from > info->bytes || bytes > info->bytes - from)
        return fr_fail(t->ctx, FR_INTERNAL, "%s: %zu bytes at byte %" PRIu64 " of tensor %d",
                       t->name, bytes, from, i);
    return read_hashed(t, t->data_begin + info->begin + from, to, bytes);
}

fr_status fr__tensors_hash(fr_tensors *t, char text[FR_HASH_TEXT])
{
    enum { PIECE = 1 << 20 };
    uint64_t end = t->data_begin + t->data_bytes;
    char *piece = fr__alloc(PIECE);
    if (!piece) return fr__no_memory(t->ctx, PIECE, t->name);
    fr_status status = FR_OK;
    while (status == FR_OK && t->hashed < end) {
        uint64_t left = end - t->hashed;
        status = read_hashed(t, t->hashed, piece, left < PIECE ? (size_t)left : PIECE);
    }
    fr__free(piece);
    if (status == FR_OK) fr__hash_text(t->hash, text);
    return status;
}

const char *fr_tensors_meta(const fr_tensors *t, const char *key)
{
    return json_string_value(json_object_get(t->meta, key));
}
