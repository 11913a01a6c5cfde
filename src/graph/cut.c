/* cut.c -- stages: values that cross a cut, and a check whether labels of nodes form a pipeline.
 *
 * Indices are in topological order, so consumers of a node come after it. A value leaves a range of
 * nodes if and only if its last use is outside. */
#include "graph/internal.h"

#include <stdlib.h>
#include <string.h>

/* Only computing nodes are work; INPUT nodes receive data. */
static bool is_work(const fr_graph *g, int node) { return g->nodes.at[node]->op != FR_OP_INPUT; }

/* A value crosses every cut between its node and its last use: first record begins and ends, then
 * sum up. */
static void sum_cuts(fr_graph *g)
{
    for (int i = 0; i < (int)g->nodes.n; i++) {
        if (!is_work(g, i) || g->last_use[i] < 0) continue;
        int64_t bytes = (int64_t)fr_node_bytes(g->nodes.at[i]);
        g->cut_bytes[i + 1] += bytes;
        g->cut_bytes[g->last_use[i] + 1] -= bytes;
    }
    for (size_t i = 1; i <= g->nodes.n; i++) g->cut_bytes[i] += g->cut_bytes[i - 1];
}

fr_status fr__cutter_create(fr_graph *g)
{
    size_t n = g->nodes.n;
    g->last_use = FR_ARENA_ARRAY(&g->arena, int, n);
    g->n_uses = FR_ARENA_ARRAY(&g->arena, int, n);
    g->cut_bytes = FR_ARENA_ARRAY(&g->arena, int64_t, n + 2);
    int *scratch = FR_ARENA_ARRAY(&g->arena, int, 6 * n + 1);
    struct fr__cutter *c = FR_NEW(struct fr__cutter);
    if (!g->last_use || !g->n_uses || !g->cut_bytes || !scratch || !c ||
        pthread_mutex_init(&c->lock, NULL) != 0) {
        fr__free(c);
        return fr__no_memory(g->ctx, 10 * n * sizeof(int), "the cuts of a graph");
    }
    c->scratch = scratch;
    g->cutter = c;
    for (size_t i = 0; i < n; i++) {
        g->last_use[i] = -1;
        for (int k = 0; k < g->nodes.at[i]->n_inputs; k++) {
            g->last_use[g->nodes.at[i]->inputs[k]] = (int)i;
            g->n_uses[g->nodes.at[i]->inputs[k]]++;
        }
    }
    sum_cuts(g);
    return FR_OK;
}

void fr__cutter_free(struct fr__cutter *c)
{
    if (!c) return;
    fr__arena_fini(&c->lists);
    pthread_mutex_destroy(&c->lock);
    fr__free(c);
}

/* Count (lists NULL) or write the inputs of a stage. A value is listed at its first use. */
static int stage_inputs(const fr_graph *g, int first, int last, char *seen, int *list)
{
    int n = 0;
    for (int i = first; i < last; i++)
        for (int k = 0; k < g->nodes.at[i]->n_inputs; k++) {
            int in = g->nodes.at[i]->inputs[k];
            if ((in >= first && is_work(g, in)) || seen[in]) continue;
            seen[in] = 1;
            if (list) list[n] = in;
            n++;
        }
    return n;
}

static int stage_outputs(const fr_graph *g, int first, int last, int *list)
{
    int n = 0;
    for (int i = first; i < last; i++) {
        if (!is_work(g, i) || (g->last_use[i] >= 0 && g->last_use[i] < last)) continue;
        if (list) list[n] = i;
        n++;
    }
    return n;
}

/* g->cutter is locked; seen has n_nodes bytes. */
static fr_status fill_stage(fr_ctx *ctx, const fr_graph *g, int first, int last, char *seen,
                            fr_stage *s)
{
    size_t n = g->nodes.n;
    memset(seen, 0, n);
    int n_in = stage_inputs(g, first, last, seen, NULL);
    int n_out = stage_outputs(g, first, last, NULL);
    int *lists = FR_ARENA_ARRAY(&g->cutter->lists, int, n_in + n_out);
    if (!lists)
        return fr__no_memory(ctx, (size_t)(n_in + n_out) * sizeof(int), "the borders of a stage");
    memset(seen, 0, n);
    stage_inputs(g, first, last, seen, lists);
    stage_outputs(g, first, last, lists + n_in);
    qsort(lists, (size_t)n_in, sizeof *lists, fr__by_int);
    *s = (fr_stage){first, last, n_in, n_out, lists, lists + n_in};
    return FR_OK;
}

static fr_status check_cuts(const fr_graph *g, int n_cuts, const int *cuts)
{
    int n = (int)g->nodes.n, from = 0;
    if (!g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "graph %s must be finished before it is cut", g->name);
    if (n_cuts < 0)
        return fr_fail(g->ctx, FR_INVALID, "graph %s: %d cuts requested", g->name, n_cuts);
    for (int i = 0; i <= n_cuts; i++) {
        int to = i < n_cuts ? cuts[i] : n;
        if (i < n_cuts && (to <= from || to >= n))
            return fr_fail(
                g->ctx, FR_INVALID,
                "graph %s: cut %d is before node %d; cuts must ascend and be between 1 and %d",
                g->name, i, to, n - 1);
        bool has_work = false;
        for (int node = from; node < to; node++) has_work |= is_work(g, node);
        if (!has_work)
            return fr_fail(g->ctx, FR_INVALID,
                           "graph %s: stage %d (nodes %d to %d) holds inputs only; move its cut",
                           g->name, i, from, to - 1);
        from = to;
    }
    return FR_OK;
}

fr_status fr_graph_stage(fr_ctx *ctx, const fr_graph *g, int first, int last, fr_stage *out)
{
    int n = (int)g->nodes.n;
    if (!g->is_finished || first < 0 || first >= last || last > n)
        return fr_fail(ctx, FR_INVALID, "graph %s: nodes %d to %d of %d are no stage%s", g->name,
                       first, last, n, g->is_finished ? "" : " before it is finished");
    pthread_mutex_lock(&g->cutter->lock);
    fr_status status = fill_stage(ctx, g, first, last, (char *)g->cutter->scratch, out);
    pthread_mutex_unlock(&g->cutter->lock);
    return status;
}

fr_status fr_graph_cut(const fr_graph *g, int n_cuts, const int *cuts, fr_stage *out)
{
    FR_TRY(check_cuts(g, n_cuts, cuts));
    for (int i = 0; i <= n_cuts; i++)
        FR_TRY(fr_graph_stage(g->ctx, g, i ? cuts[i - 1] : 0,
                              i < n_cuts ? cuts[i] : (int)g->nodes.n, &out[i]));
    return FR_OK;
}

int64_t fr_graph_cut_bytes(const fr_graph *g, int cut)
{
    if (!g->is_finished) return -1;
    return cut >= 0 && cut <= (int)g->nodes.n ? g->cut_bytes[cut] : 0;
}

int fr_graph_last_reader(const fr_graph *g, int node)
{
    return g->is_finished ? g->last_use[node] : -1;
}

int fr_graph_sole_reader(const fr_graph *g, int node)
{
    return g->is_finished && g->n_uses[node] == 1 ? g->last_use[node] : -1;
}

bool fr_graph_is_batch_normed(const fr_graph *g)
{
    bool is_normed = true, was_normed = false; /* all layers up to this one; up to the one before */
    int last = -1;
    for (int i = 0; i < fr_graph_n_params(g); i++) {
        const fr_param *p = fr_graph_param(g, i);
        if (p->is_buffer || p->shape.n_dims < 2 || p->node == last) continue;
        int reader = fr_graph_sole_reader(g, last = p->node);
        was_normed = is_normed;
        is_normed = is_normed && reader >= 0 && fr_graph_node(g, reader)->op == FR_OP_BATCH_NORM;
    }
    return was_normed && fr_graph_find_op(g, FR_OP_BATCH_NORM) >= 0;
}

/* Stages numbered 0 .. n_stages-1 in label[], members grouped by stage. */
struct quotient {
    int n_nodes, n_stages;
    int *label;   /* (n_nodes) stage of a node */
    int *sorted;  /* (n_nodes) the caller's labels, sorted, without duplicates */
    int *start;   /* (n_nodes + 1) start of each stage in members */
    int *members; /* (n_nodes) */
    int *degree;  /* (n_nodes) edges from a stage to stages not yet removed */
    int *queue;   /* (n_nodes) */
};

static void group_nodes(struct quotient *q, const int *stage_of)
{
    int n = q->n_nodes;
    memcpy(q->sorted, stage_of, (size_t)n * sizeof(int));
    qsort(q->sorted, (size_t)n, sizeof(int), fr__by_int);
    q->n_stages = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || q->sorted[i] != q->sorted[q->n_stages - 1])
            q->sorted[q->n_stages++] = q->sorted[i];
    memset(q->start, 0, (size_t)(n + 1) * sizeof(int));
    for (int i = 0; i < n; i++) {
        const int *at =
            bsearch(&stage_of[i], q->sorted, (size_t)q->n_stages, sizeof(int), fr__by_int);
        q->label[i] = (int)(at - q->sorted);
        q->start[q->label[i] + 1]++;
    }
    for (int s = 0; s < q->n_stages; s++) {
        q->start[s + 1] += q->start[s];
        q->degree[s] = q->start[s]; /* used as insertion position until the edges are counted */
    }
    for (int i = 0; i < n; i++) q->members[q->degree[q->label[i]]++] = i;
}

/* Remove stages on which no remaining stage depends, one by one (Kahn's algorithm). All can be
 * removed if and only if there is no cycle. */
static bool is_acyclic(const fr_graph *g, struct quotient *q)
{
    int n_queued = 0, n_done = 0;
    memset(q->degree, 0, (size_t)q->n_stages * sizeof(int));
    for (int i = 0; i < q->n_nodes; i++)
        for (int k = 0; k < g->nodes.at[i]->n_inputs; k++) {
            int in = g->nodes.at[i]->inputs[k];
            if (is_work(g, in) && q->label[in] != q->label[i]) q->degree[q->label[in]]++;
        }
    for (int s = 0; s < q->n_stages; s++)
        if (q->degree[s] == 0) q->queue[n_queued++] = s;
    while (n_done < n_queued) {
        int s = q->queue[n_done++];
        for (int m = q->start[s]; m < q->start[s + 1]; m++) {
            const fr_node *node = g->nodes.at[q->members[m]];
            for (int k = 0; k < node->n_inputs; k++) {
                int from = q->label[node->inputs[k]];
                if (!is_work(g, node->inputs[k]) || from == s) continue;
                if (--q->degree[from] == 0) q->queue[n_queued++] = from;
            }
        }
    }
    return n_done == q->n_stages;
}

bool fr_graph_is_convex(const fr_graph *g, const int *stage_of)
{
    if (!g->is_finished) return false;
    size_t n = g->nodes.n;
    pthread_mutex_lock(&g->cutter->lock);
    int *s = g->cutter->scratch;
    struct quotient q = {.n_nodes = (int)n,
                         .label = s,
                         .sorted = s + n,
                         .members = s + 2 * n,
                         .degree = s + 3 * n,
                         .queue = s + 4 * n,
                         .start = s + 5 * n};
    group_nodes(&q, stage_of);
    bool is_convex = is_acyclic(g, &q);
    pthread_mutex_unlock(&g->cutter->lock);
    return is_convex;
}
