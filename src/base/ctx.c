/* ctx.c -- the context: first failure and its text, and where log lines go. */
#include "base/alloc.h"

#include <pthread.h>
#include <stdio.h>

struct fr_ctx {
    pthread_mutex_t lock; /* guards status and text */
    fr_status status;
    char text[2048];
    fr_log_fn log;
    void *log_user;
};

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
    pthread_mutex_lock(&ctx->lock);
    fr_status status = ctx->status;
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

/* The text is written once and then left alone until fr_ctx_clear, so it may be handed out. */
const char *fr_ctx_error(fr_ctx *ctx) { return fr_ctx_status(ctx) == FR_OK ? "" : ctx->text; }

void fr_ctx_clear(fr_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    ctx->status = FR_OK;
    ctx->text[0] = '\0';
    pthread_mutex_unlock(&ctx->lock);
}

fr_status fr_fail(fr_ctx *ctx, fr_status status, const char *format, ...)
{
    pthread_mutex_lock(&ctx->lock);
    if (ctx->status == FR_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(ctx->text, sizeof ctx->text, format, args);
        va_end(args);
        ctx->status = status;
    }
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

void fr_log(fr_ctx *ctx, fr_log_level level, const char *format, ...)
{
    if (!ctx->log) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}

const char *fr_status_text(fr_status status) { return statuses[status].text; }

int fr_status_exit_code(fr_status status) { return statuses[status].exit_code; }

const char *fr_version(void) { return FR_VERSION; }
