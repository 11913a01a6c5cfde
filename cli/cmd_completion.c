/* cmd_completion.c -- forerun completion: scripts that complete the command in a shell.
 *
 * Generated from the option tables of the verbs, the registries and the table of keys, so
 * completion offers exactly what is accepted. Each script contains all words, so completing starts
 * no program. */
#include "completion_values.h"

#include <stdio.h>
#include <string.h>

enum { ROOM = 160 };

static const char *dashes(const char *name) { return name[1] ? "--" : "-"; }

/* All words of a kind with a blank between. */
static void put_words(const char *value)
{
    char word[ROOM];
    for (int i = 0; completion_value_at(value, i, word, sizeof word); i++)
        printf("%s%s", i ? " " : "", word);
}

/* Help texts are inside single quotes of a shell. */
static void put_quoted(const char *text)
{
    for (; *text; text++) printf(*text == '\'' ? "'\\''" : "%c", *text);
}

/* Keys that --set takes: no list items, no keys of cluster files. */
static const fr_key *settable_at(int i)
{
    const fr_key *k;
    for (int at = 0; (k = fr_key_at(at)); at++)
        if (!strchr(k->path, ':') && !strchr(k->path, '[') && completion_is_first_key(at) &&
            i-- == 0)
            return k;
    return NULL;
}

static void put_choices(const fr_key *k)
{
    for (int i = 0; k->choice && k->choice(i); i++) printf("%s%s", i ? " " : "", k->choice(i));
    if (k->kind == FR_KEY_BOOL) printf("true false");
}

static bool has_choices(const fr_key *k) { return k->choice || k->kind == FR_KEY_BOOL; }

/* How a shell completes a value of each kind; %s of COMPLETE_LIST: its words. */
typedef const char *const actions[COMPLETE_LIST + 1];

static void put_action(actions of, const char *value)
{
    completion_kind kind = completion_kind_of(value);
    size_t n = strcspn(of[kind], "%");
    printf("%.*s", (int)n, of[kind]);
    if (kind != COMPLETE_LIST) return;
    put_words(value);
    printf("%s", of[kind] + n + 2);
}

/* --- bash ------------------------------------------------------------------------------------- */

static const char bash_head[] =
    "# bash completion of forerun, as `forerun completion bash` prints it\n"
    "_forerun_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
    "_forerun_files() {\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen \"$@\" -- \"$cur\")\n"
    "}\n"
    "_forerun_configs() {\n"
    "    local name folders\n"
    "    _forerun_files -f\n"
    "    folders=(\"${COMPREPLY[@]}\")\n"
    "    COMPREPLY=()\n"
    "    for name in \"${folders[@]}\"; do\n"
    "        [[ -d $name || $name == *.y?(a)ml ]] && COMPREPLY+=(\"$name\")\n"
    "    done\n"
    "}\n";

static void bash_keys(void)
{
    const fr_key *k;
    printf("_forerun_keys() {\n    compopt -o nospace 2>/dev/null\n    _forerun_words '");
    for (int i = 0; (k = settable_at(i)); i++) printf("%s%s=", i ? " " : "", k->path);
    printf("'\n}\n_forerun_key_values() {\n    case $1 in\n");
    for (int i = 0; (k = settable_at(i)); i++) {
        if (!has_choices(k)) continue;
        printf("    %s) _forerun_words '", k->path);
        put_choices(k);
        printf("' ;;\n");
    }
    printf("    esac\n}\n");
}

static actions bash_actions = {
    [COMPLETE_ANY] = "return",
    [COMPLETE_FILE] = "_forerun_files -f",
    [COMPLETE_CONFIG] = "_forerun_configs",
    [COMPLETE_FOLDER] = "_forerun_files -d",
    [COMPLETE_KEY] = "_forerun_keys",
    [COMPLETE_LIST] = "_forerun_words '%s'",
};

static void bash_verb(const cli_verb *v)
{
    printf("    %s)\n        case $prev in\n", v->name);
    for (const cli_option *o = v->options; o && o->name; o++) {
        if (!o->value) continue;
        printf("        %s%s) ", dashes(o->name), o->name);
        put_action(bash_actions, o->value);
        printf(" ;;\n");
    }
    printf("        *)\n            if [[ $cur == -* ]]; then\n                _forerun_words '");
    for (const cli_option *o = v->options; o && o->name; o++)
        printf("%s%s ", dashes(o->name), o->name);
    printf("--help'\n            else\n                ");
    put_action(bash_actions, v->argument);
    printf("\n            fi\n            ;;\n        esac\n        ;;\n");
}

/* bash splits words at `=`: in "--set a.b=v" the word before v is "=". */
static void print_bash(void)
{
    printf("%s", bash_head);
    bash_keys();
    printf("_forerun() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    COMPREPLY=()\n"
           "    if ((COMP_CWORD == 1)); then\n        _forerun_words '");
    put_words("VERB");
    printf(" help --version'\n        return\n    fi\n"
           "    if [[ $cur == = ]]; then\n"
           "        cur=\n        _forerun_key_values \"$prev\"\n        return\n"
           "    elif [[ $prev == = ]]; then\n"
           "        _forerun_key_values \"${COMP_WORDS[COMP_CWORD - 2]}\"\n        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n    help) _forerun_words '");
    put_words("VERB");
    printf("' ;;\n");
    for (const cli_verb *const *v = cli_verbs(); *v; v++) bash_verb(*v);
    printf("    esac\n}\nshopt -s extglob\ncomplete -F _forerun forerun\n");
}

/* --- zsh -------------------------------------------------------------------------------------- */

static actions zsh_actions = {
    [COMPLETE_ANY] = " ",
    [COMPLETE_FILE] = "_files",
    [COMPLETE_CONFIG] = "_files -g \"*.(yaml|yml)\"",
    [COMPLETE_FOLDER] = "_files -/",
    [COMPLETE_KEY] = "_forerun_keys",
    [COMPLETE_LIST] = "(%s)",
};

/* Brackets and colons part a specification. */
static void zsh_help(const char *text)
{
    for (; *text; text++)
        if (strchr("[]:", *text))
            printf("\\%c", *text);
        else if (*text == '\'')
            printf("'\\''");
        else
            putchar(*text);
}

static void zsh_verb(const cli_verb *v)
{
    printf("    %s)\n        _arguments \\\n", v->name);
    for (const cli_option *o = v->options; o && o->name; o++) {
        printf("            '%s%s%s[", o->kind == CLI_LIST ? "*" : "", dashes(o->name), o->name);
        zsh_help(o->help);
        printf("]");
        if (o->value) {
            printf(":");
            zsh_help(o->value);
            printf(":");
            put_action(zsh_actions, o->value);
        }
        printf("' \\\n");
    }
    printf("            '--help[about this verb]'");
    if (v->argument) {
        printf(" \\\n            '*:%s:", v->argument);
        put_action(zsh_actions, v->argument);
        printf("'");
    }
    printf("\n        ;;\n");
}

static void print_zsh(void)
{
    const fr_key *k;
    printf("#compdef forerun\n# zsh completion of forerun, as `forerun completion zsh` prints it\n"
           "_forerun_keys() {\n    case $PREFIX in\n");
    for (int i = 0; (k = settable_at(i)); i++) {
        if (!has_choices(k)) continue;
        printf("    %s=*) compset -P '*='; compadd ", k->path);
        put_choices(k);
        printf(" ;;\n");
    }
    printf("    *=*) ;;\n    *) compadd -S '=' ");
    for (int i = 0; (k = settable_at(i)); i++) printf("%s%s", i ? " " : "", k->path);
    printf(" ;;\n    esac\n}\n_forerun() {\n    local -a verbs\n    verbs=(\n");
    for (const cli_verb *const *v = cli_verbs(); *v; v++) {
        printf("        '%s:", (*v)->name);
        zsh_help((*v)->summary);
        printf("'\n");
    }
    printf("        'help:all about one verb'\n    )\n"
           "    if ((CURRENT == 2)); then\n        _describe verb verbs\n        return\n    fi\n"
           "    local verb=$words[2]\n    shift words\n    ((CURRENT--))\n    case $verb in\n"
           "    help) _describe verb verbs ;;\n");
    for (const cli_verb *const *v = cli_verbs(); *v; v++) zsh_verb(*v);
    printf("    esac\n}\n_forerun \"$@\"\n");
}

/* --- fish ------------------------------------------------------------------------------------- */

static actions fish_actions = {
    [COMPLETE_ANY] = " -x",
    [COMPLETE_FILE] = " -r -F",
    [COMPLETE_CONFIG] = " -k -x -a '(__fish_complete_suffix .yaml)'",
    [COMPLETE_FOLDER] = " -x -a '(__fish_complete_directories)'",
    [COMPLETE_KEY] = " -x -a '(__forerun_keys)'",
    [COMPLETE_LIST] = " -x -a '%s'",
};

static void fish_verb(const cli_verb *v)
{
    printf("complete -c forerun -n __fish_use_subcommand -x -a %s -d '", v->name);
    put_quoted(v->summary);
    printf("'\n");
    for (const cli_option *o = v->options; o && o->name; o++) {
        printf("complete -c forerun -n '__fish_seen_subcommand_from %s' -%s %s", v->name,
               o->name[1] ? "l" : "s", o->name);
        if (o->value) put_action(fish_actions, o->value);
        printf(" -d '");
        put_quoted(o->help);
        printf("'\n");
    }
    if (!v->argument) return;
    printf("complete -c forerun -n '__fish_seen_subcommand_from %s'", v->name);
    put_action(fish_actions, v->argument);
    printf("\n");
}

static void print_fish(void)
{
    const fr_key *k;
    printf("# fish completion of forerun, as `forerun completion fish` prints it\n"
           "function __forerun_keys\n");
    for (int i = 0; (k = settable_at(i)); i++) {
        if (!has_choices(k)) {
            printf("    echo %s=\n", k->path);
            continue;
        }
        printf("    printf '%s=%%s\\n' ", k->path);
        put_choices(k);
        printf("\n");
    }
    printf("end\ncomplete -c forerun -f\n");
    for (const cli_verb *const *v = cli_verbs(); *v; v++) fish_verb(*v);
    printf("complete -c forerun -n __fish_use_subcommand -x -a help -d 'all about one verb'\n"
           "complete -c forerun -n '__fish_seen_subcommand_from help' -x -a '");
    put_words("VERB");
    printf("'\n");
}

/* --- the verb ----------------------------------------------------------------------------------
 */

static const struct shell {
    const char *name;
    void (*print)(void);
} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

static int run(const cli_verb *verb, int argc, char **argv)
{
    const char *name;
    int code = cli_parse(verb, argc, argv, NULL, 1, &name);
    if (code >= 0) return code;
    for (size_t i = 0; name && i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, name) != 0) continue;
        shells[i].print();
        return 0;
    }
    return cli_refuse("forerun completion: expected bash, zsh or fish (forerun help completion)");
}

const cli_verb cli_completion = {
    .name = "completion",
    .usage = "completion bash|zsh|fish",
    .summary = "a script that completes verbs, options, names and keys in a shell",
    .text = "bash:  eval \"$(forerun completion bash)\", or the file that make install writes\n"
            "zsh:   forerun completion zsh > _forerun, in a folder of $fpath\n"
            "fish:  forerun completion fish > ~/.config/fish/completions/forerun.fish\n",
    .argument = "bash|zsh|fish",
    .run = run,
};
