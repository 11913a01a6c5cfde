/* cmd_generate.c -- forerun generate: text from a trained gpt. */
#include "cli.h"

#include <stdio.h>

static void emit(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    static cli_list sets;
    const char *checkpoint = NULL, *prompt = NULL, *config;
    int64_t n_tokens = 200, top_k = 0, seed = 1;
    double temperature = 0.8;
    const cli_option options[] = {
        {"prompt", "TEXT", "what the text begins with", CLI_TEXT, &prompt},
        {"checkpoint", "DIR", "a run's folder or one step-N (default: run.out)", CLI_TEXT,
         &checkpoint},
        {"tokens", "N", "how many to write (200)", CLI_INT, &n_tokens},
        {"temperature", "T", "0: always the likeliest; 1: as the model says (0.8)", CLI_REAL,
         &temperature},
        {"top-k", "K", "draw among the K likeliest; 0: all (0)", CLI_INT, &top_k},
        {"seed", "S", "same seed, same text (1)", CLI_INT, &seed},
        {"set", "KEY=VALUE", "replace a value of the config; may be repeated", CLI_LIST, &sets},
        {NULL, NULL, NULL, CLI_FLAG, NULL},
    };
    int code = cli_parse(verb, options, argc, argv, 1, &config);
    if (code >= 0) return code;
    if (!config || !prompt)
        return cli_refuse("forerun generate: %s (forerun help generate)",
                          config ? "give the beginning of the text by --prompt" : "which config?");
    fr_ctx *ctx = cli_context(true);
    fr_run_options o = {.config = config,
                        .n_sets = sets.n,
                        .sets = sets.at,
                        .dump_step = -1,
                        .checkpoint = checkpoint,
                        .stop = cli_catch_signals()};
    fr_generate_options g = {.prompt = prompt,
                             .n_tokens = n_tokens,
                             .temperature = temperature,
                             .top_k = top_k,
                             .seed = (uint64_t)seed,
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
    .run = run,
};
