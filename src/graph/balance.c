/* balance.c -- places of cuts: stages of equal work, cuts named by the user, and the links between
 * stages of either.
 *
 * Stages are contiguous in topological order, so balancing is the chain partition problem: the
 * least possible largest sum of n contiguous parts, solved exactly by dynamic programming in two
 * rounds. The first finds the least largest work; the second, among all partitions that reach it,
 * the one with the fewest bytes across its cuts. (One round with both as the key would be wrong: a
 * prefix with a larger maximum but fewer bytes can be the better half of a whole.) In both rounds
 * fewer flaws come first: stages without trained parameters, and cuts between a layer and its
 * activation, which kernels compute in one go. */
#include "graph/internal.h"

#include <float.h>
#include <stdlib.h>

/* Cost of moving a byte, in FLOPs of a convolution or matrix product, for nodes whose time does not
 * depend on their FLOPs. Measured node by node on the cpu backend, one AVX2 core (80 GFLOP/s in
 * matrices; relu moves 50 GB/s, batch norm 3), rounded. Such nodes have 0.02 % of the FLOPs but 0.3
 * % of the time of mlp, 0.04 and 3 % of vgg16, 0.6 and 3 % of gpt, 1 and 25 % of resnet50, 0.8 and
 * 19 % of inception3. */
static const double flops_per_byte[FR_OPERATOR_COUNT] = {
    [FR_OP_ADD] = 1,         [FR_OP_CONCAT] = 1,         [FR_OP_SLICE] = 1,
    [FR_OP_FLATTEN] = 1,     [FR_OP_REVERSE_TIME] = 1,   [FR_OP_MEAN_TIME] = 1,
    [FR_OP_LAST_TIME] = 1,   [FR_OP_RELU] = 2,           [FR_OP_LAYER_NORM] = 3,
    [FR_OP_GELU] = 4,        [FR_OP_SELU] = 4,           [FR_OP_TANH] = 4,
    [FR_OP_SIGMOID] = 4,     [FR_OP_AVG_POOL] = 9,       [FR_OP_GLOBAL_POOL] = 15,
    [FR_OP_EMBEDDING] = 15,  [FR_OP_CROSS_ENTROPY] = 15, [FR_OP_MAX_POOL] = 24,
    [FR_OP_BATCH_NORM] = 27, [FR_OP_DROPOUT] = 32,       [FR_OP_ALPHA_DROPOUT] = 32,
    [FR_OP_MUL] = 1,         [FR_OP_SUBTRACT] = 1,       [FR_OP_RELU6] = 2,
    [FR_OP_HARDSWISH] = 2,   [FR_OP_HARDSIGMOID] = 2,    [FR_OP_LEAKY_RELU] = 2,
    [FR_OP_ELU] = 4,         [FR_OP_SILU] = 4,           [FR_OP_GELU_EXACT] = 6,
    [FR_OP_ROPE] = 2,        [FR_OP_RMS_NORM] = 3,       [FR_OP_STOCHASTIC_DEPTH] = 1,
    [FR_OP_SOFTMAX] = 4,     [FR_OP_GROUP_NORM] = 6,     [FR_OP_MSE] = 2,
    [FR_OP_SMOOTH_L1] = 2,   [FR_OP_BCE] = 15,           [FR_OP_COSINE] = 2,
    [FR_OP_SELECT] = 1,      [FR_OP_RESHAPE] = 1,        [FR_OP_PAD] = 1,
    [FR_OP_TRANSPOSE] = 2,
};

struct best {
    int n_flaws;
    double value; /* largest work, or bytes */
};

static double node_work(const fr_graph *g, const fr_node *node)
{
    double moved = (double)fr_node_bytes(node);
    for (int i = 0; i < node->n_inputs; i++)
        moved += (double)fr_node_bytes(g->nodes.at[node->inputs[i]]);
    /* The backward reads values and gradients and writes gradients. */
    if (node->needs_grad) moved *= 3;
    return node->flops_forward + node->flops_back_input + node->flops_back_weight +
           flops_per_byte[node->op] * moved;
}

static bool is_trained(const fr_graph *g, const fr_node *node)
{
    return node->n_params > 0 && !g->params.at[node->params[0]]->is_buffer;
}

static bool is_tail(const fr_graph *g, int i)
{
    const fr_node *node = g->nodes.at[i];
    switch (node->op) {
    case FR_OP_RELU:
    case FR_OP_GELU:
    case FR_OP_SELU:
    case FR_OP_TANH:
    case FR_OP_SILU:
    case FR_OP_GELU_EXACT:
    case FR_OP_RELU6:
    case FR_OP_HARDSWISH:
    case FR_OP_HARDSIGMOID:
    case FR_OP_LEAKY_RELU:
    case FR_OP_ELU:
    case FR_OP_SIGMOID: return node->inputs[0] == i - 1 && g->nodes.at[i - 1]->op != FR_OP_INPUT;
    default: return false;
    }
}

bool fr__chain_create(const fr_graph *g, fr_arena *arena, struct fr__chain *c)
{
    size_t n = g->nodes.n;
    *c = (struct fr__chain){.node = FR_ARENA_ARRAY(arena, int, n),
                            .n_trained = FR_ARENA_ARRAY(arena, int, n + 1),
                            .work = FR_ARENA_ARRAY(arena, double, n + 1),
                            .bytes = FR_ARENA_ARRAY(arena, double, n),
                            .is_tail = FR_ARENA_ARRAY(arena, bool, n)};
    if (!c->node || !c->n_trained || !c->work || !c->bytes || !c->is_tail) return false;
    for (int i = 0; i < (int)g->nodes.n; i++) {
        const fr_node *node = g->nodes.at[i];
        if (node->op == FR_OP_INPUT) continue;
        c->node[c->n] = i;
        c->n_trained[c->n + 1] = c->n_trained[c->n] + is_trained(g, node);
        c->work[c->n + 1] = c->work[c->n] + node_work(g, node);
        c->bytes[c->n] = (double)fr_graph_cut_bytes(g, i);
        c->is_tail[c->n] = is_tail(g, i);
        c->n++;
    }
    return true;
}

static bool is_better(struct best a, struct best b)
{
    return a.n_flaws != b.n_flaws ? a.n_flaws < b.n_flaws : a.value < b.value;
}

/* Possible beginnings of the last stage, as k grows, sorted from the best cost to the worst. A
 * beginning is dropped when a later one is better; the first of equal ones stays. */
struct queue {
    int *at; /* (n) beginnings, in order */
    int head, end;
};

static void push(struct queue *q, const struct best *cost, bool has_limit, int j)
{
    if (q->head == q->end) q->head = q->end = 0;
    /* Without a limit the head never leaves, so beginnings with more flaws are never used. */
    if (!has_limit && q->end > 0 && cost[j].n_flaws > cost[q->at[0]].n_flaws) return;
    while (q->end > q->head && is_better(cost[j], cost[q->at[q->end - 1]])) q->end--;
    q->at[q->end++] = j;
}

/* State of one round. */
struct round {
    const struct fr__chain *c;
    double limit;      /* maximum work of a stage; < 0: none */
    struct best *cost; /* (n + 1) cost of the earlier stages and the cut, for each beginning of the
                          last stage */
    /* Beginnings that give the last stage trained parameters, or none. */
    struct queue trained, bare;
};

/* The best partition of the first k nodes with a beginning from the queue. Along the queue, the
 * work of the last stage shrinks and the cost grows: the smallest maximum is where they cross. */
static struct best least_work(const struct round *r, const struct queue *q, int k)
{
    const double *work = r->c->work;
    int low = q->head, high = q->end;
    while (low < high) { /* find the first whose cost is at least the work of its stage */
        int middle = low + (high - low) / 2;
        if (r->cost[q->at[middle]].value >= work[k] - work[q->at[middle]])
            high = middle;
        else
            low = middle + 1;
    }
    struct best found = {r->cost[q->at[q->head]].n_flaws, DBL_MAX};
    if (low < q->end) found.value = r->cost[q->at[low]].value;
    if (low > q->head && work[k] - work[q->at[low - 1]] < found.value)
        found.value = work[k] - work[q->at[low - 1]];
    return found;
}

static struct best best_of(const struct round *r, struct queue *q, int k, int *from)
{
    const double *work = r->c->work;
    while (r->limit >= 0 && q->head < q->end && work[k] - work[q->at[q->head]] > r->limit)
        q->head++;
    if (q->head == q->end) return (struct best){2 * r->c->n + 1, DBL_MAX};
    *from = q->at[q->head];
    return r->limit < 0 ? least_work(r, q, k) : r->cost[*from];
}

/* Add one stage: compute `now` from `before`. Beginnings after the last trained node stay in `bare`
 * until the next trained node. */
static void add_stage(struct round *r, const struct best *before, int least, struct best *now,
                      int *from)
{
    const struct fr__chain *c = r->c;
    bool has_limit = r->limit >= 0;
    r->trained.head = r->trained.end = r->bare.head = r->bare.end = 0;
    int next = least; /* the first beginning that was not pushed to `trained` */
    for (int k = 0; k <= c->n; k++) {
        int j = k - 1, from_bare = 0;
        if (j >= least) {
            r->cost[j] = before[j];
            r->cost[j].n_flaws += j > 0 && c->is_tail[j];
            if (has_limit && j > 0) r->cost[j].value += c->bytes[j];
            if (before[j].n_flaws <= 2 * c->n) push(&r->bare, r->cost, has_limit, j);
        }
        if (k > 0 && c->n_trained[k] != c->n_trained[k - 1]) {
            for (; next < k; next++)
                if (before[next].n_flaws <= 2 * c->n) push(&r->trained, r->cost, has_limit, next);
            r->bare.head = r->bare.end = 0;
        }
        now[k] = best_of(r, &r->trained, k, &from[k]);
        struct best bare = best_of(r, &r->bare, k, &from_bare);
        bare.n_flaws++;
        if (is_better(bare, now[k])) now[k] = bare, from[k] = from_bare;
    }
}

/* Partition the first k nodes of the chain into s stages, for all k and s. limit < 0: minimise the
 * largest work; else minimise the bytes among partitions whose stages have at most limit work.
 * best: (2, n + 1), for s stages and s - 1; from: (n_stages + 1, n + 1), the beginning of the last
 * of s stages. */
static double solve(struct round *r, int n_stages, double limit, struct best *best, int *from)
{
    size_t row = (size_t)r->c->n + 1;
    r->limit = limit;
    for (size_t k = 0; k < row; k++) best[k] = (struct best){2 * r->c->n + 1, DBL_MAX};
    best[0] = (struct best){0, 0};
    for (int s = 1; s <= n_stages; s++)
        add_stage(r, best + (size_t)((s - 1) % 2) * row, s - 1, best + (size_t)(s % 2) * row,
                  from + (size_t)s * row);
    return best[(size_t)(n_stages % 2) * row + row - 1].value;
}

static fr_status check_stages(const fr_graph *g, int n_stages)
{
    int n_work = 0;
    if (!g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "graph %s must be finished before it is cut", g->name);
    for (size_t i = 0; i < g->nodes.n; i++) n_work += g->nodes.at[i]->op != FR_OP_INPUT;
    if (n_stages < 1 || n_stages > n_work)
        return fr_fail(g->ctx, FR_INVALID,
                       "graph %s cannot be cut into %d stages: it has %d computing nodes; 1 to %d "
                       "stages are possible",
                       g->name, n_stages, n_work, n_work);
    return FR_OK;
}

fr_status fr_graph_balance(const fr_graph *g, int n_stages, int *cuts)
{
    FR_TRY(check_stages(g, n_stages));
    size_t n = g->nodes.n, cells = ((size_t)n_stages + 1) * (n + 1);
    if (n_stages == 1) return FR_OK;
    fr_arena arena = {0};
    struct fr__chain c;
    struct round r = {.c = &c,
                      .cost = FR_ARENA_ARRAY(&arena, struct best, n + 1),
                      .trained.at = FR_ARENA_ARRAY(&arena, int, n),
                      .bare.at = FR_ARENA_ARRAY(&arena, int, n)};
    struct best *best = FR_ARENA_ARRAY(&arena, struct best, 2 * (n + 1));
    int *from = FR_ARENA_ARRAY(&arena, int, cells);
    fr_status status = FR_OK;
    if (r.cost && r.trained.at && r.bare.at && best && from && fr__chain_create(g, &arena, &c)) {
        solve(&r, n_stages, solve(&r, n_stages, -1, best, from), best, from);
        for (int s = n_stages, k = c.n; s > 1; s--) {
            k = from[(size_t)s * ((size_t)c.n + 1) + (size_t)k];
            cuts[s - 2] = c.node[k];
        }
    } else {
        status = fr__no_memory(g->ctx, cells * sizeof *from, "balanced stages");
    }
    fr__arena_fini(&arena);
    return status;
}

/* --- cuts by name ---------------------------------------------------------------------------- */

static int first_work(const fr_graph *g, int from)
{
    while (from < (int)g->nodes.n && g->nodes.at[from]->op == FR_OP_INPUT) from++;
    return from;
}

fr_status fr_graph_find_cuts(const fr_graph *g, int n, const char *const *names, int *cuts)
{
    if (!g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "graph %s must be finished before it is cut", g->name);
    for (int i = 0, from = 0; i < n; from = cuts[i++]) {
        cuts[i] = fr_graph_find(g, names[i]);
        int earliest = first_work(g, first_work(g, from) + 1);
        if (cuts[i] < 0)
            return fr_fail(g->ctx, FR_INVALID,
                           "graph %s has no node \"%s\" to begin a stage at; `forerun models %s` "
                           "lists its nodes",
                           g->name, names[i], g->name);
        if (i > 0 && cuts[i] <= from)
            return fr_fail(g->ctx, FR_INVALID,
                           "cut \"%s\" of graph %s does not come after cut \"%s\"; name each once, "
                           "in the order of the model",
                           names[i], g->name, names[i - 1]);
        if (earliest >= (int)g->nodes.n)
            return fr_fail(
                g->ctx, FR_INVALID,
                "graph %s has no node left for the stage that begins at \"%s\"; remove this cut",
                g->name, names[i]);
        if (cuts[i] < earliest || first_work(g, cuts[i]) >= (int)g->nodes.n)
            return fr_fail(g->ctx, FR_INVALID,
                           "cut \"%s\" of graph %s leaves a stage with inputs only; the first "
                           "possible node here is \"%s\"",
                           names[i], g->name, g->nodes.at[earliest]->name);
    }
    return FR_OK;
}

/* --- links ----------------------------------------------------------------------------------- */

static int compare_links(const void *a, const void *b)
{
    const fr_stage_link *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static void add_link(int *n, fr_stage_link *links, int from, int to)
{
    for (int i = 0; i < *n; i++)
        if (links[i].from == from && links[i].to == to) return;
    links[(*n)++] = (fr_stage_link){from, to};
}

fr_status fr_graph_links(const fr_graph *g, int n_stages, const fr_stage *stages, int *n_forward,
                         fr_stage_link *forward, int *n_backward, fr_stage_link *backward)
{
    *n_forward = *n_backward = 0;
    if (!g->is_finished)
        return fr_fail(g->ctx, FR_INVALID, "graph %s must be finished before it is cut", g->name);
    pthread_mutex_lock(&g->cutter->lock);
    int *made_in = g->cutter->scratch, *next = made_in + g->nodes.n; /* (n_nodes) each */
    for (int s = 0; s < n_stages; s++)
        for (int i = stages[s].first; i < stages[s].last; i++) made_in[i] = next[i] = s;
    for (int s = 0; s < n_stages; s++)
        for (int i = 0; i < stages[s].n_inputs; i++) {
            int x = stages[s].inputs[i];
            if (g->nodes.at[x]->op == FR_OP_INPUT) continue;
            add_link(n_forward, forward, made_in[x], s);
            if (!g->nodes.at[x]->needs_grad) continue;
            /* Each reader adds its gradient to the sum from the reader after it and sends the
             * result to the reader before it. The order of this sum depends only on the cut. */
            add_link(n_backward, backward, s, next[x]);
            next[x] = s;
        }
    pthread_mutex_unlock(&g->cutter->lock);
    qsort(forward, (size_t)*n_forward, sizeof *forward, compare_links);
    qsort(backward, (size_t)*n_backward, sizeof *backward, compare_links);
    return FR_OK;
}
