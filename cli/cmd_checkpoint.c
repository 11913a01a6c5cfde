/* cmd_checkpoint.c -- forerun checkpoint verify: whether checkpoints are whole. */
#include "cli.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

typedef struct verdicts {
    int n_damaged;
    bool is_quiet, want_json;
    json_t *list; /* NULL: text is printed as each checkpoint is verified */
} verdicts;

static void on_verdict(void *user, const fr_verdict *v)
{
    verdicts *all = user;
    if (v->damage) all->n_damaged++;
    if (all->list)
        json_array_append_new(all->list,
                              json_pack("{ss sI sI sb ss?}", "path", v->path, "step",
                                        (json_int_t)v->step, "format", (json_int_t)v->format,
                                        "whole", !v->damage, "damage", v->damage));
    else if (v->damage)
        cli_line("damaged  %s", v->damage);
    else if (!all->is_quiet)
        cli_line("whole    %s%s", v->path,
                 v->format == 1 ? " (format 1, without hashes: values that were changed are not "
                                  "noticed)"
                                : "");
}

#define AT(member) offsetof(verdicts, member)
static const cli_option options[] = {
    {"quiet", NULL, "damaged checkpoints only", CLI_FLAG, AT(is_quiet)},
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    const char *words[2];
    verdicts all = {.n_damaged = 0};
    int code = cli_parse(verb, argc, argv, &all, 2, words);
    if (code >= 0) return code;
    if (!words[0])
        return cli_refuse("forerun checkpoint: no action given (forerun checkpoint verify DIR)");
    if (strcmp(words[0], "verify") != 0)
        return cli_refuse("forerun checkpoint: no action '%s' (forerun checkpoint verify DIR)",
                          words[0]);
    if (!words[1])
        return cli_refuse("forerun checkpoint verify: no folder given (forerun help checkpoint)");
    fr_ctx *ctx = cli_context(all.want_json || all.is_quiet);
    if (all.want_json) all.list = json_array();
    code = cli_finish(ctx, fr_checkpoint_verify(ctx, words[1], on_verdict, &all));
    if (all.want_json && code == 0)
        code = json_print(all.list);
    else
        json_decref(all.list);
    return code == 0 && all.n_damaged > 0 ? 1 : code;
}

const cli_verb cli_checkpoint = {
    .name = "checkpoint",
    .usage = "checkpoint verify DIR [--quiet] [--json]",
    .summary = "verify checkpoints, and name damaged files",
    .text = "DIR is the folder of a run, its checkpoint/, or one step-N. A checkpoint is whole if\n"
            "every file has the hash recorded in state.json, state.json has its own checksum and\n"
            "the step of its folder, and all values are finite. Exit code 0: all checkpoints are\n"
            "whole; 1: one is damaged, and the line names the file and the reason. --resume takes\n"
            "the newest whole checkpoint.\n",
    .argument = "DIR",
    .options = options,
    .run = run,
};
