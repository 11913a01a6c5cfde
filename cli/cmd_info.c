/* cmd_info.c -- forerun info: version, machine, backends and their speed, transports. */
#include "cli.h"
#include "json.h"

#include <forerun/probe.h>

#include <libfyaml.h>
#include <stdio.h>
#include <zlib.h>

typedef struct view {
    bool runs;
    char about[512];       /* the device, or the reason why it does not run */
    bool computes_bf16;    /* has instructions for it */
    double flops_per_s[2]; /* products of one thread in fp32 and in bf16; 0: not measured */
} view;

static void measure(fr_ctx *ctx, const fr_backend *b, view *v)
{
    const fr_dtype types[] = {FR_F32, FR_BF16};
    fr_probe_desc desc = {.backend = b, .n_threads = 1, .optimizer = fr_optim_find("sgd")};
    desc.optimizer->defaults(&desc.options);
    for (int i = 0; i < 2; i++)
        if (fr_probe_peak(ctx, 1, &desc, types[i], &v->flops_per_s[i]) != FR_OK)
            v->flops_per_s[i] = 0;
}

static view look_at(const fr_backend *b)
{
    fr_ctx *ctx = cli_context(true);
    fr_device_desc desc = {.n_threads = 0};
    fr_device *dev = NULL;
    fr_status status = fr_device_open(ctx, b, &desc, &dev);
    view v = {.runs = status == FR_OK, .computes_bf16 = fr_backend_computes(b, FR_BF16)};
    snprintf(v.about, sizeof v.about, "%s", v.runs ? fr_device_about(dev) : fr_ctx_error(ctx));
    fr_device_close(dev);
    if (v.runs) measure(ctx, b, &v);
    fr_ctx_free(ctx);
    return v;
}

static void print_backend(const fr_backend *b)
{
    view v = look_at(b);
    printf("  %-10s %s\n  %-10s %s\n", fr_backend_name(b), fr_backend_summary(b), "", v.about);
    if (!v.runs) return;
    printf("  %-10s products of one thread: %.3g GF/s in fp32, %.3g GF/s in bf16", "",
           v.flops_per_s[0] * 1e-9, v.flops_per_s[1] * 1e-9);
    printf("%s\n", v.computes_bf16 ? "" : " (stored as bf16, computed in fp32)");
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
    for (const fr_backend *const *b = fr_backend_list(); *b; b++) print_backend(*b);
    printf("transports (between the workers of a run)\n");
    for (const fr_transport *const *t = fr_transport_list(); *t; t++) {
        printf("  %-10s %s\n", (*t)->name, (*t)->summary);
        if (!(*t)->library) continue;
        (*t)->library(about, sizeof about);
        printf("  %-10s %s\n", "", about);
    }
}

static json_t *pack_backend(const fr_backend *b)
{
    view v = look_at(b);
    return json_pack("{ss ss ss sb s{sf sf}}", "name", fr_backend_name(b), "summary",
                     fr_backend_summary(b), v.runs ? "device" : "error", v.about, "computes_bf16",
                     v.computes_bf16, "flops_per_s", "fp32", v.flops_per_s[0], "bf16",
                     v.flops_per_s[1]);
}

static json_t *pack(const fr_machine *m)
{
    char about[512];
    json_t *backends = json_array(), *transports = json_array();
    for (const fr_backend *const *b = fr_backend_list(); *b; b++)
        json_array_append_new(backends, pack_backend(*b));
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
    .summary = "version, machine, libraries, backends and their speed, transports",
    .text = "The speed is measured, within a second or two: the rate of matrix products with one "
            "thread\n"
            "in each train.precision. A processor without instructions for bf16 computes such "
            "products\n"
            "in fp32.",
    .options = options,
    .run = run,
};
