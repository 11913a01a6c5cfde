/* tsv.h -- lines of `label<TAB>text` from memory. */
#ifndef FR_IO_TSV_H
#define FR_IO_TSV_H

#include <forerun/base.h>

/* Points into the data; not zero-terminated. */
typedef struct fr__tsv_row {
    const char *label;
    size_t label_bytes;
    const char *text;
    size_t text_bytes;
    int64_t line; /* from 1 */
} fr__tsv_row;

/* Read the next row. *pos and *line start at 0 and are kept between calls. At the end, *more
 * becomes false and the row is not set. Empty lines are skipped, a carriage return at the end of a
 * line is dropped, and further tabs belong to the text. A line without a tab fails with "name:line:
 * ...". */
fr_status fr__tsv_next(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                       size_t *pos, int64_t *line, fr__tsv_row *row, bool *more);

#endif
