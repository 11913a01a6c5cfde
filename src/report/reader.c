/* reader.c -- reads long JSON files piece by piece. */
#include "report/reader.h"

#include "base/alloc.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 1 << 18 }; /* longest line or event */

fr_status fr__reader_open(fr_ctx *ctx, const char *path, fr__reader *r)
{
    *r = (fr__reader){.ctx = ctx, .path = path, .fd = -1};
    FR_TRY(fr__open_regular(ctx, path, &r->fd));
    r->buffer = fr__alloc(ROOM);
    if (r->buffer) return FR_OK;
    fr__reader_close(r);
    return fr__no_memory(ctx, ROOM, path);
}

void fr__reader_close(fr__reader *r)
{
    if (r->fd >= 0) close(r->fd);
    fr__free(r->buffer);
    *r = (fr__reader){.fd = -1};
}

fr_status fr__reader_fail(fr__reader *r, const char *text)
{
    return fr_fail(r->ctx, FR_INVALID, "%s:%lld: %s", r->path, (long long)r->line, text);
}

/* Move the unread bytes to the front and read more behind them. */
static fr_status fill(fr__reader *r)
{
    size_t n = r->end - r->begin;
    if (n == ROOM)
        return fr__reader_fail(r, "no end of line or event within 256 kB; is this the right file?");
    memmove(r->buffer, r->buffer + r->begin, n);
    r->begin = 0, r->end = n;
    ssize_t got;
    do {
        got = read(r->fd, r->buffer + n, ROOM - n);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fr__io_fail(r->ctx, "read", r->path);
    r->end += (size_t)got;
    r->is_drained = got == 0;
    return FR_OK;
}

fr_status fr__reader_line(fr__reader *r, fr__piece *line)
{
    size_t seen = 0;
    const char *stop;
    r->line = r->n_breaks + 1;
    while (!(stop = memchr(r->buffer + r->begin + seen, '\n', r->end - r->begin - seen)) &&
           !r->is_drained) {
        seen = r->end - r->begin;
        FR_TRY(fill(r));
    }
    const char *text = r->buffer + r->begin;
    size_t n = stop ? (size_t)(stop - text) : r->end - r->begin;
    *line = (fr__piece){.text = stop || n ? text : NULL, .n = n, .is_whole = stop != NULL};
    r->begin += n + (stop != NULL);
    r->n_breaks += stop != NULL;
    return FR_OK;
}

/* --- objects of a list -------------------------------------------------------------------- */

/* Nesting depth of a byte, and whether it is inside a string. */
typedef struct nesting {
    int depth;
    bool in_text, is_escaped;
} nesting;

static void enter(nesting *s, char c)
{
    if (s->in_text) {
        if (s->is_escaped)
            s->is_escaped = false;
        else if (c == '\\')
            s->is_escaped = true;
        else if (c == '"')
            s->in_text = false;
    } else if (c == '"') {
        s->in_text = true;
    } else if (c == '{' || c == '[') {
        s->depth++;
    } else if (c == '}' || c == ']') {
        s->depth--;
    }
}

/* The byte at offset i from `begin`; false at the end of the file. */
static fr_status byte_at(fr__reader *r, size_t i, char *c, bool *is_there)
{
    *is_there = true;
    while (r->begin + i >= r->end) {
        if (r->is_drained) return *is_there = false, FR_OK;
        FR_TRY(fill(r));
    }
    *c = r->buffer[r->begin + i];
    return FR_OK;
}

static fr_status next_byte(fr__reader *r, char *c)
{
    bool is_there;
    r->line = r->n_breaks + 1;
    FR_TRY(byte_at(r, 0, c, &is_there));
    if (!is_there) return fr__reader_fail(r, "ends early; is the file whole?");
    r->begin++;
    r->n_breaks += *c == '\n';
    return FR_OK;
}

fr_status fr__reader_list(fr__reader *r)
{
    nesting s = {0};
    char c = 0;
    while (c != '[' || s.in_text || s.depth > 2) {
        FR_TRY(next_byte(r, &c));
        enter(&s, c);
        if (s.depth <= 0 && !s.in_text && !strchr(" \t\r\n", c))
            return fr__reader_fail(r, "expected an object with a list of events");
    }
    return FR_OK;
}

fr_status fr__reader_object(fr__reader *r, fr__piece *object)
{
    char c = ',';
    *object = (fr__piece){.text = NULL};
    while (c && strchr(", \t\r\n", c)) FR_TRY(next_byte(r, &c));
    if (c == ']') return FR_OK;
    if (c != '{') return fr__reader_fail(r, "expected an event: { ... }");
    r->begin--; /* the brace belongs to the event */
    nesting s = {0};
    size_t n = 0;
    do {
        bool is_there;
        FR_TRY(byte_at(r, n, &c, &is_there));
        if (!is_there) return fr__reader_fail(r, "ends early; is the file whole?");
        enter(&s, c);
        r->n_breaks += c == '\n';
        n++;
    } while (s.depth > 0);
    *object = (fr__piece){.text = r->buffer + r->begin, .n = n, .is_whole = true};
    r->begin += n;
    return FR_OK;
}
