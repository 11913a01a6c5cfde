/* cmd_methods.c -- forerun methods: lists the names that config keys take, with a line on each; or
 * one method in numbers: what its workers hold, the weights that its passes read, the time they
 * wait; or the limits of stability of all. */
#include "json.h"
#include "stability.h"
#include "weight_versions.h"

#include <stdio.h>
#include <string.h>

/* --- the lists ---------------------------------------------------------------------------------*/

/* The sections: title, name in JSON, and records with name and summary. */
#define SECTIONS(X)                                                                     \
    X("parallel.method", "methods", fr_method_list())                                   \
    X("parallel.weights (a method's own unless given)", "weights", fr_policy_list())    \
    X("schedules, as `forerun schedule` prints them", "schedules", fr_generator_list()) \
    X("train.optimizer.name", "optimizers", fr_optim_list())                            \
    X("train.schedule.name", "lr_schedules", fr_lr_list())                              \
    X("data.name", "data", fr_data_list())

static void print_lists(void)
{
#define PRINT(title, key, list) \
    printf("%s\n", title);      \
    for (int i = 0; (list)[i]; i++) printf("  %-15s %s\n", (list)[i]->name, (list)[i]->summary);
    SECTIONS(PRINT)
}

static json_t *pack_lists(void)
{
    json_t *root = json_object();
    int failed = 0;
#define PACK(title, key, list)                    \
    json_object_set_new(root, key, json_array()); \
    for (int i = 0; (list)[i]; i++)               \
        failed |= json_array_append_new(          \
            json_object_get(root, key),           \
            json_pack("{ss ss}", "name", (list)[i]->name, "summary", (list)[i]->summary));
    SECTIONS(PACK)
    if (!failed) return root;
    json_decref(root);
    return NULL;
}

/* --- one method --------------------------------------------------------------------------------*/

typedef struct wishes {
    int64_t stages, micro; /* -1: not given */
    const char *format, *method;
    cli_list sets;
    bool stability, want_json;
} wishes;

/* The largest difference between the weights that a pass of a stage reads and those of a single
 * worker: updates missing, and updates predicted. */
typedef struct farthest {
    int behind, ahead;
} farthest;

static void widen(farthest *f, int behind, int ahead)
{
    if (behind > f->behind) f->behind = behind;
    if (ahead > f->ahead) f->ahead = ahead;
}

/* [0] forwards, [1] backwards of a stage. */
static void survey(const fr_schedule *s, const weight_versions *r, int stage, farthest to[2])
{
    int w = s->worker_of[stage];
    to[0] = to[1] = (farthest){0, 0};
    for (int i = 0; i < s->lists[w].n; i++) {
        const fr_instr *x = &s->lists[w].at[i];
        int version, ahead;
        bool is_forward = x->action == FR_DO_F;
        if (x->stage != stage || !(is_forward || x->action == FR_DO_B || x->action == FR_DO_I))
            continue;
        versions_at(r, w, i, &version, &ahead);
        widen(&to[!is_forward], x->micro / s->n_micro - version, ahead);
    }
}

static const char *pass_text(const farthest *f, bool is_back, char *text, size_t room)
{
    int n =
        f->behind ? snprintf(text, room, "%d late", f->behind) : snprintf(text, room, "up to date");
    if (f->ahead)
        snprintf(text + n, room - (size_t)n, ", %d %s", f->ahead,
                 is_back ? "walked back" : "predicted");
    return text;
}

static void print_stages(const fr_schedule *s, const fr_clock *c, const fr_policy *policy,
                         const weight_versions *r, bool is_markdown)
{
    const char *form =
        is_markdown ? "| %s | %s | %s | %s | %s | %s |\n" : "%-5s  %-6s  %-13s  %-15s  %-23s  %s\n";
    bool is_back = policy->extrapolation == FR_EXTRAPOLATE_DRIFT;
    if (is_markdown) printf("\n");
    printf(form, "stage", "worker", "weight copies", "activation sets", "forward reads",
           "backward reads");
    if (is_markdown) printf("|---|---|---|---|---|---|\n");
    for (int k = 0; k < s->n_stages; k++) {
        farthest to[2];
        char stage[16], worker[16], copies[16], sets[16], forward[64], backward[64];
        int w = s->worker_of[k];
        survey(s, r, k, to);
        snprintf(stage, sizeof stage, "%d", k);
        snprintf(worker, sizeof worker, "%d", w);
        snprintf(copies, sizeof copies, "%d", versions_n_copies(r, k));
        snprintf(sets, sizeof sets, "%d", c->peak_live[w]);
        printf(form, stage, worker, copies, sets,
               pass_text(&to[0], is_back, forward, sizeof forward),
               pass_text(&to[1], is_back, backward, sizeof backward));
    }
}

/* Rates and momentum of the stages, where the policy makes them differ. */
static void print_rates(const fr_schedule *s, const fr_policy *policy, const weight_versions *r,
                        const fr_update_rule *rule, bool is_markdown)
{
    const bool is_mean = rule->options.beta1 > 0;
    const double own = is_mean ? rule->options.beta1 : rule->options.momentum;
    char title[64];
    const char *form = is_markdown ? "| %s | %s | %s |\n" : "%-5s  %-13s  %s\n";
    if (!policy->adapt) return;
    snprintf(title, sizeof title, "%s of %.4g", is_mean ? "beta1" : "momentum", own);
    printf("\n");
    printf(form, "stage", "learning rate", title);
    if (is_markdown) printf("|---|---|---|\n");
    for (int k = 0; k < s->n_stages; k++) {
        const fr_policy_context *c = versions_context(r, k);
        fr_optim_options o = rule->options;
        char stage[16], rate[32], momentum[32];
        policy->adapt(c, &o);
        snprintf(stage, sizeof stage, "%d", k);
        snprintf(rate, sizeof rate, "x %.4g", policy->lr_factor ? policy->lr_factor(c, 0) : 1);
        snprintf(momentum, sizeof momentum, "%.4g", is_mean ? o.beta1 : o.momentum);
        printf(form, stage, rate, momentum);
    }
}

static void print_card(const fr_method *m, const fr_schedule *s, const fr_clock *c,
                       const weight_versions *r, const fr_update_rule *rule, bool is_markdown)
{
    double busy = 0, ideal = 0;
    for (int w = 0; w < s->n_workers; w++) {
        busy += c->busy[w];
        if (c->busy[w] > ideal) ideal = c->busy[w];
    }
    if (!is_markdown)
        printf("%s: %s\nschedule %s, weights %s, sync %s\n", m->name, m->summary, m->generator,
               m->policy, m->sync ? m->sync : fr_sync_list()[0]->name);
    printf("%s%d stage%s on %d worker%s, %d micro-batch%s per mini-batch: ",
           is_markdown ? "" : "\n", s->n_stages, s->n_stages == 1 ? "" : "s", s->n_workers,
           s->n_workers == 1 ? "" : "s", s->n_micro, s->n_micro == 1 ? "" : "es");
    if (s->n_batches == 1)
        printf("a mini-batch takes %g, workers are idle for %.1f %% of it; each further one takes "
               "%g, idle for %.1f %%.\n",
               c->makespan, 100 * (1 - busy / (c->makespan * s->n_workers)), c->period,
               100 * (1 - busy / (c->period * s->n_workers)));
    else
        printf("a mini-batch takes %g once the pipeline is full; filling and draining it takes %g "
               "more, once per segment.\n",
               ideal / s->n_batches, c->makespan - ideal);
    print_stages(s, c, fr_policy_find(m->policy), r, is_markdown);
    print_rates(s, fr_policy_find(m->policy), r, rule, is_markdown);
}

static fr_status show(fr_ctx *ctx, const fr_method *m, const fr_update_rule *rule, const wishes *o)
{
    const fr_generator *g = fr_generator_find(m->generator);
    int most = m->max_stages > 0 ? m->max_stages : 1 << 20, chunks = m->chunks > 0 ? m->chunks : 1;
    fr_schedule_desc d = {.n_stages = (int)(o->stages < most ? o->stages : most) * chunks,
                          .n_micro = (int)o->micro,
                          .chunks = m->chunks};
    const fr_schedule *s = NULL;
    fr_clock c = {0};
    fr_status status = versions_set_batches(ctx, g, &d);
    if (status == FR_OK) status = fr_schedule_create(ctx, g, &d, &s);
    if (status == FR_OK) status = fr_schedule_check(ctx, s);
    if (status == FR_OK) status = fr_schedule_clock(ctx, s, NULL, &c);
    if (status == FR_OK) status = fr_schedule_period(ctx, s, NULL, &c.period);
    if (status == FR_OK) {
        weight_versions *r;
        status = versions_create(ctx, s, fr_policy_find(m->policy), &rule->policy_options, &r);
        if (status == FR_OK) print_card(m, s, &c, r, rule, strcmp(o->format, "markdown") == 0);
        versions_free(r);
    }
    fr_clock_free(&c);
    fr_schedule_free(s);
    return status;
}

/* --- the verb ----------------------------------------------------------------------------------*/

static int no_method(const char *name)
{
    return cli_refuse("forerun methods: no method is called '%s' (forerun methods lists them)",
                      name);
}

static fr_status read_rule(fr_ctx *ctx, const wishes *o, const char *config, fr_update_rule *rule)
{
    const fr_run_options of_run = {
        .size = sizeof of_run, .config = config, .n_sets = o->sets.n, .sets = o->sets.at};
    return fr_run_update_rule(ctx, &of_run, rule);
}

static int run_stability(const wishes *o, const char *config)
{
    const fr_method *only = o->method ? fr_method_find(o->method) : NULL;
    if (o->method && !only) return no_method(o->method);
    fr_ctx *ctx = cli_context(false);
    fr_update_rule rule;
    fr_status status = read_rule(ctx, o, config, &rule);
    if (status != FR_OK) return cli_finish(ctx, status);
    int stages = rule.stages > 1 ? rule.stages : 4;
    return stability_print(ctx, &rule, o->stages > 0 ? (int)o->stages : stages,
                           o->micro > 0 ? (int)o->micro : rule.micro, only,
                           o->want_json                         ? STABILITY_JSON
                           : strcmp(o->format, "markdown") == 0 ? STABILITY_MARKDOWN
                                                                : STABILITY_TABLE);
}

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"stages", "N", "workers of the pipeline (4; --stability: the config's)", CLI_INT, AT(stages)},
    {"micro", "M", "micro-batches per mini-batch (8; --stability: the config's)", CLI_INT,
     AT(micro)},
    {"stability", NULL, "limits of the learning rate; the argument is a config", CLI_FLAG,
     AT(stability)},
    {"method", "METHOD", "--stability: this method alone", CLI_TEXT, AT(method)},
    CLI_SET(AT(sets)),
    {"format", "table|markdown", "how to print a method, or limits (table)", CLI_TEXT, AT(format)},
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {.stages = -1, .micro = -1, .format = "table"};
    const char *name;
    int code = cli_parse(verb, argc, argv, &o, 1, &name);
    if (code >= 0) return code;
    if (strcmp(o.format, "table") != 0 && strcmp(o.format, "markdown") != 0)
        return cli_refuse("forerun methods: --format: expected table or markdown");
    if (o.stages < -1 || o.stages == 0 || o.stages > 1000 || o.micro < -1 || o.micro == 0 ||
        o.micro > 100000)
        return cli_refuse("forerun methods: expected 1 to 1000 stages, 1 to 100000 micro-batches");
    if (o.stability) return run_stability(&o, name);
    if (o.method || (o.sets.n > 0 && !name))
        return cli_refuse("forerun methods: --method goes with --stability, --set with it or with "
                          "the name of a method");
    if (name && o.want_json)
        return cli_refuse("forerun methods: --json is for the lists: leave '%s' out", name);
    if (o.want_json) return json_print(pack_lists());
    if (!name) {
        print_lists();
        return 0;
    }
    const fr_method *m = fr_method_find(name);
    if (!m) return no_method(name);
    if (o.stages < 0) o.stages = 4;
    if (o.micro < 0) o.micro = 8;
    fr_ctx *ctx = cli_context(false);
    fr_update_rule rule;
    fr_status status = read_rule(ctx, &o, NULL, &rule);
    if (o.sets.n == 0) rule.options.momentum = 0.9; /* a usual one */
    return cli_finish(ctx, status == FR_OK ? show(ctx, m, &rule, &o) : status);
}

const cli_verb cli_methods = {
    .name = "methods",
    .usage =
        "methods [--json] | METHOD [--stages N] [--micro M] | --stability [CONFIG] [--stages N]",
    .summary = "list parallel methods, weights, schedules, optimizers, data sources",
    .text =
        "With the name of a method: what each of its workers holds (copies of the weights,\n"
        "activations of micro-batches in flight) and the weights that its passes read, in the\n"
        "worst case: updates missing compared with a single worker, and updates predicted. F,\n"
        "I and W take 1, B takes 2. Distances may depend on --set train.optimizer.name=adamw.\n"
        "--stability: the largest learning rate x curvature at which the pipeline is stable in\n"
        "a linear model, of the asynchronous methods beside a single worker, for the optimizer\n"
        "of the config or of --set: in a direction that all stages share, and within the stage\n"
        "that allows least.\n",
    .argument = "METHOD",
    .options = options,
    .run = run,
};
