/* cmd_export.c -- forerun export: trained weights as safetensors for other programs. */
#include "cli.h"
#include "json.h"

#include <stdio.h>

typedef struct wishes {
    const char *config, *checkpoint, *out, *format, *dtype, *shard_size;
    cli_list sets;
    bool want_json, is_quiet;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"out", "DIR", "folder to be made", CLI_TEXT, AT(out)},
    {"checkpoint", "DIR", "a run's folder or one step-N (default: run.out)", CLI_TEXT,
     AT(checkpoint)},
    {"format", "NAMES", "hf or safetensors (default: as model.weights, else safetensors)", CLI_TEXT,
     AT(format)},
    {"dtype", "TYPE", "f32, bf16 or f16 (f32)", CLI_TEXT, AT(dtype)},
    {"shard-size", "SIZE", "largest size of a file (5 GB)", CLI_TEXT, AT(shard_size)},
    CLI_SET(AT(sets)),
    CLI_QUIET(AT(is_quiet)),
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes w = {0};
    int code = cli_parse(verb, argc, argv, &w, 1, &w.config);
    if (code >= 0) return code;
    if (!w.config || !w.out)
        return cli_refuse("forerun export: %s (forerun help export)",
                          w.config ? "give the folder to be made by --out" : "no config given");
    fr_ctx *ctx = cli_context(w.is_quiet || w.want_json);
    fr_run_options o = {.size = sizeof o,
                        .config = w.config,
                        .n_sets = w.sets.n,
                        .sets = w.sets.at,
                        .dump_step = -1,
                        .checkpoint = w.checkpoint};
    fr_export_options e = {
        .out = w.out, .format = w.format, .dtype = w.dtype, .shard_size = w.shard_size};
    fr_export_result r;
    fr_status status = fr_export(ctx, &o, &e, &r);
    if (status == FR_OK && w.want_json)
        json_print_line(json_pack("{ss ss si si sI}", "out", w.out, "names", r.names, "files",
                                  r.n_files, "tensors", r.n_tensors, "bytes", (json_int_t)r.bytes));
    else if (status == FR_OK && !w.is_quiet)
        cli_line("%s: %d tensors under names of %s, %.3f MB in %d file%s", w.out, r.n_tensors,
                 r.names, (double)r.bytes * 1e-6, r.n_files, r.n_files == 1 ? "" : "s");
    return cli_finish(ctx, status);
}

const cli_verb cli_export = {
    .name = "export",
    .usage = "export CONFIG --out DIR [--checkpoint DIR] [--format hf|safetensors] [--dtype TYPE]",
    .summary = "write trained weights as safetensors for other programs",
    .text = "Writes the weights of a checkpoint or, if there is none, those of model.weights.\n"
            "--format hf gives them the names of Hugging Face (gpt: GPT-2, with config.json) or\n"
            "torchvision (alexnet, vgg16, resnet50, resnet101, resnet152), safetensors those of\n"
            "Forerun. The folder appears when it is whole.\n",
    .argument = "CONFIG",
    .options = options,
    .run = run,
};
