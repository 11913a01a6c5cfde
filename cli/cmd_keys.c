/* cmd_keys.c -- forerun keys: every key of a config, from the table that also reads configs. */
#include "cli.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

enum { ROOM = 512 };

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "" required, NULL none, else the default itself. */
static const char *preset_text(const fr_key *k)
{
    return !k->preset ? "-" : k->preset[0] ? k->preset : "required";
}

/* --- forms -----------------------------------------------------------------------------------*/

static void as_table(const fr_key *k)
{
    char range[ROOM], users[ROOM];
    fr_key_range(k, range, sizeof range);
    fr_key_users(k, users, sizeof users);
    printf("%s\n    %s\n    %s", k->path, k->meaning, fr_key_kind_name(k->kind));
    if (range[0]) printf(": %s", range);
    printf("; %s%s\n", k->preset && k->preset[0] ? "default " : "", preset_text(k));
    if (users[0]) printf("    of %s\n", users);
}

/* A cell: "|" would end it. */
static void put_cell(const char *text)
{
    for (; *text; text++) printf(*text == '|' ? "\\|" : "%c", *text);
}

static void as_markdown(const fr_key *k)
{
    char range[ROOM], users[ROOM];
    bool is_plain = k->preset && k->preset[0] && k->preset[0] != '(';
    printf("| `%s` | %s", k->path, fr_key_kind_name(k->kind));
    if (fr_key_range(k, range, sizeof range)[0] && k->kind != FR_KEY_BOOL) printf(": %s", range);
    printf(" | %s%s%s | ", is_plain ? "`" : "", preset_text(k), is_plain ? "`" : "");
    put_cell(k->meaning);
    printf(" | %s |\n", fr_key_users(k, users, sizeof users));
}

static void as_json(const fr_key *k)
{
    char range[ROOM], users[ROOM];
    bool is_plain = k->preset && k->preset[0] && k->preset[0] != '(';
    json_t *o =
        json_pack("{ss ss ss? sb ss ss ss}", "path", k->path, "kind", fr_key_kind_name(k->kind),
                  "default", is_plain ? k->preset : NULL, "required", k->preset && !k->preset[0],
                  "range", fr_key_range(k, range, sizeof range), "of",
                  fr_key_users(k, users, sizeof users), "meaning", k->meaning);
    json_dumpf(o, stdout, 0);
    json_decref(o);
}

static const struct form {
    const char *name, *begin, *between, *end;
    void (*print)(const fr_key *k);
} forms[] = {
    {"table", "", "", "", as_table},
    {"markdown", "| key | value | default | meaning | of |\n|---|---|---|---|---|\n", "", "",
     as_markdown},
    {"json", "[", ",\n ", "]\n", as_json},
};

int cli_print_keys(const char *prefix, const char *format)
{
    int n = 0;
    const struct form *form = forms, *end = forms + sizeof forms / sizeof *forms;
    const fr_key *k;
    while (form < end && strcmp(form->name, format) != 0) form++;
    if (form == end) return cli_refuse("forerun keys: --format: expected table, markdown or json");
    for (int i = 0; (k = fr_key_at(i)); i++) {
        if (!starts(k->path, prefix)) continue;
        printf("%s", n++ ? form->between : form->begin);
        form->print(k);
    }
    if (n == 0)
        return cli_refuse("forerun keys: no key begins with '%s' (forerun keys lists all)", prefix);
    printf("%s", form->end);
    return 0;
}

typedef struct wishes {
    const char *prefix, *format;
    bool want_json;
} wishes;

#define AT(member) offsetof(wishes, member)
static const cli_option options[] = {
    {"format", "table|markdown|json", "how to print them (table)", CLI_TEXT, AT(format)},
    CLI_JSON(AT(want_json)),
    {.name = NULL},
};

static int run(const cli_verb *verb, int argc, char **argv)
{
    wishes o = {.format = "table"};
    int code = cli_parse(verb, argc, argv, &o, 1, &o.prefix);
    if (code >= 0) return code;
    return cli_print_keys(o.prefix ? o.prefix : "", o.want_json ? "json" : o.format);
}

const cli_verb cli_keys = {
    .name = "keys",
    .usage = "keys [KEY] [--format table|markdown|json]",
    .summary = "list the keys of a config: meaning, values, default",
    .text = "KEY is a key or the beginning of some: forerun keys train.optimizer. Keys of cluster\n"
            "files begin with cluster:.\n",
    .argument = "KEY",
    .options = options,
    .run = run,
};
