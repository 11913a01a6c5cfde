/* resnet.c -- residual networks of bottleneck blocks (He et al. 2016), with the stride on the
 * 3 x 3 convolution as in torchvision ("v1.5").
 *
 *     x -> 1x1, w -> 3x3, w -> 1x1, 4w -> add -> relu      each convolution with batch
 *      \--------(1x1, 4w where the shape changes)-/        normalisation and, inside, relu
 *
 * Small images: the first convolution is 3 x 3 with stride 1, and no pool follows it. */
#include "models/build.h"

#include <stdio.h>

static int conv_bn(fr_graph *g, int x, int64_t out, fr__layer_window w, const char *where,
                   const char *conv, const char *bn)
{
    x = fr__conv(g, x, out, w, false, "%s%s", where, conv);
    return fr__layer(g, FR_OP_BATCH_NORM, x, NULL, "%s%s", where, bn);
}

static int bottleneck(fr_graph *g, int x, int64_t width, int stride, bool has_downsample,
                      const char *where)
{
    int y = conv_bn(g, x, width, FR_SQUARE(1, 1, 0), where, "conv1", "bn1");
    y = fr__layer(g, FR_OP_RELU, y, NULL, "%srelu1", where);
    y = conv_bn(g, y, width, FR_SQUARE(3, stride, 1), where, "conv2", "bn2");
    y = fr__layer(g, FR_OP_RELU, y, NULL, "%srelu2", where);
    y = conv_bn(g, y, 4 * width, FR_SQUARE(1, 1, 0), where, "conv3", "bn3");
    if (has_downsample)
        x = conv_bn(g, x, 4 * width, FR_SQUARE(1, stride, 0), where, "downsample.0",
                    "downsample.1");
    y = fr__join(g, FR_OP_ADD, y, x, "%sadd", where);
    return fr__layer(g, FR_OP_RELU, y, NULL, "%srelu3", where);
}

static fr_status resnet(const fr_model_options *o, fr_graph *g, const int n_blocks[4])
{
    bool is_large = fr__is_large(o);
    int x = conv_bn(g, fr__input(g), fr__channels(o, 64),
                    is_large ? FR_SQUARE(7, 2, 3) : FR_SQUARE(3, 1, 1), "", "conv1", "bn1");
    x = fr__layer(g, FR_OP_RELU, x, NULL, "relu");
    if (is_large) x = fr__pool(g, FR_OP_MAX_POOL, x, FR_SQUARE(3, 2, 1), "maxpool");
    for (int layer = 0; layer < 4; layer++)
        for (int i = 0; i < n_blocks[layer]; i++) {
            char where[32];
            snprintf(where, sizeof where, "layer%d.%d.", layer + 1, i);
            x = bottleneck(g, x, fr__channels(o, 64 << layer), layer && !i ? 2 : 1, i == 0, where);
        }
    x = fr__layer(g, FR_OP_GLOBAL_POOL, x, NULL, "avgpool");
    fr__linear(g, x, o->classes, FR_INIT_NONE, "fc");
    return FR_OK;
}

static const char *const keys[] = {"classes",      "image",           "channels",
                                   "width_factor", "label_smoothing", NULL};
static const fr_model_options defaults = {.classes = 1000, .image = 224, .channels = 3};

#define RESNET(depth, ...)                                                                      \
    static fr_status resnet##depth##_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g) \
    {                                                                                           \
        (void)ctx;                                                                              \
        return resnet(o, g, (const int[4]){__VA_ARGS__});                                       \
    }                                                                                           \
    const fr_model fr__model_resnet##depth = {                                                  \
        .name = "resnet" #depth,                                                                \
        .summary = "ResNet-" #depth ": bottleneck blocks",                                      \
        .input = FR_MODEL_IMAGE,                                                                \
        .keys = keys,                                                                           \
        .defaults = &defaults,                                                                  \
        .build = resnet##depth##_build,                                                         \
    }

RESNET(50, 3, 4, 6, 3);
RESNET(101, 3, 4, 23, 3);
RESNET(152, 3, 8, 36, 3);
