/* bootstrap.h -- how a team is created: a launcher has started the processes (launcher.c) and
 * provides a bootstrap, by which rank 0 shares a few bytes with all. With these the other ranks
 * connect to rank 0 (join.c); all further traffic uses these connections (control.c, stream.c). */
#ifndef FR_TEAM_BOOTSTRAP_H
#define FR_TEAM_BOOTSTRAP_H

#include <forerun/team.h>

/* The first exchange between processes that are not connected. */
typedef struct fr__bootstrap {
    void *user;
    /* Broadcast rank 0's bytes; every rank calls it with the same size. Sets the error text. */
    fr_status (*share)(void *user, void *data, size_t bytes);
    /* The last call; is_broken: a rank is lost, so wait for none. */
    void (*leave)(void *user, bool is_broken);
    double join_s; /* time for all ranks to connect to rank 0; 0: 20 s */
    /* The clock that measures silence; NULL: the monotonic clock. */
    uint64_t (*now_ns)(void *user);
} fr__bootstrap;

/* Every rank calls it once. On FR_OK the team owns the bootstrap (it copies the table), and
 * fr_team_leave calls its `leave`; on failure the caller does. */
fr_status fr__team_create(fr_ctx *ctx, int rank, int size, const fr__bootstrap *b, fr_team **out);

/* By MPI (mpi/; only in builds with FR_HAVE_MPI): initialises it, broadcasts, and finalises it on
 * leave unless the team is broken. */
fr_status fr__mpi_bootstrap(fr_ctx *ctx, int *rank, int *size, fr__bootstrap *out);
/* Name and version of the library: "Open MPI 4.1.4". */
void fr__mpi_library(char *text, size_t room);
/* MPI's text for an error code, in one line (MPICH's has several). */
enum { FR__MPI_TEXT = 1024 };
const char *fr__mpi_text(int code, char text[static FR__MPI_TEXT]);

/* The launcher of this process according to the environment; does not call MPI. */
typedef struct fr__launched {
    int rank, size; /* 0 of 1: alone; size 0: with others, their number is unknown */
    const char *by; /* the variable that was found; NULL: alone */
} fr__launched;
fr__launched fr__launcher_look(void);

#endif
