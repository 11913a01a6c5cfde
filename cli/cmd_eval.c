/* cmd_eval.c -- forerun eval: loss and accuracy of a checkpoint. */
#include "cli.h"

#include <math.h>
#include <stdio.h>

/* JSON has no NaN and no infinity. */
static const char *json_number(double value, char text[32])
{
    if (isfinite(value))
        snprintf(text, 32, "%.9g", value);
    else
        snprintf(text, 32, "null");
    return text;
}

typedef struct wishes {
    const char *config, *checkpoint;
    cli_list sets;
    bool want_json, is_quiet;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"checkpoint", "DIR", "a run's folder or one step-N (default: run.out)", CLI_TEXT,
     AT(checkpoint)},
    CLI_SET(AT(sets)),
    CLI_QUIET(AT(is_quiet)),
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {0};
    int code = cli_parse(verb, argc, argv, &o, 1, &o.config);
    if (code >= 0) return code;
    if (!o.config) return cli_refuse("forerun eval: no config given (forerun help eval)");
    fr_ctx *ctx = cli_context(o.is_quiet || o.want_json);
    fr_run_options run_of = {.config = o.config,
                             .n_sets = o.sets.n,
                             .sets = o.sets.at,
                             .dump_step = -1,
                             .checkpoint = o.checkpoint,
                             .stop = cli_catch_signals()};
    fr_run_result r;
    fr_status status = fr_eval(ctx, &run_of, &r);
    char loss[32], accuracy[32], rate[32];
    if (status == FR_OK && o.want_json)
        printf("{\"samples\": %lld, \"eval_loss\": %s, \"eval_accuracy\": %s, "
               "\"samples_per_s\": %s, \"weights_sha256\": \"%s\"}\n",
               (long long)r.samples, json_number(r.eval_loss, loss),
               json_number(r.eval_accuracy, accuracy), json_number(r.samples_per_s, rate),
               r.weights_sha256);
    else if (status == FR_OK)
        printf("%lld samples: loss %.4f, accuracy %.2f %% (%.0f samples/s), weights %.16s...\n",
               (long long)r.samples, r.eval_loss, 100 * r.eval_accuracy, r.samples_per_s,
               r.weights_sha256);
    return cli_finish(ctx, status);
}

const cli_verb cli_eval = {
    .name = "eval",
    .usage = "eval CONFIG [--checkpoint DIR] [--set KEY=VALUE]... [--quiet] [--json]",
    .summary = "loss and accuracy of a checkpoint on the evaluation data",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
