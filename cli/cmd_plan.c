/* cmd_plan.c -- forerun plan: how to spread a model over devices, from a profile alone. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEVELS = 8 };

typedef struct wishes {
    const char *profile, *machines, *bandwidth, *planner, *objective, *format;
    int64_t stages, replicas, micro;
    double memory, seconds;
    bool contiguous;
} wishes;

/* "4" or "8,4" and "1e9" or "1e10,1e9": one number a level. */
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
        printf("  %5d  %8d  %10.6g  %d: %s .. %s\n", s, p->stages[s].replicas, p->stages[s].time_s,
               n, first < 0 ? "-" : profile->nodes[first].name,
               last < 0 ? "-" : profile->nodes[last].name);
    }
    printf("%s\n", p->why);
}

static fr_status unknown_planner(fr_ctx *ctx, const char *name)
{
    char list[512];
    size_t n = 0;
    for (const fr_planner *const *p = fr_planner_list(); *p && n < sizeof list; p++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", (*p)->name);
    return fr_fail(ctx, FR_INVALID, "no planner is called '%s'; there are: %s", name, list);
}

static fr_status plan_profile(fr_ctx *ctx, const wishes *o, fr_plan_problem *p)
{
    const fr_planner *planner = fr_planner_find(o->planner ? o->planner : "pipedream");
    fr_profile *profile = NULL;
    fr_plan *plan = NULL;
    if (!planner) return unknown_planner(ctx, o->planner);
    FR_TRY(fr_profile_read(ctx, o->profile, &profile));
    p->profile = profile;
    fr_status status = planner->plan(ctx, p, &plan);
    if (status == FR_OK && o->format && strcmp(o->format, "json") == 0) {
        char *text = fr_plan_to_json(plan, profile);
        if (text)
            puts(text);
        else
            status = fr_fail(ctx, FR_NO_MEMORY, "out of memory for the plan's text");
        fr_text_free(text);
    } else if (status == FR_OK) {
        print_plan(plan, profile);
    }
    fr_plan_free(plan);
    fr_profile_free(profile);
    return status;
}

static const char *complaint(const wishes *o, double *machines, double *bandwidth, int *n_levels)
{
    int n = o->machines ? read_numbers(o->machines, machines) : 0;
    if (!o->profile) return "which profile? (--profile FILE)";
    if (n == 0)
        return "--machines: expected a number, or one a level, innermost first, as 4 or 8,4";
    for (int i = 0; i < n; i++)
        if (machines[i] != floor(machines[i]) || machines[i] > 1e6)
            return "--machines: expected whole numbers up to 1000000";
    int m = o->bandwidth ? read_numbers(o->bandwidth, bandwidth) : 0;
    if (m != n) return "--bandwidth: expected bytes/s, one number for each of --machines, as 1e9";
    if (o->format && strcmp(o->format, "json") != 0 && strcmp(o->format, "text") != 0)
        return "--format: expected text or json";
    if (o->stages < 0 || o->replicas < 0 || o->micro < 1 || o->micro > 1000000)
        return "--stages, --replicas, --micro: expected whole numbers from 1";
    if (!(o->memory >= 0) || !(o->seconds > 0)) return "--memory, --seconds: expected more than 0";
    *n_levels = n;
    return NULL;
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {.micro = 1, .seconds = 60};
    const cli_option options[] = {
        {"profile", "FILE", "JSON of forerun profile, or PipeDream's text", CLI_TEXT, &o.profile},
        {"machines", "N", "machines; N,M: of each level, innermost first", CLI_TEXT, &o.machines},
        {"bandwidth", "B", "bytes/s between machines, of each level", CLI_TEXT, &o.bandwidth},
        {"planner", "NAME", "pipedream, dapple, exact, bapipe, dlplacer or brute (pipedream)",
         CLI_TEXT, &o.planner},
        {"micro", "M", "micro-batches of a mini-batch (1)", CLI_INT, &o.micro},
        {"stages", "S", "stages wanted (any)", CLI_INT, &o.stages},
        {"replicas", "R", "replicas wanted, of every stage (any)", CLI_INT, &o.replicas},
        {"memory", "BYTES", "of a machine (no limit)", CLI_REAL, &o.memory},
        {"contiguous", NULL, "stages are ranges of nodes, as training cuts them", CLI_FLAG,
         &o.contiguous},
        {"objective", "NAME", "brute: the planner whose count it goes by (exact)", CLI_TEXT,
         &o.objective},
        {"seconds", "S", "dlplacer: time limit of the solver (60)", CLI_REAL, &o.seconds},
        {"format", "F", "text or json (text)", CLI_TEXT, &o.format},
        {NULL, NULL, NULL, CLI_FLAG, NULL},
    };
    double machines[MAX_LEVELS], bandwidth[MAX_LEVELS];
    int level_n[MAX_LEVELS], n_levels = 0;
    int code = cli_parse(verb, options, argc, argv, 0, NULL);
    if (code >= 0) return code;
    const char *wrong = complaint(&o, machines, bandwidth, &n_levels);
    if (wrong) return cli_refuse("forerun plan: %s (forerun help plan)", wrong);
    fr_plan_problem p = {.n_devices = 1,
                         .bandwidth = bandwidth[n_levels - 1],
                         .n_micro = (int)o.micro,
                         .n_stages = (int)o.stages,
                         .replicas = (int)o.replicas,
                         .memory = (int64_t)o.memory,
                         .contiguous = o.contiguous,
                         .seconds = o.seconds,
                         .objective = o.objective,
                         .n_levels = n_levels,
                         .level_n = level_n,
                         .level_bandwidth = bandwidth};
    for (int i = 0; i < n_levels; i++) level_n[i] = (int)machines[i], p.n_devices *= level_n[i];
    fr_ctx *ctx = cli_context(false);
    return cli_finish(ctx, plan_profile(ctx, &o, &p));
}

const cli_verb cli_plan = {
    .name = "plan",
    .usage = "plan --profile FILE --machines N --bandwidth B [--planner NAME] [--format F]",
    .summary = "which stages on which devices: by one planner, or the best of all methods",
    .text = "A profile alone is spread over equal machines by one planner (docs/plan.md).\n",
    .run = run,
};
