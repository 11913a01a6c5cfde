/* profile_text.c -- profiles as PipeDream's text (Narayanan et al., SOSP 2019), read and written.
 *
 *     node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000,
 *         activation_size=154140672.0, parameter_size=0.000        (one line, milliseconds, bytes)
 *     node2 -- Conv2d(3, 64, ...) -- forward_compute_time=22.3, ... [-- stage_id=3]
 *     	node1 -- node2
 *
 * Nodes are in any order, and an edge may precede its nodes. A depth-first walk in the order of
 * node numbers sorts them topologically: numbers that are already topological keep their order, and
 * a walk that meets a node on its own stack has found a cycle. */
#include "cost/profile.h"

#include "base/names.h"
#include "base/vec.h"
#include "io/conf.h"
#include "io/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct item {
    fr_profile_node node; /* pointers into the text of the file */
    int line;
    long number; /* 17 of "node17"; file order if there is no number */
    int n_inputs, first_input;
    int place; /* position in sorted order; -1: not reached, -2: on the stack */
};

struct edge {
    const char *from, *to;
    int line, a, b; /* indices of items, once resolved */
};

struct reader {
    fr_ctx *ctx;
    const char *path;
    int line;
    FR_VEC(struct item) items;
    FR_VEC(struct edge) edges;
    fr__names names;
    int *inputs;                     /* (edges) items, grouped by their readers */
    int *by_number, *stack, *sorted; /* (items) */
};

FR_PRINTF(3, 4)
static fr_status fail_at(const struct reader *r, int line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fr_fail(r->ctx, FR_INVALID, "%s:%d: %s", r->path, line, text);
}

static fr_status no_memory(const struct reader *r)
{
    return fr__no_memory(r->ctx, r->items.n * sizeof *r->items.at, r->path);
}

/* --- lines ------------------------------------------------------------------------------------ */

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1])) text[--n] = '\0';
    return text;
}

/* Terminate the first part of *rest at the separator and advance *rest; NULL at the end. */
static char *part(char **rest, const char *separator)
{
    char *text = *rest;
    if (!text) return NULL;
    char *end = strstr(text, separator);
    *rest = end ? end + strlen(separator) : NULL;
    if (end) *end = '\0';
    return trim(text);
}

static fr_status number(const struct reader *r, const char *key, const char *text, double *out)
{
    if (fr__real_scan(text, out) && *out >= 0 && isfinite(*out)) return FR_OK;
    return fail_at(r, r->line, "%s: expected a number of at least 0, found \"%.40s\"", key, text);
}

/* A number, or the sum of a list: "[12.0; 4.0]". */
static fr_status numbers(const struct reader *r, const char *key, char *text, double *out)
{
    size_t n = strlen(text);
    if (*text != '[') return number(r, key, text, out);
    if (text[n - 1] != ']') return fail_at(r, r->line, "%s: the list has no end", key);
    text[n - 1] = '\0';
    char *rest = text + 1;
    *out = 0;
    for (const char *one; (one = part(&rest, ";")) != NULL;) {
        double value;
        FR_TRY(number(r, key, one, &value));
        *out += value;
    }
    return FR_OK;
}

static fr_status read_fields(const struct reader *r, char *fields, fr_profile_node *n)
{
    static const char *const keys[] = {"forward_compute_time", "backward_compute_time",
                                       "activation_size", "parameter_size"};
    double values[4];
    bool has[4] = {0};
    char *rest = fields;
    for (char *field; (field = part(&rest, ",")) != NULL;) {
        char *value = strchr(field, '=');
        int k = 0;
        if (value) *value++ = '\0';
        while (k < 4 && strcmp(field, keys[k]) != 0) k++;
        if (k == 4 || !value || has[k])
            return fail_at(r, r->line,
                           "\"%.40s\": expected each of %s, %s, %s and %s once, as "
                           "key=value",
                           field, keys[0], keys[1], keys[2], keys[3]);
        has[k] = true;
        FR_TRY(numbers(r, keys[k], trim(value), &values[k]));
    }
    for (int k = 0; k < 4; k++)
        if (!has[k]) return fail_at(r, r->line, "%s is missing", keys[k]);
    if (values[2] > 9e15 || values[3] > 9e15) return fail_at(r, r->line, "a size beyond 9e15");
    n->forward_s = values[0] / 1e3;
    n->backward_s = values[1] / 1e3;
    n->output_bytes = n->kept_bytes = llround(values[2]);
    n->param_bytes = llround(values[3]);
    return FR_OK;
}

static fr_status read_node(struct reader *r, char *line)
{
    struct item it = {.line = r->line, .place = -1, .number = (long)r->items.n};
    char *rest = line, *fields, *stage;
    it.node.name = part(&rest, " -- ");
    it.node.about = part(&rest, " -- ");
    fields = part(&rest, " -- ");
    stage = part(&rest, " -- ");
    if (!fields || rest)
        return fail_at(r, r->line,
                       "expected NODE -- DESCRIPTION -- forward_compute_time=..., "
                       "backward_compute_time=..., activation_size=..., parameter_size=...");
    int64_t stage_id;
    if (stage && (strncmp(stage, "stage_id=", 9) != 0 || !fr__int_scan(stage + 9, &stage_id)))
        return fail_at(r, r->line, "expected stage_id=NUMBER at the end, found \"%.40s\"", stage);
    FR_TRY(read_fields(r, fields, &it.node));
    it.node.back_input_s = it.node.back_weight_s = NAN;
    size_t word = strcspn(it.node.name, "0123456789");
    if (it.node.name[word]) it.number = strtol(it.node.name + word, NULL, 10);
    int twin = fr__names_find(&r->names, it.node.name);
    if (twin >= 0)
        return fail_at(r, r->line, "duplicate node \"%.60s\", first on line %d", it.node.name,
                       r->items.at[twin].line);
    if (!*it.node.name) return fail_at(r, r->line, "a node without a name");
    if (!fr__names_add(&r->names, it.node.name, (int)r->items.n)) return no_memory(r);
    return fr__vec_push(&r->items, it) ? FR_OK : no_memory(r);
}

static fr_status read_edge(struct reader *r, char *line)
{
    char *rest = line;
    struct edge e = {.line = r->line};
    e.from = part(&rest, " -- ");
    e.to = part(&rest, " -- ");
    if (!e.to || rest || !*e.from || !*e.to)
        return fail_at(r, r->line, "expected an edge, NODE -- NODE, after the tab");
    return fr__vec_push(&r->edges, e) ? FR_OK : no_memory(r);
}

static fr_status read_lines(struct reader *r, char *text)
{
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        r->line++;
        if (!line[strspn(line, " \t\r")]) continue;
        FR_TRY(*line == '\t' ? read_edge(r, line) : read_node(r, line));
    }
    if (r->items.n == 0) return fail_at(r, 1, "no nodes: neither JSON nor a PipeDream profile");
    return FR_OK;
}

/* --- order ------------------------------------------------------------------------------------ */

static fr_status group_inputs(struct reader *r)
{
    for (size_t i = 0; i < r->edges.n; i++) {
        struct edge *e = &r->edges.at[i];
        e->a = fr__names_find(&r->names, e->from);
        e->b = fr__names_find(&r->names, e->to);
        if (e->a < 0 || e->b < 0)
            return fail_at(r, e->line, "there is no node \"%.60s\"", e->a < 0 ? e->from : e->to);
        r->items.at[e->b].first_input++;
    }
    int first = 0;
    for (size_t i = 0; i < r->items.n; i++) {
        int n = r->items.at[i].first_input;
        r->items.at[i].first_input = first;
        first += n;
    }
    for (size_t i = 0; i < r->edges.n; i++) {
        struct item *it = &r->items.at[r->edges.at[i].b];
        r->inputs[it->first_input + it->n_inputs++] = r->edges.at[i].a;
    }
    return FR_OK;
}

struct numbered {
    long number;
    int item;
};

static int compare_numbered(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->item - y->item;
}

static fr_status order_by_number(struct reader *r)
{
    struct numbered *list = FR_NEW_ARRAY(struct numbered, r->items.n);
    if (!list) return no_memory(r);
    for (size_t i = 0; i < r->items.n; i++)
        list[i] = (struct numbered){r->items.at[i].number, (int)i};
    qsort(list, r->items.n, sizeof *list, compare_numbered);
    for (size_t i = 0; i < r->items.n; i++) r->by_number[i] = list[i].item;
    fr__free(list);
    return FR_OK;
}

/* The walk is at stack[depth - 1] and met `at`, which is lower on the stack. */
static fr_status cycle(const struct reader *r, int depth, int at)
{
    char text[300] = "";
    size_t n = 0;
    int from = depth - 1;
    while (r->stack[from] != at) from--;
    for (int i = depth - 1; i >= from && n < sizeof text - 80; i--)
        n += (size_t)snprintf(text + n, sizeof text - n, "%.30s -> ",
                              r->items.at[r->stack[i]].node.name);
    return fail_at(r, r->items.at[at].line, "nodes form a cycle: %.30s -> %s...",
                   r->items.at[at].node.name, text);
}

static fr_status walk_from(struct reader *r, int root, int *n_sorted)
{
    int depth = 0;
    if (r->items.at[root].place != -1) return FR_OK;
    r->stack[depth++] = root;
    r->items.at[root].place = -2;
    while (depth > 0) {
        struct item *it = &r->items.at[r->stack[depth - 1]];
        if (it->node.n_inputs == it->n_inputs) { /* counts the visited inputs */
            it->place = *n_sorted;
            r->sorted[(*n_sorted)++] = r->stack[--depth];
            continue;
        }
        int in = r->inputs[it->first_input + it->node.n_inputs++];
        if (r->items.at[in].place == -2) return cycle(r, depth, in);
        if (r->items.at[in].place >= 0) continue;
        r->items.at[in].place = -2;
        r->stack[depth++] = in;
    }
    return FR_OK;
}

static fr_status sort(struct reader *r)
{
    int n_sorted = 0;
    FR_TRY(group_inputs(r));
    FR_TRY(order_by_number(r));
    for (size_t i = 0; i < r->items.n; i++) FR_TRY(walk_from(r, r->by_number[i], &n_sorted));
    for (size_t i = 0; i < r->edges.n; i++) r->inputs[i] = r->items.at[r->inputs[i]].place;
    return FR_OK;
}

static fr_status make(struct reader *r, const fr_profile **out)
{
    fr_profile p = {.n_nodes = (int)r->items.n};
    p.nodes = FR_NEW_ARRAY(fr_profile_node, p.n_nodes);
    if (!p.nodes) return no_memory(r);
    for (int i = 0; i < p.n_nodes; i++) {
        const struct item *it = &r->items.at[r->sorted[i]];
        int *inputs = r->inputs + it->first_input;
        qsort(inputs, (size_t)it->n_inputs, sizeof *inputs, fr__by_int);
        p.nodes[i] = it->node;
        p.nodes[i].inputs = inputs;
        p.nodes[i].is_input = it->n_inputs == 0 && strncmp(it->node.about, "Input", 5) == 0;
    }
    fr_status status = fr_profile_copy(r->ctx, &p, out);
    fr__free(p.nodes);
    return status;
}

fr_status fr__profile_from_text(fr_ctx *ctx, const char *path, char *text, const fr_profile **out)
{
    struct reader r = {.ctx = ctx, .path = path};
    fr_status status = read_lines(&r, text);
    int *lists = NULL;
    if (status == FR_OK) {
        lists = FR_NEW_ARRAY(int, r.edges.n + 3 * r.items.n);
        if (!lists) status = no_memory(&r);
    }
    if (status == FR_OK) {
        r.inputs = lists;
        r.by_number = lists + r.edges.n;
        r.stack = r.by_number + r.items.n;
        r.sorted = r.stack + r.items.n;
        status = sort(&r);
    }
    if (status == FR_OK) status = make(&r, out);
    fr__free(lists);
    fr__vec_fini(&r.items);
    fr__vec_fini(&r.edges);
    fr__names_fini(&r.names);
    return status;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Names that PipeDream's scripts accept: "node" and a number. */
static bool are_numbered(const fr_profile *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        const char *name = p->nodes[i].name;
        if (strncmp(name, "node", 4) != 0 || !name[4] ||
            name[4 + strspn(name + 4, "0123456789")] != '\0')
            return false;
    }
    return true;
}

static void put_name(fr__text *o, const fr_profile *p, bool keeps, int i)
{
    if (keeps)
        fr__text_put(o, p->nodes[i].name);
    else
        fr__text_printf(o, "node%d", i + 1);
}

static void put_about(fr__text *o, const char *about)
{
    for (const char *t = about; *t; t++) { /* no text that would end the description */
        bool ends = (unsigned char)*t < ' ' || (*t == '-' && t > about && t[-1] == '-');
        fr__text_put_bytes(o, ends ? "_" : t, 1);
    }
}

static void put_node(fr__text *o, const fr_profile *p, bool keeps, int i)
{
    const fr_profile_node *n = &p->nodes[i];
    char forward[32], backward[32];
    fr__real_format(n->forward_s * 1e3, forward);
    fr__real_format(n->backward_s * 1e3, backward);
    put_name(o, p, keeps, i);
    fr__text_put(o, " -- ");
    bool says_input = strncmp(keeps ? n->about : n->name, "Input", 5) == 0;
    if (n->is_input && (!keeps || !says_input)) fr__text_put(o, "Input ");
    if (!n->is_input && n->n_inputs == 0 && says_input) fr__text_put(o, "_");
    if (!keeps) {
        put_about(o, n->name);
        fr__text_put(o, " ");
    }
    put_about(o, n->about);
    fr__text_printf(o,
                    " -- forward_compute_time=%s, backward_compute_time=%s, activation_size=%lld, "
                    "parameter_size=%lld\n",
                    forward, backward, (long long)n->output_bytes, (long long)n->param_bytes);
}

fr_status fr__profile_to_text(fr_ctx *ctx, const fr_profile *p, char **text)
{
    fr__text o = {0};
    bool keeps = are_numbered(p);
    for (int i = 0; i < p->n_nodes; i++) put_node(&o, p, keeps, i);
    for (int i = 0; i < p->n_nodes; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++) {
            fr__text_put(&o, "\t");
            put_name(&o, p, keeps, p->nodes[i].inputs[k]);
            fr__text_put(&o, " -- ");
            put_name(&o, p, keeps, i);
            fr__text_put(&o, "\n");
        }
    *text = fr__text_take(&o);
    if (*text) return FR_OK;
    return fr__no_memory(ctx, (size_t)p->n_nodes, "the text of a profile");
}
