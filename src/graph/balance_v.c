/* balance_v.c -- places of cuts for a V: worker w of p has stages w and 2p - 1 - w.
 *
 * Workers take the chain from both ends: worker 0 its first and its last part, worker 1 the next
 * ones, and the last worker the two parts in the middle. A worker with parts of work a and b costs
 *
 *     a + b + |a - b| / 8
 *
 * It is busy for a + b, and waits a little where its parts differ, since a schedule alternates
 * between them. (Simulated with zbv, 2 workers, 4 micro-batches, all cuts of vgg16 and gpt: of
 * those with equal a + b, |a - b| costs from 0.03 of itself where it is small to 0.18 where it is
 * large; with 1/8 the order of the cuts is that of their times.)
 *
 * The least largest cost is found by bisection. A limit is feasible if the workers can take the
 * chain within it: for each end i of the first parts only the earliest beginning j of the last
 * parts is kept, since less is left between i and j. (With three workers or more this can miss the
 * best cuts: a worker must take at least one trained node, and the one before j can be large.)
 * Within the limit, the other workers are then balanced too, border by border, and cuts move a
 * little to where fewer bytes cross them. */
#include "graph/internal.h"

#include <math.h>
#include <string.h>

enum {
    MOST_PLACES = 1024, /* for cuts; a longer chain is cut at every second node, or third, ... */
    N_HALVINGS = 50,
    N_ROUNDS = 3
};

static const double UNEVEN = 1.0 / 8; /* of |a - b| */
static const double SLACK = 1.0 / 64; /* of a worker's time, for other aims */

struct v {
    const struct fr__chain *c;
    int n_workers, stride;
    int *from, *to; /* (n_workers - 1, n + 1) by end i of the first parts: where worker w begins its
                       first part, and its last part; to -1: out of reach */
};

static double cost_of(double a, double b) { return a + b + UNEVEN * fabs(a - b); }

/* The largest b with cost_of(a, b) <= limit; negative: there is none. */
static double rest_of(double limit, double a)
{
    return a <= limit / 2 ? (limit - (1 - UNEVEN) * a) / (1 + UNEVEN)
                          : (limit - (1 + UNEVEN) * a) / (1 - UNEVEN);
}

static bool may_cut(const struct v *v, int k) { return !v->c->is_tail[k] && k % v->stride == 0; }

static int trained(const struct v *v, int first, int last)
{
    return v->c->n_trained[last] - v->c->n_trained[first];
}

static double work(const struct v *v, int first, int last)
{
    return v->c->work[last] - v->c->work[first];
}

/* Worker w takes parts from i on and up to j. The longer the first part, the shorter the last. */
static void take_parts(const struct v *v, int w, double limit, int i, int j)
{
    const size_t row = (size_t)w * (size_t)(v->c->n + 1);
    const int n_inside = 2 * (v->n_workers - 1 - w); /* parts of the other workers */
    for (int end = i + 1, start = i + 1; end < j; end++) {
        double b = rest_of(limit, work(v, i, end));
        if (b < 0) return;
        if (!may_cut(v, end) || trained(v, i, end) == 0) continue;
        while (start < j && (!may_cut(v, start) || work(v, start, j) > b ||
                             trained(v, end, start) < n_inside || start <= end))
            start++;
        if (start == j || trained(v, start, j) == 0) return;
        int *to = &v->to[row + (size_t)end];
        if (*to >= 0 && *to <= start) continue;
        *to = start;
        v->from[row + (size_t)end] = i;
    }
}

/* Where the last worker divides i .. j - 1 best; -1: nowhere. */
static int divide(const struct v *v, int i, int j)
{
    int low = i + 1,
        high = j; /* the first place with half of the work before it is in low .. high */
    while (low < high) {
        int k = low + (high - low) / 2;
        if (work(v, i, k) < work(v, k, j))
            low = k + 1;
        else
            high = k;
    }
    int up = low, down = low - 1;
    while (up < j && (!may_cut(v, up) || trained(v, i, up) == 0)) up++;
    while (down > i && (!may_cut(v, down) || trained(v, down, j) == 0)) down--;
    bool has_up = up < j && trained(v, up, j) > 0, has_down = down > i && trained(v, i, down) > 0;
    if (has_up && has_down)
        return work(v, i, up) - work(v, up, j) < work(v, down, j) - work(v, i, down) ? up : down;
    return has_up ? up : has_down ? down : -1;
}

/* at: cuts as places in the chain. */
static void trace(const struct v *v, int i, int middle, int *at)
{
    const int p = v->n_workers;
    at[p - 1] = middle;
    for (int w = p - 2; w >= 0; w--) {
        size_t place = (size_t)w * (size_t)(v->c->n + 1) + (size_t)i;
        at[w] = i;
        at[2 * p - 2 - w] = v->to[place];
        i = v->from[place];
    }
}

static bool is_feasible(const struct v *v, double limit, int *at)
{
    const int n = v->c->n, p = v->n_workers;
    const size_t row = (size_t)n + 1;
    for (size_t k = 0; k < (size_t)(p - 1) * row; k++) v->to[k] = -1;
    for (int w = 0; w < p; w++) {
        const int *before = w ? v->to + (size_t)(w - 1) * row : NULL;
        for (int i = 0; i <= (w ? n : 0); i++) {
            int j = w ? before[i] : n;
            if (j < 0) continue;
            if (w < p - 1) {
                take_parts(v, w, limit, i, j);
                continue;
            }
            int middle = divide(v, i, j);
            if (middle < 0 || cost_of(work(v, i, middle), work(v, middle, j)) > limit) continue;
            trace(v, i, middle, at);
            return true;
        }
    }
    return false;
}

/* --- within the limit --------------------------------------------------------------------------
 */

static double stage_work(const struct v *v, const int *at, int s)
{
    const int n_stages = 2 * v->n_workers;
    return work(v, s ? at[s - 1] : 0, s < n_stages - 1 ? at[s] : v->c->n);
}

static double worker_cost(const struct v *v, const int *at, int w)
{
    return cost_of(stage_work(v, at, w), stage_work(v, at, 2 * v->n_workers - 1 - w));
}

static int worker_of(const struct v *v, int s)
{
    return s < v->n_workers ? s : 2 * v->n_workers - 1 - s;
}

/* May cut s be before place k, if the other cuts stay? */
static bool is_place(const struct v *v, const int *at, int s, int k)
{
    const int n_cuts = 2 * v->n_workers - 1;
    int first = s ? at[s - 1] : 0, last = s + 1 < n_cuts ? at[s + 1] : v->c->n;
    return first < k && k < last && may_cut(v, k) && trained(v, first, k) > 0 &&
           trained(v, k, last) > 0;
}

/* Both cuts between workers w and w + 1, where the squares of costs are least: workers that are not
 * the slowest shall be balanced too. The last worker divides its part anew. */
static void even_out(const struct v *v, double limit, int w, int *at)
{
    const int n_cuts = 2 * v->n_workers - 1, t = n_cuts - 1 - w, middle = v->n_workers - 1;
    const bool divides = w + 1 == middle;
    const int first = w ? at[w - 1] : 0, last = w ? at[t + 1] : v->c->n;
    int best[3] = {at[w], at[t], at[middle]};
    double least = INFINITY;
    for (int i = first + 1; i < (divides ? last : at[w + 1]); i++) {
        if (!may_cut(v, i)) continue;
        for (int j = divides ? i + 1 : at[t - 1] + 1; j < last; j++) {
            if (!may_cut(v, j)) continue;
            at[w] = i, at[t] = j;
            if (divides) at[middle] = divide(v, i, j);
            if (at[middle] < 0) continue;
            double a = worker_cost(v, at, w), b = worker_cost(v, at, w + 1);
            if (a > limit || b > limit || a * a + b * b >= least || !is_place(v, at, w, i) ||
                !is_place(v, at, t, j))
                continue;
            least = a * a + b * b;
            best[0] = i, best[1] = j, best[2] = at[middle];
        }
    }
    at[w] = best[0], at[t] = best[1], at[middle] = best[2];
}

/* To where fewer bytes cross. */
static void reduce_bytes(const struct v *v, double limit, int *at)
{
    const int n_cuts = 2 * v->n_workers - 1;
    for (int s = 0; s < n_cuts; s++) {
        const int one = worker_of(v, s), other = worker_of(v, s + 1);
        const double most = fmin(limit, worker_cost(v, at, one) * (1 + SLACK)),
                     most_other = fmin(limit, worker_cost(v, at, other) * (1 + SLACK));
        int best = at[s];
        const int first = s ? at[s - 1] : 0, last = s + 1 < n_cuts ? at[s + 1] : v->c->n;
        for (int k = first + 1; k < last; k++) {
            if (v->c->bytes[k] >= v->c->bytes[best] || !is_place(v, at, s, k)) continue;
            at[s] = k;
            if (worker_cost(v, at, one) <= most && worker_cost(v, at, other) <= most_other)
                best = k;
        }
        at[s] = best;
    }
}

/* --------------------------------------------------------------------------------------------- */

static double slowest(const struct v *v, const int *at)
{
    double most = 0;
    for (int w = 0; w < v->n_workers; w++) most = fmax(most, worker_cost(v, at, w));
    return most;
}

/* at: cuts that balance the stages; they stay if they balance the workers too, or if stages without
 * trained parameters, or that begin with an activation, cannot be avoided. */
static void solve(const struct v *v, int *at, int *other)
{
    const double all = v->c->work[v->c->n];
    double low = all / v->n_workers, high = cost_of(all, 0);
    if (!is_feasible(v, high, other)) return;
    for (int i = 0; i < N_HALVINGS; i++) {
        double middle = low + (high - low) / 2;
        if (is_feasible(v, middle, other))
            high = middle;
        else
            low = middle;
    }
    if (slowest(v, at) <= high * (1 + SLACK) || !is_feasible(v, high, other)) return;
    for (int i = 0; i < N_ROUNDS; i++)
        for (int w = 0; w < v->n_workers - 1; w++) even_out(v, high, w, other);
    reduce_bytes(v, high, other);
    if (slowest(v, other) < slowest(v, at))
        memcpy(at, other, sizeof *at * (size_t)(2 * v->n_workers - 1));
}

fr_status fr_graph_balance_v(const fr_graph *g, int n_stages, int *cuts)
{
    FR_TRY(fr_graph_balance(g, n_stages, cuts));
    if (n_stages < 2 || n_stages % 2 != 0) return FR_OK;
    fr_arena arena = {0};
    struct fr__chain c;
    struct v v = {.c = &c, .n_workers = n_stages / 2};
    size_t cells = (size_t)v.n_workers * (g->nodes.n + 1);
    int *at = FR_ARENA_ARRAY(&arena, int, n_stages), *other = FR_ARENA_ARRAY(&arena, int, n_stages);
    v.from = FR_ARENA_ARRAY(&arena, int, cells), v.to = FR_ARENA_ARRAY(&arena, int, cells);
    fr_status status = FR_OK;
    if (at && other && v.from && v.to && fr__chain_create(g, &arena, &c)) {
        v.stride = 1 + c.n / MOST_PLACES;
        for (int s = 0, k = 0; s < n_stages - 1; at[s++] = k)
            while (c.node[k] < cuts[s]) k++;
        solve(&v, at, other);
        for (int s = 0; s < n_stages - 1; s++) cuts[s] = c.node[at[s]];
    } else {
        status = fr__no_memory(g->ctx, cells * sizeof *at, "balanced stages");
    }
    fr__arena_fini(&arena);
    return status;
}
