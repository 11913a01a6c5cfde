/* conf_file.c -- files and folders that a config names.
 *
 * A relative path is relative to the folder of its config; one given by `--set` is relative to the
 * current folder. The absolute path is recorded, so the config that a run saves works from any
 * folder. Paths of data were once relative to the current folder: a path that exists there, but not
 * beside the config, is still accepted with a warning. */
#include "io/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The absolute path in memory of the config if the file exists, else the attempted path in
 * `joined`. NULL: out of memory. */
static const char *find(fr_conf *c, const char *key, const char *file, char joined[PATH_MAX],
                        bool *is_there)
{
    const char *where = fr_conf_where(c, key), *slash = strrchr(where, '/');
    char whole[PATH_MAX];
    int folder =
        file[0] == '/' || strncmp(where, "--set", 5) == 0 || !slash ? 0 : (int)(slash + 1 - where);
    int n = snprintf(joined, PATH_MAX, "%.*s%s", folder, where, file);
    *is_there = n >= 0 && n < PATH_MAX && realpath(joined, whole);
    return fr__arena_strdup(&c->root->arena, *is_there ? whole : joined);
}

fr_status fr__conf_file(fr_conf *c, const char *key, const char *what, char path[PATH_MAX])
{
    const char *file, *found;
    char joined[PATH_MAX];
    bool is_there;
    FR_TRY(fr_conf_text(c, key, NULL, &file));
    if (!(found = find(c, key, file, joined, &is_there))) return fr__conf_no_memory(c);
    if (!is_there) return fr_conf_fail(c, key, "cannot find the %s %s", what, joined);
    snprintf(path, PATH_MAX, "%s", found);
    fr__text o = {0};
    fr__conf_put_text(&o, path);
    return fr__conf_resolve(fr__conf_child(c, key), &o);
}

/* NULL: out of memory. */
static const char *find_data(fr_conf *c, const char *key, const char *file)
{
    char joined[PATH_MAX], whole[PATH_MAX];
    bool is_there;
    const char *found = file[0] ? find(c, key, file, joined, &is_there) : file;
    if (!found || !file[0] || is_there || !realpath(file, whole)) return found;
    fr_log(c->root->ctx, FR_LOG_WARN,
           "%s: %s: there is no %s; using %s of the current folder. Paths are relative to the "
           "folder of the config: write such a path, or an absolute one",
           fr_conf_where(c, key), fr__conf_path(fr__conf_child(c, key)), joined, file);
    return fr__arena_strdup(&c->root->arena, whole);
}

fr_status fr__conf_data(fr_conf *c, const char *key, const char *preset, const char **out)
{
    const char *file;
    FR_TRY(fr_conf_text(c, key, preset, &file));
    if (!(*out = find_data(c, key, file))) return fr__conf_no_memory(c);
    fr__text o = {0};
    fr__conf_put_text(&o, *out);
    return fr__conf_resolve(fr__conf_child(c, key), &o);
}

fr_status fr__conf_data_list(fr_conf *c, const char *key, int max_n, const char **out, int *n)
{
    fr__text o = {0};
    FR_TRY(fr_conf_texts(c, key, max_n, out, n));
    if (*n == 0) return FR_OK;
    fr__text_put(&o, "[");
    for (int i = 0; i < *n; i++) {
        if (!(out[i] = find_data(c, key, out[i]))) {
            fr__text_fini(&o);
            return fr__conf_no_memory(c);
        }
        if (i) fr__text_put(&o, ", ");
        fr__conf_put_text(&o, out[i]);
    }
    fr__text_put(&o, "]");
    return fr__conf_resolve(fr__conf_child(c, key), &o);
}
