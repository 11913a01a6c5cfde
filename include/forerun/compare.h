/* compare.h -- several ways to train, run on the same data and seeds, side by side in one table.
 *
 * A comparison is made of cases: changes to one config. Each case is trained once a seed, in a
 * folder of its own; all that is known of a run is what its folder holds, so that a comparison goes
 * on wherever it was left. The library says what is to be run next and reads what came of it; the
 * caller runs it, as a process of its own. Objects belong to one thread.
 *
 *     fr_compare_open(ctx, &o, &c);
 *     while (fr_compare_next(c, &job) == FR_OK && job.name) {
 *         ...run job.command, or fr_compare_simulate(c)...
 *         fr_compare_over(c, exit_code, &outcome);
 *     }
 *     fr_compare_text(c, "table", &text);
 *     fr_compare_close(c); */
#ifndef FORERUN_COMPARE_H
#define FORERUN_COMPARE_H

#include <forerun/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a number of the table is: never mixed, always said. */
typedef enum fr_compare_kind {
    FR_KIND_MEASURED,  /* wall clock of this machine */
    FR_KIND_EMULATED,  /* trained here, at the pace of a cluster */
    FR_KIND_SIMULATED, /* virtual clock, nothing trained */
    FR_KIND_PUBLISHED  /* by others; nothing is run */
} fr_compare_kind;
FR_API const char *fr_compare_kind_name(fr_compare_kind kind);

/* A column of the table; numbers are in its unit everywhere. */
typedef struct fr_compare_column {
    const char *key, *label, *unit, *about;
    int digits; /* behind the point; -1: as many as four figures need */
} fr_compare_column;
FR_API const fr_compare_column *fr_compare_column_at(int i); /* NULL behind the last */

typedef struct fr_compare_options {
    const char *config;
    int n_sets;
    const char *const *sets; /* key=value, for all cases */
    const char *out;         /* folder; NULL: runs/compare-NAME, after the config */
    const char *methods;     /* "a,b,c": cases made of these, not those of the config */
    const char *only;    /* "a,b,c": groups, cases or kinds; the others are left out. NULL: all */
    const char *columns; /* "a,b,c"; NULL: the config's, or the usual ones */
    int64_t seeds;       /* 0: as the config has it */
    bool force;          /* runs with other settings than they should have are done again */
} fr_compare_options;

typedef struct fr_compare fr_compare;

/* Reads everything and resolves every case, so that what is wrong with the last one is said before
 * the first is run. Fails if a run that is there has other settings, and says which. The options
 * must live as long as the comparison. */
FR_API FR_MUST_USE fr_status fr_compare_open(fr_ctx *ctx, const fr_compare_options *o,
                                             fr_compare **out);
FR_API void fr_compare_close(fr_compare *c); /* NULL allowed */

FR_API const char *fr_compare_out(const fr_compare *c); /* the folder */
FR_API int fr_compare_n_runs(const fr_compare *c, int *n_over);

/* The next task. Texts live until the next call of fr_compare_next. */
typedef struct fr_compare_job {
    int number, n_runs; /* this one is the number-th of all, from 1 */
    const char *name;   /* "vgg16 spectrain, seed 2"; NULL: nothing is left */
    const char *folder; /* of the run */
    const char *log;    /* for what the process says */
    bool is_simulated;  /* to be done by fr_compare_simulate; no command */
    bool is_profile;    /* what the nodes of a model cost, for the runs that follow */
    bool is_resumed;
    int64_t n_steps;
    const char *const *command; /* behind "forerun": "train" or "launch", ...; NULL-terminated */
    double later_s; /* that those after it will take, by those that are over; NaN: unknown */
} fr_compare_job;
/* All cases of the first seed, then all of the second, beginning with another: whatever slows the
 * machine down for a while meets all cases alike. What emulated and simulated cases cost is
 * measured here, once for each model. */
FR_API FR_MUST_USE fr_status fr_compare_next(fr_compare *c, fr_compare_job *job);
FR_API FR_MUST_USE fr_status fr_compare_simulate(fr_compare *c);

typedef struct fr_compare_outcome {
    const char *status; /* "done", "diverged", "failed", "interrupted" */
    char text[240];     /* figures, in a line */
} fr_compare_outcome;
/* The run of the last job has ended so: looks at what it left, and writes OUT/compare.json. A run
 * that failed is not offered again. */
FR_API FR_MUST_USE fr_status fr_compare_over(fr_compare *c, int exit_code,
                                             fr_compare_outcome *outcome);

/* The table: "table", "markdown", "csv" or "json". The text is the comparison's, until the next
 * call. */
FR_API FR_MUST_USE fr_status fr_compare_text(fr_compare *c, const char *format, const char **text);
/* A line or two of what the table shows, and the config's note; "" if there is nothing to say. */
FR_API FR_MUST_USE fr_status fr_compare_words(fr_compare *c, const char **text);
/* OUT/compare.json, replaced as a whole. */
FR_API FR_MUST_USE fr_status fr_compare_write(fr_compare *c);
FR_API const char *fr_compare_title(const fr_compare *c);
/* Folders of the runs that have begun, in the order of the table; they are the comparison's. */
FR_API int fr_compare_folders(fr_compare *c, const char *const **folders);
FR_API int fr_compare_n_failed(const fr_compare *c); /* runs */

#ifdef __cplusplus
}
#endif
#endif
