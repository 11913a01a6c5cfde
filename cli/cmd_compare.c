/* cmd_compare.c -- forerun compare: runs the cases of a comparison one after the other, each in a
 * separate process, and shows one table. */
#include "cli.h"
#include "progress.h"
#include "term.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORDS = 32 };

typedef struct session {
    fr_compare_options o;
    cli_list sets;
    const char *format;
    bool is_quiet, keeps_going, want_json;
    fr_ctx *ctx;
    fr_compare *compare;
    fr_compare_job job;
    cli_guard guard;
    char self[4096];
    double begin_s; /* of the job */
} session;

/* --- progress --------------------------------------------------------------------------------- */

static const char *duration(double seconds, char *text, size_t room)
{
    if (seconds >= 60) return progress_clock(seconds, text, room);
    snprintf(text, room, "%.1f s", seconds);
    return text;
}

static void show(const session *s, const char *line)
{
    if (s->is_quiet) return;
    term_end_status(); /* its job is over */
    term_say(TERM_PLAIN, "%s", line);
}

/* A number from the last complete line of metrics.jsonl. */
static double number_in(const char *line, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    return at ? strtod(at + strlen(quoted), NULL) : NAN;
}

static bool read_last_line(const char *folder, char line[1024])
{
    char path[4200], tail[1024];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (fseek(f, -(long)(sizeof tail - 1), SEEK_END) != 0) rewind(f);
    size_t n = fread(tail, 1, sizeof tail - 1, f);
    fclose(f);
    while (n && tail[n - 1] != '\n') n--;
    if (!n) return false;
    tail[n - 1] = '\0';
    const char *begin = strrchr(tail, '\n');
    snprintf(line, 1024, "%s", begin ? begin + 1 : tail);
    return line[0] == '{';
}

/* Progress of the child, from its metrics; its output goes to its log. */
static void on_tick(void *user)
{
    session *s = user;
    char line[1024], head[200], tail[200], rate[32], a[32], b[32];
    double share = -1, spent = cli_now_s() - s->begin_s;
    if (!term_has_status() || s->is_quiet || s->guard.n_asked) return;
    int n =
        snprintf(head, sizeof head, "[%d/%d] %.120s", s->job.number, s->job.n_runs, s->job.name);
    snprintf(tail, sizeof tail, "%s%s", s->job.is_profile ? "" : "starting  ",
             progress_clock(spent, a, sizeof a));
    if (!s->job.is_profile && read_last_line(s->job.folder, line)) {
        double step = number_in(line, "step"), elapsed = number_in(line, "elapsed_s");
        double left = step > 0 ? elapsed / step * ((double)s->job.n_steps - step) : NAN;
        share = step / (double)s->job.n_steps;
        snprintf(head + n, sizeof head - (size_t)n, "  step %.0f/%lld", step,
                 (long long)s->job.n_steps);
        n = snprintf(tail, sizeof tail, "left %s", progress_clock(left, a, sizeof a));
        if (!isnan(s->job.later_s))
            n += snprintf(tail + n, sizeof tail - (size_t)n, ", of all %s",
                          progress_clock(left + s->job.later_s, b, sizeof b));
        snprintf(tail + n, sizeof tail - (size_t)n, "  loss %.4f  %s samples/s",
                 number_in(line, "loss"),
                 cli_short(number_in(line, "samples_per_s"), rate, sizeof rate));
    }
    term_status(head, share, tail);
}

/* --- one run ---------------------------------------------------------------------------------- */

/* The last line of the child's log, if it is an error. */
static void tell_error(session *s, int code)
{
    char line[2048], error[2048] = "";
    FILE *f = fopen(s->job.log, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "forerun", 7) == 0 && !strstr(line, ": warning: "))
            memcpy(error, line, sizeof error);
    if (f) fclose(f);
    error[strcspn(error, "\n")] = '\0';
    if (code > 128)
        snprintf(line, sizeof line, "killed by signal %d", code - 128);
    else
        snprintf(line, sizeof line, "exit code %d: %.1900s", code, error);
    term_end_status();
    term_say(TERM_ERROR, "forerun compare: %s: %s (%s)", s->job.name, line, s->job.log);
}

static int run_child(session *s)
{
    const char *words[MAX_WORDS + 1];
    int n = 0;
    words[n++] = s->self;
    for (const char *const *w = s->job.command; *w && n < MAX_WORDS; w++) words[n++] = *w;
    words[n] = NULL;
    if (!cli_guard_wait_folder(&s->guard, s->job.folder, 1) && !s->guard.n_asked) {
        show(s, "waiting for a run of an earlier comparison to end");
        (void)cli_guard_wait_folder(&s->guard, s->job.folder, 60);
    }
    if (s->guard.n_asked) return fr_status_exit_code(FR_INTERRUPTED);
    s->guard.log = s->job.log;
    s->guard.death_signal = SIGKILL; /* SIGTERM would drain the pipeline, and the numbers would
                                        differ from those of an undisturbed run */
    s->guard.tick = on_tick, s->guard.user = s;
    int code = cli_guard_run(&s->guard, words, SIGINT);
    return s->guard.n_asked && code > 4 ? fr_status_exit_code(FR_INTERRUPTED) : code;
}

/* FR_INTERRUPTED, or FR_IO: a run failed and the later ones are skipped. */
static fr_status run_job(session *s)
{
    int code = 0;
    char text[512], time[32];
    fr_compare_outcome outcome;
    s->begin_s = cli_now_s();
    if (s->job.is_simulated)
        FR_TRY(fr_compare_simulate(s->compare));
    else
        code = run_child(s);
    FR_TRY(fr_compare_over(s->compare, code, &outcome));
    snprintf(text, sizeof text, "[%d/%d] %s: %s%s after %s%s%s", s->job.number, s->job.n_runs,
             s->job.name, s->job.is_resumed ? "resumed, " : "", outcome.status,
             duration(cli_now_s() - s->begin_s, time, sizeof time), outcome.text[0] ? ": " : "",
             outcome.text);
    show(s, text);
    if (s->guard.n_asked || code == fr_status_exit_code(FR_INTERRUPTED)) return FR_INTERRUPTED;
    if (strcmp(outcome.status, "failed") != 0) return FR_OK;
    tell_error(s, code);
    return s->keeps_going ? FR_OK : FR_IO;
}

/* --- all of them ------------------------------------------------------------------------------ */

static void tell_start(session *s)
{
    char text[4300];
    int n_over, n = fr_compare_n_runs(s->compare, &n_over);
    snprintf(text, sizeof text, "%s: %d run%s%s in %s", fr_compare_title(s->compare), n,
             n == 1 ? "" : "s", n_over ? ", some done before," : "", fr_compare_out(s->compare));
    show(s, text);
}

static fr_status run_all(session *s)
{
    tell_start(s);
    for (;;) {
        FR_TRY(fr_compare_next(s->compare, &s->job));
        if (!s->job.name) return FR_OK;
        if (s->guard.n_asked) return FR_INTERRUPTED;
        FR_TRY(run_job(s));
    }
}

static fr_status print(session *s)
{
    const char *text;
    bool is_table = strcmp(s->format, "table") == 0;
    FR_TRY(fr_compare_text(s->compare, s->format, &text));
    fputs(text, stdout);
    if (!is_table) return FR_OK;
    FR_TRY(fr_compare_words(s->compare, &text));
    fputs(text, stdout);
    return FR_OK;
}

/* Of all existing runs; simulated and published rows are in its table. */
static fr_status report(session *s)
{
    char page[4200], table[4200];
    const char *const *folders;
    int n = fr_compare_folders(s->compare, &folders);
    if (n == 0) return FR_OK;
    snprintf(page, sizeof page, "%s/report.html", fr_compare_out(s->compare));
    snprintf(table, sizeof table, "%s/compare.json", fr_compare_out(s->compare));
    fr_report_options o = {.title = fr_compare_title(s->compare), .compare = table};
    FR_TRY(fr_report_write(s->ctx, n, folders, &o, page));
    if (strcmp(s->format, "table") == 0 && !s->is_quiet)
        printf("\nAll runs, curve by curve: %s (open it in a browser)\n", page);
    return FR_OK;
}

static int finish(session *s, fr_status status)
{
    int n_over = 0, n = fr_compare_n_runs(s->compare, &n_over);
    int n_failed = fr_compare_n_failed(s->compare);
    bool is_own = status != FR_OK && fr_ctx_status(s->ctx) != FR_OK; /* printed by cli_finish */
    if (!is_own) {
        fr_status shown = print(s);
        if (shown == FR_OK) shown = report(s);
        if (status == FR_OK) status = shown;
    }
    fr_compare_close(s->compare);
    if (is_own || fr_ctx_status(s->ctx) != FR_OK) return cli_finish(s->ctx, status);
    fr_ctx_free(s->ctx);
    if (status == FR_INTERRUPTED)
        term_say(TERM_ERROR,
                 "forerun compare: interrupted, %d of %d runs are done; the same command continues",
                 n_over, n);
    else if (n_failed)
        term_say(TERM_ERROR, "forerun compare: %d run%s failed; the same command tries again",
                 n_failed, n_failed > 1 ? "s" : "");
    return n_failed && status != FR_INTERRUPTED ? 1 : fr_status_exit_code(status);
}

static int check(const session *s)
{
    static const char *const formats[] = {"table", "markdown", "csv", "json"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        is_known |= strcmp(formats[i], s->format) == 0;
    if (!s->o.config) return cli_refuse("forerun compare: no config given (forerun help compare)");
    if (!is_known)
        return cli_refuse("forerun compare: --format %s: there are table, markdown, csv and json",
                          s->format);
    return -1;
}

#define AT(member) offsetof(session, member)
static const cli_option options[] = {
    {"methods", "A,B,C", "compare these, not the cases of the config", CLI_TEXT, AT(o.methods)},
    {"only", "A,B", "only cases of these groups, names or kinds", CLI_TEXT, AT(o.only)},
    {"seeds", "K", "runs per case, with consecutive seeds", CLI_COUNT, AT(o.seeds)},
    {"out", "DIR", "folder of the comparison (runs/compare-NAME)", CLI_TEXT, AT(o.out)},
    {"set", "KEY=VALUE", "replace a value of the config, in all cases; may be repeated", CLI_LIST,
     AT(sets)},
    {"columns", "A,B,C", "columns of the table (docs/compare.md lists them)", CLI_TEXT,
     AT(o.columns)},
    {"format", "table|markdown|csv|json", "how to print it (table)", CLI_TEXT, AT(format)},
    {"json", NULL, "the same as --format json", CLI_FLAG, AT(want_json)},
    {"keep-going", NULL, "continue with the other runs after a failed one", CLI_FLAG,
     AT(keeps_going)},
    {"force", NULL, "run again what was run with other settings", CLI_FLAG, AT(o.force)},
    {"quiet", NULL, "no progress, errors and the table only", CLI_FLAG, AT(is_quiet)},
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    static session s = {.format = "table"};
    int code = cli_parse(verb, argc, argv, &s, 1, &s.o.config);
    if (s.want_json) s.format = "json";
    if (code < 0) code = check(&s);
    if (code >= 0) return code;
    s.o.n_sets = s.sets.n, s.o.sets = s.sets.at;
    s.ctx = cli_context(s.is_quiet);
    ssize_t n = readlink("/proc/self/exe", s.self, sizeof s.self - 1);
    fr_status status = n > 0 ? FR_OK : fr_fail(s.ctx, FR_IO, "/proc/self/exe cannot be read");
    cli_guard_begin(&s.guard);
    if (status == FR_OK) status = fr_compare_open(s.ctx, &s.o, &s.compare);
    if (status != FR_OK) return cli_finish(s.ctx, status);
    return finish(&s, run_all(&s));
}

const cli_verb cli_compare = {
    .name = "compare",
    .usage =
        "compare CONFIG [--methods A,B,C] [--only A,B] [--seeds K] [--out DIR] [--set KEY=VALUE]"
        "...\n"
        "                       [--columns A,B,C] [--format NAME] [--keep-going] [--force] "
        "[--quiet]",
    .summary = "train with several methods on the same data and seeds, show one table",
    .text = "The section `compare` of the config, or --methods, lists the cases. Runs of\n"
            "different cases alternate, so that noise affects all alike; each is a separate\n"
            "process with its own folder below DIR. After an interruption the same command\n"
            "continues. It writes compare.json and report.html to DIR. See docs/compare.md.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
