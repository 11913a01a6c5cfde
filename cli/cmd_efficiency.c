/* cmd_efficiency.c -- forerun efficiency: epochs to a quality at each global batch, and, with the
 * speed of more devices, whether data parallel or hybrid training reaches it first. */
#include "cli.h"
#include "json.h"
#include "term.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BATCHES = 64 };

typedef struct arguments {
    const char *config, *batches, *target, *scale_lr, *out;
    const char *scaling, *cluster, *profile;
    cli_list sets;
    int64_t n_seeds, n_evals, ways, n_micro, n_devices;
    double max_epochs;
    bool keep, is_quiet, want_json;
} arguments;

static void tell(void *user, const fr_trial *t, const fr_progress *p)
{
    const fr_goal *goal = user;
    const fr_eval_point *last = t->n_points > 0 ? &t->points[t->n_points - 1] : NULL;
    char head[96], tail[160] = "";
    int n = snprintf(head, sizeof head, "batch %lld, seed %llu:", (long long)t->batch,
                     (unsigned long long)t->seed);
    if (p)
        snprintf(head + n, sizeof head - (size_t)n, " step %lld/%lld", (long long)p->step,
                 (long long)p->n_steps);
    if (last)
        snprintf(tail, sizeof tail, "epoch %.2f, loss %.4f, accuracy %.2f %%", last->epochs,
                 last->loss, 100 * last->accuracy);
    if (p) {
        term_status(head, (double)p->step / (double)p->n_steps, tail);
        return;
    }
    bool is_missed = goal->kind != FR_GOAL_OWN && isnan(fr_trial_epochs(t, goal));
    term_end_status();
    term_say(TERM_PLAIN, "%s %s%s%s", head, tail, t->diverged ? ", diverged" : "",
             is_missed ? ", not reached" : "");
}

static void print_rows(const fr_efficiency *e)
{
    printf("epochs to %s %.4g, evaluated on other data than trained on (measured)\n\n",
           e->goal.kind == FR_GOAL_LOSS ? "loss" : "accuracy", e->goal.value);
    printf("%9s  %9s  %8s  %17s  %9s  %8s\n", "batch", "lr", "epochs", "least .. most", "updates",
           "E1/E");
    for (int i = 0; i < e->n_rows; i++) {
        const fr_efficiency_row *r = &e->rows[i];
        printf("%9lld  %9.3g  ", (long long)r->batch, r->lr);
        if (isnan(r->epochs))
            printf("not reached by %d of %d\n", r->n_seeds - r->n_reached, r->n_seeds);
        else
            printf("%8.3f  %7.3f .. %6.3f  %9.0f  %8.3f\n", r->epochs, r->least, r->most,
                   r->epochs * (double)e->n_train / (double)r->batch, r->ratio);
    }
}

static const char *number(double value, const char *format, char text[24])
{
    if (isnan(value))
        snprintf(text, 24, "-");
    else
        snprintf(text, 24, format, value);
    return text;
}

static const char *winner(const fr_time_row *r)
{
    if (isnan(r->dp_speedup) || isnan(r->hybrid_speedup)) return "";
    return r->hybrid_speedup > r->dp_speedup ? "hybrid" : "dp";
}

static void print_verdict(int ways, const fr_time_verdict *v)
{
    if (v->crossover)
        printf("\nhybrid (%d-way pipelines) overtakes data parallelism at %d devices\n", ways,
               v->crossover);
    else
        printf("\nhybrid (%d-way pipelines) does not overtake data parallelism here\n", ways);
    if (v->dp_devices && v->hybrid_devices)
        printf("best: data parallel %.2fx on %d devices, hybrid %.2fx on %d: %+.1f %%\n",
               v->dp_speedup, v->dp_devices, v->hybrid_speedup, v->hybrid_devices,
               100 * (v->hybrid_speedup / v->dp_speedup - 1));
    printf("-: not measured: a batch above the largest of --batches, or a quality not reached\n");
}

static void print_time(const fr_scaling *s, const fr_time_row *rows, const fr_time_verdict *v,
                       bool simulated)
{
    char a[24], b[24], c[24], d[24], e[24];
    printf("\ntime to that quality, over one device: epochs measured, step times %s\n\n",
           simulated ? "simulated" : "as given");
    printf("%8s  %9s  %6s  %8s  %9s  %9s  %8s  %9s  %s\n", "devices", "dp batch", "SE", "epochs",
           "dp", "hyb.batch", "epochs", "hybrid", "winner");
    for (int i = 0; i < s->n_points; i++) {
        const fr_time_row *r = &rows[i];
        printf("%8d  %9lld  %6s  %8s  %9s  %9lld  %8s  %9s  %s\n", r->devices,
               (long long)r->dp_batch, number(r->dp_efficiency, "%.3f", a),
               number(r->dp_epochs, "%.3f", b), number(r->dp_speedup, "%.2fx", c),
               (long long)r->hybrid_batch, number(r->hybrid_epochs, "%.3f", d),
               number(r->hybrid_speedup, "%.2fx", e), winner(r));
    }
    print_verdict(s->ways, v);
}

static void print_json(const fr_efficiency *e, const fr_scaling *s, const fr_time_row *rows,
                       const fr_time_verdict *v)
{
    json_t *batches = json_array(), *time = json_array();
    for (const fr_efficiency_row *r = e->rows; r < e->rows + e->n_rows; r++)
        json_array_append_new(
            batches, json_pack("{sI sf si si so so so so}", "batch", (json_int_t)r->batch, "lr",
                               r->lr, "seeds", r->n_seeds, "reached", r->n_reached, "epochs",
                               json_finite(r->epochs), "least", json_finite(r->least), "most",
                               json_finite(r->most), "ratio", json_finite(r->ratio)));
    for (const fr_time_row *r = rows; r < rows + s->n_points; r++)
        json_array_append_new(
            time, json_pack("{si sI sI so so so so so}", "devices", r->devices, "dp_batch",
                            (json_int_t)r->dp_batch, "hybrid_batch", (json_int_t)r->hybrid_batch,
                            "dp_efficiency", json_finite(r->dp_efficiency), "dp_epochs",
                            json_finite(r->dp_epochs), "hybrid_epochs",
                            json_finite(r->hybrid_epochs), "dp_speedup", json_finite(r->dp_speedup),
                            "hybrid_speedup", json_finite(r->hybrid_speedup)));
    json_t *root = json_pack("{s{ss sf} sI so}", "target", "by",
                             e->goal.kind == FR_GOAL_LOSS ? "loss" : "accuracy", "value",
                             e->goal.value, "n_train", (json_int_t)e->n_train, "batches", batches);
    json_t *step_times =
        json_pack("{si si si si so}", "ways", s->ways, "crossover", v->crossover, "dp_devices",
                  v->dp_devices, "hybrid_devices", v->hybrid_devices, "time", time);
    if (s->n_points > 0) json_object_update(root, step_times);
    json_decref(step_times);
    json_print_line(root);
}

/* Step times, if requested, and both tables. */
static fr_status show(fr_ctx *ctx, const arguments *a, const fr_run_options *run,
                      const fr_efficiency *e)
{
    fr_scaling s = {0};
    int ways = (int)a->ways;
    fr_time_verdict v = {0};
    if (a->scaling) FR_TRY(fr_scaling_read(ctx, a->scaling, ways, &s));
    if (a->cluster) {
        fr_scaling_options o = {.run = run,
                                .batch = e->rows[0].batch,
                                .ways = ways,
                                .n_micro = (int)a->n_micro,
                                .max_devices = (int)a->n_devices,
                                .cluster = a->cluster,
                                .profile = a->profile};
        FR_TRY(fr_scaling_simulate(ctx, &o, &s));
    }
    fr_time_row *rows = calloc((size_t)s.n_points + 1, sizeof *rows);
    if (!rows) {
        fr_scaling_free(&s);
        return fr_fail(ctx, FR_NO_MEMORY, "out of memory for %d rows", s.n_points);
    }
    if (s.n_points > 0) fr_time_to_accuracy(e, &s, rows, &v);
    if (a->want_json) {
        print_json(e, &s, rows, &v);
    } else {
        print_rows(e);
        if (s.n_points > 0) print_time(&s, rows, &v, a->cluster != NULL);
        printf("\n%s/efficiency.json\n", a->out);
    }
    free(rows);
    fr_scaling_free(&s);
    return FR_OK;
}

static int check(const arguments *a, fr_efficiency_options *o, int64_t *batches)
{
    if (!a->config)
        return cli_refuse("forerun efficiency: no config given (forerun help efficiency)");
    o->n_batches = a->batches ? cli_numbers(a->batches, MAX_BATCHES, batches) : 0;
    if (o->n_batches == 0)
        return cli_refuse("forerun efficiency: --batches takes up to %d sizes, as 32,64,128",
                          MAX_BATCHES);
    if (a->target && !fr_goal_parse(a->target, &o->goal))
        return cli_refuse("forerun efficiency: --target %s: expected loss=X or accuracy=X (0 to 1)",
                          a->target);
    if (a->scale_lr && !fr_lr_rule_parse(a->scale_lr, &o->lr_rule))
        return cli_refuse("forerun efficiency: --scale-lr %s: expected linear, sqrt or none",
                          a->scale_lr);
    if (a->n_seeds < 1 || a->n_seeds > 1000 || a->n_evals < 1 || a->n_evals > 10000)
        return cli_refuse("forerun efficiency: --seeds and --evals must be at least 1");
    if (a->max_epochs < 0 || !(a->max_epochs < 1e6))
        return cli_refuse("forerun efficiency: --max-epochs must be above 0");
    if (a->scaling && a->cluster)
        return cli_refuse("forerun efficiency: step times come from --scaling or from --cluster, "
                          "not from both");
    if (a->ways < 2 || a->ways > 1024)
        return cli_refuse("forerun efficiency: --pipeline must be between 2 and 1024");
    return -1;
}

#define AT(member) offsetof(arguments, member)
static const cli_option options[] = {
    {"batches", "B,B,...", "global batches, multiples of the config's micro-batch", CLI_TEXT,
     AT(batches)},
    {"target", "loss=X", "quality to reach, or accuracy=X (default: see above)", CLI_TEXT,
     AT(target)},
    {"seeds", "K", "trainings per batch, with consecutive seeds (1)", CLI_INT, AT(n_seeds)},
    {"scale-lr", "linear|sqrt|none", "lr for other batches (linear)", CLI_TEXT, AT(scale_lr)},
    {"max-epochs", "E", "limit of each training (3 times the config's)", CLI_REAL, AT(max_epochs)},
    {"evals", "N", "evaluations per epoch (4)", CLI_INT, AT(n_evals)},
    {"out", "DIR", "folder of the results (runs/efficiency)", CLI_TEXT, AT(out)},
    {"cluster", "FILE", "simulate the time to quality on 1, 2, 4, ... of its devices", CLI_TEXT,
     AT(cluster)},
    {"profile", "FILE", "with --cluster: use this profile instead of measuring", CLI_TEXT,
     AT(profile)},
    {"devices", "N", "with --cluster: use at most this many devices", CLI_COUNT, AT(n_devices)},
    {"scaling", "FILE", "step times instead: CSV of devices,dp_s,hybrid_s", CLI_TEXT, AT(scaling)},
    {"pipeline", "M", "stages per pipeline of hybrid training (2)", CLI_INT, AT(ways)},
    {"micro", "K", "micro-batches of such a pipeline (up to 4 per stage)", CLI_COUNT, AT(n_micro)},
    {"keep", NULL, "keep the checkpoints of the trainings", CLI_FLAG, AT(keep)},
    CLI_SET(AT(sets)),
    CLI_QUIET(AT(is_quiet)),
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    static arguments a;
    static int64_t batches[MAX_BATCHES];
    a = (arguments){.n_seeds = 1, .n_evals = 4, .ways = 2};
    int code = cli_parse(verb, argc, argv, &a, 1, &a.config);
    if (code >= 0) return code;
    fr_efficiency_options o = {.batches = batches};
    code = check(&a, &o, batches);
    if (code >= 0) return code;
    if (!a.out) a.out = "runs/efficiency";
    fr_ctx *ctx = cli_context(true);
    fr_run_options r = {.size = sizeof r,
                        .config = a.config,
                        .n_sets = a.sets.n,
                        .sets = a.sets.at,
                        .out = a.out,
                        .dump_step = -1,
                        .stop = cli_catch_signals()};
    o.run = &r;
    o.n_seeds = (int)a.n_seeds, o.evals = (int)a.n_evals, o.max_epochs = a.max_epochs;
    o.keep_checkpoints = a.keep;
    o.tell = a.is_quiet ? NULL : tell;
    o.user = &o.goal;
    fr_efficiency e;
    fr_status status = fr_efficiency_measure(ctx, &o, &e);
    if (status == FR_OK) {
        status = show(ctx, &a, &r, &e);
        fr_efficiency_free(&e);
    }
    return cli_finish(ctx, status);
}

const cli_verb cli_efficiency = {
    .name = "efficiency",
    .usage = "efficiency CONFIG --batches B,B,... [--target loss=X|accuracy=X] [--cluster FILE]",
    .summary = "epochs to a quality at each global batch; data parallel against hybrid",
    .text = "Trains the config once for each batch and seed, with gradients accumulated over\n"
            "micro-batches of the config's size, until the evaluation reaches the target. The\n"
            "default target is the best loss that the smallest batch reaches in the config's\n"
            "epochs, plus 1 %. The folder keeps finished trainings, and the same command\n"
            "continues from them.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
