/* registry.c -- the list of models, their options, and the common parts of all models: INPUT nodes
 * at the start, the loss at the end. */
#include "models/build.h"

#include <stdio.h>
#include <string.h>

static const fr_model *const models[] = {
    &fr__model_mlp,       &fr__model_snn,        &fr__model_lenet,       &fr__model_cnn,
    &fr__model_alexnet,   &fr__model_vgg16,      &fr__model_resnet50,    &fr__model_resnet101,
    &fr__model_resnet152, &fr__model_inception3, &fr__model_transformer, &fr__model_gpt,
    &fr__model_reslstm,   &fr__model_gnmt,       &fr__model_biglstm,     NULL,
};

const fr_model *const *fr_model_list(void) { return models; }

const fr_model *fr_model_find(const char *name)
{
    for (const fr_model *const *m = models; *m; m++)
        if (strcmp((*m)->name, name) == 0) return *m;
    return NULL;
}

/* clang-format off */
#define SIZE(key, max) {#key, FR_OPTION_SIZE, offsetof(fr_model_options, key), 1, (max)}
#define REAL(key, min, max) {#key, FR_OPTION_REAL, offsetof(fr_model_options, key), (min), (max)}
#define FLAG(key) {#key, FR_OPTION_FLAG, offsetof(fr_model_options, key), 0, 1}
/* clang-format on */

static const fr_option options[] = {
    SIZE(inputs, INT32_MAX),
    SIZE(depth, 10000),
    SIZE(width, INT32_MAX / 4),
    SIZE(classes, INT32_MAX),
    SIZE(layers, 10000),
    SIZE(heads, INT32_MAX),
    SIZE(context, INT32_MAX),
    SIZE(vocab, INT32_MAX),
    SIZE(projection, INT32_MAX / 4),
    SIZE(channels, INT32_MAX),
    SIZE(image, INT32_MAX),
    REAL(dropout, 0, 0.99),
    REAL(label_smoothing, 0, 0.99),
    REAL(width_factor, 0.001, 64),
    FLAG(tied),
    FLAG(batch_norm),
};
enum { N_OPTIONS = sizeof options / sizeof *options };

const fr_option *fr__option_find(const char *key)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].key, key) == 0) return &options[i];
    return NULL;
}

static const void *field(const fr_model_options *o, const fr_option *k)
{
    return (const char *)o + k->offset;
}

void fr__options_fill(fr_model_options *o, const fr_model_options *from)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        int64_t size;
        if (options[i].kind != FR_OPTION_SIZE) continue;
        memcpy(&size, field(o, &options[i]), sizeof size);
        if (size == 0) memcpy((char *)o + options[i].offset, field(from, &options[i]), sizeof size);
    }
}

const char *fr_model_default(const fr_model *model, const char *key, char *text, size_t room)
{
    const fr_option *k = fr__option_find(key);
    fr_model_options o = *model->defaults;
    int64_t size;
    double value;
    bool flag;
    text[0] = '\0';
    if (o.width_factor == 0) o.width_factor = 1;
    if (!k) return text;
    if (k->kind == FR_OPTION_SIZE) {
        memcpy(&size, field(&o, k), sizeof size);
        snprintf(text, room, "%lld", (long long)size);
    } else if (k->kind == FR_OPTION_REAL) {
        memcpy(&value, field(&o, k), sizeof value);
        if (value < 0)
            snprintf(text, room, "by image size");
        else
            snprintf(text, room, "%g", value);
    } else {
        memcpy(&flag, field(&o, k), sizeof flag);
        snprintf(text, room, "%s", flag ? "true" : "false");
    }
    return text;
}

fr_status fr__options_check(fr_ctx *ctx, const char *model, const fr_model_options *o)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const fr_option *k = &options[i];
        int64_t size = 0;
        double value = 0;
        if (k->kind == FR_OPTION_SIZE) memcpy(&size, field(o, k), sizeof size);
        if (k->kind == FR_OPTION_REAL) memcpy(&value, field(o, k), sizeof value);
        /* Not given, where that has a meaning. */
        bool is_open = size == 0 && (value == 0 || (o->dropout == value && value < 0));
        if (is_open) continue;
        if (k->kind == FR_OPTION_SIZE) value = (double)size;
        if (!(value >= k->min && value <= k->max))
            return fr_fail(ctx, FR_INVALID, "model %s: %s is %g; it must be between %g and %g",
                           model, k->key, value, k->min, k->max);
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
    fr__add_loss(g, fr_graph_n_nodes(g) - 1, o->label_smoothing);
    return fr_graph_finish(g);
}

fr_status fr_model_build(fr_ctx *ctx, const fr_model *model, const fr_model_options *o,
                         fr_graph **out)
{
    *out = NULL;
    fr_model_options full = o ? *o : (fr_model_options){.dropout = -1};
    FR_TRY(fr__options_check(ctx, model->name, &full));
    fr__options_fill(&full, model->defaults);
    if (full.dropout < 0) full.dropout = model->defaults->dropout;
    if (full.width_factor == 0) full.width_factor = 1;
    fr_graph *g;
    FR_TRY(fr_graph_create(ctx, model->name, &g));
    fr_status status = build(ctx, model, &full, g);
    if (status != FR_OK) {
        fr_graph_free(g);
        return status;
    }
    *out = g;
    return FR_OK;
}

int64_t fr_model_activation_bytes(const fr_graph *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < fr_graph_n_nodes(g); i++)
        bytes += 4 * fr_shape_count(&fr_graph_node(g, i)->shape);
    return bytes;
}
