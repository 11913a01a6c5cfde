/* args.c -- a small parser of options, driven by a table that also prints the help. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *cli_nearest(const char *typed, const char *const *names)
{
    const char *best = NULL;
    int best_distance = 3;
    for (; *names; names++) {
        int d = fr_edit_distance(typed, *names);
        if (d < best_distance) best = *names, best_distance = d;
    }
    return best;
}

/* "-n", "--out": a name of one letter has one dash. */
static const char *dashes(const char *name) { return name[1] ? "--" : "-"; }

void cli_print_help(const cli_verb *verb)
{
    printf("usage: forerun %s\n\n%s\n", verb->usage, verb->summary);
    if (verb->text) printf("\n%s", verb->text);
    if (verb->options) printf("\n");
    for (const cli_option *o = verb->options; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s", dashes(o->name), o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-22s %s\n", left, o->help);
    }
}

static int complain(const cli_verb *verb, const char *what, const char *about, const char *hint)
{
    return cli_refuse("forerun %s: %s%s%s%s%s (forerun help %s)", verb->name, what, about,
                      hint ? "; did you mean --" : "", hint ? hint : "", hint ? "?" : "",
                      verb->name);
}

static int unknown_option(const cli_verb *verb, const char *name)
{
    const char *names[64];
    int n = 0;
    for (const cli_option *o = verb->options; o && o->name && n < 63; o++) names[n++] = o->name;
    names[n] = NULL;
    return complain(verb, "no option --", name, cli_nearest(name, names));
}

int cli_numbers(const char *text, int most, int64_t *out)
{
    for (int n = 0; n < most; text++) {
        char *end;
        if (*text < '0' || *text > '9') return 0;
        out[n++] = strtoll(text, &end, 10);
        if (*end == '\0') return n;
        if (*end != ',') return 0;
        text = end;
    }
    return 0;
}

/* False if the text is not a value of this type. */
static bool store(const cli_option *o, const char *text, void *to)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)to = true; return true;
    case CLI_TEXT: *(const char **)to = text; return true;
    case CLI_INT:
    case CLI_COUNT: {
        int64_t n = *(int64_t *)to = strtoll(text, &end, 10);
        if (o->kind == CLI_COUNT && (n < 1 || n > CLI_MAX_COUNT)) return false;
        break;
    }
    case CLI_REAL: *(double *)to = strtod(text, &end); break;
    case CLI_LIST: {
        cli_list *list = to;
        if (list->n == CLI_MAX_SETS) return false;
        list->at[list->n++] = text;
        return true;
    }
    }
    return end != text && *end == '\0' && errno == 0;
}

/* One argument, without its dashes; `next` is the one after it, *used whether that was taken as its
 * value. */
static int parse_option(const cli_verb *verb, const char *argument, const char *next, void *args,
                        bool *used)
{
    char what[96];
    char name[64];
    const char *equals = strchr(argument, '='), *value = equals ? equals + 1 : NULL;
    size_t n = equals ? (size_t)(equals - argument) : strlen(argument);
    snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), argument);
    const cli_option *o = verb->options;
    while (o && o->name && strcmp(o->name, name) != 0) o++;
    if (!o || !o->name) return unknown_option(verb, name);
    snprintf(what, sizeof what, "%s%s", dashes(name), name);
    if (o->kind == CLI_FLAG) {
        if (value) return complain(verb, "takes no value: ", what, NULL);
    } else if (!value) {
        if (!next) return complain(verb, "needs a value: ", what, NULL);
        value = next;
        *used = true;
    }
    if (o->kind == CLI_TEXT && !*value) return complain(verb, "needs a value: ", what, NULL);
    if (store(o, value, (char *)args + o->at)) return -1;
    return cli_refuse("forerun %s: %s %s: expected %s (forerun help %s)", verb->name, what, value,
                      o->kind == CLI_LIST    ? "fewer of them"
                      : o->kind == CLI_INT   ? "a whole number"
                      : o->kind == CLI_COUNT ? "1 to 1000000, a whole number"
                                             : "a number",
                      verb->name);
}

/* "--out", or "-n" where there is such a letter. */
static bool is_option(const cli_option *o, const char *argument)
{
    if (argument[0] != '-') return false;
    if (argument[1] == '-') return true;
    for (; o && o->name; o++)
        if (!o->name[1] && strcmp(o->name, argument + 1) == 0) return true;
    return false;
}

int cli_parse(const cli_verb *verb, int argc, char **argv, void *args, int max_plain,
              const char **plain)
{
    int n_plain = 0;
    bool only_plain = false;
    for (int i = 0; i < max_plain; i++) plain[i] = NULL;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (!only_plain && strcmp(a, "--") == 0) {
            only_plain = true;
        } else if (!only_plain && (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)) {
            cli_print_help(verb);
            return 0;
        } else if (!only_plain && is_option(verb->options, a)) {
            bool used = false;
            int code = parse_option(verb, a + (a[1] == '-' ? 2 : 1),
                                    i + 1 < argc ? argv[i + 1] : NULL, args, &used);
            if (code >= 0) return code;
            i += used;
        } else if (!only_plain && a[0] == '-' && a[1]) {
            return complain(verb, "no option ", a, NULL);
        } else if (!*a) {
            return complain(verb, "an argument is empty", "", NULL);
        } else if (n_plain == max_plain) {
            return complain(verb, "unexpected argument: ", a, NULL);
        } else {
            plain[n_plain++] = a;
        }
    }
    return -1;
}
