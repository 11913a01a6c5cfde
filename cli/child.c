/* child.c -- runs a command as a child process and forwards requests to end it.
 *
 * Signals are blocked and handled one at a time where this process waits, so nothing is
 * interrupted in the middle. The child has its own process group: Ctrl-C reaches this process only,
 * which chooses the signal for the child. */
#include "cli.h"
#include "term.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double patience_s = 5; /* from SIGTERM to SIGKILL */

static void taken_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGCHLD);
}

void cli_guard_begin(cli_guard *g)
{
    sigset_t taken;
    taken_signals(&taken);
    g->n_asked = 0;
    /* A shell ignores SIGINT for its background jobs, and an ignored signal is never delivered.
     * SIGHUP is unchanged, for nohup. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &taken, &g->before);
}

/* Wait for a signal, with a time limit. */
static void take_signal(cli_guard *g, double seconds)
{
    sigset_t taken;
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    taken_signals(&taken);
    int number = sigtimedwait(&taken, NULL, &t);
    if (number > 0 && number != SIGCHLD) g->n_asked++;
}

bool cli_guard_sleep(cli_guard *g, double seconds)
{
    double end = cli_now_s() + seconds;
    for (double left; !g->n_asked && (left = end - cli_now_s()) > 0;) take_signal(g, left);
    return !g->n_asked;
}

bool cli_guard_wait_folder(cli_guard *g, const char *path, double seconds)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return true;
    bool is_free = false;
    for (double end = cli_now_s() + seconds; !is_free;) {
        is_free = flock(folder, LOCK_EX | LOCK_NB) == 0;
        if (!is_free && (cli_now_s() > end || !cli_guard_sleep(g, 0.1))) break;
    }
    close(folder);
    return is_free;
}

_Noreturn static void become(const cli_guard *g, const char *const *command, pid_t parent)
{
    union {
        const char *const *in;
        char *const *out;
    } arguments = {command}; /* exec changes nothing */
    prctl(PR_SET_PDEATHSIG, g->death_signal ? g->death_signal : SIGTERM);
    if (getppid() != parent) _exit(130); /* it has ended already */
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (nothing > STDIN_FILENO) close(nothing);
    int log = g->log ? open(g->log, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (log >= 0) dup2(log, STDOUT_FILENO), dup2(log, STDERR_FILENO);
    if (log > STDERR_FILENO) close(log);
    sigprocmask(SIG_SETMASK, &g->before, NULL);
    execvp(command[0], arguments.out);
    int code = errno;
    term_say(TERM_ERROR, "forerun: cannot start %s: %s%s", command[0], strerror(code),
             code == ENOENT && g->hint ? g->hint : "");
    _exit(2);
}

int cli_guard_run(cli_guard *g, const char *const *command, int stop_signal)
{
    int status = 0, n_told = 0;
    double kill_s = 0; /* time of the next, stronger signal; 0: none pending */
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
        term_say(TERM_ERROR, "forerun: cannot start a process: %s", strerror(errno));
        return 1;
    }
    if (child == 0) become(g, command, parent);
    while (waitpid(child, &status, WNOHANG) == 0) {
        take_signal(g, kill_s > 0 || g->tick ? 0.2 : 60);
        if (g->tick) g->tick(g->user);
        if (kill_s > 0 && cli_now_s() > kill_s) kill(child, SIGKILL);
        if (g->n_asked == n_told) continue;
        n_told = g->n_asked;
        kill(child, n_told == 1 ? stop_signal : n_told == 2 ? SIGTERM : SIGKILL);
        if (n_told == 2) kill_s = cli_now_s() + patience_s;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
