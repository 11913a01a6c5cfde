/* cmd_eval.c -- forerun eval: loss and metrics of a checkpoint. */
#include "cli.h"
#include "json.h"

#include <math.h>
#include <stdio.h>

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

static void print_result(const fr_run_result *r)
{
    char metrics[96];
    printf("%lld samples: loss %.4f%s", (long long)r->samples, r->eval_loss,
           cli_metrics(", ", r->eval_accuracy, r->eval_mae, r->eval_perplexity, metrics,
                       sizeof metrics));
    if (!isnan(r->eval_top5)) printf(", among the best five %.2f %%", 100 * r->eval_top5);
    if (!isnan(r->eval_f1)) printf(", F1 %.4f", r->eval_f1);
    if (!isnan(r->eval_r2)) printf(", R squared %.4f", r->eval_r2);
    printf(" (%.0f samples/s), weights %.16s...\n", r->samples_per_s, r->weights_sha256);
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {0};
    int code = cli_parse(verb, argc, argv, &o, 1, &o.config);
    if (code >= 0) return code;
    if (!o.config) return cli_refuse("forerun eval: no config given (forerun help eval)");
    fr_ctx *ctx = cli_context(o.is_quiet || o.want_json);
    fr_run_options run_of = {.size = sizeof run_of,
                             .config = o.config,
                             .n_sets = o.sets.n,
                             .sets = o.sets.at,
                             .dump_step = -1,
                             .checkpoint = o.checkpoint,
                             .stop = cli_catch_signals()};
    fr_run_result r;
    fr_status status = fr_eval(ctx, &run_of, &r);
    if (status == FR_OK && o.want_json)
        json_print_line(json_pack(
            "{sI so so so so so so so so ss}", "samples", (json_int_t)r.samples, "eval_loss",
            json_finite(r.eval_loss), "eval_accuracy", json_finite(r.eval_accuracy), "eval_mae",
            json_finite(r.eval_mae), "eval_perplexity", json_finite(r.eval_perplexity), "eval_top5",
            json_finite(r.eval_top5), "eval_f1", json_finite(r.eval_f1), "eval_r2",
            json_finite(r.eval_r2), "samples_per_s", json_finite(r.samples_per_s), "weights_sha256",
            r.weights_sha256));
    else if (status == FR_OK)
        print_result(&r);
    return cli_finish(ctx, status);
}

const cli_verb cli_eval = {
    .name = "eval",
    .usage = "eval CONFIG [--checkpoint DIR] [--set KEY=VALUE]... [--quiet] [--json]",
    .summary = "loss and metrics of a checkpoint on the evaluation data",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
