/* transformer.c -- a transformer encoder that classifies texts (Vaswani et al. 2017, normalised
 * before each part): learned positions, attention over the valid tokens only, mean over them. */
#include "models/build.h"

static fr_status transformer_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    if (o->tied)
        return fr_fail(ctx, FR_INVALID,
                       "model transformer: tied is true, but a classifier has no output embedding "
                       "to tie; leave it out");
    const int length = fr_graph_find(g, "length");
    int x = fr__join(g, FR_OP_MEAN_TIME, fr__transformer(g, o, false, length), length, "mean");
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
