/* cmd_report.c -- forerun report: the folders of runs as one page. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Only its data, for other programs. */
static fr_status print_data(fr_ctx *ctx, int n, const char *const *folders,
                            const fr_report_options *o)
{
    char *text;
    size_t n_bytes;
    FR_TRY(fr_report_data(ctx, n, folders, o, &text, &n_bytes));
    fwrite(text, 1, n_bytes, stdout); /* main.c checks stdout */
    fputc('\n', stdout);
    fr_report_free_text(text);
    return FR_OK;
}

bool cli_leave_report(const char *folder)
{
    char path[4200];
    fr_ctx *ctx = cli_context(true);
    snprintf(path, sizeof path, "%s/report.html", folder);
    bool is_there = fr_report_write(ctx, 1, &folder, NULL, path) == FR_OK;
    if (!is_there) fr_log(ctx, FR_LOG_WARN, "no report: %s", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return is_there;
}

typedef struct wishes {
    const char *out;
    fr_report_options o;
    bool only_data, is_quiet;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"out", "FILE", "the page (report.html in the first folder); -: standard output", CLI_TEXT,
     AT(out)},
    {"title", "TEXT", "heading of the page (from the names of the runs)", CLI_TEXT, AT(o.title)},
    {"data", NULL, "print the data of the page as JSON instead", CLI_FLAG, AT(only_data)},
    {"quiet", NULL, "do not print the path of the page", CLI_FLAG, AT(is_quiet)},
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    static const char *folders[CLI_MAX_SETS];
    wishes w = {0};
    char beside[4200];
    int n = 0, code = cli_parse(verb, argc, argv, &w, CLI_MAX_SETS, folders);
    if (code >= 0) return code;
    while (n < CLI_MAX_SETS && folders[n]) n++;
    if (n == 0) return cli_refuse("forerun report: no run given (forerun report runs/NAME)");
    if (w.only_data && w.out)
        return cli_refuse("forerun report: --data prints, so it takes no --out (forerun help "
                          "report)");
    fr_ctx *ctx = cli_context(w.is_quiet);
    if (w.only_data) return cli_finish(ctx, print_data(ctx, n, folders, &w.o));
    size_t length = strlen(folders[0]);
    snprintf(beside, sizeof beside, "%s%sreport.html", folders[0],
             length && folders[0][length - 1] == '/' ? "" : "/");
    fr_status status = fr_report_write(ctx, n, folders, &w.o, w.out ? w.out : beside);
    if (status == FR_OK && !w.is_quiet && !(w.out && strcmp(w.out, "-") == 0))
        cli_line("%s", w.out ? w.out : beside);
    return cli_finish(ctx, status);
}

const cli_verb cli_report = {
    .name = "report",
    .usage = "report DIR... [--out FILE] [--title TEXT] [--data] [--quiet]",
    .summary = "show runs as one page: curves, timeline, memory, predictions",
    .text = "DIR is the folder of a run, or of a comparison, all of whose runs are shown. The\n"
            "page is one file without external links, for any browser. train and compare write\n"
            "one to their folder; this command writes it again, or combines separate runs:\n"
            "\n"
            "  forerun report runs/dp runs/spectrain --out both.html\n"
            "\n"
            "A run that is unfinished or was killed is shown up to its last data.\n",
    .argument = "DIR",
    .options = options,
    .run = run,
};
