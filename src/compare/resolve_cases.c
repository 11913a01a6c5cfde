/* resolve_cases.c -- resolves each case to a full config, checks it before anything runs, and
 * compares it with the runs of earlier sessions.
 *
 * A run belongs to the comparison if its config.yaml equals the current config of the case. Time
 * stamps and the folder's name do not count: a comparison may be moved, copied, or run from another
 * folder. */
#include "compare/compare.h"

#include "config/setup.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* --- the difference of two configs ------------------------------------------------------------ */

static const char *value_text(const fr_conf *node)
{
    if (!node) return "not set";
    return node->kind == FR_CONF_SCALAR ? node->text : node->kind == FR_CONF_LIST ? "a list" : "{}";
}

static bool tell(const fr_conf *there, const fr_conf *here, char *text, size_t room)
{
    snprintf(text, room, "%s is %.80s there, %.80s here", fr__conf_path(there ? there : here),
             value_text(there), value_text(here));
    return true;
}

static bool is_excepted(const fr_conf *node, const char *const *but)
{
    const char *path = fr__conf_path(node);
    for (; *but; but++)
        if (strcmp(*but, path) == 0) return true;
    return false;
}

static bool differ(const fr_conf *there, const fr_conf *here, const char *const *but, char *text,
                   size_t room);

static bool lists_differ(const fr_conf *there, const fr_conf *here, const char *const *but,
                         char *text, size_t room)
{
    const fr_conf *a = there->first, *b = here->first;
    for (; a && b; a = a->next, b = b->next)
        if (differ(a, b, but, text, room)) return true;
    if (!a && !b) return false;
    snprintf(text, room, "%s is longer %s", fr__conf_path(there), a ? "there" : "here");
    return true;
}

static bool differ(const fr_conf *there, const fr_conf *here, const char *const *but, char *text,
                   size_t room)
{
    if (is_excepted(there, but)) return false;
    if (there->kind != here->kind) return tell(there, here, text, room);
    if (there->kind == FR_CONF_SCALAR)
        return strcmp(there->text, here->text) != 0 && tell(there, here, text, room);
    if (there->kind == FR_CONF_LIST) return lists_differ(there, here, but, text, room);
    for (const fr_conf *a = there->first; a; a = a->next) {
        const fr_conf *b = fr__conf_child(here, a->key);
        if (!b && !is_excepted(a, but)) return tell(a, NULL, text, room);
        if (b && differ(a, b, but, text, room)) return true;
    }
    for (const fr_conf *b = here->first; b; b = b->next)
        if (!fr__conf_child(there, b->key) && !is_excepted(b, but))
            return tell(NULL, b, text, room);
    return false;
}

bool fr__conf_differ(const fr_conf *there, const fr_conf *here, const char *const *but, char *text,
                     size_t room)
{
    return differ(there, here, but, text, room);
}

/* --- resolving -------------------------------------------------------------------------------- */

/* Prefix an error with its case. */
static fr_status in_case(fr_compare *c, const struct fr__case *k, fr_status status)
{
    return fr_fail(c->ctx, status, "%s: case %s: %s", k->where, k->folder, fr_ctx_error(c->ctx));
}

static fr_status take_facts(fr_compare *c, struct fr__case *k, fr__setup *s)
{
    const fr__settings *t = &s->settings;
    fr__text o = {0};
    FR_TRY(fr__pipeline_open(s->ctx, s->conf, t, s->graph, s->n_steps, 0, &s->pipeline));
    fr__conf_format(s->conf, &o);
    k->config = o.failed ? NULL : fr__arena_strdup(&c->arena, o.at);
    fr__text_fini(&o);
    k->method = fr__arena_strdup(&c->arena, t->schedule_file ? "schedule file" : t->method->name);
    k->n_steps = s->n_steps, k->batch = t->batch;
    bool wants = t->transport && t->transport->has_processes;
    k->has_processes = wants && s->pipeline.schedule->n_workers > t->workers_per_rank;
    k->is_alone = wants && !k->has_processes;
    if (k->kind == FR_KIND_MEASURED && t->cluster) k->kind = FR_KIND_EMULATED;
    if (k->kind == FR_KIND_EMULATED && !t->cluster)
        return fr_fail(c->ctx, FR_INVALID, "kind is emulated, but parallel.cluster is not set");
    if (k->kind == FR_KIND_SIMULATED && !t->cluster)
        return fr_fail(c->ctx, FR_INVALID, "kind is simulated, but parallel.cluster is not set");
    k->n_runs = k->kind == FR_KIND_SIMULATED ? 1 : c->n_seeds;
    k->runs = FR_ARENA_ARRAY(&c->arena, struct fr__case_run, k->n_runs);
    if (!k->config || !k->method || !k->runs) return fr__compare_no_memory(c);
    for (int i = 0; i < k->n_runs; i++) {
        struct fr__case_run *r = &k->runs[i];
        r->seed = t->seed + (uint64_t)i;
        r->folder = k->kind == FR_KIND_SIMULATED
                        ? k->folder
                        : fr__arena_printf(&c->arena, "%s/seed-%llu", k->folder,
                                           (unsigned long long)r->seed);
        if (!r->folder) return fr__compare_no_memory(c);
    }
    if (k->kind == FR_KIND_MEASURED || t->profile) return FR_OK;
    return fr__compare_name_profile(c, k, fr__conf_child(s->conf, "model"),
                                    fr__conf_child(fr__conf_child(s->conf, "train"), "optimizer"));
}

static fr_status resolve(fr_compare *c, struct fr__case *k)
{
    fr__setup s;
    fr_run_options o = {.size = sizeof o,
                        .config = c->o->config,
                        .n_sets = k->n_sets,
                        .sets = k->sets,
                        .dump_step = -1};
    if (k->kind == FR_KIND_PUBLISHED) return FR_OK;
    fr_status status = fr__setup_open(c->ctx, &o, &s);
    if (status == FR_OK) {
        status = take_facts(c, k, &s);
        fr__setup_close(&s);
    }
    if (status != FR_OK) return in_case(c, k, status);
    if (!k->is_alone) return FR_OK;
    FR_TRY(fr__case_add(c, k,
                        "parallel.transport=auto")); /* `single` beside runs in several processes */
    return resolve(c, k);
}

/* --- existing runs ---------------------------------------------------------------------------- */

static fr_status compare_configs(fr_compare *c, const struct fr__case *k,
                                 const struct fr__case_run *r, const char *path, bool *is_same,
                                 char *text, size_t room)
{
    static const char *const own[] = {"run.out", NULL}, *const shared[] = {
                                                            "run.out", "parallel.profile", NULL};
    fr_conf *there, *here;
    char seed[40];
    snprintf(seed, sizeof seed, "train.seed=%llu", (unsigned long long)r->seed);
    FR_TRY(fr_conf_load(c->ctx, path, 0, NULL, &there));
    fr_status status = fr_conf_parse(c->ctx, k->config, strlen(k->config), k->folder, &here);
    if (status == FR_OK) status = fr__conf_set(here, seed);
    if (status == FR_OK)
        *is_same = !fr__conf_differ(there, here, k->profile ? shared : own, text, room);
    fr_conf_free(here);
    fr_conf_free(there);
    return status;
}

/* A run with other settings is refused, or removed with --force. */
static fr_status check_run(fr_compare *c, const struct fr__case *k, const struct fr__case_run *r)
{
    char text[400];
    bool is_same = true;
    const char *folder = fr__compare_path(c, &c->arena, r->folder, NULL);
    const char *path = fr__compare_path(c, &c->arena, r->folder, "config.yaml");
    if (!folder || !path) return fr__compare_no_memory(c);
    const char *made = fr__compare_path(c, &c->arena, r->folder, FR_SIMULATED);
    if (!made) return fr__compare_no_memory(c);
    if (!fr__file_exists(path)) return FR_OK;
    if (k->kind == FR_KIND_SIMULATED && !fr__file_exists(made)) return FR_OK;
    FR_TRY(compare_configs(c, k, r, path, &is_same, text, sizeof text));
    if (is_same) return FR_OK;
    if (c->o->force) return fr__compare_remove(c, folder);
    return fr_fail(
        c->ctx, FR_INVALID,
        "%s: the run has other settings: %s; choose another --out, or --force to run it again",
        folder, text);
}

/* --- the folder ------------------------------------------------------------------------------- */

static fr_status lock(fr_compare *c)
{
    FR_TRY(fr__dir_make(c->ctx, c->out));
    c->lock_fd = open(c->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->lock_fd < 0) return fr__io_fail(c->ctx, "open folder", c->out);
    if (flock(c->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return FR_OK;
    return fr_fail(
        c->ctx, FR_INVALID,
        "%s: another comparison is running in this folder; wait for it or choose another --out",
        c->out);
}

/* Write the config that the runs of a case start from. */
static fr_status write_config(fr_compare *c, const struct fr__case *k)
{
    const char *folder = fr__compare_path(c, &c->arena, k->folder, NULL);
    const char *path = fr__compare_path(c, &c->arena, k->folder, "config.yaml");
    if (!folder || !path) return fr__compare_no_memory(c);
    FR_TRY(fr__dir_make(c->ctx, folder));
    return fr__file_replace(c->ctx, path, k->config, strlen(k->config));
}

fr_status fr__compare_resolve(fr_compare *c)
{
    for (int i = 0; i < c->n_cases; i++) FR_TRY(resolve(c, &c->cases[i]));
    FR_TRY(lock(c));
    for (int i = 0; i < c->n_cases; i++)
        for (int s = 0; s < c->cases[i].n_runs; s++)
            FR_TRY(check_run(c, &c->cases[i], &c->cases[i].runs[s]));
    for (int i = 0; i < c->n_cases; i++) {
        struct fr__case *k = &c->cases[i];
        if (k->kind != FR_KIND_PUBLISHED) FR_TRY(write_config(c, k));
        for (int s = 0; s < k->n_runs; s++) FR_TRY(fr__compare_look(c, k, &k->runs[s]));
    }
    return FR_OK;
}
