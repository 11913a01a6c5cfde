/* token_file.c -- recognises, maps and checks files of tokens. Nothing is read beyond what a header
 * says, and no header is believed before it agrees with the size of the file. */
#include "data/token_file.h"

#include "base/alloc.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LLMC_HEADER = 1024, /* bytes */
    LLMC_UINT16 = 20240520,
    LLMC_UINT32 = 20240801,
    INDEX_HEADER = 34, /* magic 9, version 8, dtype 1, sequences 8, documents 8 */
    PATH_BYTES = 4096
};

static const char index_magic[9] = "MMIDIDX\0";

static uint64_t number(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | p[i];
    return value;
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

/* NAME.idx of NAME.bin or NAME.idx; false: neither, or too long. */
static bool sibling(const char *path, const char *end, char out[PATH_BYTES])
{
    if (!ends_with(path, ".bin") && !ends_with(path, ".idx")) return false;
    int n = snprintf(out, PATH_BYTES, "%.*s%s", (int)strlen(path) - 4, path, end);
    return n > 0 && n < PATH_BYTES;
}

/* The first bytes of a file; returns their number. */
static size_t peek(const char *path, unsigned char *to, size_t bytes)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(to, 1, bytes, f) : 0;
    if (f) fclose(f);
    return n;
}

static bool is_index(const char *path)
{
    unsigned char head[sizeof index_magic];
    return peek(path, head, sizeof head) == sizeof head &&
           memcmp(head, index_magic, sizeof head) == 0;
}

static bool is_llmc(const char *path)
{
    unsigned char head[4];
    if (peek(path, head, 4) != 4) return false;
    return number(head, 4) == LLMC_UINT16 || number(head, 4) == LLMC_UINT32;
}

static bool is_megatron(const char *path)
{
    char index[PATH_BYTES];
    return sibling(path, ".idx", index) && is_index(index);
}

bool fr__token_file_is_known(const char *path)
{
    return fr__file_exists(path) && (is_llmc(path) || is_megatron(path));
}

/* --- mapping --- */

static fr_status map_file(fr_ctx *ctx, const char *path, fr__token_file *f)
{
    int fd;
    struct stat at;
    FR_TRY(fr__open_regular(ctx, path, &fd));
    fr_status status = FR_OK;
    if (fstat(fd, &at) != 0) status = fr__io_fail(ctx, "read", path);
    if (status == FR_OK && at.st_size > 0) {
        f->map = mmap(NULL, (size_t)at.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (f->map == MAP_FAILED) {
            f->map = NULL;
            status = fr__io_fail(ctx, "map", path);
        } else {
            f->map_bytes = (size_t)at.st_size;
        }
    }
    close(fd);
    f->tokens = f->map;
    return status;
}

void fr__token_file_close(fr__token_file *f)
{
    if (f->map) munmap(f->map, f->map_bytes);
    fr__free(f->block);
    *f = (fr__token_file){0};
}

/* --- the three kinds --- */

static fr_status open_llmc(fr_ctx *ctx, const char *path, fr__token_file *f)
{
    FR_TRY(map_file(ctx, path, f));
    if (f->map_bytes < LLMC_HEADER)
        return fr_fail(ctx, FR_INVALID,
                       "%s: a token file of llm.c, but only %zu of the %d bytes of its header; is "
                       "it cut?",
                       path, f->map_bytes, LLMC_HEADER);
    bool is_wide = number(f->tokens, 4) == LLMC_UINT32;
    uint64_t version = number(f->tokens + 4, 4), n = number(f->tokens + 8, 4);
    if (version != (is_wide ? 7 : 1))
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "%s: a token file of llm.c of version %llu; known: 1 (magic 20240520), 7 "
                       "(magic 20240801)",
                       path, (unsigned long long)version);
    f->width = is_wide ? 4 : 2;
    f->n = (int64_t)n;
    if (f->map_bytes != LLMC_HEADER + n * (uint64_t)f->width)
        return fr_fail(ctx, FR_INVALID,
                       "%s: its header says %llu tokens of %d bytes, but %zu bytes follow it; is "
                       "the file cut?",
                       path, (unsigned long long)n, f->width, f->map_bytes - LLMC_HEADER);
    f->tokens += LLMC_HEADER;
    return FR_OK;
}

/* The sequences must be all of the tokens, in order. */
static fr_status check_index(fr_ctx *ctx, const char *path, const unsigned char *p, size_t bytes,
                             fr__token_file *f)
{
    if (bytes < INDEX_HEADER) return fr_fail(ctx, FR_INVALID, "%s: its header is cut", path);
    uint64_t version = number(p + 9, 8), n_sequences = number(p + 18, 8),
             n_documents = number(p + 26, 8);
    int kind = p[17];
    if (version != 1 || (kind != 4 && kind != 8))
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "%s: version %llu and type %d of tokens; known: version 1, types 4 (int32) "
                       "and 8 (uint16)",
                       path, (unsigned long long)version, kind);
    f->width = kind == 4 ? 4 : 2;
    if (n_sequences > bytes / 12 || n_documents > bytes / 8 ||
        bytes != INDEX_HEADER + 12 * n_sequences + 8 * n_documents)
        return fr_fail(
            ctx, FR_INVALID,
            "%s: %llu sequences and %llu documents do not make its %zu bytes; is it cut?", path,
            (unsigned long long)n_sequences, (unsigned long long)n_documents, bytes);
    const unsigned char *length = p + INDEX_HEADER, *place = length + 4 * n_sequences;
    uint64_t at = 0;
    for (uint64_t i = 0; i < n_sequences; i++) {
        if (number(place + 8 * i, 8) != at || number(length + 4 * i, 4) > INT32_MAX)
            return fr_fail(
                ctx, FR_UNSUPPORTED,
                "%s: sequence %llu does not follow the one before it; known: files whose "
                "sequences are in order",
                path, (unsigned long long)i);
        at += number(length + 4 * i, 4) * (uint64_t)f->width;
    }
    if (at != f->map_bytes)
        return fr_fail(
            ctx, FR_INVALID,
            "%s: its sequences have %llu bytes, but the .bin beside it has %zu; is one of "
            "them cut?",
            path, (unsigned long long)at, f->map_bytes);
    f->n = (int64_t)(at / (uint64_t)f->width);
    return FR_OK;
}

static fr_status open_megatron(fr_ctx *ctx, const char *path, fr__token_file *f)
{
    char index[PATH_BYTES], tokens[PATH_BYTES];
    fr__token_file list = {0};
    if (!sibling(path, ".idx", index) || !sibling(path, ".bin", tokens))
        return fr_fail(ctx, FR_INVALID, "%.60s...: the path is too long", path);
    FR_TRY(map_file(ctx, tokens, f));
    fr_status status = map_file(ctx, index, &list);
    if (status == FR_OK) status = check_index(ctx, index, list.tokens, list.map_bytes, f);
    fr__token_file_close(&list);
    return status;
}

static fr_status open_plain(fr_ctx *ctx, const char *path, int width, size_t max_bytes,
                            fr__token_file *f)
{
    unsigned char head[2];
    size_t bytes;
    if (peek(path, head, 2) == 2 && head[0] == 0x1F && head[1] == 0x8B) {
        FR_TRY(fr__file_read(ctx, path, max_bytes, &f->block, &bytes));
        f->tokens = f->block;
    } else {
        FR_TRY(map_file(ctx, path, f));
        bytes = f->map_bytes;
    }
    if (bytes % (size_t)width)
        return fr_fail(ctx, FR_INVALID,
                       "%s: %zu bytes are not whole %d-bit tokens; is the file cut, or is it text "
                       "(tokens: bytes)?",
                       path, bytes, 8 * width);
    f->width = width;
    f->n = (int64_t)(bytes / (size_t)width);
    return FR_OK;
}

fr_status fr__token_file_open(fr_ctx *ctx, const char *path, int width, size_t max_bytes,
                              fr__token_file *f)
{
    if (is_llmc(path)) return open_llmc(ctx, path, f);
    if (is_megatron(path)) return open_megatron(ctx, path, f);
    return open_plain(ctx, path, width, max_bytes, f);
}
