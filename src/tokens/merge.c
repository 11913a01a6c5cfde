/* merge.c -- the tokens of a word: of all neighbours that have a merge, the pair of the lowest rank
 * becomes one token, the leftmost first, until no pair has one.
 *
 * Short words are arrays, searched for the lowest rank after each merge. Long ones are linked lists
 * with a heap of pairs, so the time for n bytes is at most n log n. Both have the same order. Words
 * that were met before come from a cache, which is the reason for the speed on ordinary text. */
#include "tokens/tokenizer.h"

#include <string.h>

enum {
    N_CACHED = 1 << 16, /* words */
    KEY_BYTES = 30,     /* longest word, and most tokens, of the cache: 64 bytes in all */
    KEY_TOKENS = 8,
    SHORT_WORD = 40 /* bytes */
};

struct fr__cached {
    uint8_t n_bytes, n_ids; /* n_bytes 0: empty */
    unsigned char key[KEY_BYTES];
    int32_t ids[KEY_TOKENS];
};

bool fr__merger_init(fr__merger *m, const fr__bpe *b)
{
    *m = (fr__merger){.bpe = b, .cache = FR_NEW_ARRAY(struct fr__cached, N_CACHED)};
    return m->cache != NULL;
}

void fr__merger_fini(fr__merger *m)
{
    fr__free(m->cache);
    fr__vec_fini(&m->links);
    fr__vec_fini(&m->heap);
}

static uint32_t rank_of(const fr__bpe *b, int32_t left, int32_t right)
{
    const fr__merge *m = fr__bpe_merge_slot(b, (uint64_t)left << 32 | (uint32_t)right);
    return m->pair == UINT64_MAX ? FR_NO_RANK : m->rank;
}

static int32_t merged(const fr__bpe *b, int32_t left, int32_t right)
{
    return fr__bpe_merge_slot(b, (uint64_t)left << 32 | (uint32_t)right)->id;
}

/* n <= SHORT_WORD; returns the number of tokens. */
static size_t merge_short(const fr__bpe *b, const unsigned char *word, size_t n,
                          int32_t ids[SHORT_WORD])
{
    uint32_t rank[SHORT_WORD]; /* of i and i + 1 */
    for (size_t i = 0; i < n; i++) ids[i] = b->byte_id[word[i]];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, ids[i], ids[i + 1]);
    rank[n - 1] = FR_NO_RANK;
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == FR_NO_RANK) break;
        ids[best] = merged(b, ids[best], ids[best + 1]);
        n--;
        for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1], rank[i] = rank[i + 1];
        if (best > 0) rank[best - 1] = rank_of(b, ids[best - 1], ids[best]);
        if (best + 1 < n) rank[best] = rank_of(b, ids[best], ids[best + 1]);
    }
    return n;
}

/* --- long words --- */

static void sink(uint64_t *heap, size_t n, size_t at)
{
    uint64_t item = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (item <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

static void push(fr__merger *m, uint32_t rank, int32_t place)
{
    size_t at = m->heap.n++; /* there is room */
    uint64_t item = (uint64_t)rank << 32 | (uint32_t)place, *heap = m->heap.at;
    for (; at > 0 && item < heap[(at - 1) / 2]; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

static void rank_link(fr__merger *m, int32_t place)
{
    fr__link *link = &m->links.at[place];
    link->rank = FR_NO_RANK;
    if (link->next < 0) return;
    link->rank = rank_of(m->bpe, link->id, m->links.at[link->next].id);
    if (link->rank != FR_NO_RANK) push(m, link->rank, place);
}

/* An entry of the heap is out of date if its place has another rank by now. */
static void merge_links(fr__merger *m)
{
    fr__link *links = m->links.at;
    while (m->heap.n > 0) {
        uint64_t top = m->heap.at[0];
        m->heap.at[0] = m->heap.at[--m->heap.n];
        if (m->heap.n > 0) sink(m->heap.at, m->heap.n, 0);
        fr__link *link = &links[(uint32_t)top];
        if (link->rank != top >> 32) continue;
        fr__link *next = &links[link->next];
        link->id = merged(m->bpe, link->id, next->id);
        link->next = next->next;
        next->rank = FR_NO_RANK;
        if (link->next >= 0) links[link->next].previous = (int32_t)(link - links);
        if (link->previous >= 0) rank_link(m, link->previous);
        rank_link(m, (int32_t)(link - links));
    }
}

static bool merge_long(fr__merger *m, const unsigned char *word, size_t n, fr__ids *out)
{
    /* a pair for each two bytes, and two new ones for each merge */
    if (m->links.room < n && !fr__vec_fit(&m->links, n)) return false;
    if (m->heap.room < 3 * n && !fr__vec_fit(&m->heap, 3 * n)) return false;
    m->heap.n = 0;
    for (size_t i = 0; i < n; i++)
        m->links.at[i] = (fr__link){.id = m->bpe->byte_id[word[i]],
                                    .previous = (int32_t)i - 1,
                                    .next = i + 1 < n ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < n; i++) rank_link(m, (int32_t)i);
    merge_links(m);
    for (int32_t i = 0; i >= 0; i = m->links.at[i].next)
        if (!fr__vec_push(out, m->links.at[i].id)) return false;
    return true;
}

/* --- the cache --- */

static size_t slot_of(const unsigned char *word, size_t n)
{
    uint64_t h = n * 0x9E3779B97F4A7C15u;
    for (size_t part; n > 0; word += part, n -= part) {
        uint64_t bits = 0;
        part = n < 8 ? n : 8;
        memcpy(&bits, word, part);
        h = (h ^ bits) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return (size_t)h & (N_CACHED - 1);
}

static bool put_ids(fr__ids *out, const int32_t *ids, size_t n)
{
    if (out->room - out->n < n && !fr__vec_fit(out, 2 * out->room + n)) return false;
    memcpy(out->at + out->n, ids, n * sizeof *ids);
    out->n += n;
    return true;
}

bool fr__merge_word(fr__merger *m, const unsigned char *word, size_t n, fr__ids *out)
{
    struct fr__cached *c = NULL;
    if (n == 0) return true;
    if (n <= KEY_BYTES) {
        c = &m->cache[slot_of(word, n)];
        if (c->n_bytes == n && memcmp(c->key, word, n) == 0) return put_ids(out, c->ids, c->n_ids);
    }
    int32_t ids[SHORT_WORD];
    size_t n_ids = 1;
    if (m->bpe->ignore_merges && (ids[0] = fr__bpe_find_bytes(m->bpe, word, n)) >= 0)
        return put_ids(out, ids, 1);
    if (n > SHORT_WORD) return merge_long(m, word, n, out);
    n_ids = merge_short(m->bpe, word, n, ids);
    if (c && n_ids <= KEY_TOKENS) {
        c->n_bytes = (uint8_t)n, c->n_ids = (uint8_t)n_ids;
        memcpy(c->key, word, n);
        memcpy(c->ids, ids, n_ids * sizeof *ids);
    }
    return put_ids(out, ids, n_ids);
}
