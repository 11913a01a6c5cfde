/* operators.h -- a profile by kind of operator, as a table or as JSON. */
#ifndef CLI_OPERATORS_H
#define CLI_OPERATORS_H

#include <forerun/forerun.h>

/* peak: FLOP/s of products of a worker; 0: not known. */
fr_status operators_print(fr_ctx *ctx, const fr_profile *p, double peak);
fr_status operators_print_json(fr_ctx *ctx, const fr_profile *p, double peak);

#endif
