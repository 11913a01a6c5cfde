/* fuzz_npy.c -- any bytes as a .npy file: refused, or the shape makes up the rest of the file. */
#include "io/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t bytes[] = {[FR_NPY_F32] = 4, [FR_NPY_F64] = 8, [FR_NPY_U8] = 1,
                                   [FR_NPY_I32] = 4, [FR_NPY_I64] = 8, [FR_NPY_U16] = 2};
    fr_ctx *ctx = fr_ctx_create();
    fr__npy a;
    if (fr__npy_parse(ctx, "fuzz", data, size, &a) == FR_OK) {
        size_t n = bytes[a.type], is_empty = 0;
        for (int i = 0; i < a.n_dims; i++) is_empty |= a.dim[i] == 0;
        for (int i = 0; i < a.n_dims && !is_empty; i++) n *= (size_t)a.dim[i];
        if ((const uint8_t *)a.data + (is_empty ? 0 : n) != data + size) abort();
    } else if (!*fr_ctx_error(ctx)) {
        abort();
    }
    fr__npy_fini(&a);
    fr_ctx_free(ctx);
    return 0;
}
