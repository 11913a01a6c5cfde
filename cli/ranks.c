/* ranks.c -- the end of a run in several processes: one message, one exit code.
 *
 * All ranks of a team end with one status but different texts: the failed rank has its own text,
 * the others the text they received. Only one prints it: rank 0, unless another rank failed by
 * itself, which then prints its own text. If rank 0 itself is lost, rank 1 prints for the remaining
 * ranks. */
#include "cli.h"
#include "term.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The rank whose name begins the text, as in texts received from that rank; -1: none. */
static int rank_in(const fr_team *team, const char *text)
{
    for (int r = 0; r < fr_team_size(team); r++) {
        const char *name = fr_team_name(team, r);
        if (strncmp(text, name, strlen(name)) == 0) return r;
    }
    return -1;
}

/* A rank is lost: print which one, rather than what the others were doing. */
static bool speaks_of_loss(const fr_team *team, const char *loss)
{
    return fr_team_rank(team) == (rank_in(team, loss) == 0 ? 1 : 0);
}

/* Outcomes of the whole run, not of one rank. */
static bool is_common(fr_status status)
{
    return status == FR_PEER || status == FR_DIVERGED || status == FR_INTERRUPTED;
}

/* No rank is lost, and all ranks take part. */
static bool speaks_of_failure(fr_team *team, fr_status status, const char *text)
{
    char first[2048]; /* rank 0's text */
    int rank = fr_team_rank(team), from = rank_in(team, text);
    snprintf(first, sizeof first, "%s", text);
    if (is_common(status) || fr_team_share(team, first, sizeof first) != FR_OK) return rank == 0;
    if (from >= 0 && from != rank) return false;
    return rank == 0 || strncmp(first, text, sizeof first - 1) != 0;
}

static void say(int rank, const char *text)
{
    fflush(stdout);
    if (rank == 0)
        term_say(TERM_ERROR, "forerun: %s", text);
    else
        term_say(TERM_ERROR, "forerun: rank %d: %s", rank, text);
}

static const char *text_of(fr_ctx *ctx, fr_status status)
{
    const char *text = fr_ctx_error(ctx);
    return text[0] ? text : fr_status_text(status);
}

/* mpirun kills the remaining ranks a second or two after the first has ended, and earlier with each
 * further one. So ranks without a message wait. */
static void let_others_speak(void)
{
    struct timespec left = {.tv_nsec = 700000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* mpirun kills a rank that has not yet printed when another has failed before it. This rank has no
 * team to coordinate with, so it waits until mpirun ends it too, or for a moment if mpirun does
 * not. */
void cli_let_rank_0_speak(void)
{
    sigset_t asked;
    struct timespec moment = {.tv_sec = 2};
    if (fr_team_rank_by_launcher() == 0) return;
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    sigprocmask(SIG_BLOCK, &asked, NULL);
    (void)sigtimedwait(&asked, NULL, &moment);
}

/* MPI would wait for the lost ranks at exit. */
_Noreturn static void leave_now(fr_status status)
{
    fflush(NULL);
    _exit(fr_status_exit_code(status));
}

/* One exit code: that of the failed rank, not of the ranks that detected its failure. */
static fr_status agree(fr_team *team, fr_status status)
{
    if (fr_team_is_broken(team, NULL)) return FR_PEER;
    fr_status cause = fr_team_agree(team, status == FR_PEER ? FR_OK : status);
    return cause == FR_OK ? status : cause;
}

int cli_finish_team(fr_ctx *ctx, fr_team *team, fr_status status)
{
    const char *loss;
    int rank = fr_team_rank_by_launcher();
    if (!team && (status == FR_OK || fr_team_size_by_launcher() == 1))
        return cli_finish(ctx, status);
    if (!team) { /* joining failed; a build without MPI fails alike on all ranks */
        if (rank == 0 || status != FR_UNSUPPORTED)
            say(rank, text_of(ctx, status));
        else
            cli_let_rank_0_speak();
        leave_now(status);
    }
    status = agree(team, status);
    bool is_broken = fr_team_is_broken(team, &loss);
    const char *text = text_of(ctx, status);
    bool speaks = status != FR_OK &&
                  (is_broken ? speaks_of_loss(team, loss) : speaks_of_failure(team, status, text));
    if (speaks) say(fr_team_rank(team), text);
    fr_team_leave(team);
    if (is_broken && !speaks) let_others_speak();
    if (is_broken) leave_now(FR_PEER);
    fr_ctx_free(ctx);
    return fr_status_exit_code(status);
}
