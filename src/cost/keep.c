/* keep.c -- the nodes of least forward time whose dropped values free so many bytes.
 *
 * It is a knapsack in which neighbours depend on each other: a node that is recomputed reads its
 * inputs, and an input that is kept, but whose output no backward needs, must keep its output for
 * that. Such an input is open until its last reader is decided.
 *
 * Pareto dynamic program with a bound: nodes are decided in order. Of two partial sets with the
 * same open inputs, the one that takes no less time and frees no more is dropped; so is one whose
 * bound is not below the best set known. Bound: the seconds per byte of the nodes that are not
 * decided, the cheapest first, the last one in part. The best set known at the start is everything
 * without the nodes, the dearest per byte first, that are not needed.
 *
 * Cost: 300 nodes with random numbers leave some thousand partial sets in all (a millisecond), with
 * many open inputs some hundred thousand (0.1 s). Worst cases grow exponentially: after MOST_STATES
 * the best set known is returned as one that is not proved. */
#include "cost/keep.h"

#include "base/arena.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STATES = 1 << 21, N_BITS = 63, PREVIOUS = 63 }; /* PREVIOUS: a bit of its own */

/* A set of the nodes decided so far. */
struct state {
    double seconds, freed;
    uint64_t open; /* bits of kept inputs whose outputs are not counted yet */
    int step;      /* how it came about; -1: nothing is recomputed */
};

/* The last recomputed node of a set, and the set without it. */
struct step {
    int node, before;
};

typedef FR_VEC(struct state) states;

struct search {
    int n;
    const fr__keep_node *nodes;
    double to_free;
    double *seconds, *freed;       /* (n) with those that are joined to the node; 0: it is joined */
    int *last_use;                 /* (n) the last reader; -1: none */
    int *bit;                      /* (n) while it is open; -1: none */
    uint64_t used;                 /* bits */
    int *order;                    /* (n) those that free anything, the cheapest per byte first */
    double *cheap_s, *cheap_bytes; /* (n + 1) sums over those of the order that are left */
    int n_cheap;
    bool *best; /* (n) */
    double best_s;
    int best_step; /* of the best set; -2: it is in `best` */
    int64_t n_states;
    states now, next;
    FR_VEC(struct step) steps;
};

/* --- a whole set ------------------------------------------------------------------------------ */

static bool is_read(const struct search *q, const bool *set, int j)
{
    for (int i = j + 1; i <= q->last_use[j]; i++)
        for (int k = 0; set[i] && k < q->nodes[i].n_inputs; k++)
            if (q->nodes[i].inputs[k] == j) return true;
    return false;
}

static double freed_by(const struct search *q, const bool *set)
{
    double sum = 0;
    for (int i = 0; i < q->n; i++)
        if (set[i])
            sum += q->nodes[i].freed;
        else if (q->nodes[i].output > 0 && is_read(q, set, i))
            sum -= q->nodes[i].output;
    return sum;
}

static void set_group(const struct search *q, bool *set, int head, bool value)
{
    set[head] = value;
    for (int i = head + 1; i < q->n && q->nodes[i].is_joined; i++) set[i] = value;
}

/* Everything, then without one node after the other, the dearest per byte first, as long as it
 * frees enough: those that free nothing, then the order from its end. */
static void guess(struct search *q)
{
    for (int i = 0; i < q->n; i++) q->best[i] = true;
    q->best_s = INFINITY, q->best_step = -2;
    if (freed_by(q, q->best) < q->to_free) return;
    for (int round = 0; round < 2; round++)
        for (int k = -q->n; k < q->n_cheap; k++) {
            int i = k < 0 ? q->n + k : q->order[q->n_cheap - 1 - k];
            if (q->nodes[i].is_joined || !q->best[i] || (k < 0 && q->freed[i] > 0)) continue;
            set_group(q, q->best, i, false);
            if (freed_by(q, q->best) < q->to_free) set_group(q, q->best, i, true);
        }
    q->best_s = 0;
    for (int i = 0; i < q->n; i++) q->best_s += q->best[i] ? q->nodes[i].seconds : 0;
}

/* --- the bound -------------------------------------------------------------------------------- */

static double per_byte(const struct search *q, int i) { return q->seconds[i] / q->freed[i]; }

/* Insertion sort: at most some hundred nodes, and qsort has no way to the search. */
static void sort_by_price(struct search *q)
{
    q->n_cheap = 0;
    for (int i = 0; i < q->n; i++) {
        if (q->freed[i] <= 0) continue;
        int k = q->n_cheap++;
        for (; k > 0 && per_byte(q, q->order[k - 1]) > per_byte(q, i); k--)
            q->order[k] = q->order[k - 1];
        q->order[k] = i;
    }
}

/* Sums over the nodes from `first` on. */
static void sum_prices(struct search *q, int first)
{
    int n = 0;
    for (int k = 0; k < q->n_cheap; k++) {
        if (q->order[k] < first) continue;
        q->order[n] = q->order[k];
        q->cheap_s[n + 1] = q->cheap_s[n] + q->seconds[q->order[n]];
        q->cheap_bytes[n + 1] = q->cheap_bytes[n] + q->freed[q->order[n]];
        n++;
    }
    q->n_cheap = n;
}

/* No fewer seconds free so many bytes; INFINITY: nothing does. */
static double bound(const struct search *q, double bytes)
{
    int low = 0, high = q->n_cheap; /* the first sum that is enough */
    if (q->cheap_bytes[high] < bytes) return INFINITY;
    while (low < high) {
        int middle = (low + high) / 2;
        if (q->cheap_bytes[middle] < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return 0;
    double part = (bytes - q->cheap_bytes[low - 1]) / q->freed[q->order[low - 1]];
    return q->cheap_s[low - 1] + part * q->seconds[q->order[low - 1]];
}

/* --- one node after the other ----------------------------------------------------------------- */

static uint64_t bit_of(const struct search *q, int node)
{
    return node >= 0 && q->bit[node] >= 0 ? (uint64_t)1 << q->bit[node] : 0;
}

/* Node i is recomputed: its open inputs count. False: no memory. */
static bool take(struct search *q, int i, const struct state *from, struct state *to)
{
    const fr__keep_node *node = &q->nodes[i];
    *to = *from;
    to->seconds += q->seconds[i], to->freed += q->freed[i];
    for (int k = 0; k < node->n_inputs; k++) {
        uint64_t bit = bit_of(q, node->inputs[k]) & to->open;
        if (!bit) continue;
        to->open &= ~bit;
        to->freed -= q->nodes[node->inputs[k]].output;
    }
    to->open |= (uint64_t)1 << PREVIOUS;
    to->step = (int)q->steps.n;
    return fr__vec_push(&q->steps, ((struct step){i, from->step}));
}

/* A set that may still become the best goes on; one that frees enough is done, unless nodes that
 * are joined to its last one follow. */
static bool put(struct search *q, struct state s, bool joins)
{
    const double missing = q->to_free - s.freed;
    if (missing <= 0 && !joins) {
        if (s.seconds < q->best_s) q->best_s = s.seconds, q->best_step = s.step;
        return true;
    }
    if (s.seconds + bound(q, missing) >= q->best_s) return true;
    q->n_states++;
    return fr__vec_push(&q->next, s);
}

static int by_bytes(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    if (x->open != y->open) return x->open < y->open ? -1 : 1;
    if (x->freed != y->freed) return x->freed > y->freed ? -1 : 1;
    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* Of sets with the same open inputs, those that no other is as good as. */
static void thin_out(states *s)
{
    size_t n = 0;
    if (s->n == 0) return;
    qsort(s->at, s->n, sizeof *s->at, by_bytes);
    for (size_t i = 0; i < s->n; i++)
        if (n == 0 || s->at[i].open != s->at[n - 1].open || s->at[i].seconds < s->at[n - 1].seconds)
            s->at[n++] = s->at[i];
    s->n = n;
}

/* Bits of nodes that i is the last to read are free again. */
static uint64_t close_inputs(struct search *q, int i)
{
    uint64_t closed = 0;
    for (int k = 0; k < q->nodes[i].n_inputs; k++) {
        int j = q->nodes[i].inputs[k];
        if (j < 0 || q->last_use[j] != i) continue;
        closed |= bit_of(q, j);
        q->bit[j] = -1;
    }
    q->used &= ~closed;
    return closed;
}

/* False: no memory. */
static bool decide(struct search *q, int i, bool *is_least)
{
    const fr__keep_node *node = &q->nodes[i];
    const bool joins = i + 1 < q->n && q->nodes[i + 1].is_joined;
    const bool opens = node->output > 0 && q->last_use[i] > i;
    bool has_memory = true;
    uint64_t own = 0;
    int bit = 0;
    sum_prices(q, i + 1);
    while (opens && bit < N_BITS && (q->used >> bit & 1)) bit++;
    if (opens && bit < N_BITS) own = (uint64_t)1 << bit;
    q->next.n = 0;
    for (size_t k = 0; k < q->now.n && has_memory; k++) {
        struct state kept = q->now.at[k], taken;
        const bool is_taken = node->is_joined && kept.open >> PREVIOUS & 1;
        const uint64_t closed = ~((uint64_t)1 << PREVIOUS);
        kept.open &= closed;
        if (!node->is_joined || is_taken) {
            has_memory = take(q, i, &kept, &taken);
            if (!joins) taken.open &= closed;
            has_memory = has_memory && put(q, taken, joins);
        }
        if (is_taken || !has_memory) continue;
        kept.open |= own;
        if (opens && !own) kept.freed -= node->output, *is_least = false; /* counted at once */
        has_memory = put(q, kept, joins);
    }
    const uint64_t closed = close_inputs(q, i);
    for (size_t k = 0; k < q->next.n; k++) q->next.at[k].open &= ~closed;
    if (own) q->bit[i] = bit, q->used |= own;
    thin_out(&q->next);
    states swap = q->now;
    q->now = q->next, q->next = swap;
    return has_memory;
}

/* --- the whole -------------------------------------------------------------------------------- */

static bool prepare(struct search *q, fr_arena *a)
{
    const int n = q->n;
    q->seconds = FR_ARENA_ARRAY(a, double, n + 1), q->freed = FR_ARENA_ARRAY(a, double, n + 1);
    q->cheap_s = FR_ARENA_ARRAY(a, double, n + 1);
    q->cheap_bytes = FR_ARENA_ARRAY(a, double, n + 1);
    q->last_use = FR_ARENA_ARRAY(a, int, n + 1), q->bit = FR_ARENA_ARRAY(a, int, n + 1);
    q->order = FR_ARENA_ARRAY(a, int, n + 1), q->best = FR_ARENA_ARRAY(a, bool, n + 1);
    if (!q->seconds || !q->freed || !q->cheap_s || !q->cheap_bytes || !q->last_use || !q->bit ||
        !q->order || !q->best)
        return false;
    for (int i = 0, head = 0; i < n; i++) {
        const fr__keep_node *node = &q->nodes[i];
        if (!node->is_joined) head = i;
        q->seconds[head] += node->seconds, q->freed[head] += node->freed;
        q->bit[i] = q->last_use[i] = -1;
        for (int k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] >= 0) q->last_use[node->inputs[k]] = i;
    }
    sort_by_price(q);
    return fr__vec_push(&q->now, ((struct state){.step = -1}));
}

fr_status fr__keep_least(fr_ctx *ctx, int n, const fr__keep_node *nodes, double to_free,
                         fr__keep_set *out)
{
    struct search q = {.n = n, .nodes = nodes, .to_free = to_free};
    fr_arena arena = {0};
    bool has_memory = true;
    out->seconds = 0, out->is_least = true;
    memset(out->recompute, 0, (size_t)n * sizeof *out->recompute);
    if (to_free <= 0) return FR_OK;
    has_memory = prepare(&q, &arena);
    if (has_memory) guess(&q);
    for (int i = 0; i < n && has_memory && q.n_states <= MOST_STATES; i++)
        has_memory = decide(&q, i, &out->is_least);
    if (q.n_states > MOST_STATES) out->is_least = false;
    out->seconds = q.best_s;
    if (q.best_step == -2 && isfinite(q.best_s)) memcpy(out->recompute, q.best, (size_t)n);
    for (int s = q.best_step; s >= 0; s = q.steps.at[s].before)
        out->recompute[q.steps.at[s].node] = true;
    fr__vec_fini(&q.now), fr__vec_fini(&q.next), fr__vec_fini(&q.steps);
    fr__arena_fini(&arena);
    return has_memory ? FR_OK : fr__no_memory(ctx, (size_t)n * sizeof *nodes, "a choice of nodes");
}
