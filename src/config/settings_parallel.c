/* settings_parallel.c -- reads `parallel`: workers, processes, method and backend of a run.
 *
 * Checks that need no model are here; those that need the graph (number of possible stages, tied
 * parameters) or the schedule are in pipeline.c. Keys whose default depends on the method are saved
 * only if they were given, so a saved config works with another method. */
#include "config/settings.h"

#include "io/conf.h"

#include <string.h>

static const char section[] = "parallel.";

/* Records by name. */
static fr_status read_method(fr_conf *c, fr__settings *s)
{
    const char *name = NULL;
    FR_TRY(fr__setting_name(c, section, "method", &name));
    s->method = fr_method_find(name);
    s->policy = fr_policy_find(s->method->policy);
    if (!fr_conf_has(c, "weights")) return FR_OK;
    FR_TRY(fr__setting_name(c, section, "weights", &name));
    s->policy = fr_policy_find(name);
    return FR_OK;
}

static fr_status read_backend(fr_conf *c, fr__settings *s)
{
    const char *name = fr_backend_name(fr_backend_list()[0]);
    FR_TRY(fr__setting_name(c, section, "backend", &name));
    s->backend = fr_backend_find(name);
    return FR_OK;
}

static fr_status read_schedule_file(fr_conf *c, fr__settings *s)
{
    char path[PATH_MAX];
    s->schedule_file = NULL;
    if (!fr_conf_has(c, "schedule_file")) return FR_OK;
    if (fr_conf_has(c, "chunks"))
        return fr_conf_fail(c, "chunks",
                            "a schedule file already assigns stages to workers; leave "
                            "parallel.chunks out");
    if (fr_conf_has(c, "lead"))
        return fr_conf_fail(c, "lead", "a schedule file has an order already; leave it out");
    FR_TRY(fr__conf_file(c, "schedule_file", "schedule file", path));
    s->schedule_file = fr__arena_strdup(&c->root->arena, path);
    return s->schedule_file ? FR_OK : fr__conf_no_memory(c);
}

static fr_status read_cuts(fr_conf *c, fr__settings *s)
{
    int n = fr_conf_has(c, "cuts") ? fr_conf_list_length(c, "cuts") : 0;
    if (n < 1) n = 1; /* one value is a list of one */
    s->cuts = FR_ARENA_ARRAY(&c->root->arena, const char *, n);
    if (!s->cuts) return fr__conf_no_memory(c);
    return fr_conf_texts(c, "cuts", FR_MAX_STAGES - 1, s->cuts, &s->n_cuts);
}

static fr_status check_stages(fr_conf *c, const fr__settings *s)
{
    int max = s->method->max_stages;
    if (s->n_cuts > 0 && s->n_cuts + 1 != s->stages)
        return fr_conf_fail(c, "cuts",
                            "%d cut%s make%s %d stages, parallel.stages is %d; leave one of the "
                            "two out",
                            s->n_cuts, s->n_cuts > 1 ? "s" : "", s->n_cuts > 1 ? "" : "s",
                            s->n_cuts + 1, s->stages);
    if (max > 0 && s->stages > max && !s->schedule_file)
        return fr_conf_fail(c, "stages",
                            "method '%s' runs with at most %d stage, the config asks for %d; "
                            "choose another method (`forerun methods` lists them)",
                            s->method->name, max, s->stages);
    if (s->stages % s->chunks != 0)
        return fr_conf_fail(c, "stages",
                            "%d stages do not give every worker %d chunks; make parallel.stages a "
                            "multiple of parallel.chunks (workers = stages / chunks)",
                            s->stages, s->chunks);
    return FR_OK;
}

/* One number for all stages, or a list with one per stage, which then sets the number of stages. */
static fr_status read_replicas(fr_conf *c, fr__settings *s)
{
    int64_t given[FR_MAX_STAGES], one = 0;
    int *list;
    bool is_list = fr_conf_list_length(c, "replicas") >= 0;
    if (is_list)
        FR_TRY(fr_conf_ints(c, "replicas", FR_MAX_STAGES, given, &s->n_replicas));
    else
        FR_TRY(fr__key_read(c, fr__key_find(fr__settings_keys(), section, "replicas", NULL), &one));
    if (!is_list) given[0] = one, s->n_replicas = 1;
    if (s->n_replicas < 1)
        return fr_conf_fail(c, "replicas", "the list is empty; give one number for each stage");
    list = FR_ARENA_ARRAY(&c->root->arena, int, s->n_replicas);
    if (!list) return fr__conf_no_memory(c);
    for (int k = 0; k < s->n_replicas; k++) {
        if (given[k] < 1 || given[k] > FR_MAX_REPLICAS)
            return fr_conf_fail(c, "replicas", "%lld replicas of stage %d; give 1 to %d",
                                (long long)given[k], k, FR_MAX_REPLICAS);
        list[k] = (int)given[k];
    }
    s->replicas = list;
    return FR_OK;
}

int64_t fr__settings_least_micro(const fr__settings *s)
{
    int64_t least = 1;
    for (int k = 0; k < s->n_replicas; k++) {
        int64_t a = least, b = s->replicas[k];
        while (b) {
            int64_t rest = a % b;
            a = b, b = rest;
        }
        least *= s->replicas[k] / a;
        if (least > 1 << 24) return 1 << 24; /* the largest number of micro-batches */
    }
    return least;
}

static fr_status read_stages(fr_conf *c, fr__settings *s)
{
    FR_TRY(read_cuts(c, s));
    FR_TRY(read_replicas(c, s));
    bool is_list = fr_conf_list_length(c, "replicas") > 0;
    if (!s->schedule_file || s->n_cuts > 0 || is_list || fr_conf_has(c, "stages")) {
        s->stages = s->n_cuts > 0 ? s->n_cuts + 1 : s->n_replicas;
        FR_TRY(fr__setting(c, section, "stages", s));
    }
    if (is_list && s->stages != s->n_replicas)
        return fr_conf_fail(c, "replicas",
                            "%d numbers for %d stages; give one for each stage, or one number for "
                            "all",
                            s->n_replicas, s->stages);
    FR_TRY(fr__setting(c, section, "chunks", s));
    FR_TRY(fr__setting(c, section, "lead", s));
    FR_TRY(fr__setting(c, section, "reorder", s));
    if (s->reorder && s->schedule_file)
        return fr_conf_fail(c, "reorder", "a schedule file has an order already; leave it out");
    FR_TRY(fr__setting(c, section, "segment", s));
    if (s->chunks == 0)
        s->chunks = s->method->chunks > 0 && !s->schedule_file ? s->method->chunks : 1;
    return check_stages(c, s);
}

/* --- processes and replicas ------------------------------------------------------------------ */

static fr_status read_transport(fr_conf *c, fr__settings *s)
{
    const char *name = NULL;
    FR_TRY(fr__setting_name(c, section, "transport", &name));
    s->transport = fr_transport_find(name); /* auto: none */
    return FR_OK;
}

static fr_status read_messages(fr_conf *c, fr__settings *s)
{
    const char *name = NULL;
    if (!fr_conf_has(c, "messages")) return FR_OK;
    FR_TRY(fr__setting_name(c, section, "messages", &name));
    s->has_short_messages = strcmp(name, "bf16") == 0;
    s->has_long_messages = !s->has_short_messages;
    return FR_OK;
}

static const fr_sync *find_sync(const char *name)
{
    const fr_sync *const *list = fr_sync_list();
    while (*list && strcmp((*list)->name, name) != 0) list++;
    return *list;
}

/* Without sync.every a wave of wsp has the length of the pipeline. */
static fr_status read_sync(fr_conf *parallel, fr__settings *s)
{
    fr_conf *c;
    s->sync.name = s->method->sync ? s->method->sync : fr_sync_list()[0]->name;
    if (fr_conf_has(parallel, "sync")) {
        FR_TRY(fr_conf_section(parallel, "sync", &c));
        FR_TRY(fr__setting(c, "parallel.sync.", "name", s));
        return fr__keys_read(c, fr__settings_keys(), "parallel.sync.", s->sync.name, s);
    }
    const fr_sync *sync = find_sync(s->sync.name);
    s->sync.every = sync->has_every && !sync->has_distance;
    return FR_OK;
}

/* Options of single policies, in sections named after them; allowed with any method. */
static fr_status read_policy_options(fr_conf *c, fr__settings *s)
{
    static const char *const names[][2] = {{"xpipe", "parallel.xpipe."},
                                           {"pipemare", "parallel.pipemare."}};
    for (int i = 0; i < 2; i++) {
        fr_conf *options;
        if (!fr_conf_has(c, names[i][0])) continue;
        FR_TRY(fr_conf_section(c, names[i][0], &options));
        FR_TRY(fr__keys_read(options, fr__settings_keys(), names[i][1], NULL, s));
    }
    return FR_OK;
}

fr_status fr__settings_parallel(fr_conf *c, fr__settings *s)
{
    FR_TRY(read_method(c, s));
    FR_TRY(read_schedule_file(c, s));
    FR_TRY(read_stages(c, s));
    FR_TRY(read_policy_options(c, s));
    FR_TRY(read_sync(c, s));
    FR_TRY(read_transport(c, s));
    FR_TRY(read_messages(c, s));
    FR_TRY(fr__setting(c, section, "workers_per_rank", s));
    FR_TRY(fr__setting(c, section, "threads", s));
    FR_TRY(fr__setting(c, section, "pin", s));
    FR_TRY(read_backend(c, s));
    return fr__settings_cluster(c, s);
}
