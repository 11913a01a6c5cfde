/* task.c -- a planning problem with its gaps filled in: sums over the nodes that compute, devices
 * with speed and memory, one bandwidth; and plans made from what planners find. */
#include "plan/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool fr__slowest_link(fr_arena *a, const fr_cluster *c, double *least)
{
    int *children = FR_ARENA_ARRAY(a, int, c->n_groups);
    *least = INFINITY;
    if (!children) return false;
    for (int i = 1; i < c->n_groups; i++) children[c->groups[i].parent]++;
    for (int i = 0; i < c->n_devices; i++) children[c->devices[i].group]++;
    for (int g = 0; g < c->n_groups; g++) {
        double b = c->groups[g].bandwidth;
        if (children[g] < 2 || b <= 0) continue;
        if (c->groups[g].is_shared) b /= children[g];
        if (b < *least) *least = b;
    }
    return true;
}

static fr_status read_devices(struct fr__task *t)
{
    const fr_plan_problem *p = t->problem;
    const fr_cluster *c = p->cluster;
    t->are_alike = true;
    for (int d = 0; d < t->n_all; d++) {
        double speed = c ? fr_cluster_speed(c, d, t->profile) : 1;
        double memory = p->memory ? (double)p->memory : c ? (double)c->devices[d].memory : 0;
        if (!(speed > 0))
            return fr_fail(t->ctx, FR_INVALID,
                           "device %s has no speed against the machine of this profile; give it "
                           "`speed` in the cluster file",
                           c->devices[d].name);
        t->speed[d] = speed, t->memory[d] = memory > 0 ? memory : INFINITY;
        t->are_alike = t->are_alike && speed == t->speed[0] && t->memory[d] == t->memory[0];
    }
    return FR_OK;
}

static int by_speed(const void *a, const void *b)
{
    const struct fr__ranked *x = a, *y = b;
    if (x->speed != y->speed) return x->speed > y->speed ? -1 : 1;
    if (x->memory != y->memory) return x->memory > y->memory ? -1 : 1;
    return x->device - y->device;
}

void fr__task_rank(const struct fr__task *t, struct fr__ranked *all)
{
    for (int d = 0; d < t->n_all; d++) all[d] = (struct fr__ranked){t->speed[d], t->memory[d], d};
    if (!t->are_alike) qsort(all, (size_t)t->n_all, sizeof *all, by_speed);
}

/* The n_devices fastest, then the others; both in the order of the file. */
static fr_status pick_devices(struct fr__task *t)
{
    struct fr__ranked *all = FR_NEW_ARRAY(struct fr__ranked, t->n_all);
    bool *is_taken = FR_NEW_ARRAY(bool, t->n_all);
    if (all && is_taken) {
        fr__task_rank(t, all);
        t->slowest = t->least = INFINITY;
        for (int i = 0; i < t->n_devices; i++) {
            is_taken[all[i].device] = true;
            t->slowest = fmin(t->slowest, all[i].speed), t->least = fmin(t->least, all[i].memory);
        }
        for (int d = 0, taken = 0, left = t->n_devices; d < t->n_all; d++)
            t->order[is_taken[d] ? taken++ : left++] = d;
    }
    bool is_whole = all && is_taken;
    fr__free(all), fr__free(is_taken);
    return is_whole ? FR_OK : fr__no_memory(t->ctx, 0, "devices of a plan");
}

static fr_status fill_devices(struct fr__task *t)
{
    const fr_plan_problem *p = t->problem;
    const fr_cluster *c = p->cluster;
    t->n_devices = p->n_devices ? p->n_devices : c ? c->n_devices : 0;
    if (t->n_devices < 1 || (c && t->n_devices > c->n_devices))
        return fr_fail(t->ctx, FR_INVALID, "cannot plan for %d devices; the cluster has %d",
                       t->n_devices, c ? c->n_devices : 0);
    t->n_all = c ? c->n_devices : t->n_devices;
    t->speed = FR_ARENA_ARRAY(&t->arena, double, t->n_all);
    t->memory = FR_ARENA_ARRAY(&t->arena, double, t->n_all);
    t->order = FR_ARENA_ARRAY(&t->arena, int, t->n_all);
    if (!t->speed || !t->memory || !t->order)
        return fr__no_memory(t->ctx, (size_t)t->n_all * sizeof(double), "devices of a plan");
    FR_TRY(read_devices(t));
    t->bandwidth = p->bandwidth > 0 ? p->bandwidth : INFINITY;
    if (!(p->bandwidth > 0) && c && !fr__slowest_link(&t->arena, c, &t->bandwidth))
        return fr__no_memory(t->ctx, (size_t)c->n_groups * sizeof(int), "links of a plan");
    return pick_devices(t);
}

double fr__task_min(const struct fr__task *t, const double *values, const struct fr__part *p)
{
    double least = INFINITY;
    for (int d = p->device; d < p->device + p->replicas; d++)
        least = fmin(least, values[t->order[d]]);
    return least;
}

/* cut[u]: outputs of nodes before the unit that one at or behind it reads, each once. First what
 * comes in and goes out at each unit, then their sums: bytes are whole, so sums are exact. */
static void sum_cuts(struct fr__task *t, const int *unit_of)
{
    const fr_profile *p = t->profile;
    for (int i = 0; i < p->n_nodes; i++) {
        t->last_use[i] = -1;
        t->has_grad[i] = p->nodes[i].param_bytes > 0;
        for (int k = 0; k < p->nodes[i].n_inputs; k++) {
            t->last_use[p->nodes[i].inputs[k]] = i;
            t->has_grad[i] = t->has_grad[i] || t->has_grad[p->nodes[i].inputs[k]];
        }
    }
    for (int i = 0; i < p->n_nodes; i++) {
        const int last = t->last_use[i];
        const double bytes = (double)p->nodes[i].output_bytes;
        if (p->nodes[i].is_input || last < 0 || unit_of[last] <= unit_of[i]) continue;
        t->cut[unit_of[i] + 1] += bytes;
        if (unit_of[last] < t->n) t->cut[unit_of[last] + 1] -= bytes;
        if (!t->has_grad[i]) continue;
        t->cut_back[unit_of[i] + 1] += bytes;
        if (unit_of[last] < t->n) t->cut_back[unit_of[last] + 1] -= bytes;
    }
    for (int u = 1; u <= t->n; u++)
        t->cut[u] += t->cut[u - 1], t->cut_back[u] += t->cut_back[u - 1];
}

/* Runs of nodes as units, `most` at most: of every so many cuts that follow each other the one with
 * the fewest bytes stays. All sums are over what lies in front of a unit, so they stay, too. */
static void join_units(struct fr__task *t, int most)
{
    double *sums[] = {t->forward, t->backward, t->update, t->params, t->kept, t->cut, t->cut_back};
    const int n = t->n, each = (n + most - 1) / most;
    t->n = 0;
    for (int u = 0; u <= n; t->n++) {
        int least = u;
        for (int v = u + 1; u > 0 && v < n && v < u + each; v++)
            if (t->cut[v] < t->cut[least]) least = v;
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) sums[i][t->n] = sums[i][least];
        t->node[t->n] = t->node[least];
        u = u == n ? n + 1 : u + each < n ? u + each : n;
    }
    t->n--; /* the end is no unit */
}

static fr_status fill_units(struct fr__task *t, int most)
{
    const fr_profile *p = t->profile;
    size_t room = (size_t)p->n_nodes + 1;
    double **sums[] = {&t->forward, &t->backward, &t->update,  &t->params,
                       &t->kept,    &t->cut,      &t->cut_back};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (!(*sums[i] = FR_ARENA_ARRAY(&t->arena, double, room)))
            return fr__no_memory(t->ctx, room * sizeof(double), "sums of a plan");
    t->node = FR_ARENA_ARRAY(&t->arena, int, room);
    int *unit_of = FR_ARENA_ARRAY(&t->arena, int, room);
    t->last_use = FR_ARENA_ARRAY(&t->arena, int, room);
    t->has_grad = FR_ARENA_ARRAY(&t->arena, bool, room);
    if (!t->node || !unit_of || !t->last_use || !t->has_grad)
        return fr__no_memory(t->ctx, room * sizeof(int), "units of a plan");
    for (int i = 0; i < p->n_nodes; i++) {
        const fr_profile_node *node = &p->nodes[i];
        int u = t->n;
        unit_of[i] = u;
        if (node->is_input) continue;
        t->node[u] = i;
        t->forward[u + 1] = t->forward[u] + node->forward_s;
        t->backward[u + 1] = t->backward[u] + node->backward_s;
        t->update[u + 1] =
            t->update[u] + node->update_s + node->fetch_forward_s + node->fetch_backward_s;
        t->params[u + 1] = t->params[u] + (double)node->param_bytes;
        t->kept[u + 1] = t->kept[u] + (double)node->kept_bytes;
        t->n++;
    }
    if (t->n == 0) return fr_fail(t->ctx, FR_INVALID, "the profile has no node that computes");
    sum_cuts(t, unit_of);
    t->node[t->n] = p->n_nodes, t->n_nodes = t->n;
    if (most && t->n > most) join_units(t, most);
    return FR_OK;
}

static int level_of(int n)
{
    int level = 0;
    while (2 << level <= n) level++;
    return level;
}

/* Largest of ranges, by halves that overlap: any range takes two look-ups. */
static bool fill_most(struct fr__task *t, double **most)
{
    for (int level = 1; level <= level_of(t->n); level++) {
        const int half = 1 << (level - 1);
        if (!(most[level] = FR_ARENA_ARRAY(&t->arena, double, t->n))) return false;
        for (int u = 0; u + 2 * half <= t->n; u++)
            most[level][u] = fmax(most[level - 1][u], most[level - 1][u + half]);
    }
    return true;
}

static double most_of(double *const *most, int u, int v)
{
    const int level = level_of(v - u);
    return fmax(most[level][u], most[level][v - (1 << level)]);
}

static fr_status fill_workspaces(struct fr__task *t)
{
    const int n_levels = level_of(t->n) + 1;
    double ***tables[] = {&t->values, &t->scratch};
    bool has_room = true;
    for (int i = 0; i < 2 && has_room; i++) {
        *tables[i] = FR_ARENA_ARRAY(&t->arena, double *, n_levels);
        has_room = *tables[i] && ((*tables[i])[0] = FR_ARENA_ARRAY(&t->arena, double, t->n));
    }
    for (int u = 0; u < t->n && has_room; u++)
        for (int i = t->node[u]; i < t->node[u + 1]; i++) {
            const fr_profile_node *node = &t->profile->nodes[i];
            if (node->is_input) continue;
            t->values[0][u] = fmax(t->values[0][u], (double)node->values_bytes);
            t->scratch[0][u] = fmax(t->scratch[0][u], (double)node->scratch_bytes);
        }
    if (has_room && fill_most(t, t->values) && fill_most(t, t->scratch)) return FR_OK;
    return fr__no_memory(t->ctx, (size_t)t->n * sizeof(double), "workspaces of a plan");
}

fr_status fr__task_init(fr_ctx *ctx, const fr_plan_problem *p, int most, struct fr__task *t)
{
    *t = (struct fr__task){.ctx = ctx, .problem = p, .profile = p->profile};
    t->n_micro = p->n_micro > 0 ? p->n_micro : 1;
    fr_status status = fill_units(t, most);
    if (status == FR_OK) status = fill_workspaces(t);
    if (status == FR_OK) status = fill_devices(t);
    if (status != FR_OK) fr__task_fini(t);
    return status;
}

fr_status fr__plan_by(fr_ctx *ctx, const fr_plan_problem *p, int most,
                      fr_status (*make)(struct fr__task *t, fr_plan **out), fr_plan **out)
{
    struct fr__task t;
    *out = NULL;
    FR_TRY(fr__task_init(ctx, p, most, &t));
    fr_status status = make(&t, out);
    fr__task_fini(&t);
    return status;
}

int fr__task_unit(const struct fr__task *t, int node)
{
    int low = 0, high = t->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (t->node[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void fr__task_fini(struct fr__task *t) { fr__arena_fini(&t->arena); }

double fr__task_fixed(const struct fr__task *t, int u, int v)
{
    double workspace = t->profile->workspace_bytes; /* where nodes do not tell theirs */
    if (most_of(t->values, 0, t->n) + most_of(t->scratch, 0, t->n) > 0)
        workspace = most_of(t->values, u, v) + most_of(t->scratch, u, v);
    return fr__floats_per_weight(t->profile) * (t->params[v] - t->params[u]) + workspace;
}

double fr__task_sum_s(const struct fr__task *t, int u, int v, int r)
{
    return 2.0 * (r - 1) / r * (t->params[v] - t->params[u]) / t->bandwidth;
}

/* --- plans ----------------------------------------------------------------------------------- */

static fr_status new_plan(const struct fr__task *t, const char *planner, int n_stages,
                          fr_plan **out)
{
    fr_arena *arena = FR_NEW(fr_arena);
    fr_plan *p = arena ? FR_ARENA_NEW(arena, fr_plan) : NULL;
    *out = NULL;
    if (p) {
        p->arena = arena, p->planner = planner, p->n_stages = n_stages;
        p->stages = FR_ARENA_ARRAY(arena, fr_plan_stage, n_stages);
        p->stage_of = FR_ARENA_ARRAY(arena, int, t->profile->n_nodes);
    }
    if (!p || !p->stages || !p->stage_of) {
        fr__arena_free(arena);
        return fr__no_memory(t->ctx, sizeof(fr_plan), "a plan");
    }
    *out = p;
    return FR_OK;
}

/* From places in the task's order to devices of the cluster. On failure *out is freed. */
static fr_status name_devices(const struct fr__task *t, fr_plan **out)
{
    fr_plan *p = *out;
    for (int s = 0; s < p->n_stages; s++) {
        fr_plan_stage *stage = &p->stages[s];
        if (!(stage->devices = FR_ARENA_ARRAY(p->arena, int, stage->replicas))) {
            fr_plan_free(p);
            *out = NULL;
            return fr__no_memory(t->ctx, sizeof(int), "the devices of a plan");
        }
        for (int r = 0; r < stage->replicas; r++) stage->devices[r] = t->order[stage->device + r];
        stage->device = stage->devices[0];
    }
    return FR_OK;
}

fr_status fr__plan_make_any(const struct fr__task *t, const char *planner, int n_stages,
                            const int *label, const int *replicas, const double *time_s,
                            double total_s, fr_plan **out)
{
    FR_TRY(new_plan(t, planner, n_stages, out));
    fr_plan *p = *out;
    p->time_s = total_s;
    for (int i = 0; i < t->profile->n_nodes; i++) p->stage_of[i] = -1;
    for (int s = 0, device = 0; s < n_stages; device += p->stages[s++].replicas)
        p->stages[s] = (fr_plan_stage){.first = t->profile->n_nodes,
                                       .replicas = replicas ? replicas[s] : 1,
                                       .device = device,
                                       .time_s = time_s[s]};
    FR_TRY(name_devices(t, out));
    for (int u = 0; u < t->n; u++) {
        fr_plan_stage *s = &p->stages[label[u]];
        if (t->node[u] < s->first) s->first = t->node[u];
        s->last = t->node[u] + 1;
        p->stage_of[t->node[u]] = label[u];
    }
    return FR_OK;
}

fr_status fr__plan_make(const struct fr__task *t, const char *planner, int n,
                        const struct fr__part *parts, double time_s, fr_plan **out)
{
    FR_TRY(new_plan(t, planner, n, out));
    fr_plan *p = *out;
    p->time_s = time_s;
    for (int i = 0; i < t->profile->n_nodes; i++) p->stage_of[i] = -1;
    for (int s = 0; s < n; s++) {
        p->stages[s] =
            (fr_plan_stage){.first = s ? t->node[parts[s].u] : 0,
                            .last = s < n - 1 ? t->node[parts[s].v] : t->profile->n_nodes,
                            .replicas = parts[s].replicas,
                            .device = parts[s].device,
                            .time_s = parts[s].time_s};
        for (int i = t->node[parts[s].u]; i < t->node[parts[s].v]; i++)
            if (!t->profile->nodes[i].is_input) p->stage_of[i] = s;
    }
    return name_devices(t, out);
}

fr_status fr__plan_recompute(const struct fr__task *t, const bool *recompute, fr_plan **out)
{
    const size_t n = (size_t)t->profile->n_nodes;
    (*out)->recompute = FR_ARENA_ARRAY((*out)->arena, bool, n);
    if ((*out)->recompute) {
        memcpy((*out)->recompute, recompute, n * sizeof *recompute);
        return FR_OK;
    }
    fr_plan_free(*out);
    *out = NULL;
    return fr__no_memory(t->ctx, n, "the recomputed nodes of a plan");
}
