/* reslstm.c -- a stack of LSTM layers with residual connections that classifies texts. Each layer
 * adds to its input, so gradients do not vanish with depth (as in Wu et al. 2016, section 3.1). The
 * classifier reads the mean over the valid tokens. */
#include "models/build.h"

static fr_status reslstm_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    fr_attrs embed = {.weight_init = {FR_INIT_NORMAL, 1}, .embedding = {o->vocab, o->width, 0}};
    fr_attrs lstm = {.lstm = {.hidden = o->width}};
    int x = fr__layer(g, FR_OP_EMBEDDING, fr__input(g), &embed, "embed");
    x = fr__dropout(g, x, o->dropout, "drop");
    for (int64_t i = 0; i < o->layers; i++) {
        int y = fr__layer(g, FR_OP_LSTM, x, &lstm, "layers.%lld.lstm", (long long)i);
        y = fr__dropout(g, y, o->dropout, "layers.%lld.drop", (long long)i);
        x = fr__join(g, FR_OP_ADD, x, y, "layers.%lld.add", (long long)i);
    }
    x = fr__join(g, FR_OP_MEAN_TIME, x, fr_graph_find(g, "length"), "mean");
    fr__linear(g, x, o->classes, FR_INIT_NONE, "head");
    return FR_OK;
}

static const char *const keys[] = {"layers",  "width",   "vocab",           "context",
                                   "classes", "dropout", "label_smoothing", NULL};

const fr_model fr__model_reslstm = {
    .name = "reslstm",
    .summary = "residual LSTM that classifies texts",
    .input = FR_MODEL_TEXT,
    .keys = keys,
    .defaults = &(
        fr_model_options){.layers = 8, .width = 256, .context = 200, .vocab = 20000, .classes = 2},
    .build = reslstm_build,
};
