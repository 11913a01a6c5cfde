/* build.h -- short forms that let a model builder read like a list of layers.
 *
 * All return the index of the new node, or -1 after a failure, which the next call passes on. The
 * registry checks once, at the end of the graph. Names are printf formats. */
#ifndef FR_MODELS_BUILD_H
#define FR_MODELS_BUILD_H

#include <forerun/models.h>

/* One node on node x; attrs may be NULL. */
int fr__layer(fr_graph *g, fr_operator op, int x, const fr_attrs *attrs, const char *name, ...)
    FR_PRINTF(5, 6);
/* One node on nodes a and b. */
int fr__join(fr_graph *g, fr_operator op, int a, int b, const char *name, ...) FR_PRINTF(5, 6);

int fr__linear(fr_graph *g, int x, int64_t out, fr_init init, const char *name, ...)
    FR_PRINTF(5, 6);
/* Add dropout only if p is not zero, so that models without dropout have no such nodes. */
int fr__dropout(fr_graph *g, int x, double p, const char *name, ...) FR_PRINTF(4, 5);

/* A window of a convolution or pool. */
typedef struct fr__layer_window {
    int height, width;
    int stride;
    int pad_height, pad_width;
} fr__layer_window;
#define FR_SQUARE(kernel, step, padding) \
    ((fr__layer_window){(kernel), (kernel), (step), (padding), (padding)})

int fr__conv(fr_graph *g, int x, int64_t out, fr__layer_window w, bool has_bias, const char *name,
             ...) FR_PRINTF(6, 7);
int fr__pool(fr_graph *g, fr_operator op, int x, fr__layer_window w, const char *name, ...)
    FR_PRINTF(5, 6);

/* Channels after width_factor, at least 1. */
int64_t fr__channels(const fr_model_options *o, int64_t published);
/* Is the image large enough for the ImageNet stem? Otherwise builders use one for small images. */
static inline bool fr__is_large(const fr_model_options *o) { return o->image >= 128; }
/* o->dropout, or `preset` if it goes by the image size. */
static inline double fr__dropout_of(const fr_model_options *o, double preset)
{
    return o->dropout >= 0 ? o->dropout : preset;
}
int fr__input(const fr_graph *g); /* the node called "input" */

/* A transformer from its tokens to the last normalisation; blocks are normalised before each part
 * (Xiong et al. 2020). length: node with the number of valid tokens, or -1. */
int fr__transformer(fr_graph *g, const fr_model_options *o, bool causal, int length);

/* Every weight matrix of a transformer (Radford et al. 2019). */
#define FR_INIT_GPT ((fr_init){FR_INIT_NORMAL, 0.02f})
#define FR_INIT_NONE ((fr_init){FR_INIT_DEFAULT, 0})

/* Add "target" and "loss" after the output; reads loss, beta and label_smoothing of the options. */
void fr__add_loss(fr_graph *g, int output, const fr_model_options *o);
/* model.loss and model.beta into *o, where they are given. */
fr_status fr__loss_read(fr_conf *c, fr_model_options *o);

/* Are sizes in their ranges? The error names the model. */
fr_status fr__options_check(fr_ctx *ctx, const char *model, const fr_model_options *o);
/* Replace the zeros of *o by values of the second one (only sizes that the data determine). */
void fr__options_fill(fr_model_options *o, const fr_model_options *from);

/* fr_model_build of options without zeros that stand for something else. */
fr_status fr__model_build_full(fr_ctx *ctx, const fr_model *model, const fr_model_options *full,
                               fr_graph **out);

/* A model written as YAML (keys nodes and ties): adds all its nodes, and the loss of the options
 * unless it has one. */
fr_status fr__yaml_build(fr_ctx *ctx, fr_conf *c, const fr_model_options *o, fr_graph *g);
/* Prefix the failure of `status` with "WHERE: " of section c, if it is about input. */
fr_status fr__at_place(fr_ctx *ctx, fr_conf *c, fr_status status);

extern const fr_model fr__model_mlp, fr__model_snn, fr__model_lenet, fr__model_cnn,
    fr__model_alexnet, fr__model_vgg16, fr__model_resnet50, fr__model_resnet101,
    fr__model_resnet152, fr__model_inception3, fr__model_transformer, fr__model_gpt,
    fr__model_reslstm, fr__model_gnmt, fr__model_biglstm;

#endif
