/* data.h -- data sets and the loader that runs ahead.
 *
 * A data set answers "sample i of split s". The loader, on a thread of its own, turns the
 * stream of samples into mini-batches a few steps ahead. Which samples mini-batch k holds, in which
 * order and with which augmentation depends on (seed, k) only. */
#ifndef FORERUN_DATA_H
#define FORERUN_DATA_H

#include <forerun/graph.h>
#include <forerun/io.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fr_split { FR_TRAIN, FR_EVAL } fr_split;

/* Contents of a data set; plain numbers, valid after open. */
typedef struct fr_data_info {
    int64_t n_train, n_eval; /* samples; n_eval 0: no evaluation part */
    fr_shape input;          /* of one sample */
    fr_dtype input_dtype;    /* FR_F32 images, FR_I32 tokens */
    fr_shape target;         /* () for a class, (T) for next tokens */
    int64_t n_classes;       /* targets are in 0 .. n_classes - 1, or FR_TARGET_IGNORE */
    int64_t vocab;   /* ids are in 0 .. vocab - 1; 0 for images. tsv: 0 is padding, 1 unknown */
    bool has_length; /* a third tensor: int32 (), valid tokens of the sample */
    /* Targets are floats, and n_classes is 0; a NaN does not count. In `want` of an open: they are
     * to be; integers are converted. */
    bool has_float_targets;
} fr_data_info;

typedef struct fr_dataset fr_dataset;

typedef struct fr_data_source {
    const char *name, *summary;
    bool has_shapes_of_model; /* the model is made first, and says what the data looks like */
    /* Reads its keys from `section`; sizes it may take from the model come in `want` (context
     * length, shapes for synthetic data), zero where unknown. A call that fails may leave a part of
     * a data set in *out, for fr_dataset_close. */
    fr_status (*open)(fr_ctx *ctx, fr_conf *section, const fr_data_info *want, fr_dataset **out);
} fr_data_source;

FR_API const fr_data_source *const *fr_data_list(void); /* NULL-terminated */
FR_API const fr_data_source *fr_data_find(const char *name);

FR_API const fr_key *fr_data_keys(void); /* of its section, ended by a NULL path */

/* `data:` section of a config: {name: fashion-mnist, path: DIR, ...}. */
FR_API FR_MUST_USE fr_status fr_dataset_open(fr_ctx *ctx, fr_conf *section,
                                             const fr_data_info *want, fr_dataset **out);

/* A data set of the caller's own: a function that makes samples, or arrays that hold them. */
typedef struct fr_samples {
    const void *input;     /* (n, input shape) */
    const void *target;    /* (n, target shape): int32_t, or floats */
    const int32_t *length; /* (n); NULL where info.has_length is false */
} fr_samples;
typedef struct fr_dataset_desc {
    fr_data_info info;
    /* As fr_dataset_read; called from any thread, several calls at a time. A failure leaves its
     * text in the context. NULL: samples[FR_TRAIN] and samples[FR_EVAL]. */
    fr_status (*read)(void *user, fr_split split, int64_t index, uint64_t seed, uint64_t draw,
                      void *input, void *target, int32_t *length);
    void *user;
    fr_samples samples[2]; /* not copied: alive until the data set is closed */
} fr_dataset_desc;
FR_API FR_MUST_USE fr_status fr_dataset_create(fr_ctx *ctx, const fr_dataset_desc *desc,
                                               fr_dataset **out);

FR_API void fr_dataset_close(fr_dataset *d);
FR_API const fr_data_info *fr_dataset_info(const fr_dataset *d);
/* Bytes held in memory. */
FR_API size_t fr_dataset_bytes(const fr_dataset *d);

/* One sample into plain memory. (seed, draw) decide the augmentation; the loader's draw is the
 * position in its stream, UINT64_MAX means none; both are ignored in FR_EVAL. Safe from any thread.
 * length may be NULL. */
FR_API FR_MUST_USE fr_status fr_dataset_read(fr_dataset *d, fr_split split, int64_t index,
                                             uint64_t seed, uint64_t draw, void *input,
                                             void *target, int32_t *length);

/* A mini-batch in host memory, batch first, owned by the loader until released. */
typedef struct fr_batch {
    int64_t step;
    int n_samples;     /* real ones; the rest is padding with ignored targets */
    int64_t n_targets; /* targets that count (not ignored) */
    void *input;       /* (batch, input shape) */
    void *target;      /* (batch, target shape): int32_t, or floats */
    int32_t *length;   /* (batch), 1 where padding, or NULL */
} fr_batch;

typedef struct fr_loader_desc {
    fr_dataset *data;
    fr_split split;
    int batch;
    uint64_t seed;
    int64_t first_step; /* mini-batch to start with (resume) */
    int64_t n_steps;    /* how many from there; FR_EVAL: ignored, once over the split */
    int ahead;          /* mini-batches prepared ahead; 0 = 2 */
    bool in_order;      /* no shuffle, no augmentation (FR_EVAL is always so) */
    int target_width;   /* floats that are one target, which counts without NaN; 0 = 1 */
} fr_loader_desc;

typedef struct fr_loader fr_loader;
FR_API FR_MUST_USE fr_status fr_loader_create(fr_ctx *ctx, const fr_loader_desc *desc,
                                              fr_loader **out);
FR_API void fr_loader_free(fr_loader *l); /* stops the thread */
/* Wait for the next mini-batch; *out = NULL after the last. The loader's, valid until released; at
 * most `ahead` may be held at once. Allocates nothing after the first round. */
FR_API FR_MUST_USE fr_status fr_loader_next(fr_loader *l, const fr_batch **out);
FR_API void fr_loader_release(fr_loader *l, const fr_batch *b);
FR_API uint64_t fr_loader_wait_ns(const fr_loader *l); /* time that fr_loader_next spent waiting */
FR_API size_t fr_loader_bytes(const fr_loader *l);

/* Text of a token where the data set knows it (bytes, vocabulary); length in *n. NULL: unknown. */
FR_API const char *fr_dataset_token_text(const fr_dataset *d, int32_t id, size_t *n);
/* Text to ids; returns their number (at most room). -1: this data set has no text. */
FR_API int64_t fr_dataset_encode(const fr_dataset *d, const char *text, size_t bytes, int32_t *ids,
                                 int64_t room);

#ifdef __cplusplus
}
#endif
#endif
