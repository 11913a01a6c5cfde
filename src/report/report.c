/* report.c -- writes the page with the data of runs in it. */
#include <forerun/report.h>

#include "base/alloc.h"
#include "io/file.h"
#include "report/data.h"
#include "report/page.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *fr_report_live_page(size_t *n_bytes)
{
    if (n_bytes) *n_bytes = fr__page.bytes;
    return fr__page.text;
}

fr_status fr_report_data(fr_ctx *ctx, int n, const char *const *folders, const fr_report_options *o,
                         char **text, size_t *n_bytes)
{
    fr__text data = {0}, title = {0};
    *text = NULL;
    if (n_bytes) *n_bytes = 0;
    FR_TRY(fr__report_data(ctx, n, folders, o, &data, &title));
    fr__text_fini(&title);
    *text = data.at;
    if (n_bytes) *n_bytes = data.n;
    return FR_OK;
}

void fr_report_free_text(char *text) { fr__free(text); }

/* The page, with title and data inserted. */
static void fill(fr__text *page, const fr__text *title, const fr__text *data)
{
    const fr__page_parts *p = &fr__page;
    fr__text_put_bytes(page, p->text, p->title);
    fr__text_put_html(page, title->at);
    fr__text_put_bytes(page, p->text + p->title_end, p->data - p->title_end);
    fr__text_put_bytes(page, data->at, data->n);
    fr__text_put_bytes(page, p->text + p->data_end, p->bytes - p->data_end);
}

static fr_status put(fr_ctx *ctx, const char *path, const fr__text *page)
{
    if (strcmp(path, "-") != 0) return fr__file_replace(ctx, path, page->at, page->n);
    if (fflush(stdout) != 0) return fr__io_fail(ctx, "write", "the standard output");
    return fr__fd_write(ctx, STDOUT_FILENO, "the standard output", page->at, page->n);
}

fr_status fr_report_write(fr_ctx *ctx, int n, const char *const *folders,
                          const fr_report_options *o, const char *path)
{
    fr__text data = {0}, title = {0}, page = {0};
    FR_TRY(fr__report_data(ctx, n, folders, o, &data, &title));
    fill(&page, &title, &data);
    fr_status status = page.failed ? fr__no_memory(ctx, fr__page.bytes + data.n, "the report")
                                   : put(ctx, path, &page);
    fr__text_fini(&data);
    fr__text_fini(&title);
    fr__text_fini(&page);
    return status;
}
