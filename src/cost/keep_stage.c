/* keep_stage.c -- the activations of a stage in bytes, by the rules of the engine's allocation, and
 * the cheapest nodes to recompute so that they fit. */
#include "cost/keep.h"
#include "cost/profile.h"

#include "base/arena.h"

#include <math.h>
#include <string.h>

/* What a node keeps, apart from outputs of the stage, which are behind the kept values. A node that
 * keeps its output has counted it; at the border of a stage it is among the outputs instead. */
static double own_bytes(const fr__keep_stage *s, const fr_profile_node *n, bool leaves)
{
    double bytes = (double)n->kept_bytes;
    if (s->is_split && n->param_bytes > 0) bytes += (double)n->output_bytes;
    if (leaves && n->kept_bytes >= n->output_bytes) bytes -= (double)n->output_bytes;
    return bytes;
}

static bool leaves(const fr__keep_stage *s, int node)
{
    const struct fr__profile_store *store = s->profile->arena;
    return store->last_use[node] < 0 || store->last_use[node] >= s->last;
}

/* Bytes that a kept node whose output is in no set has to keep for a recomputed reader. */
static double extra_bytes(const fr__keep_stage *s, int node)
{
    const fr_profile_node *n = &s->profile->nodes[node];
    return n->kept_bytes >= n->output_bytes || leaves(s, node) ? 0 : (double)n->output_bytes;
}

double fr__keep_bytes(const fr__keep_stage *s, const bool *recompute)
{
    const fr_profile *p = s->profile;
    double set = 0, area = 0;
    for (int i = s->first; i < s->last; i++) {
        const fr_profile_node *n = &p->nodes[i];
        if (n->is_input) continue;
        const double output = leaves(s, i) ? (double)n->output_bytes : 0;
        const double own = own_bytes(s, n, output > 0);
        const bool again = recompute && recompute[i];
        set += again ? output : own + output;
        area += again ? own + output : 0;
    }
    for (int j = s->first; j < s->last && recompute; j++) {
        const struct fr__profile_store *store = p->arena;
        if (recompute[j] || p->nodes[j].is_input || extra_bytes(s, j) <= 0) continue;
        bool is_read = false;
        for (int i = j + 1; i <= store->last_use[j] && i < s->last && !is_read; i++)
            for (int k = 0; k < p->nodes[i].n_inputs && recompute[i]; k++)
                is_read = is_read || p->nodes[i].inputs[k] == j;
        if (is_read) set += extra_bytes(s, j);
    }
    return s->n_sets * set + s->n_areas * area;
}

/* A node without time and workspace in a measured profile is computed by the kernel of the node
 * before it. */
static bool is_joined(const fr__keep_stage *s, int i)
{
    const struct fr__profile_store *store = s->profile->arena;
    const fr_profile_node *n = &s->profile->nodes[i];
    return store->has_workspaces && i > s->first && !s->profile->nodes[i - 1].is_input &&
           n->n_inputs > 0 && n->forward_s == 0 && n->backward_s == 0 && n->values_bytes == 0 &&
           n->scratch_bytes == 0;
}

static fr_status list_nodes(fr_ctx *ctx, const fr__keep_stage *s, fr_arena *a, fr__keep_node *to)
{
    for (int i = s->first; i < s->last; i++) {
        const fr_profile_node *n = &s->profile->nodes[i];
        if (n->is_input) continue; /* frees nothing, costs nothing, and is there anyway */
        const double output = leaves(s, i) ? (double)n->output_bytes : 0;
        const double own = own_bytes(s, n, output > 0);
        int *inputs = FR_ARENA_ARRAY(a, int, n->n_inputs + 1);
        if (!inputs) return fr__no_memory(ctx, sizeof(int), "a choice of nodes");
        for (int k = 0; k < n->n_inputs; k++)
            inputs[k] = n->inputs[k] >= s->first ? n->inputs[k] - s->first : -1;
        to[i - s->first] = (fr__keep_node){.seconds = n->forward_s,
                                           .freed = s->n_sets * own - s->n_areas * (own + output),
                                           .output = s->n_sets * extra_bytes(s, i),
                                           .n_inputs = n->n_inputs,
                                           .inputs = inputs,
                                           .is_joined = is_joined(s, i)};
    }
    return FR_OK;
}

fr_status fr__keep_in_stage(fr_ctx *ctx, const fr__keep_stage *s, double room, fr__keep_set *out)
{
    const int n = s->last - s->first;
    fr_arena arena = {0};
    fr__keep_node *nodes = FR_ARENA_ARRAY(&arena, fr__keep_node, n);
    fr__keep_set inside = {.recompute = out->recompute + s->first};
    fr_status status =
        nodes ? list_nodes(ctx, s, &arena, nodes) : fr__no_memory(ctx, sizeof *nodes, "nodes");
    if (status == FR_OK)
        status = fr__keep_least(ctx, n, nodes, fr__keep_bytes(s, NULL) - room, &inside);
    out->seconds = inside.seconds, out->is_least = inside.is_least;
    fr__arena_fini(&arena);
    return status;
}
