/* profile_stage.c -- cost of a stage: sums over its nodes, and the times at which gradients are
 * final.
 *
 * A backward runs the nodes in reverse order, and the gradients of a node are final when its
 * backward ends. The curve of final bytes over time is a staircase with two points per step.
 * Planners and simulations request the same stages many times, so results are cached. */
#include "cost/profile.h"

#include <math.h>
#include <string.h>

enum { MAX_STEPS = 64 }; /* of a staircase; further steps are merged, at the later time */

struct fr__stage_memo {
    struct fr__stage_memo *next;
    int first, last;
    const bool *recompute; /* [last - first]; NULL: none */
    fr_stage_cost cost;
};

double fr_curve_time(const fr_curve *c, double bytes)
{
    double share = fmin(fmax(bytes, 0), 1);
    if (c->n < 2) return share;
    int i = 0;
    while (i < c->n - 1 && c->bytes[i] < share) i++;
    if (i == 0) return c->time[0];
    double rise = c->bytes[i] - c->bytes[i - 1];
    double part = rise > 0 ? fmin((share - c->bytes[i - 1]) / rise, 1) : 1;
    return c->time[i - 1] + part * (c->time[i] - c->time[i - 1]);
}

/* --- sums ------------------------------------------------------------------------------------- */

static double or_half(double part_s, double whole_s)
{
    return isnan(part_s) ? whole_s / 2 : part_s;
}

/* Nodes of which nothing is needed in the backward do not run again. Sets needed[last - first]. */
static double again_s(const fr_profile *p, int first, int last, const bool *recompute, bool *needed)
{
    double sum = 0;
    for (int i = last - 1; i >= first; i--) {
        const fr_profile_node *n = &p->nodes[i];
        if (n->is_input || !recompute[i - first] || !(needed[i - first] || n->kept_bytes > 0))
            continue;
        sum += n->forward_s;
        for (int k = 0; k < n->n_inputs; k++)
            if (n->inputs[k] >= first) needed[n->inputs[k] - first] = true;
    }
    return sum;
}

static void add_up(const fr_profile *p, int first, int last, const bool *recompute,
                   fr_stage_cost *c)
{
    const struct fr__profile_store *s = p->arena;
    int64_t values = 0, scratch = 0, edges = 0;
    for (int i = 0; i < first; i++) edges += s->last_use[i] >= first ? p->nodes[i].edge_bytes : 0;
    for (int i = first; i < last; i++) {
        const fr_profile_node *n = &p->nodes[i];
        if (n->is_input) continue;
        c->forward += n->forward_s;
        c->backward += n->backward_s;
        c->back_input += or_half(n->back_input_s, n->backward_s);
        c->back_weight += or_half(n->back_weight_s, n->backward_s);
        c->step += n->update_s;
        c->fetch_forward += n->fetch_forward_s;
        c->fetch_backward += n->fetch_backward_s;
        c->param_bytes += n->param_bytes;
        c->fixed_bytes += n->fixed_bytes;
        values = n->values_bytes > values ? n->values_bytes : values;
        scratch = n->scratch_bytes > scratch ? n->scratch_bytes : scratch;
        bool leaves = s->last_use[i] < 0 || s->last_use[i] >= last;
        edges += s->last_use[i] >= last ? n->edge_bytes : 0;
        if (!recompute || !recompute[i - first])
            c->kept_bytes += n->kept_bytes;
        else if (leaves)
            c->kept_bytes += n->output_bytes;
    }
    c->workspace_bytes = s->has_workspaces ? values + scratch + edges : (int64_t)p->workspace_bytes;
}

/* --- the curve -------------------------------------------------------------------------------- */

struct stairs {
    double time[2 * MAX_STEPS + 2], bytes[2 * MAX_STEPS + 2];
    int n;
};

static void add_point(struct stairs *s, double time, double bytes)
{
    s->time[s->n] = fmin(time, 1);
    s->bytes[s->n++] = fmin(bytes, 1);
}

/* Requires the totals in c. */
static void climb(const fr_profile *p, int first, int last, const fr_stage_cost *c,
                  struct stairs *s)
{
    int n_steps = 0, step = 0, group = 0;
    double whole = c->backward - c->recompute, time = 0, bytes = 0, told = 0;
    for (int i = first; i < last; i++) n_steps += p->nodes[i].param_bytes > 0;
    int n_groups = n_steps < MAX_STEPS ? n_steps : MAX_STEPS;
    add_point(s, 0, 0);
    for (int i = last - 1; i >= first; i--) {
        const fr_profile_node *n = &p->nodes[i];
        if (n->is_input) continue;
        time += n->backward_s;
        if (n->param_bytes == 0) continue;
        bytes += (double)n->param_bytes / (double)c->param_bytes;
        if (++step * n_groups / n_steps == group) continue;
        group++;
        add_point(s, time / whole, told);
        add_point(s, time / whole, bytes);
        told = bytes;
    }
    add_point(s, 1, 1);
}

static bool draw(fr_arena *a, const fr_profile *p, int first, int last, fr_stage_cost *c)
{
    struct stairs s = {.n = 0};
    if (c->param_bytes == 0 || c->backward <= c->recompute) return true; /* no trained weights */
    climb(p, first, last, c, &s);
    double *points = FR_ARENA_ARRAY(a, double, 2 * s.n);
    if (!points) return false;
    memcpy(points, s.time, (size_t)s.n * sizeof *points);
    memcpy(points + s.n, s.bytes, (size_t)s.n * sizeof *points);
    c->final = (fr_curve){s.n, points, points + s.n};
    return true;
}

/* --- cache ------------------------------------------------------------------------------------ */

static size_t hash(int first, int last, const bool *recompute)
{
    uint64_t h = ((uint64_t)(uint32_t)first << 32) ^ (uint64_t)(uint32_t)last;
    for (int i = 0; i < last - first && recompute; i++)
        h = (h ^ recompute[i]) * 0x100000001b3; /* FNV-1a */
    h *= 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 20);
}

static bool is_same(const struct fr__stage_memo *m, int first, int last, const bool *recompute)
{
    return m->first == first && m->last == last && !m->recompute == !recompute &&
           (!recompute || memcmp(m->recompute, recompute, (size_t)(last - first)) == 0);
}

static bool grow(struct fr__profile_store *s)
{
    size_t room = s->room ? 2 * s->room : 64;
    struct fr__stage_memo **memo = FR_NEW_ARRAY(struct fr__stage_memo *, room);
    if (!memo) return false;
    for (size_t i = 0; i < s->room; i++)
        for (struct fr__stage_memo *m = s->memo[i], *next; m; m = next) {
            size_t at = hash(m->first, m->last, m->recompute) % room;
            next = m->next;
            m->next = memo[at];
            memo[at] = m;
        }
    fr__free(s->memo);
    s->memo = memo;
    s->room = room;
    return true;
}

static struct fr__stage_memo *new_memo(fr_arena *a, const fr_profile *p, int first, int last,
                                       const bool *recompute)
{
    const int n = last - first;
    struct fr__stage_memo *m = FR_ARENA_NEW(a, struct fr__stage_memo);
    if (!m) return NULL;
    m->first = first, m->last = last;
    add_up(p, first, last, recompute, &m->cost);
    if (recompute) {
        bool *lists = FR_ARENA_ARRAY(a, bool, 2 * n); /* the set, and room for again_s */
        if (!lists) return NULL;
        memcpy(lists, recompute, (size_t)n * sizeof *lists);
        m->recompute = lists;
        m->cost.recompute = again_s(p, first, last, lists, lists + n);
        m->cost.backward += m->cost.recompute;
        m->cost.back_input += m->cost.recompute;
    }
    return draw(a, p, first, last, &m->cost) ? m : NULL;
}

/* The lock is held. recompute: [last - first], NULL if there is none. NULL: no memory. */
static const fr_stage_cost *look_up(const fr_profile *p, int first, int last, const bool *recompute)
{
    struct fr__profile_store *s = p->arena;
    size_t h = hash(first, last, recompute);
    for (struct fr__stage_memo *m = s->room ? s->memo[h % s->room] : NULL; m; m = m->next)
        if (is_same(m, first, last, recompute)) return &m->cost;
    if (s->n == s->room && !grow(s)) return NULL;
    struct fr__stage_memo *m = new_memo(&s->costs, p, first, last, recompute);
    if (!m) return NULL;
    m->next = s->memo[h % s->room];
    s->memo[h % s->room] = m;
    s->n++;
    return &m->cost;
}

fr_status fr_profile_stage(fr_ctx *ctx, const fr_profile *p, int first, int last,
                           const bool *recompute, fr_stage_cost *out)
{
    struct fr__profile_store *s = p->arena;
    *out = (fr_stage_cost){0};
    if (!s || !s->last_use)
        return fr_fail(
            ctx, FR_INVALID,
            "profile of %s: incomplete; make it by fr_profile_copy or read it from a file",
            p->model ? p->model : "?");
    if (first < 0 || last > p->n_nodes || first >= last)
        return fr_fail(ctx, FR_INVALID,
                       "profile of %s: a stage of nodes %d to %d; there are nodes 0 to %d",
                       p->model, first, last - 1, p->n_nodes - 1);
    bool again = false;
    for (int i = first; i < last && recompute; i++) again = again || recompute[i];
    pthread_mutex_lock(&s->lock);
    const fr_stage_cost *cost = look_up(p, first, last, again ? recompute + first : NULL);
    if (cost) *out = *cost;
    pthread_mutex_unlock(&s->lock);
    return cost ? FR_OK : fr__no_memory(ctx, sizeof *out, "the cost of a stage");
}
