/* tensor_set.c -- an index is believed in nothing: the files it names must be beside it, and hold
 * exactly the tensors that it lists for them. */
#include "io/tensor_set.h"

#include "base/arena.h"
#include "base/names.h"
#include "base/vec.h"
#include "io/file.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_INDEX = 64 << 20 }; /* bytes */

typedef struct shard {
    const char *path;
    fr_tensors *file;
} shard;

struct fr__tensor_set {
    fr_ctx *ctx;
    fr_arena arena;
    char folder[PATH_MAX]; /* of the index, with a slash at its end */
    const char *index;     /* path; NULL: one file */
    FR_VEC(shard) shards;
    fr__names shard_names;
    FR_VEC(fr__set_tensor) tensors;
    fr__names names;
};

/* --- an index --------------------------------------------------------------------------------- */

/* A plain name, so that no index leads out of its folder or to a hidden file. */
static bool is_file_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n < 256 && name[0] != '.' && !strpbrk(name, "/\\");
}

static fr_status parse_map(fr_ctx *ctx, const char *path, json_t *root,
                           fr_status (*each)(void *user, const char *tensor, const char *file),
                           void *user)
{
    json_t *map = json_object_get(root, "weight_map"), *value;
    const char *name;
    if (!json_is_object(map))
        return fr_fail(ctx, FR_INVALID, "%s: no object \"weight_map\"; is it a safetensors index?",
                       path);
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || !is_file_name(file))
            return fr_fail(ctx, FR_INVALID,
                           "%s: tensor \"%.100s\" is in file \"%.100s\"; it must be the name of a "
                           "file in the same folder",
                           path, name, file ? file : "");
        FR_TRY(each(user, name, file));
    }
    return FR_OK;
}

fr_status fr__tensor_index_parse(fr_ctx *ctx, const char *path, const char *text, size_t bytes,
                                 fr_status (*each)(void *user, const char *tensor,
                                                   const char *file),
                                 void *user)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return fr_fail(ctx, FR_INVALID, "%s: line %d column %d: %s", path, error.line, error.column,
                       error.text);
    fr_status status = parse_map(ctx, path, root, each, user);
    json_decref(root);
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

/* `name` is text of the arena, and is not among the files yet. */
static fr_status add_file(fr__tensor_set *s, const char *name, const char *path)
{
    shard file = {.path = path};
    if (s->shards.n >= FR_SET_MAX_FILES)
        return fr_fail(s->ctx, FR_INVALID, "%s: names more than %d files", s->index,
                       FR_SET_MAX_FILES);
    FR_TRY(fr_tensors_open(s->ctx, path, &file.file));
    if (!fr__names_add(&s->shard_names, name, (int)s->shards.n) ||
        !fr__vec_push(&s->shards, file)) {
        fr_tensors_close(file.file);
        return fr__no_memory(s->ctx, sizeof file, path);
    }
    return FR_OK;
}

static fr_status add_tensor(fr__tensor_set *s, int of_shard, int at)
{
    const shard *file = &s->shards.at[of_shard];
    fr__set_tensor t = {fr_tensors_info(file->file, at), file->file, at, file->path};
    if (!fr__names_add(&s->names, t.info->name, (int)s->tensors.n) || !fr__vec_push(&s->tensors, t))
        return fr__no_memory(s->ctx, sizeof t, file->path);
    return FR_OK;
}

static fr_status open_one(fr__tensor_set *s, const char *path)
{
    char *own = fr__arena_strdup(&s->arena, path);
    if (!own) return fr__no_memory(s->ctx, strlen(path), path);
    FR_TRY(add_file(s, own, own));
    for (int i = 0; i < fr_tensors_count(s->shards.at[0].file); i++) FR_TRY(add_tensor(s, 0, i));
    return FR_OK;
}

static fr_status shard_of(fr__tensor_set *s, const char *tensor, const char *name, int *out)
{
    *out = fr__names_find(&s->shard_names, name);
    if (*out >= 0) return FR_OK;
    char *path = fr__arena_printf(&s->arena, "%s%s", s->folder, name);
    char *own = fr__arena_strdup(&s->arena, name);
    if (!path || !own) return fr__no_memory(s->ctx, strlen(name), s->index);
    if (!fr__file_exists(path))
        return fr_fail(s->ctx, FR_INVALID,
                       "%s: tensor \"%.100s\" is in file %s, which is not there; was the folder "
                       "copied whole?",
                       s->index, tensor, path);
    *out = (int)s->shards.n;
    return add_file(s, own, path);
}

static fr_status take_listed(void *set, const char *tensor, const char *file)
{
    fr__tensor_set *s = set;
    int of_shard;
    FR_TRY(shard_of(s, tensor, file, &of_shard));
    int at = fr_tensors_find(s->shards.at[of_shard].file, tensor);
    if (at >= 0) return add_tensor(s, of_shard, at);
    return fr_fail(s->ctx, FR_INVALID, "%s: lists tensor \"%.100s\" in %s, which does not hold it",
                   s->index, tensor, s->shards.at[of_shard].path);
}

/* Tensors of the files that the index does not list there: it belongs to other files. */
static fr_status check_listed(const fr__tensor_set *s)
{
    for (size_t k = 0; k < s->shards.n; k++)
        for (int i = 0; i < fr_tensors_count(s->shards.at[k].file); i++) {
            const char *name = fr_tensors_info(s->shards.at[k].file, i)->name;
            int at = fr__names_find(&s->names, name);
            if (at >= 0 && s->tensors.at[at].file == s->shards.at[k].file) continue;
            return fr_fail(s->ctx, FR_INVALID, "%s: does not list tensor \"%.100s\" of %s",
                           s->index, name, s->shards.at[k].path);
        }
    return FR_OK;
}

static fr_status open_index(fr__tensor_set *s, const char *path)
{
    unsigned char *text;
    size_t bytes;
    const char *slash = strrchr(path, '/');
    snprintf(s->folder, sizeof s->folder, "%.*s", slash ? (int)(slash + 1 - path) : 0, path);
    s->index = fr__arena_strdup(&s->arena, path);
    if (!s->index) return fr__no_memory(s->ctx, strlen(path), path);
    FR_TRY(fr__file_read_regular(s->ctx, path, MAX_INDEX, &text, &bytes));
    fr_status status =
        fr__tensor_index_parse(s->ctx, path, (const char *)text, bytes, take_listed, s);
    fr__free(text);
    return status == FR_OK ? check_listed(s) : status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A file of the folder; false: it is not there. */
static bool in_folder(const char *folder, const char *name, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n >= 0 && n < PATH_MAX && fr__file_exists(path);
}

static fr_status open_folder(fr__tensor_set *s, const char *folder)
{
    char path[PATH_MAX];
    if (in_folder(folder, FR_SET_FILE, path)) return open_one(s, path);
    if (in_folder(folder, FR_SET_INDEX, path)) return open_index(s, path);
    if (in_folder(folder, "pytorch_model.bin", path))
        return fr_fail(s->ctx, FR_UNSUPPORTED,
                       "%s: is a Python pickle; save the weights as " FR_SET_FILE
                       " (save_pretrained, or safetensors.torch.save_file)",
                       path);
    return fr_fail(s->ctx, FR_INVALID, "%s: holds neither " FR_SET_FILE " nor " FR_SET_INDEX,
                   folder);
}

static fr_status open_any(fr__tensor_set *s, const char *path)
{
    if (fr__dir_exists(path)) return open_folder(s, path);
    return ends_with(path, ".index.json") ? open_index(s, path) : open_one(s, path);
}

fr_status fr__tensor_set_open(fr_ctx *ctx, const char *path, fr__tensor_set **out)
{
    *out = NULL;
    if (strlen(path) >= PATH_MAX)
        return fr_fail(ctx, FR_INVALID, "%.60s...: the name is too long", path);
    fr__tensor_set *s = FR_NEW(fr__tensor_set);
    if (!s) return fr__no_memory(ctx, sizeof *s, path);
    s->ctx = ctx;
    fr_status status = open_any(s, path);
    if (status == FR_OK)
        *out = s;
    else
        fr__tensor_set_close(s);
    return status;
}

void fr__tensor_set_close(fr__tensor_set *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->shards.n; i++) fr_tensors_close(s->shards.at[i].file);
    fr__vec_fini(&s->shards);
    fr__vec_fini(&s->tensors);
    fr__names_fini(&s->shard_names);
    fr__names_fini(&s->names);
    fr__arena_fini(&s->arena);
    fr__free(s);
}

int fr__tensor_set_count(const fr__tensor_set *s) { return (int)s->tensors.n; }

const fr__set_tensor *fr__tensor_set_at(const fr__tensor_set *s, int i)
{
    return &s->tensors.at[i];
}

int fr__tensor_set_find(const fr__tensor_set *s, const char *name)
{
    return fr__names_find(&s->names, name);
}

fr_status fr__tensor_set_read(fr__tensor_set *s, int i, uint64_t from, void *to, size_t bytes)
{
    return fr__tensors_read_part(s->tensors.at[i].file, s->tensors.at[i].at, from, to, bytes);
}
