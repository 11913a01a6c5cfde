/* cmd_train.c -- forerun train: runs, shows progress, prints the outcome. */
#include "cli.h"
#include "progress.h"
#include "term.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct screen {
    cli_progress progress;
    fr_server *server; /* NULL: no live view */
    bool has_folder;   /* the server has its folder */
    bool has_report;
} screen;

static void on_progress(void *user, const fr_progress *p)
{
    screen *s = user;
    if (s->server) {
        if (!s->has_folder) fr_server_folder(s->server, p->out);
        s->has_folder = true;
        fr_server_progress(s->server, p);
    }
    progress_show(&s->progress, p);
}

/* Print summary.json. */
static fr_status print_summary(fr_ctx *ctx, const char *out)
{
    char path[4200], piece[4096];
    snprintf(path, sizeof path, "%s/summary.json", out);
    FILE *f = fopen(path, "r");
    if (!f) return fr_fail(ctx, FR_IO, "cannot read %s", path);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) fwrite(piece, 1, n, stdout);
    fclose(f);
    return FR_OK;
}

/* Write the report of a run that finished, was interrupted or diverged. */
static void on_over(void *user, const fr_run_result *r, fr_status status)
{
    screen *s = user;
    bool is_over = status == FR_OK || status == FR_INTERRUPTED || status == FR_DIVERGED;
    term_end_status();
    s->has_report = r->wants_report && is_over && cli_leave_report(r->out);
}

static void print_result(const fr_run_result *r, bool has_report)
{
    char rate[32], time[32], metrics[96];
    printf("%lld updates, %lld samples in %s (%s samples/s)", (long long)r->steps,
           (long long)r->samples, progress_clock(r->wall_s, time, sizeof time),
           isnan(r->samples_per_s) ? "-" : cli_short(r->samples_per_s, rate, sizeof rate));
    printf(", train loss %.4f", r->train_loss);
    if (!isnan(r->eval_loss))
        printf(", eval loss %.4f%s", r->eval_loss,
               cli_metrics(", ", r->eval_accuracy, r->eval_mae, r->eval_perplexity, metrics,
                           sizeof metrics));
    printf("\n");
    cli_line("%s/checkpoint/step-%lld: weights sha256 %.16s...", r->out, (long long)r->steps,
             r->weights_sha256);
    if (has_report) cli_line("%s/report.html: curves, timeline, memory", r->out);
}

int cli_parse_train(const cli_verb *verb, int argc, char **argv, void *args, cli_train_args *a)
{
    a->dump_step = -1;
    int code = cli_parse(verb, argc, argv, args, 1, &a->config);
    if (code >= 0) return code;
    if (!a->config)
        return cli_refuse("forerun %s: no config given (forerun help %s)", verb->name, verb->name);
    if (a->dump_step != -1 && a->dump_step < 1)
        return cli_refuse("forerun %s: --dump-step counts mini-batches from 1", verb->name);
    return -1;
}

/* Before the run, so that an unusable address fails early. */
static fr_status start_server(fr_ctx *ctx, fr_team *team, const cli_train_args *a, screen *s)
{
    fr_status status = FR_OK;
    if (a->serve && fr_team_rank(team) == 0) {
        status = fr_server_start(ctx, a->serve, &s->server);
        if (status == FR_OK && !a->is_quiet)
            term_say(TERM_PLAIN, "forerun: live at %s", fr_server_url(s->server));
    }
    return fr_team_agree(team, status);
}

static void stop_server(screen *s, fr_status status)
{
    if (!s->server) return;
    fr_server_over(s->server, status == FR_OK            ? "done"
                              : status == FR_INTERRUPTED ? "interrupted"
                              : status == FR_DIVERGED    ? "diverged"
                                                         : "failed");
    fr_server_stop(s->server);
    s->server = NULL;
}

static fr_status train(fr_ctx *ctx, fr_team *team, const cli_train_args *a, volatile int *stop)
{
    screen s = {.progress = {.is_quiet = a->is_quiet}};
    bool is_first = fr_team_rank(team) == 0;
    fr_run_options o = {.size = sizeof o,
                        .team = team,
                        .config = a->config,
                        .n_sets = a->sets.n,
                        .sets = a->sets.at,
                        .out = a->out,
                        .resume = a->resume,
                        .dump_step = a->dump_step,
                        .ledger = a->ledger,
                        .progress = is_first ? on_progress : NULL,
                        .over = is_first ? on_over : NULL,
                        .user = &s,
                        .stop = stop};
    fr_run_result r = {.steps = 0};
    fr_status status = start_server(ctx, team, a, &s);
    if (status == FR_OK) status = fr_train(ctx, &o, &r);
    term_end_status();
    stop_server(&s, status);
    if (status != FR_OK || !is_first) return status;
    if (a->want_json) return print_summary(ctx, r.out);
    if (!a->is_quiet) print_result(&r, s.has_report);
    return FR_OK;
}

#define AT(member) offsetof(cli_train_args, member)
static const cli_option options[] = {CLI_TRAIN_OPTIONS(AT), {.name = NULL}};

static int run(const cli_verb *verb, int argc, char **argv)
{
    static cli_train_args a;
    int code = cli_parse_train(verb, argc, argv, &a, &a);
    if (code >= 0) return code;
    fr_team *team = NULL;
    fr_ctx *ctx = cli_context(a.is_quiet);
    volatile int *stop = cli_catch_signals();
    fr_status status = fr_team_join(ctx, &team);
    if (status == FR_OK) status = train(ctx, team, &a, stop);
    cli_ignore_signals();
    return cli_finish_team(ctx, team, status);
}

const cli_verb cli_train = {
    .name = "train",
    .usage = "train CONFIG [--set KEY=VALUE]... [--out DIR] [--resume] [--dump-step K] "
             "[--ledger FILE]\n"
             "                     [--serve ADDRESS] [--quiet] [--json]",
    .summary = "train a model from a config",
    .text = "The run's folder receives config.yaml, metrics.jsonl, summary.json, trace.json,\n"
            "report.html and checkpoint/. Ctrl-C finishes the open mini-batches and writes a\n"
            "checkpoint; --resume continues from it with the same numbers as a run that was never\n"
            "stopped.\n"
            "\n"
            "Several workers: --set parallel.method=1f1b --set parallel.stages=4 --set\n"
            "train.micro=8; forerun methods lists the methods, forerun keys all keys of a config.\n"
            "\n"
            "Several processes, on one or more machines: mpirun -n 4 forerun train CONFIG, the\n"
            "same with srun, or forerun launch, which also restarts after a fault. Each process\n"
            "runs its share of the workers. SIGUSR1 has the effect of Ctrl-C: mpirun forwards it\n"
            "to all processes.\n",
    .is_collective = true,
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
