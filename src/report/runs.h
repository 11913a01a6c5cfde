/* runs.h -- which runs a report is about, and what they are called. */
#ifndef FR_REPORT_RUNS_H
#define FR_REPORT_RUNS_H

#include "base/arena.h"
#include "base/vec.h"

typedef struct fr_shown {
    const char *folder;
    const char *name; /* short; UTF-8; no other run has it */
} fr_shown;

typedef struct fr_runs {
    fr_arena arena; /* of the texts */
    FR_VEC(fr_shown) list;
    const char *compare; /* compare.json of the one comparison among the folders; or NULL */
    const char *title;   /* name of that comparison; or NULL */
} fr_runs;

/* Folders of runs, or of comparisons: those of its runs that have begun, maybe none. */
fr_status fr__runs_find(fr_ctx *ctx, int n, const char *const *folders, fr_runs *r);
void fr__runs_fini(fr_runs *r);
/* A whole JSON document that must be an object: its text, and what is in it (json_decref). */
struct json_t;
fr_status fr__load_object(fr_ctx *ctx, const char *path, char **text, size_t *n,
                          struct json_t **object);

#endif
