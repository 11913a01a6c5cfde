/* bootstrap.h -- how a team comes to be: somebody has started the processes (launcher.c) and lets
 * rank 0 share a few bytes with all (a bootstrap); with these the others find rank 0 (join.c), and
 * from then on the lines between them carry everything (control.c, stream.c). */
#ifndef FR_TEAM_BOOTSTRAP_H
#define FR_TEAM_BOOTSTRAP_H

#include <forerun/team.h>

/* The first exchange between processes that do not know each other. */
typedef struct fr__bootstrap {
    void *user;
    /* Rank 0's bytes to all; every rank calls it, with the same size. Leaves a text if it fails. */
    fr_status (*share)(void *user, void *data, size_t bytes);
    /* The last call; is_broken: some rank is lost, so wait for nobody. */
    void (*leave)(void *user, bool is_broken);
    double join_s; /* time for all ranks to find rank 0; 0: 20 s */
    /* The clock on which the silence of ranks is counted; NULL: the machine's. */
    uint64_t (*now_ns)(void *user);
} fr__bootstrap;

/* All ranks, once. On FR_OK the team has taken over the bootstrap (a copy of the table) and leaves
 * it in fr_team_leave; on failure the caller does that. */
fr_status fr__team_create(fr_ctx *ctx, int rank, int size, const fr__bootstrap *b, fr_team **out);

/* By MPI (mpi/; only there when built with FR_HAVE_MPI): initialises it, shares by a broadcast, and
 * finalises it on leave unless the team is broken. */
fr_status fr__mpi_bootstrap(fr_ctx *ctx, int *rank, int *size, fr__bootstrap *out);
/* Name and version of the library: "Open MPI 4.1.4". */
void fr__mpi_library(char *text, size_t room);
/* What MPI says about a code, in one line; MPICH has many. */
enum { FR__MPI_TEXT = 1024 };
const char *fr__mpi_text(int code, char text[static FR__MPI_TEXT]);

/* What the environment says about who started this process; no call of MPI. */
typedef struct fr__launched {
    int rank, size; /* 0 of 1: alone; size 0: started with others, but how many is not said */
    const char *by; /* the variable that says so; NULL: alone */
} fr__launched;
fr__launched fr__launcher_look(void);

#endif
