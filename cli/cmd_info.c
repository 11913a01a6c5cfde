/* cmd_info.c -- forerun info: version, machine, backends, transports. */
#include "cli.h"
#include "json.h"

#include <libfyaml.h>
#include <stdio.h>
#include <zlib.h>

/* The device of a backend, or the reason why it does not run. True if it runs. */
static bool look_at(const fr_backend *b, char *text, size_t room)
{
    fr_ctx *ctx = cli_context(true);
    fr_device_desc desc = {.n_threads = 0};
    fr_device *dev = NULL;
    fr_status status = fr_device_open(ctx, b, &desc, &dev);
    snprintf(text, room, "%s", status == FR_OK ? fr_device_about(dev) : fr_ctx_error(ctx));
    fr_device_close(dev);
    fr_ctx_free(ctx);
    return status == FR_OK;
}

static void print_text(const fr_machine *m)
{
    char about[512];
    printf("forerun    %s\n", fr_version());
    printf("machine    %s, %d of %d cores usable, %.1f GB memory\n",
           m->processor[0] ? m->processor : "processor", m->usable_cores, m->cores,
           (double)m->memory_bytes * 1e-9);
    printf("system     %s, %s; built by %s\n", m->system, m->kernel, m->compiler);
    printf("libraries  jansson %s, libfyaml %s, zlib %s\n", jansson_version_str(),
           fy_library_version(), zlibVersion());
    printf("backends   (parallel.backend; the first is the default)\n");
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) {
        (void)look_at(*b, about, sizeof about);
        printf("  %-10s %s\n  %-10s %s\n", fr_backend_name(*b), fr_backend_summary(*b), "", about);
    }
    printf("transports (between the workers of a run)\n");
    for (const fr_transport *const *t = fr_transport_list(); *t; t++) {
        printf("  %-10s %s\n", (*t)->name, (*t)->summary);
        if (!(*t)->library) continue;
        (*t)->library(about, sizeof about);
        printf("  %-10s %s\n", "", about);
    }
}

static json_t *pack(const fr_machine *m)
{
    char about[512];
    json_t *backends = json_array(), *transports = json_array();
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) {
        bool runs = look_at(*b, about, sizeof about);
        json_array_append_new(backends,
                              json_pack("{ss ss ss}", "name", fr_backend_name(*b), "summary",
                                        fr_backend_summary(*b), runs ? "device" : "error", about));
    }
    for (const fr_transport *const *t = fr_transport_list(); *t; t++) {
        if ((*t)->library) (*t)->library(about, sizeof about);
        json_array_append_new(transports,
                              json_pack("{ss ss ss*}", "name", (*t)->name, "summary", (*t)->summary,
                                        "library", (*t)->library ? about : NULL));
    }
    return json_pack("{ss s{ss si si sI} ss ss ss s{ss ss ss} so so}", "forerun", fr_version(),
                     "machine", "processor", m->processor, "usable_cores", m->usable_cores, "cores",
                     m->cores, "memory_bytes", (json_int_t)m->memory_bytes, "system", m->system,
                     "kernel", m->kernel, "compiler", m->compiler, "libraries", "jansson",
                     jansson_version_str(), "libfyaml", fy_library_version(), "zlib", zlibVersion(),
                     "backends", backends, "transports", transports);
}

static const cli_option options[] = {CLI_JSON(0), {.name = NULL}};

static int run(const cli_verb *verb, int argc, char **argv)
{
    bool want_json = false;
    int code = cli_parse(verb, argc, argv, &want_json, 0, NULL);
    if (code >= 0) return code;
    fr_machine m;
    fr_machine_read(&m);
    if (want_json) return json_print(pack(&m));
    print_text(&m);
    return 0;
}

const cli_verb cli_info = {
    .name = "info",
    .usage = "info [--json]",
    .summary = "version, machine, libraries, backends, transports",
    .options = options,
    .run = run,
};
