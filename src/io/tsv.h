/* tsv.h -- lines of `label<TAB>text` from memory. */
#ifndef FR_IO_TSV_H
#define FR_IO_TSV_H

#include <forerun/base.h>

/* Points into the data; not ended by a zero. */
typedef struct fr_tsv_row {
    const char *label;
    size_t label_bytes;
    const char *text;
    size_t text_bytes;
    int64_t line; /* from 1 */
} fr_tsv_row;

/* The next row. *pos and *line start at 0 and are kept between calls; *more becomes false at the
 * end (then the row is not set). Empty lines are skipped, a carriage return at the end of a line
 * is dropped, further tabs belong to the text; a line without a tab fails with "name:line: ...". */
fr_status fr__tsv_next(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                       size_t *pos, int64_t *line, fr_tsv_row *row, bool *more);

#endif
