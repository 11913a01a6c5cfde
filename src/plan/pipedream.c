/* pipedream.c -- PipeDream's planner (Narayanan et al., SOSP 2019): stages and replicas so that the
 * slowest stage or transfer of the steady state is as fast as can be.
 *
 * c: seconds forward and backward, P: parameter bytes, Out: bytes that leave a state, B: bandwidth.
 * One stage from state i to j on m machines:  T(i, j, m) = (c + 4 (m-1) P / (B m)) / m.
 *
 *     A[j][m] = min( T(0, j, m),
 *                    min over k before j, m' < m of
 *                    max(A[k][m - m'], T(k, j, m'), 2 Out[k] / (B m'), 2 Out[j] / (B m')) )
 *
 * Nothing leaves the last state. All machines are used. Levels: the same over the machines of a
 * box, for every span of states; then over boxes, where a span costs what a box needs for it; and
 * so on. As the published optimizer does, the replicas of a first stage over boxes share the
 * traffic of its sum among the machines of a box, those of later stages do not. States are those of
 * states.c: where branches may lie in different stages they are PipeDream's, else ranges of nodes.
 *
 * The memory limit is PipeDream's too: outputs and parameters of a stage, once for each micro-batch
 * in flight, ceil((N - m) / m'). Times are of a mini-batch in its words: what we call a micro-batch
 * between updates. */
#include "plan/internal.h"

#include <math.h>
#include <stdio.h>

struct cell {
    double time;
    int split, left,
        used; /* state that ends the front (-1: none), machines of it, and of the rest */
};

struct level {
    int n; /* machines */
    double bandwidth;
    int within; /* machines inside each, of the level below */
    int rows;   /* spans begin at states 0 .. rows - 1 */
    struct cell *at;
};

struct solver {
    struct fr__task *t;
    struct fr__states s;
    int n_levels;
    struct level levels[FR__MAX_LEVELS];
    double *slower, *front; /* (machines of a level): see try_split */
    /* the plan, as it is read off the tables */
    int n;
    int *end, *replicas; /* (states): last state of each stage */
    double *time;
};

static struct cell *cell(const struct solver *o, const struct level *l, int i, int j, int m)
{
    return &l->at[((size_t)i * (size_t)o->s.n + (size_t)j) * (size_t)l->n + (size_t)(m - 1)];
}

static const uint64_t *before(const struct solver *o, int j)
{
    return o->s.before + (size_t)j * (size_t)o->s.state_words;
}

static double between(const double *sum, int i, int j) { return sum[j] - (i ? sum[i - 1] : 0); }

/* Cost of states i .. j on one machine of a level; INFINITY: j does not come after i - 1. */
static double span(const struct solver *o, int level, int i, int j)
{
    if (i > 0 && !fr__bit(before(o, j), i - 1)) return INFINITY;
    if (level == 0) return between(o->s.work, i, j) / o->t->slowest;
    const struct level *below = &o->levels[level - 1];
    return cell(o, below, i, j, below->n)->time;
}

static double stage_s(double work, double params, int m, double bandwidth)
{
    return (work + 4.0 * (m - 1) * params / (bandwidth * m)) / m;
}

/* Does a stage fit that runs so many micro-batches at once? */
static bool fits(const struct solver *o, int i, int j, int n, int m, int used)
{
    double each = between(o->s.kept, i, j) + between(o->s.params, i, j);
    return ceil((double)(n - m) / used) * each <= o->t->least;
}

static bool may_use(const struct solver *o, int level, int m)
{
    return level > 0 || fr__task_may(o->t, m);
}

/* A last stage behind state k: the slower of its work and its transfers, by the machines that it
 * uses; INFINITY where it may not use so many. */
static void last_stage(const struct solver *o, int level, int j, int k, double *slower)
{
    const struct level *l = &o->levels[level];
    double work = span(o, level, k + 1, j), params = between(o->s.params, k + 1, j);
    double in = 2 * o->s.out[k], out = j < o->s.n - 1 ? 2 * o->s.out[j] : 0;
    for (int used = 1; used < l->n; used++) {
        double share = l->bandwidth * used, last = stage_s(work, params, used, l->bandwidth);
        slower[used] =
            may_use(o, level, used) ? fmax(last, fmax(in / share, out / share)) : INFINITY;
    }
}

/* Splits behind state k, for every number of machines of the whole. */
static void try_split(const struct solver *o, int level, int i, int j, int k)
{
    const struct level *l = &o->levels[level];
    double *slower = o->slower, *front = o->front; /* front[n - m]: states i .. k on m machines */
    bool is_tight = isfinite(o->t->least);
    last_stage(o, level, j, k, slower);
    for (int m = 1; m < l->n; m++) front[l->n - m] = cell(o, l, i, k, m)->time;
    for (int m = 2; m <= l->n; m++) {
        struct cell *c = cell(o, l, i, j, m);
        const double *rest = front + l->n - m;
        double least = c->time;
        int best = 0;
        for (int used = 1; used < m; used++) {
            double time = rest[used] > slower[used] ? rest[used] : slower[used];
            if (time >= least || (is_tight && !fits(o, k + 1, j, l->n, m, used))) continue;
            least = time, best = used;
        }
        if (best) *c = (struct cell){.time = least, .split = k, .left = m - best, .used = best};
    }
}

/* States i .. j, on 1 .. n machines; those that end before j are done. */
static void fill(const struct solver *o, int level, int i, int j)
{
    const struct level *l = &o->levels[level];
    double whole = span(o, level, i, j), params = between(o->s.params, i, j);
    for (int m = 1; m <= l->n; m++) {
        struct cell *c = cell(o, l, i, j, m);
        *c = (struct cell){.time = INFINITY, .split = -1, .used = m};
        if (isfinite(whole) && may_use(o, level, m) && fits(o, i, j, l->n, m, m))
            c->time = (whole + 4.0 * (m - 1) * params / (l->bandwidth * m) / l->within) / m;
    }
    for (int k = i; k < j && isfinite(whole); k++)
        if (fr__bit(before(o, j), k)) try_split(o, level, i, j, k);
}

/* --- the plan off the tables ------------------------------------------------------------------ */

/* States i .. j on m machines of a level, `outer` times over. */
static void read_off(struct solver *o, int level, int i, int j, int m, int outer)
{
    const struct level *l = &o->levels[level];
    const struct cell *c = cell(o, l, i, j, m);
    if (c->split >= 0) read_off(o, level, i, c->split, c->left, outer);
    int first = c->split >= 0 ? c->split + 1 : i;
    if (level > 0) {
        int from = o->n;
        const struct level *below = &o->levels[level - 1];
        read_off(o, level - 1, first, j, below->n, outer * c->used);
        for (int s = from; s < o->n; s++) {
            double params = between(o->s.params, s ? o->end[s - 1] + 1 : 0, o->end[s]);
            o->time[s] = stage_s(o->time[s], params, c->used, l->bandwidth);
        }
        return;
    }
    o->time[o->n] =
        stage_s(span(o, 0, first, j), between(o->s.params, first, j), c->used, l->bandwidth);
    o->end[o->n] = j, o->replicas[o->n++] = c->used * outer;
}

/* A unit belongs to the first stage whose last state holds it; what no state holds, to the stage
 * of what it reads. */
static void label_units(const struct solver *o, int *label)
{
    const struct fr__task *t = o->t;
    for (int u = 0; u < t->n; u++) {
        label[u] = -1;
        for (int s = o->n - 1; s >= 0; s--)
            if (fr__bit(o->s.inside + (size_t)o->end[s] * (size_t)o->s.words, u)) label[u] = s;
        const fr_profile_node *node = &t->profile->nodes[t->node[u]];
        for (int v = 0; v < u && label[u] < 0; v++)
            for (int k = 0; k < node->n_inputs; k++)
                if (node->inputs[k] == t->node[v]) label[u] = label[v];
        if (label[u] < 0) label[u] = o->n - 1;
    }
}

/* Ranges of units are cut where the engine cuts; others go by their labels. */
static fr_status make_plan(struct solver *o, double time, fr_plan **out)
{
    struct fr__task *t = o->t;
    int *label = FR_ARENA_ARRAY(&t->arena, int, t->n), device = 0;
    struct fr__part *parts = FR_ARENA_ARRAY(&t->arena, struct fr__part, o->n);
    if (!label || !parts) return fr__no_memory(t->ctx, 0, "the stages of a plan");
    label_units(o, label);
    if (!o->s.is_chain)
        return fr__plan_make_any(t, "pipedream", o->n, label, o->replicas, o->time, time, out);
    for (int s = 0; s < o->n; device += o->replicas[s++])
        parts[s] = (struct fr__part){.u = s ? o->end[s - 1] + 1 : 0,
                                     .v = o->end[s] + 1,
                                     .replicas = o->replicas[s],
                                     .device = device,
                                     .time_s = o->time[s]};
    return fr__plan_make(t, "pipedream", o->n, parts, time, out);
}

/* --- levels ----------------------------------------------------------------------------------- */

static fr_status choose_levels(struct solver *o)
{
    struct fr__task *t = o->t;
    const fr_plan_problem *p = t->problem;
    int n[FR__MAX_LEVELS], total = 1;
    double bandwidth[FR__MAX_LEVELS];
    o->n_levels = 0;
    if (p->n_levels > FR__MAX_LEVELS)
        return fr_fail(t->ctx, FR_INVALID, "pipedream: %d levels; at most %d are possible",
                       p->n_levels, FR__MAX_LEVELS);
    for (int i = 0; i < p->n_levels; i++)
        n[i] = p->level_n[i], bandwidth[i] = p->level_bandwidth[i];
    if (p->n_levels)
        o->n_levels = p->n_levels;
    else if (p->cluster && !(p->bandwidth > 0) && t->n_devices == p->cluster->n_devices)
        o->n_levels = fr__levels_of(p->cluster, n, bandwidth);
    if (o->n_levels == 0) o->n_levels = 1, n[0] = t->n_devices, bandwidth[0] = t->bandwidth;
    for (int i = 0; i < o->n_levels; i++) {
        if (n[i] < 1 || !(bandwidth[i] > 0))
            return fr_fail(t->ctx, FR_INVALID,
                           "pipedream: level %d has %d machines and %g bytes/s; both must be more "
                           "than 0",
                           i, n[i], bandwidth[i]);
        total *= n[i];
        o->levels[i] =
            (struct level){.n = n[i], .bandwidth = bandwidth[i], .within = i ? n[i - 1] : 1};
    }
    if (total != t->n_devices)
        return fr_fail(t->ctx, FR_INVALID, "pipedream: levels of %d machines in all for %d devices",
                       total, t->n_devices);
    return FR_OK;
}

/* Combinations that are tried within about a second. */
static const double most_tries = 1e9;

/* States that the tables have time for: with more, ranges of nodes are taken. */
static int most_states(const struct solver *o)
{
    double most = 2000;
    for (int l = 0; l < o->n_levels; l++) {
        double each = (double)o->levels[l].n * o->levels[l].n / 4, room = most_tries / 4 / each;
        most = fmin(most, l < o->n_levels - 1 ? cbrt(room) : sqrt(room));
    }
    return (int)most;
}

static fr_status solve(struct solver *o)
{
    struct fr__task *t = o->t;
    double tries = 0;
    for (int l = 0; l < o->n_levels; l++) {
        struct level *level = &o->levels[l];
        level->rows = l < o->n_levels - 1 ? o->s.n : 1;
        tries += (double)level->rows * o->s.n * o->s.n / 2 * level->n * level->n / 2;
    }
    if (tries > most_tries)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "pipedream: %d states on %d machines are %.1g combinations, too many; give "
                       "levels of fewer machines each, or contiguous stages",
                       o->s.n, t->n_devices, tries);
    for (int l = 0; l < o->n_levels; l++) {
        struct level *level = &o->levels[l];
        size_t cells = (size_t)level->rows * (size_t)o->s.n * (size_t)level->n;
        level->at = FR_ARENA_ARRAY(&t->arena, struct cell, cells);
        if (!level->at)
            return fr__no_memory(t->ctx, cells * sizeof(struct cell), "the table of pipedream");
        o->slower = FR_ARENA_ARRAY(&t->arena, double, level->n);
        o->front = FR_ARENA_ARRAY(&t->arena, double, level->n);
        if (!o->slower || !o->front)
            return fr__no_memory(t->ctx, (size_t)level->n * sizeof(double), "pipedream");
        for (int i = 0; i < level->rows; i++)
            for (int j = i; j < o->s.n; j++) fill(o, l, i, j);
    }
    return FR_OK;
}

static void explain(const struct solver *o, fr_plan *plan)
{
    const struct fr__task *t = o->t;
    const struct level *top = &o->levels[o->n_levels - 1];
    double one = o->s.work[o->s.n - 1] / t->slowest, dp = one;
    for (int l = 0; l < o->n_levels; l++)
        dp = (dp + 4.0 * (o->levels[l].n - 1) * o->s.params[o->s.n - 1] /
                       (o->levels[l].bandwidth * o->levels[l].n) / o->levels[l].within) /
             o->levels[l].n;
    snprintf(plan->why, sizeof plan->why,
             "%d stages on %d machines (%d level%s, outermost %g bytes/s): %.6g s a micro-batch in "
             "the steady state; one machine %.6g s, data parallel on all %.6g s; %d states%s%s",
             plan->n_stages, t->n_devices, o->n_levels, o->n_levels > 1 ? "s" : "", top->bandwidth,
             plan->time_s, one, dp, o->s.n,
             o->s.is_chain && !t->problem->contiguous && t->n == t->n_nodes
                 ? " (ranges of nodes: with branches apart there would be too many)"
                 : "",
             fr__task_note(t));
}

static fr_status make(struct fr__task *t, fr_plan **out)
{
    struct solver solver = {.t = t}, *o = &solver;
    if (t->problem->n_stages)
        return fr_fail(t->ctx, FR_UNSUPPORTED,
                       "pipedream chooses the number of stages itself; leave it out, or take "
                       "planner exact");
    FR_TRY(choose_levels(o));
    FR_TRY(fr__states_make(t, most_states(o), &o->s));
    FR_TRY(solve(o));
    const struct level *top = &o->levels[o->n_levels - 1];
    const struct cell *best = cell(o, top, 0, o->s.n - 1, top->n);
    if (!isfinite(best->time))
        return fr_fail(t->ctx, FR_INVALID,
                       "pipedream: no layout on %d machines fits %.3g GB and %d replicas a stage; "
                       "allow more memory or other numbers",
                       t->n_devices, t->least / 1e9, t->problem->replicas);
    o->end = FR_ARENA_ARRAY(&t->arena, int, o->s.n);
    o->replicas = FR_ARENA_ARRAY(&t->arena, int, o->s.n);
    o->time = FR_ARENA_ARRAY(&t->arena, double, o->s.n);
    if (!o->end || !o->replicas || !o->time)
        return fr__no_memory(t->ctx, 0, "the stages of a plan");
    read_off(o, o->n_levels - 1, 0, o->s.n - 1, top->n, 1);
    FR_TRY(make_plan(o, best->time, out));
    (*out)->is_optimal =
        o->n_levels == 1 && t->n == t->n_nodes && (!o->s.is_chain || t->problem->contiguous);
    explain(o, *out);
    return FR_OK;
}

static fr_status plan(fr_ctx *ctx, const fr_plan_problem *p, fr_plan **out)
{
    return fr__plan_by(ctx, p, FR__MOST_UNITS, make, out);
}

double fr__score_pipedream(const struct fr__task *t, int n, struct fr__part *parts)
{
    double worst = 0;
    int used = 0;
    for (int s = 0; s < n; s++) {
        struct fr__part *p = &parts[s];
        double per = t->bandwidth * p->replicas, params = t->params[p->v] - t->params[p->u];
        double held = params;
        for (int u = p->u; u < p->v; u++)
            held += (double)t->profile->nodes[t->node[u]].output_bytes;
        used += p->replicas;
        if (ceil((double)(t->n_devices - used) / p->replicas) * held > t->least) worst = INFINITY;
        p->time_s =
            stage_s(fr__task_work(t, p->u, p->v) / t->slowest, params, p->replicas, t->bandwidth);
        worst = fmax(worst, p->time_s);
        if (s == 0) continue; /* what leaves the first stage is counted where it comes in */
        worst = fmax(worst, fmax(2 * t->cut[p->u] / per, 2 * t->cut[p->v] / per));
    }
    return used == t->n_devices ? worst : INFINITY;
}

const fr_planner fr__planner_pipedream = {
    .name = "pipedream",
    .summary = "least slowest stage or transfer, with replicas, level by level, as PipeDream does",
    .method = "pipedream",
    .plan = plan,
};
