/* settings_parallel.c -- reads `parallel`: how a run is spread over workers.
 *
 * What can be said without the model is checked here; what needs the graph (how many stages it can
 * be cut into, tied parameters) or the schedule is checked in pipeline.c. Keys whose default
 * depends on the method are not written into the saved config unless they were given, so that a
 * saved config can be tried with another method. */
#include "train/settings.h"

#include "io/conf.h"

#include <string.h>

static fr_status read_backend(fr_conf *c, fr_settings *s)
{
    const char *name;
    char names[256] = "";
    const fr_backend *const *list = fr_backend_list();
    for (int i = 0; list[i]; i++) fr__append_name(names, sizeof names, fr_backend_name(list[i]));
    FR_TRY(fr_conf_text(c, "backend", fr_backend_name(list[0]), &name));
    s->backend = fr_backend_find(name);
    if (s->backend) return FR_OK;
    return fr_conf_fail(c, "backend", "no backend is called '%s'; there are: %s", name, names);
}

static fr_status read_method(fr_conf *c, fr_settings *s)
{
    const char *name;
    char names[512] = "";
    FR_TRY(fr_conf_text(c, "method", "single", &name));
    s->method = fr_method_find(name);
    if (s->method) return FR_OK;
    FR_APPEND_NAMES(names, fr_method_list());
    return fr_conf_fail(c, "method", "this build has no method '%s'; there are: %s", name, names);
}

static fr_status read_policy(fr_conf *c, fr_settings *s)
{
    const char *name = s->method->policy;
    char names[256] = "";
    if (fr_conf_has(c, "weights")) FR_TRY(fr_conf_text(c, "weights", NULL, &name));
    s->policy = fr_policy_find(name);
    if (s->policy) return FR_OK;
    FR_APPEND_NAMES(names, fr_policy_list());
    return fr_conf_fail(c, "weights", "no weight policy is called '%s'; there are: %s", name,
                        names);
}

static fr_status read_schedule_file(fr_conf *c, fr_settings *s)
{
    char path[PATH_MAX];
    s->schedule_file = NULL;
    if (!fr_conf_has(c, "schedule_file")) return FR_OK;
    if (fr_conf_has(c, "chunks"))
        return fr_conf_fail(c, "chunks",
                            "a schedule file says itself which worker runs which stage; leave "
                            "parallel.chunks out");
    FR_TRY(fr__conf_file(c, "schedule_file", "schedule file", path));
    s->schedule_file = fr__arena_strdup(&c->root->arena, path);
    return s->schedule_file ? FR_OK : fr__conf_no_memory(c);
}

static fr_status read_cuts(fr_conf *c, fr_settings *s)
{
    int n = fr_conf_has(c, "cuts") ? fr_conf_list_length(c, "cuts") : 0;
    if (n < 1) n = 1; /* one value is a list of one */
    s->cuts = FR_ARENA_ARRAY(&c->root->arena, const char *, n);
    if (!s->cuts) return fr__conf_no_memory(c);
    return fr_conf_texts(c, "cuts", FR_MAX_STAGES - 1, s->cuts, &s->n_cuts);
}

static fr_status check_stages(fr_conf *c, const fr_settings *s)
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

static fr_status read_stages(fr_conf *c, fr_settings *s)
{
    int64_t stages = 0, chunks, replicas, segment;
    FR_TRY(read_cuts(c, s));
    if (!s->schedule_file || s->n_cuts > 0 || fr_conf_has(c, "stages"))
        FR_TRY(fr_conf_int(c, "stages", s->n_cuts + 1, 1, FR_MAX_STAGES, &stages));
    FR_TRY(fr_conf_int(c, "chunks", 0, 1, FR_MAX_STAGES, &chunks));
    FR_TRY(fr_conf_int(c, "replicas", 1, 1, INT32_MAX, &replicas));
    FR_TRY(fr_conf_int(c, "segment", 256, 1, 1 << 20, &segment));
    if (replicas > 1)
        return fr_conf_fail(c, "replicas",
                            "method '%s' runs with at most 1 replica, the config asks for %lld; "
                            "leave parallel.replicas out",
                            s->method->name, (long long)replicas);
    if (chunks == 0) chunks = s->method->chunks > 0 && !s->schedule_file ? s->method->chunks : 1;
    s->stages = (int)stages, s->chunks = (int)chunks;
    s->replicas = (int)replicas, s->segment = (int)segment;
    return check_stages(c, s);
}

/* Options of single policies, in sections named after them: fine to have, whatever the method. */
static fr_status read_policy_options(fr_conf *c, fr_settings *s)
{
    fr_conf *xpipe, *pipemare;
    if (fr_conf_has(c, "xpipe")) {
        FR_TRY(fr_conf_section(c, "xpipe", &xpipe));
        FR_TRY(fr_conf_bool(xpipe, "exact", false, &s->exact));
    }
    if (fr_conf_has(c, "pipemare")) {
        FR_TRY(fr_conf_section(c, "pipemare", &pipemare));
        FR_TRY(fr_conf_int(pipemare, "warmup", 0, 0, INT64_MAX, &s->lr_warmup));
    }
    return FR_OK;
}

fr_status fr__settings_parallel(fr_conf *c, fr_settings *s)
{
    int64_t threads;
    FR_TRY(read_method(c, s));
    FR_TRY(read_policy(c, s));
    FR_TRY(read_schedule_file(c, s));
    FR_TRY(read_stages(c, s));
    FR_TRY(read_policy_options(c, s));
    FR_TRY(fr_conf_int(c, "threads", 0, 0, 4096, &threads));
    FR_TRY(fr_conf_bool(c, "pin", true, &s->pin));
    s->threads = (int)threads;
    return read_backend(c, s);
}
