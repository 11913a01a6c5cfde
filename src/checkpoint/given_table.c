/* given_table.c -- what matched and what did not, as log lines and as one line of error. */
#include "checkpoint/given.h"

#include "base/text.h"

#include <stdio.h>

enum { ROOM = 160, LISTED = 8 };

static const char *shape_text(const fr_tensor_info *t, char text[ROOM])
{
    size_t n = (size_t)snprintf(text, ROOM, "%s (", t->dtype);
    for (int i = 0; i < t->n_dims && n < ROOM; i++)
        n += (size_t)snprintf(text + n, ROOM - n, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    if (n < ROOM) snprintf(text + n, ROOM - n, ")");
    return text;
}

static const fr_tensor_info *part_of(const fr__given *w, const fr__given_param *p, int k)
{
    return fr__tensor_set_at(w->set, p->part[k])->info;
}

static void log_param(const fr__given *w, int param)
{
    char shape[64], there[ROOM];
    fr__text line = {0};
    const fr__given_param *p = &w->params[param];
    const fr_param *of = fr_graph_param(w->graph, param);
    fr__text_printf(&line, "  %s %s <- ", of->name, fr_shape_text(&of->shape, shape, sizeof shape));
    for (int k = 0; k < p->n_parts; k++) {
        const fr_tensor_info *t = part_of(w, p, k);
        fr__text_printf(&line, "%s%s %s", k ? " + " : "", t->name, shape_text(t, there));
    }
    if (p->n_parts && p->is_transposed) fr__text_put(&line, ", transposed");
    if (p->kind == FR_GIVEN_MISSING) fr__text_put(&line, p->n_parts ? ": INCOMPLETE" : "MISSING");
    if (p->kind == FR_GIVEN_SHAPE) fr__text_put(&line, ": DOES NOT FIT");
    if (p->kind == FR_GIVEN_ZERO) fr__text_put(&line, "zeros");
    if (p->kind == FR_GIVEN_TIED)
        fr__text_printf(&line, "%sone with %s", p->n_parts ? ", " : "",
                        fr_graph_param(w->graph, of->tied_to)->name);
    if (!line.failed) fr_log(w->ctx, FR_LOG_INFO, "%s", line.at);
    fr__text_fini(&line);
}

void fr__given_log(const fr__given *w)
{
    char there[ROOM];
    fr_log(w->ctx, FR_LOG_INFO, "%s, under names of %s, beside model %s:", w->path,
           w->map ? w->map->name : "Forerun", fr_graph_name(w->graph));
    for (int i = 0; i < fr_graph_n_params(w->graph); i++) log_param(w, i);
    for (int i = 0; i < fr__tensor_set_count(w->set); i++) {
        const fr_tensor_info *t = fr__tensor_set_at(w->set, i)->info;
        if (w->uses[i] != FR_USE_PARAM)
            fr_log(w->ctx, FR_LOG_INFO, "  %s <- %s %s",
                   w->uses[i] == FR_USE_IGNORED ? "(not needed)" : "NOT IN THE MODEL", t->name,
                   shape_text(t, there));
    }
}

/* "2 missing (a, b)" for one kind of mismatch; names beyond the first few are counted. */
typedef struct listing {
    fr__text text;
    int n;
} listing;

static void list_one(listing *l, const char *what)
{
    if (l->n < LISTED) fr__text_printf(&l->text, "%s%s", l->n ? ", " : "", what);
    l->n++;
}

static void list_misfit(const fr__given *w, int param, listing *l)
{
    char there[ROOM], here[64], what[FR_TENSOR_NAME + 3 * ROOM];
    const fr__given_param *p = &w->params[param];
    const fr_param *of = fr_graph_param(w->graph, param);
    const fr_tensor_info *t = part_of(w, p, 0);
    snprintf(what, sizeof what, "%s is %s, %s of the model is %s%s", t->name, shape_text(t, there),
             of->name, fr_shape_text(&of->shape, here, sizeof here),
             p->is_transposed ? " transposed" : "");
    list_one(l, what);
}

static void end_list(listing *l, const char *what, fr__text *all)
{
    if (l->n > LISTED) fr__text_printf(&l->text, ", and %d more", l->n - LISTED);
    if (l->n > 0)
        fr__text_printf(all, "%s%d %s (%s)", all->n ? "; " : "", l->n, what,
                        l->text.failed ? "" : l->text.at);
    all->failed = all->failed || l->text.failed;
    fr__text_fini(&l->text);
}

fr_status fr__given_refuse(const fr__given *w)
{
    listing missing = {.n = 0}, misfits = {.n = 0}, strangers = {.n = 0};
    fr__text all = {0};
    for (int i = 0; i < fr_graph_n_params(w->graph); i++) {
        if (w->params[i].kind == FR_GIVEN_MISSING)
            list_one(&missing, fr_graph_param(w->graph, i)->name);
        if (w->params[i].kind == FR_GIVEN_SHAPE) list_misfit(w, i, &misfits);
    }
    for (int i = 0; i < fr__tensor_set_count(w->set); i++)
        if (w->uses[i] == FR_USE_NONE)
            list_one(&strangers, fr__tensor_set_at(w->set, i)->info->name);
    end_list(&missing, "missing", &all);
    end_list(&misfits, "of another shape or type", &all);
    end_list(&strangers, "not in the model", &all);
    fr_status status =
        all.failed
            ? fr__no_memory(w->ctx, all.n, w->path)
            : fr_fail(w->ctx, FR_INVALID,
                      "model.weights %s, under names of %s, does not match model %s: %.1500s; "
                      "model.weights_strict: false takes what matches",
                      w->path, w->map ? w->map->name : "Forerun", fr_graph_name(w->graph), all.at);
    fr__text_fini(&all);
    return status;
}
