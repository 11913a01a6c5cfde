/* stability.h -- forerun methods --stability: limits of the methods beside one worker's. */
#ifndef CLI_STABILITY_H
#define CLI_STABILITY_H

#include "cli.h"

typedef enum stability_format {
    STABILITY_TABLE,
    STABILITY_MARKDOWN,
    STABILITY_JSON
} stability_format;

/* Prints the limits of `single` and of one method, or of all that do not flush (NULL). Returns the
 * exit code. */
int stability_print(fr_ctx *ctx, const fr_update_rule *rule, int stages, int micro,
                    const fr_method *only, stability_format format);

#endif
