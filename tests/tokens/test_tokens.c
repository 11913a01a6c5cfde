/* test_tokens.c -- tokenizers: the tokens that Python's `tokenizers` has (tests/fixtures), text in
 * pieces, long words, bytes that are no text, memory that runs out, files that are wrong. */
#include "support/test.h"

#include "base/alloc.h"
#include "io/file.h"
#include "tokens/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"gpt2", "llama3", "qwen2"};

static fr_tokenizer *open_kind(fr_ctx *ctx, const char *kind)
{
    char path[512];
    fr_tokenizer *t;
    snprintf(path, sizeof path, FR_TEST_DIR "/fixtures/tokens_%s.json", kind);
    if (fr_tokenizer_open(ctx, path, &t) != FR_OK) fail_msg("%s", fr_ctx_error(ctx));
    return t;
}

/* The tokens of a text that is fed in pieces of this many bytes; returns their number. */
static int64_t encode(fr_encoder *e, const char *text, size_t bytes, size_t piece, int32_t *ids)
{
    int64_t n_all = 0, n;
    for (size_t at = 0, part; at <= bytes; at += piece) {
        part = bytes - at < piece ? bytes - at : piece;
        assert_int_equal(fr_encoder_feed(e, text + at, part), FR_OK);
        if (at + piece > bytes) assert_int_equal(fr_encoder_end(e), FR_OK);
        const int32_t *got = fr_encoder_take(e, &n);
        if (n) memcpy(ids + n_all, got, (size_t)n * sizeof *ids);
        n_all += n;
    }
    return n_all;
}

static size_t from_hex(const char *line, char *text)
{
    size_t n = 0;
    for (; line[2 * n] != ':'; n++) {
        char digits[3] = {line[2 * n], line[2 * n + 1], 0};
        text[n] = (char)strtol(digits, NULL, 16);
    }
    return n;
}

static void fixtures(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    static const size_t pieces[] = {1, 2, 3, 7, 1000};
    for (size_t k = 0; k < 3; k++) {
        fr_tokenizer *t = open_kind(ctx, kinds[k]);
        fr_encoder *e;
        char path[512], line[4096], text[2048];
        int n_lines = 0;
        snprintf(path, sizeof path, FR_TEST_DIR "/fixtures/tokens_%s.txt", kinds[k]);
        assert_int_equal(fr_encoder_create(t, &e), FR_OK);
        fr__encoder_set_block(e, 1);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        for (; fgets(line, sizeof line, f); n_lines++) {
            size_t n = from_hex(line, text);
            for (size_t p = 0; p < 5; p++) {
                int32_t ids[4096];
                int64_t n_ids = encode(e, text, n, pieces[p], ids), at = 0;
                char *rest = strchr(line, ':') + 1;
                for (char *end; strtol(rest, &end, 10), end != rest; rest = end, at++) {
                    if (at >= n_ids || ids[at] != strtol(rest, NULL, 10))
                        fail_msg("%s, pieces of %zu: token %d of %s", kinds[k], pieces[p], (int)at,
                                 line);
                }
                if (at != n_ids)
                    fail_msg("%s: %d tokens too many: %s", kinds[k], (int)(n_ids - at), line);
            }
        }
        fclose(f);
        assert_true(n_lines > 30);
        fr_encoder_free(e);
        fr_tokenizer_free(t);
    }
    fr_ctx_free(ctx);
}

/* Any bytes come back, also those that are no UTF-8. */
static void any_bytes(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t = open_kind(ctx, "llama3");
    fr_encoder *e;
    assert_int_equal(fr_encoder_create(t, &e), FR_OK);
    fr__encoder_set_block(e, 1);
    for (unsigned seed = 1; seed < 200; seed++) {
        char text[300];
        int32_t ids[300], again[300];
        size_t n = seed * 7 % 300, at = 0;
        uint32_t x = seed * 2654435761u;
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            text[i] = (char)(x >> 24);
        }
        int64_t n_ids = encode(e, text, n, 1000, ids);
        assert_int_equal(encode(e, text, n, 1 + seed % 5, again), n_ids);
        assert_memory_equal(ids, again, (size_t)n_ids * sizeof *ids);
        for (int64_t i = 0; i < n_ids; i++) {
            size_t length;
            const char *token = fr_tokenizer_text(t, ids[i], &length);
            assert_true(token && at + length <= n);
            assert_memory_equal(token, text + at, length);
            at += length;
        }
        assert_int_equal(at, n);
    }
    fr_encoder_free(e);
    fr_tokenizer_free(t);
    fr_ctx_free(ctx);
}

/* The rule as it is written down, without a heap: the lowest rank, leftmost, as long as any. */
static size_t plain_merge(const fr__bpe *b, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n;
        uint32_t rank = FR_NO_RANK;
        for (size_t i = 0; i + 1 < n; i++) {
            const fr__merge *m =
                fr__bpe_merge_slot(b, (uint64_t)ids[i] << 32 | (uint32_t)ids[i + 1]);
            if (m->pair != UINT64_MAX && m->rank < rank) best = i, rank = m->rank;
        }
        if (best == n) return n;
        ids[best] = fr__bpe_merge_slot(b, (uint64_t)ids[best] << 32 | (uint32_t)ids[best + 1])->id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
    }
}

static void words_of_any_length(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t = open_kind(ctx, "gpt2");
    fr__merger m;
    fr__ids out = {0};
    assert_true(fr__merger_init(&m, &t->bpe));
    for (unsigned n = 1; n < 400; n++) {
        unsigned char word[400];
        int32_t ids[400];
        uint32_t x = n * 2654435761u;
        for (unsigned i = 0; i < n;) { /* tokens one after the other, so that merges compete */
            size_t length;
            x = x * 1664525u + 1013904223u;
            const char *token = fr_tokenizer_text(t, (int32_t)((x >> 16) % 440), &length);
            for (size_t at = 0; at < length && i < n; at++, i++) {
                word[i] = (unsigned char)token[at];
                ids[i] = t->bpe.byte_id[word[i]];
            }
        }
        size_t wanted = plain_merge(&t->bpe, ids, n);
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            out.n = 0;
            assert_true(fr__merge_word(&m, word, n, &out));
            assert_int_equal(out.n, wanted);
            assert_memory_equal(out.at, ids, wanted * sizeof *ids);
        }
    }
    fr__vec_fini(&out);
    fr__merger_fini(&m);
    fr_tokenizer_free(t);
    fr_ctx_free(ctx);
}

/* A word of a megabyte in pieces of a kilobyte: time in proportion to its length. */
static void one_long_word(void **state)
{
    (void)state;
    enum { PIECES = 1000 };
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t = open_kind(ctx, "gpt2");
    fr_encoder *e;
    char piece[1000];
    int64_t n, n_all = 0, n_bytes = 0;
    memset(piece, 'o', sizeof piece);
    assert_int_equal(fr_encoder_create(t, &e), FR_OK);
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(fr_encoder_feed(e, piece, sizeof piece), FR_OK);
    fr_encoder_take(e, &n);
    assert_int_equal(n, 0); /* it may go on */
    assert_int_equal(fr_encoder_end(e), FR_OK);
    const int32_t *ids = fr_encoder_take(e, &n_all);
    for (int64_t i = 0; i < n_all; i++) {
        size_t length;
        fr_tokenizer_text(t, ids[i], &length);
        n_bytes += (int64_t)length;
    }
    assert_int_equal(n_bytes, PIECES * (int64_t)sizeof piece);
    fr_status status = FR_OK;
    for (int i = 0; i < 40 * PIECES && status == FR_OK; i++)
        status = fr_encoder_feed(e, piece, sizeof piece);
    assert_int_equal(status, FR_INVALID); /* beyond 16 MB */
    assert_non_null(strstr(fr_ctx_error(ctx), "word of more than"));
    fr_encoder_free(e);
    fr_tokenizer_free(t);
    fr_ctx_free(ctx);
}

static void names(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t = open_kind(ctx, "gpt2");
    size_t n;
    int32_t end = fr_tokenizer_id(t, "<|end|>");
    assert_int_equal(end, fr_tokenizer_vocab(t) - 1);
    assert_string_equal(fr_tokenizer_text(t, end, &n), "<|end|>");
    assert_true(fr_tokenizer_id(t, " the") >= 0);
    assert_int_equal(fr_tokenizer_id(t, "no such token"), -1);
    assert_int_equal(fr_tokenizer_id(t, ""), -1);
    assert_null(fr_tokenizer_text(t, -1, &n));
    assert_null(fr_tokenizer_text(t, end + 1, &n));
    fr_tokenizer_free(t);
    fr_ctx_free(ctx);
}

/* --- files that are wrong --- */

static char *fixture(const char *kind, size_t *bytes)
{
    char path[512];
    unsigned char *data;
    snprintf(path, sizeof path, FR_TEST_DIR "/fixtures/tokens_%s.json", kind);
    assert_int_equal(fr__file_read(NULL, path, 1 << 20, &data, bytes), FR_OK);
    return (char *)data;
}

/* The fixture with the first `from` replaced by `to` is refused, in one line with `says`. */
static void refuse(const char *kind, const char *from, const char *to, const char *says)
{
    size_t bytes;
    char *text = fixture(kind, &bytes), *place = strstr(text, from);
    static char changed[1 << 17];
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t;
    if (!place) fail_msg("no %s in the fixture", from);
    int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(place - text), text, to,
                     place + strlen(from));
    fr_status status = fr__tokenizer_parse(ctx, "t.json", changed, (size_t)n, &t);
    if (status == FR_OK) fail_msg("%s was read", to);
    assert_int_equal(fr_status_exit_code(status), 2);
    assert_null(t);
    const char *error = fr_ctx_error(ctx);
    if (!strstr(error, says) || strncmp(error, "t.json", 6) != 0 || strchr(error, '\n'))
        fail_msg("'%s' is not in: %s", says, error);
    fr_ctx_free(ctx);
    fr__free(text);
}

static void wrong_files(void **state)
{
    (void)state;
    refuse("gpt2", "\"!\":0", "\"!\":1", "has the id of another token");
    refuse("gpt2", "\"!\":0", "\"!\":-1", "has an id outside");
    refuse("gpt2", "\"!\":0", "\"!\":4194304", "has an id outside");
    refuse("gpt2", "\"!\":0", "\"!\":99999999999999999999", "not JSON");
    refuse("gpt2", "\"!\":0", "\"!\":0.5", "no whole number");
    refuse("gpt2", "\"!\":0", "\"!\":0,\"!\":7000", "duplicate");
    refuse("gpt2", "\"!\":0", "\"!!!\":0", "the byte 0x21");
    refuse("gpt2", "\"!\":0", "\"\":0", "is empty");
    refuse("gpt2", "\"vocab\":{", "\"other\":{", "vocabulary must be");
    refuse("gpt2", "\"merges\":[", "\"merges\":[[\"zz\",\"a\"],",
           "merge 0, \"zz\" and \"a\", names");
    refuse("gpt2", "\"merges\":[", "\"merges\":[[\"z\",\"q\"],", "makes a token");
    refuse("gpt2", "\"merges\":[", "\"merges\":[[\"z\"],", "merge 0 is no pair");
    refuse("gpt2", "\"merges\":[", "\"merges\":[\"a b c\",", "merge 0 is no pair");
    refuse("gpt2", "\"merges\":[", "\"merges\":{},\"x\":[", "no list \"merges\"");
    refuse("gpt2", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model Unigram is not supported");
    refuse("gpt2", "\"dropout\":null", "\"dropout\":0.1", "dropout is not supported");
    refuse("gpt2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}", "normalizer NFKC");
    refuse("gpt2", "\"normalizer\":null",
           "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}",
           "normalizer Lowercase");
    refuse("gpt2", "\"use_regex\":true", "\"use_regex\":false", "without use_regex");
    refuse("gpt2", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
           "\"pre_tokenizer\":{\"type\":\"Whitespace\"", "pre_tokenizer Whitespace");
    refuse("llama3", "{1,3}", "{1,4}", "the Split pattern");
    refuse("llama3", "Isolated", "Removed", "behavior Removed");
    refuse("llama3", "\"use_regex\":false", "\"use_regex\":true", "use_regex after a Split");
    refuse("gpt2", "\"lstrip\":false", "\"lstrip\":true", "lstrip, which is not supported");
    refuse("gpt2", "\"content\":\"<|end|>\"", "\"content\":\"!\"", "another id in the vocabulary");
    refuse("gpt2", "\"content\":\"<|end|>\"", "\"content\":7", "no text \"content\"");
    refuse("gpt2", "\"added_tokens\":[", "\"added_tokens\":[7,", "added token 0 has no id");
}

/* Every beginning of a file, and nesting without end. */
static void cut_files(void **state)
{
    (void)state;
    size_t bytes;
    char *text = fixture("qwen2", &bytes);
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t;
    for (size_t n = 0; n + 2 < bytes; n += 61) {
        assert_int_equal(fr__tokenizer_parse(ctx, "t", text, n, &t), FR_INVALID);
        assert_null(t);
    }
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP);
    memset(deep, '[', DEEP);
    assert_int_equal(fr__tokenizer_parse(ctx, "t", deep, DEEP, &t), FR_INVALID);
    free(deep);
    fr__free(text);
    assert_int_equal(fr_tokenizer_open(ctx, "/nonexistent", &t), FR_INVALID);
    assert_int_equal(fr_tokenizer_open(ctx, FR_TEST_DIR, &t), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(ctx), "neither tokenizer.json nor"));
    fr_ctx_free(ctx);
}

/* vocab.json, merges.txt and tokenizer_config.json made of a vocabulary of bytes. */
static void two_files(void **state)
{
    (void)state;
    static char vocab[8192];
    size_t n = 0;
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t;
    int next = 0x100;
    n += (size_t)sprintf(vocab, "{\"ab\": 256, \"<|endoftext|>\": 257, \"bc\": 258, "
                                "\"za\": 259, \"abc\": 260");
    for (int i = 0; i < 256; i++) {
        bool plain = (i >= '!' && i <= '~') || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
        n += (size_t)sprintf(vocab + n, ", \"\\u%04x\": %d", (unsigned)(plain ? i : next++), i);
    }
    sprintf(vocab + n, "}");
    fr__text_file v = {"vocab.json", vocab, strlen(vocab)};
    static const char good[] = "#version: 0.2\r\nb c\r\na b\r\n\r\nz a\na bc",
                      bad[] = "a b\na  b\n";
    fr__text_file m = {"merges.txt", good, sizeof good - 1};
    fr__text_file c = {"c.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", 37};
    for (int i = 0; i < 2; i++) {
        fr_encoder *e;
        int32_t ids[100];
        if (fr__tokenizer_parse_files(ctx, &v, &m, i ? &c : NULL, &t) != FR_OK)
            fail_msg("%s", fr_ctx_error(ctx));
        assert_int_equal(fr_encoder_create(t, &e), FR_OK);
        assert_int_equal(encode(e, "ab<|endoftext|>b12", 18, 100, ids), 5);
        assert_true(ids[0] == 256 && ids[1] == 257 && ids[2] == 'b' && ids[3] == '1');
        /* "ab" is gone before its turn, so "za" comes before "abc", in a long word too */
        char word[81] = "";
        for (int k = 0; k < 20; k++) strcat(word, "zabc");
        assert_int_equal(encode(e, word, 80, 100, ids), 40);
        for (int k = 0; k < 40; k++) assert_int_equal(ids[k], k % 2 ? 258 : 259);
        assert_true(t->split == (i ? &fr__split_qwen2 : &fr__split_gpt2) && t->is_nfc == i);
        fr_encoder_free(e);
        fr_tokenizer_free(t);
    }
    m.text = bad, m.bytes = sizeof bad - 1;
    assert_int_equal(fr__tokenizer_parse_files(ctx, &v, &m, NULL, &t), FR_INVALID);
    assert_string_equal(fr_ctx_error(ctx), "merges.txt:2: the merge is no pair of tokens");
    c.text = "{\"tokenizer_class\": \"BertTokenizer\"}", c.bytes = strlen(c.text);
    m.text = good, m.bytes = sizeof good - 1;
    assert_int_equal(fr__tokenizer_parse_files(ctx, &v, &m, &c, &t), FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(ctx), "tokenizer_class BertTokenizer"));
    fr_ctx_free(ctx);
}

static void out_of_memory(void **state)
{
    (void)state;
    fr_ctx *ctx = fr_ctx_create();
    static const char text[] =
        "It's e\xcc\x81 <|end|> thequickbrownfoxjumpsoverthelazydogagainandagain";
    bool done = false;
    for (int64_t n = 0; !done; n += 1 + n / 50) {
        fr_tokenizer *t = NULL;
        fr_encoder *e = NULL;
        fr__alloc_fail_after(n);
        fr_status status = fr_tokenizer_open(ctx, FR_TEST_DIR "/fixtures/tokens_qwen2.json", &t);
        if (status == FR_OK) status = fr_encoder_create(t, &e);
        if (status == FR_OK) status = fr_encoder_feed(e, text, sizeof text - 1);
        if (status == FR_OK) status = fr_encoder_end(e);
        fr__alloc_fail_after(-1);
        if (status != FR_OK && status != FR_NO_MEMORY) fail_msg("%s", fr_ctx_error(ctx));
        done = status == FR_OK;
        fr_encoder_free(e);
        fr_tokenizer_free(t);
    }
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixtures),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(words_of_any_length),
        cmocka_unit_test(one_long_word),
        cmocka_unit_test(names),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(cut_files),
        cmocka_unit_test(two_files),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
