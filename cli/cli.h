/* cli.h -- what the verbs of the command line share: verbs, options, messages. */
#ifndef CLI_H
#define CLI_H

#include <forerun/forerun.h>

typedef struct cli_verb {
    const char *name;
    const char *usage;   /* behind "forerun " */
    const char *summary; /* one line */
    const char *text;    /* more, for --help; may be NULL */
    int (*run)(const struct cli_verb *verb, int argc, char **argv); /* returns the exit code */
} cli_verb;

extern const cli_verb cli_train, cli_eval, cli_generate, cli_schedule, cli_models, cli_methods,
    cli_info;

/* --- options (args.c) ----------------------------------------------------------------------- */
enum { CLI_MAX_SETS = 256 };

typedef struct cli_list {
    int n;
    const char *at[CLI_MAX_SETS];
} cli_list;

typedef enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_INT, CLI_REAL, CLI_LIST } cli_kind;

typedef struct cli_option {
    const char *name;  /* without dashes; NULL ends an array */
    const char *value; /* what the help calls its value; NULL for a flag */
    const char *help;
    cli_kind kind;
    void *to; /* bool, const char *, int64_t, double, cli_list */
} cli_option;

/* Options anywhere, up to max_plain other arguments into `plain` (unused ones NULL). Returns -1 to
 * go on, else the exit code: help was asked for (0) or something is wrong (2, and said). */
int cli_parse(const cli_verb *verb, const cli_option *options, int argc, char **argv, int max_plain,
              const char **plain);
void cli_print_help(const cli_verb *verb, const cli_option *options);
/* The name nearest to a mistyped one, or NULL if none is near; names end with NULL. */
const char *cli_nearest(const char *typed, const char *const *names);

/* --- messages (main.c) ---------------------------------------------------------------------- */
/* Prints the context's error where status is one; returns the exit code. */
int cli_finish(fr_ctx *ctx, fr_status status);
/* A context whose log goes to stderr: warnings always, the rest unless quiet. Exits on no memory.
 */
fr_ctx *cli_context(bool is_quiet);
/* "1.2 M", "34.5 k": three digits and a thousands prefix. */
const char *cli_short(double value, char *text, size_t room);
/* Set by the first SIGINT or SIGTERM after cli_catch_signals; a second one ends the process. */
volatile int *cli_catch_signals(void);

#endif
