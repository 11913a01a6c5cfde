/* npy.h -- NumPy's .npy files (versions 1-3, C order), read whole. */
#ifndef FR_IO_NPY_H
#define FR_IO_NPY_H

#include <forerun/base.h>

typedef enum fr__npy_type {
    FR_NPY_F32,
    FR_NPY_F64,
    FR_NPY_U8,
    FR_NPY_I32,
    FR_NPY_I64,
    FR_NPY_U16
} fr__npy_type;

typedef struct fr__npy {
    fr__npy_type type;
    int n_dims;
    int64_t dim[8];
    const void *data;     /* inside block */
    unsigned char *block; /* release with fr__npy_fini */
} fr__npy;

/* From a file (gzip allowed), aligned for its type; or from memory: then *data is borrowed, block
 * is NULL, and the values may be unaligned. */
fr_status fr__npy_load(fr_ctx *ctx, const char *path, fr__npy *out);
fr_status fr__npy_parse(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                        fr__npy *out);
void fr__npy_fini(fr__npy *a);

#endif
