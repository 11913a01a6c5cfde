/* checkpoint.c -- writes checkpoints. Reading is in restore.c, the thread in saver.c.
 *
 * A checkpoint is written under a temporary name, every file is flushed to the disk, then one
 * rename makes it visible. Older checkpoints are removed after that. A run killed at any moment
 * leaves the old checkpoints, or the new one as well. Tensors come from a snapshot one at a time,
 * in the order of the files: no second copy is held. */
#include "checkpoint/checkpoint.h"

#include "base/ctx.h"
#include "checkpoint/rank0_rpc.h"
#include "checkpoint/state.h"
#include "io/file.h"
#include "io/number.h"
#include "io/safetensors.h"
#include "io/sha256.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A job and the file that is being written. */
typedef struct writer {
    fr__checkpoint_job *job;
    int dir; /* the temporary folder, open */
    fr_tensor_writer *file;
    fr__sha256 hash; /* of the weights */
    char file_hash[FR_N_STATE_FILES][FR_HASH_TEXT];
    bool is_at_end; /* the last item has been read */
} writer;

static fr_status declare(writer *w, const char *prefix, const fr_param *param)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "." : "", param->name);
    if (n < 0 || n >= (int)sizeof name)
        return fr_fail(w->job->ctx, FR_INVALID, "parameter %s: its name is too long", param->name);
    return fr_tensor_writer_declare(w->file, name, "F32", param->shape.n_dims, param->shape.dim);
}

static size_t bytes_of(const fr_param *p)
{
    return (size_t)fr_shape_count(&p->shape) * sizeof(float);
}

/* Parameters first, then buffers, each in graph order: `want_buffers` chooses. Tied parameters are
 * left out: their owner holds the values. */
static bool is_picked(const fr_param *p, bool want_buffers)
{
    return p->tied_to < 0 && p->is_buffer == want_buffers;
}

/* --- the tensors of a file, in its order ----------------------------------------------------- */

/* Called for each tensor: first to declare it, later to write it. */
typedef fr_status (*each)(writer *w, fr_item_kind kind, int which, int param);

static fr_status for_model(writer *w, each call)
{
    const fr_graph *g = w->job->s->graph;
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_picked(fr_graph_param(g, i), buffers)) FR_TRY(call(w, FR_ITEM_PARAM, 0, i));
    return FR_OK;
}

static fr_status for_optimizer(writer *w, each call)
{
    const fr_graph *g = w->job->s->graph;
    for (int k = 0; k < w->job->s->settings.optimizer->n_state; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_picked(fr_graph_param(g, i), false)) FR_TRY(call(w, FR_ITEM_STATE, k, i));
    for (int i = 0; i < fr_graph_n_params(g) && w->job->memory && w->job->snapshot; i++)
        if (is_picked(fr_graph_param(g, i), false) && fr_snapshot_has_memory(w->job->snapshot, i))
            FR_TRY(call(w, FR_ITEM_MEMORY, 0, i));
    return FR_OK;
}

static fr_status declare_item(writer *w, fr_item_kind kind, int which, int param)
{
    const char *prefix = "";
    if (kind == FR_ITEM_STATE) prefix = w->job->s->settings.optimizer->state_names[which];
    if (kind == FR_ITEM_MEMORY) prefix = w->job->memory;
    return declare(w, prefix, fr_graph_param(w->job->s->graph, param));
}

static fr_status take(writer *w, fr_item *item)
{
    FR_TRY(fr_snapshot_next(w->job->snapshot, item, w->job->plain));
    w->is_at_end = item->param < 0;
    return FR_OK;
}

/* The values of an item, into `plain`. */
static fr_status get_item(writer *w, fr_item_kind kind, int which, int param)
{
    fr_item item;
    const fr_param *of = fr_graph_param(w->job->s->graph, param);
    if (!w->job->snapshot) {
        memset(w->job->plain, 0, bytes_of(of));
        if (kind == FR_ITEM_PARAM)
            fr_graph_init_param(w->job->s->graph, param, w->job->s->settings.seed, w->job->plain);
        return FR_OK;
    }
    FR_TRY(take(w, &item));
    if (item.kind == kind && item.which == which && item.param == param) return FR_OK;
    return fr_fail(w->job->ctx, FR_INTERNAL,
                   "%s: item %d %d %d of the snapshot came in place of %d %d %d", of->name,
                   (int)item.kind, item.which, item.param, (int)kind, which, param);
}

/* A relu that maps NaN to zero can hide a layer of NaN from the loss, so each value is checked
 * before it is saved. */
static fr_status write_item(writer *w, fr_item_kind kind, int which, int param)
{
    static const char *const whose[] = {[FR_ITEM_PARAM] = "",
                                        [FR_ITEM_STATE] = "the optimizer's state of ",
                                        [FR_ITEM_MEMORY] = "what the weight policy keeps of "};
    const fr_param *of = fr_graph_param(w->job->s->graph, param);
    FR_TRY(get_item(w, kind, which, param));
    if (!fr__are_finite(w->job->plain, bytes_of(of) / sizeof(float)))
        return fr_fail(w->job->ctx, FR_DIVERGED,
                       "%s%s is no longer finite and is not saved; earlier checkpoints are kept. "
                       "Try a smaller lr, clip_norm or a warm-up",
                       whose[kind], of->name);
    if (kind == FR_ITEM_PARAM && !of->is_buffer)
        fr__sha256_update(&w->hash, w->job->plain, bytes_of(of));
    return fr_tensor_writer_data(w->file, w->job->plain, bytes_of(of));
}

static fr_status write_tensors(writer *w, const char *folder, fr__state_file which,
                               fr_status (*tensors)(writer *, each))
{
    char path[FR_PATH];
    FR_TRY(fr__path(w->job->ctx, path, "%s/%s", folder, fr__state_files[which]));
    FR_TRY(fr__tensor_writer_create_in(w->job->ctx, w->dir, path, &w->file));
    fr_status status = fr_tensor_writer_meta(w->file, "format", "pt");
    if (status == FR_OK) status = fr_tensor_writer_meta(w->file, "forerun", fr_version());
    if (status == FR_OK && tensors == for_optimizer && w->job->memory)
        status = fr_tensor_writer_meta(w->file, "memory", w->job->memory);
    if (status == FR_OK) status = tensors(w, declare_item);
    if (status == FR_OK) status = tensors(w, write_item);
    if (status == FR_OK) status = fr_tensor_writer_finish(w->file);
    if (status == FR_OK) fr__tensor_writer_hash(w->file, w->file_hash[which]);
    fr_tensor_writer_free(w->file);
    w->file = NULL;
    return status;
}

/* --- a checkpoint ---------------------------------------------------------------------------- */

static fr_status write_files(writer *w, const char *folder)
{
    fr__checkpoint_job *job = w->job;
    fr__state state;
    if (job->sync) FR_TRY(job->sync(job->user, job->ctx));
    fr__sha256_init(&w->hash);
    FR_TRY(write_tensors(w, folder, FR_MODEL_FILE, for_model));
    fr__sha256_final(&w->hash, job->sha256);
    FR_TRY(write_tensors(w, folder, FR_OPTIMIZER_FILE, for_optimizer));
    fr__state_of(job->s, &job->at, job->sha256, &state);
    memcpy(state.hash, w->file_hash, sizeof state.hash);
    return fr__state_write(job->ctx, w->dir, folder, &state); /* last: it also flushes the folder */
}

/* The other ranks wait until their items have been read, so all items are read, even after a
 * failure. */
static fr_status take_rest(writer *w)
{
    fr_item item;
    while (w->job->snapshot && !w->is_at_end) FR_TRY(take(w, &item));
    return FR_OK;
}

static fr_status prune(const fr__checkpoint_job *job)
{
    fr__steps steps;
    int64_t n_kept = 0;
    fr_status status = fr__folder_steps(job->ctx, job->folder->checkpoints, &steps);
    for (size_t i = 0; status == FR_OK && i < steps.n; i++) {
        char name[32];
        /* A later checkpoint was found damaged, since the run started before it: it does not count.
         */
        if (steps.at[i] > job->at.step || n_kept++ < job->s->settings.keep) continue;
        if (job->s->settings.keep_best && steps.at[i] == job->at.best_step) continue;
        snprintf(name, sizeof name, "step-%lld", (long long)steps.at[i]);
        status = fr__folder_discard(job->ctx, job->folder->checkpoint_fd, job->folder->checkpoints,
                                    name);
    }
    fr__vec_fini(&steps);
    return status;
}

/* Names are relative to the folder that the run has opened, wherever its path leads now. */
static fr_status grow(writer *w, const char *name, const char *temp)
{
    fr__checkpoint_job *job = w->job;
    int parent = job->folder->checkpoint_fd;
    FR_TRY(fr__folder_held(job->ctx, job->folder));
    if (mkdirat(parent, strrchr(temp, '/') + 1, 0777) != 0)
        return fr__io_fail(job->ctx, "make folder", temp);
    w->dir = fr__open_in(parent, temp, O_RDONLY | O_DIRECTORY);
    if (w->dir < 0) return fr__io_fail(job->ctx, "open folder", temp);
    fr_status status = write_files(w, temp);
    close(w->dir);
    /* A checkpoint of this name was found damaged: the run started from an older one. */
    if (status == FR_OK && faccessat(parent, name, F_OK, 0) == 0)
        status = fr__folder_discard(job->ctx, parent, job->folder->checkpoints, name);
    return status == FR_OK ? fr__rename_sync_in(job->ctx, parent, temp, job->path) : status;
}

fr_status fr__checkpoint_write(fr__checkpoint_job *job)
{
    const char *parent = job->folder->checkpoints;
    char name[32], temp[FR_PATH];
    writer w = {.job = job};
    snprintf(name, sizeof name, "step-%lld", (long long)job->at.step);
    fr_status status = fr__path(job->ctx, job->path, "%s/%s", parent, name);
    if (status == FR_OK) status = fr__path(job->ctx, temp, "%s/.tmp-%s", parent, name);
    bool has_paths = status == FR_OK;
    if (status == FR_OK) status = grow(&w, name, temp);
    if (status == FR_OK) status = take_rest(&w);
    if (status == FR_OK) return prune(job);
    fr__failure failure;
    fr__failure_save(job->ctx, &failure);
    (void)take_rest(&w);
    if (has_paths) /* frees space on a full disk */
        (void)fr__dir_remove_in(NULL, job->folder->checkpoint_fd, temp);
    fr__failure_restore(job->ctx, &failure);
    /* The path was valid when the run started, so FR_INVALID (bad input) is an I/O failure here. */
    return status == FR_INVALID ? FR_IO : status;
}

fr_status fr__checkpoint_send(fr_snapshot *s)
{
    fr_item item = {0};
    while (item.param >= 0) FR_TRY(fr_snapshot_next(s, &item, NULL));
    return FR_OK;
}

fr_status fr__checkpoint_save(fr__setup *s, fr_engine *e, const fr__folder *f,
                              const fr__position *p, char path[FR_PATH], char sha256[65])
{
    fr__checkpoint_job *job = FR_NEW(fr__checkpoint_job);
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    if (!job) return fr__no_memory(s->ctx, sizeof *job, "checkpoint");
    *job = (fr__checkpoint_job){.ctx = s->ctx,
                                .s = s,
                                .folder = f,
                                .memory = e ? fr_engine_memory_name(e) : NULL,
                                .at = *p,
                                .plain = fr__alloc(bytes)};
    fr_status status = job->plain ? FR_OK : fr__no_memory(s->ctx, bytes, "checkpoint");
    if (status == FR_OK && e) status = fr_engine_snapshot(e, &job->snapshot);
    if (status == FR_OK) status = fr__checkpoint_write(job);
    memcpy(path, job->path, FR_PATH);
    memcpy(sha256, job->sha256, sizeof job->sha256);
    fr__free(job->plain);
    fr__free(job);
    return status;
}

/* --- the weights as they are ----------------------------------------------------------------- */

fr_status fr__weights_sha256(fr__setup *s, fr_engine *e, char sha256[65])
{
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    float *plain = fr__alloc(bytes);
    if (!plain) return fr__no_memory(s->ctx, bytes, "a check of the weights");
    fr__sha256 hash;
    fr__sha256_init(&hash);
    fr_status status = FR_OK;
    for (int i = 0; status == FR_OK && i < fr_graph_n_params(s->graph); i++) {
        const fr_param *param = fr_graph_param(s->graph, i);
        if (!is_picked(param, false)) continue;
        status = fr__rank0_call(s, e, FR_RPC_GET_PARAM, 0, i, plain);
        if (status == FR_OK) fr__sha256_update(&hash, plain, bytes_of(param));
    }
    fr__sha256_final(&hash, sha256);
    fr__free(plain);
    return status;
}
