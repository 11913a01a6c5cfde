/* load.c -- opens a tokenizer; what tokenizer.json and vocab.json have in common. */
#include "tokens/tokenizer.h"

#include "io/file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

fr_tokenizer *fr__tokenizer_new(fr_ctx *ctx)
{
    fr_tokenizer *t = FR_NEW(fr_tokenizer);
    if (t) t->ctx = ctx, t->classes = fr__classes_create();
    if (t && t->classes) return t;
    fr_tokenizer_free(t);
    fr__no_memory(ctx, sizeof *t, "tokenizer");
    return NULL;
}

void fr_tokenizer_free(fr_tokenizer *t)
{
    if (!t) return;
    fr__bpe_fini(&t->bpe);
    for (int i = 0; i < 2; i++) fr__added_fini(&t->added[i]);
    fr__free(t->classes);
    fr__free(t->marks);
    fr__free(t);
}

int64_t fr_tokenizer_vocab(const fr_tokenizer *t) { return (int64_t)t->bpe.tokens.n; }

const char *fr_tokenizer_text(const fr_tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || (size_t)id >= t->bpe.tokens.n || !t->bpe.tokens.at[id].is_known) return NULL;
    const fr__token *token = &t->bpe.tokens.at[id];
    *n = token->bytes;
    return (const char *)t->bpe.chars.at + token->begin;
}

int32_t fr_tokenizer_id(const fr_tokenizer *t, const char *text)
{
    size_t n = strlen(text), n_found;
    int32_t id = -1;
    for (int i = 0; i < 2; i++) {
        fr__added_find(&t->added[i], (const unsigned char *)text, n, true, &n_found, &id);
        if (n_found == n && n > 0) return id;
    }
    return fr__bpe_find_bytes(&t->bpe, (const unsigned char *)text, n);
}

fr_status fr__load_token_error(fr_tokenizer *t, fr_status status, const char *at, const char *token,
                               const char *why)
{
    if (status == FR_OK) return FR_OK;
    if (status == FR_NO_MEMORY) return fr__no_memory(t->ctx, 0, at);
    return fr_fail(t->ctx, status, "%s: token \"%.60s\" %s", at, token, why);
}

fr_status fr__load_json(fr_ctx *ctx, const fr__text_file *f, json_t **out)
{
    json_error_t e;
    *out = json_loadb(f->text, f->bytes, JSON_REJECT_DUPLICATES, &e);
    if (*out) return FR_OK;
    if (json_error_code(&e) == json_error_out_of_memory)
        return fr__no_memory(ctx, f->bytes, f->name);
    return fr_fail(ctx, FR_INVALID, "%s:%d:%d: not JSON: %s", f->name, e.line, e.column, e.text);
}

fr_status fr__load_vocab(fr_tokenizer *t, const char *at, const json_t *vocab)
{
    const char *token;
    json_t *id, *all = (json_t *)(uintptr_t)vocab; /* jansson iterates over what it may change */
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return fr_fail(t->ctx, FR_INVALID, "%s: the vocabulary must be an object of tokens and ids",
                       at);
    json_object_foreach(all, token, id)
    {
        const char *why = "has no whole number as its id";
        fr_status status = FR_INVALID;
        if (json_is_integer(id))
            status = fr__bpe_add(&t->bpe, token, strlen(token), json_integer_value(id), &why);
        FR_TRY(fr__load_token_error(t, status, at, token, why));
    }
    return FR_OK;
}

/* Without a blank around it and inside of words: so these tokens are met. */
static const char *refused_flag(const json_t *token)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(token, flags[i]))) return flags[i];
    return NULL;
}

/* Put a token into the text that is searched: as given, or in normal form. */
static bool put_added(fr_tokenizer *t, const char *text, size_t n, bool is_normalized, int32_t id)
{
    fr__bytes normal = {0};
    fr__nfc nfc = {.marks = t->marks};
    size_t taken;
    bool done = true;
    if (is_normalized && t->is_nfc) {
        done = fr__nfc_append(&nfc, (const unsigned char *)text, n, true, &normal, &taken);
        text = (const char *)normal.at, n = normal.n;
    }
    done = done && fr__added_put(&t->added[is_normalized], (const unsigned char *)text, n, id);
    fr__nfc_fini(&nfc);
    fr__vec_fini(&normal);
    return done;
}

fr_status fr__load_added(fr_tokenizer *t, const char *at, int64_t id, const json_t *token)
{
    const json_t *content = json_object_get(token, "content");
    const char *text = json_string_value(content), *flag = refused_flag(token);
    const char *why = "has the id of another token";
    if (!text || json_string_length(content) == 0)
        return fr_fail(t->ctx, FR_INVALID, "%s: an added token has no text \"content\"", at);
    size_t n = json_string_length(content);
    if (flag)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "%s: added token \"%.60s\" has %s, which is not supported; known: tokens "
                       "without lstrip, rstrip and single_word",
                       at, text, flag);
    int32_t known = fr__bpe_find(&t->bpe, text, n);
    fr_status status = FR_OK;
    if (known >= 0 && known != id)
        status = FR_INVALID, why = "has another id in the vocabulary";
    else if (known < 0)
        status = known < -1 ? FR_NO_MEMORY : fr__bpe_add_raw(&t->bpe, text, n, id, &why);
    bool is_normalized = json_is_true(json_object_get(token, "normalized"));
    if (status == FR_OK && !put_added(t, text, n, is_normalized, (int32_t)id))
        status = FR_NO_MEMORY;
    return fr__load_token_error(t, status, at, text, why);
}

fr_status fr__load_finish(fr_tokenizer *t, const char *name)
{
    int byte = fr__bpe_finish(&t->bpe);
    if (byte < 0) return FR_OK;
    return fr_fail(t->ctx, FR_INVALID,
                   "%s: no token is the byte 0x%02x; the vocabulary of a byte-level tokenizer has "
                   "all 256",
                   name, (unsigned)byte);
}

/* --- files --- */

enum { MAX_PATH_BYTES = 4096 };

typedef struct loaded {
    fr__text_file file;
    char path[MAX_PATH_BYTES];
    unsigned char *data;
} loaded;

/* False: there is no such file. */
static bool find_file(loaded *f, const char *folder, const char *name)
{
    int n = snprintf(f->path, sizeof f->path, "%s/%s", folder, name);
    return n > 0 && n < MAX_PATH_BYTES && fr__file_exists(f->path);
}

static fr_status read_file(fr_ctx *ctx, loaded *f)
{
    FR_TRY(fr__file_read(ctx, f->path, FR_TOKENS_MAX_FILE, &f->data, &f->file.bytes));
    f->file.name = f->path;
    f->file.text = (const char *)f->data;
    return FR_OK;
}

static fr_status open_json(fr_ctx *ctx, loaded *f, fr_tokenizer **out)
{
    FR_TRY(read_file(ctx, f));
    return fr__tokenizer_parse(ctx, f->path, f->file.text, f->file.bytes, out);
}

static fr_status open_files(fr_ctx *ctx, const char *folder, loaded f[3], fr_tokenizer **out)
{
    if (!find_file(&f[0], folder, "vocab.json") || !find_file(&f[1], folder, "merges.txt"))
        return fr_fail(
            ctx, FR_INVALID,
            "%s: neither tokenizer.json nor vocab.json and merges.txt are in this folder", folder);
    bool has_config = find_file(&f[2], folder, "tokenizer_config.json");
    for (int i = 0; i < 2 + has_config; i++) FR_TRY(read_file(ctx, &f[i]));
    return fr__tokenizer_parse_files(ctx, &f[0].file, &f[1].file, has_config ? &f[2].file : NULL,
                                     out);
}

fr_status fr_tokenizer_open(fr_ctx *ctx, const char *path, fr_tokenizer **out)
{
    *out = NULL;
    loaded *f = FR_NEW_ARRAY(loaded, 3);
    if (!f) return fr__no_memory(ctx, 3 * sizeof *f, path);
    fr_status status;
    if (!fr__dir_exists(path)) {
        status = FR_OK;
        if (snprintf(f->path, sizeof f->path, "%s", path) >= MAX_PATH_BYTES)
            status = fr_fail(ctx, FR_INVALID, "%.60s...: the path is too long", path);
        if (status == FR_OK) status = open_json(ctx, f, out);
    } else if (find_file(f, path, "tokenizer.json")) {
        status = open_json(ctx, f, out);
    } else {
        status = open_files(ctx, path, f, out);
    }
    for (int i = 0; i < 3; i++) fr__free(f[i].data);
    fr__free(f);
    return status;
}
