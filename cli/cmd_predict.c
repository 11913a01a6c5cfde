/* cmd_predict.c -- forerun predict: outputs of a trained network, into a file. */
#include "cli.h"
#include "term.h"

#include <forerun/predict.h>
#include <stdio.h>

typedef struct wishes {
    const char *config, *checkpoint, *input, *node, *out;
    cli_list sets;
    bool is_quiet;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"out", "FILE", "where outputs go: .npy, .csv or .jsonl", CLI_TEXT, AT(out)},
    {"checkpoint", "DIR", "a run's folder or one step-N (default: run.out)", CLI_TEXT,
     AT(checkpoint)},
    {"input", "FILE", "samples: .npy, or .csv for data of tables (default: evaluation data)",
     CLI_TEXT, AT(input)},
    {"node", "NAME", "node whose values are written (default: the output)", CLI_TEXT, AT(node)},
    CLI_SET(AT(sets)),
    CLI_QUIET(AT(is_quiet)),
    {.name = NULL},
};

static void show(void *user, int64_t n_done, int64_t n)
{
    char text[64];
    (void)user;
    if (!term_has_status()) return;
    snprintf(text, sizeof text, "%lld of %lld samples", (long long)n_done, (long long)n);
    term_status("predict", (double)n_done / (double)n, text);
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes w = {0};
    int code = cli_parse(verb, argc, argv, &w, 1, &w.config);
    if (code >= 0) return code;
    if (!w.config || !w.out)
        return cli_refuse("forerun predict: %s (forerun help predict)",
                          w.config ? "give a file for the outputs by --out" : "no config given");
    fr_ctx *ctx = cli_context(w.is_quiet);
    fr_run_options o = {.size = sizeof o,
                        .config = w.config,
                        .n_sets = w.sets.n,
                        .sets = w.sets.at,
                        .dump_step = -1,
                        .checkpoint = w.checkpoint,
                        .stop = cli_catch_signals()};
    fr_predict_options p = {
        .input = w.input, .node = w.node, .out = w.out, .progress = w.is_quiet ? NULL : show};
    int64_t n = 0;
    fr_status status = fr_predict(ctx, &o, &p, &n);
    term_end_status();
    if (status == FR_OK && !w.is_quiet)
        term_say(TERM_PLAIN, "%s: outputs of %lld samples", w.out, (long long)n);
    return cli_finish(ctx, status);
}

const cli_verb cli_predict = {
    .name = "predict",
    .usage = "predict CONFIG --out FILE [--checkpoint DIR] [--input FILE] [--node NAME]",
    .summary = "outputs of a checkpoint for the evaluation data or a file",
    .text = "Writes the values of the network's output, or of any node, for each sample in order:\n"
            "an array of fp32 (.npy), a table with a column per number (.csv), or one object per\n"
            "line (.jsonl). Samples pass through the stages of the config. The file appears as a\n"
            "whole at the end.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
