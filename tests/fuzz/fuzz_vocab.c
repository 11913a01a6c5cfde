/* fuzz_vocab.c -- any bytes as text: split into words, counted, ranked and found again. */
#include "data/vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    fr__vocab v = {.lower = bytes & 1};
    size_t pos = 0, begin, n, end = 0;
    uint64_t n_words = 0, n_counted = 0;
    while ((n = fr__word_next(text, bytes, &pos, &begin))) {
        must(begin >= end && begin + n == pos && pos <= bytes);
        end = pos;
        int32_t number = fr__vocab_add(&v, text + begin, n);
        must(number >= 0 && fr__vocab_find(&v, text + begin, n) == number);
        n_words++;
    }
    must(pos == bytes && v.words.n <= bytes);
    for (int by_count = 0; by_count < 2; by_count++) {
        int32_t *order = fr__vocab_order(&v, by_count);
        unsigned char *seen = calloc(v.words.n + 1, 1);
        must(order && seen);
        for (size_t i = 0; i < v.words.n; i++) must(!seen[order[i]]++);
        free(seen);
        fr__free(order);
    }
    for (size_t i = 0; i < v.words.n; i++) {
        const fr__word *w = &v.words.at[i];
        must(strlen(fr__vocab_text(&v, (int32_t)i)) == w->bytes);
        n_counted += w->count;
    }
    must(n_counted == n_words);
    fr__vocab_fini(&v);
    return 0;
}
