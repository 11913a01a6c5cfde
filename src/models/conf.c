/* conf.c -- the `model:` section of a config: a model by name and sizes, or one written out as
 * nodes, there or in a file of its own. */
#include "models/build.h"

#include "io/conf.h"

#include <stdio.h>
#include <string.h>

fr_status fr__at_place(fr_ctx *ctx, fr_conf *c, fr_status status)
{
    return status == FR_INVALID ? fr_conf_fail(c, NULL, "%s", fr_ctx_error(ctx)) : status;
}

static fr_status fail_unknown(fr_conf *c, const char *name)
{
    char known[512] = "";
    for (const fr_model *const *m = fr_model_list(); *m; m++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", (*m)->name);
    }
    return fr_conf_fail(c, "name", "there is no model '%s'; there are: %s", name, known);
}

/* One option into *o, which holds its default. */
static fr_status read_option(fr_conf *c, const fr_option *k, fr_model_options *o)
{
    char *at = (char *)o + k->offset;
    if (k->kind == FR_OPTION_FLAG) {
        bool flag;
        memcpy(&flag, at, sizeof flag);
        FR_TRY(fr_conf_bool(c, k->key, flag, &flag));
        memcpy(at, &flag, sizeof flag);
    } else if (k->kind == FR_OPTION_REAL) {
        double value;
        memcpy(&value, at, sizeof value);
        FR_TRY(fr_conf_real(c, k->key, value, k->min, k->max, &value));
        memcpy(at, &value, sizeof value);
    } else {
        int64_t size;
        memcpy(&size, at, sizeof size);
        FR_TRY(fr_conf_int(c, k->key, size, (int64_t)k->min, (int64_t)k->max, &size));
        memcpy(at, &size, sizeof size);
    }
    return FR_OK;
}

static fr_status from_name(fr_ctx *ctx, fr_conf *c, const fr_model_options *known, fr_graph **out)
{
    const char *name;
    FR_TRY(fr_conf_text(c, "name", NULL, &name));
    const fr_model *m = fr_model_find(name);
    if (!m) return fail_unknown(c, name);
    /* The config comes first, then what the data knows, then the model's own defaults. */
    fr_model_options o = {.dropout = m->defaults->dropout, .width_factor = 1};
    if (known) fr__options_fill(&o, known);
    fr__options_fill(&o, m->defaults);
    for (const char *const *key = m->keys; *key; key++)
        FR_TRY(read_option(c, fr__option_find(*key), &o));
    return fr__at_place(ctx, c, fr_model_build(ctx, m, &o, out));
}

static fr_status from_nodes(fr_ctx *ctx, fr_conf *c, const char *preset, fr_graph **out)
{
    const char *name;
    fr_graph *g;
    FR_TRY(fr_conf_text(c, "name", preset, &name));
    FR_TRY(fr_graph_create(ctx, name, &g));
    fr_status status = fr__yaml_build(ctx, c, g);
    if (status != FR_OK) {
        fr_graph_free(g);
        return status;
    }
    *out = g;
    return FR_OK;
}

static fr_status from_file(fr_ctx *ctx, fr_conf *c, fr_graph **out)
{
    const char *name;
    char path[PATH_MAX];
    fr_conf *root;
    FR_TRY(fr__conf_file(c, "file", "model file", path));
    const char *slash = strrchr(path, '/');
    FR_TRY(fr_conf_text(c, "name", slash ? slash + 1 : path, &name));
    FR_TRY(fr_conf_load(ctx, path, 0, NULL, &root));
    fr_status status = from_nodes(ctx, root, name, out);
    if (status == FR_OK) status = fr_conf_finish(root);
    fr_conf_free(root);
    if (status != FR_OK) {
        fr_graph_free(*out);
        *out = NULL;
    }
    return status;
}

fr_status fr_model_from_conf(fr_ctx *ctx, fr_conf *model_section, const fr_model_options *known,
                             fr_graph **out)
{
    fr_conf *c = model_section;
    *out = NULL;
    if (fr_conf_has(c, "nodes") && fr_conf_has(c, "file"))
        return fr_conf_fail(c, "file", "a model has either nodes or a file, not both");
    if (fr_conf_has(c, "nodes")) return from_nodes(ctx, c, "custom", out);
    if (fr_conf_has(c, "file")) return from_file(ctx, c, out);
    return from_name(ctx, c, known, out);
}
