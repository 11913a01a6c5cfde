/* vocab.h -- words with numbers and counts, and the splitting of text into words.
 *
 * Words are separated by white space; an ASCII punctuation character is a word of its own; bytes
 * from 0x80 on are letters, so that UTF-8 and Latin-1 both pass. One thread builds a vocabulary;
 * after that any thread may look words up. */
#ifndef FR_DATA_VOCAB_H
#define FR_DATA_VOCAB_H

#include "base/vec.h"

/* The next word of text[*pos .. bytes): its place in *begin, its length as the result, 0 at the
 * end. */
size_t fr__word_next(const char *text, size_t bytes, size_t *pos, size_t *begin);

typedef struct fr_word {
    size_t begin; /* in chars, ended by a zero */
    uint32_t bytes, hash;
    uint64_t count;
} fr_word;

typedef struct fr_vocab { /* zero is an empty vocabulary */
    bool lower;           /* ASCII capitals count as small letters */
    FR_VEC(char) chars;
    FR_VEC(fr_word) words;
    uint32_t *slots; /* open addressing: number of a word + 1, or 0; n_slots is a power of two */
    size_t n_slots;
} fr_vocab;

/* Count a word, adding it if it is new. Its number, or -1 when memory is exhausted. */
int32_t fr__vocab_add(fr_vocab *v, const char *word, size_t bytes);
int32_t fr__vocab_find(const fr_vocab *v, const char *word, size_t bytes); /* -1: unknown */
const char *fr__vocab_text(const fr_vocab *v, int32_t number);
size_t fr__vocab_bytes(const fr_vocab *v); /* of memory */
void fr__vocab_fini(fr_vocab *v);

/* Turn a vocabulary as counted into one to work with: `n_special` words of its own first, then the
 * most frequent ones, `size` in all at most. new_id (one for each word as counted): what it is now,
 * `unknown` where it was left out. False: no memory, nothing has changed. */
bool fr__vocab_rank(fr_vocab *v, int n_special, const char *const *special, int32_t unknown,
                    int64_t size, int32_t *new_id);

/* The numbers of all words: most frequent first, then in order of their bytes (by_count), or by
 * value if all are decimal integers, else in order of their bytes. NULL: no memory. The caller
 * releases it with fr__free. */
int32_t *fr__vocab_order(const fr_vocab *v, bool by_count);

#endif
