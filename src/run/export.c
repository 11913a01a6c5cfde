/* export.c -- weights for other programs.
 *
 * Parameters come one at a time, from a checkpoint or from model.weights, and are written as they
 * come, in pieces. The folder has a temporary name until it is whole. */
#include "run/export.h"

#include "base/ctx.h"
#include "checkpoint/checkpoint.h"
#include "io/file.h"
#include "io/tensor_type.h"
#include "io/units.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 18 }; /* values converted at a time */

typedef struct writer {
    fr__export *x;
    fr_tensor_writer *file; /* of the shard of the next tensor; NULL: not open */
    size_t next;            /* tensor */
    float *values;          /* (PIECE) in the order of the file */
    char *raw;              /* (PIECE) of 8 bytes at most */
} writer;

/* --- tensors ---------------------------------------------------------------------------------- */

static fr_status open_shard(writer *w)
{
    fr__export *x = w->x;
    char name[64], path[FR_PATH];
    int shard = x->tensors.at[w->next].shard;
    fr__export_file(x, shard, name);
    FR_TRY(fr__path(x->s->ctx, path, "%s/%s", x->folder, name));
    FR_TRY(fr_tensor_writer_create(x->s->ctx, path, &w->file));
    FR_TRY(fr_tensor_writer_meta(w->file, "format", "pt"));
    for (size_t i = w->next; i < x->tensors.n && x->tensors.at[i].shard == shard; i++) {
        const fr__out_tensor *t = &x->tensors.at[i];
        FR_TRY(fr_tensor_writer_declare(w->file, t->name, t->dtype, t->n_dims, t->dims));
    }
    return FR_OK;
}

static fr_status close_shard(writer *w)
{
    fr_status status = w->file ? fr_tensor_writer_finish(w->file) : FR_OK;
    fr_tensor_writer_free(w->file);
    w->file = NULL;
    return status;
}

/* The next n values of a transposed part, from value `first` on: (columns, rows) there, (rows,
 * columns) in `part`. */
static void gather(const float *part, int64_t rows, int64_t columns, int64_t first, int64_t n,
                   float *to)
{
    int64_t row = first % rows, column = first / rows;
    for (int64_t i = 0; i < n; i++) {
        to[i] = part[row * columns + column];
        if (++row == rows) row = 0, column++;
    }
}

static fr_status write_values(writer *w, const fr__out_tensor *t, const float *plain)
{
    int64_t item = (int64_t)fr__real_bytes(t->dtype), count = (int64_t)t->bytes / item;
    const float *part = plain + t->part * count;
    for (int64_t first = 0, n; first < count; first += n) {
        const float *from = part + first;
        n = count - first < PIECE ? count - first : PIECE;
        if (t->is_transposed) {
            gather(part, t->dims[1], t->dims[0], first, n, w->values);
            from = w->values;
        }
        if (!fr__real_write(t->dtype, from, (size_t)n, w->raw))
            return fr_fail(w->x->s->ctx, FR_INVALID,
                           "tensor %s has values that are too large for %s; use --dtype f32",
                           t->name, t->dtype);
        FR_TRY(fr_tensor_writer_data(w->file, w->raw, (size_t)(n * item)));
    }
    return FR_OK;
}

static fr_status copy_origin(writer *w, const fr__out_tensor *t)
{
    for (uint64_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
        FR_TRY(fr__tensor_set_read(w->x->origin.set, t->origin, at, w->raw, n));
        FR_TRY(fr_tensor_writer_data(w->file, w->raw, n));
    }
    return FR_OK;
}

static fr_status write_next(writer *w, const float *plain)
{
    const fr__out_tensor *t = &w->x->tensors.at[w->next];
    if (w->next > 0 && t[-1].shard != t->shard) FR_TRY(close_shard(w));
    if (!w->file) FR_TRY(open_shard(w));
    FR_TRY(t->param < 0 ? copy_origin(w, t) : write_values(w, t, plain));
    w->next++;
    return FR_OK;
}

/* A parameter that the other program has not must be zero. */
static fr_status check_zero(const writer *w, const fr_param *p, const float *plain)
{
    for (int64_t i = 0; i < fr_shape_count(&p->shape); i++)
        if (plain[i] != 0)
            return fr_fail(w->x->s->ctx, FR_UNSUPPORTED,
                           "%s is trained, and %s has no such parameter; use --format safetensors",
                           p->name, w->x->map->name);
    return FR_OK;
}

static fr_status put(void *user, int param, float *plain)
{
    writer *w = user;
    size_t first = w->next;
    while (w->next < w->x->tensors.n && w->x->tensors.at[w->next].param == param)
        FR_TRY(write_next(w, plain));
    return w->next > first ? FR_OK : check_zero(w, fr_graph_param(w->x->s->graph, param), plain);
}

/* --- sources ---------------------------------------------------------------------------------- */

static fr_status from_given(writer *w)
{
    const fr_graph *g = w->x->s->graph;
    size_t bytes = fr__setup_largest_param(g) * sizeof(float);
    float *plain = fr__alloc(bytes);
    if (!plain) return fr__no_memory(w->x->s->ctx, bytes, "export");
    fr_status status = FR_OK;
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g) && status == FR_OK; i++) {
            const fr_param *p = fr_graph_param(g, i);
            bool is_there;
            if (p->tied_to >= 0 || p->is_buffer != (bool)buffers) continue;
            status = fr__given_read(&w->x->origin, i, plain, &is_there);
            if (status == FR_OK && !is_there)
                fr_graph_init_param(g, i, w->x->s->settings.seed, plain);
            if (status == FR_OK) status = put(w, i, plain);
        }
    fr__free(plain);
    return status;
}

/* The newest whole checkpoint in `folder`, "" if there is none. */
static fr_status newest_whole(fr__setup *s, const char *folder, char path[FR_PATH])
{
    fr__steps steps;
    bool is_damaged = true;
    fr_status status = fr__folder_steps(s->ctx, folder, &steps);
    path[0] = '\0';
    for (size_t i = 0; status == FR_OK && i < steps.n; i++) {
        status = fr__path(s->ctx, path, "%s/step-%lld", folder, (long long)steps.at[i]);
        if (status == FR_OK) status = fr__checkpoint_read_model(s, path, NULL, NULL, &is_damaged);
        if (status == FR_OK || !is_damaged || status == FR_NO_MEMORY || i + 1 == steps.n) break;
        fr_log(s->ctx, FR_LOG_WARN, "%s; using the checkpoint before it", fr_ctx_error(s->ctx));
        status = FR_OK;
    }
    fr__vec_fini(&steps);
    return status;
}

/* The folder with the weights; "": model.weights. */
static fr_status find_source(fr__setup *s, const char *from, char path[FR_PATH])
{
    const char *root = from ? from : s->settings.out;
    char inside[FR_PATH];
    FR_TRY(fr__path(s->ctx, path, "%s", root));
    FR_TRY(fr__path(s->ctx, inside, "%s/" FR_SET_FILE, root));
    if (fr__file_exists(inside)) return FR_OK;
    FR_TRY(fr__path(s->ctx, inside, "%s/checkpoint", root));
    FR_TRY(newest_whole(s, fr__dir_exists(inside) ? inside : root, path));
    if (path[0] || (!from && s->weights)) return FR_OK;
    return fr_fail(s->ctx, FR_INVALID,
                   "%s: no checkpoint there; give the folder of a run, or one of its "
                   "checkpoint/step-N, by --checkpoint",
                   root);
}

/* --- an export -------------------------------------------------------------------------------- */

static fr_status write_tensors(fr__export *x, const char *source)
{
    writer w = {
        .x = x, .values = FR_NEW_ARRAY(float, PIECE), .raw = fr__alloc_raw(PIECE * sizeof(double))};
    bool is_damaged;
    fr_status status = FR_OK;
    if (!w.values || !w.raw) status = fr__no_memory(x->s->ctx, PIECE, "export");
    if (status == FR_OK)
        status = source[0] ? fr__checkpoint_read_model(x->s, source, put, &w, &is_damaged)
                           : from_given(&w);
    while (status == FR_OK && w.next < x->tensors.n) status = write_next(&w, NULL);
    if (status == FR_OK) status = close_shard(&w);
    fr_tensor_writer_free(w.file);
    fr__free(w.values);
    fr__free(w.raw);
    return status;
}

/* A folder takes the name of another one only if that is empty; found out before the work. */
static fr_status check_out(fr_ctx *ctx, const char *out)
{
    struct stat there;
    if (!out || !out[0]) return fr_fail(ctx, FR_INVALID, "give the folder to be made by --out");
    if (lstat(out, &there) != 0) return FR_OK;
    DIR *folder = S_ISDIR(there.st_mode) ? opendir(out) : NULL;
    int n = 0;
    while (folder && n <= 2 && readdir(folder)) n++; /* two are the folder itself and its parent */
    if (folder) closedir(folder);
    if (folder && n <= 2) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: is there already, and not an empty folder; give another "
                   "--out",
                   out);
}

/* In a folder beside the one that is wanted, which takes its name at the end. */
static fr_status write_folder(fr__export *x, const char *source, const char *out)
{
    fr_ctx *ctx = x->s->ctx;
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') n--;
    FR_TRY(fr__path(ctx, x->folder, "%.*s.%ld.tmp", (int)n, out, (long)getpid()));
    if (mkdir(x->folder, 0777) != 0) return fr__io_fail(ctx, "make folder", x->folder);
    fr_status status = write_tensors(x, source);
    if (status == FR_OK) status = fr__export_describe(x);
    if (status == FR_OK) status = fr__rename_sync(ctx, x->folder, out);
    if (status == FR_OK) return FR_OK;
    fr__failure failure;
    fr__failure_save(ctx, &failure);
    (void)fr__dir_remove(NULL, x->folder);
    fr__failure_restore(ctx, &failure);
    return status;
}

/* Names are those of model.weights, where it has names of the wanted kind. Its values are needed
 * only without a checkpoint; with one it need not be there any more. */
static fr_status open_origin(fr__export *x, const char *source)
{
    const fr__setup *s = x->s;
    bool is_needed = !source[0];
    if (!s->weights) return FR_OK;
    fr_status status = fr__given_open(s->ctx, s->graph, fr__weight_map_of(fr_graph_name(s->graph)),
                                      s->weights, is_needed && s->is_weights_strict, &x->origin);
    if (status == FR_OK || is_needed || status == FR_NO_MEMORY) return status;
    fr_log(s->ctx, FR_LOG_WARN,
           "the names of model.weights are not known (%s): usual ones are "
           "written",
           fr_ctx_error(s->ctx));
    fr_ctx_clear(s->ctx);
    return FR_OK;
}

static fr_status choose_names(fr__export *x, const char *format)
{
    const char *model = fr_graph_name(x->s->graph);
    const fr__weight_map *map = fr__weight_map_of(model);
    bool is_hf = format && strcmp(format, "hf") == 0;
    if (format && !is_hf && strcmp(format, "safetensors") != 0)
        return fr_fail(x->s->ctx, FR_INVALID, "--format is '%s'; it must be hf or safetensors",
                       format);
    if (is_hf && !map)
        return fr_fail(x->s->ctx, FR_UNSUPPORTED,
                       "model %s has no names in other programs; use --format safetensors", model);
    if (!format) is_hf = x->origin.map != NULL;
    x->map = is_hf ? map : NULL;
    x->prefix = "";
    if (is_hf) x->prefix = x->origin.map ? x->origin.prefix : map->prefixes[0];
    return FR_OK;
}

static fr_status choose_types(fr__export *x, const fr_export_options *o)
{
    static const char *const words[] = {"f32", "bf16", "f16"}, *const types[] = {"F32", "BF16",
                                                                                 "F16"};
    double bytes = 5e9;
    x->dtype = NULL;
    for (int i = 0; i < 3; i++)
        if (strcmp(o->dtype ? o->dtype : "f32", words[i]) == 0) x->dtype = types[i];
    if (!x->dtype)
        return fr_fail(x->s->ctx, FR_INVALID, "--dtype is '%s'; it must be f32, bf16 or f16",
                       o->dtype);
    if (o->shard_size &&
        (!fr__amount_scan(o->shard_size, FR_UNIT_BYTES, &bytes) || !(bytes >= 1 && bytes < 1e18)))
        return fr_fail(x->s->ctx, FR_INVALID,
                       "--shard-size is '%s'; it must be a size such as 5 GB", o->shard_size);
    x->shard_bytes = (uint64_t)bytes;
    return FR_OK;
}

static fr_status export_weights(fr__export *x, const fr_run_options *o, const fr_export_options *e)
{
    char source[FR_PATH];
    FR_TRY(check_out(x->s->ctx, e->out));
    FR_TRY(choose_types(x, e));
    FR_TRY(find_source(x->s, o->checkpoint, source));
    FR_TRY(open_origin(x, source));
    FR_TRY(choose_names(x, e->format));
    FR_TRY(fr__export_list(x));
    FR_TRY(write_folder(x, source, e->out));
    fr_log(x->s->ctx, FR_LOG_INFO, "exported %s", source[0] ? source : x->s->weights);
    return FR_OK;
}

fr_status fr_export(fr_ctx *ctx, const fr_run_options *o, const fr_export_options *e,
                    fr_export_result *result)
{
    fr__setup s;
    fr_run_options own;
    fr__export x = {.s = &s};
    FR_TRY(fr__run_options_take(ctx, o, &own));
    FR_TRY(fr__setup_open(ctx, &own, &s));
    fr_status status = export_weights(&x, &own, e);
    if (result)
        *result = (fr_export_result){.n_files = x.n_shards,
                                     .n_tensors = (int)x.tensors.n,
                                     .bytes = x.total,
                                     .names = x.map ? x.map->name : "Forerun"};
    fr__given_close(&x.origin);
    fr__vec_fini(&x.tensors);
    fr__arena_fini(&x.arena);
    fr__setup_close(&s);
    return status;
}
