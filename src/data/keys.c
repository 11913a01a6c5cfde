/* keys.c -- the keys of `data:`. A key that means something else, or has another default, in
 * another source has a row of its own there. */
#include "data/source.h"
#include "io/key.h"

FR_NAMES(source_name, fr_data_list)
FR_WORDS(token_kind, "bytes", "uint16", "uint32", "words")
FR_WORDS(separator_name, "tab", "space")
FR_WORDS(split_name, "words", "spaces")

#define TO(member) FR_AT(fr__data_options, member)
#define IDX "fashion-mnist, mnist"

static const fr_key keys[] = {
    FR_TEXT("data.name", "", "the source", .choice = source_name,
            .refusal = "no data source is called '%s'; known: %s"),
    FR_TEXT("data.path", "/usr/share/datasets/fashion-mnist", "folder of the four IDX files",
            .of = "fashion-mnist", .is_path = true, TO(path)),
    FR_TEXT("data.path", "", "folder of the four IDX files", .of = "mnist", .is_path = true,
            TO(path)),
    FR_TEXT("data.path", "", "folder of the binary files", .of = "cifar10", .is_path = true,
            TO(path)),
    FR_TEXT("data.path", "", "the text file", .of = "text", .is_path = true, TO(path)),
    FR_TEXT("data.path", "", "the training file, or a folder with train.tsv", .of = "tsv",
            .is_path = true, TO(path)),
    FR_TEXT("data.path", "", "the training table; its first line names the columns", .of = "csv",
            .is_path = true, TO(path)),
    FR_TEXT("data.path", "", "folder with train.de and so on, here or below tok/ or raw/",
            .of = "multi30k", .is_path = true, TO(path)),
    FR_INT("data.limit", "0", 0, INT32_MAX, "number of training images to use; 0: all",
           .of = IDX ", cifar10", TO(limit)),
    FR_INT("data.crop", "0", 0, 14, "in training, shift images by at most this many pixels",
           .of = IDX, TO(crop)),
    FR_INT("data.crop", "4", 0, 16, "in training, shift images by at most this many pixels",
           .of = "cifar10", TO(crop)),
    FR_BOOL("data.flip", "false", "in training, mirror every other image, by lot", .of = IDX,
            TO(flip)),
    FR_BOOL("data.flip", "true", "in training, mirror every other image, by lot", .of = "cifar10",
            TO(flip)),
    FR_TEXT("data.eval_path", "\"\"", "a text for evaluation", .of = "text", .is_path = true,
            TO(eval_path)),
    FR_TEXT("data.eval_path", "\"\"",
            "evaluation file or its folder; in a folder: test.tsv, else dev.tsv, else valid.tsv",
            .of = "tsv", .is_path = true, TO(eval_path)),
    FR_TEXT("data.eval_path", "\"\"", "a table with the same columns, for evaluation", .of = "csv",
            .is_path = true, TO(eval_path)),
    FR_TEXTS("data.targets", "(the last column)", "names of the columns that are targets",
             .of = "csv"),
    FR_TEXTS("data.skip", NULL, "names of columns that are not used", .of = "csv"),
    FR_REAL("data.eval_fraction", "0.1", 0, 0.99,
            "without eval_path: this part at the end is for evaluation; 0: none", .of = "text",
            TO(eval_fraction)),
    FR_TEXT("data.input", "", ".npy file of training inputs", .of = "npy", .is_path = true,
            TO(input)),
    FR_TEXT("data.source", "de", "language to translate from", .of = "multi30k", TO(source)),
    FR_TEXT("data.target", "en", "language to translate to", .of = "multi30k", TO(target)),
    FR_TEXT("data.target", "", ".npy file of training targets", .of = "npy", .is_path = true,
            TO(target)),
    FR_TEXT("data.eval_input", "\"\"", ".npy file of evaluation inputs", .of = "npy",
            .is_path = true, TO(eval_input)),
    FR_TEXT("data.eval_target", "\"\"", ".npy file of evaluation targets", .of = "npy",
            .is_path = true, TO(eval_target)),
    FR_TEXTS("data.train", "", "the two training files: [source, target]", .of = "pairs"),
    FR_TEXTS("data.eval", NULL, "the two evaluation files", .of = "pairs"),
    FR_TEXT("data.eval", "val", "the part to evaluate on, as test_2016_flickr", .of = "multi30k",
            TO(eval)),
    FR_TEXT("data.split", "words", "at words and punctuation, or at white space alone",
            .choice = split_name, .of = "pairs", .refusal = "'%s' is no way to split; known: %s",
            TO(split)),
    FR_INT("data.context", "128", 1, 1 << 20, "tokens of a window, unless the model sets it",
           .of = "text", TO(context)),
    FR_INT("data.context", "256", 1, 1 << 20,
           "longest text in tokens, unless the model sets it; the rest is cut off", .of = "tsv",
           TO(context)),
    FR_INT("data.context", "50", 1, 1 << 20, "longest text in tokens, unless the model sets it",
           .of = "pairs, multi30k", TO(context)),
    FR_TEXT(
        "data.tokenizer", "\"\"",
        "tokenizer.json, or a folder with it: encodes the text, or names the tokens of the file",
        .of = "text", .is_path = true, TO(tokenizer)),
    FR_TEXT("data.tokens", "bytes", "what a token is", .choice = token_kind, .of = "text",
            .refusal = "'%s' is not a kind of tokens; known: %s", TO(tokens)),
    FR_INT("data.classes", "0", 0, INT32_MAX,
           "number of classes; 0: the model's, else largest target + 1", .of = "npy", TO(classes)),
    FR_INT("data.vocab", "0", 0, INT32_MAX,
           "uint16, uint32: different tokens (0: the tokenizer's, else largest + 1); words: number "
           "of most frequent ones (0: 65536, or the model's vocabulary)",
           .of = "text"),
    FR_INT("data.vocab", "10000", 3, INT32_MAX, "largest vocabulary, unless the model sets it",
           .of = "tsv", TO(vocab)),
    FR_INT("data.vocab", "10000", 5, INT32_MAX,
           "largest vocabulary of either side, unless the model sets it", .of = "pairs, multi30k",
           TO(vocab)),
    FR_INT("data.vocab", "0", 0, INT32_MAX,
           "inputs of token ids: how many there are; 0: the model's, else largest + 1", .of = "npy",
           TO(vocab)),
    FR_BOOL("data.lower", "true", "ASCII capitals count as small letters",
            .of = "tsv, pairs, multi30k", TO(lower)),
    FR_TEXT("data.separator", "tab", "what ends the label", .choice = separator_name, .of = "tsv",
            .refusal = "'%s' is no separator; known: %s", TO(separator)),
    FR_INT("data.text_column", "0", 0, 1000,
           "column where the text begins, the label being 1; 0: the last one of the first line",
           .of = "tsv", TO(text_column)),
    FR_INT("data.n", "4096", 1, 1 << 24, "training samples", .of = "synthetic", TO(n)),
    FR_INT("data.n_eval", "512", 0, 1 << 24, "evaluation samples", .of = "synthetic", TO(n_eval)),
    FR_INT("data.seed", "1", 0, INFINITY, "another seed, other data", .of = "synthetic", TO(seed)),
    FR_KEY_END,
};

const fr_key *fr_data_keys(void) { return keys; }

fr_status fr__data_options_read(fr_conf *section, const char *source, fr__data_options *o)
{
    return fr__keys_read(section, keys, "data.", source, o);
}
