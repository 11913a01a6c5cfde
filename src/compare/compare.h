/* compare.h -- a comparison in memory: cases, their runs, what came of them.
 *
 * cases.c reads what is to be compared, settle.c turns each case into a whole config and compares
 * it with what is there, state.c reads the runs' folders and says what is next, columns.c has the
 * numbers, table.c and result.c show them. */
#ifndef FR_COMPARE_COMPARE_H
#define FR_COMPARE_COMPARE_H

#include <forerun/compare.h>

#include "base/arena.h"
#include "io/conf.h"
#include "train/settings.h"

#include <jansson.h>

enum { FR_MAX_COLUMNS = 16, FR_MAX_CASES = 512, FR_MAX_SEEDS = 1000 };

enum fr_run_state {
    FR_RUN_ABSENT,
    FR_RUN_BEGUN, /* goes on from its newest checkpoint */
    FR_RUN_DONE,
    FR_RUN_DIVERGED, /* an outcome like another */
    FR_RUN_FAILED    /* in this session; the next one tries again */
};

struct fr_case_run {
    uint64_t seed;
    const char *folder; /* below the comparison's */
    enum fr_run_state state;
    bool is_there;                /* the folder holds a run, as far as it came */
    double value[FR_MAX_COLUMNS]; /* by column of the list; NaN: none */
    double wall_s;
};

struct fr_case {
    const char *name, *group; /* group "": none */
    const char *baseline;     /* case of the same group and kind that speed-ups are over */
    const char *where;        /* "file.yaml:12:7" or "--methods" */
    const char *folder;       /* below the comparison's */
    fr_compare_kind kind;
    int n_sets;
    const char **sets; /* key=value: all that makes the case, --set last */
    /* as published; NaN: not */
    double published[FR_MAX_COLUMNS];
    bool has_published;
    const char *source;
    /* resolved */
    const char *config; /* text */
    const char *method;
    const char *profile; /* path of the one that the group goes by; NULL: the case's own */
    int64_t n_steps, batch;
    bool has_processes; /* of its own, started by launch */
    bool is_alone;      /* one process, where the config asks for a transport between several */
    int n_runs;
    struct fr_case_run *runs; /* one a seed; a simulation: one; published only: none */
};

struct fr_compare {
    fr_ctx *ctx;
    const fr_compare_options *o;
    fr_arena arena;
    const char *out, *title, *note, *baseline;
    bool keeps_checkpoints;
    int n_seeds;
    int n_columns;
    int columns[FR_MAX_COLUMNS]; /* of the list, as shown */
    int n_cases;
    struct fr_case *cases;
    int lock_fd;
    /* the job that is under way */
    struct fr_case *at;
    struct fr_case_run *at_run;
    bool at_profile; /* that it needs, first */
    fr_arena job;    /* its texts */
    fr_arena text;   /* what was last shown */
};

/* cases.c: title, seeds, columns and cases, from the config's section or from names of methods. */
fr_status fr__compare_read(fr_compare *c);

/* methods.c: what a method needs beside its name, as sets for a case. */
fr_status fr__compare_method_sets(fr_compare *c, fr_conf *root, const fr_method *m,
                                  struct fr_case *k);
/* One more key=value; printf. */
fr_status fr__case_add(fr_compare *c, struct fr_case *k, const char *format, ...) FR_PRINTF(3, 4);

/* settle.c: the whole config of each case, checked; runs that are there have the same, or go. */
fr_status fr__compare_settle(fr_compare *c);
/* The first key in which two configs differ, as "train.batch is 64 there, 32 here"; false: none.
 * Keys of the list `but` (ended by NULL) do not count. */
bool fr__conf_differ(const fr_conf *there, const fr_conf *here, const char *const *but, char *text,
                     size_t room);

/* state.c: what the folder of a run says. */
fr_status fr__compare_look(fr_compare *c, const struct fr_case *k, struct fr_case_run *r);
/* Removes a folder with all that is in it; missing is fine. */
fr_status fr__compare_remove(fr_compare *c, const char *path);
/* "OUT/a/b"; file NULL: "OUT/a". NULL: no memory */
const char *fr__compare_path(const fr_compare *c, fr_arena *a, const char *folder,
                             const char *file);

/* columns.c */
typedef struct fr_stat {
    int n;
    double mean, sd, min, max; /* sd: of a sample; NaN with less than two */
} fr_stat;
int fr__column_find(const char *key); /* -1: none */
/* With as many digits as the column has; where it has none, as many as `like` needs. */
void fr__column_format(const fr_compare_column *column, double value, double like, char *to,
                       size_t room);
/* All columns that a summary has by itself. */
void fr__columns_read(const json_t *summary, double value[FR_MAX_COLUMNS]);
fr_stat fr__stat_of(int n, const double *values); /* NaN do not count */
/* Over the seeds of a case that are done. */
fr_stat fr__case_stat(const fr_compare *c, const struct fr_case *k, int column);
const struct fr_case *fr__case_baseline(const fr_compare *c, const struct fr_case *k);
const char *fr__case_status(const struct fr_case *k);

/* simulate.c: where the profile of all emulated and simulated cases of a model is. model,
 * optimizer: sections of the resolved config. */
fr_status fr__compare_name_profile(fr_compare *c, struct fr_case *k, const fr_conf *model,
                                   const fr_conf *optimizer);
#define FR_SIMULATED "simulated.json" /* summary of a simulation */

/* result.c */
fr_status fr__compare_json(fr_compare *c, const char **text);

fr_status fr__compare_no_memory(const fr_compare *c);

#endif
