/* csv.c -- splits lines into fields and reads each as a number. */
#include "io/csv.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/number.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_COLS = 1 << 16, MAX_NUMBER = 64 };
#define MAX_FILE ((size_t)64 << 30) /* bytes; limits gzip bombs, not real data */

/* The rest of a text. */
struct scan {
    fr_ctx *ctx;
    const char *name;
    const char *at, *end;
    int64_t line; /* of the last one taken, from 1 */
    char separator;
};

typedef struct piece {
    const char *at;
    size_t n;
} piece;

static piece trimmed(piece p)
{
    while (p.n > 0 && (p.at[0] == ' ' || p.at[0] == '\t' || p.at[0] == '\r')) p.at++, p.n--;
    while (p.n > 0 && strchr(" \t\r", p.at[p.n - 1])) p.n--;
    return p;
}

/* The next line that is not empty; false: there is none. */
static bool take_line(struct scan *s, piece *line)
{
    while (s->at < s->end) {
        const char *stop = memchr(s->at, '\n', (size_t)(s->end - s->at));
        *line = (piece){s->at, (size_t)((stop ? stop : s->end) - s->at)};
        s->at = stop ? stop + 1 : s->end;
        s->line++;
        if (trimmed(*line).n > 0) return true;
    }
    return false;
}

/* Cut the first field off a line; false: it was the last one. A separator in quotes is none. */
static bool take_field(const struct scan *s, piece *line, piece *field)
{
    size_t i = 0;
    bool is_quoted = false;
    for (; i < line->n && (is_quoted || line->at[i] != s->separator); i++)
        is_quoted ^= line->at[i] == '"';
    bool is_last = i == line->n;
    *field = trimmed((piece){line->at, i});
    if (field->n >= 2 && field->at[0] == '"' && field->at[field->n - 1] == '"')
        *field = trimmed((piece){field->at + 1, field->n - 2});
    line->at += is_last ? i : i + 1, line->n -= is_last ? i : i + 1;
    return !is_last;
}

static bool is_number(piece p, double *value)
{
    char text[MAX_NUMBER];
    if (p.n == 0 || p.n >= sizeof text) return false;
    memcpy(text, p.at, p.n);
    text[p.n] = '\0';
    return fr__real_scan(text[0] == '+' ? text + 1 : text, value);
}

static fr_status read_head(struct scan *s, fr__csv *t)
{
    piece line, field;
    double unused;
    if (!take_line(s, &line))
        return fr_fail(s->ctx, FR_INVALID, "%s: empty; expected a line with the names of columns",
                       s->name);
    s->separator = memchr(line.at, ',', line.n) ? ',' : memchr(line.at, ';', line.n) ? ';' : '\t';
    bool has_name = false, is_more = true;
    int n = 0;
    for (piece rest = line; is_more && n <= MAX_COLS; n++) {
        is_more = take_field(s, &rest, &field);
        has_name |= field.n > 0 && !is_number(field, &unused);
    }
    if (n > MAX_COLS || !has_name)
        return fr_fail(s->ctx, FR_INVALID,
                       "%s:%" PRId64 ": expected the names of up to %d columns in the first line",
                       s->name, s->line, MAX_COLS);
    t->names = FR_NEW_ARRAY(const char *, n);
    t->head = fr__alloc(line.n + (size_t)n);
    if (!t->names || !t->head) return fr__no_memory(s->ctx, line.n + (size_t)n, "columns");
    char *to = t->head;
    for (piece rest = line; t->n_cols < n; t->n_cols++, to += field.n + 1) {
        take_field(s, &rest, &field);
        memcpy(to, field.at, field.n);
        to[field.n] = '\0';
        t->names[t->n_cols] = to;
    }
    return FR_OK;
}

static fr_status read_row(const struct scan *s, const fr__csv *t, piece line, float *row)
{
    int col = 0;
    for (bool is_more = true; is_more; col++) {
        piece field;
        double value = NAN;
        is_more = take_field(s, &line, &field);
        if (col == t->n_cols) {
            col++;
            break;
        }
        if (field.n > 0 && !is_number(field, &value))
            return fr_fail(s->ctx, FR_INVALID,
                           "%s:%" PRId64 ": column %s holds '%.*s'%s, expected a number", s->name,
                           s->line, t->names[col], field.n < 40 ? (int)field.n : 40, field.at,
                           field.n < 40 ? "" : "...");
        row[col] = (float)value;
        if (isinf(row[col]))
            return fr_fail(s->ctx, FR_INVALID,
                           "%s:%" PRId64 ": column %s holds a number beyond the range of float32",
                           s->name, s->line, t->names[col]);
    }
    if (col == t->n_cols) return FR_OK;
    return fr_fail(s->ctx, FR_INVALID, "%s:%" PRId64 ": %s than the %d columns of the first line",
                   s->name, s->line, col < t->n_cols ? "fewer" : "more", t->n_cols);
}

static fr_status parse(struct scan *s, fr__csv *t)
{
    piece line;
    FR_TRY(read_head(s, t));
    struct scan ahead = *s;
    int64_t n_rows = 0;
    while (take_line(&ahead, &line)) n_rows++;
    if (n_rows == 0)
        return fr_fail(s->ctx, FR_INVALID, "%s: no rows after the first line", s->name);
    size_t n = fr__array_bytes((size_t)n_rows, (size_t)t->n_cols * sizeof(float));
    t->values = fr__alloc(n);
    if (!t->values) return fr__no_memory(s->ctx, n, "a table");
    t->bytes = n;
    for (; take_line(s, &line); t->n_rows++)
        FR_TRY(read_row(s, t, line, t->values + t->n_rows * t->n_cols));
    return FR_OK;
}

fr_status fr__csv_parse(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                        fr__csv *out)
{
    const char *text = (const char *)data;
    const size_t mark = bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of UTF-8 */
    struct scan s = {.ctx = ctx, .name = name, .at = text + mark, .end = text + bytes};
    *out = (fr__csv){0};
    fr_status status = parse(&s, out);
    if (status != FR_OK) fr__csv_fini(out);
    return status;
}

fr_status fr__csv_load(fr_ctx *ctx, const char *path, fr__csv *out)
{
    unsigned char *data;
    size_t bytes;
    *out = (fr__csv){0};
    FR_TRY(fr__file_read(ctx, path, MAX_FILE, &data, &bytes));
    fr_status status = fr__csv_parse(ctx, path, data, bytes, out);
    fr__free(data);
    return status;
}

int fr__csv_find(const fr__csv *t, const char *name)
{
    int i = t->n_cols - 1;
    while (i >= 0 && strcmp(t->names[i], name) != 0) i--;
    return i;
}

void fr__csv_fini(fr__csv *t)
{
    fr__free(t->names);
    fr__free(t->head);
    fr__free(t->values);
    *t = (fr__csv){0};
}
