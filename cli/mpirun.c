/* mpirun.c -- names and options of the launchers of each MPI. Only this file chooses one, by the
 * MPI library of this build. */
#include "cli.h"

#include <forerun/transport.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first entry also serves builds without MPI and libraries that are not in the list. Plain
 * mpirun may belong to another MPI, so it is last. */
static const cli_mpirun dialects[] = {
    {.library = "Open MPI",
     .programs = {"mpirun.openmpi", "mpirun"},
     .package = "openmpi-bin",
     .as_root = "--allow-run-as-root",
     .oversubscribe = "--oversubscribe",
     .hosts = "--host",
     .quiet = "OMPI_MCA_orte_execute_quiet"}, /* 4.1; 5.0 cannot be made quiet */
    {.library = "MPICH",
     .programs = {"mpirun.mpich", "mpiexec.hydra", "mpirun"},
     .package = "mpich",
     .hosts = "--hosts",
     .tells_signal = true},
};

const cli_mpirun *cli_mpirun_of_build(void)
{
    char text[64] = "";
    const fr_transport *t = fr_transport_find("mpi");
    if (t && t->library) t->library(text, sizeof text);
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (strncmp(text, dialects[i].library, strlen(dialects[i].library)) == 0)
            return &dialects[i];
    return &dialects[0];
}

static bool is_on_path(const char *program)
{
    char file[4096];
    for (const char *at = getenv("PATH"); at && *at;) {
        int n = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", n, at, program);
        if (n > 0 && access(file, X_OK) == 0) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

const char *cli_mpirun_program(const cli_mpirun *m)
{
    for (int i = 0; m->programs[i]; i++)
        if (is_on_path(m->programs[i])) return m->programs[i];
    return "mpirun";
}
