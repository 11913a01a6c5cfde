/* registry.c -- the list of models, their options, and the common parts of all models: INPUT nodes
 * at the start, the loss at the end. */
#include "models/build.h"

#include "base/names.h"
#include "io/key.h"

#include <stdio.h>
#include <string.h>

static const fr_model *const models[] = {
    &fr__model_mlp,       &fr__model_snn,        &fr__model_lenet,       &fr__model_cnn,
    &fr__model_alexnet,   &fr__model_vgg16,      &fr__model_resnet50,    &fr__model_resnet101,
    &fr__model_resnet152, &fr__model_inception3, &fr__model_transformer, &fr__model_gpt,
    &fr__model_reslstm,   &fr__model_gnmt,       &fr__model_biglstm,     NULL,
};

FR_REGISTRY(fr_model, models, fr_model_list, fr_model_find)

static const fr_key *next_size(const fr_key *k)
{
    while ((k = fr__key_next(k, "model.", NULL)) && !k->size) k++;
    return k;
}

static double value_of(const fr_model_options *o, const fr_key *k)
{
    const char *at = (const char *)o + k->offset;
    if (k->kind == FR_KEY_REAL) return *(const double *)at;
    if (k->kind == FR_KEY_BOOL) return *(const bool *)at;
    return (double)*(const int64_t *)at;
}

void fr__options_fill(fr_model_options *o, const fr_model_options *from)
{
    for (const fr_key *k = fr_model_keys(); (k = next_size(k)); k++)
        if (k->kind == FR_KEY_INT && value_of(o, k) == 0)
            memcpy((char *)o + k->offset, (const char *)from + k->offset, k->size);
}

const char *fr_model_default(const fr_model *model, const char *key, char *text, size_t room)
{
    const fr_key *k = fr__key_find(fr_model_keys(), "model.", key, NULL);
    fr_model_options o = *model->defaults;
    text[0] = '\0';
    if (o.width_factor == 0) o.width_factor = 1;
    if (!k || !k->size) return text;
    double value = value_of(&o, k);
    if (k->kind == FR_KEY_BOOL)
        snprintf(text, room, "%s", value != 0 ? "true" : "false");
    else if (value < 0)
        snprintf(text, room, "by image size");
    else
        snprintf(text, room, k->kind == FR_KEY_INT ? "%.0f" : "%g", value);
    return text;
}

fr_status fr__options_check(fr_ctx *ctx, const char *model, const fr_model_options *o)
{
    for (const fr_key *k = fr_model_keys(); (k = next_size(k)); k++) {
        double value = value_of(o, k);
        /* Not given, where that has a meaning. */
        bool is_open = value == 0 || (o->dropout == value && value < 0);
        if (is_open || k->kind == FR_KEY_BOOL || (value >= k->min && value <= k->max)) continue;
        return fr_fail(ctx, FR_INVALID, "model %s: %s is %g; it must be between %g and %g", model,
                       fr__key_name(k), value, k->min, k->max);
    }
    return FR_OK;
}

static void add_inputs(fr_graph *g, const fr_model *m, const fr_model_options *o)
{
    fr_attrs in = {.input = {.dtype = FR_I32}};
    switch (m->input) {
    case FR_MODEL_FEATURES: in.input.shape = FR_SHAPE(o->inputs), in.input.dtype = FR_F32; break;
    case FR_MODEL_IMAGE:
        in.input.shape = FR_SHAPE(o->channels, o->image, o->image);
        in.input.dtype = FR_F32;
        break;
    case FR_MODEL_TOKENS:
    case FR_MODEL_TEXT: in.input.shape = FR_SHAPE(o->context); break;
    case FR_MODEL_PAIR: in.input.shape = FR_SHAPE(2 * o->context); break;
    }
    fr_graph_add(g, FR_OP_INPUT, "input", &in, 0, NULL);
    in = (fr_attrs){.input = {.dtype = FR_I32}};
    if (m->input == FR_MODEL_TEXT || m->input == FR_MODEL_PAIR)
        fr_graph_add(g, FR_OP_INPUT, "length", &in, 0, NULL);
}

static fr_status build(fr_ctx *ctx, const fr_model *model, const fr_model_options *o, fr_graph *g)
{
    add_inputs(g, model, o);
    FR_TRY(model->build(ctx, o, g));
    fr__add_loss(g, fr_graph_n_nodes(g) - 1, o);
    return fr_graph_finish(g);
}

fr_status fr__model_build_full(fr_ctx *ctx, const fr_model *model, const fr_model_options *full,
                               fr_graph **out)
{
    fr_graph *g;
    *out = NULL;
    FR_TRY(fr__options_check(ctx, model->name, full));
    if (full->loss && !fr_operator_is_loss(full->loss))
        return fr_fail(ctx, FR_INVALID, "model %s: loss is %s, which is none", model->name,
                       fr_operator_name(full->loss));
    FR_TRY(fr_graph_create(ctx, model->name, &g));
    fr_status status = build(ctx, model, full, g);
    if (status != FR_OK) {
        fr_graph_free(g);
        return status;
    }
    *out = g;
    return FR_OK;
}

fr_status fr_model_build(fr_ctx *ctx, const fr_model *model, const fr_model_options *o,
                         fr_graph **out)
{
    fr_model_options full = o ? *o : (fr_model_options){0};
    fr__options_fill(&full, model->defaults);
    if (full.dropout == 0)
        full.dropout = model->defaults->dropout;
    else if (full.dropout < 0)
        full.dropout = 0;
    if (full.width_factor == 0) full.width_factor = 1;
    return fr__model_build_full(ctx, model, &full, out);
}

int64_t fr_model_activation_bytes(const fr_graph *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++)
        bytes += (int64_t)fr_node_bytes(fr_graph_node(g, i));
    return bytes;
}
