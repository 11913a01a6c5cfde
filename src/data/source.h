/* source.h -- the interface of data sources, and their common helpers.
 *
 * A source is one file: an `open` that reads the keys of its section and loads and checks
 * everything, and a table of functions that read from memory. After open nothing changes, so `read`
 * may be called from any thread. */
#ifndef FR_DATA_SOURCE_H
#define FR_DATA_SOURCE_H

#include "base/alloc.h"
#include <forerun/data.h>

/* Largest unpacked file that a source reads; limits malicious packed files. */
#define FR_DATA_MAX_BYTES ((size_t)1 << 34)

/* The draw number of an unmodified sample: no augmentation, no shift. */
#define FR_DRAW_PLAIN UINT64_MAX

typedef struct fr__data_ops {
    /* index is in range; draw is FR_DRAW_PLAIN in FR_EVAL; length is not NULL if has_length. */
    fr_status (*read)(const fr_dataset *d, fr_split split, int64_t index, uint64_t seed,
                      uint64_t draw, void *input, void *target, int32_t *length);
    /* optional: the inputs alone of another file of this kind, (n, input shape), for fr__free */
    fr_status (*inputs)(const fr_dataset *d, const char *path, float **values, int64_t *n);
    void (*close)(fr_dataset *d); /* optional: free the contents of the set, not the set itself */
    /* optional, together: as fr_dataset_token_text and fr_dataset_encode */
    const char *(*token_text)(const fr_dataset *d, int32_t id, size_t *n);
    int64_t (*encode)(const fr_dataset *d, const char *text, size_t bytes, int32_t *ids,
                      int64_t room);
} fr__data_ops;

/* Keys of the sections, each of some sources (keys.c). */
typedef struct fr__data_options {
    const char *path, *eval_path, *input, *source, *target, *eval_input, *eval_target;
    const char *eval, *tokens, *tokenizer, *separator, *split;
    int64_t limit, crop, context, classes, vocab, text_column, n, n_eval;
    uint64_t seed;
    double eval_fraction;
    bool flip, lower;
} fr__data_options;
/* Those of one source; what *o holds already are defaults. */
fr_status fr__data_options_read(fr_conf *section, const char *source, fr__data_options *o);

/* First member of every source's own struct. */
struct fr_dataset {
    fr_ctx *ctx;
    const fr__data_ops *ops;
    fr_data_info info;
    size_t bytes;
};

/* A zeroed struct of `bytes` bytes that begins with an fr_dataset; released by fr_dataset_close.
 * NULL: out of memory, reported in the context. */
void *fr__dataset_new(fr_ctx *ctx, size_t bytes, const fr__data_ops *ops);

/* Samples without targets, of a .npy file or, for a data set of tables, a .csv file: (n, shape of
 * the node, which reads them), floats or int32_t as it has them. */
typedef struct fr__inputs {
    int64_t n;
    void *values; /* for fr__free */
} fr__inputs;
fr_status fr__inputs_load(const fr_dataset *d, const char *path, const fr_node *node,
                          fr__inputs *out);

/* Set path to "folder/name" or "folder/name.gz", whichever exists. */
#define FR_DATA_PATH 4096
bool fr__data_file(const char *folder, const char *name, char path[FR_DATA_PATH]);

extern const fr_data_source fr__data_fashion_mnist, fr__data_mnist, fr__data_cifar10, fr__data_text,
    fr__data_tsv, fr__data_pairs, fr__data_multi30k, fr__data_npy, fr__data_csv, fr__data_synthetic;

#endif
