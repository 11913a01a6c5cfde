/* tsv.c -- splits lines. The caller checks the labels. */
#include "io/tsv.h"

#include <inttypes.h>
#include <string.h>

fr_status fr__tsv_next(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                       size_t *pos, int64_t *line, fr__tsv_row *row, bool *more)
{
    while (*pos < bytes) {
        const char *from = (const char *)data + *pos;
        const char *end = memchr(from, '\n', bytes - *pos);
        size_t n = end ? (size_t)(end - from) : bytes - *pos;
        *pos += n + (end != NULL);
        ++*line;
        if (n > 0 && from[n - 1] == '\r') n--;
        if (n == 0) continue;
        const char *tab = memchr(from, '\t', n);
        if (!tab)
            return fr_fail(ctx, FR_INVALID,
                           "%s:%" PRId64 ": expected LABEL<TAB>TEXT, found no tab in \"%.*s\"%s",
                           name, *line, n < 40 ? (int)n : 40, from, n < 40 ? "" : "...");
        size_t label_bytes = (size_t)(tab - from);
        *row = (fr__tsv_row){from, label_bytes, tab + 1, n - label_bytes - 1, *line};
        *more = true;
        return FR_OK;
    }
    *more = false;
    return FR_OK;
}
