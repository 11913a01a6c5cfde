/* cli.h -- shared by the verbs of the command line: verbs, options, messages. */
#ifndef CLI_H
#define CLI_H

#include <forerun/forerun.h>

#include <signal.h>
#include <stddef.h>

struct cli_option;

typedef struct cli_verb {
    const char *name;
    const char *usage;    /* follows "forerun " */
    const char *summary;  /* one line */
    const char *text;     /* more, for --help; may be NULL */
    const char *argument; /* beside options, named as in completion_values.h; NULL: none */
    bool is_collective;   /* it runs in all processes of a launcher together */
    const struct cli_option *options;                               /* NULL: none */
    int (*run)(const struct cli_verb *verb, int argc, char **argv); /* returns the exit code */
} cli_verb;

/* All verbs, in the order of the help; cli_<name> is in cmd_<name>.c. */
#define CLI_VERBS(X) \
    X(train)         \
    X(launch)        \
    X(eval)          \
    X(predict)       \
    X(generate)      \
    X(export)        \
    X(tokenize)      \
    X(checkpoint)    \
    X(schedule)      \
    X(profile)       \
    X(plan)          \
    X(simulate)      \
    X(report)        \
    X(efficiency)    \
    X(compare)       \
    X(models)        \
    X(methods)       \
    X(keys)          \
    X(completion)    \
    X(reference)     \
    X(info)
#define CLI_DECLARE(name) extern const cli_verb cli_##name;
CLI_VERBS(CLI_DECLARE)

/* --- options (args.c) ----------------------------------------------------------------------- */
enum { CLI_MAX_SETS = 256, CLI_MAX_COUNT = 1000000 };

typedef struct cli_list {
    int n;
    const char *at[CLI_MAX_SETS];
} cli_list;

/* COUNT: an INT from 1 to CLI_MAX_COUNT, so that 0 in the variable means "not given". */
typedef enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_INT, CLI_COUNT, CLI_REAL, CLI_LIST } cli_kind;

typedef struct cli_option {
    const char *name;  /* without dashes; a letter has one dash, a word two; NULL ends an array */
    const char *value; /* name of its value in the help; NULL for a flag */
    const char *help;
    cli_kind kind;
    size_t at; /* offset in the verb's arguments: bool, const char *, int64_t, double, cli_list */
} cli_option;

/* Options that many verbs have, in the same words. */
#define CLI_SET(at)                                                                        \
    {                                                                                      \
        "set", "KEY=VALUE", "replace a value of the config; may be repeated", CLI_LIST, at \
    }
#define CLI_QUIET(at)                                                        \
    {                                                                        \
        "quiet", NULL, "no progress, errors and warnings only", CLI_FLAG, at \
    }
#define CLI_JSON(at)                             \
    {                                            \
        "json", NULL, "print JSON", CLI_FLAG, at \
    }

/* Options anywhere, into *args; up to max_plain other arguments into `plain` (unused ones NULL).
 * Returns -1 to continue, otherwise the exit code: help was requested (0) or an argument is wrong
 * (2, with a message). */
int cli_parse(const cli_verb *verb, int argc, char **argv, void *args, int max_plain,
              const char **plain);
void cli_print_help(const cli_verb *verb);
const cli_verb *const *cli_verbs(void); /* all, NULL-terminated */

/* Prints the config keys that begin with prefix, as `forerun keys` does; returns the exit code. */
int cli_print_keys(const char *prefix, const char *format);

/* Options of train; launch accepts them too and passes them on. */
typedef struct cli_train_args {
    const char *config, *out, *ledger, *serve;
    cli_list sets;
    bool resume, is_quiet, want_json;
    int64_t dump_step; /* -1: none */
} cli_train_args;
#define CLI_TRAIN_OPTIONS(at)                                                                     \
    CLI_SET(at(sets)), {"out", "DIR", "folder of the run (run.out)", CLI_TEXT, at(out)},          \
        {"resume", NULL, "continue from the newest checkpoint of the folder, if any", CLI_FLAG,   \
         at(resume)},                                                                             \
        {"dump-step", "K", "write all tensors of mini-batch K (from 1) to step-K.safetensors",    \
         CLI_INT, at(dump_step)},                                                                 \
        {"ledger", "FILE", "write as CSV which weights each forward and backward used", CLI_TEXT, \
         at(ledger)},                                                                             \
        {"serve", "ADDRESS", "show the run live, at 127.0.0.1:8080 or just 8080 (port 0: any)",   \
         CLI_TEXT, at(serve)},                                                                    \
        CLI_QUIET(at(is_quiet)),                                                                  \
    {                                                                                             \
        "json", NULL, "print the summary as JSON", CLI_FLAG, at(want_json)                        \
    }
/* As cli_parse, for a verb with these options; `a` is part of *args. */
int cli_parse_train(const cli_verb *verb, int argc, char **argv, void *args, cli_train_args *a);

/* Write report.html of a finished run; a failure is a warning (cmd_report.c). */
bool cli_leave_report(const char *folder);

/* The name most similar to a mistyped one, or NULL if none is similar; names end with NULL. */
const char *cli_nearest(const char *typed, const char *const *names);

/* --- messages (main.c) ---------------------------------------------------------------------- */
/* Print one line of error, on rank 0 only if a launcher started several ranks; returns 2. */
int cli_refuse(const char *format, ...) FR_PRINTF(1, 2);
/* Print one line of results. Names of files, nodes and devices are the users': control characters
 * are escaped, as in messages. */
void cli_line(const char *format, ...) FR_PRINTF(1, 2);
/* Prints the context's error if status is one; returns the exit code. */
int cli_finish(fr_ctx *ctx, fr_status status);
/* A context that logs to stderr: warnings always, the rest unless quiet. Ranks other than 0 do not
 * log. Exits if out of memory. */
fr_ctx *cli_context(bool is_quiet);
/* "1,4,16": at most `most` whole numbers of at least 0. Returns their number; 0: not such a list.
 */
int cli_numbers(const char *text, int most, int64_t *out);
/* Seconds on a monotonic clock. */
double cli_now_s(void);
/* "1.2 M", "34.5 k": three digits and a thousands prefix. */
const char *cli_short(double value, char *text, size_t room);
/* Set by the first SIGINT, SIGTERM or SIGUSR1 after cli_catch_signals; a second one ends the
 * process. */
volatile int *cli_catch_signals(void);
/* Ignore signals from now on: the outcome is final. */
void cli_ignore_signals(void);

/* --- several processes (ranks.c) ------------------------------------------------------------ */
/* As cli_finish, for a team (NULL: alone): the rank with the error prints it once, and all ranks
 * leave together with one exit code. Does not return if peers are lost. */
int cli_finish_team(fr_ctx *ctx, fr_team *team, fr_status status);
/* Called without a team before a failure that all ranks have and rank 0 prints: the other ranks end
 * after it. */
void cli_let_rank_0_speak(void);

/* --- the launcher of this build's MPI (mpirun.c) -------------------------------------------- */
typedef struct cli_mpirun {
    const char *library;                         /* prefix of the transport's library name */
    const char *programs[4];                     /* NULL-terminated, the best first */
    const char *package;                         /* Debian's */
    const char *as_root, *oversubscribe, *quiet; /* options, a variable; NULL: there is none */
    const char *hosts;                           /* the option before "A,B:2" */
    bool tells_signal; /* its exit code for a killed rank is the signal number, without 128 */
} cli_mpirun;
const cli_mpirun *cli_mpirun_of_build(void);
/* The first of its programs found in PATH. */
const char *cli_mpirun_program(const cli_mpirun *m);

/* --- a child that is watched (child.c) ------------------------------------------------------ */
typedef struct cli_guard {
    sigset_t before;          /* signals blocked at the start, restored in the child */
    int n_asked;              /* number of SIGINT, SIGTERM, SIGHUP or SIGUSR1 received */
    int death_signal;         /* sent to the child when this process dies; 0: SIGTERM */
    const char *hint;         /* hint if the program is missing; NULL: none */
    const char *log;          /* file to which the child's output is appended; NULL: inherited */
    void (*tick)(void *user); /* called regularly while a child runs; NULL: never */
    void *user;
} cli_guard;
void cli_guard_begin(cli_guard *g);
/* Run a command and wait for it. Returns its exit code, 128 + n if signal n killed it, 2 (with an
 * error message) if there is no such program. When this process is asked to end, it sends the child
 * `stop_signal`, then SIGTERM, then SIGKILL. The child also ends when this process does. */
int cli_guard_run(cli_guard *g, const char *const *command, int stop_signal);
/* False: a signal requested the end. */
bool cli_guard_sleep(cli_guard *g, double seconds);
/* Wait until no run holds its folder: ranks may outlive their mpirun or their comparison for a
 * moment. False: one still does after that time, or a signal requested the end. */
bool cli_guard_wait_folder(cli_guard *g, const char *path, double seconds);

/* ", accuracy 93.10 %" and so on: the metrics that are not NaN, with `between` before each. */
const char *cli_metrics(const char *between, double accuracy, double mae, double perplexity,
                        char *text, size_t room);

#endif
