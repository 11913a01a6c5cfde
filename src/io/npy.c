/* npy.c -- NumPy's .npy: magic, version, header length, then a Python dict such as
 * {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), } and the values.
 * (NEP 1; version 2 widens the length, version 3 allows UTF-8.) */
#include "io/npy.h"

#include "base/alloc.h"
#include "io/file.h"

#include <inttypes.h>
#include <stdalign.h>
#include <string.h>

enum { MAX_DIMS = 8, MAX_HEADER = 1 << 16 };
#define MAX_FILE ((size_t)64 << 30) /* bytes; limits gzip bombs, not real data */

static const struct {
    const char *descr;
    size_t bytes;
} types[] = {[FR_NPY_F32] = {"<f4", 4}, [FR_NPY_F64] = {"<f8", 8}, [FR_NPY_U8] = {"|u1", 1},
             [FR_NPY_I32] = {"<i4", 4}, [FR_NPY_I64] = {"<i8", 8}, [FR_NPY_U16] = {"<u2", 2}};

/* The rest of the header text, and the values found. */
struct scan {
    fr_ctx *ctx;
    const char *name;
    const unsigned char *file, *at, *end;
    fr__npy *out;
    bool has_descr, has_order, has_shape;
};

static fr_status bad(struct scan *s, const char *expected)
{
    return fr_fail(s->ctx, FR_INVALID, "%s: byte %zu: expected %s in the .npy header", s->name,
                   (size_t)(s->at - s->file), expected);
}

static void skip_blanks(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t')) s->at++;
}

static bool take(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* 'text' or "text", without escapes. */
static bool take_string(struct scan *s, const unsigned char **text, size_t *n)
{
    skip_blanks(s);
    if (s->at == s->end || (*s->at != '\'' && *s->at != '"')) return false;
    const unsigned char *last = memchr(s->at + 1, *s->at, (size_t)(s->end - s->at) - 1);
    if (!last) return false;
    *text = s->at + 1;
    *n = (size_t)(last - *text);
    s->at = last + 1;
    return true;
}

static fr_status read_descr(struct scan *s)
{
    const unsigned char *text;
    size_t n;
    if (!take_string(s, &text, &n)) return bad(s, "a simple type such as '<f4'");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].descr) == n && memcmp(types[i].descr, text, n) == 0) {
            s->out->type = (fr__npy_type)i;
            return FR_OK;
        }
    return fr_fail(s->ctx, FR_UNSUPPORTED,
                   "%s: values of type '%.*s' are not supported; convert to one of <f4 <f8 |u1 <i4 "
                   "<i8 <u2 (numpy: a.astype)",
                   s->name, n < 20 ? (int)n : 20, (const char *)text);
}

static fr_status read_shape(struct scan *s)
{
    fr__npy *a = s->out;
    if (!take(s, "(")) return bad(s, "a shape such as (10, 3)");
    while (!take(s, ")")) {
        int64_t d = 0;
        const unsigned char *digits = s->at; /* take skipped the blanks */
        for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
            if (d > (INT64_MAX - 9) / 10) return bad(s, "a smaller dimension");
            d = 10 * d + (*s->at - '0');
        }
        if (s->at == digits) return bad(s, "a dimension");
        if (a->n_dims == MAX_DIMS) return bad(s, "at most 8 dimensions");
        a->dim[a->n_dims++] = d;
        if (!take(s, ",") && (s->at == s->end || *s->at != ')')) return bad(s, "',' or ')'");
    }
    return FR_OK;
}

static fr_status read_entry(struct scan *s)
{
    const unsigned char *key;
    size_t n;
    if (!take_string(s, &key, &n)) return bad(s, "a key in quotes");
    if (!take(s, ":")) return bad(s, "':'");
    if (n == 5 && memcmp(key, "descr", n) == 0 && !s->has_descr) {
        s->has_descr = true;
        return read_descr(s);
    }
    if (n == 5 && memcmp(key, "shape", n) == 0 && !s->has_shape) {
        s->has_shape = true;
        return read_shape(s);
    }
    if (n == 13 && memcmp(key, "fortran_order", n) == 0 && !s->has_order) {
        s->has_order = true;
        if (take(s, "False")) return FR_OK;
        if (!take(s, "True")) return bad(s, "True or False");
        return fr_fail(s->ctx, FR_UNSUPPORTED,
                       "%s: the array is in Fortran order; save numpy.ascontiguousarray(a) instead",
                       s->name);
    }
    return bad(s, "each of 'descr', 'fortran_order', 'shape' once");
}

static fr_status read_dict(struct scan *s)
{
    if (!take(s, "{")) return bad(s, "'{'");
    while (!take(s, "}")) {
        FR_TRY(read_entry(s));
        if (take(s, ",")) continue;
        if (s->at == s->end || *s->at != '}') return bad(s, "',' or '}'");
    }
    skip_blanks(s);
    if (s->at != s->end) return bad(s, "nothing more");
    if (!s->has_descr || !s->has_order || !s->has_shape)
        return bad(s, "'descr', 'fortran_order' and 'shape'");
    return FR_OK;
}

/* Size of the values in bytes; SIZE_MAX: larger than any file. */
static size_t values_bytes(const fr__npy *a)
{
    size_t bytes = types[a->type].bytes;
    for (int i = 0; i < a->n_dims; i++) {
        size_t d = (size_t)a->dim[i];
        bytes = d != 0 && bytes > SIZE_MAX / d ? SIZE_MAX : bytes * d;
    }
    /* A zero dimension would hide an earlier overflow, so zero dimensions are checked last. */
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] == 0) bytes = 0;
    return bytes;
}

/* a->data: start of the values. */
static fr_status parse_head(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                            fr__npy *a)
{
    if (bytes < 10 || memcmp(data, "\x93NUMPY", 6) != 0)
        return fr_fail(ctx, FR_INVALID, "%s: not a .npy file (no \\x93NUMPY at its start)", name);
    int version = data[6];
    if (version < 1 || version > 3 || data[7] != 0)
        return fr_fail(ctx, FR_UNSUPPORTED, "%s: .npy version %d.%d, expected 1.0, 2.0 or 3.0",
                       name, version, data[7]);
    size_t start = version == 1 ? 10 : 12, length = (size_t)data[8] | (size_t)data[9] << 8;
    if (version > 1 && bytes >= start) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > MAX_HEADER || bytes < start || bytes - start < length)
        return fr_fail(ctx, FR_INVALID,
                       "%s: byte 8: a header of %zu bytes does not fit a file of %zu", name, length,
                       bytes);
    *a = (fr__npy){0};
    struct scan s = {.ctx = ctx, .name = name, .file = data, .at = data + start, .out = a};
    s.end = s.at + length;
    FR_TRY(read_dict(&s));
    a->data = s.end;
    return FR_OK;
}

/* The values must fill the rest of the file exactly. */
fr_status fr__npy_parse(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                        fr__npy *out)
{
    fr__npy a;
    *out = (fr__npy){0};
    FR_TRY(parse_head(ctx, name, data, bytes, &a));
    size_t wanted = values_bytes(&a);
    size_t found = bytes - (size_t)((const unsigned char *)a.data - data);
    if (wanted != found)
        return fr_fail(
            ctx, FR_INVALID,
            "%s: the shape in the header needs %zu bytes of values, but the file has %zu", name,
            wanted, found);
    *out = a;
    return FR_OK;
}

static fr_status size_of_file(fr_ctx *ctx, const char *path, const unsigned char *data, size_t n,
                              size_t *total)
{
    fr__npy a;
    FR_TRY(parse_head(ctx, path, data, n, &a));
    size_t start = (size_t)((const unsigned char *)a.data - data), values = values_bytes(&a);
    *total = values > SIZE_MAX - start ? SIZE_MAX : start + values;
    return FR_OK;
}

static const fr__file_head head = {.bytes = 12 + MAX_HEADER, .size = size_of_file};

fr_status fr__npy_load(fr_ctx *ctx, const char *path, fr__npy *out)
{
    unsigned char *block;
    size_t bytes;
    *out = (fr__npy){0};
    FR_TRY(fr__file_read_by(ctx, path, MAX_FILE, &head, &block, &bytes));
    fr_status status = fr__npy_parse(ctx, path, block, bytes, out);
    if (status != FR_OK) {
        fr__free(block);
        return status;
    }
    out->block = block;
    /* Files need not align their values, but callers use them in place. */
    size_t offset = (size_t)((const unsigned char *)out->data - block);
    if (offset % alignof(int64_t) != 0) {
        memmove(block, block + offset, bytes - offset);
        out->data = block;
    }
    return FR_OK;
}

void fr__npy_fini(fr__npy *a)
{
    fr__free(a->block);
    *a = (fr__npy){0};
}
