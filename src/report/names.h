/* names.h -- short names of runs. */
#ifndef FR_REPORT_NAMES_H
#define FR_REPORT_NAMES_H

#include "report/runs.h"

/* Set the names from the folders. */
fr_status fr__name_runs(fr_ctx *ctx, fr_runs *r);

#endif
