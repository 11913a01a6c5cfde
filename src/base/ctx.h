/* ctx.h -- failures that outlive the call that met them. */
#ifndef FR_BASE_CTX_H
#define FR_BASE_CTX_H

#include <forerun/base.h>

enum { FR_CTX_LINE = 2048 }; /* bytes of a message */

/* A failure that is saved during cleanup that may fail too, so that the first failure is reported.
 * For a NULL context it is the calling thread's error, without a status. */
typedef struct fr__failure {
    fr_status status;
    char text[FR_CTX_LINE];
} fr__failure;
void fr__failure_save(fr_ctx *ctx, fr__failure *f);
void fr__failure_restore(fr_ctx *ctx, const fr__failure *f); /* restore it as the last one */

#endif
