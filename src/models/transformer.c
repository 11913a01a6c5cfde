/* transformer.c -- a transformer encoder that classifies texts (Vaswani et al. 2017, normalised
 * before each part): learned positions, attention over the valid tokens only, mean over them. */
#include "models/build.h"

static fr_status transformer_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    if (o->tied)
        return fr_fail(ctx, FR_INVALID,
                       "model transformer: tied is true, but a classifier has no output embedding "
                       "to tie; leave it out");
    fr_attrs embed = {.embedding = {o->vocab, o->width, o->context}};
    fr__transformer block = {.width = o->width,
                             .heads = o->heads,
                             .length = fr_graph_find(g, "length"),
                             .dropout = o->dropout,
                             .n_blocks = o->layers};
    int x = fr__layer(g, FR_OP_EMBEDDING, fr__input(g), &embed, "embed");
    x = fr__dropout(g, x, o->dropout, "drop");
    for (int64_t i = 0; i < o->layers; i++) x = fr__transformer_block(g, x, &block, i);
    x = fr__layer(g, FR_OP_LAYER_NORM, x, NULL, "ln_f");
    x = fr__join(g, FR_OP_MEAN_TIME, x, block.length, "mean");
    fr__linear(g, x, o->classes, FR_INIT_GPT, "head");
    return FR_OK;
}

static const char *const keys[] = {"layers",  "width", "heads",   "context",         "vocab",
                                   "dropout", "tied",  "classes", "label_smoothing", NULL};

const fr_model fr__model_transformer = {
    .name = "transformer",
    .summary = "transformer encoder that classifies texts",
    .input = FR_MODEL_TEXT,
    .keys = keys,
    .defaults = &(fr_model_options){.layers = 6,
                                    .width = 256,
                                    .heads = 8,
                                    .context = 256,
                                    .vocab = 20000,
                                    .classes = 2,
                                    .dropout = 0.1},
    .build = transformer_build,
};
