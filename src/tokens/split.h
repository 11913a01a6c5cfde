/* split.h -- cuts text into the words inside which tokens are merged. */
#ifndef FR_TOKENS_SPLIT_H
#define FR_TOKENS_SPLIT_H

#include "tokens/unicode.h"

/* What a scanner implements; the expressions are in split.c. */
typedef struct fr__split {
    bool is_gpt2;   /* else that of cl100k: Llama 3, Qwen */
    int max_digits; /* cl100k: numbers are cut after so many characters */
} fr__split;

/* The scanner of a regular expression; NULL: there is none. */
const fr__split *fr__split_find(const char *regex);
extern const fr__split fr__split_gpt2, fr__split_llama3, fr__split_qwen2;

/* Length of the word that begins at p < end. 0: more text may change it, if is_end is false. */
size_t fr__split_next(const fr__split *s, const unsigned char *classes, const unsigned char *p,
                      const unsigned char *end, bool is_end);

#endif
