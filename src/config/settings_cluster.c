/* settings_cluster.c -- reads the keys of `parallel` that concern time: the emulated cluster, the
 * profile, the stages and nodes that are recomputed. */
#include "config/settings.h"

#include "io/conf.h"

#include <string.h>

static fr_status read_path(fr_conf *c, const char *key, const char *what, const char **out)
{
    char path[PATH_MAX];
    *out = NULL;
    if (!fr_conf_has(c, key)) return FR_OK;
    FR_TRY(fr__conf_file(c, key, what, path));
    *out = fr__arena_strdup(&c->root->arena, path);
    return *out ? FR_OK : fr__conf_no_memory(c);
}

/* A list of numbers, each below `end`. */
static fr_status read_numbers(fr_conf *c, const char *key, int end, const char *what, int *n,
                              const int **out)
{
    int length = fr_conf_list_length(c, key);
    int64_t *given = FR_ARENA_ARRAY(&c->root->arena, int64_t, length + 1);
    int *list = FR_ARENA_ARRAY(&c->root->arena, int, length + 1);
    if (!given || !list) return fr__conf_no_memory(c);
    FR_TRY(fr_conf_ints(c, key, length, given, n));
    for (int i = 0; i < *n; i++) {
        if (given[i] < 0 || given[i] >= end)
            return fr_conf_fail(c, key, "there is no %s %lld; they are 0 to %d", what,
                                (long long)given[i], end - 1);
        list[i] = (int)given[i];
    }
    *out = list;
    return FR_OK;
}

/* true, false, auto, or a list of stages and nodes, which is compared with the model later. */
static fr_status read_recompute(fr_conf *c, fr__settings *s)
{
    int n = fr_conf_list_length(c, "recompute");
    if (n < 0) {
        const char *word;
        if (!fr_conf_has(c, "recompute")) return FR_OK;
        FR_TRY(fr_conf_text(c, "recompute", "", &word));
        s->recompute_auto = strcmp(word, "auto") == 0;
        if (s->recompute_auto) return FR_OK;
        return fr_conf_bool(c, "recompute", false, &s->recomputes_all);
    }
    s->recompute = FR_ARENA_ARRAY(&c->root->arena, const char *, n + 1);
    if (!s->recompute) return fr__conf_no_memory(c);
    return fr_conf_texts(c, "recompute", n, s->recompute, &s->n_recompute);
}

static fr_status read_emulation(fr_conf *c, fr__settings *s)
{
    fr_conf *emulation;
    if (!s->cluster) {
        static const char *const keys[] = {"devices", "emulation"};
        for (int i = 0; i < 2; i++)
            if (fr_conf_has(c, keys[i]))
                return fr_conf_fail(c, keys[i],
                                    "only a run that is emulated on a cluster has it; set "
                                    "parallel.cluster too, or leave it out");
        return FR_OK;
    }
    if (fr_conf_list_length(c, "devices") >= 0)
        FR_TRY(read_numbers(c, "devices", 1 << 20, "device", &s->n_devices, &s->devices));
    if (!fr_conf_has(c, "emulation")) return FR_OK;
    FR_TRY(fr_conf_section(c, "emulation", &emulation));
    return fr__setting(emulation, "parallel.emulation.", "scale", s);
}

fr_status fr__settings_cluster(fr_conf *c, fr__settings *s)
{
    FR_TRY(read_path(c, "cluster", "cluster file", &s->cluster));
    FR_TRY(read_path(c, "profile", "profile", &s->profile));
    FR_TRY(read_recompute(c, s));
    if (fr_conf_has(c, "memory")) FR_TRY(fr__setting(c, "parallel.", "memory", s));
    return read_emulation(c, s);
}
