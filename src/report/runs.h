/* runs.h -- the runs of a report and their names. */
#ifndef FR_REPORT_RUNS_H
#define FR_REPORT_RUNS_H

#include "base/arena.h"
#include "base/vec.h"

typedef struct fr__shown {
    const char *folder;
    const char *name; /* short; UTF-8; unique */
} fr__shown;

typedef struct fr__runs {
    fr_arena arena; /* of the texts */
    FR_VEC(fr__shown) list;
    const char *compare; /* compare.json of the one comparison among the folders; or NULL */
    const char *title;   /* name of that comparison; or NULL */
} fr__runs;

/* Folders of runs or of comparisons. A comparison contributes its runs that have started, possibly
 * none. */
fr_status fr__runs_find(fr_ctx *ctx, int n, const char *const *folders, fr__runs *r);
void fr__runs_fini(fr__runs *r);
/* Load a JSON document that must be an object: its text and its value (json_decref). */
struct json_t;
fr_status fr__load_object(fr_ctx *ctx, const char *path, char **text, size_t *n,
                          struct json_t **object);

/* names.c: set the short names from the folders. */
fr_status fr__name_runs(fr_ctx *ctx, fr__runs *r);

#endif
