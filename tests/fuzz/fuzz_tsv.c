/* fuzz_tsv.c -- any bytes as lines: rows lie inside, in order, and the walk ends. */
#include "io/tsv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fr_ctx *ctx = fr_ctx_create();
    size_t pos = 0;
    int64_t line = 0;
    fr__tsv_row row;
    bool more = true;
    const char *from = (const char *)data, *end = from + size;
    while (fr__tsv_next(ctx, "fuzz", data, size, &pos, &line, &row, &more) == FR_OK && more) {
        if (row.label < from || row.label + row.label_bytes + 1 != row.text ||
            row.text + row.text_bytes > end || row.line != line)
            abort();
        from = row.text + row.text_bytes;
    }
    fr_ctx_free(ctx);
    return 0;
}
