/* file.c -- files of text to a file of tokens and back, in pieces, so that any size works. */
#include "tokens/tokenizer.h"

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 1 << 18, NAME_BYTES = 4096 }; /* bytes */

typedef struct job {
    fr_ctx *ctx;
    const fr_tokenizer *t;
    const fr_tokenize_options *o;
    fr_tokenize_result *result;
    fr_encoder *encoder;
    unsigned char *piece; /* (PIECE) */
    int out;
    bool in_place;                   /* the output is a device or a pipe */
    char name[NAME_BYTES];           /* of the file that becomes the output */
    fr__bytes buffer;                /* not yet written */
    int64_t done_bytes, total_bytes; /* of the inputs as they are on disk */
} job;

static fr_status flush(job *j)
{
    fr_status status = fr__fd_write(j->ctx, j->out, j->name, j->buffer.at, j->buffer.n);
    j->buffer.n = 0;
    return status;
}

static fr_status put(job *j, const void *bytes, size_t n)
{
    if (!fr__bytes_put(&j->buffer, bytes, n)) return fr__no_memory(j->ctx, n, "output");
    return j->buffer.n >= PIECE ? flush(j) : FR_OK;
}

static fr_status put_ids(job *j, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)ids[i];
        unsigned char b[4] = {(unsigned char)id, (unsigned char)(id >> 8),
                              (unsigned char)(id >> 16), (unsigned char)(id >> 24)};
        FR_TRY(put(j, b, (size_t)j->result->width));
    }
    j->result->n_tokens += n;
    return FR_OK;
}

static fr_status put_taken(job *j)
{
    int64_t n;
    const int32_t *ids = fr_encoder_take(j->encoder, &n);
    return put_ids(j, ids, n);
}

/* n bytes of a file of tokens, whole ones. */
static fr_status put_text(job *j, const char *path, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += (size_t)j->result->width) {
        uint32_t id = p[i] | (uint32_t)p[i + 1] << 8;
        if (j->result->width == 4) id |= (uint32_t)p[i + 2] << 16 | (uint32_t)p[i + 3] << 24;
        size_t bytes;
        const char *text = id > INT32_MAX ? NULL : fr_tokenizer_text(j->t, (int32_t)id, &bytes);
        if (!text)
            return fr_fail(j->ctx, FR_INVALID,
                           "%s: token %lld is %u, which the tokenizer does not have", path,
                           (long long)j->result->n_tokens, id);
        FR_TRY(put(j, text, bytes));
        j->result->bytes += (int64_t)bytes;
        j->result->n_tokens++;
    }
    return FR_OK;
}

static fr_status read_piece(job *j, gzFile f, const char *path, size_t *n)
{
    int code, got = gzread(f, j->piece, PIECE);
    const char *why = gzerror(f, &code);
    if (got < 0 && code == Z_ERRNO) return fr__io_fail(j->ctx, "read", path);
    if (got < 0 || code == Z_BUF_ERROR)
        return fr_fail(j->ctx, FR_INVALID, "%s: not a whole gzip file: %s", path, why);
    *n = (size_t)got;
    return FR_OK;
}

static fr_status encode_file(job *j, gzFile f, const char *path)
{
    for (size_t n = 1; n > 0;) {
        if (j->o->stop && *j->o->stop) return fr_fail(j->ctx, FR_INTERRUPTED, "interrupted");
        FR_TRY(read_piece(j, f, path, &n));
        fr_status status = fr_encoder_feed(j->encoder, (const char *)j->piece, n);
        if (status == FR_OK && n == 0) status = fr_encoder_end(j->encoder);
        if (status == FR_INVALID) {
            char why[512];
            snprintf(why, sizeof why, "%s", fr_ctx_error(j->ctx));
            return fr_fail(j->ctx, status, "%s: %s", path, why);
        }
        FR_TRY(status);
        FR_TRY(put_taken(j));
        j->result->bytes += (int64_t)n;
        if (j->o->progress)
            j->o->progress(j->o->user, j->done_bytes + gzoffset(f), j->total_bytes,
                           j->result->n_tokens);
    }
    return FR_OK;
}

static fr_status decode_file(job *j, gzFile f, const char *path)
{
    size_t width = (size_t)j->result->width;
    for (size_t n = 1; n > 0;) {
        if (j->o->stop && *j->o->stop) return fr_fail(j->ctx, FR_INTERRUPTED, "interrupted");
        FR_TRY(read_piece(j, f, path, &n)); /* short at the end only, as gzread fills what it can */
        if (n % width)
            return fr_fail(j->ctx, FR_INVALID,
                           "%s: its end is not a whole token of %zu bytes; is "
                           "the file cut?",
                           path, width);
        FR_TRY(put_text(j, path, j->piece, n));
        if (j->o->progress)
            j->o->progress(j->o->user, j->done_bytes + gzoffset(f), j->total_bytes,
                           j->result->n_tokens);
    }
    return FR_OK;
}

static fr_status take_file(job *j, const char *path, int32_t end)
{
    if (fr__dir_exists(path)) {
        errno = EISDIR;
        return fr__io_fail(j->ctx, "read", path);
    }
    gzFile f = gzopen(path, "rb");
    if (!f) return errno ? fr__io_fail(j->ctx, "open", path) : fr__no_memory(j->ctx, 0, path);
    fr_status status = j->o->decode ? decode_file(j, f, path) : encode_file(j, f, path);
    j->done_bytes += gzoffset(f);
    gzclose_r(f);
    if (status == FR_OK && end >= 0) status = put_ids(j, &end, 1);
    return status;
}

static int64_t size_of(const fr_tokenize_options *o)
{
    struct stat at;
    int64_t total = 0;
    for (int i = 0; i < o->n_inputs; i++) {
        if (stat(o->inputs[i], &at) != 0 || !S_ISREG(at.st_mode)) return 0;
        total += at.st_size;
    }
    return total;
}

static fr_status open_output(job *j)
{
    const char *path = j->o->output;
    FR_TRY(fr__may_replace(j->ctx, -1, path));
    j->in_place = fr__is_stream(-1, path);
    int n = j->in_place ? snprintf(j->name, NAME_BYTES, "%s", path)
                        : snprintf(j->name, NAME_BYTES, "%s.%ld.tmp", path, (long)getpid());
    if (n >= NAME_BYTES) return fr_fail(j->ctx, FR_INVALID, "%.60s...: the path is too long", path);
    j->out = fr__open_in(-1, j->name, O_WRONLY | O_CREAT | O_TRUNC);
    return j->out < 0 ? fr__io_fail(j->ctx, "create", j->name) : FR_OK;
}

/* The output becomes visible, or the part of it disappears. */
static fr_status close_output(job *j, fr_status status)
{
    if (j->out < 0) return status;
    if (status == FR_OK) status = flush(j);
    if (status == FR_OK && !j->in_place && fsync(j->out) != 0)
        status = fr__io_fail(j->ctx, "sync", j->name);
    if (close(j->out) != 0 && status == FR_OK) status = fr__io_fail(j->ctx, "close", j->name);
    if (j->in_place) return status;
    if (status == FR_OK) status = fr__rename_sync(j->ctx, j->name, j->o->output);
    if (status != FR_OK) (void)fr__unlink_in(-1, j->name);
    return status;
}

static fr_status run(job *j)
{
    const fr_tokenize_options *o = j->o;
    int32_t end = -1;
    if (o->end && (end = fr_tokenizer_id(j->t, o->end)) < 0)
        return fr_fail(j->ctx, FR_INVALID, "the tokenizer has no token \"%.60s\"", o->end);
    j->piece = fr__alloc(PIECE);
    if (!j->piece) return fr__no_memory(j->ctx, PIECE, "input");
    FR_TRY(fr_encoder_create(j->t, &j->encoder));
    FR_TRY(open_output(j));
    for (int i = 0; i < o->n_inputs; i++) FR_TRY(take_file(j, o->inputs[i], o->decode ? -1 : end));
    return FR_OK;
}

fr_status fr_tokenize(const fr_tokenizer *t, const fr_tokenize_options *o,
                      fr_tokenize_result *result)
{
    *result = (fr_tokenize_result){.width = fr_tokenizer_vocab(t) > 65536 ? 4 : 2};
    job *j = FR_NEW(job);
    if (!j) return fr__no_memory(t->ctx, sizeof *j, "tokenize");
    *j = (job){.ctx = t->ctx, .t = t, .o = o, .result = result, .out = -1};
    j->total_bytes = size_of(o);
    fr_status status = close_output(j, run(j));
    fr_encoder_free(j->encoder);
    fr__free(j->piece);
    fr__vec_fini(&j->buffer);
    fr__free(j);
    return status;
}
