/* data.h -- the data of the page as JSON that is safe inside HTML (docs/report.md). */
#ifndef FR_REPORT_DATA_H
#define FR_REPORT_DATA_H

#include "report/text.h"
#include <forerun/report.h>

/* Write the data and the title of the page into two empty texts; on failure they are empty. */
fr_status fr__report_data(fr_ctx *ctx, int n, const char *const *folders,
                          const fr_report_options *o, fr__text *data, fr__text *title);

#endif
