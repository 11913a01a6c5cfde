/* base.h -- status codes, the context that carries error text and log, versions, build facts.
 *
 * Every call that can fail returns fr_status and leaves one line of text in its
 * context: that of the last failure, with its causes. A call that succeeds leaves
 * the text as it is, so ask for it after a failure only. A context may be shared
 * by any number of threads; threads whose failures are to be kept apart have one
 * each. The library never prints, exits or aborts.
 *
 * Ownership, in all headers: what a call hands out through `out` belongs to the caller, who ends it
 * by the _free, _close or _leave of its type; after a failure it is NULL. A pointer that a call
 * returns belongs to the object that was asked, or to the library, and lives as long as that. The
 * comment of a call states any exception. */
#ifndef FORERUN_BASE_H
#define FORERUN_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of these headers; fr_version returns that of the library. */
#define FR_VERSION_MAJOR 0
#define FR_VERSION_MINOR 1
#define FR_VERSION_PATCH 0

/* FR_API: exported by the shared library. FR_MUST_USE: the compiler warns if the result of a call
 * is ignored. */
#if defined(__GNUC__)
#define FR_API __attribute__((visibility("default")))
#define FR_MUST_USE __attribute__((warn_unused_result))
#define FR_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define FR_API
#define FR_MUST_USE
#define FR_PRINTF(fmt, first)
#endif

/* X(name, text, exit code that the command line tool gives it) */
#define FR_STATUS_LIST(X)                   \
    X(OK, "ok", 0)                          \
    X(NO_MEMORY, "out of memory", 1)        \
    X(INVALID, "invalid input", 2)          \
    X(IO, "input or output failed", 1)      \
    X(UNSUPPORTED, "not supported here", 2) \
    X(PEER, "peer lost or stalled", 3)      \
    X(DIVERGED, "training diverged", 4)     \
    X(INTERRUPTED, "interrupted", 130)      \
    X(INTERNAL, "internal error, please report it", 1)

typedef enum fr_status {
#define FR_X(name, text, code) FR_##name,
    FR_STATUS_LIST(FR_X)
#undef FR_X
} fr_status;

typedef enum fr_log_level { FR_LOG_WARN, FR_LOG_INFO, FR_LOG_DEBUG } fr_log_level;
typedef void (*fr_log_fn)(void *user, fr_log_level level, const char *line);

typedef struct fr_ctx fr_ctx;

/* The caller's, who frees it; NULL when memory is exhausted. */
FR_API fr_ctx *fr_ctx_create(void);
FR_API void fr_ctx_free(fr_ctx *ctx);

/* Receives the log lines; without a function they are dropped. Set before threads start. */
FR_API void fr_ctx_set_log(fr_ctx *ctx, fr_log_fn fn, void *user);

/* The last failure; FR_OK and "" if there was none since creation or fr_ctx_clear. The text is the
 * calling thread's copy, which lives until that thread calls fr_ctx_error again. */
FR_API fr_status fr_ctx_status(fr_ctx *ctx);
FR_API const char *fr_ctx_error(fr_ctx *ctx);
/* Never needed: a new failure takes the place of an old one. */
FR_API void fr_ctx_clear(fr_ctx *ctx);

/* "invalid input" and the like; and the exit code of the command line tool. */
FR_API const char *fr_status_text(fr_status status);
FR_API int fr_status_exit_code(fr_status status);

/* Version of the library: "0.1.0". */
FR_API const char *fr_version(void);

/* The machine that this process runs on, without names of hosts or users. */
typedef struct fr_machine {
    char processor[128];     /* "": the system does not say */
    int cores, usable_cores; /* of the machine; that this process may use */
    uint64_t memory_bytes;
    char system[128], kernel[128]; /* "Debian GNU/Linux 12 (bookworm)", "Linux 6.1.0 x86_64" */
    char compiler[64];             /* that built the library: "gcc 12.2.0" */
} fr_machine;
FR_API void fr_machine_read(fr_machine *m);

/* Record a failure and return its status, so that a function can end with `return fr_fail(ctx,
 * FR_INVALID, "%s:%d: ...", ...)`. fr_ctx_error(ctx) among the arguments chains the failure that is
 * the cause. With a context of NULL the text is kept for the calling thread alone:
 * fr_ctx_error(NULL) has the last failure of this thread, whatever the context. */
FR_API fr_status fr_fail(fr_ctx *ctx, fr_status status, const char *format, ...) FR_PRINTF(3, 4);
FR_API void fr_log(fr_ctx *ctx, fr_log_level level, const char *format, ...) FR_PRINTF(3, 4);

/* `text` as one line that is safe to print, cut to `room` bytes: control characters, line ends,
 * marks that change the direction of text and bytes that are not UTF-8 become \n, \x1b, \u202e.
 * What is escaped already stays as it is. fr_fail and fr_log do this to every line. */
FR_API void fr_escape(const char *text, char *out, size_t room);

/* Insertions, deletions, changes and swaps of neighbours from a to b, for names that are mistyped;
 * INT_MAX where one is longer than 128 bytes. */
FR_API int fr_edit_distance(const char *a, const char *b);

/* Return at once on failure. Nothing to release in the caller. */
#define FR_TRY(call)                                      \
    do {                                                  \
        fr_status fr_try_status = (call);                 \
        if (fr_try_status != FR_OK) return fr_try_status; \
    } while (0)

/* Store into `status` and go to `label` on failure. */
#define FR_TRY_GOTO(status, call, label)   \
    do {                                   \
        (status) = (call);                 \
        if ((status) != FR_OK) goto label; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
