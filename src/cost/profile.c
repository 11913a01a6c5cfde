/* profile.c -- copies, checks, joins, reads and frees profiles.
 *
 * A reader, probe or test fills an fr_profile in any memory and copies it. The copy owns its texts
 * and lists in one arena, is checked once, and is immutable afterwards. */
#include "cost/profile.h"

#include "base/names.h"
#include "base/utf8.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void fr_profile_free(const fr_profile *p)
{
    if (!p) return;
    struct fr__profile_store *s = p->arena;
    for (int i = 0; i < s->n_own; i++) fr_profile_free(s->own[i]);
    pthread_mutex_destroy(&s->lock);
    fr__arena_fini(&s->costs);
    fr__free(s->memo);
    fr__arena_fini(&s->arena);
    fr__free(s);
}

/* --- copies ----------------------------------------------------------------------------------- */

static bool copy_node(fr_arena *a, const fr_profile_node *from, int i, fr_profile_node *to)
{
    int *inputs = fr__arena_pack(a, fr__array_bytes((size_t)from->n_inputs, sizeof(int)));
    *to = *from;
    to->inputs = inputs;
    to->name = from->name ? fr__arena_strdup(a, from->name) : fr__arena_printf(a, "node%d", i);
    to->about = fr__arena_strdup(a, from->about ? from->about : "");
    if (!inputs || !to->name || !to->about) return false;
    if (from->n_inputs) memcpy(inputs, from->inputs, (size_t)from->n_inputs * sizeof(int));
    return true;
}

static bool copy_all(fr_arena *a, const fr_profile *from, fr_profile *to)
{
    to->model = fr__arena_strdup(a, from->model ? from->model : "");
    to->machine = fr__arena_strdup(a, from->machine ? from->machine : "");
    to->nodes = FR_ARENA_ARRAY(a, fr_profile_node, from->n_nodes);
    if (!to->model || !to->machine || !to->nodes) return false;
    for (int i = 0; i < from->n_nodes; i++)
        if (!copy_node(a, &from->nodes[i], i, &to->nodes[i])) return false;
    return true;
}

fr_status fr__profile_clone(fr_ctx *ctx, const fr_profile *p, fr_profile **out)
{
    size_t bytes = (size_t)p->n_nodes * sizeof *p->nodes;
    *out = NULL;
    struct fr__profile_store *s = FR_NEW(struct fr__profile_store);
    if (!s || pthread_mutex_init(&s->lock, NULL) != 0) {
        fr__free(s);
        return fr__no_memory(ctx, bytes, "a profile");
    }
    fr_profile *copy = &s->profile;
    *copy = *p;
    copy->arena = s;
    copy->n_sizes = 0;
    copy->sizes = NULL;
    if (!copy_all(&s->arena, p, copy)) {
        fr_profile_free(copy);
        return fr__no_memory(ctx, bytes, "a profile");
    }
    *out = copy;
    return FR_OK;
}

static bool is_number(double value, bool may_be_nan)
{
    return (value >= 0 && isfinite(value)) || (may_be_nan && isnan(value));
}

bool fr__profile_is_sound(const fr_profile *p, int i, char text[256])
{
    const fr_profile_node *n = &p->nodes[i];
    const char *field = NULL;
    double value = 0;
#define FR_X(name, must)                                                \
    if (!field && !is_number(n->name, strncmp(#name, "back_", 5) == 0)) \
        field = #name, value = n->name;
    FR_PROFILE_REALS(FR_X)
#undef FR_X
#define FR_X(name, must) \
    if (!field && n->name < 0) field = #name, value = (double)n->name;
    FR_PROFILE_INTS(FR_X)
#undef FR_X
    if (field) {
        snprintf(text, 256, "%s is %g; expected a number of at least 0", field, value);
        return false;
    }
    for (int k = 0; k < n->n_inputs; k++) {
        if (n->inputs[k] >= 0 && n->inputs[k] < i) continue;
        snprintf(text, 256, "input %d is node %d; expected an earlier node (0 to %d)", k,
                 n->inputs[k], i - 1);
        return false;
    }
    if (!n->is_input || n->n_inputs == 0) return true;
    snprintf(text, 256, "it is an input of the model (is_input) but has inputs");
    return false;
}

static fr_status check_names(fr_ctx *ctx, const fr_profile *p)
{
    fr__names names = {0};
    fr_status status = FR_OK;
    for (int i = 0; i < p->n_nodes && status == FR_OK; i++) {
        int twin = fr__names_find(&names, p->nodes[i].name);
        if (twin >= 0)
            status =
                fr_fail(ctx, FR_INVALID, "profile of %s: nodes %d and %d have the same name %s",
                        p->model, twin, i, p->nodes[i].name);
        else if (!fr__names_add(&names, p->nodes[i].name, i))
            status = fr__no_memory(ctx, sizeof names, "the names of a profile");
    }
    fr__names_fini(&names);
    return status;
}

static fr_status check(fr_ctx *ctx, const fr_profile *p)
{
    char text[256];
    bool has_work = false;
    for (int i = 0; i < p->n_nodes; i++) {
        if (!fr__profile_is_sound(p, i, text))
            return fr_fail(ctx, FR_INVALID, "profile of %s: node %d (%s): %s", p->model, i,
                           p->nodes[i].name, text);
        has_work |= !p->nodes[i].is_input;
    }
    if (!has_work)
        return fr_fail(ctx, FR_INVALID, "profile of %s: no node computes anything", p->model);
    if (p->batch < 0 || p->n_micro < 0 || !(p->step_s >= 0) || !(p->accounted >= 0) ||
        !(p->jitter >= 0) || !(p->workspace_bytes >= 0) || !(p->state_per_weight >= 0))
        return fr_fail(ctx, FR_INVALID,
                       "profile of %s: batch, n_micro, step_s, accounted, jitter, workspace_bytes "
                       "and state_per_weight must be at least 0",
                       p->model);
    return check_names(ctx, p);
}

static fr_status look_around(fr_ctx *ctx, const fr_profile *p)
{
    struct fr__profile_store *s = p->arena;
    s->last_use = FR_ARENA_ARRAY(&s->arena, int, p->n_nodes);
    s->has_grad = FR_ARENA_ARRAY(&s->arena, bool, p->n_nodes);
    if (!s->last_use || !s->has_grad)
        return fr__no_memory(ctx, (size_t)p->n_nodes * sizeof(int), "a profile");
    for (int i = 0; i < p->n_nodes; i++) {
        s->last_use[i] = -1;
        s->has_grad[i] = p->nodes[i].param_bytes > 0;
        s->has_workspaces |= p->nodes[i].values_bytes > 0 || p->nodes[i].scratch_bytes > 0;
        for (int k = 0; k < p->nodes[i].n_inputs; k++) {
            s->last_use[p->nodes[i].inputs[k]] = i;
            s->has_grad[i] |= s->has_grad[p->nodes[i].inputs[k]];
        }
    }
    return FR_OK;
}

/* A backward that takes time, and whose parts take none, was not measured in parts. */
static void open_parts(fr_profile *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        fr_profile_node *n = &p->nodes[i];
        if (n->backward_s > 0 && n->back_input_s == 0 && n->back_weight_s == 0)
            n->back_input_s = n->back_weight_s = NAN;
    }
}

fr_status fr__profile_copy_one(fr_ctx *ctx, const fr_profile *p, fr_profile **out)
{
    FR_TRY(fr__profile_clone(ctx, p, out));
    open_parts(*out);
    fr_status status = check(ctx, *out);
    if (status == FR_OK) status = look_around(ctx, *out);
    if (status == FR_OK) return FR_OK;
    fr_profile_free(*out);
    *out = NULL;
    return status;
}

fr_status fr_profile_copy(fr_ctx *ctx, const fr_profile *p, const fr_profile **out)
{
    fr_profile *copy;
    *out = NULL;
    FR_TRY(fr__profile_copy_one(ctx, p, &copy));
    fr_status status = FR_OK;
    if (p->n_sizes > 0) status = fr__profile_add_sizes(ctx, copy, p->n_sizes, p->sizes);
    if (status == FR_OK)
        *out = copy;
    else
        fr_profile_free(copy);
    return status;
}

fr_status fr_profile_join(fr_ctx *ctx, int n, const fr_profile *const *parts,
                          const fr_profile **out)
{
    fr_profile whole = *parts[0];
    *out = NULL;
    whole.n_nodes = 0;
    whole.step_s = whole.accounted = 0;
    for (int i = 0; i < n; i++) whole.n_nodes += parts[i]->n_nodes;
    whole.nodes = FR_NEW_ARRAY(fr_profile_node, whole.n_nodes);
    if (!whole.nodes) return fr__no_memory(ctx, sizeof *whole.nodes, "a profile of all stages");
    fr_profile_node *to = whole.nodes;
    for (int i = 0; i < n; i++) {
        memcpy(to, parts[i]->nodes, (size_t)parts[i]->n_nodes * sizeof *to);
        to += parts[i]->n_nodes;
        if (parts[i]->workspace_bytes > whole.workspace_bytes)
            whole.workspace_bytes = parts[i]->workspace_bytes;
        if (parts[i]->jitter > whole.jitter) whole.jitter = parts[i]->jitter;
    }
    fr_status status = fr_profile_copy(ctx, &whole, out);
    fr__free(whole.nodes);
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

fr_status fr__profile_parse(fr_ctx *ctx, const char *path, char *text, size_t bytes,
                            const fr_profile **out)
{
    *out = NULL;
    if (strlen(text) != bytes)
        return fr_fail(ctx, FR_INVALID, "%s: the file contains zero bytes; a profile is text",
                       path);
    if (!fr__utf8_is_valid(text)) return fr_fail(ctx, FR_INVALID, "%s: not UTF-8 text", path);
    if (text[strspn(text, " \t\r\n")] == '{')
        return fr__profile_from_json(ctx, path, text, bytes, out);
    return fr__profile_from_text(ctx, path, text, out);
}

fr_status fr_profile_read(fr_ctx *ctx, const char *path, const fr_profile **out)
{
    unsigned char *data;
    size_t bytes;
    *out = NULL;
    FR_TRY(fr__file_read(ctx, path, FR_PROFILE_MAX_BYTES, &data, &bytes));
    fr_status status = fr__profile_parse(ctx, path, (char *)data, bytes, out);
    fr__free(data);
    return status;
}

fr_status fr__profile_put(fr_ctx *ctx, const char *path, const char *text, size_t bytes)
{
    if (strcmp(path, "-") != 0) return fr__file_replace(ctx, path, text, bytes);
    return fr__fd_write(ctx, STDOUT_FILENO, "standard output", text, bytes);
}

typedef fr_status (*text_fn)(fr_ctx *ctx, const fr_profile *p, char **text);

static fr_status write_as(text_fn make, fr_ctx *ctx, const fr_profile *p, const char *path)
{
    char *text;
    FR_TRY(make(ctx, p, &text));
    fr_status status = fr__profile_put(ctx, path, text, strlen(text));
    fr__free(text);
    return status;
}

fr_status fr_profile_write_json(fr_ctx *ctx, const fr_profile *p, const char *path)
{
    return write_as(fr__profile_to_json, ctx, p, path);
}

fr_status fr_profile_write_pipedream(fr_ctx *ctx, const fr_profile *p, const char *path)
{
    return write_as(fr__profile_to_text, ctx, p, path);
}
