/* conf_parse.c -- YAML text to a tree, and the --set overrides on top of it. */
#include "io/conf.h"

#include "base/vec.h"

#include "base/utf8.h"
#include "io/file.h"

#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

struct anchor {
    const char *name;
    fr_conf *node;
};

struct builder {
    struct fr__conf_root *root;
    const char *origin;
    int n_documents;
    fr_conf *value; /* of the document */
    fr_conf *at;    /* the open container */
    int depth;
    const char *key; /* the key whose value follows */
    int key_line, key_column;
    FR_VEC(struct anchor) anchors;
    fr__text text; /* text of one token while it is assembled */
};

FR_PRINTF(4, 5)
static fr_status fail_at(const struct builder *b, int line, int column, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (b->origin) return fr_fail(b->root->ctx, FR_INVALID, "%s: %s", b->origin, text);
    /* An empty key or value has no position. */
    if (!line && b->at) line = b->at->line, column = b->at->column;
    return fr_fail(b->root->ctx, FR_INVALID, "%s:%d:%d: %s", b->root->name, line, column, text);
}

static fr_status no_memory(const struct builder *b)
{
    return fr__no_memory(b->root->ctx, sizeof(fr_conf), b->root->name);
}

/* --- nodes -------------------------------------------------------------------------------- */

fr_conf *fr__conf_new(struct fr__conf_root *root)
{
    fr_conf *node = FR_ARENA_NEW(&root->arena, fr_conf);
    if (!node) return NULL;
    node->root = root;
    node->text = "";
    node->is_plain = true;
    root->n_nodes++;
    return node;
}

static void append(fr_conf *parent, fr_conf *node)
{
    node->parent = parent;
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
}

fr_conf *fr__conf_add(fr_conf *parent, const char *key)
{
    fr_conf *node = fr__conf_new(parent->root);
    if (!node || !(node->key = fr__arena_strdup(&parent->root->arena, key))) return NULL;
    append(parent, node);
    return node;
}

fr_conf *fr__conf_child(const fr_conf *mapping, const char *key)
{
    for (fr_conf *c = mapping->first; c; c = c->next)
        if (c->key && strcmp(c->key, key) == 0) return c;
    return NULL;
}

void fr__conf_assign(fr_conf *to, fr_conf *from)
{
    to->kind = from ? from->kind : FR_CONF_SCALAR;
    to->text = from ? from->text : "";
    to->is_plain = from ? from->is_plain : true;
    to->first = from ? from->first : NULL;
    to->last = from ? from->last : NULL;
    to->resolved = NULL;
    to->has_value = true;
    for (fr_conf *c = to->first; c; c = c->next) c->parent = to;
}

void fr__conf_drop(fr_conf *mapping, const char *key)
{
    fr_conf *last = NULL, *next;
    for (fr_conf *c = mapping->first; c; c = next) {
        next = c->next;
        if (!c->key || strcmp(c->key, key) != 0) {
            last = c;
            continue;
        }
        if (last)
            last->next = next;
        else
            mapping->first = next;
    }
    mapping->last = last;
}

/* --- events ------------------------------------------------------------------------------- */

static void token_place(struct fy_token *token, int *line, int *column)
{
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    *line = mark ? mark->line + 1 : 0;
    *column = mark ? mark->column + 1 : 0;
}

/* By chunks: with many chunks, fy_token_get_text leaks and fy_token_iter_read mixes them up. */
static fr_status token_text(struct builder *b, struct fy_token *token, const char **out)
{
    struct fy_token_iter *iter = fy_token_iter_create(token);
    if (!iter) return no_memory(b);
    const struct fy_iter_chunk *chunk = NULL;
    int failed = 0;
    b->text.n = 0;
    while ((chunk = fy_token_iter_chunk_next(iter, chunk, &failed)) != NULL)
        fr__text_put_bytes(&b->text, chunk->str, chunk->len);
    fr__text_put(&b->text, ""); /* an empty text is a text */
    fy_token_iter_destroy(iter);
    if (b->text.failed || failed) return no_memory(b);
    int line, column;
    token_place(token, &line, &column);
    if (strlen(b->text.at) != b->text.n)
        return fail_at(b, line, column, "a zero byte inside a text");
    *out = fr__arena_strdup(&b->root->arena, b->text.at);
    return *out ? FR_OK : no_memory(b);
}

static fr_status take_key(struct builder *b, struct fy_token *token)
{
    const char *key = NULL;
    int line, column;
    token_place(token, &line, &column);
    FR_TRY(token_text(b, token, &key));
    if (!*key || strlen(key) > FR_CONF_MAX_KEY)
        return fail_at(b, line, column, "a key must have 1 to %d bytes", FR_CONF_MAX_KEY);
    const fr_conf *twin = fr__conf_child(b->at, key);
    if (twin)
        return fail_at(b, line, column, "key \"%s\" is given twice, first at line %d", key,
                       twin->key_line);
    b->key = key;
    b->key_line = line;
    b->key_column = column;
    return FR_OK;
}

/* Append to the open container, under the key that was read. */
static fr_status place(struct builder *b, fr_conf *node, struct fy_token *token)
{
    int line, column;
    token_place(token, &line, &column);
    if (b->root->n_nodes > FR_CONF_MAX_NODES)
        return fail_at(b, line, column, "more than %d values in a config", FR_CONF_MAX_NODES);
    if (b->depth >= FR_CONF_MAX_DEPTH)
        return fail_at(b, line, column, "nested deeper than %d levels", FR_CONF_MAX_DEPTH);
    node->is_given = node->has_value = true;
    node->origin = b->origin;
    node->key = b->key;
    node->key_line = b->key_line;
    node->key_column = b->key_column;
    if (line) node->line = line, node->column = column;
    b->key = NULL;
    b->key_line = b->key_column = 0;
    if (b->at)
        append(b->at, node);
    else
        b->value = node;
    return FR_OK;
}

static fr_status add_anchor(struct builder *b, struct fy_token *token, fr_conf *node)
{
    if (!token) return FR_OK;
    struct anchor a = {.node = node};
    FR_TRY(token_text(b, token, &a.name));
    return fr__vec_push(&b->anchors, a) ? FR_OK : no_memory(b);
}

/* A copy outside the tree; it shares keys and texts. line and column are those of the alias. */
static fr_status copy_tree(const struct builder *b, const fr_conf *from, int depth, int line,
                           int column, fr_conf **out)
{
    *out = NULL;
    if (b->root->n_nodes >= FR_CONF_MAX_NODES || depth >= FR_CONF_MAX_DEPTH)
        return fail_at(b, line, column, "this alias expands to more than %d %s",
                       depth < FR_CONF_MAX_DEPTH ? FR_CONF_MAX_NODES : FR_CONF_MAX_DEPTH,
                       depth < FR_CONF_MAX_DEPTH ? "values" : "levels");
    fr_conf *node = fr__conf_new(b->root), *child = NULL;
    if (!node) return no_memory(b);
    *node = *from;
    node->parent = node->next = node->first = node->last = NULL;
    for (const fr_conf *c = from->first; c; c = c->next) {
        FR_TRY(copy_tree(b, c, depth + 1, line, column, &child));
        append(node, child);
    }
    *out = node;
    return FR_OK;
}

static fr_status add_alias(struct builder *b, struct fy_token *token)
{
    const char *name = NULL;
    int line, column;
    token_place(token, &line, &column);
    FR_TRY(token_text(b, token, &name));
    const fr_conf *source = NULL;
    for (size_t i = b->anchors.n; i > 0 && !source; i--)
        if (strcmp(b->anchors.at[i - 1].name, name) == 0) source = b->anchors.at[i - 1].node;
    if (!source || source->is_open)
        return fail_at(b, line, column, "alias *%s %s", name,
                       source ? "is inside its own anchor" : "has no anchor before it");
    fr_conf *copy = NULL;
    FR_TRY(copy_tree(b, source, b->depth, line, column, &copy));
    return place(b, copy, NULL);
}

static bool wants_key(const struct builder *b)
{
    return b->at && b->at->kind == FR_CONF_MAPPING && !b->key;
}

/* A scalar, or the start of a container. */
static fr_status add_node(struct builder *b, enum fr__conf_kind kind, struct fy_token *value,
                          struct fy_token *tag, struct fy_token *anchor)
{
    int line, column;
    token_place(tag ? tag : value, &line, &column);
    if (tag) return fail_at(b, line, column, "tags (!...) are not allowed in configs; remove it");
    if (wants_key(b)) {
        if (kind == FR_CONF_SCALAR) return take_key(b, value);
        return fail_at(b, line, column, "a key must be a text");
    }
    fr_conf *node = fr__conf_new(b->root);
    if (!node) return no_memory(b);
    node->kind = kind;
    if (kind == FR_CONF_SCALAR) {
        FR_TRY(token_text(b, value, &node->text));
        node->is_plain = fy_token_scalar_style(value) == FYSS_PLAIN;
    }
    /* An empty value has no position; libfyaml 0.8 reports the place after the colon. Use that of
     * the key. */
    bool is_empty = kind == FR_CONF_SCALAR && node->is_plain && !*node->text;
    FR_TRY(place(b, node, is_empty ? NULL : value));
    FR_TRY(add_anchor(b, anchor, node));
    if (kind == FR_CONF_SCALAR) return FR_OK;
    node->is_open = true;
    b->at = node;
    b->depth++;
    return FR_OK;
}

static fr_status take_event(struct builder *b, struct fy_event *e)
{
    switch (e->type) {
    case FYET_DOCUMENT_START:
        if (b->n_documents++ == 0) return FR_OK;
        return fail_at(b, 1, 1, "more than one document (---) in a config");
    case FYET_SCALAR:
        return add_node(b, FR_CONF_SCALAR, e->scalar.value, e->scalar.tag, e->scalar.anchor);
    case FYET_SEQUENCE_START:
        return add_node(b, FR_CONF_LIST, e->sequence_start.sequence_start, e->sequence_start.tag,
                        e->sequence_start.anchor);
    case FYET_MAPPING_START:
        return add_node(b, FR_CONF_MAPPING, e->mapping_start.mapping_start, e->mapping_start.tag,
                        e->mapping_start.anchor);
    case FYET_SEQUENCE_END:
    case FYET_MAPPING_END:
        b->at->is_open = false;
        b->at = b->at->parent;
        b->depth--;
        return FR_OK;
    case FYET_ALIAS:
        if (!wants_key(b)) return add_alias(b, e->alias.anchor);
        return fail_at(b, b->at->line, b->at->column, "an alias cannot be a key");
    default: return FR_OK;
    }
}

/* --- text --------------------------------------------------------------------------------- */

/* libfyaml stops without an error at bytes that are not YAML characters and at unknown directives,
 * so search for both first. */
static fr_status check_characters(const struct builder *b, const char *text, size_t bytes)
{
    int line = 1, column = 1;
    size_t n;
    for (const char *t = text; t < text + bytes; t += n) {
        int32_t c = fr__utf8_next(t, &n);
        if (c < 0) return fail_at(b, line, column, "not UTF-8 text");
        if (c == '%' && column == 1)
            return fail_at(b, line, column, "directives (%%...) are not allowed in configs");
        bool is_break = c == '\n' || (c == '\r' && t[1] != '\n');
        if ((c < 0x20 && !is_break && c != '\t' && c != '\r') || (c >= 0x7F && c < 0xA0) ||
            c == 0xFFFE || c == 0xFFFF)
            return fail_at(b, line, column, "character %d is not allowed in YAML", (int)c);
        if (is_break) line++;
        column = is_break ? 1 : column + 1;
    }
    return FR_OK;
}

/* Not every error of libfyaml ends its stream of events, so check both. */
static fr_status complaint(const struct builder *b, struct fy_diag *diag, bool has_ended)
{
    void *step = NULL;
    const struct fy_diag_error *e = fy_diag_errors_iterate(diag, &step);
    if (e && e->msg) return fail_at(b, e->line, e->column, "%s", e->msg);
    return has_ended ? FR_OK : fail_at(b, 1, 1, "not valid YAML");
}

static fr_status run_parser(struct builder *b, struct fy_parser *parser, struct fy_diag *diag)
{
    for (;;) {
        struct fy_event *event = fy_parser_parse(parser);
        if (!event) return complaint(b, diag, false);
        bool is_last = event->type == FYET_STREAM_END;
        fr_status status = take_event(b, event);
        fy_parser_event_free(parser, event);
        if (status != FR_OK) return status;
        if (is_last) return complaint(b, diag, true);
    }
}

static fr_status parse(struct builder *b, const char *text, size_t bytes)
{
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_cfg);
    if (!diag) return no_memory(b);
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_JSON_NONE | FYPCF_DEFAULT_VERSION_1_2, .diag = diag};
    struct fy_parser *parser = fy_parser_create(&cfg);
    fr_status status;
    if (!parser || fy_parser_set_string(parser, text, bytes) != 0)
        status = no_memory(b);
    else
        status = run_parser(b, parser, diag);
    if (parser) fy_parser_destroy(parser);
    fy_diag_destroy(diag);
    return status;
}

fr_status fr__conf_read(struct fr__conf_root *root, const char *text, size_t bytes,
                        const char *origin, fr_conf **out)
{
    *out = NULL;
    struct builder b = {.root = root, .origin = origin};
    if (bytes > FR_CONF_MAX_BYTES)
        return fail_at(&b, 1, 1, "a config of more than %d bytes", FR_CONF_MAX_BYTES);
    char *copy = fr__arena_alloc(&root->arena, bytes + 1); /* zero-terminated */
    if (!copy) return no_memory(&b);
    if (bytes) memcpy(copy, text, bytes);
    FR_TRY(check_characters(&b, copy, bytes));
    fr_status status = parse(&b, copy, bytes);
    fr__vec_fini(&b.anchors);
    fr__text_fini(&b.text);
    if (status == FR_OK) *out = b.value;
    return status;
}

/* --- documents ---------------------------------------------------------------------------- */

fr_status fr__conf_set(fr_conf *top, const char *set)
{
    struct fr__conf_root *root = top->root;
    const char *origin = fr__arena_printf(&root->arena, "--set %s", set);
    const char *equals = strchr(set, '=');
    if (!origin) return fr__conf_no_memory(top);
    if (!fr__utf8_is_valid(set))
        return fr_fail(root->ctx, FR_INVALID, "%s: not UTF-8 text", origin);
    if (!equals || equals == set)
        return fr_fail(root->ctx, FR_INVALID, "%s: expected key=value, such as train.batch=64",
                       origin);
    fr_conf *at = top;
    int depth = 0;
    for (const char *from = set, *end; from <= equals; from = end + 1) {
        for (end = from; *end != '.' && end != equals;) end++;
        char key[FR_CONF_MAX_KEY + 1];
        size_t n = (size_t)(end - from);
        if (n == 0 || n > FR_CONF_MAX_KEY || ++depth > FR_CONF_MAX_DEPTH / 2)
            return fr_fail(root->ctx, FR_INVALID, "%s: \"%.*s\" is not a key", origin,
                           n < 60 ? (int)n : 60, from);
        memcpy(key, from, n);
        key[n] = '\0';
        if (at->kind == FR_CONF_SCALAR && fr__conf_is_null(at)) at->kind = FR_CONF_MAPPING;
        if (at->kind != FR_CONF_MAPPING)
            return fr_fail(root->ctx, FR_INVALID, "%s: %s is not a mapping (%s)", origin,
                           fr__conf_path(at), fr__conf_place(at));
        fr_conf *child = fr__conf_child(at, key);
        if (!child) child = fr__conf_add(at, key);
        if (!child) return fr__conf_no_memory(at);
        child->is_given = child->has_value = true;
        if (!child->key_line) child->origin = origin;
        at = child;
    }
    fr_conf *value;
    FR_TRY(fr__conf_read(root, equals + 1, strlen(equals + 1), origin, &value));
    fr__conf_assign(at, value);
    at->origin = origin;
    return FR_OK;
}

static fr_status create(fr_ctx *ctx, const char *text, size_t bytes, const char *name,
                        struct fr__conf_root **out)
{
    struct fr__conf_root *root = FR_NEW(struct fr__conf_root);
    *out = root;
    if (!root) return fr__no_memory(ctx, sizeof *root, name);
    root->ctx = ctx;
    root->head = "";
    root->name = fr__arena_strdup(&root->arena, name);
    if (!root->name) return fr__no_memory(ctx, strlen(name), name);
    fr_conf *top;
    FR_TRY(fr__conf_read(root, text, bytes, NULL, &top));
    if (!top && !(top = fr__conf_new(root))) return fr__no_memory(ctx, sizeof *top, name);
    root->top = top;
    if (top->kind == FR_CONF_SCALAR && fr__conf_is_null(top)) top->kind = FR_CONF_MAPPING;
    top->is_given = top->is_known = top->has_value = true;
    if (top->kind == FR_CONF_MAPPING) return FR_OK;
    return fr_fail(ctx, FR_INVALID,
                   "%s: a config must be a mapping of keys to values, but this is a %s", name,
                   top->kind == FR_CONF_LIST ? "list" : "single value");
}

static void drop(struct fr__conf_root *root)
{
    if (!root) return;
    fr__arena_fini(&root->arena);
    fr__free(root);
}

fr_status fr_conf_parse(fr_ctx *ctx, const char *text, size_t bytes, const char *name,
                        fr_conf **out)
{
    struct fr__conf_root *root;
    fr_status status = create(ctx, text, bytes, name, &root);
    *out = status == FR_OK ? root->top : NULL;
    if (status != FR_OK) drop(root);
    return status;
}

static fr_status keep_head(struct fr__conf_root *root, const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && text[n] == '#') {
        const char *end = memchr(text + n, '\n', bytes - n);
        n = end ? (size_t)(end - text) + 1 : bytes;
    }
    root->head = fr__arena_printf(&root->arena, "%.*s", (int)n, text);
    return root->head ? FR_OK : fr__no_memory(root->ctx, n, root->name);
}

fr_status fr__conf_from_text(fr_ctx *ctx, const char *text, size_t bytes, const char *name,
                             int n_sets, const char *const *sets, fr_conf **out)
{
    fr_conf *top;
    fr_status status = fr_conf_parse(ctx, text, bytes, name, &top);
    if (status == FR_OK) status = keep_head(top->root, text, bytes);
    for (int i = 0; i < n_sets && status == FR_OK; i++) status = fr__conf_set(top, sets[i]);
    if (status != FR_OK) {
        fr_conf_free(top);
        top = NULL;
    }
    *out = top;
    return status;
}

fr_status fr_conf_load(fr_ctx *ctx, const char *path, int n_sets, const char *const *sets,
                       fr_conf **out)
{
    unsigned char *text;
    size_t bytes;
    *out = NULL;
    FR_TRY(fr__file_read(ctx, path, FR_CONF_MAX_BYTES, &text, &bytes));
    fr_status status = fr__conf_from_text(ctx, (const char *)text, bytes, path, n_sets, sets, out);
    fr__free(text);
    return status;
}

void fr_conf_free(fr_conf *top)
{
    if (top) drop(top->root);
}
