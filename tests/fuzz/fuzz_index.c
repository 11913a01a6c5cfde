/* fuzz_index.c -- any bytes as the index of a set of safetensors files: refused, or every file it
 * names is one of the index's folder. */
#include "io/tensor_set.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fr_status each(void *user, const char *tensor, const char *file)
{
    int *n = user;
    if (!tensor || !file[0] || file[0] == '.' || strchr(file, '/') || strchr(file, '\\')) abort();
    ++*n;
    return FR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    int n = 0;
    fr_status status = fr__tensor_index_parse(ctx, "fuzz", (const char *)data, size, each, &n);
    if (status != FR_OK && !*fr_ctx_error(ctx)) abort();
    fr_ctx_free(ctx);
    return 0;
}
