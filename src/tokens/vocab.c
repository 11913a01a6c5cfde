/* vocab.c -- the tokens and merges of a BPE vocabulary, in hash tables. */
#include "tokens/tokenizer.h"

#include <string.h>

/* GPT-2 writes printable bytes as the characters of Latin-1, the others as U+0100, U+0101, ... */
static bool is_printable(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static int byte_of(int32_t c)
{
    if (c >= 0 && c < 256) return is_printable(c) ? c : -1;
    int32_t next = 256;
    for (int byte = 0; byte < 256 && next <= c; byte++)
        if (!is_printable(byte) && next++ == c) return byte;
    return -1;
}

/* The bytes of a token of a file, appended to chars. False: some character is no byte. */
static bool put_bytes(fr__bytes *out, const unsigned char *p, size_t n, bool *failed)
{
    const unsigned char *end = p + n;
    int length;
    for (; p < end; p += length) {
        int32_t c = fr__char_at(p, end, &length);
        int byte = byte_of(c);
        if (byte < 0) return false;
        if (!fr__vec_push(out, (unsigned char)byte)) {
            *failed = true;
            return false;
        }
    }
    return true;
}

static uint64_t hash_of(const unsigned char *p, size_t n, bool is_raw)
{
    uint64_t h = 0xcbf29ce484222325u + is_raw;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* The slot of a token, or the empty one for it. */
static size_t slot_of(const fr__bpe *b, const unsigned char *p, size_t n, bool is_raw)
{
    size_t slot = hash_of(p, n, is_raw) & (b->n_slots - 1);
    for (; b->slots[slot]; slot = (slot + 1) & (b->n_slots - 1)) {
        const fr__token *t = &b->tokens.at[b->slots[slot] - 1];
        if (t->bytes == n && t->is_raw == is_raw && memcmp(b->chars.at + t->begin, p, n) == 0)
            break;
    }
    return slot;
}

static bool grow_slots(fr__bpe *b)
{
    size_t n = b->n_slots ? 2 * b->n_slots : 1024;
    uint32_t *old = b->slots, *slots = FR_NEW_ARRAY(uint32_t, n);
    if (!slots) return false;
    size_t n_old = b->n_slots;
    b->slots = slots;
    b->n_slots = n;
    for (size_t i = 0; i < n_old; i++) {
        if (!old[i]) continue;
        const fr__token *t = &b->tokens.at[old[i] - 1];
        slots[slot_of(b, b->chars.at + t->begin, t->bytes, t->is_raw)] = old[i];
    }
    fr__free(old);
    return true;
}

static bool reach(fr__bpe *b, int64_t id)
{
    size_t need = (size_t)id + 1;
    if (need > b->tokens.room) {
        size_t room = need > 2 * b->tokens.room ? need : 2 * b->tokens.room;
        if (!fr__vec_fit(&b->tokens, room)) return false; /* the new part is zero */
    }
    if (need > b->tokens.n) b->tokens.n = need;
    return true;
}

static fr_status invalid(const char **why, const char *text)
{
    *why = text;
    return FR_INVALID;
}

/* The token whose bytes were appended to chars at `begin`. */
static fr_status add(fr__bpe *b, size_t begin, bool is_raw, int64_t id, const char **why)
{
    if (id < 0 || id >= FR_TOKENS_MAX_IDS) return invalid(why, "has an id outside 0 ... 4194303");
    if ((2 * (b->n_tokens + 1) > b->n_slots && !grow_slots(b)) || !reach(b, id))
        return FR_NO_MEMORY;
    size_t n = b->chars.n - begin;
    size_t slot = slot_of(b, b->chars.at + begin, n, is_raw);
    if (b->slots[slot]) {
        if ((int64_t)b->slots[slot] - 1 != id) return invalid(why, "has two ids");
        b->chars.n = begin;
        return FR_OK;
    }
    fr__token *t = &b->tokens.at[id];
    if (t->is_known) return invalid(why, "has the id of another token");
    *t = (fr__token){.begin = begin, .bytes = (uint32_t)n, .is_known = true, .is_raw = is_raw};
    b->slots[slot] = (uint32_t)id + 1;
    b->n_tokens++;
    return FR_OK;
}

fr_status fr__bpe_add_raw(fr__bpe *b, const char *text, size_t bytes, int64_t id, const char **why)
{
    size_t begin = b->chars.n;
    if (bytes == 0) return invalid(why, "is empty");
    if (!fr__bytes_put(&b->chars, (const unsigned char *)text, bytes)) return FR_NO_MEMORY;
    return add(b, begin, true, id, why);
}

fr_status fr__bpe_add(fr__bpe *b, const char *text, size_t bytes, int64_t id, const char **why)
{
    size_t begin = b->chars.n;
    bool failed = false;
    if (bytes == 0) return invalid(why, "is empty");
    if (put_bytes(&b->chars, (const unsigned char *)text, bytes, &failed))
        return add(b, begin, false, id, why);
    b->chars.n = begin;
    return failed ? FR_NO_MEMORY : fr__bpe_add_raw(b, text, bytes, id, why);
}

static int32_t find(const fr__bpe *b, const unsigned char *p, size_t n, bool is_raw)
{
    return b->n_slots ? (int32_t)b->slots[slot_of(b, p, n, is_raw)] - 1 : -1;
}

enum { NO_MEMORY = -2 };

static int32_t find_text(const fr__bpe *b, fr__bytes *scratch, const char *text, size_t n)
{
    bool failed = false;
    scratch->n = 0;
    if (put_bytes(scratch, (const unsigned char *)text, n, &failed))
        return n ? find(b, scratch->at, scratch->n, false) : -1;
    return failed ? NO_MEMORY : find(b, (const unsigned char *)text, n, true);
}

int32_t fr__bpe_find(const fr__bpe *b, const char *text, size_t n)
{
    fr__bytes scratch = {0};
    int32_t id = find_text(b, &scratch, text, n);
    fr__vec_fini(&scratch);
    return id;
}

int32_t fr__bpe_find_bytes(const fr__bpe *b, const unsigned char *p, size_t n)
{
    return find(b, p, n, false);
}

/* --- merges --- */

bool fr__bpe_start_merges(fr__bpe *b, size_t n)
{
    size_t n_slots = 16;
    while (n_slots < 2 * n) n_slots *= 2;
    b->merges = fr__alloc_raw(fr__array_bytes(n_slots, sizeof *b->merges));
    if (!b->merges) return false;
    b->n_merge_slots = n_slots;
    for (b->merge_shift = 64; n_slots >> (64 - b->merge_shift) > 1;) b->merge_shift--;
    for (size_t i = 0; i < n_slots; i++) b->merges[i].pair = UINT64_MAX;
    return true;
}

/* The token that two make. */
static int32_t find_whole(const fr__bpe *b, fr__bytes *scratch, const fr__token *x,
                          const fr__token *y)
{
    scratch->n = 0;
    if (!fr__bytes_put(scratch, b->chars.at + x->begin, x->bytes) ||
        !fr__bytes_put(scratch, b->chars.at + y->begin, y->bytes))
        return NO_MEMORY;
    return find(b, scratch->at, scratch->n, false);
}

fr_status fr__bpe_merge(fr__bpe *b, const char *left, size_t n_left, const char *right,
                        size_t n_right, uint32_t rank, const char **why)
{
    fr__bytes scratch = {0};
    int32_t a = find_text(b, &scratch, left, n_left), c = -1, whole = -1;
    if (a >= 0) c = find_text(b, &scratch, right, n_right);
    if (a >= 0 && c >= 0) whole = find_whole(b, &scratch, &b->tokens.at[a], &b->tokens.at[c]);
    fr__vec_fini(&scratch);
    if (a == NO_MEMORY || c == NO_MEMORY || whole == NO_MEMORY) return FR_NO_MEMORY;
    if (a < 0 || c < 0) return invalid(why, "names a token that is not in the vocabulary");
    if (b->tokens.at[a].is_raw || b->tokens.at[c].is_raw) return FR_OK; /* never met in a word */
    if (whole < 0) return invalid(why, "makes a token that is not in the vocabulary");
    uint64_t pair = (uint64_t)a << 32 | (uint32_t)c;
    *fr__bpe_merge_slot(b, pair) = (fr__merge){.pair = pair, .rank = rank, .id = whole};
    return FR_OK;
}

int fr__bpe_finish(fr__bpe *b)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        b->byte_id[i] = find(b, &byte, 1, false);
        if (b->byte_id[i] < 0) return i;
    }
    return -1;
}

void fr__bpe_fini(fr__bpe *b)
{
    fr__vec_fini(&b->chars);
    fr__vec_fini(&b->tokens);
    fr__free(b->slots);
    fr__free(b->merges);
}
