/* tokenizer.h -- the parts of a byte-level BPE tokenizer.
 *
 * Files write the bytes of a token as printable characters (GPT-2's bytes_to_unicode). In memory
 * tokens are bytes. A token with a character outside that table never comes out of a word; it keeps
 * its bytes of UTF-8 and is marked as raw. */
#ifndef FR_TOKENS_TOKENIZER_H
#define FR_TOKENS_TOKENIZER_H

#include "tokens/split.h"
#include <forerun/tokens.h>
#include <jansson.h>

#define FR_NO_RANK UINT32_MAX

enum {
    FR_TOKENS_MAX_IDS = 1 << 22,   /* largest vocabulary */
    FR_TOKENS_MAX_WORD = 16 << 20, /* bytes of a word: they are in memory, with their links */
    FR_TOKENS_MAX_FILE = 1 << 30   /* bytes of a tokenizer.json */
};

typedef struct fr__token {
    size_t begin; /* in chars */
    uint32_t bytes;
    bool is_known, is_raw;
} fr__token;

typedef struct fr__merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: an empty slot */
    uint32_t rank;
    int32_t id;
} fr__merge;

/* The vocabulary: tokens by id and by their bytes, and the merges. */
typedef struct fr__bpe {
    fr__bytes chars;
    FR_VEC(fr__token) tokens; /* by id */
    uint32_t *slots;          /* id + 1, or 0; open addressing */
    size_t n_slots, n_tokens;
    fr__merge *merges;
    size_t n_merge_slots;
    int merge_shift; /* 64 - log2(n_merge_slots) */
    int32_t byte_id[256];
    bool ignore_merges; /* a word that is a token is that token */
} fr__bpe;

/* Add a token in the characters of a file. FR_INVALID without a text: *why says what is wrong. */
fr_status fr__bpe_add(fr__bpe *b, const char *text, size_t bytes, int64_t id, const char **why);
/* A token of raw text. */
fr_status fr__bpe_add_raw(fr__bpe *b, const char *text, size_t bytes, int64_t id, const char **why);
/* The id of a token in the characters of a file; -1: none. */
int32_t fr__bpe_find(const fr__bpe *b, const char *text, size_t bytes);
/* The id of a token that a word may consist of; -1: none. */
int32_t fr__bpe_find_bytes(const fr__bpe *b, const unsigned char *p, size_t n);
/* Room for n merges; false: no memory. Then each; of equal ones the last counts. */
bool fr__bpe_start_merges(fr__bpe *b, size_t n);
fr_status fr__bpe_merge(fr__bpe *b, const char *left, size_t n_left, const char *right,
                        size_t n_right, uint32_t rank, const char **why);
/* After the last one: every byte must have a token. Returns the first byte that has none, or -1. */
int fr__bpe_finish(fr__bpe *b);
void fr__bpe_fini(fr__bpe *b);

/* The slot of a pair, or the empty one for it. */
static inline fr__merge *fr__bpe_merge_slot(const fr__bpe *b, uint64_t pair)
{
    size_t slot = (size_t)((pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> b->merge_shift);
    while (b->merges[slot].pair != pair && b->merges[slot].pair != UINT64_MAX)
        slot = (slot + 1) & (b->n_merge_slots - 1);
    return &b->merges[slot];
}

/* Memory to merge words in, of one thread. */
typedef FR_VEC(int32_t) fr__ids;
typedef struct fr__link {
    int32_t id, previous, next;
    uint32_t rank; /* of the merge with the next one; FR_NO_RANK: none */
} fr__link;
typedef struct fr__merger {
    const fr__bpe *bpe;
    struct fr__cached *cache; /* words that were merged before */
    FR_VEC(fr__link) links;   /* of a long word */
    FR_VEC(uint64_t) heap;    /* rank << 32 | place */
} fr__merger;
bool fr__merger_init(fr__merger *m, const fr__bpe *b);
void fr__merger_fini(fr__merger *m);
/* Append the tokens of a word. False: no memory. */
bool fr__merge_word(fr__merger *m, const unsigned char *word, size_t n, fr__ids *out);

/* Tokens that are found in the text before it is split. */
typedef struct fr__added {
    FR_VEC(int32_t) node_id; /* of each node of a trie: the token that ends there, or -1 */
    uint64_t *edges;         /* open addressing: node << 8 | byte, + 1; 0: empty */
    uint32_t *edge_to;
    size_t n_edge_slots, n_edges;
    bool first[256]; /* bytes that begin a token */
    int n_first;
} fr__added;
/* False: no memory. */
bool fr__added_put(fr__added *a, const unsigned char *text, size_t n, int32_t id);
/* The first token of the text, of those the longest: its place, its length in *n, its id in *id. If
 * there is none, the end of the text with *n = 0; unless is_end, the place where one may begin. */
size_t fr__added_find(const fr__added *a, const unsigned char *text, size_t bytes, bool is_end,
                      size_t *n, int32_t *id);
void fr__added_fini(fr__added *a);

struct fr_tokenizer {
    fr_ctx *ctx;
    fr__bpe bpe;
    const fr__split *split;
    bool prefix_space;  /* before a text that does not begin with a blank */
    bool is_nfc;        /* text is brought to that form */
    fr__added added[2]; /* as given, found first; in normal form, found in normal text */
    unsigned char *classes, *marks; /* of characters; marks: NULL unless is_nfc */
};

/* For tests: look at the text in blocks of so many bytes, before the first one is fed. */
void fr__encoder_set_block(fr_encoder *e, size_t bytes);

/* A tokenizer.json in memory. */
fr_status fr__tokenizer_parse(fr_ctx *ctx, const char *name, const char *text, size_t bytes,
                              fr_tokenizer **out);
/* vocab.json and merges.txt, and tokenizer_config.json (NULL: none), in memory. */
typedef struct fr__text_file {
    const char *name, *text;
    size_t bytes;
} fr__text_file;
fr_status fr__tokenizer_parse_files(fr_ctx *ctx, const fr__text_file *vocab,
                                    const fr__text_file *merges, const fr__text_file *config,
                                    fr_tokenizer **out);

/* Shared by the two readers (load.c). `at` names the file and the place in it. */
fr_tokenizer *fr__tokenizer_new(fr_ctx *ctx); /* NULL: no memory, reported */
fr_status fr__load_token_error(fr_tokenizer *t, fr_status status, const char *at, const char *token,
                               const char *why);
fr_status fr__load_json(fr_ctx *ctx, const fr__text_file *f, json_t **out);
fr_status fr__load_vocab(fr_tokenizer *t, const char *at, const json_t *vocab);
/* An added token: {"content": TEXT, "special": ..., "lstrip": ...}. */
fr_status fr__load_added(fr_tokenizer *t, const char *at, int64_t id, const json_t *token);
fr_status fr__load_finish(fr_tokenizer *t, const char *name);

#endif
