/* cli.h -- what the verbs of the command line share: verbs, options, messages. */
#ifndef CLI_H
#define CLI_H

#include <forerun/forerun.h>

#include <signal.h>
#include <stddef.h>

struct cli_option;

typedef struct cli_verb {
    const char *name;
    const char *usage;    /* behind "forerun " */
    const char *summary;  /* one line */
    const char *text;     /* more, for --help; may be NULL */
    const char *argument; /* what it takes beside options, as words.h has it; NULL: nothing */
    bool is_collective;   /* the processes that a launcher started run it together */
    const struct cli_option *options;                               /* NULL: none */
    int (*run)(const struct cli_verb *verb, int argc, char **argv); /* returns the exit code */
} cli_verb;

/* All verbs, as the help lists them; cli_<name> is in cmd_<name>.c. */
#define CLI_VERBS(X) \
    X(train)         \
    X(launch)        \
    X(eval)          \
    X(generate)      \
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
    const char *value; /* what the help calls its value; NULL for a flag */
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
 * Returns -1 to go on, else the exit code: help was asked for (0) or something is wrong (2, and
 * said). */
int cli_parse(const cli_verb *verb, int argc, char **argv, void *args, int max_plain,
              const char **plain);
void cli_print_help(const cli_verb *verb);
const cli_verb *const *cli_verbs(void); /* all, NULL-terminated */

/* The keys of configs that begin with prefix, as `forerun keys` prints them; an exit code. */
int cli_print_keys(const char *prefix, const char *format);

/* What train takes; launch takes it too, and hands it on. */
typedef struct cli_train_args {
    const char *config, *out, *ledger, *serve;
    cli_list sets;
    bool resume, is_quiet, want_json;
    int64_t dump_step; /* -1: none */
} cli_train_args;
#define CLI_TRAIN_OPTIONS(at)                                                                     \
    CLI_SET(at(sets)), {"out", "DIR", "folder of the run (run.out)", CLI_TEXT, at(out)},          \
        {"resume", NULL, "go on from the newest checkpoint of the folder, if any", CLI_FLAG,      \
         at(resume)},                                                                             \
        {"dump-step", "K", "write step-K.safetensors: mini-batch K (from 1) laid open", CLI_INT,  \
         at(dump_step)},                                                                          \
        {"ledger", "FILE", "write as CSV which weights each forward and backward used", CLI_TEXT, \
         at(ledger)},                                                                             \
        {"serve", "ADDRESS", "show the run live, at 127.0.0.1:8080 or just 8080 (port 0: any)",   \
         CLI_TEXT, at(serve)},                                                                    \
        CLI_QUIET(at(is_quiet)),                                                                  \
    {                                                                                             \
        "json", NULL, "print the summary as JSON", CLI_FLAG, at(want_json)                        \
    }
/* As cli_parse, of a verb that has them; `a` is part of *args. */
int cli_parse_train(const cli_verb *verb, int argc, char **argv, void *args, cli_train_args *a);

/* report.html of a run whose folder is whole: a warning if it cannot be had (cmd_report.c). */
bool cli_leave_report(const char *folder);

/* The name nearest to a mistyped one, or NULL if none is near; names end with NULL. */
const char *cli_nearest(const char *typed, const char *const *names);

/* --- messages (main.c) ---------------------------------------------------------------------- */
/* A line of error, said by rank 0 where a launcher started several; returns 2. */
int cli_refuse(const char *format, ...) FR_PRINTF(1, 2);
/* Prints the context's error where status is one; returns the exit code. */
int cli_finish(fr_ctx *ctx, fr_status status);
/* A context whose log goes to stderr: warnings always, the rest unless quiet; on ranks other than 0
 * it goes nowhere. Exits on no memory. */
fr_ctx *cli_context(bool is_quiet);
/* "1,4,16": whole numbers of at least 0, no more than `most`. How many; 0: it is no such list. */
int cli_numbers(const char *text, int most, int64_t *out);
/* Seconds on a clock that never jumps. */
double cli_now_s(void);
/* "1.2 M", "34.5 k": three digits and a thousands prefix. */
const char *cli_short(double value, char *text, size_t room);
/* Set by the first SIGINT, SIGTERM or SIGUSR1 after cli_catch_signals; a second one ends the
 * process. */
volatile int *cli_catch_signals(void);
/* The outcome is decided: signals come too late to change it. */
void cli_ignore_signals(void);

/* --- several processes (ranks.c) ------------------------------------------------------------ */
/* As cli_finish, for a team (NULL: alone): an error is said once, by the rank that had it, all
 * ranks leave together with one exit code. Does not return to a process whose peers are lost. */
int cli_finish_team(fr_ctx *ctx, fr_team *team, fr_status status);
/* Before a failure that all ranks have and rank 0 tells, without a team: ranks but 0 end after it.
 */
void cli_let_rank_0_speak(void);

/* --- the launcher of this build's MPI (mpirun.c) -------------------------------------------- */
typedef struct cli_mpirun {
    const char *library;                         /* as the transport's library begins */
    const char *programs[4];                     /* NULL-terminated, the best first */
    const char *package;                         /* Debian's */
    const char *as_root, *oversubscribe, *quiet; /* options, a variable; NULL: there is none */
    const char *hosts;                           /* the option before "A,B:2" */
    bool tells_signal; /* its exit code for a killed rank is the signal's number, not 128 more */
} cli_mpirun;
const cli_mpirun *cli_mpirun_of_build(void);
/* The first of its programs that is on the path. */
const char *cli_mpirun_program(const cli_mpirun *m);

/* --- a child that is watched (child.c) ------------------------------------------------------ */
typedef struct cli_guard {
    sigset_t before;  /* signals blocked when it began: the child's */
    int n_asked;      /* how often SIGINT, SIGTERM, SIGHUP or SIGUSR1 has come */
    int death_signal; /* for the child when this process has died; 0: SIGTERM */
    const char *hint; /* where the program comes from, if there is none; NULL: not said */
    const char *log;  /* file that the child's output is put behind; NULL: where ours goes */
    void (*tick)(void *user); /* called now and then while a child runs; NULL: never */
    void *user;
} cli_guard;
void cli_guard_begin(cli_guard *g);
/* Runs a command and waits for it: its exit code, 128 + n if signal n killed it, 2 (and a line of
 * error) if there is no such program. Asked to end, the child gets `stop_signal`, then SIGTERM,
 * then SIGKILL; it ends with this process, too. */
int cli_guard_run(cli_guard *g, const char *const *command, int stop_signal);
/* False: asked to end meanwhile, or before. */
bool cli_guard_sleep(cli_guard *g, double seconds);

#endif
