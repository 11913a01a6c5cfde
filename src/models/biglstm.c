/* biglstm.c -- a language model of LSTMs with projections over a large vocabulary (Jozefowicz et
 * al. 2016, "BIG LSTM"; the model of Pal et al. 2019).
 *
 * Cells are wide (`width`); their outputs and feedback are narrow (`projection`: Sak et al. 2014).
 * The embedding table and the softmax, which hold nearly all parameters, are equally narrow. The
 * softmax is over the whole vocabulary, not over a sample of it. */
#include "models/build.h"

static fr_status biglstm_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    fr_attrs embed = {.weight_init = {FR_INIT_UNIFORM, 0.1f},
                      .embedding = {o->vocab, o->projection, 0}};
    fr_attrs lstm = {.lstm = {.hidden = o->width, .projection = o->projection}};
    int x = fr__layer(g, FR_OP_EMBEDDING, fr__input(g), &embed, "embed");
    x = fr__dropout(g, x, o->dropout, "drop");
    for (long long i = 0; i < o->layers; i++) {
        x = fr__layer(g, FR_OP_LSTM, x, &lstm, "layers.%lld.lstm", i);
        x = fr__dropout(g, x, o->dropout, "layers.%lld.drop", i);
    }
    fr__linear(g, x, o->vocab, FR_INIT_NONE, "head");
    return FR_OK;
}

static const char *const keys[] = {"layers",  "width",   "projection",      "vocab",
                                   "context", "dropout", "label_smoothing", NULL};

const fr_model fr__model_biglstm = {
    .name = "biglstm",
    .summary = "LSTM language model with projections, large vocabulary",
    .input = FR_MODEL_TOKENS,
    .keys = keys,
    .defaults = &(fr_model_options){.layers = 2,
                                    .width = 8192,
                                    .projection = 1024,
                                    .context = 20,
                                    .vocab = 793471,
                                    .dropout = 0.1},
    .build = biglstm_build,
};
