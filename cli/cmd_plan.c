/* cmd_plan.c -- forerun plan: distributes a model over devices. This file has the verb, and
 * planning from a profile alone; plan_config.c plans with a config. */
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEVELS = 8 };

/* "4" or "8,4" and "1e9" or "1e10,1e9": one number per level. */
static int read_numbers(const char *text, double *out)
{
    int n = 0;
    for (const char *at = text; n < MAX_LEVELS; at++) {
        char *end;
        out[n] = strtod(at, &end);
        if (end == at || !isfinite(out[n]) || out[n] <= 0) return 0;
        n++;
        if (*end == '\0') return n;
        if (*end != ',') return 0;
        at = end;
    }
    return 0;
}

/* Names of the recomputed nodes. */
static void print_recompute(const fr_plan *p, const fr_profile *profile)
{
    int n = 0;
    for (int i = 0; i < profile->n_nodes && p->recompute; i++)
        if (p->recompute[i]) printf("%s%s", n++ ? ", " : "recomputed: ", profile->nodes[i].name);
    if (n) printf("\n");
}

static void print_plan(const fr_plan *p, const fr_profile *profile)
{
    printf("%s: %.6g s, %d stage%s%s\n", p->planner, p->time_s, p->n_stages,
           p->n_stages == 1 ? "" : "s", p->is_optimal ? ", proved the least by its own count" : "");
    printf("  %5s  %8s  %10s  %s\n", "stage", "replicas", "s", "nodes");
    for (int s = 0; s < p->n_stages; s++) {
        int n = 0, first = -1, last = -1;
        for (int i = 0; i < profile->n_nodes; i++) {
            if (p->stage_of[i] != s) continue;
            if (first < 0) first = i;
            last = i, n++;
        }
        cli_line("  %5d  %8d  %10.6g  %d: %s .. %s", s, p->stages[s].replicas, p->stages[s].time_s,
                 n, first < 0 ? "-" : profile->nodes[first].name,
                 last < 0 ? "-" : profile->nodes[last].name);
    }
    print_recompute(p, profile);
    printf("%s\n", p->why);
}

void cli_print_plan(const fr_plan *p, const fr_profile *profile, bool as_json)
{
    char *text = as_json ? fr_plan_to_json(p, profile) : NULL;
    if (text)
        puts(text);
    else if (as_json)
        fprintf(stderr, "forerun plan: out of memory for the plan's text\n");
    else
        print_plan(p, profile);
    fr_text_free(text);
}

const fr_planner *cli_find_planner(fr_ctx *ctx, const char *name)
{
    const fr_planner *found = fr_planner_find(name);
    char list[512];
    size_t n = 0;
    if (found) return found;
    for (const fr_planner *const *p = fr_planner_list(); *p && n < sizeof list; p++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", (*p)->name);
    fr_fail(ctx, FR_INVALID, "no planner is called '%s'; there are: %s", name, list);
    return NULL;
}

static fr_status plan_profile(fr_ctx *ctx, const plan_wishes *o, fr_plan_problem *p)
{
    const fr_planner *planner = cli_find_planner(ctx, o->planner ? o->planner : "pipedream");
    const fr_profile *profile = NULL;
    fr_plan *plan = NULL;
    if (!planner) return FR_INVALID;
    FR_TRY(fr_profile_read(ctx, o->profile, &profile));
    p->profile = profile;
    fr_status status = planner->plan(ctx, p, &plan);
    if (status == FR_OK) cli_print_plan(plan, profile, strcmp(o->format, "json") == 0);
    fr_plan_free(plan);
    fr_profile_free(profile);
    return status;
}

/* Machines and bandwidths of a plan from a profile alone. */
static const char *read_levels(const plan_wishes *o, double *machines, double *bandwidth,
                               int *n_levels)
{
    int n = o->machines ? read_numbers(o->machines, machines) : 0;
    if (!o->profile) return "give a config and --cluster FILE, or --profile FILE";
    if (n == 0)
        return "--machines: expected a number, or one per level, innermost first, as 4 or 8,4";
    for (int i = 0; i < n; i++)
        if (machines[i] != floor(machines[i]) || machines[i] > 1e6)
            return "--machines: expected whole numbers up to 1000000";
    int m = o->bandwidth ? read_numbers(o->bandwidth, bandwidth) : 0;
    if (m != n) return "--bandwidth: expected bytes/s, one number for each of --machines, as 1e9";
    if (o->methods || o->sync || o->async || o->efficiency || o->out || o->cluster || o->sets.n ||
        o->devices)
        return "--methods, --sync, --async, --efficiency, --out, --cluster, --set, --devices: only "
               "with a config";
    *n_levels = n;
    return NULL;
}

static const char *complaint(const plan_wishes *o)
{
    const fr_planner *by = o->planner ? fr_planner_find(o->planner) : NULL;
    bool splits_layers = by && by->splits_layers;
    if (strcmp(o->format, "json") != 0 && strcmp(o->format, "text") != 0)
        return "--format: expected text or json";
    if (!(o->ratio >= 0)) return "--ratio: expected more than 0";
    if (o->ratio > 0 && !splits_layers) return "--ratio: only with --planner pase";
    if (!(o->memory >= 0) || !(o->seconds > 0)) return "--memory, --seconds: expected more than 0";
    if (o->config && !o->cluster && !splits_layers) return "no cluster given (--cluster FILE)";
    if (o->config && (o->machines || o->bandwidth))
        return "--machines, --bandwidth: only without a config; the cluster file has both";
    if ((o->sync != 0) + (o->async != 0) + (o->efficiency != NULL) + (o->methods != NULL) > 1)
        return "--sync, --async, --efficiency or --methods: one of them says which to weigh";
    if ((o->async || o->efficiency) && o->planner)
        return "--async, --efficiency or --planner: a planner does not choose the method";
    if (o->methods && o->planner)
        return "--methods or --planner, not both: a planner does not choose the method";
    return NULL;
}

static int plan_alone(fr_ctx *ctx, const plan_wishes *o)
{
    double machines[MAX_LEVELS], bandwidth[MAX_LEVELS];
    int level_n[MAX_LEVELS], n_levels = 0;
    const char *wrong = read_levels(o, machines, bandwidth, &n_levels);
    if (wrong) {
        fr_ctx_free(ctx);
        return cli_refuse("forerun plan: %s (forerun help plan)", wrong);
    }
    fr_plan_problem p = {.n_devices = 1,
                         .bandwidth = bandwidth[n_levels - 1],
                         .n_micro = o->micro ? (int)o->micro : 1,
                         .n_stages = (int)o->stages,
                         .replicas = (int)o->replicas,
                         .memory = (int64_t)o->memory,
                         .contiguous = o->contiguous,
                         .seconds = o->seconds,
                         .objective = o->objective,
                         .n_levels = n_levels,
                         .level_n = level_n,
                         .level_bandwidth = bandwidth};
    double total = 1;
    for (int i = 0; i < n_levels; i++) total *= machines[i], level_n[i] = (int)machines[i];
    if (total > 1e6) {
        fr_ctx_free(ctx);
        return cli_refuse("forerun plan: --machines: %.0f in all; at most 1000000", total);
    }
    p.n_devices = (int)total;
    return cli_finish(ctx, plan_profile(ctx, o, &p));
}

#define AT(member) offsetof(plan_wishes, member)
static const cli_option options[] = {
    {"cluster", "FILE", "the machines (docs/cluster.md)", CLI_TEXT, AT(cluster)},
    {"profile", "FILE", "JSON of forerun profile, or PipeDream's text (else measured)", CLI_TEXT,
     AT(profile)},
    {"methods", "A,B", "choose among these only", CLI_TEXT, AT(methods)},
    {"async", NULL, "asynchronous methods too: their weights are not those of one worker", CLI_FLAG,
     AT(async)},
    {"efficiency", "FILE", "asynchronous methods that learn as well; A,B: results of efficiency",
     CLI_TEXT, AT(efficiency)},
    {"sync", NULL, "only methods with the weights of one worker (the default)", CLI_FLAG, AT(sync)},
    {"devices", "N", "use at most this many devices (all)", CLI_COUNT, AT(devices)},
    {"all", NULL, "use all devices, even if fewer are as fast", CLI_FLAG, AT(all)},
    {"no-recompute", NULL, "never recompute activations", CLI_FLAG, AT(no_recompute)},
    {"out", "FILE", "write the plan as a config that train runs", CLI_TEXT, AT(out)},
    CLI_SET(AT(sets)),
    {"planner", "PLANNER",
     "one planner: pipedream, dapple, exact, adapipe, bapipe, spp, graphpipe, dlplacer, list, pase "
     "or brute",
     CLI_TEXT, AT(planner)},
    {"ratio", "R", "pase: operations of a device per word of 4 bytes sent (the cluster's)",
     CLI_REAL, AT(ratio)},
    {"machines", "N", "without a config; N,M: of each level, innermost first", CLI_TEXT,
     AT(machines)},
    {"bandwidth", "B", "bytes/s between machines, of each level", CLI_TEXT, AT(bandwidth)},
    {"micro", "M", "a planner's micro-batches (1; with a config up to 8)", CLI_COUNT, AT(micro)},
    {"stages", "S", "number of stages of a planner's layout (any)", CLI_COUNT, AT(stages)},
    {"replicas", "R", "replicas of each stage (any)", CLI_COUNT, AT(replicas)},
    {"memory", "BYTES", "memory per machine (the cluster's, or no limit)", CLI_REAL, AT(memory)},
    {"contiguous", NULL, "stages are ranges of nodes, as training cuts them", CLI_FLAG,
     AT(contiguous)},
    {"objective", "PLANNER", "brute: the planner whose cost model it uses (exact)", CLI_TEXT,
     AT(objective)},
    {"seconds", "S", "dlplacer: time limit of the solver (60)", CLI_REAL, AT(seconds)},
    {"format", "text|json", "how to print it (text)", CLI_TEXT, AT(format)},
    CLI_QUIET(AT(is_quiet)),
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    plan_wishes o = {.seconds = 60, .format = "text"};
    int code = cli_parse(verb, argc, argv, &o, 1, &o.config);
    if (code >= 0) return code;
    if (o.want_json) o.format = "json";
    const char *wrong = complaint(&o);
    if (wrong) return cli_refuse("forerun plan: %s (forerun help plan)", wrong);
    fr_ctx *ctx = cli_context(o.is_quiet || strcmp(o.format, "json") == 0);
    return o.config ? cli_finish(ctx, cli_plan_config(ctx, &o)) : plan_alone(ctx, &o);
}

const cli_verb cli_plan = {
    .name = "plan",
    .usage = "plan CONFIG --cluster FILE [--async | --methods A,B] [--out plan.yaml]\n"
             "       forerun plan CONFIG --cluster FILE --planner NAME [--out plan.yaml]\n"
             "       forerun plan CONFIG --planner pase --devices P --ratio R\n"
             "       forerun plan --profile FILE --machines N --bandwidth B [--planner NAME]",
    .summary = "find the fastest method, stages and devices before the first step",
    .text = "With a config: every method, number of stages, replicas and micro-batches is\n"
            "estimated, the promising ones are simulated on the cluster, and the fastest that\n"
            "fits is printed with the reasons, and for each other method why it lost. Methods\n"
            "whose weights are not those of one worker are weighed with --async only: they may\n"
            "learn less per update. --out writes a config to edit or to train.\n"
            "With --planner, or from a profile alone, one planner makes one layout\n"
            "(docs/plan.md).\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
