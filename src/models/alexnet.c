/* alexnet.c -- AlexNet in one column (Krizhevsky, One weird trick, 2014), as in torchvision.
 *
 * Small images keep the five convolutions and three linear layers; the first convolution is 3 x 3
 * with stride 1, and pools are 2 x 2, so that 32 x 32 ends as 4 x 4. */
#include "models/build.h"

static int conv(fr_graph *g, int x, const fr_model_options *o, int i, int64_t out,
                fr__layer_window w)
{
    x = fr__conv(g, x, fr__channels(o, out), w, !o->batch_norm, "features.%d.conv", i);
    if (o->batch_norm) x = fr__layer(g, FR_OP_BATCH_NORM, x, NULL, "features.%d.bn", i);
    return fr__layer(g, FR_OP_RELU, x, NULL, "features.%d.relu", i);
}

static fr_status alexnet_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    bool is_large = fr__is_large(o);
    fr__layer_window pool = is_large ? FR_SQUARE(3, 2, 0) : FR_SQUARE(2, 2, 0);
    double p = fr__dropout_of(o, 0.5);
    int64_t hidden = fr__channels(o, 4096);
    int x = fr__input(g);
    x = conv(g, x, o, 0, 64, is_large ? FR_SQUARE(11, 4, 2) : FR_SQUARE(3, 1, 1));
    x = fr__pool(g, FR_OP_MAX_POOL, x, pool, "features.0.pool");
    x = conv(g, x, o, 1, 192, FR_SQUARE(5, 1, 2));
    x = fr__pool(g, FR_OP_MAX_POOL, x, pool, "features.1.pool");
    x = conv(g, x, o, 2, 384, FR_SQUARE(3, 1, 1));
    x = conv(g, x, o, 3, 256, FR_SQUARE(3, 1, 1));
    x = conv(g, x, o, 4, 256, FR_SQUARE(3, 1, 1));
    x = fr__pool(g, FR_OP_MAX_POOL, x, pool, "features.4.pool");
    x = fr__layer(g, FR_OP_FLATTEN, x, NULL, "flatten");
    x = fr__dropout(g, x, p, "classifier.0");
    x = fr__linear(g, x, hidden, FR_INIT_NONE, "classifier.1");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "classifier.2");
    x = fr__dropout(g, x, p, "classifier.3");
    x = fr__linear(g, x, hidden, FR_INIT_NONE, "classifier.4");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "classifier.5");
    fr__linear(g, x, o->classes, FR_INIT_NONE, "classifier.6");
    return FR_OK;
}

static const char *const keys[] = {"classes",    "image",        "channels",        "dropout",
                                   "batch_norm", "width_factor", "label_smoothing", NULL};

const fr_model fr__model_alexnet = {
    .name = "alexnet",
    .summary = "AlexNet: five convolutions and three linear layers",
    .input = FR_MODEL_IMAGE,
    .keys = keys,
    .defaults = &(fr_model_options){.classes = 1000, .image = 224, .channels = 3, .dropout = 0.5},
    .build = alexnet_build,
};
