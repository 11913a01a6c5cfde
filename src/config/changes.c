/* changes.c -- finds the settings that a resumed run has changed.
 *
 * Changes are allowed, for example a smaller learning rate after a divergence. The numbers are
 * then no longer those of one uninterrupted run, so the run logs a warning. Both configs are
 * compared in their saved form, with all defaults. Keys that only one of them has come from another
 * version of this program or follow from a key that both have; they are skipped. */
#include "config/changes.h"

#include "io/conf.h"
#include "io/file.h"
#include <forerun/optim.h>

#include <stdio.h>
#include <string.h>

/* Keys that change numbers. All others decide where and how fast the numbers are computed. */
static const char *const sections[] = {"model",
                                       "data",
                                       "train",
                                       "parallel.method",
                                       "parallel.weights",
                                       "parallel.messages",
                                       "parallel.sync",
                                       "parallel.xpipe",
                                       "parallel.pipemare",
                                       NULL};

typedef struct list {
    char text[1600];
    size_t n;
} list;

static bool is_below(const char *path, const char *section)
{
    size_t n = strlen(section);
    return strncmp(path, section, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

/* A resumed run does not read the weights that the first one started from. The length of a run
 * changes numbers only if the learning rate depends on it. */
static bool matters(const fr_conf *now, const char *path)
{
    const fr_conf *train = fr__conf_child(now, "train");
    const fr_conf *schedule = train ? fr__conf_child(train, "schedule") : NULL;
    const fr_conf *name = schedule ? fr__conf_child(schedule, "name") : NULL;
    if (strcmp(path, "train.steps") == 0 || strcmp(path, "train.epochs") == 0) {
        const fr_lr_schedule *lr = name ? fr_lr_find(name->text) : NULL;
        return lr && !lr->is_endless;
    }
    if (is_below(path, "model.weights") || is_below(path, "model.weights_strict")) return false;
    for (const char *const *s = sections; *s; s++)
        if (is_below(path, *s)) return true;
    return false;
}

static bool is_same(const fr_conf *a, const fr_conf *b)
{
    if (a->kind != b->kind || strcmp(a->text, b->text) != 0) return false;
    const fr_conf *x = a->first, *y = b->first;
    while (x && y && is_same(x, y)) x = x->next, y = y->next;
    return !x && !y;
}

static void note(list *l, const char *path, const fr_conf *was, const fr_conf *is)
{
    size_t room = sizeof l->text - l->n;
    bool are_scalars = was->kind == FR_CONF_SCALAR && is->kind == FR_CONF_SCALAR;
    int n = are_scalars ? snprintf(l->text + l->n, room, "%s%s %.60s (was %.60s)", l->n ? ", " : "",
                                   path, is->text, was->text)
                        : snprintf(l->text + l->n, room, "%s%s", l->n ? ", " : "", path);
    l->n = n < 0 || (size_t)n >= room ? sizeof l->text - 1 : l->n + (size_t)n;
}

static void compare(const fr_conf *top, const fr_conf *was, const fr_conf *is, list *l)
{
    for (const fr_conf *old = was->first; old; old = old->next) {
        const fr_conf *new = fr__conf_child(is, old->key);
        if (!new) continue;
        const char *path = fr__conf_path(new);
        if (old->kind == FR_CONF_MAPPING && new->kind == FR_CONF_MAPPING)
            compare(top, old, new, l);
        else if (matters(top, path) && !is_same(old, new))
            note(l, path, old, new);
    }
}

void fr__log_changes(fr_ctx *ctx, const char *path, const fr_conf *conf)
{
    fr__text text = {0};
    fr_conf *was = NULL, *is = NULL;
    list l = {.n = 0};
    if (!fr__file_exists(path) || fr__is_stream(-1, path)) return;
    fr__conf_format(conf, &text);
    fr_status status = text.failed ? fr__no_memory(ctx, text.n, "config")
                                   : fr_conf_parse(ctx, text.at, text.n, "config", &is);
    if (status == FR_OK) status = fr_conf_load(ctx, path, 0, NULL, &was);
    if (status == FR_OK) compare(is, was, is, &l);
    if (l.n > 0)
        fr_log(ctx, FR_LOG_WARN,
               "resumed with other settings, so numbers differ from those of a run that was not "
               "stopped: %s",
               l.text);
    if (status != FR_OK) /* not a failure: the checkpoint itself is whole */
        fr_log(ctx, FR_LOG_WARN, "the settings of the earlier run are unknown: %s",
               fr_ctx_error(ctx));
    fr_conf_free(was);
    fr_conf_free(is);
    fr__text_fini(&text);
}
