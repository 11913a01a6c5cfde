/* compare.h -- a comparison in memory: cases, runs and results.
 *
 * cases.c reads the cases. resolve_cases.c resolves each case to a full config and compares it with
 * earlier runs. state.c reads the folders of the runs and chooses the next run. columns.c reads the
 * numbers; table.c and result.c write them. */
#ifndef FR_COMPARE_COMPARE_H
#define FR_COMPARE_COMPARE_H

#include <forerun/compare.h>

#include "base/arena.h"
#include "config/settings.h"
#include "io/conf.h"

#include <jansson.h>

enum { FR_MAX_COLUMNS = 16, FR_MAX_CASES = 512, FR_MAX_SEEDS = 1000 };

enum fr__run_state {
    FR_RUN_ABSENT,
    FR_RUN_BEGUN, /* continues from its newest checkpoint */
    FR_RUN_DONE,
    FR_RUN_DIVERGED, /* a valid outcome */
    FR_RUN_FAILED    /* in this session; the next session retries */
};

struct fr__case_run {
    uint64_t seed;
    const char *folder; /* below the comparison's */
    enum fr__run_state state;
    bool is_there;                /* the folder holds a run, finished or not */
    double value[FR_MAX_COLUMNS]; /* by column of the list; NaN: none */
    double wall_s;
};

struct fr__case {
    const char *name, *group; /* group "": none */
    const char *baseline;     /* case of the same group and kind that speed-ups are relative to */
    const char *where;        /* "file.yaml:12:7" or "--methods" */
    const char *folder;       /* below the comparison's */
    fr_compare_kind kind;
    int n_sets;
    const char **sets; /* key=value: all settings of the case, --set last */
    /* as published; NaN: not published */
    double published[FR_MAX_COLUMNS];
    bool has_published;
    const char *source;
    /* resolved */
    const char *config; /* text */
    const char *method;
    const char *profile; /* path of the profile shared by the group; NULL: the case's own */
    int64_t n_steps, batch;
    bool has_processes; /* runs in its own processes, started by launch */
    bool is_alone;      /* one process, although the config has a transport between processes */
    int n_runs;
    struct fr__case_run *runs; /* one per seed; simulation: one; published only: none */
};

struct fr_compare {
    fr_ctx *ctx;
    const fr_compare_options *o;
    fr_arena arena;
    const char *out, *title, *note, *baseline;
    bool keeps_checkpoints;
    int n_seeds;
    int n_columns;
    int columns[FR_MAX_COLUMNS]; /* indices into the list, in display order */
    int n_cases;
    struct fr__case *cases;
    int lock_fd;
    /* the current job */
    struct fr__case *at;
    struct fr__case_run *at_run;
    bool at_profile; /* the job is to measure the profile that its run needs */
    fr_arena job;    /* its texts */
    fr_arena text;   /* the last table */
};

/* cases.c: read title, seeds, columns and cases from the config's section or from names of
 * methods. */
fr_status fr__compare_read(fr_compare *c);

/* methods.c: the settings that a method needs besides its name, as sets of a case. */
fr_status fr__compare_method_sets(fr_compare *c, fr_conf *root, const fr_method *m,
                                  struct fr__case *k);
/* Add one key=value, formatted by printf. */
fr_status fr__case_add(fr_compare *c, struct fr__case *k, const char *format, ...) FR_PRINTF(3, 4);

/* resolve_cases.c: resolve and check the full config of each case. Existing runs with other
 * settings are refused, or removed with --force. */
fr_status fr__compare_resolve(fr_compare *c);
/* The first key in which two configs differ, as "train.batch is 64 there, 32 here"; false: none.
 * Keys of the list `but` (ended by NULL) do not count. */
bool fr__conf_differ(const fr_conf *there, const fr_conf *here, const char *const *but, char *text,
                     size_t room);

/* state.c: read the state of a run from its folder. */
fr_status fr__compare_look(fr_compare *c, const struct fr__case *k, struct fr__case_run *r);
/* Remove a folder and its contents; a missing folder is not an error. */
fr_status fr__compare_remove(fr_compare *c, const char *path);
/* "OUT/a/b"; file NULL: "OUT/a". NULL: no memory */
const char *fr__compare_path(const fr_compare *c, fr_arena *a, const char *folder,
                             const char *file);

/* columns.c */
typedef struct fr__stat {
    int n;
    double mean, sd, min, max; /* sd: sample standard deviation; NaN with fewer than two values */
} fr__stat;
int fr__column_find(const char *key); /* -1: none */
/* Format with the digits of the column, or if it has none, with those that `like` needs. */
void fr__column_format(const fr_compare_column *column, double value, double like, char *to,
                       size_t room);
/* Read all columns that come from the summary alone. */
void fr__columns_read(const json_t *summary, double value[FR_MAX_COLUMNS]);
fr__stat fr__stat_of(int n, const double *values); /* ignores NaN */
/* Over the finished seeds of a case. */
fr__stat fr__case_stat(const fr_compare *c, const struct fr__case *k, int column);
const struct fr__case *fr__case_baseline(const fr_compare *c, const struct fr__case *k);
const char *fr__case_status(const struct fr__case *k);

/* simulate.c: path of the profile of all emulated and simulated cases of a model. model, optimizer:
 * sections of the resolved config. */
fr_status fr__compare_name_profile(fr_compare *c, struct fr__case *k, const fr_conf *model,
                                   const fr_conf *optimizer);
#define FR_SIMULATED "simulated.json" /* summary of a simulation */

/* result.c */
fr_status fr__compare_json(fr_compare *c, const char **text);

fr_status fr__compare_no_memory(const fr_compare *c);

#endif
