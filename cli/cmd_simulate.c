/* cmd_simulate.c -- forerun simulate: a run on the virtual clock of a cluster. */
#include "cli.h"
#include "json.h"

#include <stdio.h>

enum { MOST = 64 }; /* workers printed at most */

typedef struct wishes {
    const char *config, *cluster, *profile, *trace;
    cli_list sets;
    int64_t batches;
    bool is_quiet, want_json;
} wishes;

static void print_time(const char *what, double seconds)
{
    printf("%s %.4g %s", what, seconds < 1 ? seconds * 1e3 : seconds, seconds < 1 ? "ms" : "s");
}

static void print_text(const fr_forecast *f)
{
    char a[32];
    print_time("simulated: a mini-batch takes", f->s_per_batch);
    printf(", %s samples/s, workers idle %.1f %%\n", cli_short(f->samples_per_s, a, sizeof a),
           100 * f->bubble);
    printf(
        "between workers, per mini-batch: %.4g MB of activations and gradients, %.4g MB of sums\n",
        f->message_bytes * 1e-6, f->sum_bytes * 1e-6);
    printf("%8s %10s %10s %12s %12s\n", "worker", "busy", "waiting", "memory", "of");
    for (int w = 0; w < f->n_workers && w < MOST; w++) {
        printf("%8d %9.1f%% %9.1f%% %9.4g MB ", w, 100 * f->busy_s[w] / f->makespan,
               100 * f->wait_s[w] / f->makespan, (double)f->memory[w] * 1e-6);
        if (f->limit[w] > 0)
            printf("%9.4g MB%s\n", f->limit[w] * 1e-6,
                   (double)f->memory[w] > f->limit[w] ? "  too large" : "");
        else
            printf("%12s\n", "-");
    }
    if (f->n_workers > MOST) printf("%8s and %d more\n", "...", f->n_workers - MOST);
    if (!f->fits) printf("the model does NOT fit into the devices' memory\n");
}

static void print_json(const fr_forecast *f)
{
    json_t *workers = json_array();
    for (int w = 0; w < f->n_workers; w++)
        json_array_append_new(workers,
                              json_pack("{sf sf sI}", "busy_s", f->busy_s[w], "wait_s",
                                        f->wait_s[w], "memory_bytes", (json_int_t)f->memory[w]));
    json_print_line(json_pack("{sb sf sf sf sf sf sf sb so}", "simulated", true, "s_per_batch",
                              f->s_per_batch, "samples_per_s", f->samples_per_s, "bubble",
                              f->bubble, "makespan_s", f->makespan, "message_bytes",
                              f->message_bytes, "sum_bytes", f->sum_bytes, "fits", f->fits,
                              "workers", workers));
}

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"cluster", "FILE", "the machines (parallel.cluster of the config, or this machine)", CLI_TEXT,
     AT(cluster)},
    {"profile", "FILE", "cost of nodes (`forerun profile`); measured if not given", CLI_TEXT,
     AT(profile)},
    CLI_SET(AT(sets)),
    {"batches", "N", "mini-batches (those of the run, 200 at most)", CLI_COUNT, AT(batches)},
    {"trace", "FILE", "write a timeline for Perfetto", CLI_TEXT, AT(trace)},
    CLI_QUIET(AT(is_quiet)),
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {0};
    int code = cli_parse(verb, argc, argv, &o, 1, &o.config);
    if (code >= 0) return code;
    if (!o.config) return cli_refuse("forerun simulate: no config given (forerun help simulate)");
    fr_ctx *ctx = cli_context(o.is_quiet || o.want_json);
    const fr_run_options options_of_run = {
        .size = sizeof options_of_run, .config = o.config, .n_sets = o.sets.n, .sets = o.sets.at};
    fr_forecast f;
    fr_status status =
        fr_run_simulate(ctx, &options_of_run, o.cluster, o.profile, o.batches, o.trace, &f);
    if (status == FR_OK) (o.want_json ? print_json : print_text)(&f);
    fr_forecast_free(&f);
    return cli_finish(ctx, status);
}

const cli_verb cli_simulate = {
    .name = "simulate",
    .usage = "simulate CONFIG [--cluster FILE] [--profile FILE] [--set KEY=VALUE]...",
    .summary = "forecast the time of a run on a cluster, and how it is spent",
    .text = "Follows the schedule that `train` would follow, on a virtual clock: times of nodes\n"
            "from a profile, devices and links from a cluster file (docs/cluster.md). Nothing is\n"
            "trained.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
