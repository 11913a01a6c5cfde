/* fuzz_tokens.c -- any bytes as a tokenizer.json, or as vocab.json and merges.txt, and any text:
 * refused, or the tokens of the text do not depend on its pieces and are its bytes again.
 *
 * Input: a byte that selects, then up to three parts, separated by zero bytes; the last is the
 * text. A vocabulary is never whole by chance: "$" in a file stands for the 256 bytes. */
#include "base/text.h"
#include "tokens/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static void put_alphabet(fr__text *out)
{
    int next = 0x100;
    for (int i = 0; i < 256; i++) {
        bool is_plain = (i >= '!' && i <= '~') || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
        fr__text_printf(out, "%s\"\\u%04x\": %d", i ? "," : "", (unsigned)(is_plain ? i : next++),
                        i);
    }
}

/* The next part, with its alphabet; `at` moves behind it. */
static char *part_of(const uint8_t **at, const uint8_t *end, size_t *n)
{
    fr__text out = {0};
    for (; *at < end && **at; ++*at) {
        if (**at == '$')
            put_alphabet(&out);
        else
            fr__text_put_bytes(&out, (const char *)*at, 1);
    }
    if (*at < end) ++*at;
    *n = out.n;
    fr__text_put(&out, "");
    return fr__text_take(&out);
}

static int64_t encode(const fr_tokenizer *t, const uint8_t *text, size_t n, size_t piece,
                      int32_t *ids)
{
    fr_encoder *e;
    int64_t n_all = 0, n_new;
    must(fr_encoder_create(t, &e) == FR_OK);
    fr__encoder_set_block(e, piece);
    for (size_t at = 0, part; at <= n; at += part + 1) {
        part = n - at < piece ? n - at : piece;
        must(fr_encoder_feed(e, (const char *)text + at, part) == FR_OK);
        if (at + part < n) must(fr_encoder_feed(e, (const char *)text + at + part, 1) == FR_OK);
    }
    must(fr_encoder_end(e) == FR_OK);
    const int32_t *got = fr_encoder_take(e, &n_new);
    if (n_new) memcpy(ids, got, (size_t)n_new * sizeof *ids);
    n_all += n_new;
    fr_encoder_free(e);
    return n_all;
}

static void check(const fr_tokenizer *t, const uint8_t *text, size_t n)
{
    size_t room = 4 * n + 8, at = 0; /* NFC makes a text at most three times as long */
    int32_t *a = malloc(room * sizeof *a), *b = malloc(room * sizeof *b);
    int64_t n_a = encode(t, text, n, 1 << 16, a), n_b = encode(t, text, n, 1, b);
    must(n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof *a) == 0);
    for (int64_t i = 0; i < n_a; i++) {
        size_t length;
        const char *token = fr_tokenizer_text(t, a[i], &length);
        must(token != NULL);
        if (t->is_nfc || t->prefix_space) continue;
        must(at + length <= n && memcmp(text + at, token, length) == 0);
        at += length;
    }
    must(t->is_nfc || t->prefix_space || at == n);
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t = NULL;
    const uint8_t *at = data + (size > 0), *end = data + size;
    size_t n[3];
    char *parts[3] = {NULL};
    fr_status status;
    parts[0] = part_of(&at, end, &n[0]);
    if (size > 0 && data[0] & 1) {
        parts[1] = part_of(&at, end, &n[1]);
        parts[2] = part_of(&at, end, &n[2]);
        fr__text_file f[3] = {{"v", parts[0], n[0]}, {"m", parts[1], n[1]}, {"c", parts[2], n[2]}};
        status = fr__tokenizer_parse_files(ctx, &f[0], &f[1], data[0] & 2 ? &f[2] : NULL, &t);
    } else {
        status = fr__tokenizer_parse(ctx, "fuzz", parts[0], n[0], &t);
    }
    must((status == FR_OK) == (t != NULL));
    if (t)
        check(t, at, (size_t)(end - at));
    else
        must(*fr_ctx_error(ctx) && !strchr(fr_ctx_error(ctx), '\n'));
    fr_tokenizer_free(t);
    for (int i = 0; i < 3; i++) fr__free(parts[i]);
    fr_ctx_free(ctx);
    return 0;
}
