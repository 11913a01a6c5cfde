/* conf.h -- the tree behind fr_conf, shared by conf_parse.c, conf_get.c and conf_save.c.
 *
 * libfyaml delivers events with positions. The tree is our own, in one arena, with limited size;
 * libfyaml is closed before the first key is read. Every node is an fr_conf, but callers see
 * mappings only. */
#ifndef FR_IO_CONF_H
#define FR_IO_CONF_H

#include <forerun/io.h>

#include "base/arena.h"
#include "base/text.h"

#include <limits.h>

enum {
    FR_CONF_MAX_BYTES = 1 << 18, /* of text; libfyaml takes quadratic time for some texts */
    FR_CONF_MAX_NODES = 1 << 13, /* including copies of aliases, against "billion laughs" attacks */
    FR_CONF_MAX_DEPTH = 32,
    FR_CONF_MAX_KEY = 128 /* bytes */
};

enum fr__conf_kind { FR_CONF_SCALAR, FR_CONF_LIST, FR_CONF_MAPPING };

struct fr__conf_root {
    fr_ctx *ctx;
    fr_arena arena;
    const char *name;
    const char *head; /* the comment at the head of a loaded file, verbatim; "": none */
    fr_conf *top;
    int n_nodes;
};

struct fr_conf {
    struct fr__conf_root *root;
    fr_conf *parent, *next, *first, *last;
    const char *key; /* NULL: an item of a list, or the top */
    enum fr__conf_kind kind;
    const char *text;     /* of a scalar */
    bool is_plain;        /* no quotes: may be a number, true, null, ... */
    bool is_open;         /* still being parsed */
    bool is_given;        /* by file or --set, not by a default */
    bool has_value;       /* given or recorded */
    bool is_known;        /* somebody asked for it */
    const char *resolved; /* YAML of the value that was last handed out, or NULL */
    const char *origin;   /* "--set a.b=v" where there is no place in the file */
    int line, column, key_line, key_column; /* from 1; 0: none */
};

/* Append as YAML: plain if it is unambiguous, else in double quotes. */
void fr__conf_put_text(fr__text *o, const char *text);

/* fr_conf_save with comment lines at the head ("": none). */
fr_status fr__conf_save(fr_conf *top, const char *head, const char *path);
/* The text that fr_conf_save writes. */
void fr__conf_format(const fr_conf *top, fr__text *o);
/* fr_conf_load of a text that is in memory already; `name` takes the place of the path. */
fr_status fr__conf_from_text(fr_ctx *ctx, const char *text, size_t bytes, const char *name,
                             int n_sets, const char *const *sets, fr_conf **out);
/* One "a.b=value" over what is there. */
fr_status fr__conf_set(fr_conf *top, const char *set);

/* Parse one YAML document into a separate tree; *out = NULL if it is empty. origin NULL: a file. */
fr_status fr__conf_read(struct fr__conf_root *root, const char *text, size_t bytes,
                        const char *origin, fr_conf **out);

fr_conf *fr__conf_new(struct fr__conf_root *root); /* NULL: no memory */
fr_conf *fr__conf_child(const fr_conf *mapping, const char *key);
/* Append an empty scalar without value to `parent`; NULL: no memory. */
fr_conf *fr__conf_add(fr_conf *parent, const char *key);
/* Move the value of `from` (NULL: null) to `to`, which keeps its key and position in the tree. */
void fr__conf_assign(fr_conf *to, fr_conf *from);
/* Remove a key, so that it is neither refused nor saved. An absent key is not an error. */
void fr__conf_drop(fr_conf *mapping, const char *key);
bool fr__conf_is_null(const fr_conf *node);
fr_status fr__conf_no_memory(const fr_conf *node);

/* Resolve a file name. A relative path is relative to the folder of its config; one given by
 * `--set` is relative to the current folder. Errors name `what`, such as "model file". The absolute
 * path is recorded, so the config that a run saves works from any folder. */
fr_status fr__conf_file(fr_conf *c, const char *key, const char *what, char path[PATH_MAX]);
/* The same for files and folders of data. They may be missing, because the data source has a better
 * message; "" stays "". */
fr_status fr__conf_data(fr_conf *c, const char *key, const char *preset, const char **out);
fr_status fr__conf_data_list(fr_conf *c, const char *key, int max_n, const char **out, int *n);
/* Record the value that fr_conf_save writes for a key; consumes `o`. */
fr_status fr__conf_resolve(fr_conf *node, fr__text *o);

/* Position "file.yaml:3:5" of a value, or the nearest known one; and path
 * "train.layers[2].width". */
const char *fr__conf_place(const fr_conf *node);
const char *fr__conf_path(const fr_conf *node);

#endif
