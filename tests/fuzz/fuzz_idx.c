/* fuzz_idx.c -- any bytes as an IDX file: refused, or the dimensions make up the data. */
#include "io/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    fr__idx a;
    if (fr__idx_parse(ctx, "fuzz", data, size, &a) == FR_OK) {
        size_t n = 1;
        for (int i = 0; i < a.n_dims; i++) n *= (size_t)a.dim[i];
        if (a.data + n != data + size) abort();
    } else if (!*fr_ctx_error(ctx)) {
        abort();
    }
    fr_ctx_free(ctx);
    return 0;
}
