/* ranks.c -- the end of a run in several processes: one voice, one exit code.
 *
 * All ranks of a team end with one status, but not with one text: the rank that had the failure has
 * its own, the others have what they were told about it. So that the user reads it once, rank 0
 * speaks, unless the failure is another rank's own: that rank can say it best. When rank 0 itself
 * is lost, rank 1 speaks for those who are left. */
#include "cli.h"
#include "term.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The rank whose name a text begins with, as it does when it came from there; -1: none. */
static int rank_in(const fr_team *team, const char *text)
{
    for (int r = 0; r < fr_team_size(team); r++) {
        const char *name = fr_team_name(team, r);
        if (strncmp(text, name, strlen(name)) == 0) return r;
    }
    return -1;
}

/* A rank is lost: what the others were doing then matters less than who it was. */
static bool speaks_of_loss(const fr_team *team, const char *loss)
{
    return fr_team_rank(team) == (rank_in(team, loss) == 0 ? 1 : 0);
}

/* What happens to a run, not to a rank. */
static bool is_common(fr_status status)
{
    return status == FR_PEER || status == FR_DIVERGED || status == FR_INTERRUPTED;
}

/* Nobody is lost, and all ranks are here. */
static bool speaks_of_failure(fr_team *team, fr_status status, const char *text)
{
    char first[2048]; /* what rank 0 has to say */
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

/* mpirun kills the ranks that are left a second or two after the first has ended, and sooner with
 * each that ends. So those who have nothing to say do not hurry. */
static void let_others_speak(void)
{
    struct timespec left = {.tv_nsec = 700000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* mpirun ends a rank that has yet to speak when another has failed before it. This one has no team
 * that could tell, so it waits until mpirun ends it, too, or for a moment where mpirun does not. */
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

/* MPI would wait for the lost ones in what it does at exit. */
_Noreturn static void leave_now(fr_status status)
{
    fflush(NULL);
    _exit(fr_status_exit_code(status));
}

/* One exit code: that of the rank that failed, not of those who only met its failure. */
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
    if (!team) { /* it could not be joined; a build without MPI is the same everywhere */
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
