/* ledger.h -- `--ledger FILE`: which weights every forward and backward used, as CSV.
 *
 *     stage,replica,micro,pass,version,predict,live[,tied_version,tied_predict]
 *
 * Written under a temporary name and renamed when it is closed, after a failure as well: the rows
 * before the failure help to explain it. */
#ifndef FR_RUNLOG_LEDGER_H
#define FR_RUNLOG_LEDGER_H

#include "checkpoint/folder.h"
#include <forerun/events.h>

typedef struct fr__ledger {
    fr_ctx *ctx;
    FILE *file; /* NULL: no ledger */
    bool has_ties;
    char path[FR_PATH], temp[FR_PATH];
} fr__ledger;

/* path NULL: no ledger; all other calls do nothing. has_ties: two more columns, see fr_ledger_row.
 */
fr_status fr__ledger_open(fr_ctx *ctx, const char *path, bool has_ties, fr__ledger *l);
fr_status fr__ledger_write(fr__ledger *l, const fr_ledger_row *rows, size_t n);
fr_status fr__ledger_close(fr__ledger *l); /* a zeroed or closed one is fine */

#endif
