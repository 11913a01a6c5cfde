/* cmd_schedule.c -- forerun schedule: prints or checks the instructions of each worker in time. */
#include "schedule_costs.h"
#include "term.h"
#include "weight_versions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Value of an option that was not given. */
static const int64_t unsaid = INT64_MIN;

typedef struct wishes {
    int64_t stages, micro, chunks, batches, lead; /* 0: not given */
    int64_t columns;                              /* UNSAID: the window's */
    const char *format, *color, *check, *replicas, *costs, *link;
    bool want_json, full_duplex, reorder;
    const fr_policy *policy; /* of the method; NULL: a generator or a file has none */
    int n_each, *each;       /* numbers of --replicas: one for all stages, or one for each */
} wishes;

/* --- printing ------------------------------------------------------------------------------- */

static bool is_coloured(const wishes *o)
{
    if (strcmp(o->color, "auto") != 0) return strcmp(o->color, "always") == 0;
    return term_has_colour(STDOUT_FILENO);
}

static char *as_grid(const fr_schedule *s, const fr_clock *c, const wishes *o)
{
    int columns = o->columns != unsaid ? (int)o->columns : term_columns(STDOUT_FILENO, 160);
    return fr_schedule_to_grid(s, c, columns, is_coloured(o));
}
static char *as_text(const fr_schedule *s, const fr_clock *c, const wishes *o)
{
    (void)c, (void)o;
    return fr_schedule_to_text(s);
}
static char *as_csv(const fr_schedule *s, const fr_clock *c, const wishes *o)
{
    (void)c, (void)o;
    return fr_schedule_to_csv(s);
}
static char *as_json(const fr_schedule *s, const fr_clock *c, const wishes *o)
{
    (void)o;
    return fr_schedule_to_json(s, c);
}

/* No notes if the pipeline drains, because all passes read the same weights, or if the policy does
 * not support these stages and micro-batches. */
static char *as_svg(const fr_schedule *s, const fr_clock *c, const wishes *o)
{
    if (!o->policy || s->n_batches == 1) return fr_schedule_to_svg(s, c, NULL);
    weight_versions *r;
    fr_ctx *own = cli_context(true);
    fr_status status = versions_create(own, s, o->policy, NULL, &r);
    fr_ctx_free(own);
    if (status != FR_OK) return status == FR_NO_MEMORY ? NULL : fr_schedule_to_svg(s, c, NULL);
    fr_notes notes = {.text = versions_text, .user = r, .legend = versions_legend(r)};
    char *text = fr_schedule_to_svg(s, c, &notes);
    versions_free(r);
    return text;
}

static void print_ints(const char *name, int n, const int *values)
{
    printf(", %s", name);
    for (int i = 0; i < n && i < 16; i++) printf(" %d", values[i]);
    if (n > 16) printf(" ...");
}

/* Output of --check for a valid file. */
static char *as_verdict(const fr_schedule *s, const fr_clock *c, const wishes *o)
{
    static char nothing[1];
    printf("%s: valid: %d worker%s, %d stage%s, %d micro-batch%s", o->check, s->n_workers,
           s->n_workers == 1 ? "" : "s", s->n_stages, s->n_stages == 1 ? "" : "s", s->n_micro,
           s->n_micro == 1 ? "" : "es");
    if (s->n_batches > 1) printf(" per mini-batch, %d mini-batches", s->n_batches);
    if (s->is_forward_only) printf(", forward only");
    printf(", makespan %g", c->makespan);
    if (c->period > 0) printf(", period %g", c->period);
    print_ints("peak live", s->n_workers, c->peak_live);
    printf("\n");
    return nothing;
}

static const struct form {
    const char *name;
    char *(*print)(const fr_schedule *s, const fr_clock *c, const wishes *o);
} forms[] = {
    {"grid", as_grid}, {"text", as_text}, {"csv", as_csv}, {"json", as_json}, {"svg", as_svg}};
static const struct form verdict = {"verdict", as_verdict};

static const struct form *find_form(const char *name)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    return NULL;
}

/* Only proved schedules are printed. */
static fr_status check_and_print(fr_ctx *ctx, const fr_schedule *s, const struct form *form,
                                 const wishes *o)
{
    fr_clock c = {0};
    schedule_costs costs;
    char *text = NULL;
    FR_TRY(fr_schedule_check(ctx, s));
    fr_status status = costs_read(ctx, o->costs, o->link, s, &costs);
    costs.costs.is_full_duplex = o->full_duplex;
    if (status == FR_OK) status = fr_schedule_clock(ctx, s, costs_of(&costs), &c);
    if (status == FR_OK) status = fr_schedule_period(ctx, s, costs_of(&costs), &c.period);
    if (status == FR_OK) text = form->print(s, &c, o);
    fr_clock_free(&c);
    costs_free(&costs);
    if (status != FR_OK) return status;
    if (!text) return fr_fail(ctx, FR_NO_MEMORY, "out of memory for the text of a schedule");
    if (form == &verdict) return FR_OK;
    fputs(text, stdout);
    fr_text_free(text);
    return FR_OK;
}

/* --- by name -------------------------------------------------------------------------------- */

static fr_status unknown_method(fr_ctx *ctx, const char *name)
{
    char list[768] = "";
    size_t n = 0;
    for (const fr_method *const *m = fr_method_list(); *m && n < sizeof list; m++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", (*m)->name);
    for (const fr_generator *const *g = fr_generator_list(); *g && n < sizeof list; g++)
        if (!fr_method_find((*g)->name))
            n += (size_t)snprintf(list + n, sizeof list - n, ", %s", (*g)->name);
    return fr_fail(ctx, FR_INVALID, "no method is called '%s'; there are: %s", name, list);
}

/* One number for all stages becomes one for each. */
static fr_status spread_replicas(fr_ctx *ctx, wishes *o, int n_stages)
{
    if (!o->each || o->n_each == n_stages) return FR_OK;
    if (o->n_each > 1)
        return fr_fail(ctx, FR_INVALID,
                       "--replicas %s has %d numbers for %d stages; give one for each, or one for "
                       "all of them",
                       o->replicas, o->n_each, n_stages);
    int *each = realloc(o->each, (size_t)n_stages * sizeof *each);
    if (!each) return fr_fail(ctx, FR_NO_MEMORY, "out of memory for %d stages", n_stages);
    for (int k = 1; k < n_stages; k++) each[k] = each[0];
    o->each = each, o->n_each = n_stages;
    return FR_OK;
}

static fr_status print_method(fr_ctx *ctx, const char *name, wishes *o)
{
    const fr_method *m = fr_method_find(name);
    const fr_generator *g = fr_generator_find(m ? m->generator : name);
    const struct form *form = find_form(o->format ? o->format : "grid");
    int64_t most = m && m->max_stages > 0 ? m->max_stages : INT32_MAX;
    int64_t stages = o->stages ? o->stages : o->n_each > 1 ? o->n_each : most < 4 ? most : 4;
    if (!g) return unknown_method(ctx, name);
    if (stages > most)
        return fr_fail(ctx, FR_INVALID, "%s runs on at most %lld stage%s, not %lld", name,
                       (long long)most, most == 1 ? "" : "s", (long long)stages);
    int64_t chunks = o->chunks ? o->chunks : m ? m->chunks : 0;
    fr_schedule_desc d = {.name = name,
                          .n_stages = (int)stages,
                          .n_micro = o->micro ? (int)o->micro : 8,
                          .n_batches = (int)o->batches,
                          .chunks = (int)chunks,
                          .lead = (int)o->lead,
                          .reorder = o->reorder};
    FR_TRY(spread_replicas(ctx, o, d.n_stages));
    d.replicas = o->each;
    const fr_schedule *s;
    o->policy = m ? fr_policy_find(m->policy) : NULL;
    FR_TRY(versions_set_batches(ctx, g, &d));
    FR_TRY(fr_schedule_create(ctx, g, &d, &s));
    fr_status status = check_and_print(ctx, s, form, o);
    fr_schedule_free(s);
    return status;
}

/* --- a file --------------------------------------------------------------------------------- */

static fr_status check_file(fr_ctx *ctx, const wishes *o)
{
    const fr_schedule_desc d = {.n_stages = o->n_each > 1 ? o->n_each : 0, .replicas = o->each};
    const fr_schedule *s;
    FR_TRY(fr_schedule_read(ctx, o->check, (int)o->micro, &d, &s));
    fr_status status = check_and_print(ctx, s, o->format ? find_form(o->format) : &verdict, o);
    fr_schedule_free(s);
    return status == FR_OK ? FR_OK : fr_fail(ctx, status, "%s: %s", o->check, fr_ctx_error(ctx));
}

/* --- the verb ------------------------------------------------------------------------------- */

/* "2" or "3,1,1" into o->each. */
static const char *read_replicas(wishes *o)
{
    static const char wrong[] = "--replicas: expected a number from 1 to 1000000, or one for each "
                                "stage with commas between, as 3,1";
    const char *at = o->replicas;
    int n = 1;
    if (!at) return NULL;
    for (const char *c = at; *c; c++) n += *c == ',';
    o->each = calloc((size_t)n, sizeof *o->each);
    if (!o->each) return "--replicas: out of memory";
    for (int k = 0; k < n; k++, at++) {
        int64_t value = 0;
        const char *first = at;
        for (; *at >= '0' && *at <= '9' && value <= 1000000; at++) value = 10 * value + *at - '0';
        if (at == first || value < 1 || value > 1000000 || (*at != ',' && *at)) return wrong;
        o->each[k] = (int)value;
    }
    o->n_each = n;
    return NULL;
}

static const char *complaint(const char *method, wishes *o)
{
    if (!method && !o->check) return "no method given (or --check FILE)";
    if (method && o->check) return "a method or --check FILE, not both";
    if (o->format && !find_form(o->format))
        return "--format: expected grid, text, csv, json or svg";
    if (strcmp(o->color, "auto") != 0 && strcmp(o->color, "always") != 0 &&
        strcmp(o->color, "never") != 0)
        return "--color: expected auto, always or never";
    if (o->columns != unsaid && (o->columns < 0 || o->columns > 100000))
        return "--columns: expected 0 to 100000";
    if (o->full_duplex && !o->link) return "--full-duplex: only with --link T";
    if (o->check && (o->stages || o->chunks || o->batches || o->lead || o->reorder))
        return "--check takes stages, chunks, mini-batches and order from the file";
    return read_replicas(o);
}

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"stages", "N", "parts of the model (4)", CLI_COUNT, AT(stages)},
    {"micro", "M", "micro-batches per mini-batch (8; --check: all in the file)", CLI_COUNT,
     AT(micro)},
    {"chunks", "V", "stages per worker (1; interleaved: 2)", CLI_COUNT, AT(chunks)},
    {"lead", "C", "1f1b, asynchronous methods: forwards ahead per stage to come (1)", CLI_COUNT,
     AT(lead)},
    {"reorder", NULL, "v-half, v-min: a shorter fill and drain in the same memory", CLI_FLAG,
     AT(reorder)},
    {"batches", "B", "mini-batches (1; without flush: enough to see the steady state)", CLI_COUNT,
     AT(batches)},
    {"replicas", "R", "workers per stage: 2, or one number for each, 3,1 (1; --check: the file's)",
     CLI_TEXT, AT(replicas)},
    {"costs", "F=..,I=..,W=..,B=..", "times: a number, or one for each stage (1; B: I + W)",
     CLI_TEXT, AT(costs)},
    {"link", "T", "time of a transfer between workers; T,U,..: of each link (0)", CLI_TEXT,
     AT(link)},
    {"full-duplex", NULL, "a link carries one transfer each way; else one at a time", CLI_FLAG,
     AT(full_duplex)},
    {"format", "grid|text|csv|json|svg", "how to print it; csv is PyTorch's (grid)", CLI_TEXT,
     AT(format)},
    CLI_JSON(AT(want_json)),
    {"check", "FILE", "prove the schedule in a text or csv file", CLI_TEXT, AT(check)},
    {"columns", "N", "width of the grid; 0: any (the window's)", CLI_INT, AT(columns)},
    {"color", "auto|always|never", "auto: on a terminal (auto)", CLI_TEXT, AT(color)},
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {.columns = unsaid, .color = "auto"};
    const char *method;
    int code = cli_parse(verb, argc, argv, &o, 1, &method);
    if (code >= 0) return code;
    if (o.want_json) o.format = "json";
    const char *wrong = complaint(method, &o);
    if (wrong) {
        free(o.each);
        return cli_refuse("forerun schedule: %s (forerun help schedule)", wrong);
    }
    fr_ctx *ctx = cli_context(false);
    fr_status status = o.check ? check_file(ctx, &o) : print_method(ctx, method, &o);
    free(o.each);
    return cli_finish(ctx, status);
}

const cli_verb cli_schedule = {
    .name = "schedule",
    .usage = "schedule METHOD [--stages N] [--micro M] [--chunks V] [--batches B] [--replicas R]\n"
             "           [--lead C] [--reorder] [--costs F=..,I=..,W=..,B=..] [--link T,..]\n"
             "           [--format F]\n"
             "       forerun schedule --check FILE [--micro M] [--replicas R] [--costs ..] [--link "
             "T,..]",
    .summary = "print the schedule of each worker, or check a schedule file",
    .text =
        "METHOD is a method (forerun methods) or a generator (docs/schedules.md). Times: F, I\n"
        "and W take 1, B takes I and W, transfers nothing; --costs and --link change that. The\n"
        "makespan is the time of one mini-batch, the period that of each further one: workers\n"
        "begin the next without a barrier. Two workers share one link, half-duplex unless\n"
        "--full-duplex is given, which serves transfers in the order of their requests. --link\n"
        "takes one number, or one for each link: of a chain the links between stages 0 and 1, 1\n"
        "and 2, ... For an invalid file the command prints a counter-example with worker, step\n"
        "and instruction, and exits with code 2.\n",
    .argument = "METHOD",
    .options = options,
    .run = run,
};
