/* test_token_file.c -- files of tokens of llm.c and Megatron, and texts with a tokenizer. */
#include "scratch.h"

#include <forerun/tokens.h>

enum { N = 40, CONTEXT = 4 };

static int token(int i) { return (i * 613) % 30000; }

static unsigned char *put_number(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) *p++ = (unsigned char)(value >> 8 * i);
    return p;
}

static size_t tokens_to(unsigned char *p, int width)
{
    for (int i = 0; i < N; i++) p = put_number(p, (uint64_t)token(i), width);
    return (size_t)(N * width);
}

/* A file of llm.c; n: what its header says. */
static size_t make_llmc(unsigned char *data, uint32_t magic, uint32_t version, uint32_t n,
                        int width)
{
    memset(data, 0, 1024);
    put_number(put_number(put_number(data, magic, 4), version, 4), n, 4);
    return 1024 + tokens_to(data + 1024, width);
}

/* The index of two sequences of 15 and 25 tokens. */
static size_t make_index(unsigned char *data, int kind, int second, uint64_t place)
{
    unsigned char *p = data;
    memcpy(p, "MMIDIDX\0\0", 9);
    p = put_number(p + 9, 1, 8);
    p = put_number(p, (uint64_t)kind, 1);
    p = put_number(put_number(p, 2, 8), 3, 8);
    p = put_number(put_number(p, 15, 4), (uint64_t)second, 4);
    p = put_number(put_number(p, 0, 8), place, 8);
    for (uint64_t i = 0; i < 3; i++) p = put_number(p, i, 8);
    return (size_t)(p - data);
}

static void check_tokens(scratch *s, const char *yaml)
{
    int32_t x[CONTEXT], y[CONTEXT];
    fr_dataset *d = open_good(s, NULL, yaml);
    assert_int_equal(fr_dataset_info(d)->vocab, 39 * 613 + 1);
    assert_int_equal(fr_dataset_info(d)->n_train, 8);
    for (int64_t w = 0; w < 8; w++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, w, 0, UINT64_MAX, x, y, NULL), FR_OK);
        for (int i = 0; i < CONTEXT; i++) {
            assert_int_equal(x[i], token((int)w * CONTEXT + i));
            assert_int_equal(y[i], token((int)w * CONTEXT + i + 1));
        }
    }
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 0, 0, 0, x, y, NULL), FR_OK);
    assert_true(x[0] == token(36) && y[2] == token(39) && y[3] == FR_TARGET_IGNORE);
    fr_dataset_close(d);
}

static void llmc(void **state)
{
    scratch *s = *state;
    unsigned char data[2048];
    put_file(s, "a.bin", data, make_llmc(data, 20240520, 1, N, 2));
    check_tokens(s, "{name: text, path: '@/a.bin', context: 4}");
    check_tokens(s, "{name: text, path: '@/a.bin', context: 4, tokens: uint16}");
    put_file(s, "b.bin", data, make_llmc(data, 20240801, 7, N, 4));
    check_tokens(s, "{name: text, path: '@/b.bin', context: 4}");
    /* as bytes, if the config says so */
    fr_dataset *d = open_good(s, NULL, "{name: text, path: '@/a.bin', context: 4, tokens: bytes}");
    assert_int_equal(fr_dataset_info(d)->vocab, 256);
    fr_dataset_close(d);
    open_bad(s, NULL, "{name: text, path: '@/a.bin', context: 4, vocab: 23294}",
             "a.bin: token 38 is 23294", NULL);
    put_file(s, "c.bin", data, make_llmc(data, 20240520, 1, N + 1, 2));
    open_bad(s, NULL, "{name: text, path: '@/c.bin', context: 4}",
             "c.bin: its header says 41 tokens of 2 bytes, but 80 bytes follow", NULL);
    put_file(s, "d.bin", data, 1000);
    open_bad(s, NULL, "{name: text, path: '@/d.bin', context: 4}", "d.bin: ", "only 1000 of", NULL);
    fr_dataset *none;
    put_file(s, "e.bin", data, make_llmc(data, 20240520, 2, N, 2));
    assert_int_equal(open_data(s, NULL, "{name: text, path: '@/e.bin', context: 4}", &none),
                     FR_UNSUPPORTED);
    assert_non_null(strstr(fr_ctx_error(s->ctx), "version 2"));
}

static void megatron(void **state)
{
    scratch *s = *state;
    unsigned char data[512];
    put_file(s, "a.bin", data, tokens_to(data, 2));
    put_file(s, "a.idx", data, make_index(data, 8, 25, 30));
    check_tokens(s, "{name: text, path: '@/a.bin', context: 4}");
    check_tokens(s, "{name: text, path: '@/a.idx', context: 4}");
    put_file(s, "b.bin", data, tokens_to(data, 4));
    put_file(s, "b.idx", data, make_index(data, 4, 25, 60));
    check_tokens(s, "{name: text, path: '@/b.bin', context: 4}");
    size_t n = make_index(data, 8, 25, 30);
    for (size_t cut = 9; cut < n; cut += 5) {
        fr_dataset *d;
        put_file(s, "a.idx", data, cut);
        assert_int_not_equal(open_data(s, NULL, "{name: text, path: '@/a.bin', context: 4}", &d),
                             FR_OK);
        assert_null(d);
        assert_int_equal(fr_status_exit_code(fr_ctx_status(s->ctx)), 2);
    }
    put_file(s, "a.idx", data, make_index(data, 8, 26, 30));
    open_bad(s, NULL, "{name: text, path: '@/a.bin', context: 4}", "have 82 bytes", "has 80", NULL);
    static const struct {
        int kind, second;
        uint64_t place;
        const char *says;
    } bad[] = {{8, 25, 32, "sequence 1 does not follow"},
               {8, -1, 30, "sequence 1 does not follow"},
               {3, 25, 30, "type 3 of tokens"}};
    for (int i = 0; i < 3; i++) {
        fr_dataset *d;
        put_file(s, "a.idx", data, make_index(data, bad[i].kind, bad[i].second, bad[i].place));
        assert_int_equal(open_data(s, NULL, "{name: text, path: '@/a.bin', context: 4}", &d),
                         FR_UNSUPPORTED);
        assert_non_null(strstr(fr_ctx_error(s->ctx), bad[i].says));
    }
}

static void wide_tokens(void **state)
{
    scratch *s = *state;
    unsigned char data[512];
    put_file(s, "plain", data, tokens_to(data, 4));
    check_tokens(s, "{name: text, path: '@/plain', context: 4, tokens: uint32}");
    put_number(data + 20, 0xFFFFFFFF, 4);
    put_file(s, "plain", data, N * 4);
    open_bad(s, NULL, "{name: text, path: '@/plain', context: 4, tokens: uint32}",
             "token 5 is 4294967295", NULL);
    put_file(s, "odd", data, 42);
    open_bad(s, NULL, "{name: text, path: '@/odd', context: 4, tokens: uint32}", "32-bit", NULL);
    put_file(s, "empty", data, 0);
    open_bad(s, NULL, "{name: text, path: '@/empty', context: 4, tokens: uint16}", "0 tokens",
             NULL);
}

#define TOKENIZER "tokenizer: '" FR_TEST_DIR "/fixtures/tokens_qwen2.json'"

static void by_tokenizer(void **state)
{
    scratch *s = *state;
    static const char text[] =
        "The quick brown fox jumps over the lazy dog. It's the dogs' 1234 times";
    int32_t x[CONTEXT], y[CONTEXT], ids[64];
    size_t n;
    put_file(s, "t.gz", text, strlen(text));
    fr_dataset *d = open_good(
        s, NULL, "{name: text, path: '@/t.gz', context: 4, eval_fraction: 0, " TOKENIZER "}");
    int64_t n_ids = fr_dataset_encode(d, text, strlen(text), ids, 64);
    assert_true(n_ids > 20 && n_ids < 60);
    assert_int_equal(fr_dataset_info(d)->n_train, n_ids / CONTEXT - 1);
    assert_int_equal(fr_dataset_info(d)->vocab, 441);
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 1, 0, UINT64_MAX, x, y, NULL), FR_OK);
    assert_memory_equal(x, ids + CONTEXT, sizeof x);
    assert_memory_equal(y, ids + CONTEXT + 1, sizeof y);
    assert_non_null(fr_dataset_token_text(d, x[0], &n));
    assert_int_equal(fr_dataset_encode(d, text, strlen(text), ids, 3), 3);
    fr_dataset_close(d);
    d = open_good(s, NULL, "{name: text, path: '@/t.gz', context: 4, vocab: 512, " TOKENIZER "}");
    assert_int_equal(fr_dataset_info(d)->vocab, 512);
    fr_dataset_close(d);
    open_bad(s, NULL, "{name: text, path: '@/t.gz', context: 4, vocab: 440, " TOKENIZER "}", "441",
             NULL);
    open_bad(s, NULL, "{name: text, path: '@/t.gz', context: 4, tokens: words, " TOKENIZER "}",
             "tokens: words", NULL);
    open_bad(s, NULL, "{name: text, path: '@/t.gz', context: 4, tokenizer: '@/none'}", "none",
             NULL);
    unsigned char data[512];
    put_file(s, "b.bin", data, make_index(data, 8, 25, 30)); /* no tokens of this tokenizer */
    open_bad(s, NULL, "{name: text, path: '@/b.bin', tokens: uint16, context: 4, " TOKENIZER "}",
             "token 0 is", "vocab is 441", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(llmc), T(megatron), T(wide_tokens), T(by_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
