/* load_json.c -- the tokenizer.json of Hugging Face, as far as it describes byte-level BPE.
 *
 * What would change the tokens and is not known here is refused by name. Not read, because they do
 * not change the tokens of a text: post_processor (adds tokens around it), padding, truncation. */
#include "tokens/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    fr_tokenizer *t;
    const char *name; /* of the file */
} reader;

static fr_status unsupported(const reader *r, const char *part, const char *what, const char *known)
{
    return fr_fail(r->t->ctx, FR_UNSUPPORTED, "%s: %s %.200s is not supported; known: %s", r->name,
                   part, what, known);
}

static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "without a type";
}

static bool is_type(const json_t *part, const char *type)
{
    return strcmp(type_of(part), type) == 0;
}

/* --- normalizer --- */

static fr_status use_nfc(const reader *r)
{
    fr_tokenizer *t = r->t;
    t->is_nfc = true;
    if (!t->marks) t->marks = fr__nfc_marks_create();
    return t->marks ? FR_OK : fr__no_memory(t->ctx, 0, "tables of characters");
}

static fr_status read_normalizer(const reader *r, const json_t *n)
{
    if (!n || json_is_null(n)) return FR_OK;
    if (is_type(n, "NFC")) return use_nfc(r);
    const json_t *parts = json_object_get(n, "normalizers");
    if (!is_type(n, "Sequence") || !json_is_array(parts))
        return unsupported(r, "normalizer", type_of(n), "NFC, or none");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        if (!is_type(part, "NFC"))
            return unsupported(r, "normalizer", type_of(part), "NFC, or none");
        FR_TRY(use_nfc(r));
    }
    return FR_OK;
}

/* --- pre_tokenizer --- */

#define KNOWN_PRE \
    "ByteLevel, or a Split by the pattern of GPT-2, cl100k, Llama 3 or Qwen 2 before it"

static bool flag_of(const json_t *part, const char *key, bool preset)
{
    const json_t *value = json_object_get(part, key);
    return json_is_boolean(value) ? json_is_true(value) : preset;
}

static fr_status read_split(const reader *r, const json_t *part)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *behavior = json_string_value(json_object_get(part, "behavior"));
    bool is_inverted = flag_of(part, "invert", false);
    if (!regex || !(r->t->split = fr__split_find(regex)))
        return unsupported(r, "pre_tokenizer: the Split pattern", regex ? regex : "(no Regex)",
                           "those of GPT-2, cl100k, Llama 3 and Qwen 2");
    /* The patterns match everything, so to keep the matches is to cut between them. */
    if (!behavior ||
        (strcmp(behavior, "Isolated") != 0 && !(strcmp(behavior, "Removed") == 0 && is_inverted)))
        return unsupported(r, "pre_tokenizer: Split with behavior", behavior ? behavior : "(none)",
                           "Isolated");
    return FR_OK;
}

static fr_status read_pre_tokenizer(const reader *r, const json_t *p)
{
    fr_tokenizer *t = r->t;
    const json_t *level = p, *parts = json_object_get(p, "pretokenizers");
    if (is_type(p, "Sequence")) {
        size_t n = json_array_size(parts);
        if (n < 1 || n > 2)
            return unsupported(r, "pre_tokenizer", "Sequence of this length", KNOWN_PRE);
        level = json_array_get(parts, n - 1);
        const json_t *split = json_array_get(parts, 0);
        if (n == 2 && !is_type(split, "Split"))
            return unsupported(r, "pre_tokenizer", type_of(split), KNOWN_PRE);
        if (n == 2) FR_TRY(read_split(r, split));
    }
    if (!is_type(level, "ByteLevel"))
        return unsupported(r, "pre_tokenizer", type_of(level), KNOWN_PRE);
    t->prefix_space = flag_of(level, "add_prefix_space", true);
    bool has_regex = flag_of(level, "use_regex", true);
    if (t->split && (t->prefix_space || has_regex))
        return unsupported(r, "pre_tokenizer: ByteLevel with",
                           has_regex ? "use_regex after a Split" : "add_prefix_space after a Split",
                           "both false");
    if (!t->split && !has_regex)
        return unsupported(r, "pre_tokenizer", "ByteLevel without use_regex and without a Split",
                           KNOWN_PRE);
    if (!t->split) t->split = &fr__split_gpt2;
    return FR_OK;
}

/* --- model --- */

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_string(value) && !json_string_length(value));
}

static fr_status check_model(const reader *r, const json_t *model)
{
    const json_t *dropout = json_object_get(model, "dropout"),
                 *type = json_object_get(model, "type");
    if (!json_is_object(model))
        return fr_fail(r->t->ctx, FR_INVALID, "%s: no object \"model\"; is it a tokenizer.json?",
                       r->name);
    if (type && !is_type(model, "BPE")) return unsupported(r, "model", type_of(model), "BPE");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return unsupported(r, "model: BPE with", "dropout", "none");
    if (!is_empty(json_object_get(model, "continuing_subword_prefix")))
        return unsupported(r, "model: BPE with", "continuing_subword_prefix", "none");
    if (!is_empty(json_object_get(model, "end_of_word_suffix")))
        return unsupported(r, "model: BPE with", "end_of_word_suffix", "none");
    return FR_OK;
}

/* A merge is "left right" or ["left", "right"]. */
static bool read_pair(const json_t *merge, const char *part[2], size_t n[2])
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *text = json_array_get(merge, i);
            if (!json_is_string(text)) return false;
            part[i] = json_string_value(text), n[i] = json_string_length(text);
        }
        return true;
    }
    const char *text = json_string_value(merge), *blank = text ? strchr(text, ' ') : NULL;
    if (!blank || strchr(blank + 1, ' ')) return false;
    part[0] = text, n[0] = (size_t)(blank - text);
    part[1] = blank + 1, n[1] = strlen(blank + 1);
    return true;
}

static fr_status read_merges(const reader *r, const json_t *merges)
{
    fr_ctx *ctx = r->t->ctx;
    size_t n_merges = json_array_size(merges);
    if (!json_is_array(merges) || n_merges >= FR_NO_RANK)
        return fr_fail(ctx, FR_INVALID, "%s: model has no list \"merges\"", r->name);
    if (!fr__bpe_start_merges(&r->t->bpe, n_merges)) return fr__no_memory(ctx, 0, r->name);
    for (size_t i = 0; i < n_merges; i++) {
        const char *part[2], *why = "is no pair of tokens";
        size_t n[2] = {0, 0};
        fr_status status = FR_INVALID;
        if (read_pair(json_array_get(merges, i), part, n))
            status = fr__bpe_merge(&r->t->bpe, part[0], n[0], part[1], n[1], (uint32_t)i, &why);
        if (status == FR_NO_MEMORY) return fr__no_memory(ctx, 0, r->name);
        if (status == FR_OK) continue;
        if (!n[0]) return fr_fail(ctx, status, "%s: merge %zu %s", r->name, i, why);
        return fr_fail(ctx, status, "%s: merge %zu, \"%.*s\" and \"%.*s\", %s", r->name, i,
                       (int)(n[0] < 60 ? n[0] : 60), part[0], (int)(n[1] < 60 ? n[1] : 60), part[1],
                       why);
    }
    return FR_OK;
}

static fr_status read_added(const reader *r, const json_t *list)
{
    if (!list || json_is_null(list)) return FR_OK;
    if (!json_is_array(list))
        return fr_fail(r->t->ctx, FR_INVALID, "%s: added_tokens is not a list", r->name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i), *id = json_object_get(token, "id");
        if (!json_is_integer(id))
            return fr_fail(r->t->ctx, FR_INVALID, "%s: added token %zu has no id", r->name, i);
        FR_TRY(fr__load_added(r->t, r->name, json_integer_value(id), token));
    }
    return FR_OK;
}

static fr_status read_all(const reader *r, const json_t *root)
{
    const json_t *model = json_object_get(root, "model"),
                 *decoder = json_object_get(root, "decoder");
    FR_TRY(check_model(r, model));
    if (decoder && !json_is_null(decoder) && !is_type(decoder, "ByteLevel"))
        return unsupported(r, "decoder", type_of(decoder), "ByteLevel");
    FR_TRY(read_normalizer(r, json_object_get(root, "normalizer")));
    FR_TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
    r->t->bpe.ignore_merges = flag_of(model, "ignore_merges", false);
    FR_TRY(fr__load_vocab(r->t, r->name, json_object_get(model, "vocab")));
    FR_TRY(read_merges(r, json_object_get(model, "merges")));
    FR_TRY(read_added(r, json_object_get(root, "added_tokens")));
    return fr__load_finish(r->t, r->name);
}

fr_status fr__tokenizer_parse(fr_ctx *ctx, const char *name, const char *text, size_t bytes,
                              fr_tokenizer **out)
{
    json_t *root;
    reader r = {.name = name};
    *out = NULL;
    FR_TRY(fr__load_json(ctx, &(fr__text_file){name, text, bytes}, &root));
    r.t = fr__tokenizer_new(ctx);
    fr_status status = r.t ? read_all(&r, root) : FR_NO_MEMORY;
    json_decref(root);
    if (status == FR_OK)
        *out = r.t;
    else
        fr_tokenizer_free(r.t);
    return status;
}
