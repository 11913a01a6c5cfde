/* predict_file.h -- rows of numbers into a file: an array, a table, or lines of JSON. */
#ifndef FR_RUN_PREDICT_FILE_H
#define FR_RUN_PREDICT_FILE_H

#include "base/text.h"
#include "checkpoint/folder.h"

#include <forerun/operators.h>

typedef enum fr__predict_kind { FR_PREDICT_NPY, FR_PREDICT_CSV, FR_PREDICT_JSON } fr__predict_kind;

typedef struct fr__predict_file {
    fr_ctx *ctx;
    fr__predict_kind kind;
    const char *node; /* its name */
    fr_shape shape;   /* of a row */
    int64_t n_rows;   /* written so far */
    int fd;           /* -1: closed */
    fr__text text;
    char path[FR_PATH], temp[FR_PATH]; /* equal: a stream, written in place */
} fr__predict_file;

/* The ending of the path chooses the kind. n_rows: of the whole file. */
fr_status fr__predict_file_open(fr_ctx *ctx, const char *path, const char *node,
                                const fr_shape *shape, int64_t n_rows, fr__predict_file *f);
fr_status fr__predict_file_write(fr__predict_file *f, const float *rows, int64_t n);
/* The file appears under its name. */
fr_status fr__predict_file_end(fr__predict_file *f);
void fr__predict_file_abort(fr__predict_file *f); /* an ended one is fine */

#endif
