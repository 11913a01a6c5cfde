/* plan_config.c -- forerun plan CONFIG: the choice among all methods on a cluster, or one planner's
 * layout; printed, and written as a config that `train` runs. */
#include "json.h"
#include "plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_METHODS = 64, TEXT = 1 << 16, MOST_LEAD = 4 };

/* --- methods ---------------------------------------------------------------------------------- */

static void add_method(fr_plan_method *to, int *n, const fr_method *m)
{
    const fr_generator *g = fr_generator_find(m->generator);
    to[(*n)++] = (fr_plan_method){.name = m->name,
                                  .generator = g,
                                  .policy = fr_policy_find(m->policy),
                                  .chunks = m->chunks > 0 ? m->chunks : 1,
                                  .max_stages = m->max_stages,
                                  .max_lead = MOST_LEAD,
                                  .wants_replicas = m->wants_replicas,
                                  .is_allowed_async = !g->is_flush};
}

/* If methods take the same time, the first is named. */
enum { MOST_RANK = 3 };
static int rank(const fr_method *m)
{
    if (fr_generator_find(m->generator)->is_flush) return 0;
    return m->is_preferred ? 1 : m->is_by_name ? MOST_RANK : 2;
}

static fr_status named_methods(fr_ctx *ctx, const char *names, fr_plan_method *to, int *n)
{
    char name[64];
    for (const char *at = names; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
        const fr_method *m = fr_method_find(name);
        if (!m)
            return fr_fail(ctx, FR_INVALID,
                           "--methods: there is no method '%s' (forerun methods lists them)", name);
        if (m->sync)
            return fr_fail(ctx, FR_UNSUPPORTED,
                           "--methods: %s does not sum gradients at every update, and a plan "
                           "cannot forecast the effect on training; run it yourself",
                           name);
        if (*n < MAX_METHODS) add_method(to, n, m);
        at += length;
    }
    return *n ? FR_OK : fr_fail(ctx, FR_INVALID, "--methods: no method is named");
}

/* Why a method is not weighed unless --methods names it; NULL: it is. Unasked, a plan names methods
 * with the weights of one worker only: a faster update that teaches less is no gain. */
static const char *left_out(const fr_method *m, const plan_wishes *o, const plan_evidence *e)
{
    bool is_async = !fr_generator_find(m->generator)->is_flush;
    const plan_learned *learned = cli_plan_learned(e, m);
    if (learned) return learned->why[0] ? learned->why : NULL;
    if (is_async && !o->async) return "asynchronous: not asked for with --async";
    if (m->sync) return "does not sum gradients at every update, which a plan cannot forecast";
    if (m->optimizer) return "made for one optimizer: not asked for with --methods";
    return m->is_by_name
               ? "stale weights, or an accuracy not shown yet: not asked for with --methods"
               : NULL;
}

static fr_status choose_methods(fr_ctx *ctx, const plan_wishes *o, const plan_evidence *e,
                                fr_plan_method *to, int *n)
{
    *n = 0;
    if (o->methods) return named_methods(ctx, o->methods, to, n);
    for (int k = 0; k <= MOST_RANK; k++)
        for (const fr_method *const *m = fr_method_list(); *m && *n < MAX_METHODS; m++) {
            if (rank(*m) != k || left_out(*m, o, e)) continue;
            add_method(to, n, *m);
            if (!cli_plan_learned(e, *m)) continue;
            to[*n - 1].max_stages = cli_plan_learned(e, *m)->max_stages;
            to[*n - 1].max_lead = 1; /* with which it was measured; more makes weights staler */
        }
    return FR_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Keys of a layout as `--set` takes them. */
struct keys {
    cli_list sets;
    char text[TEXT];
    size_t n;
    bool is_full;
};

FR_PRINTF(2, 3)
static void put(struct keys *k, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(k->text + k->n, TEXT - k->n, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= TEXT - k->n)
        k->is_full = true;
    else
        k->n += (size_t)n;
}
/* Start of a key, which ends at the next key or at the end. */
static void begin(struct keys *k, const char *name)
{
    if (k->n) k->n++; /* past the terminator of the last one */
    if (k->sets.n == CLI_MAX_SETS || k->n >= TEXT - 1) {
        k->is_full = true;
        return;
    }
    k->sets.at[k->sets.n++] = k->text + k->n;
    put(k, "%s=", name);
}

static void put_ints(struct keys *k, const char *name, int n, const int *values)
{
    bool is_one = true;
    for (int i = 1; i < n; i++) is_one = is_one && values[i] == values[0];
    begin(k, name);
    if (is_one && strcmp(name, "parallel.devices") != 0) {
        put(k, "%d", values[0]);
        return;
    }
    for (int i = 0; i < n; i++) put(k, "%s%d", i ? ", " : "[", values[i]);
    put(k, "]");
}

/* Nodes of stage s that compute, and those of them that are recomputed. */
static int count_again(const fr_candidate *c, const fr_profile *p, int s, int *n_again)
{
    const int last = s < c->n_stages - 1 ? c->cuts[s] : p->n_nodes;
    int n = 0;
    *n_again = 0;
    for (int i = s ? c->cuts[s - 1] : 0; i < last; i++) {
        if (p->nodes[i].is_input) continue;
        n++, *n_again += c->recompute && c->recompute[i];
    }
    return n;
}

/* Numbers of stages of which all nodes are recomputed, names of other nodes. */
static void each_again(const fr_candidate *c, const fr_profile *p,
                       void (*tell)(void *user, int stage, const char *node), void *user)
{
    for (int s = 0, n_again; s < c->n_stages && c->recompute; s++) {
        const int last = s < c->n_stages - 1 ? c->cuts[s] : p->n_nodes;
        const bool is_whole = count_again(c, p, s, &n_again) == n_again;
        if (is_whole) tell(user, s, NULL);
        for (int i = s ? c->cuts[s - 1] : 0; i < last && !is_whole; i++)
            if (c->recompute[i] && !p->nodes[i].is_input) tell(user, -1, p->nodes[i].name);
    }
}

static void put_again(void *user, int stage, const char *node)
{
    struct keys *k = user;
    const char *comma = k->text[k->n - 1] == '[' ? "" : ", ";
    if (node)
        put(k, "%s%s", comma, node);
    else
        put(k, "%s%d", comma, stage);
}

static void put_recompute(struct keys *k, const fr_candidate *c, const fr_profile *p)
{
    int n_all = 0, n_again = 0, n;
    for (int s = 0; s < c->n_stages; s++, n_again += n) n_all += count_again(c, p, s, &n);
    begin(k, "parallel.recompute");
    if (n_again == 0 || n_again == n_all) {
        put(k, n_again ? "true" : "false");
        return;
    }
    put(k, "[");
    each_again(c, p, put_again, k);
    put(k, "]");
}

static void put_path(struct keys *k, const char *name, const char *path)
{
    char whole[PATH_MAX];
    begin(k, name);
    put(k, "%s", realpath(path, whole) ? whole : path);
}

static fr_status save(fr_ctx *ctx, const plan_wishes *o, const fr_candidate *c,
                      const fr_profile *profile, const char *comment)
{
    struct keys *k = calloc(1, sizeof *k);
    bool is_plain = true;
    if (!k) return fr_fail(ctx, FR_NO_MEMORY, "out of memory for the plan file");
    for (int i = 0; i < o->sets.n; i++) k->sets.at[k->sets.n++] = o->sets.at[i];
    begin(k, "parallel.method"), put(k, "%s", c->method);
    begin(k, "parallel.stages"), put(k, "%d", c->n_stages);
    begin(k, "parallel.cuts"), put(k, "[");
    for (int s = 0; s < c->n_stages - 1; s++)
        put(k, "%s%s", s ? ", " : "", profile->nodes[c->cuts[s]].name);
    put(k, "]");
    put_ints(k, "parallel.replicas", c->n_stages, c->replicas);
    begin(k, "parallel.chunks"), put(k, "%d", c->chunks > 0 ? c->chunks : 1);
    if (c->lead > 1) begin(k, "parallel.lead"), put(k, "%d", c->lead);
    put_recompute(k, c, profile);
    begin(k, "train.micro"), put(k, "%d", c->n_micro);
    put_path(k, "parallel.cluster", o->cluster);
    if (o->profile) put_path(k, "parallel.profile", o->profile);
    for (int w = 0; w < c->n_workers; w++) is_plain = is_plain && c->device_of[w] == w;
    if (!is_plain) put_ints(k, "parallel.devices", c->n_workers, c->device_of);
    fr_run_options run = {
        .size = sizeof run, .config = o->config, .n_sets = k->sets.n, .sets = k->sets.at};
    fr_status status = k->is_full
                           ? fr_fail(ctx, FR_UNSUPPORTED, "the layout is too long for a plan file")
                           : fr_run_save_config(ctx, &run, comment, o->out);
    free(k);
    return status;
}

/* --- printing ---------------------------------------------------------------------------- */

static void print_replicas(const fr_candidate *c, char *text, size_t room)
{
    size_t n = 0;
    bool is_one = true;
    for (int s = 1; s < c->n_stages; s++) is_one = is_one && c->replicas[s] == c->replicas[0];
    for (int s = 0; s < (is_one ? 1 : c->n_stages) && n < room; s++)
        n += (size_t)snprintf(text + n, room - n, "%s%d", s ? "," : "", c->replicas[s]);
}

/* For each method that is not the best: its name and why. */
static void each_lost(const plan_wishes *o, const plan_evidence *e, const fr_choice_desc *d,
                      const fr_choice *choice,
                      void (*tell)(void *user, const char *method, const char *why), void *user)
{
    for (int i = 0; i < d->n_methods; i++)
        if (choice->lost[i]) tell(user, d->methods[i].name, choice->lost[i]);
    for (const fr_method *const *m = fr_method_list(); *m && !o->methods; m++)
        if (left_out(*m, o, e)) tell(user, (*m)->name, left_out(*m, o, e));
}

static void print_lost(void *user, const char *method, const char *why)
{
    (void)user;
    printf("  %-15s %s\n", method, why);
}

static void print_choice(const plan_wishes *o, const plan_evidence *e, const fr_choice_desc *d,
                         const fr_choice *choice, const fr_profile *profile)
{
    (void)profile;
    char replicas[64];
    printf("%-15s %6s %8s %7s %7s %11s %11s %7s %9s  %s\n", "method", "stages", "replicas",
           "devices", "micro", "ms a batch", "samples/s", "bubble", "MB", "");
    for (int i = 0; i < choice->n; i++) {
        const fr_candidate *c = &choice->at[i];
        if (!c->fits) continue;
        print_replicas(c, replicas, sizeof replicas);
        printf("%-15s %6d %8s %7d %7d %11.4g %11.0f %6.1f%% %9.1f  %.*s\n", c->method, c->n_stages,
               replicas, c->n_workers, c->n_micro, 1e3 * c->s_per_batch, c->samples_per_s,
               100 * c->bubble, (double)c->peak / 1e6, (int)strcspn(c->why, ";"), c->why);
    }
    printf("\n%s\n", choice->why);
    printf("layout: %s\n", choice->at[0].why);
    printf("not chosen:\n");
    each_lost(o, e, d, choice, print_lost, NULL);
}

static json_t *pack_ints(int n, const int *values)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(values[i]));
    return list;
}

static void pack_again(void *list, int stage, const char *node)
{
    json_array_append_new(list, node ? json_string(node) : json_integer(stage));
}

static json_t *pack_candidate(const fr_candidate *c, const fr_profile *profile)
{
    json_t *recompute = json_array(), *memory = json_array();
    each_again(c, profile, pack_again, recompute);
    for (int w = 0; w < c->n_workers; w++)
        json_array_append_new(memory, json_integer((json_int_t)c->memory[w]));
    return json_pack(
        "{ss si si si si si sb sf sf sf sf sI so so so so so ss}", "method", c->method, "stages",
        c->n_stages, "workers", c->n_workers, "micro", c->n_micro, "chunks", c->chunks, "lead",
        c->lead, "asynchronous", c->is_async, "s_per_batch", c->s_per_batch, "samples_per_s",
        c->samples_per_s, "bubble", c->bubble, "bound_s", c->bound_s, "peak_bytes",
        (json_int_t)c->peak, "replicas", pack_ints(c->n_stages, c->replicas), "cuts",
        pack_ints(c->n_stages - 1, c->cuts), "devices", pack_ints(c->n_workers, c->device_of),
        "recompute", recompute, "memory_bytes", memory, "why", c->why);
}

static void pack_lost(void *list, const char *method, const char *why)
{
    json_array_append_new(list, json_pack("{ss ss}", "method", method, "why", why));
}

static void print_choice_json(const plan_wishes *o, const plan_evidence *e, const fr_choice_desc *d,
                              const fr_choice *choice, const fr_profile *profile)
{
    json_t *candidates = json_array(), *lost = json_array();
    each_lost(o, e, d, choice, pack_lost, lost);
    for (int i = 0; i < choice->n; i++)
        if (choice->at[i].fits)
            json_array_append_new(candidates, pack_candidate(&choice->at[i], profile));
    json_print_line(json_pack("{sb so si si ss so}", "simulated", true, "candidates", candidates,
                              "tried", choice->n_tried, "too_large", choice->n_too_large, "why",
                              choice->why, "lost", lost));
}

/* The head of a plan file. */
static void describe(const fr_choice *choice, char *text, size_t room)
{
    const fr_candidate *best = &choice->at[0];
    size_t n = (size_t)snprintf(text, room,
                                FR_PLAN_MARK
                                "`, in simulated time; edit it if you know "
                                "better, then `forerun train` it.\n%s\nlayout: %s\nMB per device:",
                                choice->why, best->why);
    for (int w = 0; w < best->n_workers && w < 32 && n < room; w++)
        n += (size_t)snprintf(text + n, room - n, " %.1f", (double)best->memory[w] / 1e6);
    if (best->n_workers > 32 && n < room) snprintf(text + n, room - n, " ...");
}

/* --- the two ways ----------------------------------------------------------------------------- */

static fr_status choose(fr_ctx *ctx, const plan_wishes *o, const fr_cluster *cluster,
                        fr_run_model *model)
{
    fr_plan_method methods[MAX_METHODS];
    fr_choice *choice = NULL;
    fr_choice_desc d = {.profile = fr_run_model_profile,
                        .user = model,
                        .cluster = cluster,
                        .batch = fr_run_model_batch(model),
                        .methods = methods,
                        .n_devices = (int)o->devices,
                        .all_devices = o->all,
                        .may_recompute = !o->no_recompute};
    plan_evidence evidence = {0};
    if (o->efficiency) FR_TRY(cli_plan_read_evidence(ctx, o->efficiency, d.batch, &evidence));
    FR_TRY(choose_methods(ctx, o, &evidence, methods, &d.n_methods));
    FR_TRY(fr_plan_choose(ctx, &d, &choice));
    const fr_profile *profile; /* the names of nodes are those of any size */
    fr_status status = fr_run_model_profile(model, d.batch / choice->at[0].n_micro, &profile);
    if (status == FR_OK)
        (strcmp(o->format, "json") == 0 ? print_choice_json : print_choice)(o, &evidence, &d,
                                                                            choice, profile);
    if (status == FR_OK && o->out) {
        char comment[8192];
        describe(choice, comment, sizeof comment);
        status = save(ctx, o, &choice->at[0], profile, comment);
    }
    fr_choice_free(choice);
    return status;
}

/* A planner's layout as a candidate, for writing. */
static fr_status save_plan(fr_ctx *ctx, const plan_wishes *o, const fr_plan *plan,
                           const fr_profile *profile, int n_micro)
{
    int n = plan->n_stages, n_workers = 0, w = 0;
    for (int s = 0; s < n; s++) n_workers += plan->stages[s].replicas;
    int *lists = calloc((size_t)(2 * n + n_workers), sizeof *lists);
    fr_candidate c = {.method = fr_planner_find(plan->planner)->method,
                      .n_stages = n,
                      .n_workers = n_workers,
                      .n_micro = n_micro,
                      .chunks = 1,
                      .lead = n > 1 ? fr_planner_find(plan->planner)->lead : 1,
                      .recompute = plan->recompute};
    fr_status status = FR_NO_MEMORY;
    if (lists) {
        c.replicas = lists, c.cuts = lists + n, c.device_of = lists + 2 * n;
        for (int s = 0; s < n; s++) {
            c.replicas[s] = plan->stages[s].replicas;
            if (s) c.cuts[s - 1] = plan->stages[s].first;
            for (int r = 0; r < c.replicas[s]; r++) c.device_of[w++] = plan->stages[s].devices[r];
        }
        if (n == 1) c.method = n_workers > 1 ? "dp" : "single";
        char comment[4096];
        snprintf(comment, sizeof comment, FR_PLAN_MARK " --planner %s`.\n%s", plan->planner,
                 plan->why);
        status = save(ctx, o, &c, profile, comment);
    } else {
        fr_fail(ctx, status, "out of memory for the plan file");
    }
    free(lists);
    return status;
}

static fr_status plan_by(fr_ctx *ctx, const plan_wishes *o, const fr_cluster *cluster,
                         fr_run_model *model)
{
    const fr_planner *planner = cli_find_planner(ctx, o->planner);
    int batch = fr_run_model_batch(model), n_micro = (int)o->micro;
    fr_plan *plan = NULL;
    if (!planner) return FR_INVALID;
    for (n_micro = n_micro ? n_micro : 8; !o->micro && batch % n_micro != 0;) n_micro--;
    if (batch % n_micro != 0)
        return fr_fail(ctx, FR_INVALID, "--micro %d does not divide the mini-batch of %d", n_micro,
                       batch);
    fr_plan_problem p = {.cluster = cluster,
                         .n_devices = (int)o->devices,
                         .n_micro = n_micro,
                         .n_stages = (int)o->stages,
                         .replicas = (int)o->replicas,
                         .memory = (int64_t)o->memory,
                         .contiguous = true,
                         .deals_evenly = true,
                         .seconds = o->seconds,
                         .objective = o->objective};
    FR_TRY(fr_run_model_profile(model, batch / n_micro, &p.profile));
    FR_TRY(planner->plan(ctx, &p, &plan));
    cli_print_plan(plan, p.profile, strcmp(o->format, "json") == 0);
    fr_status status = FR_OK;
    if (o->out)
        status = plan->device_of
                     ? fr_fail(ctx, FR_UNSUPPORTED,
                               "%s places operators inside a replica, and training cuts a model "
                               "into stages; omit --out",
                               planner->name)
                     : save_plan(ctx, o, plan, p.profile, n_micro);
    fr_plan_free(plan);
    return status;
}

fr_status cli_plan_config(fr_ctx *ctx, const plan_wishes *o)
{
    fr_cluster *cluster = NULL;
    fr_run_model *model = NULL;
    const fr_planner *by = o->planner ? fr_planner_find(o->planner) : NULL;
    const fr_run_options run = {
        .size = sizeof run, .config = o->config, .n_sets = o->sets.n, .sets = o->sets.at};
    if (by && by->splits_layers) return cli_plan_splits(ctx, o, by);
    fr_status status = fr_cluster_read(ctx, o->cluster, &cluster);
    if (status == FR_OK) status = fr_run_model_open(ctx, &run, o->profile, &model);
    if (status == FR_OK)
        status = o->planner ? plan_by(ctx, o, cluster, model) : choose(ctx, o, cluster, model);
    fr_run_model_free(model);
    fr_cluster_free(cluster);
    return status;
}
