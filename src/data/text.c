/* text.c -- one long text cut into windows, for next-token prediction.
 *
 * Tokens are bytes, little-endian numbers of a file, those of a tokenizer, which encodes the text
 * when it is read, or words, which become numbers then: 0 for a word that the vocabulary lacks, 1
 * for the end of a line.
 * Windows of `context` tokens do not overlap. In each epoch of training, all windows are shifted by
 * the same random number of tokens, so over the epochs a window may begin anywhere. The epoch
 * follows from the draw number: an epoch is n_train draws. */
#include "base/philox.h"
#include "data/source.h"
#include "data/token_file.h"
#include "data/vocab.h"
#include "io/conf.h"
#include "io/file.h"
#include "io/key.h"

#include <forerun/tokens.h>
#include <string.h>

enum { BYTE_VOCAB = 256, MAX_VOCAB = 65536 };

enum { UNKNOWN, LINE_END, N_SPECIAL };

static const char *const special[N_SPECIAL] = {[UNKNOWN] = "<unk>", [LINE_END] = "</s>"};

typedef struct text_part {
    const unsigned char *tokens;
    int64_t n; /* tokens */
    int width; /* bytes of each */
} text_part;

typedef struct text_set {
    fr_dataset base;
    text_part part[2];        /* FR_TRAIN, FR_EVAL */
    unsigned char *blocks[2]; /* texts; the second one only with eval_path */
    fr__token_file files[2];  /* in their place, files of tokens */
    bool is_bytes;            /* tokens are bytes */
    fr_tokenizer *tokenizer;  /* NULL: none */
    int64_t context, max_shift;
    fr__vocab words;       /* tokens: words; empty afterwards */
    char byte[BYTE_VOCAB]; /* byte[i] = i, the text of token i */
} text_set;

static int32_t token_at(const text_part *part, int64_t i)
{
    const unsigned char *p = part->tokens + i * part->width;
    if (part->width == 1) return p[0];
    if (part->width == 2) return p[0] | p[1] << 8;
    return (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static fr_status text_read(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                           uint64_t draw, void *input, void *target, int32_t *length)
{
    const text_set *t = (const text_set *)d;
    const text_part *part = &t->part[split];
    int64_t start = index * t->context;
    if (draw != FR_DRAW_PLAIN) {
        uint32_t lot[4];
        uint64_t epoch = draw / (uint64_t)d->info.n_train;
        fr__random4(seed, FR_STREAM_AUGMENT, 1, epoch, 0, lot);
        start += (int64_t)(lot[0] % (uint32_t)(t->max_shift + 1));
    }
    int32_t *ids = input, *next = target; /* (context) */
    int64_t n_known = part->n - 1 - start;
    if (n_known > t->context) n_known = t->context;
    for (int64_t i = 0; i < n_known; i++) {
        ids[i] = token_at(part, start + i);
        next[i] = token_at(part, start + i + 1);
    }
    for (int64_t i = n_known; i < t->context; i++) ids[i] = 0, next[i] = FR_TARGET_IGNORE;
    *length = (int32_t)n_known;
    return FR_OK;
}

static void text_close(fr_dataset *d)
{
    text_set *t = (text_set *)d;
    for (int i = 0; i < 2; i++) {
        fr__free(t->blocks[i]);
        fr__token_file_close(&t->files[i]);
    }
    fr_tokenizer_free(t->tokenizer);
    fr__vocab_fini(&t->words);
}

static const char *text_token_text(const fr_dataset *d, int32_t id, size_t *n)
{
    const text_set *t = (const text_set *)d;
    if (t->tokenizer) return fr_tokenizer_text(t->tokenizer, id, n);
    if (!t->is_bytes || id < 0 || id >= BYTE_VOCAB) return NULL;
    *n = 1;
    return &t->byte[id];
}

/* -1: no memory. */
static int64_t encode_by(const fr_tokenizer *t, const char *text, size_t bytes, int32_t *ids,
                         int64_t room)
{
    fr_encoder *e;
    int64_t n = -1;
    if (fr_encoder_create(t, &e) != FR_OK) return -1;
    if (fr_encoder_feed(e, text, bytes) == FR_OK && fr_encoder_end(e) == FR_OK) {
        const int32_t *all = fr_encoder_take(e, &n);
        if (n > room) n = room;
        if (n > 0) memcpy(ids, all, (size_t)n * sizeof *ids);
    }
    fr_encoder_free(e);
    return n;
}

static int64_t text_encode(const fr_dataset *d, const char *text, size_t bytes, int32_t *ids,
                           int64_t room)
{
    const text_set *t = (const text_set *)d;
    if (t->tokenizer) return encode_by(t->tokenizer, text, bytes, ids, room);
    if (!t->is_bytes) return -1;
    int64_t n = bytes < (size_t)room ? (int64_t)bytes : room;
    for (int64_t i = 0; i < n; i++) ids[i] = (unsigned char)text[i];
    return n;
}

static const fr__data_ops ops = {
    .read = text_read, .close = text_close, .token_text = text_token_text, .encode = text_encode};

/* Bytes of a token where the key `tokens` says so; 0: the file is a text. */
static int width_of(const fr__data_options *k)
{
    return strcmp(k->tokens, "uint16") == 0 ? 2 : strcmp(k->tokens, "uint32") == 0 ? 4 : 0;
}

static fr_status encode_text(text_set *t, const char *path, unsigned char **block, size_t bytes,
                             text_part *part)
{
    fr_encoder *e;
    int64_t n;
    FR_TRY(fr_encoder_create(t->tokenizer, &e));
    fr_status status = fr_encoder_feed(e, (const char *)*block, bytes);
    if (status == FR_OK) status = fr_encoder_end(e);
    if (status == FR_INVALID)
        status = fr_fail(t->base.ctx, status, "%s: it holds no text: %s", path,
                         fr_ctx_error(t->base.ctx));
    const int32_t *ids = fr_encoder_take(e, &n);
    fr__free(*block);
    *block = NULL;
    part->width = fr_tokenizer_vocab(t->tokenizer) > MAX_VOCAB ? 4 : 2;
    part->n = n;
    if (status == FR_OK && !(*block = fr__alloc((size_t)(n * part->width) + 1)))
        status = fr__no_memory(t->base.ctx, (size_t)(n * part->width), path);
    for (int64_t i = 0; status == FR_OK && i < n; i++)
        for (int b = 0; b < part->width; b++)
            (*block)[i * part->width + b] = (unsigned char)(ids[i] >> 8 * b);
    fr_encoder_free(e);
    part->tokens = *block;
    t->base.bytes += (size_t)(n * part->width);
    return status;
}

/* File s of the two. A file of llm.c or Megatron is one of tokens unless the config says that it is
 * text. */
static fr_status load_file(fr_conf *section, text_set *t, const char *key, const char *path,
                           const fr__data_options *k, int s)
{
    text_part *part = &t->part[s];
    fr__token_file *f = &t->files[s];
    size_t bytes;
    int width = width_of(k);
    if (!fr__file_exists(path))
        return fr_conf_fail(section, key, "no file %s; set %s to a text file", path, key);
    if (width || (!fr_conf_has(section, "tokens") && fr__token_file_is_known(path))) {
        FR_TRY(fr__token_file_open(t->base.ctx, path, width, FR_DATA_MAX_BYTES, f));
        *part = (text_part){f->tokens, f->n, f->width};
        t->base.bytes += f->block ? (size_t)(f->n * f->width) : 0;
        t->is_bytes = false;
        return FR_OK;
    }
    FR_TRY(fr__file_read(t->base.ctx, path, FR_DATA_MAX_BYTES, &t->blocks[s], &bytes));
    if (t->tokenizer) return encode_text(t, path, &t->blocks[s], bytes, part);
    *part = (text_part){t->blocks[s], (int64_t)bytes, 1};
    t->base.bytes += bytes;
    return FR_OK;
}

/* vocab 0: the largest id of both parts plus 1. */
static fr_status settle_vocab(text_set *t, const char *const paths[2], int64_t vocab)
{
    int64_t largest = 0;
    for (int s = 0; s < 2; s++) {
        /* in a shared file, the evaluation part follows the training part */
        int64_t first = paths[s] == paths[0] && s == 1 ? t->part[0].n : 0;
        for (int64_t i = 0; i < t->part[s].n; i++) {
            int32_t id = token_at(&t->part[s], i);
            if (id < 0 || id == INT32_MAX || (vocab && id >= vocab))
                return fr_fail(t->base.ctx, FR_INVALID,
                               "%s: token %lld is %lld, but vocab is %lld; raise vocab or check "
                               "that the file is little-endian uint%d",
                               paths[s], (long long)(first + i), (long long)(uint32_t)id,
                               (long long)(vocab ? vocab : INT32_MAX), 8 * t->part[s].width);
            if (id > largest) largest = id;
        }
    }
    t->base.info.vocab = t->base.info.n_classes = vocab ? vocab : largest + 1;
    return FR_OK;
}

static fr_status count_windows(text_set *t, const char *const paths[2])
{
    fr_data_info *info = &t->base.info;
    int64_t context = t->context, n = t->part[FR_TRAIN].n;
    if (n <= context)
        return fr_fail(t->base.ctx, FR_INVALID,
                       "%s: the training part has %lld tokens, context %lld needs at least %lld; "
                       "take a longer text or a shorter context",
                       paths[0], (long long)n, (long long)context, (long long)context + 1);
    /* one window less, so that all others can shift by up to a window */
    info->n_train = n < 2 * context ? 1 : n / context - 1;
    int64_t spare = n - 1 - info->n_train * context;
    t->max_shift = spare < context ? spare : context - 1;
    int64_t n_eval = t->part[FR_EVAL].n;
    info->n_eval = n_eval > 1 ? (n_eval - 1 + context - 1) / context : 0;
    info->input = info->target = FR_SHAPE(context);
    info->input_dtype = FR_I32;
    return FR_OK;
}

/* --- words --- */

/* The next word, separated by white space, or the end of a line. 0: no more. */
static size_t next_word(const char *text, size_t bytes, size_t *pos, const char **word)
{
    size_t at = *pos;
    while (at < bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r')) at++;
    size_t begin = at;
    while (at < bytes && !strchr(" \t\r\n", text[at])) at++;
    bool is_end = at == begin && at < bytes; /* at the end of a line, or a zero byte */
    *word = is_end ? special[LINE_END] : text + begin;
    *pos = at + is_end;
    return is_end ? strlen(special[LINE_END]) : at - begin;
}

static int64_t count_words(const unsigned char *block, size_t bytes)
{
    size_t pos = 0;
    int64_t n = 0;
    for (const char *word; next_word((const char *)block, bytes, &pos, &word);) n++;
    return n;
}

/* The vocabulary of the first n words of a block. */
static bool learn_words(text_set *t, const unsigned char *block, size_t bytes, int64_t n,
                        int64_t size)
{
    size_t pos = 0;
    const char *word;
    for (int64_t i = 0; i < n; i++) {
        size_t length = next_word((const char *)block, bytes, &pos, &word);
        if (fr__vocab_add(&t->words, word, length) < 0) return false;
    }
    int32_t *new_id = FR_NEW_ARRAY(int32_t, t->words.words.n + 1);
    bool done = new_id && fr__vocab_rank(&t->words, N_SPECIAL, special, UNKNOWN, size, new_id);
    fr__free(new_id);
    return done;
}

/* Convert a block of text to ids. */
static fr_status words_to_ids(text_set *t, unsigned char **block, text_part *part)
{
    size_t bytes = (size_t)part->n, pos = 0;
    int64_t n = count_words(*block, bytes);
    unsigned char *ids = fr__alloc((size_t)n * 2);
    const char *word;
    if (!ids) return fr__no_memory(t->base.ctx, (size_t)n * 2, "words");
    for (int64_t i = 0; i < n; i++) {
        size_t length = next_word((const char *)*block, bytes, &pos, &word);
        int32_t id = fr__vocab_find(&t->words, word, length);
        if (id < 0) id = UNKNOWN;
        ids[2 * i] = (unsigned char)(id & 255), ids[2 * i + 1] = (unsigned char)(id >> 8);
    }
    t->base.bytes = t->base.bytes - bytes + (size_t)n * 2;
    fr__free(*block);
    part->tokens = *block = ids;
    part->n = n, part->width = 2;
    return FR_OK;
}

static fr_status turn_words(text_set *t, double train_share, int64_t size)
{
    text_part *train = &t->part[FR_TRAIN];
    int64_t n = count_words(t->blocks[0], (size_t)train->n);
    if (!learn_words(t, t->blocks[0], (size_t)train->n, (int64_t)((double)n * train_share), size))
        return fr__no_memory(t->base.ctx, 0, "a vocabulary");
    t->is_bytes = false;
    FR_TRY(words_to_ids(t, &t->blocks[0], train));
    if (t->blocks[1]) FR_TRY(words_to_ids(t, &t->blocks[1], &t->part[FR_EVAL]));
    t->base.info.vocab = t->base.info.n_classes = (int64_t)t->words.words.n;
    fr__vocab_fini(&t->words);
    return FR_OK;
}

static fr_status read_keys(fr_conf *section, const fr_data_info *want, fr__data_options *k)
{
    *k = (fr__data_options){.context = want->input.n_dims > 0 ? want->input.dim[0] : 0};
    FR_TRY(fr__data_options_read(section, "text", k));
    /* For words, the vocabulary is limited to that of the model, if it has one. */
    if (strcmp(k->tokens, "words") == 0 && want->vocab <= MAX_VOCAB) k->vocab = want->vocab;
    FR_TRY(
        fr__key_read(section, fr__key_find(fr_data_keys(), "data.", "vocab", "text"), &k->vocab));
    if (strcmp(k->tokens, "words") == 0 && k->vocab &&
        (k->vocab <= N_SPECIAL || k->vocab > MAX_VOCAB))
        return fr_conf_fail(section, "vocab",
                            "vocab is %lld; words need at least %d and at most %d",
                            (long long)k->vocab, N_SPECIAL + 1, MAX_VOCAB);
    return FR_OK;
}

static fr_status load(text_set *t, fr_conf *section, const fr__data_options *k)
{
    text_part *train = &t->part[FR_TRAIN], *eval = &t->part[FR_EVAL];
    bool own_eval = k->eval_path[0] != '\0', by_words = strcmp(k->tokens, "words") == 0;
    int64_t vocab = k->vocab ? k->vocab : MAX_VOCAB;
    const char *const paths[2] = {k->path, own_eval ? k->eval_path : k->path};
    FR_TRY(load_file(section, t, "path", k->path, k, 0));
    if (own_eval) FR_TRY(load_file(section, t, "eval_path", k->eval_path, k, 1));
    if (own_eval && (train->width == 1) != (eval->width == 1))
        return fr_conf_fail(section, "eval_path", "%s and %s must both be text or both hold tokens",
                            k->path, k->eval_path);
    if (by_words) FR_TRY(turn_words(t, own_eval ? 1 : 1 - k->eval_fraction, vocab));
    if (!own_eval) {
        int64_t all = train->n;
        train->n = (int64_t)((double)all * (1 - k->eval_fraction));
        eval->n = all - train->n;
        eval->width = train->width;
        eval->tokens = train->tokens + train->n * train->width;
    }
    if (t->is_bytes && k->vocab && k->vocab != BYTE_VOCAB)
        return fr_conf_fail(section, "vocab", "bytes have a vocabulary of %d; omit vocab",
                            BYTE_VOCAB);
    FR_TRY(count_windows(t, paths));
    if (by_words) return FR_OK;
    t->base.info.vocab = t->base.info.n_classes = BYTE_VOCAB;
    if (t->is_bytes) return FR_OK;
    return settle_vocab(t, paths,
                        !k->vocab && t->tokenizer ? fr_tokenizer_vocab(t->tokenizer) : k->vocab);
}

static fr_status check_tokenizer(fr_conf *section, const text_set *t, const fr__data_options *k)
{
    if (!t->tokenizer) return FR_OK;
    int64_t vocab = fr_tokenizer_vocab(t->tokenizer);
    if (fr_conf_has(section, "tokens") && !width_of(k))
        return fr_conf_fail(section, "tokens",
                            "tokens: %s are not those of the tokenizer; omit tokens for a text, or "
                            "take uint16 or uint32 for a file of tokens",
                            k->tokens);
    if (k->vocab && k->vocab < vocab)
        return fr_conf_fail(section, "vocab", "vocab is %lld, but the tokenizer has %lld tokens",
                            (long long)k->vocab, (long long)vocab);
    return FR_OK;
}

static fr_status text_open(fr_ctx *ctx, fr_conf *section, const fr_data_info *want,
                           fr_dataset **out)
{
    fr__data_options k;
    FR_TRY(read_keys(section, want, &k));
    text_set *t = fr__dataset_new(ctx, sizeof *t, &ops);
    if (!t) return FR_NO_MEMORY;
    *out = &t->base;
    t->context = k.context;
    if (k.tokenizer[0]) FR_TRY(fr_tokenizer_open(ctx, k.tokenizer, &t->tokenizer));
    FR_TRY(check_tokenizer(section, t, &k));
    t->is_bytes = !t->tokenizer;
    for (int i = 0; i < BYTE_VOCAB; i++) t->byte[i] = (char)i;
    return load(t, section, &k);
}

const fr_data_source fr__data_text = {
    .name = "text",
    .summary =
        "one long text, next token from the ones before (bytes, words, a tokenizer's tokens)",
    .open = text_open};
