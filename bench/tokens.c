/* tokens.c -- speed of the tokenizer on one core.
 *
 *     bench_tokens TOKENIZER TEXT [REPEATS]
 *
 * Prints one JSON object: bytes and tokens of the text, and the bytes per second of processor time,
 * the best of the repeats (5) with a new encoder each, whose cache of words is empty at first. */
#include <forerun/tokens.h>

#include "base/alloc.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t cpu_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static fr_status encode(const fr_tokenizer *t, const unsigned char *text, size_t bytes,
                        int64_t *n_tokens)
{
    fr_encoder *e;
    FR_TRY(fr_encoder_create(t, &e));
    fr_status status = FR_OK;
    *n_tokens = 0;
    for (size_t at = 0, part; at < bytes && status == FR_OK; at += part) {
        int64_t n;
        part = bytes - at < 1 << 18 ? bytes - at : 1 << 18;
        status = fr_encoder_feed(e, (const char *)text + at, part);
        if (status == FR_OK && at + part == bytes) status = fr_encoder_end(e);
        fr_encoder_take(e, &n);
        *n_tokens += n;
    }
    fr_encoder_free(e);
    return status;
}

int main(int argc, char **argv)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_tokenizer *t;
    unsigned char *text;
    size_t bytes;
    if (argc < 3 || !ctx) {
        fprintf(stderr, "usage: bench_tokens TOKENIZER TEXT [REPEATS]\n");
        return 2;
    }
    int repeats = argc > 3 ? atoi(argv[3]) : 5;
    uint64_t begin = cpu_ns();
    fr_status status = fr_tokenizer_open(ctx, argv[1], &t);
    uint64_t open_ns = cpu_ns() - begin, best_ns = UINT64_MAX;
    if (status == FR_OK) status = fr__file_read(ctx, argv[2], (size_t)1 << 34, &text, &bytes);
    int64_t n_tokens = 0;
    for (int i = 0; i < repeats && status == FR_OK; i++) {
        begin = cpu_ns();
        status = encode(t, text, bytes, &n_tokens);
        uint64_t ns = cpu_ns() - begin;
        if (ns < best_ns) best_ns = ns;
    }
    if (status != FR_OK) {
        fprintf(stderr, "bench_tokens: %s\n", fr_ctx_error(ctx));
        return fr_status_exit_code(status);
    }
    printf("{\"bytes\": %zu, \"tokens\": %lld, \"vocab\": %lld, \"open_s\": %.3f, "
           "\"mb_per_s\": %.1f}\n",
           bytes, (long long)n_tokens, (long long)fr_tokenizer_vocab(t), (double)open_ns * 1e-9,
           (double)bytes * 1e3 / (double)best_ns);
    fr__free(text);
    fr_tokenizer_free(t);
    fr_ctx_free(ctx);
    return 0;
}
