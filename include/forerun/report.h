/* report.h -- what runs left in their folders, as one page to look at; and the same page live.
 *
 * The page is one HTML file without links to anywhere; what it shows is JSON inside of it
 * (docs/report.md). */
#ifndef FORERUN_REPORT_H
#define FORERUN_REPORT_H

#include <forerun/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fr_report_options {
    const char *title;   /* NULL: made of the runs */
    const char *compare; /* compare.json that belongs to the runs; NULL: none */
    int max_points;      /* of a curve; more mini-batches than that are put together. 0: 1,000 */
    int max_events;      /* of all timelines together; the first ones are kept. 0: 60,000 */
    bool live;           /* the run goes on, so what an earlier summary says is not of it */
} fr_report_options;

/* folders: of runs (or of a comparison: all runs of it); none only with o->compare. o may be NULL.
 * The file is replaced as a whole; path "-": stdout. A run that is not over, or lacks some files,
 * is shown as far as it came; a folder that is no run is an error. */
FR_API FR_MUST_USE fr_status fr_report_write(fr_ctx *ctx, int n, const char *const *folders,
                                             const fr_report_options *o, const char *path);
/* Only the JSON; to be freed by fr_report_free_text. */
FR_API FR_MUST_USE fr_status fr_report_data(fr_ctx *ctx, int n, const char *const *folders,
                                            const fr_report_options *o, char **text,
                                            size_t *n_bytes);
FR_API void fr_report_free_text(char *text);
/* The page with null for its data: it then asks for data.json and events beside it. */
FR_API const char *fr_report_live_page(size_t *n_bytes);

/* --- live ------------------------------------------------------------------------------------ */

typedef struct fr_server fr_server;
/* Listens at "127.0.0.1:8080", "[::1]:8080", ":8080" (loopback) or "8080"; port 0: any that is
 * free. Read-only: GET of /, /data.json, /events (server-sent events). Threads of its own; the run
 * never waits for a reader. */
FR_API FR_MUST_USE fr_status fr_server_start(fr_ctx *ctx, const char *address, fr_server **out);
FR_API const char *fr_server_url(const fr_server *s);
/* The run's folder is known, or the run goes on: what readers see next. Any thread. */
FR_API void fr_server_folder(fr_server *s, const char *folder);
FR_API void fr_server_progress(fr_server *s, const fr_progress *p);
/* The run is over ("done", "interrupted", "failed"): readers are told and load the whole page
 * data once more. */
FR_API void fr_server_over(fr_server *s, const char *status);
FR_API void fr_server_stop(fr_server *s); /* NULL is fine; gives readers a moment to load */

#ifdef __cplusplus
}
#endif
#endif
