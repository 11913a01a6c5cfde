/* cmd_profile.c -- forerun profile: measures the cost of a model's nodes, or this machine as a
 * cluster; prints, writes or converts the result. */
#include "chart.h"
#include "cli.h"
#include "operators.h"
#include "term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct wishes {
    const char *config, *read, *out, *format, *by, *transport, *sizes;
    cli_list sets;
    int64_t batch, workers, nodes;
    double seconds;
    double peak; /* measured FLOP/s; 0: not measured */
    bool cluster, want_json;
} wishes;

/* --- a profile -------------------------------------------------------------------------------- */

static void print_step(const fr_profile *p)
{
    char rate[32];
    int n_micro = p->n_micro > 0 ? p->n_micro : 1;
    if (!(p->step_s > 0)) return;
    printf("a mini-batch of %d x %d samples: %.3f ms, %.1f %% of it accounted for by nodes; %s "
           "samples/s\n",
           n_micro, p->batch, 1e3 * p->step_s, 100 * p->accounted,
           cli_short(n_micro * p->batch / p->step_s, rate, sizeof rate));
}

static void print_head(const fr_profile *p)
{
    char batch[64] = "";
    if (p->batch > 0)
        snprintf(batch, sizeof batch, "%s%d samples per micro-batch", p->model[0] ? ", " : "",
                 p->batch);
    if (p->model[0] || p->batch > 0)
        cli_line("%s%s%s%s", p->model, batch, p->machine[0] ? "; " : "", p->machine);
}

static fr_status show_chart(fr_ctx *ctx, const fr_profile *p, const wishes *o)
{
    (void)ctx;
    print_head(p);
    chart_print(p, (int)o->nodes, term_columns(STDOUT_FILENO, 100), term_has_colour(STDOUT_FILENO));
    print_step(p);
    for (int i = 0; i < p->n_sizes; i++) print_step(p->sizes[i]);
    return FR_OK;
}

static fr_status show_operators(fr_ctx *ctx, const fr_profile *p, const wishes *o)
{
    print_head(p);
    FR_TRY(operators_print(ctx, p, o->peak));
    print_step(p);
    return FR_OK;
}

static fr_status show_operators_json(fr_ctx *ctx, const fr_profile *p, const wishes *o)
{
    return operators_print_json(ctx, p, o->peak);
}

static fr_status show_json(fr_ctx *ctx, const fr_profile *p, const wishes *o)
{
    return fr_profile_write_json(ctx, p, o->out ? o->out : "-");
}

static fr_status show_pipedream(fr_ctx *ctx, const fr_profile *p, const wishes *o)
{
    return fr_profile_write_pipedream(ctx, p, o->out ? o->out : "-");
}

typedef fr_status (*show_fn)(fr_ctx *ctx, const fr_profile *p, const wishes *o);

static const struct form {
    const char *name;
    show_fn by_node, by_operator; /* NULL: this form has no such table */
} forms[] = {{"chart", show_chart, show_operators},
             {"json", show_json, show_operators_json},
             {"pipedream", show_pipedream, NULL}};

static const struct form *find_form(const char *name)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    return NULL;
}

static bool is_by_operator(const wishes *o) { return o->by && strcmp(o->by, "operator") == 0; }

/* Without --format a file is JSON, and the chart is printed too; a table of operators never
 * replaces the profile in the file. */
static fr_status show(fr_ctx *ctx, const fr_profile *p, const wishes *o)
{
    const struct form *form = find_form(o->format ? o->format : "chart");
    show_fn shown = is_by_operator(o) ? form->by_operator : form->by_node;
    if (o->out && (is_by_operator(o) || shown == show_chart)) FR_TRY(show_json(ctx, p, o));
    return shown(ctx, p, o);
}

static fr_status profile_file(fr_ctx *ctx, const wishes *o)
{
    const fr_profile *p, *scaled = NULL;
    FR_TRY(fr_profile_read(ctx, o->read, &p));
    fr_status status = FR_OK;
    if (o->batch > 0) status = fr_profile_scaled(ctx, p, (int)o->batch, &scaled);
    if (status == FR_OK) status = show(ctx, scaled ? scaled : p, o);
    fr_profile_free(scaled);
    fr_profile_free(p);
    return status;
}

enum { MOST_SIZES = 32, MOST_BATCH = 1 << 24, MOST_SECONDS = 86400 };

/* "1,2,8", or "all": the mini-batch and its halves down to 1. Returns their number; 0: neither. */
static int read_sizes(const char *text, int mini_batch, int64_t *sizes)
{
    int n = 0;
    if (strcmp(text, "all") != 0)
        n = cli_numbers(text, MOST_SIZES, sizes);
    else
        for (int size = mini_batch; size > 0; size /= 2) sizes[n++] = size;
    for (int i = 0; i < n; i++)
        if (sizes[i] < 1 || sizes[i] > MOST_BATCH) return 0;
    return n;
}

/* Micro-batches of `batch` samples, and of all requested sizes. */
static fr_status profile_sizes(fr_ctx *ctx, fr_run_model *m, int batch, const wishes *o,
                               const fr_profile **out)
{
    const fr_profile *each[MOST_SIZES + 1];
    int64_t sizes[MOST_SIZES];
    int n = 1;
    int n_sizes = o->sizes ? read_sizes(o->sizes, fr_run_model_batch(m), sizes) : 0;
    *out = NULL;
    FR_TRY(fr_run_model_profile(m, batch, &each[0]));
    for (int i = 0; i < n_sizes; i++) {
        bool is_new = true;
        for (int k = 0; k < n; k++) is_new = is_new && each[k]->batch != sizes[i];
        if (is_new) FR_TRY(fr_run_model_profile(m, (int)sizes[i], &each[n++]));
    }
    return fr_profile_gather(ctx, n, each, out);
}

static fr_status profile_model(fr_ctx *ctx, wishes *o)
{
    fr_run_options run = {.size = sizeof run,
                          .config = o->config,
                          .n_sets = o->sets.n,
                          .sets = o->sets.at,
                          .dump_step = -1};
    fr_run_model *m;
    const fr_profile *p;
    FR_TRY(fr_run_model_open(ctx, &run, NULL, &m));
    fr_run_model_measure(m, (int)o->workers, o->seconds);
    int batch = o->batch > 0 ? (int)o->batch : fr_run_model_micro(m);
    fr_status status = profile_sizes(ctx, m, batch, o, &p);
    if (status == FR_OK && is_by_operator(o)) status = fr_run_model_peak(m, &o->peak);
    if (status == FR_OK) status = show(ctx, p, o);
    fr_profile_free(p);
    fr_run_model_free(m);
    return status;
}

/* --- this machine ----------------------------------------------------------------------------- */

static fr_status profile_cluster(fr_ctx *ctx, fr_team *team, const wishes *o)
{
    const char *name = o->transport ? o->transport : team ? "mpi" : "threads";
    const fr_transport *t = fr_transport_find(name);
    fr_cluster *c;
    if (!t)
        return fr_fail(ctx, FR_INVALID, "no transport is called '%s' (forerun info lists them)",
                       name);
    FR_TRY(fr_probe_cluster(ctx, t, team, (int)o->workers, &c));
    fr_status status = FR_OK;
    if (fr_team_rank(team) == 0) status = fr_cluster_write(ctx, c, o->out ? o->out : "-");
    if (status == FR_OK && o->out) {
        const fr_cluster_group *g = &c->groups[0];
        char rate[32];
        printf("%s: %d devices, %.2f us", o->out, c->n_devices, 1e6 * g->latency);
        if (g->bandwidth > 0)
            printf(", %sB/s over %s\n", cli_short(g->bandwidth, rate, sizeof rate), name);
        else
            printf(" and no time per byte over %s, which passes messages without a copy\n", name);
    }
    fr_cluster_free(c);
    return team ? fr_team_agree(team, status) : status;
}

/* --- the verb --------------------------------------------------------------------------------- */

static int check(const wishes *o)
{
    int n = (o->config != NULL) + (o->read != NULL) + o->cluster;
    if (n != 1)
        return cli_refuse("forerun profile: give a config, or --read FILE, or --cluster%s",
                          n ? ", one of them" : " (forerun help profile)");
    if (o->format && !find_form(o->format))
        return cli_refuse("forerun profile: --format %s: there are chart, json and pipedream",
                          o->format);
    if (o->by && !is_by_operator(o) && strcmp(o->by, "node") != 0)
        return cli_refuse("forerun profile: --by %s: there are node and operator", o->by);
    if (is_by_operator(o) && o->format && !find_form(o->format)->by_operator)
        return cli_refuse("forerun profile: --by operator is a table or JSON; leave --format %s "
                          "out",
                          o->format);
    if (is_by_operator(o) && o->sizes)
        return cli_refuse("forerun profile: --by operator shows micro-batches of one size: give "
                          "--batch N instead of --sizes");
    if (o->batch < 0 || o->batch > MOST_BATCH || o->workers < 0 || o->workers > 4096 ||
        o->nodes < 0 || o->nodes > INT32_MAX || !(o->seconds >= 0 && o->seconds <= MOST_SECONDS))
        return cli_refuse("forerun profile: --batch (up to %d), --workers (up to 4096), --seconds "
                          "(up to %d) and --nodes must be at least 0",
                          MOST_BATCH, MOST_SECONDS);
    int64_t sizes[MOST_SIZES];
    if (o->sizes && read_sizes(o->sizes, 1, sizes) == 0)
        return cli_refuse("forerun profile: --sizes %s: expected all, or up to %d numbers of "
                          "samples, as 1,4,16",
                          o->sizes, MOST_SIZES);
    if (o->sizes && o->format && strcmp(o->format, "pipedream") == 0)
        return cli_refuse("forerun profile: PipeDream's text has micro-batches of one size; "
                          "leave --sizes out, or write JSON");
    if (o->read && (o->sets.n || o->workers || o->seconds > 0 || o->sizes))
        return cli_refuse("forerun profile: --read measures nothing: --set, --workers, --seconds "
                          "and --sizes have no meaning");
    if (o->cluster && (o->sets.n || o->format || o->batch || o->sizes || o->by))
        return cli_refuse("forerun profile: --cluster goes with --workers, --transport and --out");
    if (!o->cluster && fr_team_size_by_launcher() != 1)
        return cli_refuse("forerun profile: a model is measured in one process, and a launcher has "
                          "started several; start it without mpirun or srun");
    return -1;
}

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    CLI_SET(AT(sets)),
    {"batch", "N", "samples of a micro-batch (default: the config's)", CLI_INT, AT(batch)},
    {"sizes", "1,4,16|all", "micro-batches of these sizes too (all: the batch, its halves)",
     CLI_TEXT, AT(sizes)},
    {"workers", "N", "number of concurrent workers (default: one per core)", CLI_INT, AT(workers)},
    {"seconds", "S", "approximate time per size (default: 3)", CLI_REAL, AT(seconds)},
    {"by", "node|operator", "a row per node, or per kind of operator with its GF/s (node)",
     CLI_TEXT, AT(by)},
    {"format", "chart|json|pipedream", "how to print it (chart)", CLI_TEXT, AT(format)},
    {"out", "FILE", "file to write; JSON unless --format is given", CLI_TEXT, AT(out)},
    {"nodes", "N", "rows of the chart, the heaviest (default: 24; 0: all)", CLI_INT, AT(nodes)},
    {"read", "FILE", "show or convert an existing profile, JSON or PipeDream's", CLI_TEXT,
     AT(read)},
    {"cluster", NULL, "this machine as a cluster file instead", CLI_FLAG, AT(cluster)},
    CLI_JSON(AT(want_json)),
    {"transport", "TRANSPORT", "--cluster: transport (default: threads; mpi under mpirun)",
     CLI_TEXT, AT(transport)},
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    static wishes o = {.nodes = 24};
    int code = cli_parse(verb, argc, argv, &o, 1, &o.config);
    if (o.want_json) o.format = "json";
    if (code < 0) code = check(&o);
    if (code >= 0) return code;
    fr_ctx *ctx = cli_context(true);
    if (!o.cluster) return cli_finish(ctx, o.read ? profile_file(ctx, &o) : profile_model(ctx, &o));
    fr_team *team = NULL;
    fr_status status = fr_team_join(ctx, &team);
    if (status == FR_OK) status = profile_cluster(ctx, team, &o);
    return cli_finish_team(ctx, team, status);
}

const cli_verb cli_profile = {
    .name = "profile",
    .usage = "profile CONFIG [--out FILE] | --read FILE [--format NAME] | --cluster [--out FILE]",
    .summary = "measure the cost of a model's nodes on this machine",
    .text = "Runs the model on dummy data, node by node as in training, on every core at once,\n"
            "and shows forward, backward and update time and bytes of each node. --out writes the\n"
            "profile to a file for plan and simulate. --by operator adds nodes up by kind, with\n"
            "GF/s, the share of the measured peak, and the time at the best GF/s of the kind.\n"
            "--cluster measures the links between workers on this machine.\n",
    .is_collective = true,
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
