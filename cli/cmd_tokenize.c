/* cmd_tokenize.c -- forerun tokenize: text files to a file of tokens, and back. */
#include "cli.h"

#include <stdio.h>
#include <unistd.h>

enum { MAX_INPUTS = CLI_MAX_SETS };

typedef struct wishes {
    const char *tokenizer, *out, *end;
    bool decode, is_quiet;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"tokenizer", "FILE|DIR", "tokenizer.json, or a folder with it or vocab.json and merges.txt",
     CLI_TEXT, AT(tokenizer)},
    {"out", "FILE", "the file to write", CLI_TEXT, AT(out)},
    {"end", "TOKEN", "a token after each input, as <|endoftext|>", CLI_TEXT, AT(end)},
    {"decode", NULL, "the inputs are tokens; write text", CLI_FLAG, AT(decode)},
    CLI_QUIET(AT(is_quiet)),
    {.name = NULL},
};

typedef struct clock {
    double began_s, shown_s;
    bool has_line;
} clock;

static void show(void *user, int64_t bytes, int64_t total, int64_t n_tokens)
{
    clock *c = user;
    double now = cli_now_s();
    if (now - c->shown_s < 0.5) return;
    char size[16], count[16];
    c->shown_s = now;
    c->has_line = true;
    fprintf(stderr, "\r%s: %sB read, %s tokens, %.1f MB/s ", total > 0 ? "" : "tokenize",
            cli_short((double)bytes, size, sizeof size),
            cli_short((double)n_tokens, count, sizeof count),
            (double)bytes / 1e6 / (now - c->began_s));
    if (total > 0) fprintf(stderr, "%3.0f %% ", 100.0 * (double)bytes / (double)total);
    fflush(stderr);
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes w = {.tokenizer = NULL};
    const char *inputs[MAX_INPUTS];
    int n_inputs = 0, code = cli_parse(verb, argc, argv, &w, MAX_INPUTS, inputs);
    if (code >= 0) return code;
    while (n_inputs < MAX_INPUTS && inputs[n_inputs]) n_inputs++;
    if (!w.tokenizer || !w.out || n_inputs == 0)
        return cli_refuse("forerun tokenize: %s (forerun help tokenize)",
                          !w.tokenizer ? "no tokenizer given by --tokenizer"
                          : !w.out     ? "no file to write given by --out"
                                       : "no input given");
    fr_ctx *ctx = cli_context(w.is_quiet);
    clock c = {.began_s = cli_now_s()};
    fr_tokenizer *t;
    fr_tokenize_result r = {0};
    fr_tokenize_options o = {.inputs = inputs,
                             .n_inputs = n_inputs,
                             .output = w.out,
                             .end = w.end,
                             .decode = w.decode,
                             .stop = cli_catch_signals(),
                             .progress = w.is_quiet || !isatty(STDERR_FILENO) ? NULL : show,
                             .user = &c};
    fr_status status = fr_tokenizer_open(ctx, w.tokenizer, &t);
    if (status == FR_OK) status = fr_tokenize(t, &o, &r);
    double seconds = cli_now_s() - c.began_s;
    if (c.has_line) fprintf(stderr, "\r%60s\r", "");
    if (status == FR_OK && !w.is_quiet)
        fprintf(stderr, "%lld bytes, %lld tokens of %d bytes, vocabulary %lld, %.1f s: %s\n",
                (long long)r.bytes, (long long)r.n_tokens, r.width,
                (long long)fr_tokenizer_vocab(t), seconds, w.out);
    fr_tokenizer_free(t);
    return cli_finish(ctx, status);
}

const cli_verb cli_tokenize = {
    .name = "tokenize",
    .usage = "tokenize --tokenizer FILE|DIR INPUT... --out FILE [--end TOKEN] [--decode]",
    .summary = "turn text into tokens by a byte-level BPE tokenizer, and back",
    .text =
        "Reads the tokenizers of GPT-2, Llama 3 and Qwen 2 (tokenizer.json of Hugging Face, or\n"
        "vocab.json and merges.txt). The output is what `data: {name: text, tokens: uint16}`\n"
        "reads: little-endian numbers, uint32 if the vocabulary has more than 65536 tokens.\n"
        "Inputs may be compressed with gzip. FILE appears when it is whole.\n",
    .argument = "FILE",
    .options = options,
    .run = run,
};
