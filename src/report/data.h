/* data.h -- what the page shows, as JSON that is safe inside of it (docs/report.md). */
#ifndef FR_REPORT_DATA_H
#define FR_REPORT_DATA_H

#include "report/text.h"
#include <forerun/report.h>

/* Two empty texts get the data, and the title of the page; on failure they are empty again. */
fr_status fr__report_data(fr_ctx *ctx, int n, const char *const *folders,
                          const fr_report_options *o, fr_text *data, fr_text *title);

#endif
