/* keep_stage.c -- the activations of a stage in bytes, by the rules of the engine's allocation, and
 * the cheapest nodes to recompute so that they fit. */
#include "cost/keep.h"
#include "cost/profile.h"

#include "base/arena.h"

#include <math.h>
#include <string.h>

/* What a node keeps, apart from outputs of the stage, which are behind the kept values. A node that
 * keeps its output has counted it; at the border of a stage it is among the outputs instead. */
static double own_bytes(const fr_profile_node *n, bool leaves)
{
    bool has_output = leaves && n->kept_bytes >= n->output_bytes;
    return (double)(n->kept_bytes - (has_output ? n->output_bytes : 0));
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

/* Does any node run again? One of which nothing is kept does not do so alone. */
static bool has_any(const fr__keep_stage *s, const bool *recompute)
{
    for (int i = s->first; i < s->last && recompute; i++)
        if (recompute[i] && s->profile->nodes[i].kept_bytes > 0) return true;
    return false;
}

/* Gradients that are kept from the first part of a split backward to the second. */
static double grad_bytes(const fr__keep_stage *s)
{
    double sum = 0;
    for (int i = s->first; i < s->last && s->is_split; i++)
        if (s->profile->nodes[i].param_bytes > 0) sum += (double)s->profile->nodes[i].output_bytes;
    return sum;
}

static bool is_read(const fr__keep_stage *s, int node, const bool *recompute)
{
    const struct fr__profile_store *store = s->profile->arena;
    for (int i = node + 1; i <= store->last_use[node] && i < s->last; i++)
        for (int k = 0; k < s->profile->nodes[i].n_inputs && recompute[i]; k++)
            if (s->profile->nodes[i].inputs[k] == node) return true;
    return false;
}

double fr__keep_bytes(const fr__keep_stage *s, const bool *recompute)
{
    const bool any = has_any(s, recompute);
    double set = any ? 0 : grad_bytes(s), area = any ? grad_bytes(s) : 0;
    for (int i = s->first; i < s->last; i++) {
        const fr_profile_node *n = &s->profile->nodes[i];
        if (n->is_input) continue;
        const double output = leaves(s, i) ? (double)n->output_bytes : 0;
        const double own = own_bytes(n, output > 0);
        const bool again = any && recompute[i];
        set += again ? output : own + output;
        area += again ? own + output : 0;
        if (any && !again && extra_bytes(s, i) > 0 && is_read(s, i, recompute))
            set += extra_bytes(s, i);
    }
    return s->n_sets * set + s->n_areas * area;
}

/* --- nodes that go together ------------------------------------------------------------------- */

/* Two nodes of a measured profile have one value: a node without time and workspace is computed by
 * the kernel before it, and one that keeps nothing may overwrite the kept value that it alone reads
 * (dropout). */
static bool is_joined(const fr__keep_stage *s, int i, bool was_joined)
{
    const struct fr__profile_store *store = s->profile->arena;
    const fr_profile_node *n = &s->profile->nodes[i], *before = n - 1;
    if (!store->has_workspaces || i == s->first || before->is_input || n->n_inputs == 0 ||
        n->inputs[0] != i - 1)
        return false;
    if (n->forward_s == 0 && n->backward_s == 0 && n->values_bytes == 0 && n->scratch_bytes == 0)
        return true;
    return n->kept_bytes == 0 && n->output_bytes == before->output_bytes &&
           store->last_use[i - 1] == i && (was_joined || before->kept_bytes >= n->output_bytes);
}

static fr_status list_nodes(fr_ctx *ctx, const fr__keep_stage *s, int from, fr_arena *a,
                            fr__keep_node *to)
{
    bool was_joined = false;
    for (int i = s->first; i < s->last; i++) {
        const fr_profile_node *n = &s->profile->nodes[i];
        if (n->is_input) continue; /* frees nothing, costs nothing, and is there anyway */
        const double output = leaves(s, i) ? (double)n->output_bytes : 0;
        const double own = own_bytes(n, output > 0);
        int *inputs = FR_ARENA_ARRAY(a, int, n->n_inputs + 1);
        if (!inputs) return fr__no_memory(ctx, sizeof(int), "a choice of nodes");
        for (int k = 0; k < n->n_inputs; k++)
            inputs[k] = n->inputs[k] >= s->first ? n->inputs[k] - s->first + from : -1;
        was_joined = is_joined(s, i, was_joined);
        to[i - s->first] = (fr__keep_node){.seconds = n->forward_s,
                                           .freed = s->n_sets * own - s->n_areas * (own + output),
                                           .output = s->n_sets * extra_bytes(s, i),
                                           .n_inputs = n->n_inputs,
                                           .inputs = inputs,
                                           .is_joined = was_joined};
    }
    return FR_OK;
}

/* --- stages of a worker ----------------------------------------------------------------------- */

struct worker {
    fr_ctx *ctx;
    int n;
    const fr__keep_stage *stages;
    double room;
    fr_arena arena;
    fr__keep_node *nodes; /* of the stages that may recompute, one after the other */
    bool *found, *now;    /* of these nodes; [node of the profile] */
    bool is_least;
};

static double bytes_of(const struct worker *w, const bool *recompute)
{
    double sum = 0;
    for (int k = 0; k < w->n; k++) sum += fr__keep_bytes(&w->stages[k], recompute);
    return sum;
}

/* Node i of the stage and those joined to it; returns their seconds. */
static double set_group(const fr__keep_stage *s, const fr__keep_node *nodes, int i, bool value,
                        bool *recompute)
{
    double seconds = 0;
    do recompute[s->first + i] = value, seconds += nodes[i].seconds;
    while (++i < s->last - s->first && nodes[i].is_joined);
    return seconds;
}

/* The cheapest nodes that run again at all, for a stage of which none was needed. Proved the least
 * unless cheaper ones do not fit alone: then they might fit together with others. */
static double open_stage(struct worker *w, const fr__keep_stage *s, const fr__keep_node *nodes)
{
    double least = INFINITY, least_of_all = INFINITY;
    int best = -1;
    for (int i = 0; i < s->last - s->first; i++) {
        if (nodes[i].is_joined || s->profile->nodes[s->first + i].is_input) continue;
        double seconds = set_group(s, nodes, i, true, w->now);
        if (seconds < least && has_any(s, w->now)) {
            least_of_all = fmin(least_of_all, seconds);
            if (bytes_of(w, w->now) <= w->room) least = seconds, best = i;
        }
        set_group(s, nodes, i, false, w->now);
    }
    w->is_least = w->is_least && least <= least_of_all;
    return best < 0 ? INFINITY : set_group(s, nodes, best, true, w->now);
}

/* The least set if stages of the mask recompute something, and others nothing: gradients of split
 * backwards are then in the areas. */
static fr_status try_mask(struct worker *w, unsigned mask, fr__keep_set *out)
{
    double missing = bytes_of(w, NULL) - w->room;
    fr__keep_set set = {.recompute = w->found};
    int n = 0;
    for (int k = 0; k < w->n; k++) {
        const fr__keep_stage *s = &w->stages[k];
        memset(w->now + s->first, 0, (size_t)(s->last - s->first) * sizeof *w->now);
        if (!(mask >> k & 1)) continue;
        missing -= (s->n_sets - s->n_areas) * grad_bytes(s);
        FR_TRY(list_nodes(w->ctx, s, n, &w->arena, w->nodes + n));
        n += s->last - s->first;
    }
    FR_TRY(fr__keep_least(w->ctx, n, w->nodes, missing, &set));
    for (int k = 0, at = 0; k < w->n; k++) {
        const fr__keep_stage *s = &w->stages[k];
        if (!(mask >> k & 1)) continue;
        memcpy(w->now + s->first, w->found + at, (size_t)(s->last - s->first) * sizeof *w->now);
        if (s->is_split && isfinite(set.seconds) && !has_any(s, w->now))
            set.seconds += open_stage(w, s, w->nodes + at);
        at += s->last - s->first;
    }
    w->is_least = w->is_least && set.is_least;
    if (!(set.seconds < out->seconds) || bytes_of(w, w->now) > w->room) return FR_OK;
    out->seconds = set.seconds;
    for (int k = 0; k < w->n; k++) {
        const fr__keep_stage *s = &w->stages[k];
        memcpy(out->recompute + s->first, w->now + s->first,
               (size_t)(s->last - s->first) * sizeof *w->now);
    }
    return FR_OK;
}

fr_status fr__keep_in_stages(fr_ctx *ctx, int n, const fr__keep_stage *stages, double room,
                             fr__keep_set *out)
{
    struct worker w = {.ctx = ctx, .n = n, .stages = stages, .room = room, .is_least = true};
    const unsigned all = n < 32 ? (1u << n) - 1 : ~0u;
    const bool is_split = stages[0].is_split && n <= 4; /* else all may: the same without grads */
    const int n_nodes = stages[0].profile->n_nodes;
    fr_status status = FR_OK;
    for (int k = 0; k < n; k++)
        memset(out->recompute + stages[k].first, 0, (size_t)(stages[k].last - stages[k].first));
    out->seconds = 0, out->is_least = true;
    if (bytes_of(&w, NULL) <= room) return FR_OK;
    out->seconds = INFINITY;
    w.nodes = FR_ARENA_ARRAY(&w.arena, fr__keep_node, n_nodes);
    w.found = FR_ARENA_ARRAY(&w.arena, bool, n_nodes);
    w.now = FR_ARENA_ARRAY(&w.arena, bool, n_nodes);
    if (!w.nodes || !w.found || !w.now)
        status = fr__no_memory(ctx, (size_t)n_nodes * sizeof *w.nodes, "a choice of nodes");
    for (unsigned mask = is_split ? 1 : all; mask <= all && status == FR_OK; mask++) {
        status = try_mask(&w, mask, out);
        if (mask == all) break;
    }
    out->is_least = w.is_least;
    fr__arena_fini(&w.arena);
    return status;
}
