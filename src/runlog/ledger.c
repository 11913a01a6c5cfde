/* ledger.c -- the ledger of weight versions as CSV, written as mini-batches complete. */
#include "runlog/ledger.h"

#include "io/file.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

fr_status fr__ledger_open(fr_ctx *ctx, const char *path, bool has_ties, fr__ledger *l)
{
    memset(l, 0, sizeof *l);
    l->ctx = ctx;
    l->has_ties = has_ties;
    if (!path) return FR_OK;
    FR_TRY(fr__may_replace(ctx, -1, path));
    FR_TRY(fr__path(ctx, l->path, "%s", path));
    if (fr__is_stream(-1, path))
        FR_TRY(fr__path(ctx, l->temp, "%s", path)); /* written in place */
    else
        FR_TRY(fr__path(ctx, l->temp, "%s.%ld.tmp", path, (long)getpid()));
    l->file = fopen(l->temp, "w");
    if (!l->file) return fr__io_fail(ctx, "write", l->path);
    fprintf(l->file, "stage,replica,micro,pass,version,predict,live%s\n",
            has_ties ? ",tied_version,tied_predict" : "");
    return FR_OK;
}

fr_status fr__ledger_write(fr__ledger *l, const fr_ledger_row *rows, size_t n)
{
    if (!l->file) return FR_OK;
    for (size_t i = 0; i < n; i++) {
        const fr_ledger_row *r = &rows[i];
        fprintf(l->file, "%d,%d,%" PRId64 ",%c,%" PRId64 ",%d,", r->stage, r->replica, r->micro,
                r->pass, r->version, r->ahead);
        if (r->pass == 'B') fprintf(l->file, "%" PRId64, r->live);
        if (l->has_ties && r->tied >= 0)
            fprintf(l->file, ",%" PRId64 ",%d", r->tied, r->tied_ahead);
        else if (l->has_ties)
            fputs(",,", l->file);
        fputc('\n', l->file);
    }
    return ferror(l->file) ? fr__io_fail(l->ctx, "write", l->temp) : FR_OK;
}

fr_status fr__ledger_close(fr__ledger *l)
{
    if (!l->file) return FR_OK;
    bool is_whole = fflush(l->file) == 0 && !ferror(l->file);
    is_whole = fclose(l->file) == 0 && is_whole;
    l->file = NULL;
    if (!is_whole) return fr__io_fail(l->ctx, "write", l->temp);
    if (strcmp(l->temp, l->path) == 0) return FR_OK;
    return rename(l->temp, l->path) == 0 ? FR_OK : fr__io_fail(l->ctx, "write", l->path);
}
