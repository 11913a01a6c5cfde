/* keys.c -- the keys of `model:`: sizes of models by name, and nodes written out. */
#include "io/key.h"
#include "models/build.h"

FR_NAMES(model_name, fr_model_list)
FR_WORDS(dtype_name, "float", "int")
FR_WORDS(loss_name, "cross_entropy", "mse", "smooth_l1", "bce", "cosine")
FR_WORDS(init_name, "default", "zeros", "ones", "normal", "uniform", "he_out", "lecun")

static const char *operator_name(int i)
{
    return i < FR_OPERATOR_COUNT ? fr_operator_name((fr_operator)i) : NULL;
}

#define SIZE_OF(member) FR_AT(fr_model_options, member)
#define ATTR(member) FR_AT(fr_attrs, member)
#define BY_MODEL "(the data's, else the model's)"
#define OWN "(the model's)"

static const fr_key keys[] = {
    FR_TEXT("model.name", "(required; of nodes: custom)", "the model", .choice = model_name,
            .refusal = "there is no model '%s'; there are: %s"),
    FR_TEXT("model.file", NULL,
            "a file with nodes (and ties), instead of a model by name; a relative path counts from "
            "the config's folder"),
    FR_INT("model.inputs", BY_MODEL, 1, INT32_MAX, "numbers in a sample", SIZE_OF(inputs)),
    FR_INT("model.depth", OWN, 1, 10000, "hidden layers", SIZE_OF(depth)),
    FR_INT("model.width", OWN, 1, INT32_MAX / 4, "units of a layer; cnn: channels of the first one",
           SIZE_OF(width)),
    FR_INT("model.classes", BY_MODEL, 1, INT32_MAX,
           "number of classes, or of outputs for targets of floats", SIZE_OF(classes)),
    FR_INT("model.layers", OWN, 1, 10000, "blocks, or recurrent layers", SIZE_OF(layers)),
    FR_INT("model.heads", OWN, 1, INT32_MAX, "attention heads; they divide width", SIZE_OF(heads)),
    FR_INT("model.context", BY_MODEL, 1, INT32_MAX, "tokens of a sample", SIZE_OF(context)),
    FR_INT("model.vocab", BY_MODEL, 1, INT32_MAX, "different tokens", SIZE_OF(vocab)),
    FR_INT("model.projection", OWN, 1, INT32_MAX / 4, "output width of a layer",
           SIZE_OF(projection)),
    FR_INT("model.channels", BY_MODEL, 1, INT32_MAX, "colours of an image", SIZE_OF(channels)),
    FR_INT("model.image", BY_MODEL, 1, INT32_MAX, "height and width of an image", SIZE_OF(image)),
    FR_REAL("model.dropout", OWN, 0, 0.99, "share of activations set to zero in training",
            SIZE_OF(dropout)),
    FR_REAL("model.label_smoothing", "0", 0, 0.99, "share of the target spread over all classes",
            SIZE_OF(label_smoothing)),
    FR_TEXT("model.loss", "cross_entropy",
            "what is minimised; all but cross_entropy read targets of floats", .choice = loss_name,
            .refusal = "'%s' is no loss; there are: %s"),
    FR_REAL("model.beta", "1", 1e-6, 1e6, "smooth_l1: errors below it count squared",
            SIZE_OF(beta)),
    FR_REAL("model.width_factor", "1", 0.001, 64,
            "times every channel count of the published network", SIZE_OF(width_factor)),
    FR_BOOL("model.tied", "false", "the last layer uses the weights of the embedding",
            SIZE_OF(tied)),
    FR_BOOL("model.batch_norm", "false", "batch normalisation after each convolution",
            SIZE_OF(batch_norm)),
    FR_ITEMS("model.nodes", NULL,
             "the network written out, node by node, instead of a model by name"),
    FR_ITEMS("model.ties", NULL, "parameters that are one with others", .of = "nodes"),
    FR_TEXT("model.ties[].param", "", "the parameter that has none of its own", .of = "nodes"),
    FR_TEXT("model.ties[].owner", "", "the one it takes", .of = "nodes"),
    FR_TEXT("model.nodes[].name", "", "of the node; its parameters are called after it"),
    FR_TEXT("model.nodes[].op", "", "operator", .choice = operator_name),
    FR_TEXTS("model.nodes[].inputs", "(the node before)", "names of the nodes it reads"),
    FR_INTS("model.nodes[].shape", NULL, "of a sample, without the batch", .of = "input"),
    FR_TEXT("model.nodes[].dtype", "float", "of a sample", .choice = dtype_name, .of = "input",
            .refusal = "dtype is '%s'; it must be float or int"),
    FR_INT("model.nodes[].out", "", 1, INT32_MAX, "units or channels of the output",
           .of = "linear, conv2d", ATTR(linear.out)),
    FR_INTS("model.nodes[].kernel", "", "window: one number, or [height, width]",
            .of = "conv2d, max_pool, avg_pool", .min = 1, .max = INT32_MAX, ATTR(conv2d.kernel)),
    FR_INTS("model.nodes[].stride", NULL, "of the window (conv2d: 1; pools: the kernel)",
            .of = "conv2d, max_pool, avg_pool", .min = 1, .max = INT32_MAX, ATTR(conv2d.stride)),
    FR_INTS("model.nodes[].pad", NULL, "zeros around the image (0)",
            .of = "conv2d, max_pool, avg_pool", .min = 0, .max = INT32_MAX, ATTR(conv2d.pad)),
    FR_INT("model.nodes[].groups", NULL, 1, INT32_MAX, "groups of channels that do not mix (1)",
           .of = "conv2d", ATTR(conv2d.groups)),
    FR_BOOL("model.nodes[].bias", "true", "add a bias", .of = "linear, conv2d",
            ATTR(linear.no_bias)),
    FR_REAL("model.nodes[].eps", NULL, 1e-12, 1, "added to the variance (1e-05)",
            .of = "batch_norm, layer_norm", ATTR(norm.eps)),
    FR_REAL("model.nodes[].momentum", NULL, 1e-6, 1,
            "share of a micro-batch in the running statistics (0.1)", .of = "batch_norm",
            ATTR(norm.momentum)),
    FR_REAL("model.nodes[].p", "", 0, 0.99, "share that is dropped", .of = "dropout, alpha_dropout",
            ATTR(dropout.p)),
    FR_BOOL("model.nodes[].count_valid", "false",
            "the mean is over pixels of the image only, not its padding", .of = "avg_pool",
            ATTR(pool.count_valid)),
    FR_INT("model.nodes[].vocab", "", 1, INT32_MAX, "different tokens", .of = "embedding",
           ATTR(embedding.vocab)),
    FR_INT("model.nodes[].width", "", 1, INT32_MAX, "numbers of a token", .of = "embedding",
           ATTR(embedding.width)),
    FR_INT("model.nodes[].positions", NULL, 1, INT32_MAX,
           "tokens that get a learned position added (none)", .of = "embedding",
           ATTR(embedding.positions)),
    FR_INT("model.nodes[].heads", "", 1, INT32_MAX, "attention heads",
           .of = "attention, cross_attention", ATTR(attention.heads)),
    FR_BOOL("model.nodes[].causal", "false", "a token sees itself and what is before it",
            .of = "attention", ATTR(attention.causal)),
    FR_INT("model.nodes[].hidden", "", 1, INT32_MAX, "units of the cell", .of = "lstm",
           ATTR(lstm.hidden)),
    FR_INT("model.nodes[].projection", NULL, 1, INT32_MAX, "output width (hidden)", .of = "lstm",
           ATTR(lstm.projection)),
    FR_INT("model.nodes[].axis", "0", 0, FR_MAX_DIMS - 1, "that is joined, without the batch",
           .of = "concat", ATTR(concat.axis)),
    FR_INT("model.nodes[].from", "0", 0, INT32_MAX, "first item of axis 0 that is kept",
           .of = "slice", ATTR(slice.from)),
    FR_INT("model.nodes[].to", "", 1, INT32_MAX, "item after the last", .of = "slice",
           ATTR(slice.to)),
    FR_REAL("model.nodes[].label_smoothing", NULL, 0, 0.99,
            "share of the target spread over all classes (0)", .of = "cross_entropy",
            ATTR(loss.label_smoothing)),
    FR_REAL("model.nodes[].beta", NULL, 1e-6, 1e6, "errors below it count squared (1)",
            .of = "smooth_l1", ATTR(loss.beta)),
    FR_INT("model.nodes[].ignore_index", NULL, INT32_MIN, INT32_MAX, "target that does not count",
           .of = "cross_entropy"),
    FR_TEXT("model.nodes[].init", "default", "first values of its weights", .choice = init_name,
            .of = "linear, conv2d, embedding, lstm",
            .refusal =
                "init is '%s'; it must be default, zeros, ones, normal, uniform, he_out or lecun"),
    FR_REAL("model.nodes[].init_scale", NULL, 0, 1e6,
            "standard deviation of init: normal, bound of init: uniform",
            .of = "linear, conv2d, embedding, lstm"),
    FR_KEY_END,
};

const fr_key *fr_model_keys(void) { return keys; }
