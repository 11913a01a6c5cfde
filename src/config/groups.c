/* groups.c -- train.groups: patterns of parameter names, with what differs for their weights.
 *
 * The first pattern that matches a name decides. A tied parameter has the values of its owner, and
 * goes with it. Running statistics are no weights: patterns do not match them. */
#include "config/setup.h"

#include "base/alloc.h"
#include "io/conf.h"

#include <fnmatch.h>
#include <limits.h>
#include <string.h>

fr_status fr__settings_groups(fr_conf *train, fr__settings *s)
{
    if (!fr_conf_has(train, "groups")) return FR_OK;
    s->n_groups = fr_conf_list_length(train, "groups");
    if (s->n_groups < 0 || s->n_groups > FR_MAX_PARAM_GROUPS)
        return fr_conf_fail(train, "groups",
                            "expected a list of up to %d groups: [{match: \"*.bias\", "
                            "weight_decay: 0}]",
                            FR_MAX_PARAM_GROUPS);
    for (int i = 0; i < s->n_groups; i++) {
        fr_conf *item;
        fr__group_settings *g = &s->groups[i];
        FR_TRY(fr_conf_list_item(train, "groups", i, &item));
        *g = (fr__group_settings){.lr_factor = 1, .weight_decay = s->optim.weight_decay};
        FR_TRY(fr__keys_read(item, fr__settings_keys(), "train.groups[].", NULL, g));
        g->has_weight_decay = fr_conf_has(item, "weight_decay");
    }
    return FR_OK;
}

static bool is_weight(const fr_param *p) { return !p->is_buffer && p->tied_to < 0; }

/* The parameter whose name has the least distance. */
static const fr_param *nearest(const fr_graph *g, const char *match)
{
    const fr_param *best = NULL;
    int least = INT_MAX;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        int d = is_weight(p) ? fr_edit_distance(match, p->name) : INT_MAX;
        if (d < least) best = p, least = d;
    }
    return best;
}

static fr_status refuse(const fr__setup *s, int group)
{
    const char *match = s->settings.groups[group].match;
    const fr_graph *g = s->graph;
    fr_conf *train, *item;
    FR_TRY(fr_conf_section(s->conf, "train", &train));
    FR_TRY(fr_conf_list_item(train, "groups", group, &item));
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        if (fnmatch(match, p->name, 0) != 0) continue;
        if (p->is_buffer)
            return fr_conf_fail(item, "match",
                                "'%s' matches running statistics only (%s), which are not trained",
                                match, p->name);
        return fr_conf_fail(item, "match",
                            "'%s' matches %s, whose values are those of %s: name that", match,
                            p->name, fr_graph_param(g, p->tied_to)->name);
    }
    const fr_param *near = nearest(g, match);
    return fr_conf_fail(item, "match",
                        "no parameter of the model matches '%s'%s%s; * stands for any text, as in "
                        "'*.bias'",
                        match, near ? "; the nearest is " : "", near ? near->name : "");
}

/* Fills group_of, and what each group has; false: a group matches nothing. */
static int find_groups(fr__setup *s)
{
    fr__settings *t = &s->settings;
    bool is_used[FR_MAX_PARAM_GROUPS] = {false};
    for (int i = 0; i < fr_graph_n_params(s->graph); i++) {
        const fr_param *p = fr_graph_param(s->graph, i);
        s->group_of[i] = p->tied_to >= 0 ? s->group_of[p->tied_to] : -1;
        for (int g = 0; g < t->n_groups && is_weight(p); g++) {
            if (fnmatch(t->groups[g].match, p->name, 0) != 0) continue;
            is_used[g] = true;
            if (s->group_of[i] >= 0) continue;
            s->group_of[i] = g;
            t->groups[g].n_params++;
            t->groups[g].n_weights += fr_shape_count(&p->shape);
        }
    }
    for (int g = 0; g < t->n_groups; g++)
        if (!is_used[g]) return g;
    return -1;
}

/* frozen: [param]. */
static fr_status freeze(fr__setup *s, bool *frozen)
{
    const fr__settings *t = &s->settings;
    fr_graph *g;
    bool any = false, all = true;
    for (int i = 0; i < fr_graph_n_params(s->graph); i++) {
        const fr_param *p = fr_graph_param(s->graph, i);
        frozen[i] = p->is_frozen || (s->group_of[i] >= 0 && t->groups[s->group_of[i]].freeze);
        any |= frozen[i];
        all &= frozen[i] || !is_weight(p);
    }
    if (!any) return FR_OK;
    if (all) {
        fr_conf *train;
        FR_TRY(fr_conf_section(s->conf, "train", &train));
        return fr_conf_fail(train, "groups", "every parameter is frozen: nothing to train");
    }
    FR_TRY(fr_graph_freeze(s->ctx, s->graph, frozen, &g));
    if (!s->is_graph_given) fr_graph_free(s->graph);
    s->graph = g, s->is_graph_given = false;
    return FR_OK;
}

fr_status fr__setup_groups(fr__setup *s)
{
    const fr__settings *t = &s->settings;
    const int n = fr_graph_n_params(s->graph);
    if (t->n_groups == 0) return FR_OK;
    s->groups = FR_NEW_ARRAY(fr_param_group, t->n_groups);
    s->group_of = FR_NEW_ARRAY(int, n + 1);
    bool *frozen = FR_NEW_ARRAY(bool, n + 1);
    fr_status status = FR_OK;
    if (!s->groups || !s->group_of || !frozen)
        status = fr__no_memory(s->ctx, (size_t)n * sizeof *s->group_of, "groups of parameters");
    const int unused = status == FR_OK ? find_groups(s) : -1;
    if (unused >= 0) status = refuse(s, unused);
    for (int g = 0; g < t->n_groups && s->groups; g++)
        s->groups[g] = (fr_param_group){.lr_factor = t->groups[g].lr_factor,
                                        .weight_decay = t->groups[g].weight_decay};
    if (status == FR_OK) status = freeze(s, frozen);
    fr__free(frozen);
    return status;
}

fr_param_groups fr__setup_param_groups(const fr__setup *s)
{
    return (fr_param_groups){.n = s->settings.n_groups, .at = s->groups, .of = s->group_of};
}
