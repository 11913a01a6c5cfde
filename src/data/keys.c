/* keys.c -- the keys of `data:`. A key that means something else, or has another default, in
 * another source has a row of its own there. */
#include "data/source.h"
#include "io/key.h"

FR_NAMES(source_name, fr_data_list)
FR_WORDS(token_kind, "bytes", "uint16", "words")
FR_WORDS(separator_name, "tab", "space")
FR_WORDS(split_name, "words", "spaces")

#define IDX "fashion-mnist, mnist"

static const fr_key keys[] = {
    FR_TEXT("data.name", "", "the source", .choice = source_name),
    FR_TEXT("data.path", "/usr/share/datasets/fashion-mnist", "folder of the four IDX files",
            .of = "fashion-mnist"),
    FR_TEXT("data.path", "", "folder of the four IDX files", .of = "mnist"),
    FR_TEXT("data.path", "", "folder of the binary files", .of = "cifar10"),
    FR_TEXT("data.path", "", "the text file", .of = "text"),
    FR_TEXT("data.path", "", "the training file, or a folder with train.tsv", .of = "tsv"),
    FR_TEXT("data.path", "", "folder with train.de and so on, here or below tok/ or raw/",
            .of = "multi30k"),
    FR_INT("data.limit", "0", 0, INT32_MAX, "use the first so many training images; 0: all",
           .of = IDX ", cifar10"),
    FR_INT("data.crop", "0", 0, 14, "in training, shift images by up to so many pixels", .of = IDX),
    FR_INT("data.crop", "4", 0, 16, "in training, shift images by up to so many pixels",
           .of = "cifar10"),
    FR_BOOL("data.flip", "false", "in training, mirror every other image, by lot", .of = IDX),
    FR_BOOL("data.flip", "true", "in training, mirror every other image, by lot", .of = "cifar10"),
    FR_TEXT("data.eval_path", "\"\"", "a text for evaluation", .of = "text"),
    FR_TEXT("data.eval_path", "\"\"",
            "evaluation file or its folder; in a folder: test.tsv, else dev.tsv, else valid.tsv",
            .of = "tsv"),
    FR_REAL("data.eval_fraction", "0.1", 0, 0.99,
            "without eval_path: this part at the end is for evaluation; 0: none", .of = "text"),
    FR_INT("data.context", "128", 1, 1 << 20, "tokens of a window, unless the model says",
           .of = "text"),
    FR_INT("data.context", "256", 1, 1 << 20,
           "longest text in tokens, unless the model says; the rest is cut off", .of = "tsv"),
    FR_INT("data.context", "50", 1, 1 << 20, "longest text in tokens, unless the model says",
           .of = "pairs, multi30k"),
    FR_TEXT("data.tokens", "bytes", "what a token is", .choice = token_kind, .of = "text"),
    FR_INT("data.vocab", "0", 0, 65536,
           "uint16: different tokens (0: largest + 1); words: the most frequent so many (0: 65536, "
           "or as many as the model knows)",
           .of = "text"),
    FR_INT("data.vocab", "10000", 3, INT32_MAX, "largest vocabulary, unless the model says",
           .of = "tsv"),
    FR_INT("data.vocab", "10000", 5, INT32_MAX,
           "largest vocabulary of either side, unless the model says", .of = "pairs, multi30k"),
    FR_INT("data.vocab", "0", 0, INT32_MAX,
           "inputs of token ids: how many there are; 0: the model's, else largest + 1",
           .of = "npy"),
    FR_BOOL("data.lower", "true", "ASCII capitals count as small letters",
            .of = "tsv, pairs, multi30k"),
    FR_TEXT("data.separator", "tab", "what ends the label", .choice = separator_name, .of = "tsv"),
    FR_INT("data.text_column", "0", 0, 1000,
           "column where the text begins, the label being 1; 0: the last one of the first line",
           .of = "tsv"),
    FR_TEXTS("data.train", "", "the two training files: [source, target]", .of = "pairs"),
    FR_TEXTS("data.eval", NULL, "the two evaluation files", .of = "pairs"),
    FR_TEXT("data.eval", "val", "the part to evaluate on, as test_2016_flickr", .of = "multi30k"),
    FR_TEXT("data.split", "words", "at words and punctuation, or at white space alone",
            .choice = split_name, .of = "pairs"),
    FR_TEXT("data.source", "de", "language to translate from", .of = "multi30k"),
    FR_TEXT("data.target", "en", "language to translate to", .of = "multi30k"),
    FR_TEXT("data.input", "", ".npy file of training inputs", .of = "npy"),
    FR_TEXT("data.target", "", ".npy file of training targets", .of = "npy"),
    FR_TEXT("data.eval_input", "\"\"", ".npy file of evaluation inputs", .of = "npy"),
    FR_TEXT("data.eval_target", "\"\"", ".npy file of evaluation targets", .of = "npy"),
    FR_INT("data.classes", "0", 0, INT32_MAX,
           "number of classes; 0: the model's, else largest target + 1", .of = "npy"),
    FR_INT("data.n", "4096", 1, 1 << 24, "training samples", .of = "synthetic"),
    FR_INT("data.n_eval", "512", 0, 1 << 24, "evaluation samples", .of = "synthetic"),
    FR_INT("data.seed", "1", 0, INFINITY, "another seed, other data", .of = "synthetic"),
    FR_KEY_END,
};

const fr_key *fr_data_keys(void) { return keys; }
