/* cmd_info.c -- forerun info: version, machine, backends, transports. */
#include "cli.h"

#include <jansson.h>
#include <libfyaml.h>
#include <stdio.h>
#include <zlib.h>

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
    fr_machine m;
    fr_machine_read(&m);
    printf("forerun    %s\n", fr_version());
    printf("machine    %s, %d of %d cores usable, %.1f GB memory\n",
           m.processor[0] ? m.processor : "processor", m.usable_cores, m.cores,
           (double)m.memory_bytes * 1e-9);
    printf("system     %s, %s; built by %s\n", m.system, m.kernel, m.compiler);
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
