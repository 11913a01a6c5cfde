/* completion_values.c -- names that arguments may have, from the registries. */
#include "completion_values.h"

#include <stdio.h>
#include <string.h>

/* Names of a registry: name i, NULL after the last. */
#define NAMES(function, list) \
    static const char *function(int i) { return (list)[i] ? (list)[i]->name : NULL; }
NAMES(model_at, fr_model_list())
NAMES(planner_at, fr_planner_list())
NAMES(transport_at, fr_transport_list())
NAMES(verb_at, cli_verbs())

/* `forerun schedule` takes generators as well as methods. */
static const char *method_at(int i)
{
    for (const fr_method *const *m = fr_method_list(); *m; m++)
        if (i-- == 0) return (*m)->name;
    for (const fr_generator *const *g = fr_generator_list(); *g; g++)
        if (!fr_method_find((*g)->name) && i-- == 0) return (*g)->name;
    return NULL;
}

bool completion_is_first_key(int at)
{
    for (int i = 0; i < at; i++)
        if (strcmp(fr_key_at(i)->path, fr_key_at(at)->path) == 0) return false;
    return true;
}

/* Each path once. The table is small. */
static const char *key_at(int i)
{
    for (int at = 0; fr_key_at(at); at++)
        if (completion_is_first_key(at) && i-- == 0) return fr_key_at(at)->path;
    return NULL;
}

static const struct source {
    const char *value;
    completion_kind kind;
    const char *(*at)(int i);
} sources[] = {
    {"FILE", COMPLETE_FILE, NULL},
    {"PATH", COMPLETE_FILE, NULL},
    {"CONFIG", COMPLETE_CONFIG, NULL},
    {"DIR", COMPLETE_FOLDER, NULL},
    {"KEY=VALUE", COMPLETE_KEY, NULL},
    {"METHOD", COMPLETE_LIST, method_at},
    {"MODEL", COMPLETE_LIST, model_at},
    {"PLANNER", COMPLETE_LIST, planner_at},
    {"TRANSPORT", COMPLETE_LIST, transport_at},
    {"KEY", COMPLETE_LIST, key_at},
    {"VERB", COMPLETE_LIST, verb_at},
};

static const struct source *find(const char *value)
{
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (strcmp(sources[i].value, value) == 0) return &sources[i];
    return NULL;
}

completion_kind completion_kind_of(const char *value)
{
    const struct source *s = value ? find(value) : NULL;
    if (s) return s->kind;
    return value && strchr(value, '|') ? COMPLETE_LIST : COMPLETE_ANY;
}

bool completion_value_at(const char *value, int i, char *text, size_t room)
{
    const struct source *s = find(value);
    if (s) {
        const char *name = s->at ? s->at(i) : NULL;
        if (name) snprintf(text, room, "%s", name);
        return name != NULL;
    }
    while (value && i-- > 0) value = strchr(value, '|') ? strchr(value, '|') + 1 : NULL;
    if (value) snprintf(text, room, "%.*s", (int)strcspn(value, "|"), value);
    return value != NULL;
}
