/* environment.c -- the environment of a run. It shows whether the times of two runs are comparable.
 * Names of hosts and users are left out, since run folders are passed on. */
#include "runlog/environment.h"

#include <forerun/backend.h>
#include <forerun/transport.h>

#include <time.h>

/* null if unknown. */
static void add(fr__json *j, const char *key, const char *text)
{
    fr__json_text(j, key, text[0] ? text : NULL);
}

static void add_time(fr__json *j, const char *key, int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm utc;
    char text[32] = "";
    if (gmtime_r(&t, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    add(j, key, text);
}

void fr__environment_write(fr__json *j, const fr__settings *s, int64_t started)
{
    fr_machine m;
    char kernels[64], instructions[64], mpi[64] = "";
    const fr_transport *t = fr_transport_find("mpi");
    fr_machine_read(&m);
    fr_backend_library(s->backend, kernels, sizeof kernels);
    fr_backend_instructions(s->backend, instructions, sizeof instructions);
    if (t && t->library) t->library(mpi, sizeof mpi);
    fr__json_object(j, "environment");
    add_time(j, "started", started);
    add(j, "processor", m.processor);
    fr__json_int(j, "cores", m.cores);
    fr__json_int(j, "usable_cores", m.usable_cores);
    fr__json_uint(j, "memory_bytes", m.memory_bytes);
    add(j, "system", m.system);
    add(j, "kernel", m.kernel);
    add(j, "compiler", m.compiler);
    add(j, "kernels", kernels);
    add(j, "instructions", instructions);
    add(j, "mpi", mpi);
    fr__json_end(j);
}
