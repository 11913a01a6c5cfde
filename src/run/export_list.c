/* export_list.c -- which tensors an export has, under which names, and in which files. */
#include "run/export.h"

#include "io/file.h"
#include "io/tensor_type.h"

#include <stdio.h>
#include <string.h>

static fr_status push(fr__export *x, fr__out_tensor *t, const char *name)
{
    t->name = fr__arena_strdup(&x->arena, name);
    if (!t->name || !fr__vec_push(&x->tensors, *t))
        return fr__no_memory(x->s->ctx, sizeof *t, "export");
    return FR_OK;
}

static fr_status list_names(fr__export *x, int owner, const fr__weight_names *names)
{
    const fr_shape *s = &fr_graph_param(x->s->graph, owner)->shape;
    for (int k = 0; k < names->n; k++) {
        fr__out_tensor t = {.param = owner,
                            .origin = -1,
                            .part = k,
                            .n_parts = names->n,
                            .is_transposed = names->is_transposed,
                            .dtype = x->dtype,
                            .n_dims = s->n_dims};
        memcpy(t.dims, s->dim, sizeof s->dim);
        if (s->n_dims) t.dims[0] /= names->n;
        if (t.is_transposed) t.dims[0] = s->dim[1], t.dims[1] = s->dim[0] / names->n;
        t.bytes = (uint64_t)fr_shape_count(s) / (uint64_t)names->n * fr__real_bytes(x->dtype);
        FR_TRY(push(x, &t, names->name[k]));
    }
    return FR_OK;
}

/* A tied parameter has a tensor of its own only if it came with one. */
static fr_status list_ties(fr__export *x, int owner)
{
    const fr_graph *g = x->s->graph;
    fr__weight_names names;
    if (!x->origin.set) return FR_OK;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        if (p->tied_to != owner || !fr__weight_names_of(x->map, x->prefix, p->name, &names))
            continue;
        if (names.n == 1 && fr__tensor_set_find(x->origin.set, names.name[0]) >= 0)
            FR_TRY(list_names(x, owner, &names));
    }
    return FR_OK;
}

static fr_status list_param(fr__export *x, int param)
{
    const fr_param *p = fr_graph_param(x->s->graph, param);
    fr__weight_names names;
    if (!fr__weight_names_of(x->map, x->prefix, p->name, &names))
        return fr_fail(x->s->ctx, FR_UNSUPPORTED,
                       "parameter %s of model %s has no name in %s; use --format safetensors",
                       p->name, fr_graph_name(x->s->graph), x->map ? x->map->name : "Forerun");
    if (names.n > 1 && p->shape.dim[0] % names.n != 0)
        return fr_fail(x->s->ctx, FR_UNSUPPORTED, "parameter %s has no %d equal parts for %s",
                       p->name, names.n, x->map->name);
    FR_TRY(list_names(x, param, &names));
    return list_ties(x, param);
}

/* Tensors of model.weights that the model does not need. */
static fr_status list_ignored(fr__export *x)
{
    if (!x->map || !x->origin.set) return FR_OK;
    for (int i = 0; i < fr__tensor_set_count(x->origin.set); i++) {
        const fr_tensor_info *info = fr__tensor_set_at(x->origin.set, i)->info;
        fr__out_tensor t = {.param = -1,
                            .origin = i,
                            .dtype = info->dtype,
                            .n_dims = info->n_dims,
                            .bytes = info->bytes};
        if (x->origin.uses[i] != FR_USE_IGNORED) continue;
        memcpy(t.dims, info->dim, sizeof t.dims);
        FR_TRY(push(x, &t, info->name));
    }
    return FR_OK;
}

static void cut_into_files(fr__export *x)
{
    uint64_t used = 0;
    for (size_t i = 0; i < x->tensors.n; i++) {
        fr__out_tensor *t = &x->tensors.at[i];
        if (used > 0 && used + t->bytes > x->shard_bytes) used = 0, x->n_shards++;
        t->shard = x->n_shards;
        used += t->bytes;
        x->total += t->bytes;
    }
    x->n_shards++;
}

fr_status fr__export_list(fr__export *x)
{
    const fr_graph *g = x->s->graph;
    for (int buffers = 0; buffers < 2; buffers++)
        for (int i = 0; i < fr_graph_n_params(g); i++) {
            const fr_param *p = fr_graph_param(g, i);
            if (p->tied_to < 0 && p->is_buffer == (bool)buffers) FR_TRY(list_param(x, i));
        }
    FR_TRY(list_ignored(x));
    cut_into_files(x);
    if (x->n_shards <= FR_SET_MAX_FILES) return FR_OK;
    return fr_fail(x->s->ctx, FR_INVALID, "--shard-size makes %d files; %d at most", x->n_shards,
                   FR_SET_MAX_FILES);
}

/* --- files beside the tensors ----------------------------------------------------------------- */

void fr__export_file(const fr__export *x, int shard, char name[64])
{
    if (x->n_shards == 1)
        snprintf(name, 64, FR_SET_FILE);
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, x->n_shards);
}

static fr_status write_json(fr__export *x, fr__json *j, const char *name)
{
    char path[FR_PATH];
    char *text = fr__json_take(j, "\n");
    if (!text) return fr__no_memory(x->s->ctx, 0, name);
    fr_status status = fr__path(x->s->ctx, path, "%s/%s", x->folder, name);
    if (status == FR_OK) status = fr__file_replace(x->s->ctx, path, text, strlen(text));
    fr__free(text);
    return status;
}

static fr_status write_index(fr__export *x)
{
    fr__json j;
    char name[64];
    fr__json_to_text(&j, 2);
    fr__json_object(&j, NULL);
    fr__json_object(&j, "metadata");
    fr__json_uint(&j, "total_size", x->total);
    fr__json_end(&j);
    fr__json_object(&j, "weight_map");
    for (size_t i = 0; i < x->tensors.n; i++) {
        fr__export_file(x, x->tensors.at[i].shard, name);
        fr__json_text(&j, x->tensors.at[i].name, name);
    }
    fr__json_end(&j);
    fr__json_end(&j);
    return write_json(x, &j, FR_SET_INDEX);
}

fr_status fr__export_describe(fr__export *x)
{
    fr__json j;
    const char *type = "float32";
    if (strcmp(x->dtype, "BF16") == 0) type = "bfloat16";
    if (strcmp(x->dtype, "F16") == 0) type = "float16";
    if (x->n_shards > 1) FR_TRY(write_index(x));
    if (!x->map || !x->map->describe) return FR_OK;
    fr__json_to_text(&j, 2);
    fr__json_object(&j, NULL);
    x->map->describe(x->s->graph, type, &j);
    fr__json_end(&j);
    return write_json(x, &j, "config.json");
}
