/* gpt.c -- a decoder-only language model in the form of GPT-2 (Radford et al. 2019): learned
 * positions, causal attention, tanh GELU, next-token loss at every position. Dropout, if any, is
 * where GPT-2 has it (embedding, end of each part), but not on attention weights. */
#include "models/build.h"

static fr_status gpt_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    fr_attrs embed = {.embedding = {o->vocab, o->width, o->context}};
    fr_attrs head = {.weight_init = FR_INIT_GPT, .linear = {o->vocab, o->tied}};
    fr__transformer block = {.width = o->width,
                             .heads = o->heads,
                             .causal = true,
                             .length = -1,
                             .dropout = o->dropout,
                             .n_blocks = o->layers};
    int x = fr__layer(g, FR_OP_EMBEDDING, fr__input(g), &embed, "embed");
    x = fr__dropout(g, x, o->dropout, "drop");
    for (int64_t i = 0; i < o->layers; i++) x = fr__transformer_block(g, x, &block, i);
    x = fr__layer(g, FR_OP_LAYER_NORM, x, NULL, "ln_f");
    fr__layer(g, FR_OP_LINEAR, x, &head, "head");
    return o->tied ? fr_graph_tie(g, "head.weight", "embed.weight") : FR_OK;
}

static const char *const keys[] = {"layers",  "width", "heads",           "context", "vocab",
                                   "dropout", "tied",  "label_smoothing", NULL};

const fr_model fr__model_gpt = {
    .name = "gpt",
    .summary = "decoder-only language model",
    .input = FR_MODEL_TOKENS,
    .keys = keys,
    .defaults =
        &(fr_model_options){.layers = 6, .width = 384, .heads = 6, .context = 128, .vocab = 256},
    .build = gpt_build,
};
