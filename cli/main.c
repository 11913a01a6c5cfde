/* main.c -- the forerun command: finds the verb, and has the functions that verbs share. Only this
 * file and the verbs print, and only this file converts a status to an exit code. */
#include "cli.h"
#include "term.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS(name) &cli_##name,
static const cli_verb *const verbs[] = {CLI_VERBS(ADDRESS) NULL};

const cli_verb *const *cli_verbs(void) { return verbs; }

static void print_usage(FILE *to)
{
    fprintf(to, "usage: forerun VERB ...\n\n");
    for (const cli_verb *const *v = verbs; *v; v++)
        fprintf(to, "  %-10s %s\n", (*v)->name, (*v)->summary);
    fprintf(to, "  %-10s %s\n", "help", "show the help of one verb: forerun help train");
    fprintf(to, "\nforerun --version prints the version.\n"
                "Exit codes: 0 done, 1 failed, 2 bad usage or input, 3 peer lost, 4 diverged, "
                "130 interrupted.\n");
}

static const cli_verb *find(const char *name)
{
    for (const cli_verb *const *v = verbs; *v; v++)
        if (strcmp((*v)->name, name) == 0) return *v;
    return NULL;
}

static int unknown_verb(const char *name)
{
    const char *names[sizeof verbs / sizeof *verbs];
    int n = 0;
    for (; verbs[n]; n++) names[n] = verbs[n]->name;
    names[n] = NULL;
    const char *near = cli_nearest(name, names);
    return cli_refuse("forerun: no verb '%s'%s%s%s (forerun help lists them)", name,
                      near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int help(int argc, char **argv)
{
    if (argc == 0) {
        print_usage(stdout);
        return 0;
    }
    const cli_verb *verb = find(argv[0]);
    if (!verb) return unknown_verb(argv[0]);
    cli_print_help(verb);
    return 0;
}

/* OpenMP threads that wait for each other spin for milliseconds before they sleep. On a busy
 * machine this costs more than half of the speed; a shorter spin costs nothing on an idle one. The
 * runtime reads its settings when it is loaded, so the command sets them and executes itself again.
 */
static void spin_less(char **argv)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    self[n] = '\0';
    if (setenv("GOMP_SPINCOUNT", "10000", 1) == 0) execv(self, argv);
    /* exec failed: continue without the setting, silently. */
}

static int run_verb(const char *name, int argc, char **argv)
{
    const cli_verb *verb = find(name);
    int n_processes = fr_team_size_by_launcher();
    if (!verb) return unknown_verb(name);
    if (n_processes != 1 && !verb->is_collective)
        return cli_refuse("forerun %s: runs in one process, and a launcher has started several; "
                          "start it without mpirun or srun",
                          name);
    int code = verb->run(verb, argc, argv);
    if (fflush(stdout) != 0 && code == 0) {
        fprintf(stderr, "forerun: cannot write to the standard output\n");
        code = 1;
    }
    return code;
}

int main(int argc, char **argv)
{
    spin_less(argv);
    signal(SIGXFSZ,
           SIG_IGN); /* report a file size limit as an error instead of dying by the signal */
    /* Among processes started together rank 0 prints for all; the others print only their own
     * errors. */
    if (fr_team_rank_by_launcher() > 0 && !freopen("/dev/null", "w", stdout)) return 1;
    if (argc < 2) {
        if (fr_team_rank_by_launcher() == 0) print_usage(stderr);
        cli_let_rank_0_speak();
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("forerun %s\n", fr_version());
        return 0;
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc - 2, argv + 2);
    return run_verb(name, argc - 2, argv + 2);
}

/* --- shared by verbs ------------------------------------------------------------------------ */

double cli_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cli_line(const char *format, ...)
{
    char text[4096], line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fr_escape(text, line, sizeof line);
    puts(line);
}

int cli_refuse(const char *format, ...)
{
    va_list args;
    if (fr_team_rank_by_launcher() > 0) {
        cli_let_rank_0_speak();
        return 2;
    }
    char line[4096];
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    term_say(TERM_ERROR, "%s", line);
    return 2;
}

int cli_finish(fr_ctx *ctx, fr_status status)
{
    if (status != FR_OK) {
        const char *text = fr_ctx_error(ctx);
        term_end_status();
        term_say(TERM_ERROR, "forerun: %s", text[0] ? text : fr_status_text(status));
    }
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}

static void log_line(void *user, fr_log_level level, const char *line)
{
    const bool *is_quiet = user;
    if (level == FR_LOG_WARN)
        term_say(TERM_WARNING, "forerun: warning: %s", line);
    else if (level == FR_LOG_INFO && !*is_quiet)
        term_say(TERM_PLAIN, "forerun: %s", line);
}

fr_ctx *cli_context(bool is_quiet)
{
    static const bool choices[] = {false, true};
    fr_ctx *ctx = fr_ctx_create();
    if (!ctx) {
        fprintf(stderr, "forerun: out of memory\n");
        exit(1);
    }
    union {
        const bool *in;
        void *out;
    } user = {&choices[is_quiet]}; /* the log only reads it */
    if (fr_team_rank_by_launcher() == 0) fr_ctx_set_log(ctx, log_line, user.out);
    return ctx;
}

const char *cli_short(double value, char *text, size_t room)
{
    static const char prefixes[] = " kMGTPE";
    int k = 0;
    double v = fabs(value);
    while (v >= 999.5 && k < 6) v /= 1000, k++;
    if (k == 0)
        snprintf(text, room, "%.4g", value);
    else
        snprintf(text, room, "%.*f %c",
                 v < 9.995   ? 2
                 : v < 99.95 ? 1
                             : 0,
                 value < 0 ? -v : v, prefixes[k]);
    return text;
}

static volatile int stop_asked;
static volatile bool is_mute, is_launched;

/* When a rank ends, mpirun sends SIGTERM and later SIGKILL to the others. The SIGTERM arrives
 * together with the loss of that rank, whose message is more useful, so it must not end the process
 * first. */
static void on_signal(int number)
{
    static volatile time_t first; /* seconds */
    struct timespec now;
    bool is_cleaning = is_launched && number == SIGTERM;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stop_asked && !is_cleaning) {
        /* timeout(1) and launchers signal a process and its group: that is one request. */
        if (now.tv_sec - first < 2) return;
        _exit(130);
    }
    first = now.tv_sec;
    stop_asked = 1;
    static const char text[] = "\nforerun: finishing the open mini-batches; repeat to stop now\n";
    if (!is_mute && !is_cleaning) (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

/* mpirun forwards SIGUSR1 to its ranks; after SIGINT it kills them within a second. */
static void set_signals(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

volatile int *cli_catch_signals(void)
{
    is_mute = fr_team_rank_by_launcher() > 0;
    is_launched = fr_team_size_by_launcher() != 1;
    set_signals(on_signal);
    return &stop_asked;
}

void cli_ignore_signals(void) { set_signals(SIG_IGN); }
