/* tokens.h -- text to tokens and back, by byte-level BPE (GPT-2, Llama 3, Qwen).
 *
 * A tokenizer does not change after open and may be shared by threads. An encoder belongs to one
 * thread; it holds text whose tokens depend on what follows, and a cache of words. */
#ifndef FORERUN_TOKENS_H
#define FORERUN_TOKENS_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_tokenizer fr_tokenizer;

/* A tokenizer.json, or a folder with one, or with vocab.json and merges.txt. */
FR_API FR_MUST_USE fr_status fr_tokenizer_open(fr_ctx *ctx, const char *path, fr_tokenizer **out);
FR_API void fr_tokenizer_free(fr_tokenizer *t); /* NULL allowed */
/* Ids are in 0 .. vocab - 1; some may be unused. */
FR_API int64_t fr_tokenizer_vocab(const fr_tokenizer *t);
/* The bytes of a token, which may be a part of a character; NULL: no such token. */
FR_API const char *fr_tokenizer_text(const fr_tokenizer *t, int32_t id, size_t *n);
/* The id of a token by its text, as <|endoftext|>; -1: none. */
FR_API int32_t fr_tokenizer_id(const fr_tokenizer *t, const char *text);

/* Text in pieces of any size; the tokens are those of the whole text. Bytes that are not UTF-8
 * become tokens too, and are the same bytes again when decoded. */
typedef struct fr_encoder fr_encoder;
FR_API FR_MUST_USE fr_status fr_encoder_create(const fr_tokenizer *t, fr_encoder **out);
FR_API void fr_encoder_free(fr_encoder *e); /* NULL allowed */
FR_API FR_MUST_USE fr_status fr_encoder_feed(fr_encoder *e, const char *text, size_t bytes);
/* The end of a text; the next one may be fed. */
FR_API FR_MUST_USE fr_status fr_encoder_end(fr_encoder *e);
/* Tokens since the last call, the encoder's until its next call. */
FR_API const int32_t *fr_encoder_take(fr_encoder *e, int64_t *n);

/* Text files to a file of tokens: little-endian numbers of 2 bytes, or of 4 if the vocabulary has
 * more than 65536 tokens. Files of tokens to text. The output appears when it is whole. */
typedef struct fr_tokenize_options {
    const char *const *inputs; /* (n_inputs), each may be compressed with gzip */
    int n_inputs;
    const char *output;
    const char *end; /* a token after each input, as <|endoftext|>; NULL: none */
    bool decode;
    volatile int *stop; /* optional: not 0 asks to end */
    /* optional: bytes read and written so far, of `total` bytes of input (0: not known) */
    void (*progress)(void *user, int64_t bytes, int64_t total, int64_t n_tokens);
    void *user;
} fr_tokenize_options;
typedef struct fr_tokenize_result {
    int64_t bytes, n_tokens; /* of text; all inputs together */
    int width;               /* bytes of a token in the file */
} fr_tokenize_result;
FR_API FR_MUST_USE fr_status fr_tokenize(const fr_tokenizer *t, const fr_tokenize_options *o,
                                         fr_tokenize_result *result);

#ifdef __cplusplus
}
#endif
#endif
