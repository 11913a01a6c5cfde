/* conf_save.c -- refuses unknown keys, and saves the resolved config. */
#include "io/conf.h"

#include "base/utf8.h"
#include "io/file.h"
#include "io/number.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- unknown keys ------------------------------------------------------------------------- */

/* The known key beside `node` that is nearest to it, NULL if none is near. */
static const char *nearest_key(const fr_conf *node)
{
    const char *best = NULL;
    int half = (int)strlen(node->key) / 2, best_distance = half < 3 ? 1 + half : 4;
    for (const fr_conf *c = node->parent->first; c; c = c->next) {
        int d = c->is_known ? fr_edit_distance(node->key, c->key) : INT_MAX;
        if (d < best_distance) best = c->key, best_distance = d;
    }
    return best;
}

static const char *key_place(const fr_conf *node)
{
    if (node->origin || !node->key_line) return fr__conf_place(node);
    const char *text = fr__arena_printf(&node->root->arena, "%s:%d:%d", node->root->name,
                                        node->key_line, node->key_column);
    return text ? text : node->root->name;
}

static fr_status unknown_key(const fr_conf *node)
{
    char hint[300];
    size_t used = 0;
    const char *near = nearest_key(node);
    if (near) {
        snprintf(hint, sizeof hint, "; did you mean \"%s\"?", near);
    } else {
        snprintf(hint, sizeof hint, "; no keys are known here");
        for (const fr_conf *c = node->parent->first; c; c = c->next) {
            if (!c->is_known || used + strlen(c->key) + 16 > sizeof hint) continue;
            used += (size_t)snprintf(hint + used, sizeof hint - used, "%s%s",
                                     used ? ", " : "; known here: ", c->key);
        }
    }
    return fr_fail(node->root->ctx, FR_INVALID, "%s: unknown key %s%s", key_place(node),
                   fr__conf_path(node), hint);
}

fr_status fr_conf_finish(fr_conf *c)
{
    for (const fr_conf *child = c->first; child; child = child->next)
        if (child->key && !child->is_known) return unknown_key(child);
    for (fr_conf *child = c->first; child; child = child->next)
        if (!child->resolved) FR_TRY(fr_conf_finish(child));
    return FR_OK;
}

/* --- recording ---------------------------------------------------------------------------- */

static void mark_known(fr_conf *node)
{
    node->is_known = true;
    for (fr_conf *c = node->first; c; c = c->next) mark_known(c);
}

fr_status fr_conf_record(fr_conf *c, const char *key, const char *value_as_yaml)
{
    const char *origin = fr__arena_printf(&c->root->arena, "value computed for %s", key);
    fr_conf *value;
    if (!origin) return fr__conf_no_memory(c);
    FR_TRY(fr__conf_read(c->root, value_as_yaml, strlen(value_as_yaml), origin, &value));
    fr_conf *node = fr__conf_child(c, key);
    if (!node) node = fr__conf_add(c, key);
    if (!node) return fr__conf_no_memory(c);
    fr__conf_assign(node, value);
    mark_known(node);
    return FR_OK;
}

/* --- writing ------------------------------------------------------------------------------ */

/* Words, paths and names that every YAML reader treats as text. */
static bool is_safe_plain(const char *text)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
    size_t n = strspn(text, letters);
    if (n == 0 || n + strspn(text + n, "-.0123456789abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/") !=
                      strlen(text))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) return false;
    return true;
}

void fr__conf_put_text(fr__text *o, const char *text)
{
    if (is_safe_plain(text)) {
        fr__text_put(o, text);
        return;
    }
    fr__text_put(o, "\"");
    size_t n;
    for (const char *t = text; *t; t += n) {
        int32_t c = fr__utf8_next(t, &n);
        if (c == '"' || c == '\\')
            fr__text_printf(o, "\\%c", (char)c);
        else if (c == '\n')
            fr__text_put(o, "\\n");
        else if (c < 0x20 || (c >= 0x7F && c < 0xA0)) /* limited: a key may have 1024 characters */
            fr__text_printf(o, "\\x%02x", (unsigned)c);
        else if ((c >= 0x2000 && c < 0x2100) || c >= 0xFE00)
            fr__text_printf(o, "\\U%08x", (unsigned)c);
        else
            fr__text_put_bytes(o, t, n);
    }
    fr__text_put(o, "\"");
}

/* Omit defaults that mean "not set", and empty sections. */
static bool is_shown(const fr_conf *node)
{
    if (node->resolved || node->has_value) return true;
    for (const fr_conf *c = node->first; c; c = c->next)
        if (is_shown(c)) return true;
    return false;
}

static void put_value(fr__text *o, const fr_conf *node, int indent);

static void put_mapping(fr__text *o, const fr_conf *node, int indent, bool is_in_line)
{
    for (const fr_conf *c = node->first; c; c = c->next) {
        if (!is_shown(c)) continue;
        if (!is_in_line) fr__text_printf(o, "%*s", indent, "");
        is_in_line = false;
        fr__conf_put_text(o, c->key);
        fr__text_put(o, ":");
        put_value(o, c, indent);
    }
}

static void put_list(fr__text *o, const fr_conf *node, int indent)
{
    for (const fr_conf *c = node->first; c; c = c->next) {
        fr__text_printf(o, "%*s-", indent, "");
        bool has_keys = false;
        for (const fr_conf *k = c->first; k && c->kind == FR_CONF_MAPPING; k = k->next)
            has_keys = has_keys || is_shown(k);
        if (has_keys) {
            fr__text_put(o, " ");
            put_mapping(o, c, indent + 2, true);
        } else {
            put_value(o, c, indent);
        }
    }
}

/* In quotes, numbers and booleans would be texts. */
static bool is_value(const char *text)
{
    double r;
    const char *body = text + (*text == '-' || *text == '+');
    return fr__real_scan(text, &r) || strcmp(body, ".inf") == 0 || strcasecmp(text, "true") == 0 ||
           strcasecmp(text, "false") == 0;
}

/* A value that no call has read. */
static void put_scalar(fr__text *o, const fr_conf *node)
{
    if (fr__conf_is_null(node))
        fr__text_put(o, "null");
    else if (node->is_plain && is_value(node->text))
        fr__text_put(o, node->text);
    else
        fr__conf_put_text(o, node->text);
}

/* Write the rest of the line after the colon or dash. */
static void put_value(fr__text *o, const fr_conf *node, int indent)
{
    bool has_items = false;
    for (const fr_conf *c = node->first; c && !has_items; c = c->next) has_items = is_shown(c);
    if (node->resolved) {
        fr__text_printf(o, " %s", node->resolved);
    } else if (node->kind == FR_CONF_SCALAR) {
        fr__text_put(o, " ");
        put_scalar(o, node);
    } else if (!has_items) {
        fr__text_put(o, node->kind == FR_CONF_LIST ? " []" : " {}");
    } else {
        fr__text_put(o, "\n");
        if (node->kind == FR_CONF_LIST)
            put_list(o, node, indent + 2);
        else
            put_mapping(o, node, indent + 2, false);
        return;
    }
    fr__text_put(o, "\n");
}

void fr__conf_format(const fr_conf *top, fr__text *o)
{
    put_mapping(o, top, 0, false);
    if (o->n == 0) fr__text_put(o, "{}\n");
}

fr_status fr_conf_save(fr_conf *top, const char *path) { return fr__conf_save(top, "", path); }

fr_status fr__conf_save(fr_conf *top, const char *head, const char *path)
{
    fr__text o = {0};
    fr__text_put(&o, head);
    fr__conf_format(top, &o);
    fr_status status =
        o.failed ? fr__conf_no_memory(top) : fr__file_replace(top->root->ctx, path, o.at, o.n);
    fr__text_fini(&o);
    return status;
}
