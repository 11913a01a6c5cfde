/* cmd_reference.c -- forerun reference: every command, key, name, file and exit code, from the
 * tables that the program itself uses. docs/reference.md and the man page are its output. */
#include "cli.h"
#include "doc.h"

#include <stdio.h>
#include <string.h>

enum { ROOM = 640 };

#define CELLS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const name_heads[] = {"name", "meaning", NULL};

/* A section with a table; its rows follow. */
static void begin_table(const doc *d, int level, const char *title, const char *about,
                        const char *const *heads)
{
    d->heading(level, title);
    if (about) d->text(about);
    d->table(heads);
}

/* --- commands --------------------------------------------------------------------------------- */

static void write_verb(const doc *d, const cli_verb *v)
{
    static const char *const heads[] = {"option", "meaning", NULL};
    char usage[1024], name[96];
    snprintf(usage, sizeof usage, "forerun %s", v->usage);
    snprintf(name, sizeof name, "forerun %s", v->name);
    d->heading(2, name);
    d->code(usage);
    d->text(v->summary);
    if (v->text) d->code(v->text);
    if (!v->options) return;
    d->table(heads);
    for (const cli_option *o = v->options; o->name; o++) {
        snprintf(name, sizeof name, "%s%s%s%s", o->name[1] ? "--" : "-", o->name,
                 o->value ? " " : "", o->value ? o->value : "");
        d->row(heads, CELLS(name, o->help));
    }
}

static void write_verbs(const doc *d)
{
    d->heading(1, "Commands");
    d->text("Options may stand anywhere; --name VALUE and --name=VALUE are the same. "
            "forerun --version prints the version, forerun help VERB the text below.");
    for (const cli_verb *const *v = cli_verbs(); *v; v++) write_verb(d, *v);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void write_keys(const doc *d, const char *title, const char *about, const char *prefix,
                       const char *but)
{
    static const char *const heads[] = {"key", "meaning", "value", "default", "of", NULL};
    const fr_key *k;
    bool has_any = false;
    for (int i = 0; (k = fr_key_at(i)); i++)
        has_any |= strncmp(k->path, prefix, strlen(prefix)) == 0;
    if (!has_any) return;
    begin_table(d, 2, title, about, heads);
    for (int i = 0; (k = fr_key_at(i)); i++) {
        char value[ROOM], range[ROOM - 32], users[ROOM];
        if (strncmp(k->path, prefix, strlen(prefix)) != 0) continue;
        if (but && strncmp(k->path, but, strlen(but)) == 0) continue;
        fr_key_range(k, range, sizeof range);
        bool is_clear = !range[0] || k->kind == FR_KEY_BOOL;
        snprintf(value, sizeof value, "%s%s%s", fr_key_kind_name(k->kind), is_clear ? "" : ": ",
                 is_clear ? "" : range);
        const char *preset = !k->preset ? "none" : k->preset[0] ? k->preset : "required";
        d->row(heads,
               CELLS(k->path, k->meaning, value, preset, fr_key_users(k, users, sizeof users)));
    }
}

static void write_all_keys(const doc *d)
{
    d->heading(1, "Keys of a config");
    d->text("A config is a YAML file. Unknown keys are refused with line and column. "
            "--set a.b=value replaces one from the command line. forerun keys prints these lists.");
    write_keys(d, "model", "A model by name and size, or nodes, or a file of nodes.", "model.",
               "model.nodes[].");
    write_keys(d, "model.nodes[]",
               "One node of a network written as a list, in the config or a file.",
               "model.nodes[].", NULL);
    write_keys(d, "data", "The training and evaluation data.", "data.", NULL);
    write_keys(d, "train", "Batch, epochs, optimizer, learning rate.", "train.", NULL);
    write_keys(d, "parallel", "Distribution of the run over workers and processes.", "parallel.",
               NULL);
    write_keys(d, "run", "The run's folder, checkpoints, logs and timeouts.", "run.", NULL);
    write_keys(d, "compare", "The cases of forerun compare.", "compare.", NULL);
    write_keys(d, "Cluster files",
               "A separate file, named by parallel.cluster or --cluster. Amounts have units: "
               "16 GB, 12 GB/s, 10 Gbit/s, 5 us, 15 TFLOP/s.",
               "cluster:", NULL);
}

/* --- names ------------------------------------------------------------------------------------ */

/* A list of records with name and summary. */
#define WRITE_LIST(d, title, about, list)                                       \
    do {                                                                        \
        begin_table(d, 2, title, about, name_heads);                            \
        for (int at = 0; (list)[at]; at++)                                      \
            (d)->row(name_heads, CELLS((list)[at]->name, (list)[at]->summary)); \
    } while (0)

static void write_methods(const doc *d)
{
    static const char *const heads[] = {"name", "meaning", "schedule", "weights", "replicas", NULL};
    begin_table(d, 2, "Methods", "parallel.method; docs/methods has a page on each.", heads);
    for (const fr_method *const *m = fr_method_list(); *m; m++)
        d->row(heads, CELLS((*m)->name, (*m)->summary, (*m)->generator, (*m)->policy,
                            (*m)->sync ? (*m)->sync : fr_sync_list()[0]->name));
}

static void write_optimizers(const doc *d)
{
    static const char *const heads[] = {"name", "meaning", "keys", "lr", "weight_decay", NULL};
    begin_table(d, 2, "Optimizers",
                "train.optimizer.name, with the defaults of lr and weight_decay.", heads);
    for (const fr_optimizer *const *o = fr_optim_list(); *o; o++) {
        char keys[ROOM] = "lr", lr[32], decay[32];
        fr_optim_options options;
        (*o)->defaults(&options);
        for (int i = 0; (*o)->keys[i]; i++) {
            size_t n = strlen(keys);
            snprintf(keys + n, sizeof keys - n, ", %s", (*o)->keys[i]);
        }
        snprintf(lr, sizeof lr, "%g", options.lr);
        snprintf(decay, sizeof decay, "%g", options.weight_decay);
        d->row(heads, CELLS((*o)->name, (*o)->summary, keys, lr, decay));
    }
}

static void write_models(const doc *d)
{
    static const char *const heads[] = {"name", "meaning", "sizes by default", NULL};
    begin_table(d, 2, "Models", "model.name. The data determines classes, image and vocab.", heads);
    for (const fr_model *const *m = fr_model_list(); *m; m++) {
        char sizes[ROOM] = "", value[40];
        for (int i = 0; (*m)->keys[i]; i++) {
            size_t n = strlen(sizes);
            snprintf(sizes + n, sizeof sizes - n, "%s%s %s", n ? ", " : "", (*m)->keys[i],
                     fr_model_default(*m, (*m)->keys[i], value, sizeof value));
        }
        d->row(heads, CELLS((*m)->name, (*m)->summary, sizes));
    }
}

static void write_operators(const doc *d)
{
    static const char *const about[] = {
#define FR_X(name, text, what) what,
        FR_OPERATOR_LIST(FR_X)
#undef FR_X
    };
    begin_table(d, 2, "Operators", "model.nodes[].op: shapes without the batch.", name_heads);
    for (int i = 0; i < FR_OPERATOR_COUNT; i++)
        d->row(name_heads, CELLS(fr_operator_name((fr_operator)i), about[i]));
}

static void write_backends(const doc *d)
{
    begin_table(d, 2, "Backends", "parallel.backend; the first is the default.", name_heads);
    for (const fr_backend *const *b = fr_backend_list(); *b; b++)
        d->row(name_heads, CELLS(fr_backend_name(*b), fr_backend_summary(*b)));
}

static void write_names(const doc *d)
{
    d->heading(1, "Names");
    d->text("Values of keys and options.");
    write_methods(d);
    WRITE_LIST(d, "Weight policies", "parallel.weights: the weights that a pass reads.",
               fr_policy_list());
    WRITE_LIST(d, "Schedules", "forerun schedule accepts them like methods.", fr_generator_list());
    WRITE_LIST(d, "Sync rules", "parallel.sync.name: how replicas synchronise.", fr_sync_list());
    write_optimizers(d);
    WRITE_LIST(d, "Learning-rate schedules", "train.schedule.name.", fr_lr_list());
    write_models(d);
    write_operators(d);
    WRITE_LIST(d, "Data sources", "data.name.", fr_data_list());
    WRITE_LIST(d, "Planners", "forerun plan --planner.", fr_planner_list());
    write_backends(d);
    WRITE_LIST(d, "Transports", "parallel.transport; auto is also a value.", fr_transport_list());
}

/* --- files, exit codes, environment ----------------------------------------------------------- */

static void write_files(const doc *d)
{
    static const char *const heads[] = {"file", "meaning", "written by", "only with", NULL};
    d->heading(1, "Files of a run");
    d->text("In the run's folder (run.out, --out). docs/formats.md describes them.");
    d->table(heads);
    for (const fr_run_file *f = fr_run_files(); f->name; f++)
        d->row(heads, CELLS(f->name, f->about, f->writer, f->when ? f->when : ""));
}

static void write_codes(const doc *d)
{
    static const char *const heads[] = {"code", "meaning", NULL};
    begin_table(
        d, 1, "Exit codes",
        "An error is one line on stderr: where, what was found, what was expected, what to do. "
        "Results go to stdout, progress and warnings to stderr.",
        heads);
    static const fr_status all[] = {
#define FR_X(name, text, code) FR_##name,
        FR_STATUS_LIST(FR_X)
#undef FR_X
    };
    enum { N = sizeof all / sizeof *all };
    for (int code = 0; code <= 255; code++) {
        char number[16], text[ROOM] = "";
        for (int i = 0; i < N; i++) {
            size_t n = strlen(text);
            if (fr_status_exit_code(all[i]) == code)
                snprintf(text + n, sizeof text - n, "%s%s", n ? ", or " : "",
                         fr_status_text(all[i]));
        }
        snprintf(number, sizeof number, "%d", code);
        if (text[0]) d->row(heads, CELLS(number, text));
    }
}

static const char *const environment[][2] = {
    {"COLUMNS", "width of grids and charts if stdout is not a terminal"},
    {"NO_COLOR", "set: no colours"},
    {"CLICOLOR_FORCE", "set, and not 0: colours even if stdout or stderr is not a terminal"},
    {"TERM", "dumb, or not set: no colours and no status line"},
    {"LC_ALL", "otherwise LC_CTYPE or LANG: with UTF-8 the progress bar is drawn finer"},
    {"LC_CTYPE", "see LC_ALL"},
    {"LANG", "see LC_ALL"},
    {"GOMP_SPINCOUNT", "set by forerun if unset, so that OpenMP threads sleep early"},
    {"OMP_WAIT_POLICY", "set: forerun does not set GOMP_SPINCOUNT"},
    {"PATH", "searched by launch for the launcher of the MPI of this build"},
};

static void write_environment(const doc *d)
{
    static const char *const heads[] = {"variable", "meaning", NULL};
    begin_table(d, 1, "Environment", NULL, heads);
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
        d->row(heads, CELLS(environment[i][0], environment[i][1]));
}

/* --- the verb --------------------------------------------------------------------------------- */

static const cli_option options[] = {
    {"format", "markdown|man", "a documentation page, or a man page (markdown)", CLI_TEXT, 0},
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    const char *format = "markdown";
    int code = cli_parse(verb, argc, argv, &format, 0, NULL);
    if (code >= 0) return code;
    bool is_man = strcmp(format, "man") == 0;
    if (!is_man && strcmp(format, "markdown") != 0)
        return cli_refuse("forerun reference: --format: expected markdown or man");
    const doc *d = is_man ? &doc_man : &doc_markdown;
    d->begin();
    write_verbs(d);
    write_all_keys(d);
    write_names(d);
    write_files(d);
    write_codes(d);
    write_environment(d);
    return 0;
}

const cli_verb cli_reference = {
    .name = "reference",
    .usage = "reference [--format markdown|man]",
    .summary = "print all commands, keys, names, files and exit codes as one page",
    .options = options,
    .run = run,
};
