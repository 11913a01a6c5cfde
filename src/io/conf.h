/* conf.h -- the tree behind fr_conf, shared by conf_parse.c, conf_get.c and conf_save.c.
 *
 * libfyaml gives events with places; the tree is ours, in one arena, and bounded: libfyaml is gone
 * before the first key is asked for. Every node is an fr_conf, though users see mappings only. */
#ifndef FR_IO_CONF_H
#define FR_IO_CONF_H

#include <forerun/io.h>

#include "base/arena.h"
#include "base/vec.h"

#include <limits.h>

enum {
    FR_CONF_MAX_BYTES = 1 << 18, /* of text; libfyaml takes quadratic time over some */
    FR_CONF_MAX_NODES = 1 << 13, /* copies of aliases counted: no billion laughs */
    FR_CONF_MAX_DEPTH = 32,
    FR_CONF_MAX_KEY = 128 /* bytes */
};

enum fr_conf_kind { FR_CONF_SCALAR, FR_CONF_LIST, FR_CONF_MAPPING };

struct fr_conf_root {
    fr_ctx *ctx;
    fr_arena arena;
    const char *name;
    const char *head; /* the comment before all else, as it stands in a loaded file; "": none */
    fr_conf *top;
    int n_nodes;
};

struct fr_conf {
    struct fr_conf_root *root;
    fr_conf *parent, *next, *first, *last;
    const char *key; /* NULL: an item of a list, or the top */
    enum fr_conf_kind kind;
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

/* Text as it grows; on a failed allocation `failed` sticks. */
struct fr_conf_out {
    FR_VEC(char) text;
    bool failed;
};
void fr__conf_put(struct fr_conf_out *o, const char *text);
/* As YAML: plain where nothing can misread it, in double quotes otherwise. */
void fr__conf_put_text(struct fr_conf_out *o, const char *text);

/* fr_conf_save, with lines of comment at the head ("": none). */
fr_status fr__conf_save(fr_conf *top, const char *head, const char *path);
/* What fr_conf_save writes. */
void fr__conf_format(const fr_conf *top, struct fr_conf_out *o);
/* One "a.b=value" over what is there. */
fr_status fr__conf_set(fr_conf *top, const char *set);

/* One YAML document as a free-standing tree; *out = NULL if it is empty. origin NULL: a file. */
fr_status fr__conf_read(struct fr_conf_root *root, const char *text, size_t bytes,
                        const char *origin, fr_conf **out);

fr_conf *fr__conf_new(struct fr_conf_root *root); /* NULL: no memory */
fr_conf *fr__conf_child(const fr_conf *mapping, const char *key);
/* An empty scalar without value at the end of `parent`; NULL: no memory. */
fr_conf *fr__conf_add(fr_conf *parent, const char *key);
/* Put the value of `from` (NULL: null) into `to`, which keeps its key and place in the tree. */
void fr__conf_assign(fr_conf *to, fr_conf *from);
/* Takes a key out of the tree: it is neither refused nor saved. Absent is fine. */
void fr__conf_drop(fr_conf *mapping, const char *key);
bool fr__conf_is_null(const fr_conf *node);
fr_status fr__conf_no_memory(const fr_conf *node);

/* The file that a text names: a relative path counts from the folder of the config that has it, of
 * `--set` from the current folder. `what` is for the error: "model file". The absolute path is
 * recorded, so that the config that a run saves finds the file from anywhere. */
fr_status fr__conf_file(fr_conf *c, const char *key, const char *what, char path[PATH_MAX]);
/* The same for files and folders of data, which need not be there (the source says so better); ""
 * stays. */
fr_status fr__conf_data(fr_conf *c, const char *key, const char *preset, const char **out);
fr_status fr__conf_data_list(fr_conf *c, const char *key, int max_n, const char **out, int *n);
/* What fr_conf_save writes for a key; `o` is used up. */
fr_status fr__conf_resolve(fr_conf *node, struct fr_conf_out *o);

/* "file.yaml:3:5" of a value, or what comes nearest; and "train.layers[2].width". */
const char *fr__conf_place(const fr_conf *node);
const char *fr__conf_path(const fr_conf *node);

#endif
