/* cmd_generate.c -- forerun generate: text from a trained gpt. */
#include "cli.h"

#include <stdio.h>

static void emit(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

typedef struct wishes {
    const char *config, *checkpoint, *prompt;
    int64_t n_tokens, top_k, seed;
    double temperature;
    cli_list sets;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"prompt", "TEXT", "beginning of the text", CLI_TEXT, AT(prompt)},
    {"checkpoint", "DIR", "a run's folder or one step-N (default: run.out)", CLI_TEXT,
     AT(checkpoint)},
    {"tokens", "N", "number of tokens to write (200)", CLI_INT, AT(n_tokens)},
    {"temperature", "T", "0: always the most likely; 1: the model's distribution (0.8)", CLI_REAL,
     AT(temperature)},
    {"top-k", "K", "sample from the K most likely; 0: all (0)", CLI_INT, AT(top_k)},
    {"seed", "S", "same seed, same text (1)", CLI_INT, AT(seed)},
    CLI_SET(AT(sets)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes w = {.n_tokens = 200, .seed = 1, .temperature = 0.8};
    int code = cli_parse(verb, argc, argv, &w, 1, &w.config);
    if (code >= 0) return code;
    if (!w.config || !w.prompt)
        return cli_refuse("forerun generate: %s (forerun help generate)",
                          w.config ? "give the beginning of the text by --prompt"
                                   : "which config?");
    fr_ctx *ctx = cli_context(true);
    fr_run_options o = {.config = w.config,
                        .n_sets = w.sets.n,
                        .sets = w.sets.at,
                        .dump_step = -1,
                        .checkpoint = w.checkpoint,
                        .stop = cli_catch_signals()};
    fr_generate_options g = {.prompt = w.prompt,
                             .n_tokens = w.n_tokens,
                             .temperature = w.temperature,
                             .top_k = w.top_k,
                             .seed = (uint64_t)w.seed,
                             .emit = emit};
    fr_status status = fr_generate(ctx, &o, &g);
    if (status == FR_OK) printf("\n");
    return cli_finish(ctx, status);
}

const cli_verb cli_generate = {
    .name = "generate",
    .usage = "generate CONFIG --prompt TEXT [--checkpoint DIR] [--tokens N] [--temperature T]",
    .summary = "continue a text with a trained language model",
    .text = "Prints what follows the prompt, token by token.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
