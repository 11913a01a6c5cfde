/* recompute.c -- parallel.recompute: which nodes compute their values again before a backward.
 *
 * An entry of the list is the number of a stage, for all of its nodes, or the name of a node, in
 * which * stands for any text. Nodes that a backend computes by one kernel are recomputed together
 * if one of them is named. A stage whose weights change between a forward and its backward
 * recomputes with those of the backward. */
#include "config/pipeline.h"

#include "io/conf.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void add_stage(fr__pipeline *p, int k)
{
    for (int i = p->stages[k].first; i < p->stages[k].last; i++) p->recompute[i] = true;
}

static bool is_number(const char *text)
{
    return text[0] && text[strspn(text, "0123456789")] == '\0';
}

/* The name with the least distance. */
static const char *nearest(const fr_graph *g, const char *entry)
{
    const char *best = NULL;
    int least = INT_MAX;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *node = fr_graph_node(g, i);
        int d = node->op == FR_OP_INPUT ? INT_MAX : fr_edit_distance(entry, node->name);
        if (d < least) best = node->name, least = d;
    }
    return best;
}

static fr_status add_nodes(fr_conf *parallel, const fr_graph *g, fr__pipeline *p, const char *entry)
{
    bool found = false;
    for (int i = 0; i < fr_graph_n_nodes(g); i++) {
        const fr_node *node = fr_graph_node(g, i);
        if (node->op == FR_OP_INPUT || fnmatch(entry, node->name, 0) != 0) continue;
        p->recompute[i] = found = true;
    }
    if (found) return FR_OK;
    const char *near = nearest(g, entry);
    return fr_conf_fail(parallel, "recompute",
                        "no node of the model is called '%s'%s%s%s; `forerun models %s` lists them",
                        entry, near ? "; the nearest is '" : "", near ? near : "", near ? "'" : "",
                        fr_graph_name(g));
}

fr_status fr__pipeline_find_recompute(fr_conf *parallel, const fr__settings *t, const fr_graph *g,
                                      fr__pipeline *p)
{
    if (!t->recomputes_all && t->n_recompute == 0) return FR_OK;
    p->recompute = FR_ARENA_ARRAY(&p->arena, bool, fr_graph_n_nodes(g));
    if (!p->recompute) return fr__conf_no_memory(parallel);
    for (int k = 0; t->recomputes_all && k < p->n_stages; k++) add_stage(p, k);
    for (int i = 0; i < t->n_recompute; i++) {
        const char *entry = t->recompute[i];
        if (!is_number(entry)) {
            FR_TRY(add_nodes(parallel, g, p, entry));
            continue;
        }
        long k = strtol(entry, NULL, 10);
        if (k >= p->n_stages)
            return fr_conf_fail(parallel, "recompute", "there is no stage %s; they are 0 to %d",
                                entry, p->n_stages - 1);
        add_stage(p, (int)k);
    }
    return FR_OK;
}
