/* ctx.c -- the context: the last failure and its text, and where log lines go.
 *
 * Threads that share a context overwrite each other's failures, so each thread also keeps the text
 * of its own last one: a worker hands that over to the thread that waits for it. */
#include "base/ctx.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LINE = FR_CTX_LINE };

struct fr_ctx {
    pthread_mutex_t lock; /* guards status and text */
    fr_status status;
    char text[LINE];
    fr_log_fn log;
    void *log_user;
};

static _Thread_local char own[LINE];  /* of the calling thread's last failure */
static _Thread_local char told[LINE]; /* what fr_ctx_error has given it */

static const struct {
    const char *text;
    int exit_code;
} statuses[] = {
#define FR_X(name, text, code) {text, code},
    FR_STATUS_LIST(FR_X)
#undef FR_X
};

fr_ctx *fr_ctx_create(void)
{
    fr_ctx *ctx = FR_NEW(fr_ctx);
    if (ctx && pthread_mutex_init(&ctx->lock, NULL) != 0) {
        fr__free(ctx);
        return NULL;
    }
    return ctx;
}

void fr_ctx_free(fr_ctx *ctx)
{
    if (!ctx) return;
    pthread_mutex_destroy(&ctx->lock);
    fr__free(ctx);
}

void fr_ctx_set_log(fr_ctx *ctx, fr_log_fn fn, void *user)
{
    ctx->log = fn;
    ctx->log_user = user;
}

fr_status fr_ctx_status(fr_ctx *ctx)
{
    if (!ctx) return FR_OK;
    pthread_mutex_lock(&ctx->lock);
    fr_status status = ctx->status;
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

/* A copy: another thread may fail while this one reads. */
const char *fr_ctx_error(fr_ctx *ctx)
{
    if (!ctx) return own;
    pthread_mutex_lock(&ctx->lock);
    memcpy(told, ctx->text, strlen(ctx->text) + 1);
    pthread_mutex_unlock(&ctx->lock);
    return told;
}

void fr_ctx_clear(fr_ctx *ctx)
{
    own[0] = '\0';
    if (!ctx) return;
    pthread_mutex_lock(&ctx->lock);
    ctx->status = FR_OK;
    ctx->text[0] = '\0';
    pthread_mutex_unlock(&ctx->lock);
}

/* `text` is one safe line. */
static void record(fr_ctx *ctx, fr_status status, const char *text)
{
    size_t bytes = strlen(text) + 1;
    memcpy(own, text, bytes);
    if (!ctx) return;
    pthread_mutex_lock(&ctx->lock);
    ctx->status = status;
    memcpy(ctx->text, text, bytes);
    pthread_mutex_unlock(&ctx->lock);
}

void fr__failure_save(fr_ctx *ctx, fr__failure *f)
{
    f->status = fr_ctx_status(ctx);
    memcpy(f->text, fr_ctx_error(ctx), sizeof f->text);
}

void fr__failure_restore(fr_ctx *ctx, const fr__failure *f) { record(ctx, f->status, f->text); }

/* Control characters, ends of lines and marks that reorder text: a terminal or a log would act on
 * them, so that a name could hide or forge what is said. */
static bool is_unsafe(int32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void fr_escape(const char *text, char *out, size_t room)
{
    static const char letters[] = {['\t'] = 't', ['\n'] = 'n', ['\r'] = 'r'};
    char coded[16];
    size_t n, used = 0;
    for (; *text; text += n) {
        int32_t c = fr__utf8_next(text, &n);
        const char *piece = coded;
        int length;
        if (c >= 0 && c < (int32_t)sizeof letters && letters[c])
            length = snprintf(coded, sizeof coded, "\\%c", letters[c]);
        else if (c < 0 || (c < 0x80 && is_unsafe(c)))
            length = snprintf(coded, sizeof coded, "\\x%02x", (unsigned char)*text);
        else if (is_unsafe(c))
            length = snprintf(coded, sizeof coded, "\\u%04x", (unsigned)c);
        else
            piece = text, length = (int)n;
        if (used + (size_t)length >= room) break;
        memcpy(out + used, piece, (size_t)length);
        used += (size_t)length;
    }
    if (room) out[used] = '\0';
}

/* Formatted and escaped; a character that the cut splits is left out. */
static void format_line(char *out, size_t room, const char *format, va_list args)
{
    char raw[LINE];
    int n = vsnprintf(raw, sizeof raw, format, args);
    size_t last = n >= (int)sizeof raw ? sizeof raw - 2 : 0;
    for (int i = 0; last && i < 3 && ((unsigned char)raw[last] & 0xC0) == 0x80; i++) last--;
    if (last && (unsigned char)raw[last] >= 0x80) raw[last] = '\0';
    fr_escape(n < 0 ? format : raw, out, room);
}

fr_status fr_fail(fr_ctx *ctx, fr_status status, const char *format, ...)
{
    char line[LINE]; /* an argument may be the text that it replaces */
    va_list args;
    va_start(args, format);
    format_line(line, sizeof line, format, args);
    va_end(args);
    record(ctx, status, line);
    return status;
}

void fr_log(fr_ctx *ctx, fr_log_level level, const char *format, ...)
{
    if (!ctx || !ctx->log) return;
    char line[LINE];
    va_list args;
    va_start(args, format);
    format_line(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}

const char *fr_status_text(fr_status status) { return statuses[status].text; }

int fr_status_exit_code(fr_status status) { return statuses[status].exit_code; }

static int least(int a, int b) { return a < b ? a : b; }

/* Damerau-Levenshtein, each part edited once, by rows of the table. */
int fr_edit_distance(const char *a, const char *b)
{
    enum { MOST = 128 };
    int rows[3][MOST + 1], *old = rows[0], *last = rows[1], *now = rows[2];
    if (strlen(a) > MOST || strlen(b) > MOST) return INT_MAX;
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++) last[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        now[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = last[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(change, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], old[j - 2] + 1);
        }
        int *spare = old;
        old = last, last = now, now = spare;
    }
    return last[n];
}

#define TEXT_OF(a, b, c) #a "." #b "." #c
#define TEXT(a, b, c) TEXT_OF(a, b, c)
const char *fr_version(void) { return TEXT(FR_VERSION_MAJOR, FR_VERSION_MINOR, FR_VERSION_PATCH); }
