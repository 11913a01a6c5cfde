/* export.h -- the tensors of an export, and the files that they are in. */
#ifndef FR_RUN_EXPORT_H
#define FR_RUN_EXPORT_H

#include "base/arena.h"
#include "base/vec.h"
#include "checkpoint/given.h"
#include <forerun/export.h>

/* A tensor to be written. Tensors are in the order in which checkpoints give parameters; those of a
 * parameter follow each other. */
typedef struct fr__out_tensor {
    const char *name;
    int param;          /* whose values it has; -1: */
    int origin;         /* a tensor of model.weights, copied as it is */
    int part, n_parts;  /* of the parameter's first dimension */
    bool is_transposed; /* a matrix */
    const char *dtype;
    int n_dims;
    int64_t dims[FR_TENSOR_MAX_DIMS];
    uint64_t bytes;
    int shard;
} fr__out_tensor;

typedef struct fr__export {
    fr__setup *s;
    fr_arena arena;
    fr__given origin; /* model.weights, where it is there; else origin.set is NULL */
    const fr__weight_map *map;
    const char *prefix;
    const char *dtype; /* "F32", "F16", "BF16" */
    uint64_t shard_bytes, total;
    int n_shards;
    FR_VEC(fr__out_tensor) tensors;
    char folder[FR_PATH]; /* that is being written */
} fr__export;

/* Lists all tensors and gives each its file. The rest of *x is set. */
fr_status fr__export_list(fr__export *x);
/* The name of file `shard` in the folder. */
void fr__export_file(const fr__export *x, int shard, char name[64]);
/* model.safetensors.index.json, if there are several files, and config.json. */
fr_status fr__export_describe(fr__export *x);

#endif
