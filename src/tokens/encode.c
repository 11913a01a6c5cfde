/* encode.c -- text to tokens, in pieces of any size.
 *
 * Text passes two buffers. In `raw` the tokens are found that are given as they are. What is
 * between them is brought to normal form and goes to `plain`, where the other added tokens are
 * found and the rest is split into words. What depends on text that has not come yet stays in its
 * buffer. A buffer is looked at again when it has doubled, so that even a word that fills many
 * pieces takes time in proportion to its length. */
#include "tokens/tokenizer.h"

#include <string.h>

enum { BLOCK = 1 << 16 }; /* bytes */

struct fr_encoder {
    const fr_tokenizer *t;
    fr__merger merger;
    fr__nfc nfc;
    fr__bytes raw, plain;
    size_t block;  /* bytes that are looked at together */
    size_t wait;   /* bytes in both buffers, from which on they are looked at */
    bool is_begun; /* the text between two added tokens is no longer at its start */
    fr__ids ids;
};

fr_status fr_encoder_create(const fr_tokenizer *t, fr_encoder **out)
{
    fr_encoder *e = *out = FR_NEW(fr_encoder);
    if (!e) return fr__no_memory(t->ctx, sizeof *e, "encoder");
    e->t = t;
    e->nfc.marks = t->marks;
    e->block = e->wait = BLOCK;
    if (fr__merger_init(&e->merger, &t->bpe)) return FR_OK;
    fr_encoder_free(e);
    *out = NULL;
    return fr__no_memory(t->ctx, 0, "encoder");
}

void fr__encoder_set_block(fr_encoder *e, size_t bytes) { e->block = e->wait = bytes; }

void fr_encoder_free(fr_encoder *e)
{
    if (!e) return;
    fr__merger_fini(&e->merger);
    fr__nfc_fini(&e->nfc);
    fr__vec_fini(&e->raw);
    fr__vec_fini(&e->plain);
    fr__vec_fini(&e->ids);
    fr__free(e);
}

const int32_t *fr_encoder_take(fr_encoder *e, int64_t *n)
{
    *n = (int64_t)e->ids.n;
    e->ids.n = 0;
    return e->ids.at;
}

/* Remove the first n bytes. */
static void drop(fr__bytes *b, size_t n)
{
    if (n == 0) return;
    memmove(b->at, b->at + n, b->n - n);
    b->n -= n;
}

/* Put the blank of add_prefix_space at `at`, if the text there is the start of one. */
static bool put_blank(fr_encoder *e, size_t at, size_t *n)
{
    if (e->is_begun || *n == 0) return true;
    e->is_begun = true;
    if (!e->t->prefix_space || e->plain.at[at] == ' ') return true;
    if (!fr__vec_push(&e->plain, ' ')) return false;
    memmove(e->plain.at + at + 1, e->plain.at + at, e->plain.n - 1 - at);
    e->plain.at[at] = ' ';
    ++*n;
    return true;
}

/* The tokens of n bytes of plain text; returns the bytes that were used in *used. */
static bool put_words(fr_encoder *e, size_t at, size_t n, bool is_end, size_t *used)
{
    const fr_tokenizer *t = e->t;
    const unsigned char *begin = e->plain.at + at, *p = begin, *end = begin + n;
    for (size_t length; p < end; p += length) {
        length = fr__split_next(t->split, t->classes, p, end, is_end);
        if (length == 0) break;
        if (!fr__merge_word(&e->merger, p, length, &e->ids)) return false;
    }
    *used = (size_t)(p - begin);
    return true;
}

static bool split_plain(fr_encoder *e, bool is_end)
{
    size_t at = 0;
    while (at < e->plain.n) {
        size_t n_token, used = 0;
        int32_t id = -1;
        size_t n = fr__added_find(&e->t->added[1], e->plain.at + at, e->plain.n - at, is_end,
                                  &n_token, &id);
        if (!put_blank(e, at, &n) || !put_words(e, at, n, is_end || n_token, &used)) return false;
        at += used;
        if (n_token == 0) break;
        at += n_token;
        e->is_begun = false;
        if (!fr__vec_push(&e->ids, id)) return false;
    }
    drop(&e->plain, at);
    if (is_end) e->is_begun = false;
    return true;
}

/* Text between two tokens that are given as they are. */
static bool put_text(fr_encoder *e, size_t at, size_t n, bool is_end, size_t *taken)
{
    const unsigned char *text = e->raw.at + at;
    *taken = n;
    if (e->t->is_nfc) {
        if (!fr__nfc_append(&e->nfc, text, n, is_end, &e->plain, taken)) return false;
    } else if (!fr__bytes_put(&e->plain, text, n)) {
        return false;
    }
    return split_plain(e, is_end);
}

static fr_status advance(fr_encoder *e, bool is_end)
{
    size_t at = 0;
    bool done = false, more_memory = true;
    while (!done && more_memory) {
        size_t n_token, taken = 0;
        int32_t id = -1;
        size_t n =
            fr__added_find(&e->t->added[0], e->raw.at + at, e->raw.n - at, is_end, &n_token, &id);
        more_memory = put_text(e, at, n, is_end || n_token, &taken);
        at += taken + n_token;
        if (n_token == 0)
            done = true;
        else
            more_memory = more_memory && fr__vec_push(&e->ids, id);
    }
    if (!more_memory) return fr__no_memory(e->t->ctx, e->raw.n + e->plain.n, "text");
    drop(&e->raw, at);
    size_t n_left = e->raw.n + e->plain.n;
    if (n_left > FR_TOKENS_MAX_WORD)
        return fr_fail(e->t->ctx, FR_INVALID,
                       "the text has a word of more than %d bytes, which no split pattern cuts; is "
                       "it text?",
                       FR_TOKENS_MAX_WORD);
    e->wait = 2 * n_left > e->block ? 2 * n_left : e->block;
    return FR_OK;
}

fr_status fr_encoder_feed(fr_encoder *e, const char *text, size_t bytes)
{
    for (size_t part; bytes > 0; text += part, bytes -= part) {
        part = bytes < e->block ? bytes : e->block;
        if (!fr__bytes_put(&e->raw, (const unsigned char *)text, part))
            return fr__no_memory(e->t->ctx, e->raw.n + part, "text");
        if (e->raw.n + e->plain.n >= e->wait) FR_TRY(advance(e, false));
    }
    return FR_OK;
}

fr_status fr_encoder_end(fr_encoder *e) { return advance(e, true); }
