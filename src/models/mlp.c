/* mlp.c -- fully connected networks: mlp with relu, and snn, which keeps mean 0 and variance 1
 * through any depth without normalisation (Klambauer et al., Self-Normalizing Neural Networks,
 * 2017: selu, alpha dropout, LeCun's initialisation). */
#include "models/build.h"

static fr_status mlp_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    int x = fr__input(g);
    for (int64_t i = 0; i < o->depth; i++) {
        x = fr__linear(g, x, o->width, FR_INIT_NONE, "fc.%lld", (long long)i);
        x = fr__layer(g, FR_OP_RELU, x, NULL, "fc.%lld.relu", (long long)i);
    }
    fr__linear(g, x, o->classes, FR_INIT_NONE, "head");
    return FR_OK;
}

static fr_status snn_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    const fr_init lecun = {FR_INIT_LECUN, 0};
    fr_attrs drop = {.dropout = {(float)o->dropout}};
    int x = fr__input(g);
    for (int64_t i = 0; i < o->depth; i++) {
        x = fr__linear(g, x, o->width, lecun, "fc.%lld", (long long)i);
        x = fr__layer(g, FR_OP_SELU, x, NULL, "fc.%lld.selu", (long long)i);
        if (o->dropout > 0)
            x = fr__layer(g, FR_OP_ALPHA_DROPOUT, x, &drop, "fc.%lld.drop", (long long)i);
    }
    fr__linear(g, x, o->classes, lecun, "head");
    return FR_OK;
}

static const char *const mlp_keys[] = {"inputs",  "depth",           "width",
                                       "classes", "label_smoothing", NULL};
static const char *const snn_keys[] = {"inputs",  "depth",           "width", "classes",
                                       "dropout", "label_smoothing", NULL};

const fr_model fr__model_mlp = {
    .name = "mlp",
    .summary = "fully connected layers with relu",
    .input = FR_MODEL_FEATURES,
    .keys = mlp_keys,
    .defaults = &(fr_model_options){.inputs = 2048, .depth = 8, .width = 2048, .classes = 10},
    .build = mlp_build,
};

const fr_model fr__model_snn = {
    .name = "snn",
    .summary = "self-normalising network: fully connected layers with selu",
    .input = FR_MODEL_FEATURES,
    .keys = snn_keys,
    .defaults =
        &(fr_model_options){
            .inputs = 3072, .depth = 32, .width = 2048, .classes = 10, .dropout = 0.05},
    .build = snn_build,
};
