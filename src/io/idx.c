/* idx.c -- IDX: two zero bytes, a type, the number of dimensions, each dimension as a big-endian
 * 32-bit number, then the values. */
#include "io/idx.h"

#include <inttypes.h>

enum { IDX_U8 = 0x08, MAX_DIMS = 4 };

/* Parse the header; out->data: start of the values. */
static fr_status parse_head(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                            fr__idx *out)
{
    *out = (fr__idx){0};
    if (bytes < 4)
        return fr_fail(ctx, FR_INVALID, "%s: byte 0: %zu bytes are too few for an IDX file", name,
                       bytes);
    if (data[0] != 0 || data[1] != 0)
        return fr_fail(ctx, FR_INVALID,
                       "%s: byte 0: an IDX file starts with 00 00, this one with %02x %02x", name,
                       data[0], data[1]);
    if (data[2] != IDX_U8)
        return fr_fail(ctx, FR_INVALID,
                       "%s: byte 2: IDX type %02x found, only 08 (unsigned bytes) is read", name,
                       data[2]);
    int n = data[3];
    if (n < 1 || n > MAX_DIMS)
        return fr_fail(ctx, FR_INVALID, "%s: byte 3: %d dimensions found, expected 1 to %d", name,
                       n, MAX_DIMS);
    size_t header = 4 + 4 * (size_t)n;
    if (bytes < header)
        return fr_fail(ctx, FR_INVALID,
                       "%s: byte %zu: the file ends inside its header of %zu bytes", name, bytes,
                       header);
    for (int i = 0; i < n; i++) {
        const unsigned char *p = data + 4 + 4 * i;
        out->dim[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (out->dim[i] == 0)
            return fr_fail(ctx, FR_INVALID, "%s: byte %d: dimension %d is zero", name, 4 + 4 * i,
                           i);
    }
    out->n_dims = n;
    out->data = data + header;
    return FR_OK;
}

fr_status fr__idx_parse(fr_ctx *ctx, const char *name, const unsigned char *data, size_t bytes,
                        fr__idx *out)
{
    fr__idx a;
    *out = (fr__idx){0};
    FR_TRY(parse_head(ctx, name, data, bytes, &a));
    /* Limited by the file at every step, so the product cannot overflow. */
    size_t header = (size_t)(a.data - data), room = bytes - header, total = 1;
    for (int i = 0; i < a.n_dims; i++) {
        if ((size_t)a.dim[i] > room / total)
            return fr_fail(ctx, FR_INVALID,
                           "%s: byte %d: dimension %d is %" PRId64
                           ", but only %zu bytes of data follow the header; is the file complete?",
                           name, 4 + 4 * i, i, a.dim[i], room);
        total *= (size_t)a.dim[i];
    }
    if (total != room)
        return fr_fail(ctx, FR_INVALID,
                       "%s: byte %zu: %zu bytes of data expected from the header, %zu found", name,
                       header, total, room);
    *out = a;
    return FR_OK;
}

static fr_status size_of_file(fr_ctx *ctx, const char *path, const unsigned char *data, size_t n,
                              size_t *total)
{
    fr__idx a;
    FR_TRY(parse_head(ctx, path, data, n, &a));
    *total = 1;
    for (int i = 0; i < a.n_dims; i++) {
        size_t d = (size_t)a.dim[i];
        *total = *total > SIZE_MAX / 2 / d ? SIZE_MAX / 2 : *total * d;
    }
    *total += (size_t)(a.data - data);
    return FR_OK;
}

const fr__file_head fr__idx_head = {.bytes = 4 + 4 * MAX_DIMS, .size = size_of_file};
