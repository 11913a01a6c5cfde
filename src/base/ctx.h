/* ctx.h -- failures that outlive the call that met them. */
#ifndef FR_BASE_CTX_H
#define FR_BASE_CTX_H

#include <forerun/base.h>

enum { FR_CTX_LINE = 2048 }; /* bytes of a message */

/* A failure put aside while something else is done that may fail too: what came of it is told, not
 * what came after. Of a context of NULL it is the calling thread's own, without a status. */
typedef struct fr_failure {
    fr_status status;
    char text[FR_CTX_LINE];
} fr_failure;
void fr__failure_save(fr_ctx *ctx, fr_failure *f);
void fr__failure_restore(fr_ctx *ctx, const fr_failure *f); /* it is the last one again */

#endif
