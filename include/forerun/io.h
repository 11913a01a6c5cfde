/* io.h -- configuration files (YAML) and named tensors (safetensors).
 *
 * Objects here belong to one thread. Every error names the file and, for text, line and column. */
#ifndef FORERUN_IO_H
#define FORERUN_IO_H

#include <forerun/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- configuration -------------------------------------------------------------------------
 * A mapping node of a YAML document. Readers ask for the keys they know, with a default and a
 * range; each key asked for is marked as known and its resolved value recorded. At the end
 * fr_conf_finish refuses keys nobody asked for, naming line, column and the nearest known key. */
typedef struct fr_conf fr_conf;

/* Read a file; `sets` are n "a.b.c=value" overrides (value parsed as YAML). */
FR_API FR_MUST_USE fr_status fr_conf_load(fr_ctx *ctx, const char *path, int n_sets,
                                          const char *const *sets, fr_conf **out);
FR_API FR_MUST_USE fr_status fr_conf_parse(fr_ctx *ctx, const char *text, size_t bytes,
                                           const char *name, fr_conf **out);
FR_API void fr_conf_free(fr_conf *root); /* root only; sections live as long as their root */

/* A sub-mapping; made empty if absent, so that defaults can be read from it. */
FR_API FR_MUST_USE fr_status fr_conf_section(fr_conf *c, const char *key, fr_conf **out);
FR_API bool fr_conf_has(const fr_conf *c, const char *key);
FR_API bool fr_conf_is_mapping(const fr_conf *c, const char *key);

FR_API FR_MUST_USE fr_status fr_conf_int(fr_conf *c, const char *key, int64_t preset, int64_t min,
                                         int64_t max, int64_t *out);
FR_API FR_MUST_USE fr_status fr_conf_real(fr_conf *c, const char *key, double preset, double min,
                                          double max, double *out);
FR_API FR_MUST_USE fr_status fr_conf_bool(fr_conf *c, const char *key, bool preset, bool *out);
/* Text lives as long as the root. preset NULL: the key is required. */
FR_API FR_MUST_USE fr_status fr_conf_text(fr_conf *c, const char *key, const char *preset,
                                          const char **out);
/* A list of integers (a single integer counts as a list of one). *n = 0 if absent. */
FR_API FR_MUST_USE fr_status fr_conf_ints(fr_conf *c, const char *key, int max_n, int64_t *out,
                                          int *n);
/* A list of texts. */
FR_API FR_MUST_USE fr_status fr_conf_texts(fr_conf *c, const char *key, int max_n, const char **out,
                                           int *n);
/* A list of mappings: length, and item i. */
FR_API int fr_conf_list_length(const fr_conf *c, const char *key); /* -1: absent or not a list */
FR_API FR_MUST_USE fr_status fr_conf_list_item(fr_conf *c, const char *key, int i, fr_conf **out);

/* Record a resolved value that was computed, so that fr_conf_save shows it. */
FR_API FR_MUST_USE fr_status fr_conf_record(fr_conf *c, const char *key, const char *value_as_yaml);

/* "file.yaml:3:5" of a key (or of the section, key NULL), for errors of the caller's own. */
FR_API const char *fr_conf_where(fr_conf *c, const char *key);
/* FR_INVALID with "WHERE: text". */
FR_API fr_status fr_conf_fail(fr_conf *c, const char *key, const char *format, ...) FR_PRINTF(3, 4);

/* Refuse keys of `root` and all its sections that nobody asked for. */
FR_API FR_MUST_USE fr_status fr_conf_finish(fr_conf *root);
/* The resolved document as YAML that fr_conf_load reads back to the same values. */
FR_API FR_MUST_USE fr_status fr_conf_save(fr_conf *root, const char *path);

/* --- what keys there are ---------------------------------------------------------------------
 * One table for reading, help, completion and the reference. */
typedef enum fr_key_kind {
    FR_KEY_INT,
    FR_KEY_REAL,
    FR_KEY_BOOL,
    FR_KEY_TEXT,
    FR_KEY_AMOUNT, /* a number with a unit: 12 GB/s */
    FR_KEY_INTS,   /* lists; one value is a list of one */
    FR_KEY_TEXTS,
    FR_KEY_ITEMS /* a list of mappings */
} fr_key_kind;

typedef struct fr_key {
    const char *path; /* "train.optimizer.lr", "model.nodes[].op"; NULL ends a table */
    fr_key_kind kind;
    const char *preset; /* as YAML; "" : required; NULL: none; "(...)": what it follows from */
    double min, max;    /* of numbers; infinite: no limit */
    const char *(*choice)(int i); /* name i that it may have, NULL after the last; NULL: any */
    const char *of;               /* whose key it is: names with commas, or in words; NULL: all's */
    const char *meaning;
    /* For the reader. */
    const char *refusal; /* the error for a name that is no choice: a format for it and the list */
    int unit;            /* of an amount: fr__amount_unit */
    bool is_path;        /* a text that names a file or folder of data */
    size_t offset, size; /* of the value in the struct of its section; size 0: read by hand */
} fr_key;

/* --- safetensors ---------------------------------------------------------------------------- */
typedef struct fr_tensors fr_tensors; /* an open file, read */

typedef struct fr_tensor_info {
    const char *name;
    const char *dtype; /* "F32", "I32", "I64", "U8", ... */
    int n_dims;
    int64_t dim[8];
    uint64_t begin, bytes; /* in the data part */
} fr_tensor_info;

/* Opens and checks the header against the file: sizes, overlaps, holes, types, duplicate names. */
FR_API FR_MUST_USE fr_status fr_tensors_open(fr_ctx *ctx, const char *path, fr_tensors **out);
FR_API void fr_tensors_close(fr_tensors *t);
FR_API int fr_tensors_count(const fr_tensors *t);
FR_API const fr_tensor_info *fr_tensors_info(const fr_tensors *t, int i);
FR_API int fr_tensors_find(const fr_tensors *t, const char *name); /* -1: none */
FR_API FR_MUST_USE fr_status fr_tensors_read(fr_tensors *t, int i, void *to,
                                             size_t bytes); /* bytes must match */
FR_API const char *fr_tensors_meta(const fr_tensors *t,
                                   const char *key); /* __metadata__ entry or NULL */

typedef struct fr_tensor_writer fr_tensor_writer;
/* Declare all tensors, then write their data in the order of declaration, then finish (fsync).
 * Without finish, or after an error, fr_tensor_writer_free removes the unfinished file. The caller
 * makes it atomic: write into a temporary folder or name and rename. */
FR_API FR_MUST_USE fr_status fr_tensor_writer_create(fr_ctx *ctx, const char *path,
                                                     fr_tensor_writer **out);
FR_API FR_MUST_USE fr_status fr_tensor_writer_meta(fr_tensor_writer *w, const char *key,
                                                   const char *value);
FR_API FR_MUST_USE fr_status fr_tensor_writer_declare(fr_tensor_writer *w, const char *name,
                                                      const char *dtype, int n_dims,
                                                      const int64_t *dims);
FR_API FR_MUST_USE fr_status fr_tensor_writer_data(fr_tensor_writer *w, const void *data,
                                                   size_t bytes);
FR_API FR_MUST_USE fr_status fr_tensor_writer_finish(fr_tensor_writer *w);
FR_API void fr_tensor_writer_free(fr_tensor_writer *w);

#ifdef __cplusplus
}
#endif
#endif
