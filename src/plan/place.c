/* place.c -- operators on devices: the jobs of a problem, the schedule of a placement, a quick
 * placement to start from. */
#include "plan/place.h"

#include <math.h>
#include <string.h>

fr_status fr__jobs_make(struct fr__task *t, struct fr__jobs *j)
{
    const fr_profile *p = t->profile;
    int n_arcs = 0;
    *j = (struct fr__jobs){.n = t->n, .n_devices = t->n_devices};
    double *numbers = FR_ARENA_ARRAY(&t->arena, double, 2 * t->n_devices);
    for (int d = 0; numbers && d < t->n_devices; d++) {
        numbers[d] = t->speed[t->order[d]];
        numbers[t->n_devices + d] = t->memory[t->order[d]];
    }
    j->speed = numbers, j->memory = numbers + t->n_devices;
    for (int i = 0; i < p->n_nodes; i++) n_arcs += p->nodes[i].n_inputs;
    j->time = FR_ARENA_ARRAY(&t->arena, double, t->n);
    j->bytes = FR_ARENA_ARRAY(&t->arena, double, t->n);
    j->arcs = FR_ARENA_ARRAY(&t->arena, struct fr__arc, n_arcs + 1);
    j->first_in = FR_ARENA_ARRAY(&t->arena, int, t->n + 1);
    int *unit_of = FR_ARENA_ARRAY(&t->arena, int, p->n_nodes);
    if (!numbers || !j->time || !j->bytes || !j->arcs || !j->first_in || !unit_of)
        return fr__no_memory(t->ctx, (size_t)t->n * sizeof(double), "operators");
    for (int u = 0; u < t->n; u++) {
        const fr_profile_node *node = &p->nodes[t->node[u]];
        unit_of[t->node[u]] = u;
        j->time[u] = node->forward_s + node->backward_s + node->update_s + node->fetch_forward_s +
                     node->fetch_backward_s;
        j->bytes[u] =
            fr__floats_per_weight(p) * (double)node->param_bytes + (double)node->kept_bytes;
        j->first_in[u] = j->n_arcs;
        for (int k = 0; k < node->n_inputs; k++) {
            const fr_profile_node *from = &p->nodes[node->inputs[k]];
            if (from->is_input) continue;
            j->arcs[j->n_arcs++] =
                (struct fr__arc){.from = unit_of[node->inputs[k]],
                                 .to = u,
                                 .time = 2 * (double)from->output_bytes / t->bandwidth};
        }
    }
    j->first_in[t->n] = j->n_arcs;
    return FR_OK;
}

fr_status fr__placing_make(fr_ctx *ctx, fr_arena *a, const struct fr__jobs *j,
                           struct fr__placing *p)
{
    *p = (struct fr__placing){.makespan = INFINITY,
                              .device = FR_ARENA_ARRAY(a, int, j->n + 1),
                              .start = FR_ARENA_ARRAY(a, double, j->n + 1),
                              .sent = FR_ARENA_ARRAY(a, double, j->n_arcs + 1)};
    return p->device && p->start && p->sent
               ? FR_OK
               : fr__no_memory(ctx, (size_t)j->n * sizeof(double), "a placing");
}

void fr__placing_copy(const struct fr__jobs *j, const struct fr__placing *from,
                      struct fr__placing *to)
{
    to->makespan = from->makespan;
    memcpy(to->device, from->device, (size_t)j->n * sizeof *to->device);
    memcpy(to->start, from->start, (size_t)j->n * sizeof *to->start);
    memcpy(to->sent, from->sent, (size_t)j->n_arcs * sizeof *to->sent);
}

bool fr__place_fits(const struct fr__jobs *j, const int *device)
{
    for (int d = 0; d < j->n_devices; d++) {
        double held = 0;
        for (int i = 0; i < j->n; i++)
            if (device[i] == d) held += j->bytes[i];
        if (held > j->memory[d]) return false;
    }
    return true;
}

/* --- the schedule of a placement -------------------------------------------------------------- */

static bool is_moved(const struct fr__arc *a, const int *device)
{
    return device[a->from] != device[a->to] && a->time > 0;
}

struct runner {
    const struct fr__jobs *j;
    struct fr__placing *p;
    double *end;  /* (n + arcs); negative: not yet */
    double *free; /* (devices + devices^2): jobs, links */
};

/* When job or transfer i can begin; negative: not yet. */
static double ready(const struct runner *r, int i)
{
    const struct fr__jobs *j = r->j;
    if (i >= j->n) {
        const struct fr__arc *a = &j->arcs[i - j->n];
        double free = r->free[j->n_devices * (1 + r->p->device[a->from]) + r->p->device[a->to]];
        return r->end[a->from] < 0 ? -1 : fmax(r->end[a->from], free);
    }
    double at = r->free[r->p->device[i]];
    for (int k = j->first_in[i]; k < j->first_in[i + 1]; k++) {
        const struct fr__arc *a = &j->arcs[k];
        double end = r->end[is_moved(a, r->p->device) ? j->n + k : a->from];
        if (end < 0) return -1;
        at = fmax(at, end);
    }
    return at;
}

static void begin(struct runner *r, int i, double at)
{
    const struct fr__jobs *j = r->j;
    const int *device = r->p->device;
    if (i < j->n) {
        r->p->start[i] = at;
        r->free[device[i]] = r->end[i] = at + j->time[i] / j->speed[device[i]];
        r->p->makespan = fmax(r->p->makespan, r->end[i]);
    } else {
        const struct fr__arc *a = &j->arcs[i - j->n];
        r->p->sent[i - j->n] = at;
        r->end[i] = at + a->time;
        r->free[j->n_devices * (1 + device[a->from]) + device[a->to]] = r->end[i];
    }
}

bool fr__place_run(const struct fr__jobs *j, const double *key, bool by_time, struct fr__placing *p)
{
    int total = j->n + j->n_arcs, left = j->n, n_links = j->n_devices * (1 + j->n_devices);
    struct runner r = {.j = j, .p = p};
    r.end = FR_NEW_ARRAY(double, total + n_links);
    if (!r.end) return false;
    r.free = r.end + total;
    for (int i = 0; i < total; i++) r.end[i] = -1;
    for (int k = 0; k < j->n_arcs; k++) left += is_moved(&j->arcs[k], p->device);
    p->makespan = 0;
    while (left-- > 0) {
        int best = -1;
        double best_at = 0;
        for (int i = 0; i < total; i++) {
            if (r.end[i] >= 0 || (i >= j->n && !is_moved(&j->arcs[i - j->n], p->device))) continue;
            double at = ready(&r, i);
            if (at < 0) continue;
            if (best < 0 || (by_time && at < best_at) ||
                ((!by_time || at == best_at) && key[i] < key[best]))
                best = i, best_at = at;
        }
        begin(&r, best, best_at);
    }
    fr__free(r.end);
    return true;
}

/* --- a quick placement ------------------------------------------------------------------------ */

void fr__place_tails(const struct fr__jobs *j, double *tail)
{
    double fastest = 0;
    for (int d = 0; d < j->n_devices; d++) fastest = fmax(fastest, j->speed[d]);
    for (int i = 0; i < j->n; i++) tail[i] = 0;
    for (int i = j->n - 1; i >= 0; i--) {
        tail[i] += j->time[i] / fastest; /* so far: the longest of those behind */
        for (int k = j->first_in[i]; k < j->first_in[i + 1]; k++)
            tail[j->arcs[k].from] = fmax(tail[j->arcs[k].from], tail[i]);
    }
}

double fr__place_bound(const struct fr__jobs *j, const double *tail)
{
    double bound = 0, work = 0, speed = 0;
    for (int i = 0; i < j->n; i++) bound = fmax(bound, tail[i]), work += j->time[i];
    for (int d = 0; d < j->n_devices; d++) speed += j->speed[d];
    return fmax(bound, work / speed);
}

/* Each job in turn, the most urgent first, where it ends first; links are not queued for yet. */
static bool place_first(const struct fr__jobs *j, const double *tail, struct fr__placing *p)
{
    double *end = FR_NEW_ARRAY(double, j->n + 2 * j->n_devices);
    if (!end) return false;
    double *free = end + j->n, *held = free + j->n_devices;
    (void)tail; /* topological order: jobs are numbered so */
    for (int i = 0; i < j->n; i++) {
        int best = -1;
        double best_end = INFINITY;
        for (int d = 0; d < j->n_devices; d++) {
            double at = free[d];
            if (j->fixed && j->fixed[i] >= 0 && j->fixed[i] != d) continue;
            if (held[d] + j->bytes[i] > j->memory[d]) continue;
            for (int k = j->first_in[i]; k < j->first_in[i + 1]; k++) {
                const struct fr__arc *a = &j->arcs[k];
                at = fmax(at, end[a->from] + (p->device[a->from] != d ? a->time : 0));
            }
            at += j->time[i] / j->speed[d];
            if (at < best_end) best = d, best_end = at;
        }
        if (best < 0) best = j->fixed && j->fixed[i] >= 0 ? j->fixed[i] : 0;
        p->device[i] = best;
        end[i] = free[best] = isfinite(best_end) ? best_end : free[best];
        held[best] += j->bytes[i];
    }
    fr__free(end);
    return true;
}

/* p->device run, kept in *best if it is shorter and fits. */
static bool keep_better(const struct fr__jobs *j, const double *key, struct fr__placing *p,
                        struct fr__placing *best, bool *is_better)
{
    *is_better = false;
    if (!fr__place_fits(j, p->device)) return true;
    if (!fr__place_run(j, key, true, p)) return false;
    *is_better = p->makespan < best->makespan * (1 - 1e-12);
    if (*is_better) fr__placing_copy(j, p, best);
    return true;
}

static bool improve(const struct fr__jobs *j, const double *key, struct fr__placing *p,
                    struct fr__placing *best)
{
    bool has_gained = isfinite(best->makespan), is_better;
    for (int rounds = 0; has_gained && rounds < 20; rounds++) {
        has_gained = false;
        for (int i = 0; i < j->n; i++)
            for (int d = 0; d < j->n_devices; d++) {
                if (d == best->device[i] || (j->fixed && j->fixed[i] >= 0)) continue;
                memcpy(p->device, best->device, (size_t)j->n * sizeof *p->device);
                p->device[i] = d;
                if (!keep_better(j, key, p, best, &is_better)) return false;
                has_gained = has_gained || is_better;
            }
    }
    return true;
}

fr_status fr__place_list(fr_ctx *ctx, const struct fr__jobs *j, struct fr__placing *best)
{
    fr_arena scratch = {0};
    struct fr__placing p;
    double *tail = FR_ARENA_ARRAY(&scratch, double, j->n + 1);
    double *key = FR_ARENA_ARRAY(&scratch, double, j->n + j->n_arcs + 1);
    fr_status status = fr__placing_make(ctx, &scratch, j, &p);
    bool is_better, is_whole = status == FR_OK && tail && key;
    best->makespan = INFINITY;
    if (is_whole) {
        fr__place_tails(j, tail);
        for (int i = 0; i < j->n; i++) key[i] = -tail[i];
        for (int k = 0; k < j->n_arcs; k++) key[j->n + k] = -tail[j->arcs[k].to];
        /* From the greedy one, and from everything on one device, whichever ends better. */
        is_whole = place_first(j, tail, &p) && keep_better(j, key, &p, best, &is_better) &&
                   improve(j, key, &p, best);
        for (int d = 0; is_whole && d < j->n_devices; d++) {
            for (int i = 0; i < j->n; i++)
                p.device[i] = j->fixed && j->fixed[i] >= 0 ? j->fixed[i] : d;
            is_whole = keep_better(j, key, &p, best, &is_better);
        }
        is_whole = is_whole && improve(j, key, &p, best);
    }
    fr__arena_fini(&scratch);
    return is_whole ? FR_OK : fr__no_memory(ctx, (size_t)j->n * sizeof(double), "a placing");
}

/* --- as a plan -------------------------------------------------------------------------------- */

fr_status fr__plan_place(struct fr__task *t, const char *planner, const struct fr__jobs *j,
                         const struct fr__placing *p, fr_plan **out)
{
    int *label = FR_ARENA_ARRAY(&t->arena, int, t->n), n = 0;
    int *device = FR_ARENA_ARRAY(&t->arena, int, t->n_devices);
    double *busy = FR_ARENA_ARRAY(&t->arena, double, t->n_devices);
    if (!label || !device || !busy) return fr__no_memory(t->ctx, sizeof(int), "a plan");
    for (int d = 0; d < t->n_devices; d++) {
        bool is_used = false;
        for (int u = 0; u < t->n; u++) {
            if (p->device[u] != d) continue;
            label[u] = n, is_used = true;
            busy[n] += j->time[u] / j->speed[d];
        }
        if (is_used) device[n++] = d;
    }
    FR_TRY(fr__plan_make_any(t, planner, n, label, NULL, busy, p->makespan, out));
    fr_plan *plan = *out;
    for (int s = 0; s < n; s++)
        plan->stages[s].device = plan->stages[s].devices[0] = t->order[device[s]];
    plan->device_of = FR_ARENA_ARRAY(plan->arena, int, t->profile->n_nodes);
    plan->start_s = FR_ARENA_ARRAY(plan->arena, double, t->profile->n_nodes);
    if (!plan->device_of || !plan->start_s) {
        fr_plan_free(plan);
        *out = NULL;
        return fr__no_memory(t->ctx, sizeof(double), "a plan");
    }
    for (int i = 0; i < t->profile->n_nodes; i++) plan->device_of[i] = -1;
    for (int u = 0; u < t->n; u++) {
        plan->device_of[t->node[u]] = t->order[p->device[u]];
        plan->start_s[t->node[u]] = p->start[u];
    }
    return FR_OK;
}
