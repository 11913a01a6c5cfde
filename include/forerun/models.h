/* models.h -- models by name and size, and models written as YAML.
 *
 * A builder adds nodes to a graph up to the logits; the registry adds INPUT nodes before
 * ("input", and "length" where the model wants one) and "target" and "loss" after. */
#ifndef FORERUN_MODELS_H
#define FORERUN_MODELS_H

#include <forerun/graph.h>
#include <forerun/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes; zero means the model's own default. */
typedef struct fr_model_options {
    int64_t inputs, depth, width, classes; /* mlp, snn, cnn; classes for all classifiers */
    int64_t layers, heads, context, vocab; /* gpt, transformer, reslstm, gnmt, biglstm */
    int64_t projection;                    /* biglstm */
    int64_t positions;                     /* gpt: rows of its table of positions; 0: context */
    int64_t channels, image;               /* CNNs: input channels, height = width */
    double dropout;                        /* negative: none */
    double label_smoothing;
    bool tied, batch_norm; /* gpt; vgg16, alexnet */
    double width_factor;   /* CNNs: scales every channel count, 1 = published */
    fr_operator loss;      /* 0: cross_entropy; others: `classes` numbers against as many floats */
    double beta;           /* smooth_l1; 0: 1 */
} fr_model_options;

/* The inputs of a model, which fix its INPUT nodes. */
typedef enum fr_model_input {
    FR_MODEL_FEATURES, /* input (inputs) */
    FR_MODEL_IMAGE,    /* input (channels, image, image) */
    FR_MODEL_TOKENS,   /* input (context) */
    FR_MODEL_TEXT,     /* input (context) and length (): the rest is padding */
    FR_MODEL_PAIR      /* input (2 context): a text and, shifted, its translation; length () of the
                          first */
} fr_model_input;

typedef struct fr_model {
    const char *name, *summary;
    fr_model_input input;
    const char *const *keys;          /* size keys it reads, NULL-terminated */
    const fr_model_options *defaults; /* dropout here: as it is; negative: by image size */
    fr_status (*build)(fr_ctx *ctx, const fr_model_options *o, fr_graph *g);
} fr_model;

FR_API const fr_model *const *fr_model_list(void); /* NULL-terminated */
FR_API const fr_model *fr_model_find(const char *name);

/* What a size is unless config or data say, as text: returns `text`. "" : the model has no such
 * key. */
FR_API const char *fr_model_default(const fr_model *model, const char *key, char *text,
                                    size_t room);
FR_API const fr_key *fr_model_keys(void); /* of its section, ended by a NULL path */

/* Defaults filled in, checked, built and finished. On FR_OK the caller owns *out (fr_graph_free).
 */
FR_API FR_MUST_USE fr_status fr_model_build(fr_ctx *ctx, const fr_model *model,
                                            const fr_model_options *o, fr_graph **out);

/* From the `model:` section of a config: {name: vgg16, classes: 10, ...} or {file: net.yaml} or
 * {nodes: [...]}. Unknown keys are refused with their line. `sample`, if not NULL, are sizes that
 * the data knows (classes, image, vocab ...); they fill what the config leaves open. */
FR_API FR_MUST_USE fr_status fr_model_from_conf(fr_ctx *ctx, fr_conf *model_section,
                                                const fr_model_options *known, fr_graph **out);

/* Activation bytes of one training sample as the graph has them: sum of all node outputs, fp32. */
FR_API int64_t fr_model_activation_bytes(const fr_graph *g);

#ifdef __cplusplus
}
#endif
#endif
