/* conf.c -- the `model:` section of a config: a model by name and sizes, or as a list of nodes, in
 * the config or in a separate file. */
#include "models/build.h"

#include "io/conf.h"
#include "io/key.h"

#include <stdio.h>
#include <string.h>

fr_status fr__at_place(fr_ctx *ctx, fr_conf *c, fr_status status)
{
    return status == FR_INVALID ? fr_conf_fail(c, NULL, "%s", fr_ctx_error(ctx)) : status;
}

fr_status fr__loss_read(fr_conf *c, fr_model_options *o)
{
    const char *name = NULL;
    if (fr_conf_has(c, "loss")) {
        FR_TRY(fr__key_read(c, fr__key_find(fr_model_keys(), "model.", "loss", NULL), &name));
        (void)fr_operator_parse(name, &o->loss); /* the key has checked it */
    }
    if (o->loss && o->loss != FR_OP_CROSS_ENTROPY && fr_conf_has(c, "label_smoothing"))
        return fr_conf_fail(c, "label_smoothing",
                            "loss %s reads no classes; label_smoothing is "
                            "a setting of cross_entropy",
                            fr_operator_name(o->loss));
    if (!fr_conf_has(c, "beta")) return FR_OK;
    if (o->loss != FR_OP_SMOOTH_L1)
        return fr_conf_fail(c, "beta", "beta is a setting of loss: smooth_l1");
    return fr__key_read(c, fr__key_find(fr_model_keys(), "model.", "beta", NULL), &o->beta);
}

static fr_status from_name(fr_ctx *ctx, fr_conf *c, const fr_model_options *known, fr_graph **out)
{
    const char *name = NULL;
    FR_TRY(fr__key_read(c, fr__key_find(fr_model_keys(), "model.", "name", NULL), &name));
    const fr_model *m = fr_model_find(name);
    /* Values of the config take precedence, then those of the data, then the model's defaults. */
    fr_model_options o = {.dropout = m->defaults->dropout, .width_factor = 1};
    if (known) fr__options_fill(&o, known);
    fr__options_fill(&o, m->defaults);
    FR_TRY(fr__loss_read(c, &o));
    FR_TRY(fr__keys_read_listed(c, fr_model_keys(), "model.", m->keys, &o));
    return fr__at_place(ctx, c, fr__model_build_full(ctx, m, &o, out));
}

/* o: the loss that the config has beside a file of nodes. */
static fr_status from_nodes(fr_ctx *ctx, fr_conf *c, const char *preset, fr_model_options o,
                            fr_graph **out)
{
    const char *name;
    fr_graph *g;
    FR_TRY(fr__loss_read(c, &o));
    FR_TRY(fr_conf_text(c, "name", preset, &name));
    FR_TRY(fr_graph_create(ctx, name, &g));
    fr_status status = fr__yaml_build(ctx, c, &o, g);
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
    fr_model_options o = {0};
    FR_TRY(fr__loss_read(c, &o));
    FR_TRY(fr__conf_file(c, "file", "model file", path));
    const char *slash = strrchr(path, '/');
    FR_TRY(fr_conf_text(c, "name", slash ? slash + 1 : path, &name));
    FR_TRY(fr_conf_load(ctx, path, 0, NULL, &root));
    fr_status status = from_nodes(ctx, root, name, o, out);
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
    if (fr_conf_has(c, "nodes")) return from_nodes(ctx, c, "custom", (fr_model_options){0}, out);
    if (fr_conf_has(c, "file")) return from_file(ctx, c, out);
    return from_name(ctx, c, known, out);
}
