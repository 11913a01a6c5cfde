/* checkpoint.c -- writes checkpoints. Reading is in restore.c, the thread in saver.c.
 *
 * A checkpoint grows under a name that nobody reads, every file is flushed to the disk, then one
 * rename makes it real; only after that do older ones go. Killed at any moment, the folder
 * holds the old checkpoints, or the new one too. Tensors come from a snapshot in the order of the
 * files, one at a time: no second copy is held. */
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

/* A draft and the file it is at. */
typedef struct pen {
    fr_draft *d;
    int dir; /* the folder that grows, open */
    fr_tensor_writer *file;
    fr_sha256 hash; /* of the weights */
    char file_hash[FR_N_STATE_FILES][FR_HASH_TEXT];
    bool is_at_end; /* the last item has been taken */
} pen;

static fr_status declare(pen *p, const char *prefix, const fr_param *param)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "." : "", param->name);
    if (n < 0 || n >= (int)sizeof name)
        return fr_fail(p->d->ctx, FR_INVALID, "parameter %s: its name is too long", param->name);
    return fr_tensor_writer_declare(p->file, name, "F32", param->shape.n_dims, param->shape.dim);
}

static size_t bytes_of(const fr_param *p)
{
    return (size_t)fr_shape_count(&p->shape) * sizeof(float);
}

/* Parameters first, then buffers, each in graph order: `want_buffers` chooses. Ties are left out:
 * their owner holds the values. */
static bool is_picked(const fr_param *p, bool want_buffers)
{
    return p->tied_to < 0 && p->is_buffer == want_buffers;
}

/* --- the tensors of a file, in its order ----------------------------------------------------- */

/* What is done with each tensor: it is declared, later it is written. */
typedef fr_status (*each)(pen *p, fr_item_kind kind, int which, int param);

static fr_status for_model(pen *p, each call)
{
    const fr_graph *g = p->d->s->graph;
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_picked(fr_graph_param(g, i), buffers)) FR_TRY(call(p, FR_ITEM_PARAM, 0, i));
    return FR_OK;
}

static fr_status for_optimizer(pen *p, each call)
{
    const fr_graph *g = p->d->s->graph;
    for (int k = 0; k < p->d->s->settings.optimizer->n_state; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_picked(fr_graph_param(g, i), false)) FR_TRY(call(p, FR_ITEM_STATE, k, i));
    for (int i = 0; i < fr_graph_n_params(g) && p->d->memory && p->d->snapshot; i++)
        if (is_picked(fr_graph_param(g, i), false) && fr_snapshot_has_memory(p->d->snapshot, i))
            FR_TRY(call(p, FR_ITEM_MEMORY, 0, i));
    return FR_OK;
}

static fr_status declare_item(pen *p, fr_item_kind kind, int which, int param)
{
    const char *prefix = "";
    if (kind == FR_ITEM_STATE) prefix = p->d->s->settings.optimizer->state_names[which];
    if (kind == FR_ITEM_MEMORY) prefix = p->d->memory;
    return declare(p, prefix, fr_graph_param(p->d->s->graph, param));
}

static fr_status take(pen *p, fr_item *item)
{
    FR_TRY(fr_snapshot_next(p->d->snapshot, item, p->d->plain));
    p->is_at_end = item->param < 0;
    return FR_OK;
}

/* The values of an item, into `plain`. */
static fr_status get_item(pen *p, fr_item_kind kind, int which, int param)
{
    fr_item item;
    const fr_param *of = fr_graph_param(p->d->s->graph, param);
    if (!p->d->snapshot) {
        memset(p->d->plain, 0, bytes_of(of));
        if (kind == FR_ITEM_PARAM)
            fr_graph_init_param(p->d->s->graph, param, p->d->s->settings.seed, p->d->plain);
        return FR_OK;
    }
    FR_TRY(take(p, &item));
    if (item.kind == kind && item.which == which && item.param == param) return FR_OK;
    return fr_fail(p->d->ctx, FR_INTERNAL,
                   "%s: item %d %d %d of the snapshot came in place of %d %d %d", of->name,
                   (int)item.kind, item.which, item.param, (int)kind, which, param);
}

/* A relu that takes NaN for zero can hide a spoilt layer from the loss: so each value is looked at
 * before it is kept. */
static fr_status write_item(pen *p, fr_item_kind kind, int which, int param)
{
    static const char *const whose[] = {[FR_ITEM_PARAM] = "",
                                        [FR_ITEM_STATE] = "the optimizer's state of ",
                                        [FR_ITEM_MEMORY] = "what the weight policy keeps of "};
    const fr_param *of = fr_graph_param(p->d->s->graph, param);
    FR_TRY(get_item(p, kind, which, param));
    if (!fr__are_finite(p->d->plain, bytes_of(of) / sizeof(float)))
        return fr_fail(p->d->ctx, FR_DIVERGED,
                       "%s%s is not finite any more, and so not saved; earlier checkpoints stay. "
                       "Try a smaller lr, clip_norm or a warm-up",
                       whose[kind], of->name);
    if (kind == FR_ITEM_PARAM && !of->is_buffer)
        fr__sha256_update(&p->hash, p->d->plain, bytes_of(of));
    return fr_tensor_writer_data(p->file, p->d->plain, bytes_of(of));
}

static fr_status write_tensors(pen *p, const char *folder, fr_state_file which,
                               fr_status (*tensors)(pen *, each))
{
    char path[FR_PATH];
    FR_TRY(fr__path(p->d->ctx, path, "%s/%s", folder, fr__state_files[which]));
    FR_TRY(fr__tensor_writer_create_in(p->d->ctx, p->dir, path, &p->file));
    fr_status status = fr_tensor_writer_meta(p->file, "format", "pt");
    if (status == FR_OK) status = fr_tensor_writer_meta(p->file, "forerun", fr_version());
    if (status == FR_OK && tensors == for_optimizer && p->d->memory)
        status = fr_tensor_writer_meta(p->file, "memory", p->d->memory);
    if (status == FR_OK) status = tensors(p, declare_item);
    if (status == FR_OK) status = tensors(p, write_item);
    if (status == FR_OK) status = fr_tensor_writer_finish(p->file);
    if (status == FR_OK) fr__tensor_writer_hash(p->file, p->file_hash[which]);
    fr_tensor_writer_free(p->file);
    p->file = NULL;
    return status;
}

/* --- a checkpoint ---------------------------------------------------------------------------- */

static fr_status write_files(pen *p, const char *folder)
{
    fr_draft *d = p->d;
    fr_state state;
    if (d->sync) FR_TRY(d->sync(d->user, d->ctx));
    fr__sha256_init(&p->hash);
    FR_TRY(write_tensors(p, folder, FR_MODEL_FILE, for_model));
    fr__sha256_final(&p->hash, d->sha256);
    FR_TRY(write_tensors(p, folder, FR_OPTIMIZER_FILE, for_optimizer));
    fr__state_of(d->s, &d->at, d->sha256, &state);
    memcpy(state.hash, p->file_hash, sizeof state.hash);
    return fr__state_write(d->ctx, p->dir, folder, &state); /* last: it also flushes the folder */
}

/* Others wait until their items have been taken: all are, also those that nobody can use. */
static fr_status take_rest(pen *p)
{
    fr_item item;
    while (p->d->snapshot && !p->is_at_end) FR_TRY(take(p, &item));
    return FR_OK;
}

static fr_status prune(const fr_draft *d)
{
    fr_steps steps;
    int64_t n_kept = 0;
    fr_status status = fr__folder_steps(d->ctx, d->folder->checkpoints, &steps);
    for (size_t i = 0; status == FR_OK && i < steps.n; i++) {
        char name[32];
        /* A later one was found damaged, for the run came here without it: it does not count. */
        if (steps.at[i] > d->at.step || n_kept++ < d->s->settings.keep) continue;
        snprintf(name, sizeof name, "step-%lld", (long long)steps.at[i]);
        status = fr__folder_discard(d->ctx, d->folder->checkpoint_fd, d->folder->checkpoints, name);
    }
    fr__vec_fini(&steps);
    return status;
}

/* Names count from the folder that the run has opened, wherever its path leads meanwhile. */
static fr_status grow(pen *p, const char *name, const char *temp)
{
    fr_draft *d = p->d;
    int parent = d->folder->checkpoint_fd;
    FR_TRY(fr__folder_held(d->ctx, d->folder));
    if (mkdirat(parent, strrchr(temp, '/') + 1, 0777) != 0)
        return fr__io_fail(d->ctx, "make folder", temp);
    p->dir = fr__open_in(parent, temp, O_RDONLY | O_DIRECTORY);
    if (p->dir < 0) return fr__io_fail(d->ctx, "open folder", temp);
    fr_status status = write_files(p, temp);
    close(p->dir);
    /* One of this name was found damaged: the run came here from an older one. */
    if (status == FR_OK && faccessat(parent, name, F_OK, 0) == 0)
        status = fr__folder_discard(d->ctx, parent, d->folder->checkpoints, name);
    return status == FR_OK ? fr__rename_sync_in(d->ctx, parent, temp, d->path) : status;
}

fr_status fr__checkpoint_write(fr_draft *d)
{
    const char *parent = d->folder->checkpoints;
    char name[32], temp[FR_PATH];
    pen tool = {.d = d};
    snprintf(name, sizeof name, "step-%lld", (long long)d->at.step);
    fr_status status = fr__path(d->ctx, d->path, "%s/%s", parent, name);
    if (status == FR_OK) status = fr__path(d->ctx, temp, "%s/.tmp-%s", parent, name);
    bool has_paths = status == FR_OK;
    if (status == FR_OK) status = grow(&tool, name, temp);
    if (status == FR_OK) status = take_rest(&tool);
    if (status == FR_OK) return prune(d);
    fr_failure failure;
    fr__failure_save(d->ctx, &failure);
    (void)take_rest(&tool);
    if (has_paths) /* gives a full disk its room back */
        (void)fr__dir_remove_in(NULL, d->folder->checkpoint_fd, temp);
    fr__failure_restore(d->ctx, &failure);
    /* A name that is missing or not permitted was fine before, and is not the user's to mend. */
    return status == FR_INVALID ? FR_IO : status;
}

fr_status fr__checkpoint_send(fr_snapshot *s)
{
    fr_item item = {0};
    while (item.param >= 0) FR_TRY(fr_snapshot_next(s, &item, NULL));
    return FR_OK;
}

fr_status fr__checkpoint_save(fr_setup *s, fr_engine *e, const fr_folder *f, const fr_position *p,
                              char path[FR_PATH], char sha256[65])
{
    fr_draft *d = FR_NEW(fr_draft);
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    if (!d) return fr__no_memory(s->ctx, sizeof *d, "checkpoint");
    *d = (fr_draft){.ctx = s->ctx,
                    .s = s,
                    .folder = f,
                    .memory = e ? fr_engine_memory_name(e) : NULL,
                    .at = *p,
                    .plain = fr__alloc(bytes)};
    fr_status status = d->plain ? FR_OK : fr__no_memory(s->ctx, bytes, "checkpoint");
    if (status == FR_OK && e) status = fr_engine_snapshot(e, &d->snapshot);
    if (status == FR_OK) status = fr__checkpoint_write(d);
    memcpy(path, d->path, FR_PATH);
    memcpy(sha256, d->sha256, sizeof d->sha256);
    fr__free(d->plain);
    fr__free(d);
    return status;
}

/* --- the weights as they are ----------------------------------------------------------------- */

fr_status fr__weights_sha256(fr_setup *s, fr_engine *e, char sha256[65])
{
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    float *plain = fr__alloc(bytes);
    if (!plain) return fr__no_memory(s->ctx, bytes, "a look at the weights");
    fr_sha256 hash;
    fr__sha256_init(&hash);
    fr_status status = FR_OK;
    for (int i = 0; status == FR_OK && i < fr_graph_n_params(s->graph); i++) {
        const fr_param *param = fr_graph_param(s->graph, i);
        if (!is_picked(param, false)) continue;
        status = fr__touch(s, e, FR_GET_PARAM, 0, i, plain);
        if (status == FR_OK) fr__sha256_update(&hash, plain, bytes_of(param));
    }
    fr__sha256_final(&hash, sha256);
    fr__free(plain);
    return status;
}
