/* cases.c -- reads the cases: from the section `compare` of a config, or from a list of methods.
 *
 *     compare:
 *       groups: [{name: vgg16, baseline: dp, set: {model: {name: vgg16}}}]
 *       cases:
 *         - {name: dp, set: {parallel.method: dp, parallel.replicas: 4}}
 *
 * A case applies the changes of its group to the config, then its own, then those of the command
 * line. A case without a group runs in all groups. */
#include "compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

fr_status fr__compare_no_memory(const fr_compare *c)
{
    return fr__no_memory(c->ctx, sizeof *c, "a comparison");
}

fr_status fr__case_add(fr_compare *c, struct fr__case *k, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof text)
        return fr_fail(c->ctx, FR_INVALID, "%s: %.60s...: the value is too long", k->where, text);
    const char **sets = FR_ARENA_ARRAY(&c->arena, const char *, k->n_sets + 1);
    if (!sets) return fr__compare_no_memory(c);
    if (k->n_sets) memcpy(sets, k->sets, (size_t)k->n_sets * sizeof *sets);
    k->sets = sets;
    sets[k->n_sets] = fr__arena_strdup(&c->arena, text);
    return sets[k->n_sets++] ? FR_OK : fr__compare_no_memory(c);
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Write a value in one line. */
static void put_flow(fr__text *o, const fr_conf *node)
{
    if (node->kind == FR_CONF_SCALAR) {
        if (node->is_plain)
            fr__text_put(o, node->text[0] ? node->text : "null");
        else
            fr__conf_put_text(o, node->text);
        return;
    }
    fr__text_put(o, node->kind == FR_CONF_LIST ? "[" : "{");
    for (const fr_conf *c = node->first; c; c = c->next) {
        if (c != node->first) fr__text_put(o, ", ");
        if (c->key) fr__conf_put_text(o, c->key), fr__text_put(o, ": ");
        put_flow(o, c);
    }
    fr__text_put(o, node->kind == FR_CONF_LIST ? "]" : "}");
}

/* Paths are relative to the folder of the config. */
static bool is_file_key(const char *key)
{
    static const char *const keys[] = {"parallel.cluster", "parallel.profile",
                                       "parallel.schedule_file", "model.file"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static bool is_data_key(const char *key, const fr_conf *value)
{
    static const char *const keys[] = {"data.path", "data.eval_path", "data.input",
                                       "data.eval_input", "data.eval_target"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    /* npy: a file; multi30k: a language */
    return strcmp(key, "data.target") == 0 && strchr(value->text, '.');
}

static fr_status add_value(fr_compare *c, struct fr__case *k, fr_conf *set, const fr_conf *value)
{
    char path[PATH_MAX];
    fr__text o = {0};
    if (strcmp(value->key, "train.seed") == 0 || strncmp(value->key, "compare", 7) == 0)
        return fr_conf_fail(set, value->key,
                            "a case cannot set %s: all cases have the same seeds (compare.seeds, "
                            "train.seed of the config)",
                            value->key);
    if (is_file_key(value->key) && value->kind == FR_CONF_SCALAR) {
        FR_TRY(fr__conf_file(set, value->key, "file", path));
        fr__conf_put_text(&o, path);
    } else if (value->kind == FR_CONF_SCALAR && is_data_key(value->key, value)) {
        const char *data;
        FR_TRY(fr__conf_data(set, value->key, NULL, &data));
        fr__conf_put_text(&o, data);
    } else {
        put_flow(&o, value);
    }
    fr_status status =
        o.failed ? fr__compare_no_memory(c) : fr__case_add(c, k, "%s=%s", value->key, o.at);
    fr__text_fini(&o);
    return status;
}

static fr_status add_changes(fr_compare *c, struct fr__case *k, fr_conf *item)
{
    fr_conf *set;
    FR_TRY(fr_conf_section(item, "set", &set));
    for (fr_conf *v = set->first; v; v = v->next) {
        FR_TRY(add_value(c, k, set, v));
        if (!v->resolved) v->resolved = ""; /* any key is allowed here; the run checks it */
        v->is_known = true;
    }
    return FR_OK;
}

/* --- a case ----------------------------------------------------------------------------------- */

static fr_status read_published(fr_conf *item, struct fr__case *k)
{
    fr_conf *p;
    char names[512] = "source";
    for (int i = 0; i < FR_MAX_COLUMNS; i++) k->published[i] = NAN;
    if (!fr_conf_has(item, "published")) return FR_OK;
    FR_TRY(fr_conf_section(item, "published", &p));
    for (int i = 0; fr_compare_column_at(i); i++) {
        const char *key = fr_compare_column_at(i)->key;
        fr__append_name(names, sizeof names, key);
        if (fr_conf_has(p, key)) FR_TRY(fr_conf_real(p, key, 0, -1e300, 1e300, &k->published[i]));
    }
    for (const fr_conf *v = p->first; v; v = v->next)
        if (!v->is_known && strcmp(v->key, "source") != 0)
            return fr_conf_fail(p, v->key, "unknown column '%s'; columns are: %s", v->key, names);
    if (!fr_conf_has(p, "source"))
        return fr_conf_fail(item, "published",
                            "published numbers need a source: authors, year, table");
    k->has_published = true;
    return fr_conf_text(p, "source", NULL, &k->source);
}

static fr_status read_kind(fr_conf *item, struct fr__case *k)
{
    const fr_key *key = fr__key_find(fr__settings_keys(), "compare.cases[].", "kind", NULL);
    const char *name = NULL;
    FR_TRY(fr__key_read(item, key, &name));
    k->kind = (fr_compare_kind)fr__key_choice(key, name);
    return FR_OK;
}

/* The name is used as a folder name. */
static fr_status check_name(fr_conf *item, const char *key, const char *name)
{
    bool is_good = name[0] && name[0] != '.' && name[0] != '-' && strlen(name) <= 60;
    for (const char *t = name; *t; t++)
        is_good = is_good && (unsigned char)*t > ' ' && !strchr("/\\\"", *t);
    if (is_good) return FR_OK;
    return fr_conf_fail(
        item, key,
        "\"%s\" is not a name: 1 to 60 letters, digits and similar characters, no blank, no slash",
        name);
}

/* Is the name in a list "a,b,c"? */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; n && (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n])) return true;
    return false;
}

static bool is_wanted(const fr_compare *c, const struct fr__case *k)
{
    const char *only = c->o->only;
    return !only || is_listed(only, k->name) || is_listed(only, k->group) ||
           is_listed(only, fr_compare_kind_name(k->kind));
}

static fr_status add_case(fr_compare *c, struct fr__case *k)
{
    if (!is_wanted(c, k)) return FR_OK;
    k->folder = fr__arena_printf(&c->arena, "%s%s%s%s", k->group, k->group[0] ? "-" : "", k->name,
                                 k->kind == FR_KIND_SIMULATED ? "-simulated" : "");
    if (!k->folder) return fr__compare_no_memory(c);
    for (int i = 0; i < c->n_cases; i++)
        if (strcmp(c->cases[i].folder, k->folder) == 0 && k->kind != FR_KIND_PUBLISHED &&
            c->cases[i].kind != FR_KIND_PUBLISHED)
            return fr_fail(c->ctx, FR_INVALID, "%s: duplicate case %s (the other: %s)", k->where,
                           k->folder, c->cases[i].where);
    if (c->n_cases == FR_MAX_CASES)
        return fr_fail(c->ctx, FR_INVALID, "%s: more than %d cases", k->where, FR_MAX_CASES);
    c->cases[c->n_cases++] = *k;
    return FR_OK;
}

/* Add a case to one group, or without a group. */
static fr_status read_case(fr_compare *c, fr_conf *item, fr_conf *group)
{
    struct fr__case k = {.group = "", .baseline = ""};
    k.where = fr_conf_where(item, "name");
    FR_TRY(fr_conf_text(item, "name", NULL, &k.name));
    FR_TRY(check_name(item, "name", k.name));
    FR_TRY(read_kind(item, &k));
    FR_TRY(read_published(item, &k));
    if (group) {
        FR_TRY(fr_conf_text(group, "name", NULL, &k.group));
        FR_TRY(fr_conf_text(group, "baseline", "", &k.baseline));
        FR_TRY(add_changes(c, &k, group));
    } else if (fr_conf_has(item, "group")) {
        FR_TRY(fr_conf_text(item, "group", NULL, &k.group));
        FR_TRY(check_name(item, "group", k.group));
    }
    FR_TRY(add_changes(c, &k, item));
    if (k.kind == FR_KIND_PUBLISHED && !k.has_published)
        return fr_conf_fail(
            item, "name",
            "a case of kind published consists of its numbers only: give published: {...}");
    for (int i = 0; i < c->o->n_sets; i++) FR_TRY(fr__case_add(c, &k, "%s", c->o->sets[i]));
    return add_case(c, &k);
}

/* --- the section ------------------------------------------------------------------------------ */

/* Add a case to the groups that it names, or to all groups. */
static fr_status is_in_group(fr_conf *item, const char *group, bool *yes)
{
    const char *names[64];
    int n;
    *yes = true;
    if (!fr_conf_has(item, "group")) return FR_OK;
    FR_TRY(fr_conf_texts(item, "group", 64, names, &n));
    *yes = false;
    for (int i = 0; i < n; i++) *yes |= strcmp(names[i], group) == 0;
    return FR_OK;
}

static fr_status check_groups(fr_conf *section, fr_conf *item, int n_groups)
{
    const char *names[64], *there;
    int n;
    if (!fr_conf_has(item, "group") || !n_groups) return FR_OK;
    FR_TRY(fr_conf_texts(item, "group", 64, names, &n));
    for (int i = 0; i < n; i++) {
        bool is_known = false;
        for (int g = 0; g < n_groups; g++) {
            fr_conf *group;
            FR_TRY(fr_conf_list_item(section, "groups", g, &group));
            FR_TRY(fr_conf_text(group, "name", NULL, &there));
            is_known |= strcmp(names[i], there) == 0;
        }
        if (!is_known) return fr_conf_fail(item, "group", "compare.groups has no '%s'", names[i]);
    }
    return FR_OK;
}

static fr_status read_cases(fr_compare *c, fr_conf *section)
{
    fr_conf *group, *item;
    const char *name;
    int n_groups = fr_conf_has(section, "groups") ? fr_conf_list_length(section, "groups") : 0;
    int n = fr_conf_list_length(section, "cases");
    if (n < 1)
        return fr_conf_fail(section, "cases",
                            "compare.cases: expected a list of cases: {name, set}");
    for (int i = 0; i < n; i++) {
        FR_TRY(fr_conf_list_item(section, "cases", i, &item));
        FR_TRY(check_groups(section, item, n_groups));
        if (n_groups < 1) FR_TRY(read_case(c, item, NULL));
    }
    for (int g = 0; g < n_groups; g++) {
        FR_TRY(fr_conf_list_item(section, "groups", g, &group));
        FR_TRY(fr_conf_text(group, "name", NULL, &name));
        FR_TRY(check_name(group, "name", name));
        for (int i = 0; i < n; i++) {
            bool is_in;
            FR_TRY(fr_conf_list_item(section, "cases", i, &item));
            FR_TRY(is_in_group(item, name, &is_in));
            if (is_in) FR_TRY(read_case(c, item, group));
        }
    }
    return FR_OK;
}

/* Split a list "a,b,c"; errors name the option. */
static fr_status next_name(fr_compare *c, const char **list, const char *option, char name[64])
{
    size_t n = strcspn(*list, ",");
    if (n == 0 || n >= 64)
        return fr_fail(c->ctx, FR_INVALID, "%s: expected names separated by commas, found \"%s\"",
                       option, *list);
    memcpy(name, *list, n);
    name[n] = '\0';
    *list += n;
    if (**list == ',') ++*list;
    return FR_OK;
}

static fr_status add_column(fr_compare *c, const char *where, const char *key)
{
    char names[512] = "";
    int i = fr__column_find(key);
    for (int j = 0; fr_compare_column_at(j); j++)
        fr__append_name(names, sizeof names, fr_compare_column_at(j)->key);
    if (i < 0)
        return fr_fail(c->ctx, FR_INVALID, "%s: unknown column '%s'; columns are: %s", where, key,
                       names);
    for (int j = 0; j < c->n_columns; j++)
        if (c->columns[j] == i)
            return fr_fail(c->ctx, FR_INVALID, "%s: duplicate column '%s'", where, key);
    c->columns[c->n_columns++] = i;
    return FR_OK;
}

static fr_status read_columns(fr_compare *c, fr_conf *section)
{
    static const char *const usual[] = {"eval_accuracy", "train_loss", "samples_per_s", "speedup",
                                        "bubble",        "memory",     "traffic"};
    const char *given[FR_MAX_COLUMNS], *rest = c->o->columns;
    char name[64];
    int n = 0;
    FR_TRY(fr_conf_texts(section, "columns", FR_MAX_COLUMNS, given, &n));
    if (rest) {
        do {
            FR_TRY(next_name(c, &rest, "--columns", name));
            FR_TRY(add_column(c, "--columns", name));
        } while (*rest);
        return FR_OK;
    }
    for (int i = 0; i < n; i++) FR_TRY(add_column(c, fr_conf_where(section, "columns"), given[i]));
    for (size_t i = 0; !n && i < sizeof usual / sizeof *usual; i++)
        FR_TRY(add_column(c, "columns", usual[i]));
    return FR_OK;
}

static fr_status read_methods(fr_compare *c, fr_conf *root)
{
    char name[64], names[512] = "";
    const char *rest = c->o->methods;
    FR_APPEND_NAMES(names, fr_method_list());
    do {
        struct fr__case k = {.group = "", .baseline = "", .where = "--methods"};
        FR_TRY(next_name(c, &rest, "--methods", name));
        const fr_method *m = fr_method_find(name);
        if (!m)
            return fr_fail(c->ctx, FR_INVALID, "--methods: unknown method '%s'; methods are: %s",
                           name, names);
        k.name = m->name;
        for (int i = 0; i < FR_MAX_COLUMNS; i++) k.published[i] = NAN;
        FR_TRY(fr__compare_method_sets(c, root, m, &k));
        for (int i = 0; i < c->o->n_sets; i++) FR_TRY(fr__case_add(c, &k, "%s", c->o->sets[i]));
        FR_TRY(add_case(c, &k));
    } while (*rest);
    return FR_OK;
}

static fr_status read_section(fr_compare *c, fr_conf *section)
{
    const fr_key *keys = fr__settings_keys();
    int64_t seeds = 0;
    const char *first = c->o->methods ? "methods" : "";
    FR_TRY(fr_conf_text(section, "title", "", &c->title));
    FR_TRY(fr_conf_text(section, "note", "", &c->note));
    FR_TRY(fr_conf_text(section, "baseline", first, &c->baseline));
    FR_TRY(fr__key_read(section, fr__key_find(keys, "compare.", "seeds", NULL), &seeds));
    FR_TRY(fr__key_read(section, fr__key_find(keys, "compare.", "checkpoints", NULL),
                        &c->keeps_checkpoints));
    if (c->o->seeds > 0) seeds = c->o->seeds;
    if (seeds > FR_MAX_SEEDS)
        return fr_fail(c->ctx, FR_INVALID, "--seeds %lld: at most %d", (long long)seeds,
                       FR_MAX_SEEDS);
    c->n_seeds = (int)seeds;
    return read_columns(c, section);
}

static bool has_case(const fr_compare *c, const char *name, const char *group)
{
    for (int i = 0; i < c->n_cases; i++)
        if (strcmp(c->cases[i].name, name) == 0 &&
            (!group || strcmp(c->cases[i].group, group) == 0))
            return true;
    return false;
}

/* The baseline of a group is its own, else that of the section, else the first case. With --only
 * the baseline may be missing. */
static fr_status set_baselines(fr_compare *c, fr_conf *section)
{
    bool is_chosen = fr_conf_has(section, "baseline") && !c->o->methods;
    if (!c->n_cases)
        return fr_fail(c->ctx, FR_INVALID, "--only %s: no group, case or kind has this name",
                       c->o->only);
    if (!is_chosen) c->baseline = c->cases[0].name;
    if (!c->o->only && !has_case(c, c->baseline, NULL))
        return fr_conf_fail(section, "baseline", "there is no case '%s'", c->baseline);
    for (int i = 0; i < c->n_cases; i++) {
        struct fr__case *k = &c->cases[i];
        if (!k->baseline[0])
            k->baseline = c->baseline;
        else if (!c->o->only && !has_case(c, k->baseline, k->group))
            return fr_conf_fail(section, "groups", "group %s has baseline '%s', but no such case",
                                k->group, k->baseline);
    }
    return FR_OK;
}

/* Texts of the config are used for the lifetime of the comparison. */
static fr_status keep_texts(fr_compare *c)
{
    const char **texts[] = {&c->title, &c->note, &c->baseline};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!(*texts[i] = fr__arena_strdup(&c->arena, *texts[i]))) return fr__compare_no_memory(c);
    for (int i = 0; i < c->n_cases; i++) {
        struct fr__case *k = &c->cases[i];
        k->name = fr__arena_strdup(&c->arena, k->name);
        k->group = fr__arena_strdup(&c->arena, k->group);
        k->baseline = fr__arena_strdup(&c->arena, k->baseline);
        k->where = fr__arena_strdup(&c->arena, k->where);
        if (k->source) k->source = fr__arena_strdup(&c->arena, k->source);
        if (!k->name || !k->group || !k->baseline || !k->where || (k->has_published && !k->source))
            return fr__compare_no_memory(c);
    }
    return FR_OK;
}

static fr_status read_all(fr_compare *c, fr_conf *root)
{
    fr_conf *section;
    bool has_section = fr_conf_has(root, "compare");
    if (!has_section && !c->o->methods)
        return fr_fail(c->ctx, FR_INVALID,
                       "%s: no cases to compare; name methods (--methods single,1f1b,spectrain), "
                       "or write a section `compare` with cases (docs/compare.md)",
                       c->o->config);
    c->cases = FR_ARENA_ARRAY(&c->arena, struct fr__case, FR_MAX_CASES);
    if (!c->cases) return fr__compare_no_memory(c);
    FR_TRY(fr_conf_section(root, "compare", &section));
    FR_TRY(read_section(c, section));
    if (c->o->methods) {
        FR_TRY(read_methods(c, root));
    } else {
        FR_TRY(read_cases(c, section));
        FR_TRY(fr_conf_finish(section));
    }
    FR_TRY(set_baselines(c, section));
    return keep_texts(c);
}

fr_status fr__compare_read(fr_compare *c)
{
    fr_conf *root;
    FR_TRY(fr_conf_load(c->ctx, c->o->config, c->o->n_sets, c->o->sets, &root));
    fr_status status = read_all(c, root);
    fr_conf_free(root);
    return status;
}
