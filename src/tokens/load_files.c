/* load_files.c -- vocab.json and merges.txt, as GPT-2 and Qwen 2 have them, without tokenizer.json.
 *
 * These files do not say how text is split. tokenizer_config.json does, by the name of a class;
 * without it the pattern is that of GPT-2. It has the added tokens, too; without it <|endoftext|>
 * is one, if the vocabulary has it. */
#include "tokens/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *class;
    const fr__split *split;
    bool is_nfc;
} classes[] = {
    {"GPT2Tokenizer", &fr__split_gpt2, false},
    {"GPT2TokenizerFast", &fr__split_gpt2, false},
    {"Qwen2Tokenizer", &fr__split_qwen2, true},
    {"Qwen2TokenizerFast", &fr__split_qwen2, true},
};

static fr_status use_class(fr_tokenizer *t, const char *name, const json_t *config)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    if (!class) class = "GPT2Tokenizer";
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(classes[i].class, class) != 0) continue;
        t->split = classes[i].split;
        t->is_nfc = classes[i].is_nfc;
        t->prefix_space = json_is_true(json_object_get(config, "add_prefix_space"));
        if (t->prefix_space && !t->split->is_gpt2)
            return fr_fail(t->ctx, FR_UNSUPPORTED,
                           "%s: add_prefix_space of %s is not supported; known: false", name,
                           class);
        if (t->is_nfc && !(t->marks = fr__nfc_marks_create()))
            return fr__no_memory(t->ctx, 0, "tables of characters");
        return FR_OK;
    }
    return fr_fail(t->ctx, FR_UNSUPPORTED,
                   "%s: tokenizer_class %.60s is not supported beside vocab.json; known: "
                   "GPT2Tokenizer, Qwen2Tokenizer; others need tokenizer.json",
                   name, class);
}

/* {"50256": {"content": "<|endoftext|>", ...}, ...} */
static fr_status read_added(fr_tokenizer *t, const char *name, const json_t *config)
{
    json_t *list = json_object_get(config, "added_tokens_decoder"), *token;
    const char *key, *usual = "<|endoftext|>";
    if (!list) {
        int32_t id = fr__bpe_find(&t->bpe, usual, strlen(usual));
        if (id < -1) return fr__no_memory(t->ctx, 0, name);
        token = json_pack("{ss}", "content", usual);
        fr_status status = token ? FR_OK : fr__no_memory(t->ctx, 0, name);
        if (status == FR_OK && id >= 0) status = fr__load_added(t, name, id, token);
        json_decref(token);
        return status;
    }
    json_object_foreach(list, key, token)
    {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (*end || end == key)
            return fr_fail(t->ctx, FR_INVALID, "%s: added_tokens_decoder: \"%.60s\" is no id", name,
                           key);
        FR_TRY(fr__load_added(t, name, id, token));
    }
    return FR_OK;
}

static fr_status bad_line(fr_tokenizer *t, const fr__text_file *f, size_t line, fr_status status,
                          const char *why)
{
    if (status == FR_NO_MEMORY) return fr__no_memory(t->ctx, f->bytes, f->name);
    return fr_fail(t->ctx, status, "%s:%zu: the merge %s", f->name, line, why);
}

/* Each line is "left right", the lowest rank first; empty lines and #version do not count. */
static fr_status read_merges(fr_tokenizer *t, const fr__text_file *f)
{
    size_t n_lines = 1, line = 0;
    uint32_t rank = 0;
    const char *end = f->text + f->bytes;
    for (size_t i = 0; i < f->bytes; i++) n_lines += f->text[i] == '\n';
    if (!fr__bpe_start_merges(&t->bpe, n_lines)) return fr__no_memory(t->ctx, 0, f->name);
    for (const char *p = f->text, *next; p < end; p = next) {
        const char *stop = memchr(p, '\n', (size_t)(end - p)), *why = "is no pair of tokens";
        line++;
        next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > p && stop[-1] == '\r') stop--;
        size_t n = (size_t)(stop - p);
        if (n == 0 || (n >= 8 && memcmp(p, "#version", 8) == 0)) continue;
        const char *blank = memchr(p, ' ', n);
        if (!blank || memchr(blank + 1, ' ', (size_t)(stop - blank - 1)))
            return bad_line(t, f, line, FR_INVALID, why);
        fr_status status = fr__bpe_merge(&t->bpe, p, (size_t)(blank - p), blank + 1,
                                         (size_t)(stop - blank - 1), rank++, &why);
        if (status != FR_OK) return bad_line(t, f, line, status, why);
    }
    return FR_OK;
}

static fr_status read_all(fr_tokenizer *t, const fr__text_file *vocab, const fr__text_file *merges,
                          const fr__text_file *config)
{
    json_t *ids = NULL, *settings = NULL;
    const char *name = config ? config->name : vocab->name;
    fr_status status = fr__load_json(t->ctx, vocab, &ids);
    if (status == FR_OK && config) status = fr__load_json(t->ctx, config, &settings);
    if (status == FR_OK) status = use_class(t, name, settings);
    if (status == FR_OK) status = fr__load_vocab(t, vocab->name, ids);
    if (status == FR_OK) status = read_merges(t, merges);
    if (status == FR_OK) status = read_added(t, name, settings);
    if (status == FR_OK) status = fr__load_finish(t, vocab->name);
    json_decref(ids);
    json_decref(settings);
    return status;
}

fr_status fr__tokenizer_parse_files(fr_ctx *ctx, const fr__text_file *vocab,
                                    const fr__text_file *merges, const fr__text_file *config,
                                    fr_tokenizer **out)
{
    fr_tokenizer *t = *out = fr__tokenizer_new(ctx);
    if (!t) return FR_NO_MEMORY;
    fr_status status = read_all(t, vocab, merges, config);
    if (status == FR_OK) return FR_OK;
    fr_tokenizer_free(t);
    *out = NULL;
    return status;
}
