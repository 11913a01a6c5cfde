/* restore.c -- reads checkpoints: first compares all names and shapes with the model, then loads
 * the values. The state of a weight policy is loaded if it is present and this run's policy uses
 * it.
 *
 * The hash of a file is computed while its values are read, in file order, and compared at the
 * end. The engine may then hold values of a damaged file until an older checkpoint replaces them.
 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/rank0_rpc.h"
#include "checkpoint/state.h"
#include "io/file.h"
#include "io/number.h"
#include "io/sha256.h"

#include <string.h>

/* A file of tensors. Their names are `prefix` (NULL for none) and the name of a parameter. */
typedef struct reader {
    fr__setup *s;
    const fr__state *state; /* NULL: weights without a state.json */
    fr_tensors *file;
    const char *path;
    float *plain;    /* (largest parameter) */
    bool is_damaged; /* the last failure was due to damage */
} reader;

static bool is_stored(const fr_param *p, bool is_state)
{
    return p->tied_to < 0 && !(is_state && p->is_buffer);
}

static int find(const reader *f, const char *prefix, const fr_param *p)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", p->name);
    return fr_tensors_find(f->file, name);
}

static void shape_of(const fr_tensor_info *t, char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "(");
    for (int i = 0; i < t->n_dims && n < room; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    if (n < room) snprintf(text + n, room - n, ")");
}

static bool same_shape(const fr_tensor_info *t, const fr_shape *s)
{
    if (t->n_dims != s->n_dims) return false;
    for (int i = 0; i < s->n_dims; i++)
        if (t->dim[i] != s->dim[i]) return false;
    return true;
}

/* Compares one parameter with the file; the first difference is reported. */
static fr_status compare_one(const reader *f, const char *prefix, const fr_param *p)
{
    char there[128], here[64];
    const char *kind = prefix ? prefix : "parameter";
    int at = find(f, prefix, p);
    if (at < 0)
        return fr_fail(f->s->ctx, FR_INVALID,
                       "%s: holds no %s for '%s' of model %s; was it written by another config?",
                       f->path, kind, p->name, fr_graph_name(f->s->graph));
    const fr_tensor_info *t = fr_tensors_info(f->file, at);
    if (strcmp(t->dtype, "F32") == 0 && same_shape(t, &p->shape)) return FR_OK;
    shape_of(t, there, sizeof there);
    return fr_fail(f->s->ctx, FR_INVALID,
                   "%s: %s '%s' is %s %s there and F32 %s in model %s; was it written by another "
                   "config?",
                   f->path, kind, p->name, t->dtype, there,
                   fr_shape_text(&p->shape, here, sizeof here), fr_graph_name(f->s->graph));
}

static bool is_named(const reader *f, const char *prefix, const char *name)
{
    size_t n = prefix ? strlen(prefix) : 0;
    if (n && (strncmp(name, prefix, n) != 0 || name[n] != '.')) return false;
    int i = fr_graph_find_param(f->s->graph, name + (n ? n + 1 : 0));
    return i >= 0 && is_stored(fr_graph_param(f->s->graph, i), n > 0);
}

static bool is_expected(const reader *f, const char *const *prefixes, int n_prefixes,
                        const char *name)
{
    for (int k = 0; k < n_prefixes; k++)
        if (is_named(f, prefixes[k], name)) return true;
    const char *memory = fr_tensors_meta(f->file, "memory");
    return memory && is_named(f, memory, name);
}

/* Names and shapes: the model against the file, then the file against the model. */
static fr_status compare(const reader *f, const char *const *prefixes, int n_prefixes)
{
    const fr_graph *g = f->s->graph;
    for (int k = 0; k < n_prefixes; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_stored(fr_graph_param(g, i), prefixes[k] != NULL))
                FR_TRY(compare_one(f, prefixes[k], fr_graph_param(g, i)));
    for (int i = 0; i < fr_tensors_count(f->file); i++) {
        const char *name = fr_tensors_info(f->file, i)->name;
        if (!is_expected(f, prefixes, n_prefixes, name))
            return fr_fail(f->s->ctx, FR_INVALID,
                           "%s: holds '%s', which model %s does not have; was it written by "
                           "another config?",
                           f->path, name, fr_graph_name(g));
    }
    return FR_OK;
}

/* Into f->plain. */
static fr_status read_one(reader *f, const char *prefix, const fr_param *p)
{
    size_t n = (size_t)fr_shape_count(&p->shape);
    f->is_damaged = true; /* if it fails */
    FR_TRY(fr_tensors_read(f->file, find(f, prefix, p), f->plain, n * sizeof(float)));
    if (!fr__are_finite(f->plain, n))
        return fr_fail(f->s->ctx, FR_INVALID, "%s: %s%s%s has values that are not finite", f->path,
                       prefix ? prefix : "", prefix ? "." : "", p->name);
    f->is_damaged = false;
    return FR_OK;
}

/* Format 1 has no hashes of files, only the SHA-256 of the weights. */
static fr_status check_sha256(reader *f, fr__sha256 *hash)
{
    char sha256[65];
    fr__sha256_final(hash, sha256);
    if (!f->state || strcmp(sha256, f->state->sha256) == 0) return FR_OK;
    f->is_damaged = true;
    return fr_fail(f->s->ctx, FR_INVALID,
                   "%s: the weights have changed since they were written (sha256 %.12s..., "
                   "state.json says %.12s...)",
                   f->path, sha256, f->state->sha256);
}

/* Trained parameters, then running statistics: the order of the file. */
static fr_status take_model(reader *f, fr__param_put put, void *user)
{
    const fr_graph *g = f->s->graph;
    static const char *const no_prefix[] = {NULL};
    bool has_hash = f->state && f->state->hash[FR_MODEL_FILE][0];
    FR_TRY(compare(f, no_prefix, 1));
    fr__sha256 hash;
    fr__sha256_init(&hash);
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *p = fr_graph_param(g, i);
            if (!is_stored(p, false) || p->is_buffer != (bool)buffers) continue;
            FR_TRY(read_one(f, NULL, p));
            if (!buffers && !has_hash)
                fr__sha256_update(&hash, f->plain,
                                  (size_t)fr_shape_count(&p->shape) * sizeof(float));
            if (put) FR_TRY(put(user, i, f->plain));
        }
    return has_hash ? FR_OK : check_sha256(f, &hash);
}

static fr_status take_memory(reader *f, fr_engine *e)
{
    const fr_graph *g = f->s->graph;
    const char *there = fr_tensors_meta(f->file, "memory"), *wanted = fr_engine_memory_name(e);
    if (!there || !wanted || strcmp(there, wanted) != 0) return FR_OK;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        if (!is_stored(p, true) || find(f, there, p) < 0) continue;
        FR_TRY(compare_one(f, there, p));
        FR_TRY(read_one(f, there, p));
        FR_TRY(fr__rank0_call(f->s, e, FR_RPC_SET_MEMORY, 0, i, f->plain));
    }
    return FR_OK;
}

static fr_status take_optimizer(reader *f, fr_engine *e)
{
    const fr_graph *g = f->s->graph;
    const fr_optimizer *opt = f->s->settings.optimizer;
    FR_TRY(compare(f, opt->state_names, opt->n_state));
    for (int k = 0; k < opt->n_state; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *p = fr_graph_param(g, i);
            if (!is_stored(p, true)) continue;
            FR_TRY(read_one(f, opt->state_names[k], p));
            FR_TRY(fr__rank0_call(f->s, e, FR_RPC_SET_STATE, k, i, f->plain));
        }
    return take_memory(f, e);
}

/* After the values were read, or did not match the model: a changed file explains the mismatch. */
static fr_status check_hash(reader *f, fr__state_file which, fr_status taken)
{
    if (!f->state || f->is_damaged) return taken;
    f->is_damaged = true;
    FR_TRY(fr__state_check_file(f->s->ctx, f->state, which, f->path, f->file));
    f->is_damaged = false;
    return taken;
}

/* Where the values of a file go. */
typedef struct target {
    fr__setup *s;
    fr_engine *e;
    fr__param_put put; /* of the model's file, with user */
    void *user;
} target;

static fr_status put_into_engine(void *user, int param, float *plain)
{
    const target *to = user;
    return fr__rank0_call(to->s, to->e, FR_RPC_SET_PARAM, 0, param, plain);
}

/* state NULL: weights without a state.json. */
static fr_status take_file(const target *to, const char *folder, const fr__state *state,
                           fr__state_file which, bool *is_damaged)
{
    fr__setup *s = to->s;
    char path[FR_PATH];
    reader f = {.s = s, .state = state, .path = path};
    FR_TRY(fr__path(s->ctx, path, "%s/%s", folder, fr__state_files[which]));
    *is_damaged = true;
    FR_TRY(fr_tensors_open(s->ctx, path, &f.file));
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    f.plain = fr__alloc(bytes);
    fr_status status = f.plain ? FR_OK : fr__no_memory(s->ctx, bytes, "checkpoint");
    if (status == FR_OK) {
        status =
            which == FR_MODEL_FILE ? take_model(&f, to->put, to->user) : take_optimizer(&f, to->e);
        status = check_hash(&f, which, status);
    }
    *is_damaged = f.is_damaged;
    fr__free(f.plain);
    fr_tensors_close(f.file);
    return status;
}

fr_status fr__checkpoint_read_model(fr__setup *s, const char *folder, fr__param_put put, void *user,
                                    bool *is_damaged)
{
    const target to = {.s = s, .put = put, .user = user};
    char path[FR_PATH];
    fr__state state;
    int64_t step;
    *is_damaged = true;
    FR_TRY(fr__path(s->ctx, path, "%s/state.json", folder));
    bool has_state = fr__folder_step_of(folder, &step) || fr__file_exists(path);
    if (has_state) FR_TRY(fr__state_read(s->ctx, folder, &state));
    return take_file(&to, folder, has_state ? &state : NULL, FR_MODEL_FILE, is_damaged);
}

fr_status fr__checkpoint_load_model(fr__setup *s, fr_engine *e, const char *folder,
                                    bool *is_damaged)
{
    target to = {.s = s, .e = e};
    return fr__checkpoint_read_model(s, folder, put_into_engine, &to, is_damaged);
}

fr_status fr__checkpoint_load(fr__setup *s, fr_engine *e, const char *folder, fr__position *p,
                              bool *is_damaged)
{
    fr__state state;
    target to = {.s = s, .e = e, .put = put_into_engine};
    to.user = &to;
    *is_damaged = true;
    FR_TRY(fr__state_read(s->ctx, folder, &state));
    *is_damaged = false;
    FR_TRY(fr__state_check(s, folder, &state));
    FR_TRY(take_file(&to, folder, &state, FR_MODEL_FILE, is_damaged));
    FR_TRY(take_file(&to, folder, &state, FR_OPTIMIZER_FILE, is_damaged));
    fr__state_log_kernels(s, folder, &state);
    *p = state.at;
    return FR_OK;
}

fr_status fr__checkpoint_load_newest(fr__setup *s, fr_engine *e, const char *checkpoints,
                                     fr__position *p, char path[FR_PATH])
{
    fr__steps steps;
    bool is_damaged = true;
    path[0] = '\0';
    fr_status status = fr__folder_steps(s->ctx, checkpoints, &steps);
    for (size_t i = 0; status == FR_OK && i < steps.n; i++) {
        status = fr__path(s->ctx, path, "%s/step-%lld", checkpoints, (long long)steps.at[i]);
        if (status != FR_OK) break;
        status = p ? fr__checkpoint_load(s, e, path, p, &is_damaged)
                   : fr__checkpoint_load_model(s, e, path, &is_damaged);
        is_damaged = is_damaged && status != FR_NO_MEMORY;
        if (status == FR_OK || !is_damaged || i + 1 == steps.n) break;
        fr_log(s->ctx, FR_LOG_WARN, "%s; using the checkpoint before it", fr_ctx_error(s->ctx));
        status = FR_OK;
    }
    fr__vec_fini(&steps);
    return status;
}
