/* crew.c -- the processes of one test. */
#include "support/crew.h"

#include "support/check.h"

static fr_ctx *ctx;
static fr_team *team;

void crew_join(void)
{
    ctx = fr_ctx_create();
    if (ctx && fr_team_join(ctx, &team) == FR_OK) return;
    fprintf(stderr, "joining the team: %s\n", ctx ? fr_ctx_error(ctx) : "no memory");
    exit(1);
}

int crew_leave(int n_failed)
{
    if (fr_team_agree(team, n_failed ? FR_INTERNAL : FR_OK) != FR_OK) n_failed++;
    fr_team_leave(team);
    fr_ctx_free(ctx);
    return n_failed != 0;
}

fr_team *crew_team(void) { return team; }

bool crew_can_use(const fr_transport *t) { return !team || strcmp(t->name, "threads") != 0; }

int crew_fit(int n)
{
    int size = fr_team_size(team);
    return (n + size - 1) / size * size;
}

bool crew_has(const fr_transport *t, const fr_group *g, int member)
{
    return t->rank_of(g, member) == fr_team_rank(team);
}

void crew_meet(bool is_well)
{
    if (fr_team_agree(team, is_well ? FR_OK : FR_INTERNAL) != FR_OK)
        fail_msg("rank %d: %s", fr_team_rank(team),
                 is_well ? "another process has failed" : "failed");
}
