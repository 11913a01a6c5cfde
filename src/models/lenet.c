/* lenet.c -- small networks for small images: LeNet-5 (LeCun et al. 1998, with relu and max pooling
 * instead of tanh and trained subsampling), and cnn, eight convolutions with batch normalisation in
 * three sizes, which learns Fashion-MNIST beyond 90 % in two epochs. */
#include "models/build.h"

static fr_status lenet_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    const fr__layer_window half = FR_SQUARE(2, 2, 0);
    /* LeCun's images are 28 x 28 in a frame of 32 x 32. */
    int pad = o->image < 32 ? 2 : 0;
    int x = fr__conv(g, fr__input(g), 6, FR_SQUARE(5, 1, pad), true, "conv1");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "relu1");
    x = fr__pool(g, FR_OP_MAX_POOL, x, half, "pool1");
    x = fr__conv(g, x, 16, FR_SQUARE(5, 1, 0), true, "conv2");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "relu2");
    x = fr__pool(g, FR_OP_MAX_POOL, x, half, "pool2");
    x = fr__layer(g, FR_OP_FLATTEN, x, NULL, "flatten");
    x = fr__linear(g, x, 120, FR_INIT_NONE, "fc1");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "relu3");
    x = fr__linear(g, x, 84, FR_INIT_NONE, "fc2");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "relu4");
    fr__linear(g, x, o->classes, FR_INIT_NONE, "fc3");
    return FR_OK;
}

static fr_status cnn_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    static const struct {
        int n_convs, times;
    } blocks[] = {{2, 1}, {3, 2}, {3, 4}};
    int x = fr__input(g);
    for (int b = 0; b < 3; b++) {
        for (int i = 0; i < blocks[b].n_convs; i++) {
            x = fr__conv(g, x, blocks[b].times * o->width, FR_SQUARE(3, 1, 1), false,
                         "block%d.%d.conv", b + 1, i);
            x = fr__layer(g, FR_OP_BATCH_NORM, x, NULL, "block%d.%d.bn", b + 1, i);
            x = fr__layer(g, FR_OP_RELU, x, NULL, "block%d.%d.relu", b + 1, i);
        }
        if (b < 2) x = fr__pool(g, FR_OP_MAX_POOL, x, FR_SQUARE(2, 2, 0), "block%d.pool", b + 1);
    }
    x = fr__layer(g, FR_OP_GLOBAL_POOL, x, NULL, "avgpool");
    fr__linear(g, x, o->classes, FR_INIT_NONE, "fc");
    return FR_OK;
}

static const char *const lenet_keys[] = {"classes", "image", "channels", "label_smoothing", NULL};
static const char *const cnn_keys[] = {"width",    "classes",         "image",
                                       "channels", "label_smoothing", NULL};

const fr_model fr__model_lenet = {
    .name = "lenet",
    .summary = "LeNet-5: two convolutions and three linear layers",
    .input = FR_MODEL_IMAGE,
    .keys = lenet_keys,
    .defaults = &(fr_model_options){.classes = 10, .image = 28, .channels = 1},
    .build = lenet_build,
};

const fr_model fr__model_cnn = {
    .name = "cnn",
    .summary = "eight convolutions with batch normalisation, for small images",
    .input = FR_MODEL_IMAGE,
    .keys = cnn_keys,
    .defaults = &(fr_model_options){.width = 16, .classes = 10, .image = 28, .channels = 1},
    .build = cnn_build,
};
