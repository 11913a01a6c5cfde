/* bootstrap.c -- a bootstrap by MPI: initialisation, rank and size, and a broadcast. */
#include "team/bootstrap.h"

#include "base/alloc.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(FR__MPI_TEXT > MPI_MAX_ERROR_STRING, "an error text of MPI fits");

const char *fr__mpi_text(int code, char text[static FR__MPI_TEXT])
{
    int length = 0;
    text[0] = '\0';
    MPI_Error_string(code, text, &length);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    return text;
}

/* MPI says "Open MPI v4.1.4, package: ..." or "MPICH Version:      4.2.1\n..."; the rest, about the
 * build, is dropped. */
void fr__mpi_library(char *text, size_t room)
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0;
    if (MPI_Get_library_version(all, &n) != MPI_SUCCESS) all[0] = '\0';
    all[strcspn(all, ",\n")] = '\0';
    size_t version = strcspn(all, "0123456789"), end = version;
    const char *word = strstr(all, "Version:");
    if (word && word < all + end) end = (size_t)(word - all);
    if (end > 0 && all[end - 1] == 'v') end--;
    while (end > 0 && all[end - 1] == ' ') end--;
    snprintf(text, room, "%.*s %s", (int)end, all, all + version);
}

typedef struct boot {
    fr_ctx *ctx;
    bool is_ours; /* this bootstrap initialised MPI and finalises it */
} boot;

static fr_status say(fr_ctx *ctx, const char *what, int code)
{
    char text[FR__MPI_TEXT];
    return fr_fail(ctx, FR_PEER, "%s failed: MPI says %s", what, fr__mpi_text(code, text));
}

static fr_status boot_share(void *user, void *data, size_t bytes)
{
    boot *b = user;
    if (bytes > INT_MAX) return fr_fail(b->ctx, FR_INVALID, "%zu bytes to share at once", bytes);
    int code = MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    return code == MPI_SUCCESS ? FR_OK : say(b->ctx, "sharing rank 0's address", code);
}

static void boot_leave(void *user, bool is_broken)
{
    boot *b = user;
    if (b->is_ours && !is_broken) MPI_Finalize();
    fr__free(b);
}

static bool is_one_host(void)
{
    static const char *const sizes[][2] = {
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
        {"MPI_LOCALNRANKS", "PMI_SIZE"}, /* MPICH */
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *here = getenv(sizes[i][0]), *all = getenv(sizes[i][1]);
        if (here && all && strcmp(here, all) == 0) return true;
    }
    return false;
}

/* Settings that MPI reads when it is initialised; a user's own values take precedence.
 * Several hosts: Open MPI needs them to use both directions of a link at once, and to make progress
 * while kernels run (docs/network.md). On one host MPI uses shared memory, where they would only
 * add locking.
 * One host: UCX 1.18, used by MPICH in Debian 13, aborts in MPI_Finalize if a long message was
 * never received, as after an abort, unless its registration cache is off; shared memory needs
 * none. */
static void tune(void)
{
    static const struct {
        bool one_host;
        const char *name, *value;
    } settings[] = {
        {false, "OMPI_MCA_btl_tcp_flags", "send"},
        {false, "OMPI_MCA_btl_tcp_progress_thread", "1"},
        {true, "UCX_RCACHE_ENABLE", "n"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].one_host == is_one_host()) setenv(settings[i].name, settings[i].value, 0);
}

static fr_status start(fr_ctx *ctx, boot *b)
{
    int is_up = 0, level = 0;
    MPI_Initialized(&is_up);
    if (!is_up) {
        tune();
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS) return say(ctx, "starting MPI", code);
        b->is_ours = true;
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "MPI was started for one thread only (level %d); workers are threads: call "
                       "MPI_Init_thread with MPI_THREAD_SERIALIZED or more",
                       level);
    return FR_OK;
}

fr_status fr__mpi_bootstrap(fr_ctx *ctx, int *rank, int *size, fr__bootstrap *out)
{
    *out = (fr__bootstrap){0};
    boot *b = FR_NEW(boot);
    if (!b) return fr__no_memory(ctx, sizeof *b, "joining a team");
    b->ctx = ctx;
    fr_status status = start(ctx, b);
    if (status != FR_OK) {
        boot_leave(b, false);
        return status;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    *out = (fr__bootstrap){.user = b, .share = boot_share, .leave = boot_leave};
    return FR_OK;
}
