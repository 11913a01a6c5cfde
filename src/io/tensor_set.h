/* tensor_set.h -- weights as other programs store them: one safetensors file, or a folder.
 *
 *     DIR/model.safetensors             all tensors; or, cut into several files (shards),
 *     DIR/model.safetensors.index.json  {"weight_map": {TENSOR: FILE of this folder, ...}}
 *
 * Headers are read and checked when the set is opened, values when they are asked for. */
#ifndef FR_IO_TENSOR_SET_H
#define FR_IO_TENSOR_SET_H

#include "io/safetensors.h"

#define FR_SET_FILE "model.safetensors"
#define FR_SET_INDEX "model.safetensors.index.json"
enum { FR_SET_MAX_FILES = 4096 };

typedef struct fr__tensor_set fr__tensor_set;

typedef struct fr__set_tensor {
    const fr_tensor_info *info;
    fr_tensors *file;
    int at;           /* in the file */
    const char *path; /* of the file */
} fr__set_tensor;

/* path: a safetensors file, an index, or a folder with either. */
fr_status fr__tensor_set_open(fr_ctx *ctx, const char *path, fr__tensor_set **out);
void fr__tensor_set_close(fr__tensor_set *s);

int fr__tensor_set_count(const fr__tensor_set *s);
const fr__set_tensor *fr__tensor_set_at(const fr__tensor_set *s, int i);
int fr__tensor_set_find(const fr__tensor_set *s, const char *name); /* -1: none */
/* Part of a tensor: `bytes` bytes from byte `from` of its values. */
fr_status fr__tensor_set_read(fr__tensor_set *s, int i, uint64_t from, void *to, size_t bytes);

/* An index in memory: fails, or calls `each` for every tensor with the name of its file, which is
 * that of a file beside the index. */
fr_status fr__tensor_index_parse(fr_ctx *ctx, const char *path, const char *text, size_t bytes,
                                 fr_status (*each)(void *user, const char *tensor,
                                                   const char *file),
                                 void *user);

#endif
