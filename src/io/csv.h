/* csv.h -- tables of numbers: a first line that names the columns, then one line per row. */
#ifndef FR_IO_CSV_H
#define FR_IO_CSV_H

#include <forerun/base.h>

typedef struct fr__csv {
    int n_cols;
    int64_t n_rows;
    const char **names; /* [n_cols] */
    float *values;      /* (n_rows, n_cols); NaN: the field is empty */
    size_t bytes;       /* held in memory */
    char *head;         /* the first line, cut into names */
} fr__csv;

/* Columns are split by commas; by semicolons or tabs if the first line has no comma. A field may
 * have blanks and double quotes around it. Empty lines are skipped. Failures name file, line and
 * column. Gzip allowed. */
fr_status fr__csv_load(fr_ctx *ctx, const char *path, fr__csv *out);
fr_status fr__csv_parse(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                        fr__csv *out);
int fr__csv_find(const fr__csv *t, const char *name); /* column; -1: none */
void fr__csv_fini(fr__csv *t);

#endif
