/* profile_json.c -- profiles as JSON, one line per node; inputs by name, or by number from 0.
 *
 *     {"format": 1, "model": "mlp", "machine": "...", "batch": 32, ...,
 *      "nodes": [
 *        {"name": "fc1", "about": "linear (512)", "forward_s": 0.001, ..., "inputs": ["x"]},
 *        ...]}
 *
 * A file may hold several profiles in sequence: micro-batches of several sizes.
 *
 * The JSON library does not report positions of values, so for an error message the line of a node
 * is found by a second pass over the text. A value of the library takes ten times the memory of its
 * text, so nodes, of which there may be 100,000, are loaded one by one. */
#include "cost/profile.h"

#include "base/names.h"
#include "base/vec.h"
#include "io/json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { FORMAT = 1 };

/* --- writing ---------------------------------------------------------------------------------- */

static void put_node(fr__json *j, const fr_profile *p, const fr_profile_node *n)
{
    fr__json_object(j, NULL);
    int indent = j->indent;
    j->indent = 0;
    fr__json_text(j, "name", n->name);
    fr__json_text(j, "about", n->about);
    if (n->is_input) fr__json_bool(j, "is_input", true);
#define FR_X(field, must) \
    if (!isnan(n->field)) fr__json_real(j, #field, n->field);
    FR_PROFILE_REALS(FR_X)
#undef FR_X
#define FR_X(field, must) fr__json_int(j, #field, n->field);
    FR_PROFILE_INTS(FR_X)
#undef FR_X
    fr__json_list(j, "inputs");
    for (int k = 0; k < n->n_inputs; k++) fr__json_text(j, NULL, p->nodes[n->inputs[k]].name);
    fr__json_end(j);
    fr__json_end(j);
    j->indent = indent;
}

/* A profile of one size. */
static void put(fr__text *to, const fr_profile *p)
{
    fr__json json, *j = &json;
    fr__json_to_text(j, 1);
    fr__json_object(j, NULL);
    fr__json_int(j, "format", FORMAT);
    fr__json_text(j, "model", p->model);
    fr__json_text(j, "machine", p->machine);
    fr__json_int(j, "batch", p->batch);
    fr__json_int(j, "n_micro", p->n_micro);
    fr__json_real(j, "step_s", p->step_s);
    fr__json_real(j, "accounted", p->accounted);
    fr__json_real(j, "jitter", p->jitter);
    fr__json_real(j, "workspace_bytes", p->workspace_bytes);
    fr__json_real(j, "state_per_weight", p->state_per_weight);
    fr__json_text(j, "precision", p->precision == FR_BF16 ? "bf16" : "fp32");
    fr__json_list(j, "nodes");
    for (int i = 0; i < p->n_nodes; i++) put_node(j, p, &p->nodes[i]);
    fr__json_end(j);
    fr__json_end(j);
    char *text = fr__json_take(j, "\n");
    if (text)
        fr__text_put(to, text);
    else
        to->failed = true;
    fr__free(text);
}

fr_status fr__profile_to_json(fr_ctx *ctx, const fr_profile *p, char **text)
{
    fr__text all = {0};
    put(&all, p);
    for (int i = 0; i < p->n_sizes; i++) put(&all, p->sizes[i]);
    *text = fr__text_take(&all);
    return *text ? FR_OK : fr__no_memory(ctx, (size_t)p->n_nodes, "the text of a profile");
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Where the list "nodes" of a profile begins and ends, and where the profile ends. */
struct parts {
    const char *nodes, *nodes_end; /* behind '[', at ']' */
    const char *end;
};

struct reader {
    fr_ctx *ctx;
    const char *path, *text; /* text: this profile and the rest of the file */
    size_t bytes;            /* of the text */
    struct parts parts;      /* nodes NULL: the profile is loaded as a whole */
    int first_line;
    fr_arena arena;
    fr_profile profile; /* all in the arena, but for: */
    FR_VEC(fr_profile_node) nodes;
    fr__names names;
};

/* Line of item i of the list "nodes"; i < 0: first line of the document. */
static int line_of(const struct reader *r, int i)
{
    int line = r->first_line, depth = 0, seen = -1;
    bool in_text = false;
    for (const char *t = r->text; *t; t++) {
        line += *t == '\n';
        if (in_text && *t == '\\' && t[1]) {
            t++;
        } else if (*t == '"') {
            in_text = !in_text;
        } else if (!in_text && (*t == '{' || *t == '[')) {
            depth++;
            if (i < 0 || (*t == '{' && depth == 3 && ++seen == i)) return line;
        } else if (!in_text && (*t == '}' || *t == ']')) {
            depth--;
        }
    }
    return line;
}

FR_PRINTF(3, 4)
static fr_status fail_at(const struct reader *r, int i, const char *format, ...)
{
    char text[512], node[24] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (i >= 0) snprintf(node, sizeof node, "node %d: ", i);
    return fr_fail(r->ctx, FR_INVALID, "%s:%d: %s%s", r->path, line_of(r, i), node, text);
}

static fr_status check_keys(const struct reader *r, int i, json_t *o, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value)
    {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) k++;
        if (!*k) return fail_at(r, i, "unknown key \"%.60s\"", key);
    }
    return FR_OK;
}

/* False: there are no such parts, or the text is not JSON. */
static bool find_parts(const char *text, struct parts *out)
{
    const char *key = NULL, *begin = NULL; /* last text of the outermost object; the current text */
    int depth = 0;
    *out = (struct parts){0};
    for (const char *t = text; *t; t++) {
        if (begin) {
            if (*t == '\\' && t[1]) {
                t++;
            } else if (*t == '"') {
                if (depth == 1) key = begin;
                begin = NULL;
            }
        } else if (*t == '"') {
            begin = t;
        } else if (*t == '{' || *t == '[') {
            bool is_list = ++depth == 2 && *t == '[';
            if (is_list && key && !out->nodes && strncmp(key, "\"nodes\"", 7) == 0)
                out->nodes = t + 1;
        } else if (*t == '}' || *t == ']') {
            depth--;
            if (depth == 1 && out->nodes && !out->nodes_end) out->nodes_end = t;
            out->end = t + 1;
            if (depth == 0) return out->nodes_end != NULL;
        }
    }
    return false;
}

/* The profile without its nodes. */
static json_t *load_head(const struct reader *r, const struct parts *parts)
{
    json_error_t error;
    size_t before = (size_t)(parts->nodes - r->text), n = (size_t)(parts->end - parts->nodes_end);
    char *head = fr__alloc(before + n);
    if (!head) return NULL;
    memcpy(head, r->text, before);
    memcpy(head + before, parts->nodes_end, n);
    json_t *o = json_loadb(head, before + n, JSON_REJECT_DUPLICATES, &error);
    fr__free(head);
    return o;
}

/* The whole profile; its syntax errors name line and column. */
static fr_status load_whole(const struct reader *r, json_error_t *error, json_t **out)
{
    *out = json_loadb(r->text, r->bytes, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, error);
    if (*out) return FR_OK;
    return fr_fail(r->ctx, FR_INVALID, "%s:%d:%d: %s", r->path, r->first_line + error->line - 1,
                   error->column, error->text);
}

/* A number of at least 0. If it is absent (or null) and not required, *out keeps its value. */
static fr_status get_real(const struct reader *r, int i, json_t *o, const char *key, bool must,
                          double *out)
{
    json_t *v = json_object_get(o, key);
    if (!must && (!v || json_is_null(v))) return FR_OK;
    double value = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(value >= 0))
        return fail_at(r, i, "%s: expected a number of at least 0, found %s", key,
                       !v                  ? "nothing"
                       : json_is_number(v) ? "a negative one"
                                           : "something else");
    *out = value;
    return FR_OK;
}

static fr_status get_int(const struct reader *r, int i, json_t *o, const char *key, bool must,
                         int64_t max, int64_t *out)
{
    double value = (double)*out;
    FR_TRY(get_real(r, i, o, key, must, &value));
    if (value != floor(value) || value > (double)max)
        return fail_at(r, i, "%s: expected a whole number up to %lld, found %g", key,
                       (long long)max, value);
    json_t *v = json_object_get(o, key);
    *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)value;
    return FR_OK;
}

static fr_status get_text(struct reader *r, int i, json_t *o, const char *key, bool must,
                          const char **out)
{
    json_t *v = json_object_get(o, key);
    const char *text = json_is_string(v) ? json_string_value(v) : NULL;
    if (!v && !must) text = "";
    if (!text || (must && !*text)) return fail_at(r, i, "%s: expected a text", key);
    *out = fr__arena_strdup(&r->arena, text);
    return *out ? FR_OK : fr__no_memory(r->ctx, strlen(text), r->path);
}

static fr_status get_inputs(struct reader *r, int i, json_t *list, fr_profile_node *n)
{
    if (!list) return FR_OK;
    if (!json_is_array(list)) return fail_at(r, i, "inputs: expected a list");
    n->n_inputs = (int)json_array_size(list);
    int *inputs = fr__arena_pack(&r->arena, json_array_size(list) * sizeof *inputs);
    if (!inputs) return fr__no_memory(r->ctx, json_array_size(list), r->path);
    for (int k = 0; k < n->n_inputs; k++) {
        json_t *v = json_array_get(list, (size_t)k);
        if (json_is_string(v)) {
            inputs[k] = fr__names_find(&r->names, json_string_value(v));
            if (inputs[k] < 0)
                return fail_at(r, i, "input \"%.60s\" is not an earlier node",
                               json_string_value(v));
        } else if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < i) {
            inputs[k] = (int)json_integer_value(v);
        } else {
            return fail_at(r, i, "inputs: expected names or numbers of earlier nodes");
        }
    }
    n->inputs = inputs;
    return FR_OK;
}

static fr_status get_node(struct reader *r, int i, json_t *o)
{
    static const char *const known[] = {"name", "about", "is_input", "inputs",
#define FR_X(field, must) #field,
                                        FR_PROFILE_REALS(FR_X) FR_PROFILE_INTS(FR_X)
#undef FR_X
                                            NULL};
    if (!fr__vec_push(&r->nodes, (fr_profile_node){0}))
        return fr__no_memory(r->ctx, sizeof *r->nodes.at, r->path);
    r->profile.nodes = r->nodes.at;
    r->profile.n_nodes = i + 1;
    fr_profile_node *n = &r->nodes.at[i];
    if (!json_is_object(o)) return fail_at(r, i, "expected an object");
    FR_TRY(check_keys(r, i, o, known));
    FR_TRY(get_text(r, i, o, "name", true, &n->name));
    FR_TRY(get_text(r, i, o, "about", false, &n->about));
    n->back_input_s = n->back_weight_s = NAN;
    n->kept_bytes = -1;
#define FR_X(field, must) FR_TRY(get_real(r, i, o, #field, must, &n->field));
    FR_PROFILE_REALS(FR_X)
#undef FR_X
#define FR_X(field, must)                   \
    if (must || json_object_get(o, #field)) \
        FR_TRY(get_int(r, i, o, #field, must, INT64_MAX / 2, &n->field));
    FR_PROFILE_INTS(FR_X)
#undef FR_X
    if (n->kept_bytes < 0) n->kept_bytes = n->output_bytes;
    json_t *is_input = json_object_get(o, "is_input");
    if (is_input && !json_is_boolean(is_input))
        return fail_at(r, i, "is_input: expected true or false");
    n->is_input = json_is_true(is_input);
    FR_TRY(get_inputs(r, i, json_object_get(o, "inputs"), n));
    char text[256];
    if (!fr__profile_is_sound(&r->profile, i, text)) return fail_at(r, i, "%s", text);
    if (fr__names_find(&r->names, n->name) >= 0)
        return fail_at(r, i, "node %d has the same name \"%.60s\"",
                       fr__names_find(&r->names, n->name), n->name);
    if (!fr__names_add(&r->names, n->name, i)) return fr__no_memory(r->ctx, 0, r->path);
    return FR_OK;
}

static const char *skip_blanks(const char *t) { return t + strspn(t, " \t\r\n"); }

/* The nodes, each parsed separately. */
static fr_status get_parts(struct reader *r)
{
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY };
    const char *t = skip_blanks(r->parts.nodes), *end = r->parts.nodes_end;
    json_error_t error;
    json_t *o;
    for (int i = 0; t < end; i++) {
        o = json_loadb(t, (size_t)(end - t), FLAGS, &error);
        if (!o) break;
        t = skip_blanks(t + error.position);
        fr_status status = get_node(r, i, o);
        json_decref(o);
        if (status != FR_OK || t == end) return status;
        if (*t++ != ',') break;
    }
    if (r->nodes.n == 0 && t == end) return FR_OK;
    FR_TRY(load_whole(r, &error, &o)); /* which fails, and names the place */
    json_decref(o);
    return fail_at(r, -1, "nodes: expected a list");
}

static fr_status get_nodes(struct reader *r, json_t *nodes)
{
    if (r->parts.nodes) FR_TRY(get_parts(r));
    if (!json_is_array(nodes) || json_array_size(nodes) + r->nodes.n == 0)
        return fail_at(r, -1, "nodes: expected a list of at least one");
    for (size_t i = 0; i < json_array_size(nodes); i++)
        FR_TRY(get_node(r, (int)i, json_array_get(nodes, i)));
    return FR_OK;
}

static fr_status get_all(struct reader *r, json_t *o)
{
    static const char *const known[] = {
        "format",    "model",     "machine", "batch",           "n_micro",
        "step_s",    "accounted", "jitter",  "workspace_bytes", "state_per_weight",
        "precision", "nodes",     NULL};
    fr_profile *p = &r->profile;
    const char *precision;
    int64_t format = 0, batch = 0, n_micro = 0;
    if (!json_is_object(o)) return fail_at(r, -1, "expected an object");
    FR_TRY(get_int(r, -1, o, "format", true, INT64_MAX / 2, &format));
    if (format != FORMAT)
        return fail_at(r, -1, "format is %lld; this Forerun reads format %d", (long long)format,
                       FORMAT);
    FR_TRY(check_keys(r, -1, o, known));
    FR_TRY(get_text(r, -1, o, "model", false, &p->model));
    FR_TRY(get_text(r, -1, o, "machine", false, &p->machine));
    FR_TRY(get_int(r, -1, o, "batch", false, INT32_MAX, &batch));
    FR_TRY(get_int(r, -1, o, "n_micro", false, INT32_MAX, &n_micro));
    FR_TRY(get_real(r, -1, o, "step_s", false, &p->step_s));
    FR_TRY(get_real(r, -1, o, "accounted", false, &p->accounted));
    FR_TRY(get_real(r, -1, o, "jitter", false, &p->jitter));
    FR_TRY(get_real(r, -1, o, "workspace_bytes", false, &p->workspace_bytes));
    FR_TRY(get_real(r, -1, o, "state_per_weight", false, &p->state_per_weight));
    FR_TRY(get_text(r, -1, o, "precision", false, &precision));
    if (*precision && strcmp(precision, "fp32") != 0 && strcmp(precision, "bf16") != 0)
        return fail_at(r, -1, "precision: '%s' is neither 'fp32' nor 'bf16'", precision);
    p->precision = strcmp(precision, "bf16") == 0 ? FR_BF16 : FR_F32;
    p->batch = (int)batch;
    p->n_micro = (int)n_micro;
    return get_nodes(r, json_object_get(o, "nodes"));
}

/* Read the profile at text + *at; *at moves past it and the following blanks. */
static fr_status read_one(fr_ctx *ctx, const char *path, const char *text, size_t bytes, size_t *at,
                          int *line, const fr_profile **out)
{
    struct reader r = {
        .ctx = ctx, .path = path, .text = text + *at, .bytes = bytes - *at, .first_line = *line};
    json_error_t error;
    json_t *o = find_parts(r.text, &r.parts) ? load_head(&r, &r.parts) : NULL;
    size_t end = o ? (size_t)(r.parts.end - text) : 0;
    if (!o) {
        r.parts.nodes = NULL;
        FR_TRY(load_whole(&r, &error, &o));
        end = *at + (size_t)error.position;
    }
    fr_status status = get_all(&r, o);
    if (status == FR_OK) status = fr_profile_copy(ctx, &r.profile, out);
    json_decref(o);
    fr__names_fini(&r.names);
    fr__vec_fini(&r.nodes);
    fr__arena_fini(&r.arena);
    end = (size_t)(skip_blanks(text + end) - text);
    for (; *at < end; ++*at) *line += text[*at] == '\n';
    return status;
}

/* Errors name the file. A single profile is moved. */
static fr_status gather(fr_ctx *ctx, const char *path, int n, const fr_profile **all,
                        const fr_profile **out)
{
    if (n == 1) {
        *out = all[0], all[0] = NULL;
        return FR_OK;
    }
    fr_status status = fr_profile_gather(ctx, n, (const fr_profile *const *)all, out);
    return status == FR_OK ? FR_OK : fr_fail(ctx, status, "%s: %s", path, fr_ctx_error(ctx));
}

fr_status fr__profile_from_json(fr_ctx *ctx, const char *path, const char *text, size_t bytes,
                                const fr_profile **out)
{
    FR_VEC(const fr_profile *) all = {0};
    fr_status status = FR_OK;
    int line = 1;
    for (size_t at = 0; status == FR_OK && at < bytes;) {
        const fr_profile *p = NULL;
        status = read_one(ctx, path, text, bytes, &at, &line, &p);
        if (status != FR_OK || fr__vec_push(&all, p)) continue;
        fr_profile_free(p);
        status = fr__no_memory(ctx, sizeof p, path);
    }
    if (status == FR_OK) status = gather(ctx, path, (int)all.n, all.at, out);
    for (size_t i = 0; i < all.n; i++) fr_profile_free(all.at[i]);
    fr__vec_fini(&all);
    return status;
}
