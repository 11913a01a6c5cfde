/* conf_get.c -- typed access to a config. Each call records its result as YAML, so that the full
 * resolved config can be saved. It also marks its key as known, so that keys which no call has read
 * can be refused. */
#include "io/conf.h"

#include "base/utf8.h"
#include "io/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fr__conf_is_null(const fr_conf *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != FR_CONF_SCALAR || !node->is_plain) return false;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (strcmp(node->text, nulls[i]) == 0) return true;
    return false;
}

fr_status fr__conf_no_memory(const fr_conf *node)
{
    return fr__no_memory(node->root->ctx, sizeof *node, node->root->name);
}

/* --- positions ---------------------------------------------------------------------------- */

static const char *place_text(const fr_conf *node, int line, int column)
{
    const char *text =
        fr__arena_printf(&node->root->arena, "%s:%d:%d", node->root->name, line, column);
    return text ? text : node->root->name;
}

const char *fr__conf_place(const fr_conf *node)
{
    for (;; node = node->parent) {
        if (node->origin) return node->origin;
        if (!node->parent) return node->root->name;
        /* Block containers start one line below their key; the key is the better position. */
        if (node->key_line && (node->kind != FR_CONF_SCALAR || !node->line))
            return place_text(node, node->key_line, node->key_column);
        if (node->line) return place_text(node, node->line, node->column);
    }
}

const char *fr__conf_path(const fr_conf *node)
{
    const char *above = node->parent ? fr__conf_path(node->parent) : "";
    const char *dot = *above ? "." : "", *path;
    if (node->key) {
        path = fr__arena_printf(&node->root->arena, "%s%s%s", above, dot, node->key);
    } else if (node->parent) {
        int i = 0;
        for (const fr_conf *c = node->parent->first; c != node; c = c->next) i++;
        path = fr__arena_printf(&node->root->arena, "%s[%d]", above, i);
    } else {
        path = "";
    }
    return path ? path : "?";
}

const char *fr_conf_where(fr_conf *c, const char *key)
{
    const fr_conf *child = key ? fr__conf_child(c, key) : NULL;
    return fr__conf_place(child ? child : c);
}

fr_status fr_conf_fail(fr_conf *c, const char *key, const char *format, ...)
{
    char text[800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fr_fail(c->root->ctx, FR_INVALID, "%s: %s", fr_conf_where(c, key), text);
}

static fr_status type_error(const fr_conf *node, const char *expected)
{
    char found[100];
    if (node->kind != FR_CONF_SCALAR)
        snprintf(found, sizeof found, "a %s", node->kind == FR_CONF_LIST ? "list" : "mapping");
    else if (fr__conf_is_null(node))
        snprintf(found, sizeof found, "nothing");
    else
        snprintf(found, sizeof found, "%s\"%.60s\"%s", node->is_plain ? "" : "the text ",
                 node->text, strlen(node->text) > 60 ? "..." : "");
    return fr_fail(node->root->ctx, FR_INVALID, "%s: %s: expected %s, found %s",
                   fr__conf_place(node), fr__conf_path(node), expected, found);
}

/* --- asking ------------------------------------------------------------------------------- */

/* The child, made without a value if it is absent, and known from now on. NULL: no memory. */
static fr_conf *ask(fr_conf *c, const char *key)
{
    fr_conf *child = fr__conf_child(c, key);
    if (!child) child = fr__conf_add(c, key);
    if (child) child->is_known = true;
    return child;
}

static fr_status resolve(fr_conf *node, const char *yaml)
{
    node->resolved = fr__arena_strdup(&node->root->arena, yaml);
    return node->resolved ? FR_OK : fr__conf_no_memory(node);
}

/* Take ownership of the collected text, or discard it. */
fr_status fr__conf_resolve(fr_conf *node, fr__text *o)
{
    fr_status status = o->failed ? fr__conf_no_memory(node) : resolve(node, o->at);
    fr__text_fini(o);
    return status;
}

static bool is_plain_scalar(const fr_conf *node)
{
    return node->kind == FR_CONF_SCALAR && node->is_plain;
}

static fr_status range_error(const fr_conf *node, const char *what, bool has_min, const char *min,
                             bool has_max, const char *max)
{
    char text[160];
    if (has_min && has_max)
        snprintf(text, sizeof text, "%s from %s to %s", what, min, max);
    else if (has_min)
        snprintf(text, sizeof text, "%s of at least %s", what, min);
    else if (has_max)
        snprintf(text, sizeof text, "%s of at most %s", what, max);
    else
        snprintf(text, sizeof text, "%s", what);
    return type_error(node, text);
}

/* A default outside the range means "not set" and is not saved. */
fr_status fr_conf_int(fr_conf *c, const char *key, int64_t preset, int64_t min, int64_t max,
                      int64_t *out)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    char text[24], limits[2][24];
    int64_t value = preset;
    if (node->has_value) {
        bool is_int = is_plain_scalar(node) && fr__int_scan(node->text, &value);
        snprintf(limits[0], sizeof limits[0], "%" PRId64, min);
        snprintf(limits[1], sizeof limits[1], "%" PRId64, max);
        if (!is_int || value < min || value > max)
            return range_error(node, "an integer", min > INT64_MIN, limits[0], max < INT64_MAX,
                               limits[1]);
    }
    *out = value;
    if (value < min || value > max) return FR_OK;
    snprintf(text, sizeof text, "%" PRId64, value);
    return resolve(node, text);
}

static bool scan_real(const char *text, double *value)
{
    if (fr__real_scan(text, value)) return true;
    const char *body = text + (*text == '-' || *text == '+');
    if (strcmp(body, ".inf") != 0) return false;
    *value = *text == '-' ? -INFINITY : INFINITY;
    return true;
}

static void format_real(double value, char text[32])
{
    if (isinf(value))
        snprintf(text, 32, "%s", value < 0 ? "-.inf" : ".inf");
    else
        fr__real_format(value, text);
}

fr_status fr_conf_real(fr_conf *c, const char *key, double preset, double min, double max,
                       double *out)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    char text[32], limits[2][32];
    double value = preset;
    if (node->has_value) {
        bool is_real = is_plain_scalar(node) && scan_real(node->text, &value);
        format_real(min, limits[0]);
        format_real(max, limits[1]);
        if (!is_real || !(value >= min && value <= max))
            return range_error(node, "a number", !isinf(min), limits[0], !isinf(max), limits[1]);
    }
    *out = value;
    if (!(value >= min && value <= max)) return FR_OK;
    format_real(value, text);
    return resolve(node, text);
}

fr_status fr_conf_bool(fr_conf *c, const char *key, bool preset, bool *out)
{
    static const char *const words[2][3] = {{"false", "False", "FALSE"}, {"true", "True", "TRUE"}};
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    bool value = preset, is_bool = !node->has_value;
    for (int i = 0; i < 6 && !is_bool && is_plain_scalar(node); i++)
        if (strcmp(node->text, words[i / 3][i % 3]) == 0) value = i / 3, is_bool = true;
    if (!is_bool) return type_error(node, "true or false");
    *out = value;
    return resolve(node, words[value][0]);
}

static fr_status check_text(const fr_conf *node)
{
    if (node->kind != FR_CONF_SCALAR) return type_error(node, "a text");
    if (fr__conf_is_null(node)) return type_error(node, "a text (\"\" for an empty one)");
    return FR_OK;
}

fr_status fr_conf_text(fr_conf *c, const char *key, const char *preset, const char **out)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    const char *text = NULL;
    if (node->has_value) {
        FR_TRY(check_text(node));
        text = node->text;
    } else if (preset) {
        if (!fr__utf8_is_valid(preset))
            return fr_conf_fail(c, key, "%s: the default is not UTF-8", fr__conf_path(node));
        text = fr__arena_strdup(&c->root->arena, preset);
        if (!text) return fr__conf_no_memory(c);
    } else {
        return fr_fail(c->root->ctx, FR_INVALID, "%s: %s is missing; expected a text",
                       fr__conf_place(c), fr__conf_path(node));
    }
    *out = text;
    fr__text o = {0};
    fr__conf_put_text(&o, text);
    return fr__conf_resolve(node, &o);
}

/* --- lists -------------------------------------------------------------------------------- */

/* The first item of a list, or the node itself: a single value is a list of one. */
static fr_status list_start(const fr_conf *node, int max_n, const char *expected,
                            const fr_conf **first)
{
    *first = NULL;
    if (!node->has_value) return FR_OK;
    if (node->kind == FR_CONF_MAPPING || fr__conf_is_null(node)) return type_error(node, expected);
    *first = node->kind == FR_CONF_LIST ? node->first : node;
    int n = 0;
    for (const fr_conf *item = *first; item && node->kind == FR_CONF_LIST; item = item->next) n++;
    if (n <= max_n) return FR_OK;
    return fr_fail(node->root->ctx, FR_INVALID, "%s: %s: expected at most %d items, found %d",
                   fr__conf_place(node), fr__conf_path(node), max_n, n);
}

static const fr_conf *list_next(const fr_conf *node, const fr_conf *item)
{
    return item == node ? NULL : item->next;
}

fr_status fr_conf_ints(fr_conf *c, const char *key, int max_n, int64_t *out, int *n)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    const fr_conf *item;
    *n = 0;
    FR_TRY(list_start(node, max_n, "a list of integers", &item));
    if (!node->has_value) return FR_OK;
    fr__text o = {0};
    fr__text_put(&o, "[");
    for (; item; item = list_next(node, item)) {
        if (!is_plain_scalar(item) || !fr__int_scan(item->text, &out[*n])) {
            fr__text_fini(&o);
            return type_error(item, "an integer");
        }
        fr__text_printf(&o, "%s%" PRId64, *n ? ", " : "", out[*n]);
        ++*n;
    }
    fr__text_put(&o, "]");
    return fr__conf_resolve(node, &o);
}

fr_status fr_conf_texts(fr_conf *c, const char *key, int max_n, const char **out, int *n)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    const fr_conf *item;
    *n = 0;
    FR_TRY(list_start(node, max_n, "a list of texts", &item));
    if (!node->has_value) return FR_OK;
    fr__text o = {0};
    fr__text_put(&o, "[");
    for (; item; item = list_next(node, item)) {
        fr_status status = check_text(item);
        if (status != FR_OK) {
            fr__text_fini(&o);
            return status;
        }
        if (*n) fr__text_put(&o, ", ");
        fr__conf_put_text(&o, item->text);
        out[(*n)++] = item->text;
    }
    fr__text_put(&o, "]");
    return fr__conf_resolve(node, &o);
}

int fr_conf_list_length(const fr_conf *c, const char *key)
{
    fr_conf *node = fr__conf_child(c, key);
    if (!node || !node->has_value || node->kind != FR_CONF_LIST) return -1;
    node->is_known = true;
    int n = 0;
    for (const fr_conf *item = node->first; item; item = item->next) n++;
    return n;
}

/* --- mappings ----------------------------------------------------------------------------- */

/* An empty value (`run:`) is an empty mapping. */
static fr_status as_mapping(fr_conf *node, fr_conf **out)
{
    if (!node->has_value || fr__conf_is_null(node)) node->kind = FR_CONF_MAPPING;
    if (node->kind != FR_CONF_MAPPING) return type_error(node, "a mapping (key: value)");
    node->resolved = NULL;
    *out = node;
    return FR_OK;
}

fr_status fr_conf_section(fr_conf *c, const char *key, fr_conf **out)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    *out = NULL;
    return as_mapping(node, out);
}

fr_status fr_conf_list_item(fr_conf *c, const char *key, int i, fr_conf **out)
{
    fr_conf *node = ask(c, key);
    if (!node) return fr__conf_no_memory(c);
    *out = NULL;
    int n = fr_conf_list_length(c, key);
    if (node->has_value && n < 0) return type_error(node, "a list of mappings");
    if (i < 0 || i >= n)
        return fr_fail(c->root->ctx, FR_INVALID, "%s: %s: item %d requested, but the list has %d",
                       fr__conf_place(node), fr__conf_path(node), i, n < 0 ? 0 : n);
    fr_conf *item = node->first;
    while (i-- > 0) item = item->next;
    return as_mapping(item, out);
}

bool fr_conf_has(const fr_conf *c, const char *key)
{
    const fr_conf *node = fr__conf_child(c, key);
    return node && node->is_given;
}

bool fr_conf_is_mapping(const fr_conf *c, const char *key)
{
    const fr_conf *node = fr__conf_child(c, key);
    return node && node->has_value && node->kind == FR_CONF_MAPPING;
}
