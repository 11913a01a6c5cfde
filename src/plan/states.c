/* states.c -- where a graph with branches can be cut: the states of PipeDream's planner.
 *
 * A chain of n nodes can be cut in n - 1 places. With branches there are more: anything closed
 * towards its inputs may be what has been placed so far. PipeDream (Narayanan et al., SOSP 2019,
 * and the optimizer its authors publish) names such a part by its last nodes, an antichain, and
 * walks from one antichain to the next, a node at a time:
 *
 *   - an antichain is *augmented* by those predecessors that still have a reader outside of what
 *     comes before one of its nodes; the bytes that leave a state are the outputs of all of these
 *     (so the fork of two branches that are both under way counts, beside the branches);
 *   - a next antichain takes a reader of an augmented node in the place of that node, and drops
 *     what then lies in front of others; a reader in front of any augmented node is not taken;
 *   - the walk begins at the first source of the file; other sources come in with what reads them.
 *
 * Outputs of several parts that nobody reads ("__getitem__" at the end) are left out beforehand. */
#include "base/vec.h"
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

typedef FR_VEC(uint64_t) bits_vec;
typedef FR_VEC(int) int_vec;

struct walk {
    struct fr__task *t;
    int words;
    uint64_t *before, *behind; /* (n, words): all predecessors, all successors of a unit */
    uint64_t *extra;           /* (n, words): predecessors with a reader outside of before + unit */
    uint64_t *readers;         /* (n, words): direct successors */
    bool *is_dropped;          /* (n) */
    bits_vec chains;           /* (states, words): antichains, as found */
    int_vec from, to;          /* edges between states */
    int *slots;                /* (n_slots): hash of antichains; state + 1 */
    size_t n_slots;
};

static uint64_t *row(uint64_t *bits, int words, int i) { return bits + (size_t)i * (size_t)words; }

static void merge(uint64_t *into, const uint64_t *from, int words)
{
    for (int w = 0; w < words; w++) into[w] |= from[w];
}

static bool do_meet(const uint64_t *a, const uint64_t *b, int words)
{
    for (int w = 0; w < words; w++)
        if (a[w] & b[w]) return true;
    return false;
}

static fr_status relate(struct walk *w)
{
    struct fr__task *t = w->t;
    const fr_profile *p = t->profile;
    size_t room = (size_t)t->n * (size_t)w->words;
    uint64_t **all[] = {&w->before, &w->behind, &w->extra, &w->readers};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i] = FR_ARENA_ARRAY(&t->arena, uint64_t, room)))
            return fr__no_memory(t->ctx, room * 8, "the order of nodes");
    int *unit_of = FR_ARENA_ARRAY(&t->arena, int, p->n_nodes);
    bool *is_read = FR_ARENA_ARRAY(&t->arena, bool, p->n_nodes);
    w->is_dropped = FR_ARENA_ARRAY(&t->arena, bool, t->n);
    if (!unit_of || !is_read || !w->is_dropped) return fr__no_memory(t->ctx, 0, "nodes of a plan");
    for (int u = 0; u < t->n; u++) unit_of[t->node[u]] = u;
    for (int i = 0; i < p->n_nodes; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++) is_read[p->nodes[i].inputs[k]] = true;
    for (int u = 0; u < t->n; u++) {
        const fr_profile_node *node = &p->nodes[t->node[u]];
        w->is_dropped[u] = !is_read[t->node[u]] && node->about &&
                           strncmp(node->about, "__getitem__", 11) == 0 && t->n > 1;
        for (int k = 0; k < node->n_inputs && !w->is_dropped[u]; k++) {
            if (p->nodes[node->inputs[k]].is_input) continue;
            int from = unit_of[node->inputs[k]];
            fr__set_bit(row(w->readers, w->words, from), u);
            fr__set_bit(row(w->before, w->words, u), from);
            merge(row(w->before, w->words, u), row(w->before, w->words, from), w->words);
        }
    }
    for (int u = t->n - 1; u >= 0; u--)
        for (int v = 0; v < t->n; v++)
            if (fr__bit(row(w->before, w->words, v), u))
                fr__set_bit(row(w->behind, w->words, u), v);
    for (int u = 0; u < t->n; u++)
        for (int q = 0; q < t->n; q++) {
            if (!fr__bit(row(w->before, w->words, u), q)) continue;
            for (int i = 0; i < w->words; i++) {
                uint64_t out = row(w->readers, w->words, q)[i] & ~row(w->before, w->words, u)[i];
                if (u >> 6 == i) out &= ~((uint64_t)1 << (u & 63));
                if (out) fr__set_bit(row(w->extra, w->words, u), q);
            }
        }
    return FR_OK;
}

static size_t hash(const uint64_t *bits, int words)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < words; i++) h = (h ^ bits[i]) * 1099511628211u, h ^= h >> 29;
    return (size_t)h;
}

/* The state of an antichain, new or known; -1: out of memory. Slots are twice the states. */
static int state_of(struct walk *w, const uint64_t *chain)
{
    int n = (int)(w->chains.n / (size_t)w->words);
    size_t at = hash(chain, w->words) % w->n_slots;
    for (; w->slots[at]; at = (at + 1) % w->n_slots)
        if (memcmp(row(w->chains.at, w->words, w->slots[at] - 1), chain,
                   (size_t)w->words * sizeof *chain) == 0)
            return w->slots[at] - 1;
    w->slots[at] = n + 1;
    for (int i = 0; i < w->words; i++)
        if (!fr__vec_push(&w->chains, chain[i])) return -1;
    return n;
}

static void augment(const struct walk *w, const uint64_t *chain, uint64_t *out)
{
    memcpy(out, chain, (size_t)w->words * sizeof *out);
    for (int u = 0; u < w->t->n; u++)
        if (fr__bit(chain, u)) merge(out, row(w->extra, w->words, u), w->words);
}

/* `next` in the place of x. */
static void replace(const struct walk *w, const uint64_t *all, int x, int next, uint64_t *out)
{
    uint64_t *list = out + w->words;
    memcpy(list, all, (size_t)w->words * sizeof *list);
    list[x >> 6] &= ~((uint64_t)1 << (x & 63));
    fr__set_bit(list, next);
    memset(out, 0, (size_t)w->words * sizeof *out);
    for (int u = 0; u < w->t->n; u++)
        if (fr__bit(list, u) && !do_meet(row(w->behind, w->words, u), list, w->words))
            fr__set_bit(out, u);
}

/* Edges from one state; scratch: 4 * words. */
static bool explore(struct walk *w, int state, uint64_t *scratch)
{
    uint64_t *chain = scratch, *all = scratch + w->words, *next = scratch + 2 * w->words;
    memcpy(chain, row(w->chains.at, w->words, state), (size_t)w->words * sizeof *chain);
    augment(w, chain, all);
    for (int x = 0; x < w->t->n; x++) {
        if (!fr__bit(all, x)) continue;
        for (int c = 0; c < w->t->n; c++) {
            if (!fr__bit(row(w->readers, w->words, x), c) || fr__bit(chain, c) ||
                do_meet(row(w->behind, w->words, c), all, w->words))
                continue;
            replace(w, all, x, c, next);
            int to = state_of(w, next);
            if (to < 0 || !fr__vec_push(&w->from, state) || !fr__vec_push(&w->to, to)) return false;
        }
    }
    return true;
}

/* --- the result ------------------------------------------------------------------------------ */

static fr_status reserve(struct fr__task *t, int n, struct fr__states *s)
{
    s->n = n, s->words = (t->n + 63) / 64, s->state_words = (n + 63) / 64;
    double **sums[] = {&s->work, &s->params, &s->kept, &s->out};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (!(*sums[i] = FR_ARENA_ARRAY(&t->arena, double, n)))
            return fr__no_memory(t->ctx, (size_t)n * 8, "states of a plan");
    s->inside = FR_ARENA_ARRAY(&t->arena, uint64_t, (size_t)n * (size_t)s->words);
    s->before = FR_ARENA_ARRAY(&t->arena, uint64_t, (size_t)n * (size_t)s->state_words);
    if (!s->inside || !s->before)
        return fr__no_memory(t->ctx, (size_t)n * (size_t)s->state_words * 8, "states of a plan");
    return FR_OK;
}

static void add_unit(const struct fr__task *t, struct fr__states *s, int i, int u)
{
    s->work[i] += fr__task_work(t, u, u + 1);
    s->params[i] += t->params[u + 1] - t->params[u];
    for (int k = t->node[u]; k < t->node[u + 1]; k++)
        if (!t->profile->nodes[k].is_input) s->kept[i] += (double)t->profile->nodes[k].output_bytes;
}

static fr_status make_chain(struct fr__task *t, struct fr__states *s)
{
    FR_TRY(reserve(t, t->n, s));
    s->is_chain = true;
    for (int i = 0; i < t->n; i++) {
        for (int u = 0; u <= i; u++) fr__set_bit(row(s->inside, s->words, i), u);
        for (int k = 0; k < i; k++) fr__set_bit(row(s->before, s->state_words, i), k);
        s->out[i] = t->cut[i + 1];
        if (i)
            s->work[i] = s->work[i - 1], s->params[i] = s->params[i - 1],
            s->kept[i] = s->kept[i - 1];
        add_unit(t, s, i, i);
    }
    return FR_OK;
}

struct sized {
    int size, state;
};
static int by_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    return x->size != y->size ? (x->size > y->size) - (x->size < y->size) : x->state - y->state;
}

/* Sorted by size: a state lies inside those that it leads to, so it comes before them. */
static fr_status finish(struct walk *w, struct fr__states *s)
{
    struct fr__task *t = w->t;
    int n = (int)(w->chains.n / (size_t)w->words);
    FR_TRY(reserve(t, n, s));
    struct sized *order = FR_ARENA_ARRAY(&t->arena, struct sized, n);
    int *rank = FR_ARENA_ARRAY(&t->arena, int, n);
    uint64_t *all = FR_ARENA_ARRAY(&t->arena, uint64_t, w->words);
    if (!order || !rank || !all) return fr__no_memory(t->ctx, 0, "states of a plan");
    uint64_t *inside = FR_ARENA_ARRAY(&t->arena, uint64_t, (size_t)n * (size_t)w->words);
    if (!inside) return fr__no_memory(t->ctx, 0, "states of a plan");
    for (int i = 0; i < n; i++) {
        const uint64_t *chain = row(w->chains.at, w->words, i);
        order[i].state = i;
        merge(row(inside, w->words, i), chain, w->words);
        for (int u = 0; u < t->n; u++)
            if (fr__bit(chain, u))
                merge(row(inside, w->words, i), row(w->before, w->words, u), w->words);
        for (int k = 0; k < w->words; k++)
            order[i].size += __builtin_popcountll(row(inside, w->words, i)[k]);
    }
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        int state = order[i].state;
        rank[state] = i;
        merge(row(s->inside, s->words, i), row(inside, w->words, state), w->words);
        augment(w, row(w->chains.at, w->words, state), all);
        for (int u = 0; u < t->n; u++)
            if (fr__bit(all, u)) s->out[i] += (double)t->profile->nodes[t->node[u]].output_bytes;
        for (int u = 0; u < t->n; u++)
            if (fr__bit(row(s->inside, s->words, i), u)) add_unit(t, s, i, u);
    }
    for (size_t e = 0; e < w->from.n; e++)
        fr__set_bit(row(s->before, s->state_words, rank[w->to.at[e]]), rank[w->from.at[e]]);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (fr__bit(row(s->before, s->state_words, i), k))
                merge(row(s->before, s->state_words, i), row(s->before, s->state_words, k),
                      s->state_words);
    /* Nodes that were left out go with the last state, which ends the last stage. */
    return FR_OK;
}

static fr_status explore_all(struct walk *w, int most, bool *is_too_many)
{
    struct fr__task *t = w->t;
    uint64_t *scratch = FR_ARENA_ARRAY(&t->arena, uint64_t, 5 * (size_t)w->words);
    int first = 0;
    w->n_slots = 2 * ((size_t)most + (size_t)t->n * (size_t)t->n) + 1;
    w->slots = FR_NEW_ARRAY(int, w->n_slots);
    if (!scratch || !w->slots) return fr__no_memory(t->ctx, 0, "states of a plan");
    FR_TRY(relate(w));
    while (first < t->n - 1 &&
           (w->is_dropped[first] ||
            do_meet(row(w->before, w->words, first), row(w->before, w->words, first), w->words)))
        first++;
    fr__set_bit(scratch, first);
    if (state_of(w, scratch) < 0) return fr__no_memory(t->ctx, 0, "states of a plan");
    for (int i = 0; i < (int)(w->chains.n / (size_t)w->words); i++) {
        *is_too_many = w->chains.n / (size_t)w->words > (size_t)most;
        if (*is_too_many) return FR_OK;
        if (!explore(w, i, scratch)) return fr__no_memory(t->ctx, 0, "states of a plan");
    }
    return FR_OK;
}

fr_status fr__states_make(struct fr__task *t, int most, struct fr__states *s)
{
    struct walk w = {.t = t, .words = (t->n + 63) / 64};
    bool is_too_many = false;
    *s = (struct fr__states){0};
    if (t->problem->contiguous || t->n < t->n_nodes) return make_chain(t, s);
    fr_status status = explore_all(&w, most, &is_too_many);
    if (status == FR_OK) status = is_too_many ? make_chain(t, s) : finish(&w, s);
    fr__vec_fini(&w.chains), fr__vec_fini(&w.from), fr__vec_fini(&w.to), fr__free(w.slots);
    return status;
}
