/* predict_file.c -- rows of numbers into a file that appears as a whole. */
#include "run/predict_file.h"

#include "base/alloc.h"
#include "io/file.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

/* Nine digits give a float back; the decimal point is that of no locale. */
static void put_number(fr__text *t, float value, const char *no_number)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)value);
    for (char *c = text; *c; c++)
        if (*c == ',') *c = '.';
    fr__text_put(t, isfinite(value) ? text : no_number);
}

/* Version 1 of the format: the head is a multiple of 64 bytes. */
static void put_npy_head(fr__predict_file *f, int64_t n_rows)
{
    char dict[256];
    int used =
        snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld",
                 (long long)n_rows);
    for (int i = 0; i < f->shape.n_dims; i++)
        used +=
            snprintf(dict + used, sizeof dict - (size_t)used, ", %lld", (long long)f->shape.dim[i]);
    used += snprintf(dict + used, sizeof dict - (size_t)used, "%s), }", f->shape.n_dims ? "" : ",");
    int length = (10 + used + 1 + 63) / 64 * 64 - 10;
    const char low[2] = {(char)(length & 0xff), (char)(length >> 8)};
    fr__text_put_bytes(&f->text, "\x93NUMPY\x01\x00", 8);
    fr__text_put_bytes(&f->text, low, 2);
    fr__text_printf(&f->text, "%s%*s\n", dict, length - used - 1, "");
}

static void put_csv_head(fr__predict_file *f)
{
    int64_t n = fr_shape_count(&f->shape);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) fr__text_put(&f->text, ",");
        if (n == 1)
            fr__text_put(&f->text, f->node);
        else
            fr__text_printf(&f->text, "%s_%lld", f->node, (long long)i);
    }
    fr__text_put(&f->text, "\n");
}

/* Nested lists, as the shape has dimensions. */
static const float *put_json(fr__text *t, const fr_shape *shape, int dim, const float *row)
{
    if (dim >= shape->n_dims || dim >= FR_MAX_DIMS) {
        put_number(t, *row, "null");
        return row + 1;
    }
    fr__text_put(t, "[");
    for (int64_t i = 0; i < shape->dim[dim]; i++) {
        if (i > 0) fr__text_put(t, ", ");
        row = put_json(t, shape, dim + 1, row);
    }
    fr__text_put(t, "]");
    return row;
}

static void put_quoted(fr__text *t, const char *name)
{
    fr__text_put(t, "\"");
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') fr__text_put(t, "\\");
        if ((unsigned char)*name >= ' ') fr__text_put_bytes(t, name, 1);
    }
    fr__text_put(t, "\"");
}

static void put_row(fr__predict_file *f, const float *row)
{
    int64_t n = fr_shape_count(&f->shape);
    if (f->kind == FR_PREDICT_JSON) {
        fr__text_printf(&f->text, "{\"index\": %lld, ", (long long)f->n_rows);
        put_quoted(&f->text, f->node);
        fr__text_put(&f->text, ": ");
        put_json(&f->text, &f->shape, 0, row);
        fr__text_put(&f->text, "}\n");
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        put_number(&f->text, row[i], isnan(row[i]) ? "nan" : row[i] > 0 ? "inf" : "-inf");
        fr__text_put(&f->text, i + 1 < n ? "," : "\n");
    }
}

static fr_status flush(fr__predict_file *f)
{
    fr_status status = f->text.failed ? fr__no_memory(f->ctx, f->text.n, "outputs")
                                      : fr__fd_write(f->ctx, f->fd, f->temp, f->text.at, f->text.n);
    fr__text_fini(&f->text);
    f->text = (fr__text){0};
    return status;
}

fr_status fr__predict_file_open(fr_ctx *ctx, const char *path, const char *node,
                                const fr_shape *shape, int64_t n_rows, fr__predict_file *f)
{
    *f = (fr__predict_file){.ctx = ctx, .node = node, .shape = *shape, .fd = -1};
    f->kind = ends_in(path, ".npy")   ? FR_PREDICT_NPY
              : ends_in(path, ".csv") ? FR_PREDICT_CSV
                                      : FR_PREDICT_JSON;
    if (f->kind == FR_PREDICT_JSON && !ends_in(path, ".jsonl"))
        return fr_fail(ctx, FR_INVALID,
                       "%s: outputs go to a file that ends in .npy, .csv or .jsonl", path);
    FR_TRY(fr__may_replace(ctx, -1, path));
    FR_TRY(fr__path(ctx, f->path, "%s", path));
    FR_TRY(fr__path(ctx, f->temp, fr__is_stream(-1, path) ? "%s" : "%s.tmp", path));
    f->fd = fr__open_in(-1, f->temp, O_WRONLY | O_CREAT | O_TRUNC);
    if (f->fd < 0) return fr__io_fail(ctx, "write", f->temp);
    if (f->kind == FR_PREDICT_NPY) put_npy_head(f, n_rows);
    if (f->kind == FR_PREDICT_CSV) put_csv_head(f);
    return f->text.n > 0 || f->text.failed ? flush(f) : FR_OK;
}

fr_status fr__predict_file_write(fr__predict_file *f, const float *rows, int64_t n)
{
    const int64_t count = fr_shape_count(&f->shape);
    if (f->kind == FR_PREDICT_NPY) {
        f->n_rows += n;
        return fr__fd_write(f->ctx, f->fd, f->temp, rows, (size_t)(n * count) * sizeof *rows);
    }
    for (int64_t i = 0; i < n; i++, f->n_rows++) put_row(f, rows + i * count);
    return n > 0 ? flush(f) : FR_OK;
}

fr_status fr__predict_file_end(fr__predict_file *f)
{
    const bool is_stream = strcmp(f->path, f->temp) == 0;
    if (!is_stream && fsync(f->fd) != 0) return fr__io_fail(f->ctx, "write", f->temp);
    int error = close(f->fd);
    f->fd = -1;
    if (error) return fr__io_fail(f->ctx, "write", f->temp);
    return is_stream ? FR_OK : fr__rename_sync(f->ctx, f->temp, f->path);
}

void fr__predict_file_abort(fr__predict_file *f)
{
    fr__text_fini(&f->text);
    if (f->fd < 0) return;
    close(f->fd);
    if (strcmp(f->path, f->temp) != 0) (void)fr__unlink_in(-1, f->temp);
    f->fd = -1;
}
