/* vocab.c -- a hash table of words (open addressing, FNV-1a), and their order. */
#include "data/vocab.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }

static bool is_punctuation(unsigned char c)
{
    return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
           (c > 'z' && c < 0x7f);
}

size_t fr__word_next(const char *text, size_t bytes, size_t *pos, size_t *begin)
{
    size_t at = *pos;
    while (at < bytes && is_blank((unsigned char)text[at])) at++;
    *begin = at;
    if (at < bytes && is_punctuation((unsigned char)text[at]))
        at++;
    else
        while (at < bytes && !is_blank((unsigned char)text[at]) &&
               !is_punctuation((unsigned char)text[at]))
            at++;
    *pos = at;
    return at - *begin;
}

static char fold(const fr__vocab *v, char c)
{
    return v->lower && c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static uint32_t hash_of(const fr__vocab *v, const char *word, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)fold(v, word[i])) * 0x100000001b3u;
    return (uint32_t)(h ^ h >> 32);
}

static bool is_same(const fr__vocab *v, const fr__word *w, const char *word, size_t bytes)
{
    if (w->bytes != bytes) return false;
    const char *have = v->chars.at + w->begin;
    for (size_t i = 0; i < bytes; i++)
        if (have[i] != fold(v, word[i])) return false;
    return true;
}

/* The slot of the word, or the empty slot for it. Requires an empty slot. */
static size_t slot_of(const fr__vocab *v, const char *word, size_t bytes, uint32_t hash)
{
    size_t slot = hash & (v->n_slots - 1);
    while (v->slots[slot]) {
        const fr__word *w = &v->words.at[v->slots[slot] - 1];
        if (w->hash == hash && is_same(v, w, word, bytes)) break;
        slot = (slot + 1) & (v->n_slots - 1);
    }
    return slot;
}

static bool grow_slots(fr__vocab *v)
{
    size_t n = v->n_slots ? 2 * v->n_slots : 1024;
    uint32_t *slots = FR_NEW_ARRAY(uint32_t, n);
    if (!slots) return false;
    for (size_t i = 0; i < v->words.n; i++) {
        size_t slot = v->words.at[i].hash & (n - 1);
        while (slots[slot]) slot = (slot + 1) & (n - 1);
        slots[slot] = (uint32_t)i + 1;
    }
    fr__free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    return true;
}

int32_t fr__vocab_add(fr__vocab *v, const char *word, size_t bytes)
{
    if (bytes >= UINT32_MAX || v->words.n >= INT32_MAX) return -1;
    if (2 * (v->words.n + 1) > v->n_slots && !grow_slots(v)) return -1;
    uint32_t hash = hash_of(v, word, bytes);
    size_t slot = slot_of(v, word, bytes, hash);
    if (!v->slots[slot]) {
        fr__word w = {.begin = v->chars.n, .bytes = (uint32_t)bytes, .hash = hash};
        for (size_t i = 0; i < bytes; i++)
            if (!fr__vec_push(&v->chars, fold(v, word[i]))) return -1;
        if (!fr__vec_push(&v->chars, '\0') || !fr__vec_push(&v->words, w)) return -1;
        v->slots[slot] = (uint32_t)v->words.n;
    }
    uint32_t number = v->slots[slot] - 1;
    v->words.at[number].count++;
    return (int32_t)number;
}

int32_t fr__vocab_find(const fr__vocab *v, const char *word, size_t bytes)
{
    if (!v->n_slots) return -1;
    return (int32_t)v->slots[slot_of(v, word, bytes, hash_of(v, word, bytes))] - 1;
}

const char *fr__vocab_text(const fr__vocab *v, int32_t number)
{
    return v->chars.at + v->words.at[number].begin;
}

size_t fr__vocab_bytes(const fr__vocab *v)
{
    return v->chars.room + v->words.room * sizeof(fr__word) + v->n_slots * sizeof *v->slots;
}

void fr__vocab_fini(fr__vocab *v)
{
    fr__vec_fini(&v->chars);
    fr__vec_fini(&v->words);
    fr__free(v->slots);
    v->slots = NULL;
    v->n_slots = 0;
}

/* Sort keys of a word, and its number. */
typedef struct sort_item {
    const char *text;
    size_t bytes;
    uint64_t count;
    int32_t number;
} sort_item;

static int by_bytes(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_count_then_bytes(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : by_bytes(a, b);
}

static int by_value(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    long long p = strtoll(x->text, NULL, 10), q = strtoll(y->text, NULL, 10);
    return p != q ? (p > q) - (p < q) : by_bytes(a, b);
}

static bool is_integer(const char *text, size_t bytes)
{
    size_t sign = text[0] == '-' || text[0] == '+';
    return bytes > sign && bytes < 19 && strspn(text + sign, "0123456789") == bytes - sign;
}

int32_t *fr__vocab_order(const fr__vocab *v, bool by_count)
{
    size_t n = v->words.n;
    sort_item *items = FR_NEW_ARRAY(sort_item, n);
    int32_t *order = FR_NEW_ARRAY(int32_t, n);
    if (!items || !order) {
        fr__free(items);
        fr__free(order);
        return NULL;
    }
    bool all_integers = true;
    for (size_t i = 0; i < n; i++) {
        const fr__word *w = &v->words.at[i];
        items[i] = (sort_item){v->chars.at + w->begin, w->bytes, w->count, (int32_t)i};
        all_integers = all_integers && is_integer(items[i].text, w->bytes);
    }
    if (n)
        qsort(items, n, sizeof *items,
              by_count ? by_count_then_bytes : (all_integers ? by_value : by_bytes));
    for (size_t i = 0; i < n; i++) order[i] = items[i].number;
    fr__free(items);
    return order;
}

bool fr__vocab_rank(fr__vocab *v, int n_special, const char *const *special, int32_t unknown,
                    int64_t size, int32_t *new_id)
{
    fr__vocab ranked = {.lower = v->lower};
    int32_t *order = fr__vocab_order(v, true);
    bool done = order != NULL;
    for (int i = 0; done && i < n_special; i++)
        done = fr__vocab_add(&ranked, special[i], strlen(special[i])) == i;
    for (size_t i = 0; done && i < v->words.n; i++) {
        int32_t from = order[i];
        new_id[from] = unknown;
        if ((int64_t)i + n_special >= size) continue;
        new_id[from] = fr__vocab_add(&ranked, fr__vocab_text(v, from), v->words.at[from].bytes);
        done = new_id[from] >= 0;
    }
    fr__free(order);
    fr__vocab_fini(done ? v : &ranked);
    if (done) *v = ranked;
    return done;
}
