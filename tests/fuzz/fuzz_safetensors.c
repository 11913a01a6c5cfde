/* fuzz_safetensors.c -- any bytes as a safetensors file: refused, or every value can be read. */
#include "base/alloc.h"
#include "io/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    fr_tensors *t;
    if (fr__tensors_parse(ctx, "fuzz", data, size, &t) == FR_OK) {
        uint64_t total = 0;
        for (int i = 0; i < fr_tensors_count(t); i++) {
            const fr_tensor_info *info = fr_tensors_info(t, i);
            void *to = fr__alloc(info->bytes);
            if (fr_tensors_find(t, info->name) != i) abort();
            if (!to || fr_tensors_read(t, i, to, info->bytes) != FR_OK) abort();
            fr__free(to);
            total += info->bytes;
        }
        if (total > size) abort(); /* no byte belongs to two tensors */
        (void)fr_tensors_meta(t, "format");
        fr_tensors_close(t);
    } else if (t || !*fr_ctx_error(ctx)) {
        abort();
    }
    fr_ctx_free(ctx);
    return 0;
}
