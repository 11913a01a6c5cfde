/* vgg.c -- VGG-16 (Simonyan and Zisserman 2015). Nodes are numbered as in torchvision's `features`,
 * also with batch normalisation.
 *
 * Images of 128 pixels or more have the three linear layers of the paper; smaller ones have a
 * single linear layer after the last pool, as is usual for CIFAR. */
#include "models/build.h"

enum { POOL = 0 };
static const int plan[] = {64,   64,  POOL, 128, 128,  POOL, 256, 256, 256,
                           POOL, 512, 512,  512, POOL, 512,  512, 512, POOL};

static fr_status vgg16_build(fr_ctx *ctx, const fr_model_options *o, fr_graph *g)
{
    (void)ctx;
    int x = fr__input(g), n = 0;
    int64_t size = o->image;
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        if (plan[i] == POOL) {
            /* 28 x 28 becomes 1 x 1 after four pools. */
            if (size >= 2) x = fr__pool(g, FR_OP_MAX_POOL, x, FR_SQUARE(2, 2, 0), "features.%d", n);
            if (size >= 2) size /= 2;
            n++;
            continue;
        }
        x = fr__conv(g, x, fr__channels(o, plan[i]), FR_SQUARE(3, 1, 1), true, "features.%d", n++);
        if (o->batch_norm) x = fr__layer(g, FR_OP_BATCH_NORM, x, NULL, "features.%d", n++);
        x = fr__layer(g, FR_OP_RELU, x, NULL, "features.%d", n++);
    }
    x = fr__layer(g, FR_OP_FLATTEN, x, NULL, "flatten");
    if (!fr__is_large(o)) {
        x = fr__dropout(g, x, fr__dropout_of(o, 0), "dropout");
        fr__linear(g, x, o->classes, FR_INIT_NONE, "classifier");
        return FR_OK;
    }
    const fr_init small = {FR_INIT_NORMAL, 0.01f};
    for (int i = 0; i < 2; i++) {
        x = fr__linear(g, x, fr__channels(o, 4096), small, "classifier.%d", 3 * i);
        x = fr__layer(g, FR_OP_RELU, x, NULL, "classifier.%d", 3 * i + 1);
        x = fr__dropout(g, x, fr__dropout_of(o, 0.5), "classifier.%d", 3 * i + 2);
    }
    fr__linear(g, x, o->classes, small, "classifier.6");
    return FR_OK;
}

static const char *const keys[] = {"classes",    "image",        "channels",        "dropout",
                                   "batch_norm", "width_factor", "label_smoothing", NULL};

const fr_model fr__model_vgg16 = {
    .name = "vgg16",
    .summary = "VGG-16: thirteen 3 x 3 convolutions",
    .input = FR_MODEL_IMAGE,
    .keys = keys,
    .defaults = &(fr_model_options){.classes = 1000, .image = 224, .channels = 3, .dropout = -1},
    .build = vgg16_build,
};
