/* cmd_info.c -- forerun info: version, machine, backends, transports. */
#include "cli.h"

#include <jansson.h>
#include <libfyaml.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static int usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* "model name" of the first processor; "" where the system does not say. */
static void cpu_name(char *name, size_t room)
{
    char line[256];
    name[0] = '\0';
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(name, room, "%s", colon + 2);
        name[strcspn(name, "\n")] = '\0';
        break;
    }
    if (f) fclose(f);
}

static void print_backend(const fr_backend *b)
{
    fr_ctx *ctx = cli_context(true);
    fr_device_desc desc = {.n_threads = 0, .first_cpu = -1};
    fr_device *dev = NULL;
    fr_status status = fr_device_open(ctx, b, &desc, &dev);
    printf("  %-10s %s\n  %-10s %s\n", fr_backend_name(b), fr_backend_summary(b), "",
           status == FR_OK ? fr_device_about(dev) : fr_ctx_error(ctx));
    fr_device_close(dev);
    fr_ctx_free(ctx);
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    const cli_option options[] = {{NULL, NULL, NULL, CLI_FLAG, NULL}};
    int code = cli_parse(verb, options, argc, argv, 0, NULL);
    if (code >= 0) return code;
    char cpu[256];
    cpu_name(cpu, sizeof cpu);
    double pages = (double)sysconf(_SC_PHYS_PAGES), page = (double)sysconf(_SC_PAGESIZE);
    printf("forerun    %s\n", fr_version());
    printf("machine    %s, %d of %ld cores usable, %.1f GB memory\n", cpu[0] ? cpu : "processor",
           usable_cores(), sysconf(_SC_NPROCESSORS_ONLN), pages * page * 1e-9);
    printf("libraries  jansson %s, libfyaml %s, zlib %s\n", jansson_version_str(),
           fy_library_version(), zlibVersion());
    printf("backends   (parallel.backend; the first is the default)\n");
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) print_backend(*b);
    printf("transports (between the workers of a run)\n");
    for (const fr_transport *const *t = fr_transport_list(); *t; t++)
        printf("  %-10s %s\n", (*t)->name, (*t)->summary);
    return 0;
}

const cli_verb cli_info = {
    .name = "info",
    .usage = "info",
    .summary = "version, machine, libraries, backends, transports",
    .run = run,
};
