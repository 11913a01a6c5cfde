/* launcher.c -- detects, from environment variables, the launcher that started this process, and
 * joins the team it started.
 *
 * MPI is initialised only if there are other processes. */
#include "team/bootstrap.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* In this order: under mpirun inside a Slurm job the variables of both are set. */
static const struct {
    const char *rank, *size;
    const char *needs; /* must be set, too; otherwise this is a batch script */
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"},
    {"PMIX_RANK", NULL, NULL},
};

static bool read_count(const char *name, int *out)
{
    const char *text = name ? getenv(name) : NULL;
    if (!text || !*text) return false;
    char *end = NULL;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || n < 0 || n > INT_MAX) return false;
    *out = (int)n;
    return true;
}

fr__launched fr__launcher_look(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        fr__launched l = {.by = launchers[i].rank};
        if (launchers[i].needs && !getenv(launchers[i].needs)) continue;
        if (!read_count(launchers[i].rank, &l.rank)) continue;
        if (launchers[i].size && !read_count(launchers[i].size, &l.size)) continue;
        if (l.size == 0 || (l.size > 1 && l.rank < l.size)) return l;
        break;
    }
    return (fr__launched){.size = 1};
}

int fr_team_rank_by_launcher(void) { return fr__launcher_look().rank; }

int fr_team_size_by_launcher(void) { return fr__launcher_look().size; }

#ifdef FR_HAVE_MPI
fr_status fr_team_join(fr_ctx *ctx, fr_team **out)
{
    *out = NULL;
    fr__launched l = fr__launcher_look();
    if (l.size == 1) return FR_OK;
    int rank = 0, size = 1;
    fr__bootstrap b = {0};
    FR_TRY(fr__mpi_bootstrap(ctx, &rank, &size, &b));
    if (l.size == 0 && size == 1) {
        b.leave(b.user, false);
        return FR_OK;
    }
    fr_status status = FR_OK;
    char library[64];
    fr__mpi_library(library, sizeof library);
    if (l.size != 0 && (size != l.size || rank != l.rank))
        status = fr_fail(ctx, FR_UNSUPPORTED,
                         "%s says that this is rank %d of %d, MPI says %d of %d: the launcher "
                         "belongs to another MPI than %s, with which this program was built; use "
                         "its mpirun (Debian: mpirun.openmpi, mpirun.mpich)",
                         l.by, l.rank, l.size, rank, size, library);
    else
        status = fr__team_create(ctx, rank, size, &b, out);
    if (status != FR_OK) b.leave(b.user, true);
    return status;
}
#else
fr_status fr_team_join(fr_ctx *ctx, fr_team **out)
{
    *out = NULL;
    fr__launched l = fr__launcher_look();
    if (l.size == 1) return FR_OK;
    if (l.size == 0)
        return fr_fail(
            ctx, FR_UNSUPPORTED,
            "%s says that a launcher started this process as rank %d, but this program "
            "was built without MPI; install libopenmpi-dev or libmpich-dev and build it again",
            l.by, l.rank);
    return fr_fail(ctx, FR_UNSUPPORTED,
                   "%s says that this is rank %d of %d processes, but this program was built "
                   "without MPI; install libopenmpi-dev or libmpich-dev and build it again",
                   l.by, l.rank, l.size);
}
#endif
