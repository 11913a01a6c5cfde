/* gpt.c -- a decoder-only language model in the form of GPT-2 (Radford et al. 2019): learned
 * positions, causal attention, tanh GELU, next-token loss at every position. Dropout, if any, is
 * where GPT-2 has it (embedding, end of each part), but not on attention weights. */
#include "models/build.h"

static fr_status gpt_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    fr_attrs head = {.weight_init = FR_INIT_GPT, .linear = {o->vocab, o->tied}};
    fr__layer(g, FR_OP_LINEAR, fr__transformer(g, o, true, -1), &head, "head");
    return o->tied ? fr_graph_tie(g, "head.weight", "embed.weight") : FR_OK;
}

static const char *const keys[] = {"layers", "width",   "heads", "context",         "positions",
                                   "vocab",  "dropout", "tied",  "label_smoothing", NULL};

const fr_model fr__model_gpt = {
    .name = "gpt",
    .summary = "decoder-only language model",
    .input = FR_MODEL_TOKENS,
    .keys = keys,
    .defaults =
        &(fr_model_options){.layers = 6, .width = 384, .heads = 6, .context = 128, .vocab = 256},
    .build = gpt_build,
};
