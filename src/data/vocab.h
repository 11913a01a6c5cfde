/* vocab.h -- words with numbers and counts, and the splitting of text into words.
 *
 * Words are separated by white space. Each ASCII punctuation character is a word. Bytes from 0x80
 * on are letters, so UTF-8 and Latin-1 both work. One thread builds a vocabulary; afterwards any
 * thread may look words up. */
#ifndef FR_DATA_VOCAB_H
#define FR_DATA_VOCAB_H

#include "base/vec.h"

/* Find the next word of text[*pos .. bytes): sets *begin and returns the length; 0 at the end. */
size_t fr__word_next(const char *text, size_t bytes, size_t *pos, size_t *begin);

typedef struct fr__word {
    size_t begin; /* in chars, zero-terminated */
    uint32_t bytes, hash;
    uint64_t count;
} fr__word;

typedef struct fr__vocab { /* zero-initialised: empty */
    bool lower;            /* ASCII capitals count as small letters */
    FR_VEC(char) chars;
    FR_VEC(fr__word) words;
    uint32_t *slots; /* open addressing: number of a word + 1, or 0; n_slots is a power of two */
    size_t n_slots;
} fr__vocab;

/* Count a word, and add it if it is new. Returns its number, or -1 if memory is exhausted. */
int32_t fr__vocab_add(fr__vocab *v, const char *word, size_t bytes);
int32_t fr__vocab_find(const fr__vocab *v, const char *word, size_t bytes); /* -1: unknown */
const char *fr__vocab_text(const fr__vocab *v, int32_t number);
size_t fr__vocab_bytes(const fr__vocab *v); /* of memory */
void fr__vocab_fini(fr__vocab *v);

/* Finalise a vocabulary after counting: `n_special` special words first, then the most frequent
 * words, at most `size` in all. new_id (one per counted word): the new number, or `unknown` for
 * omitted words. False: no memory, nothing has changed. */
bool fr__vocab_rank(fr__vocab *v, int n_special, const char *const *special, int32_t unknown,
                    int64_t size, int32_t *new_id);

/* The numbers of all words in order. by_count: most frequent first, then by bytes. Otherwise by
 * value if all are decimal integers, else by bytes. NULL: no memory. Release with fr__free. */
int32_t *fr__vocab_order(const fr__vocab *v, bool by_count);

#endif
