/* cmd_launch.c -- forerun launch: a run in several processes that restarts after a fault.
 *
 * Starts `mpirun -n W forerun train ...` with the settings that it needs (one process: train
 * itself), waits, and restarts it with --resume after a fault: a rank was killed, or a peer was
 * lost. A failure that a restart cannot fix (bad input, a full disk, divergence, Ctrl-C) is final.
 * On Ctrl-C mpirun kills its ranks after one second, but it forwards SIGUSR1 to them. So mpirun
 * receives SIGUSR1, and the run ends with a checkpoint. */
#include "cli.h"
#include "term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORDS = 2 * CLI_MAX_SETS + 64 };

typedef struct launch {
    cli_train_args train;
    const char *mpirun, *hosts;
    const cli_mpirun *words;
    int64_t n_steps;  /* of the whole run */
    int64_t n_ranks;  /* 0: as in the config */
    int64_t restarts; /* in a row without a newer checkpoint */
    char out[4096];
    fr_ctx *ctx;
    cli_guard guard;
    /* the command of the next start */
    char self[4096], n_text[24], dump_text[24], hint[128];
    const char *command[MAX_WORDS + 1];
    int n_words;
} launch;

/* --- the command ---------------------------------------------------------------------------- */

static void add(launch *l, const char *word)
{
    if (l->n_words < MAX_WORDS) l->command[l->n_words++] = word;
    l->command[l->n_words] = NULL;
}

static void add_pair(launch *l, const char *option, const char *value)
{
    if (!value) return;
    add(l, option);
    add(l, value);
}

/* Quiet if possible: the run and this process report what happened. Ranks are not bound to cores,
 * because their threads would share one. */
static void add_mpirun(launch *l)
{
    const cli_mpirun *m = l->words;
    snprintf(l->n_text, sizeof l->n_text, "%lld", (long long)l->n_ranks);
    if (m->quiet) (void)setenv(m->quiet, "1", 0);
    add(l, l->mpirun);
    if (m->as_root && geteuid() == 0) add(l, m->as_root);
    add_pair(l, "--bind-to", "none");
    if (m->oversubscribe) add(l, m->oversubscribe);
    add_pair(l, "-n", l->n_text);
    add_pair(l, m->hosts, l->hosts);
}

static void make_command(launch *l)
{
    const cli_train_args *a = &l->train;
    l->n_words = 0;
    if (l->n_ranks > 1) add_mpirun(l);
    add(l, l->self);
    add(l, "train");
    for (int i = 0; i < a->sets.n; i++) add_pair(l, "--set", a->sets.at[i]);
    add_pair(l, "--out", a->out);
    add_pair(l, "--ledger", a->ledger);
    add_pair(l, "--serve", a->serve);
    snprintf(l->dump_text, sizeof l->dump_text, "%lld", (long long)a->dump_step);
    if (a->dump_step > 0) add_pair(l, "--dump-step", l->dump_text);
    if (a->resume) add(l, "--resume");
    if (a->is_quiet) add(l, "--quiet");
    if (a->want_json) add(l, "--json");
    add(l, "--");
    add(l, a->config);
}

/* --- outcomes ---------------------------------------------------------------------------- */

/* Any end that the run did not choose itself. */
static bool is_fault(int code) { return code == 3 || (code > 4 && code != 130); }

/* The signal that killed a process, by mpirun's exit code; 0: none. */
static int signal_of(const launch *l, int code)
{
    if (l->n_ranks > 1 && l->words->tells_signal && code > 4 && code < NSIG) return code;
    return code > 128 && code < 128 + NSIG ? code - 128 : 0;
}

static const char *fault_text(const launch *l, int code, char *text, size_t room)
{
    int number = signal_of(l, code);
    if (number > 0)
        snprintf(text, room, "%s killed by signal %d", l->n_ranks > 1 ? "a process was" : "it was",
                 number);
    else if (code == 0)
        snprintf(text, room, "mpirun ended before the run did");
    else
        snprintf(text, room, "%sexit code %d", code == 3 ? "" : "mpirun's ", code);
    return text;
}

static int64_t newest(launch *l)
{
    int64_t step;
    return fr_run_newest(l->ctx, l->out, &step) == FR_OK ? step : -1;
}

static int give_up(launch *l, int code)
{
    char what[64], after[80] = "", line[4096];
    int n = 0;
    if (l->restarts > 0)
        snprintf(after, sizeof after, ", %lld restart%s brought no newer checkpoint: given up",
                 (long long)l->restarts, l->restarts > 1 ? "s" : "");
    term_say(TERM_PLAIN, "forerun launch: run ended by a fault (%s)%s",
             fault_text(l, code, what, sizeof what), after);
    if (l->n_ranks > 1 && code > 4 && !signal_of(l, code)) {
        if (l->words->quiet)
            n = snprintf(line, sizeof line, "mpirun says more when %s=0; ", l->words->quiet);
        n += snprintf(line + n, sizeof line - (size_t)n, "the command was");
        for (int i = 0; i < l->n_words && n < (int)sizeof line; i++)
            n += snprintf(line + n, sizeof line - (size_t)n, " %s", l->command[i]);
        term_say(TERM_PLAIN, "forerun launch: %s", line);
    }
    return fr_status_exit_code(FR_PEER);
}

static void tell_restart(launch *l, int code, int64_t step, int64_t nth)
{
    char what[64], from[sizeof l->out + 64] = "starting from the beginning";
    if (step >= 0)
        snprintf(from, sizeof from, "resuming from %s/checkpoint/step-%lld", l->out,
                 (long long)step);
    term_say(TERM_PLAIN, "forerun launch: run ended by a fault (%s), %s, restart %lld of %lld",
             fault_text(l, code, what, sizeof what), from, (long long)nth, (long long)l->restarts);
}

/* The end was requested, and the run has ended, by itself or by force. */
static int asked_code(const launch *l, int code)
{
    int interrupted = fr_status_exit_code(FR_INTERRUPTED);
    return l->guard.n_asked > 1 || is_fault(code) ? interrupted : code;
}

static int supervise(launch *l)
{
    for (int64_t nth = 1;; nth++) {
        int64_t before = newest(l);
        make_command(l);
        int code = cli_guard_run(&l->guard, l->command, l->n_ranks > 1 ? SIGUSR1 : SIGINT);
        if (l->guard.n_asked) return asked_code(l, code);
        int64_t step = newest(l);
        /* MPICH 4.2's mpirun returns 0 when a rank was killed; a finished run has its last
         * checkpoint. */
        bool is_cut = code == 0 && l->n_ranks > 1 && step < l->n_steps;
        if (!is_fault(code) && !is_cut) return code;
        if (step > before) nth = 1;
        if (nth > l->restarts) return give_up(l, code);
        tell_restart(l, code, step, nth);
        double pause_s = nth < 9 ? 0.1 * (double)(1 << nth) : 30;
        if (!cli_guard_sleep(&l->guard, pause_s)) return fr_status_exit_code(FR_INTERRUPTED);
        (void)cli_guard_wait_folder(&l->guard, l->out, 10);
        l->train.resume = true;
        if (l->train.dump_step <= step) l->train.dump_step = -1;
    }
}

/* --- start ---------------------------------------------------------------------------------- */

/* Read the config here first, so that its errors are printed once, before anything starts. */
static fr_status look(launch *l)
{
    const cli_train_args *a = &l->train;
    fr_run_facts facts;
    fr_run_options o = {.size = sizeof o,
                        .config = a->config,
                        .n_sets = a->sets.n,
                        .sets = a->sets.at,
                        .out = a->out,
                        .resume = a->resume,
                        .dump_step = a->dump_step};
    FR_TRY(fr_run_look(l->ctx, &o, &facts));
    snprintf(l->out, sizeof l->out, "%s", facts.out);
    l->n_steps = facts.n_steps;
    if (!l->n_ranks) l->n_ranks = facts.n_ranks;
    l->words = cli_mpirun_of_build();
    if (!l->mpirun) l->mpirun = cli_mpirun_program(l->words);
    snprintf(l->hint, sizeof l->hint, "; it comes with %s (Debian: %s), --mpirun says where it is",
             l->words->library, l->words->package);
    l->guard.hint = l->hint;
    ssize_t n = readlink("/proc/self/exe", l->self, sizeof l->self - 1);
    if (n <= 0) return fr_fail(l->ctx, FR_IO, "/proc/self/exe cannot be read: is /proc there?");
    l->self[n] = '\0';
    return FR_OK;
}

/* mpirun or ssh would take a name that begins with a dash as an option. */
static bool are_hosts(const char *list)
{
    for (const char *at = list; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7F) return false;
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += at != list;
        if (*at == '-' || *at == ',' || *at == ':' || !*at) return false;
    }
    return true;
}

#define AT(member) offsetof(launch, member)
#define TRAIN(member) AT(train.member)
static const cli_option options[] = {
    {"n", "W", "processes (one per worker of the config)", CLI_COUNT, AT(n_ranks)},
    {"restarts", "K", "after a fault, in a row without a newer checkpoint (3)", CLI_INT,
     AT(restarts)},
    {"hosts", "A,B:2", "machines, with their numbers of processes", CLI_TEXT, AT(hosts)},
    {"mpirun", "PATH", "mpirun of the MPI this was built with, if not on the path", CLI_TEXT,
     AT(mpirun)},
    CLI_TRAIN_OPTIONS(TRAIN),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    static launch l = {.restarts = 3};
    int code = cli_parse_train(verb, argc, argv, &l, &l.train);
    if (code >= 0) return code;
    if (l.restarts < 0)
        return cli_refuse("forerun launch: --restarts counts from 0 (forerun help launch)");
    if (l.hosts && !are_hosts(l.hosts))
        return cli_refuse("forerun launch: --hosts '%s': expected names of machines with commas "
                          "between, as A,B:2; a name does not begin with '-' (forerun help launch)",
                          l.hosts);
    l.ctx = cli_context(true);
    fr_status status = look(&l);
    if (status != FR_OK) return cli_finish(l.ctx, status);
    cli_guard_begin(&l.guard);
    code = supervise(&l);
    fr_ctx_free(l.ctx);
    return code;
}

const cli_verb cli_launch = {
    .name = "launch",
    .usage = "launch [-n W] [--restarts K] [--hosts A,B:2] [--mpirun PATH] CONFIG [options of "
             "train]",
    .summary = "train in several processes, and restart after a fault",
    .text = "Runs mpirun -n W forerun train CONFIG; W = 1 needs no mpirun. If a process was\n"
            "killed, became silent or lost another (exit code 3), the run is restarted with\n"
            "--resume, after a pause that grows from 0.2 s to 30 s. Only restarts without a newer\n"
            "checkpoint count against --restarts, so set run.checkpoint_every. Any other end is\n"
            "final, and the exit code is that of the run. Ctrl-C finishes the open mini-batches\n"
            "and writes a checkpoint; a second one ends at once.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
