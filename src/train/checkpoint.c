/* checkpoint.c -- writes checkpoints. Reading is in restore.c.
 *
 * A checkpoint grows under a name that nobody reads, every file is flushed to the disk, then one
 * rename makes it real; only after that do older ones go. Killed at any moment, the folder
 * holds the old checkpoints, or the new one too. */
#include "train/checkpoint.h"
#include <forerun/state.h>

#include "io/file.h"
#include "io/json.h"
#include "io/sha256.h"
#include "train/state.h"

#include <math.h>
#include <string.h>

/* One parameter at a time passes through `plain`, (largest parameter) floats. */
typedef struct pen {
    fr_setup *s;
    fr_engine *e;
    fr_tensor_writer *file;
    float *plain;
} pen;

static fr_status declare(pen *p, const char *prefix, const fr_param *param)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "." : "", param->name);
    if (n < 0 || n >= (int)sizeof name)
        return fr_fail(p->s->ctx, FR_INVALID, "parameter %s: its name is too long", param->name);
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

static void check_finite(void *is_finite, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i])) *(bool *)is_finite = false;
}

/* A relu that takes NaN for zero can hide a spoilt layer from the loss: so each value is looked at
 * before it is kept. */
static fr_status write_model_tensors(pen *p, char sha256[65])
{
    const fr_graph *g = p->s->graph;
    fr_sha256 hash;
    fr__sha256_init(&hash);
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_picked(fr_graph_param(g, i), buffers))
                FR_TRY(declare(p, "", fr_graph_param(g, i)));
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *param = fr_graph_param(g, i);
            if (!is_picked(param, buffers)) continue;
            FR_TRY(fr_engine_get_param(p->e, i, p->plain));
            bool is_finite = true;
            check_finite(&is_finite, p->plain, bytes_of(param) / sizeof(float));
            if (!is_finite)
                return fr_fail(p->s->ctx, FR_DIVERGED,
                               "%s is not finite any more, and so not saved; earlier checkpoints "
                               "stay. Try a smaller lr, clip_norm or a warm-up",
                               param->name);
            if (!buffers) fr__sha256_update(&hash, p->plain, bytes_of(param));
            FR_TRY(fr_tensor_writer_data(p->file, p->plain, bytes_of(param)));
        }
    fr__sha256_final(&hash, sha256);
    return FR_OK;
}

static fr_status write_optimizer_tensors(pen *p)
{
    const fr_graph *g = p->s->graph;
    const fr_optimizer *opt = p->s->settings.optimizer;
    for (int k = 0; k < opt->n_state; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++)
            if (is_picked(fr_graph_param(g, i), false))
                FR_TRY(declare(p, opt->state_names[k], fr_graph_param(g, i)));
    for (int k = 0; k < opt->n_state; k++)
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *param = fr_graph_param(g, i);
            if (!is_picked(param, false)) continue;
            FR_TRY(fr_engine_get_state(p->e, k, i, p->plain));
            FR_TRY(fr_tensor_writer_data(p->file, p->plain, bytes_of(param)));
        }
    return FR_OK;
}

/* sha256 NULL: the optimizer's file, else the model's. */
static fr_status write_tensors(pen *p, const char *folder, const char *name, char *sha256)
{
    char path[FR_PATH];
    FR_TRY(fr__path(p->s->ctx, path, "%s/%s", folder, name));
    FR_TRY(fr_tensor_writer_create(p->s->ctx, path, &p->file));
    fr_status status = fr_tensor_writer_meta(p->file, "format", "pt");
    if (status == FR_OK) status = fr_tensor_writer_meta(p->file, "forerun", fr_version());
    if (status == FR_OK)
        status = sha256 ? write_model_tensors(p, sha256) : write_optimizer_tensors(p);
    if (status == FR_OK) status = fr_tensor_writer_finish(p->file);
    fr_tensor_writer_free(p->file);
    p->file = NULL;
    return status;
}

static fr_status write_files(pen *p, const char *folder, const fr_position *at, char sha256[65])
{
    FR_TRY(fr__dir_make(p->s->ctx, folder));
    FR_TRY(write_tensors(p, folder, "model.safetensors", sha256));
    FR_TRY(write_tensors(p, folder, "optimizer.safetensors", NULL));
    fr_state state;
    fr__state_of(p->s, at, sha256, &state);
    return fr__state_write(p->s->ctx, folder, &state); /* last: it also flushes the folder */
}

static fr_status prune(fr_setup *s, const fr_folder *f)
{
    fr_steps steps;
    fr_status status = fr__folder_steps(s->ctx, f->checkpoints, &steps);
    for (size_t i = (size_t)s->settings.keep; status == FR_OK && i < steps.n; i++) {
        char name[32];
        snprintf(name, sizeof name, "step-%lld", (long long)steps.at[i]);
        status = fr__folder_discard(s->ctx, f->checkpoints, name);
    }
    fr__vec_fini(&steps);
    return status;
}

fr_status fr__checkpoint_save(fr_setup *s, fr_engine *e, const fr_folder *f, const fr_position *p,
                              char path[FR_PATH], char sha256[65])
{
    char name[32], temp[FR_PATH];
    snprintf(name, sizeof name, "step-%lld", (long long)p->step);
    FR_TRY(fr__path(s->ctx, path, "%s/%s", f->checkpoints, name));
    FR_TRY(fr__path(s->ctx, temp, "%s/.tmp-%s", f->checkpoints, name));
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    pen tool = {.s = s, .e = e, .plain = fr__alloc(bytes)};
    if (!tool.plain) return fr__no_memory(s->ctx, bytes, "checkpoint");
    fr_status status = write_files(&tool, temp, p, sha256);
    fr__free(tool.plain);
    /* A folder of this name is one that was found damaged: the run came here from an older one. */
    if (status == FR_OK && fr__dir_exists(path))
        status = fr__folder_discard(s->ctx, f->checkpoints, name);
    if (status == FR_OK) status = fr__rename_sync(s->ctx, temp, path);
    if (status != FR_OK) {
        (void)fr__dir_remove(s->ctx, temp); /* gives a full disk its room back */
        return status;
    }
    return prune(s, f);
}

/* Calls `see` with the plain values of each trained parameter in graph order. */
static fr_status for_each_param(fr_setup *s, fr_engine *e,
                                void (*see)(void *, const float *, size_t), void *arg)
{
    size_t bytes = fr__setup_largest_param(s->graph) * sizeof(float);
    float *plain = fr__alloc(bytes);
    if (!plain) return fr__no_memory(s->ctx, bytes, "a look at the weights");
    fr_status status = FR_OK;
    for (int i = 0; status == FR_OK && i < fr_graph_n_params(s->graph); i++) {
        const fr_param *param = fr_graph_param(s->graph, i);
        if (!is_picked(param, false)) continue;
        status = fr_engine_get_param(e, i, plain);
        if (status == FR_OK) see(arg, plain, bytes_of(param) / sizeof(float));
    }
    fr__free(plain);
    return status;
}

static void add_to_hash(void *hash, const float *values, size_t n)
{
    fr__sha256_update(hash, values, n * sizeof(float));
}

fr_status fr__weights_sha256(fr_setup *s, fr_engine *e, char sha256[65])
{
    fr_sha256 hash;
    fr__sha256_init(&hash);
    FR_TRY(for_each_param(s, e, add_to_hash, &hash));
    fr__sha256_final(&hash, sha256);
    return FR_OK;
}

fr_status fr__weights_finite(fr_setup *s, fr_engine *e, bool *is_finite)
{
    *is_finite = true;
    return for_each_param(s, e, check_finite, is_finite);
}
