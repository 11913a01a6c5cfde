/* schedule_costs.h -- costs of instructions from the command line. */
#ifndef CLI_SCHEDULE_COSTS_H
#define CLI_SCHEDULE_COSTS_H

#include "cli.h"

typedef struct schedule_costs {
    double *of[4]; /* F, I, W, B: [stage]; NULL: not given */
    double *links; /* [forward link], then [backward link]; NULL: not given */
    fr_costs costs;
} schedule_costs;

/* `text` is "F=1,I=1,W=2" or, with one number per stage, "F=1,2,1,2,B=3"; links "1.5", or one
 * number for each link of the schedule, "4,1"; NULL: none. Freed by costs_free, also after a
 * failure. */
FR_MUST_USE fr_status costs_read(fr_ctx *ctx, const char *text, const char *links,
                                 const fr_schedule *s, schedule_costs *out);
void costs_free(schedule_costs *c);
/* For fr_schedule_clock; NULL if nothing was given. */
const fr_costs *costs_of(const schedule_costs *c);

#endif
