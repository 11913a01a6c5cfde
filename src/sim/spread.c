/* spread.c -- a layout of a model in numbers: schedule, times and memory.
 *
 * Memory is estimated from the profile by the rules of the engine's allocation: blocks of weights
 * of the policy, one block of gradients and a share of one if replicas sum them, optimizer states,
 * activations (cost/keep.h), a workspace, and buffers for gradients in flight. */
#include "sim/sim.h"

#include <forerun/exec_plan.h>

#include <math.h>

/* Memory that a spread owns. */
typedef struct owned {
    fr_arena arena;
    const fr_schedule *schedule; /* NULL: given */
} owned;

typedef struct maker {
    fr_ctx *ctx;
    const fr_spread_desc *d;
    fr_arena *arena;
    const fr_schedule *s;
    int n_forward, n_backward;
    fr_link *forward, *backward;
    size_t *forward_bytes, *backward_bytes;
    int *n_weight_blocks; /* [stage] */
    fr_spread *out;
} maker;

static fr_status no_memory(const maker *m)
{
    return fr__no_memory(m->ctx, (size_t)m->d->n_stages * sizeof(fr_stage_cost), "a spread");
}

static int stage_begin(const fr_spread_desc *d, int k) { return k == 0 ? 0 : d->cuts[k - 1]; }

static int stage_end(const fr_spread_desc *d, int k)
{
    return k == d->n_stages - 1 ? d->profile->n_nodes : d->cuts[k];
}

/* --- links ------------------------------------------------------------------------------------*/

static fr_status find_links(maker *m)
{
    const fr_spread_desc *d = m->d;
    size_t n = (size_t)d->n_stages, room = n * (n - 1) / 2, n_inputs = 0;
    for (int i = 0; i < d->profile->n_nodes; i++) n_inputs += (size_t)d->profile->nodes[i].n_inputs;
    if (n_inputs < room) room = n_inputs; /* each link has a reader */
    m->forward = FR_ARENA_ARRAY(m->arena, fr_link, 2 * room + 1);
    m->forward_bytes = FR_ARENA_ARRAY(m->arena, size_t, 2 * room + 1);
    if (!m->forward || !m->forward_bytes) return no_memory(m);
    m->backward = m->forward + room;
    m->backward_bytes = m->forward_bytes + room;
    FR_TRY(fr_profile_links(m->ctx, d->profile, d->n_stages, d->cuts, &m->n_forward, m->forward,
                            m->forward_bytes, &m->n_backward, m->backward, m->backward_bytes));
    return FR_OK;
}

/* Bytes in the order of the schedule's links. */
static fr_status sort_bytes(const maker *m, const char *way, int n, const fr_link *links,
                            int n_known, const fr_link *known, const size_t *bytes,
                            const size_t **out)
{
    size_t *sorted = FR_ARENA_ARRAY(m->arena, size_t, n + 1);
    if (!sorted) return no_memory(m);
    if (n != n_known)
        return fr_fail(m->ctx, FR_INVALID,
                       "schedule %s has %d %s links, the stages of %s have %d: was it made for "
                       "other cuts?",
                       m->s->name, n, way, m->d->profile->model, n_known);
    for (int i = 0; i < n; i++) {
        int l = links[i].from == known[i].from && links[i].to == known[i].to
                    ? i
                    : fr_schedule_find_link(n_known, known, links[i].from, links[i].to);
        if (l < 0)
            return fr_fail(m->ctx, FR_INVALID,
                           "schedule %s has a %s link from stage %d to %d, the stages of %s have "
                           "none: was it made for other cuts?",
                           m->s->name, way, links[i].from, links[i].to, m->d->profile->model);
        sorted[i] = bytes[l];
    }
    *out = sorted;
    return FR_OK;
}

/* --- schedule and timing ----------------------------------------------------------------------*/

static fr_status make_schedule(maker *m)
{
    const fr_spread_desc *d = m->d;
    owned *own = m->out->arena;
    m->s = d->schedule;
    if (!d->schedule) {
        if (!d->generator)
            return fr_fail(m->ctx, FR_INVALID, "a spread needs a schedule or a generator");
        const fr_schedule_desc desc = {.n_stages = d->n_stages,
                                       .chunks = d->chunks,
                                       .n_micro = d->n_micro,
                                       .n_batches = d->generator->is_flush ? 1 : d->n_batches,
                                       .n_forward = m->n_forward,
                                       .forward = m->forward,
                                       .n_backward = m->n_backward,
                                       .backward = m->backward,
                                       .replicas = d->replicas,
                                       .lead = d->lead};
        FR_TRY(fr_schedule_create(m->ctx, d->generator, &desc, &own->schedule));
        m->s = own->schedule;
    }
    if (m->s->n_stages != d->n_stages)
        return fr_fail(m->ctx, FR_INVALID, "schedule %s has %d stages, the spread %d", m->s->name,
                       m->s->n_stages, d->n_stages);
    m->out->schedule = m->s;
    return FR_OK;
}

static fr_status place_worker(const maker *m, int w, int *device, double *speed)
{
    const fr_spread_desc *d = m->d;
    *device = d->device_of ? d->device_of[w] : w;
    *speed = 1;
    if (!d->cluster) return FR_OK;
    if (*device < 0 || *device >= d->cluster->n_devices)
        return fr_fail(m->ctx, FR_INVALID, "%d workers on a cluster of %d devices (%s)",
                       m->s->n_workers, d->cluster->n_devices, d->cluster->name);
    *speed = fr_cluster_speed(d->cluster, *device, d->profile);
    if (isnan(*speed))
        return fr_fail(m->ctx, FR_INVALID,
                       "cluster %s: device %s has flops, but the profile of %s has none of its "
                       "own; give the device a speed",
                       d->cluster->name, d->cluster->devices[*device].name, d->profile->model);
    return FR_OK;
}

static fr_status make_timing(maker *m)
{
    const fr_spread_desc *d = m->d;
    const fr_schedule *s = m->s;
    fr_timing *t = &m->out->timing;
    fr_stage_cost *cost = FR_ARENA_ARRAY(m->arena, fr_stage_cost, d->n_stages);
    double *speed = FR_ARENA_ARRAY(m->arena, double, s->n_workers);
    int *device_of = FR_ARENA_ARRAY(m->arena, int, s->n_workers);
    if (!cost || !speed || !device_of) return no_memory(m);
    for (int k = 0; k < d->n_stages; k++)
        FR_TRY(fr_profile_stage(m->ctx, d->profile, stage_begin(d, k), stage_end(d, k),
                                d->recompute, &cost[k]));
    for (int w = 0; w < s->n_workers; w++) FR_TRY(place_worker(m, w, &device_of[w], &speed[w]));
    *t = (fr_timing){.cost = cost,
                     .speed = speed,
                     .cluster = d->cluster,
                     .device_of = device_of,
                     .overhead_s = d->overhead_s + (d->cluster ? d->cluster->overhead_s : 0)};
    FR_TRY(sort_bytes(m, "forward", s->n_forward, s->forward, m->n_forward, m->forward,
                      m->forward_bytes, &t->forward_bytes));
    return sort_bytes(m, "backward", s->n_backward, s->backward, m->n_backward, m->backward,
                      m->backward_bytes, &t->backward_bytes);
}

/* --- memory -----------------------------------------------------------------------------------*/

/* Areas into which backwards recompute: one, plus those held from an I to its W. */
static int n_areas(const fr_schedule *s, int k)
{
    const fr_instr_list *list = &s->lists[s->worker_of[k]];
    int held = 0, most = 0;
    for (int i = 0; i < list->n; i++) {
        const fr_instr *at = &list->at[i];
        if (at->stage != k || at->action > FR_DO_W) continue;
        if (at->action == FR_DO_W && s->is_split)
            held--;
        else if (held + 1 > most)
            most = held + 1;
        if (at->action == FR_DO_I) held++;
    }
    return most;
}

fr__keep_stage fr__spread_stage(const fr_spread_desc *d, const fr_schedule *s, int k)
{
    return (fr__keep_stage){.profile = d->profile,
                            .first = stage_begin(d, k),
                            .last = stage_end(d, k),
                            .n_sets = s->n_slots[k],
                            .n_areas = n_areas(s, k),
                            .is_split = s->is_split};
}

/* As in the plan; passes that only evaluate have one block. */
static fr_status count_weight_blocks(maker *m)
{
    const fr_schedule *s = m->s;
    fr_exec_plan *plan;
    m->n_weight_blocks = FR_ARENA_ARRAY(m->arena, int, s->n_stages);
    if (!m->n_weight_blocks) return no_memory(m);
    for (int k = 0; k < s->n_stages; k++) m->n_weight_blocks[k] = 1;
    if (!m->d->policy || s->is_forward_only) return FR_OK;
    const fr_exec_desc d = {.schedule = s,
                            .policy = m->d->policy,
                            .policy_options = m->d->policy_options,
                            .weight_type = m->d->profile->precision};
    FR_TRY(fr_exec_plan_create(m->ctx, &d, &plan, NULL));
    for (int k = 0; k < s->n_stages; k++) m->n_weight_blocks[k] = plan->n_weight_blocks[k];
    fr_exec_plan_free(plan);
    return FR_OK;
}

/* Memory of one replica; the workspace belongs to the worker. */
static double stage_memory(const maker *m, int k)
{
    const fr_schedule *s = m->s;
    double params = (double)m->out->timing.cost[k].param_bytes;
    double bytes = (double)fr_weight_bytes(m->d->profile->precision, m->n_weight_blocks[k]) *
                   params / sizeof(float);
    bytes += (double)m->out->timing.cost[k].fixed_bytes;
    fr__keep_stage stage = fr__spread_stage(m->d, s, k);
    if (!s->is_forward_only) {
        bool drifts = m->d->policy && m->d->policy->extrapolation == FR_EXTRAPOLATE_DRIFT;
        bytes += params * (1 + m->d->profile->state_per_weight + (drifts ? 1 : 0));
        if (s->replicas[k] > 1) bytes += params / s->replicas[k];
    }
    bytes += fr__keep_bytes(&stage, m->d->recompute);
    for (int l = 0; l < s->n_backward; l++) {
        const fr_link *link = &s->backward[l];
        if (link->from != k) continue;
        int n_wires = fr__lcm(s->replicas[k], s->replicas[link->to]) / s->replicas[k];
        bytes += (double)m->out->timing.backward_bytes[l] * s->n_buffers[l] * n_wires;
    }
    return bytes;
}

static fr_status add_memory(maker *m)
{
    const fr_schedule *s = m->s;
    size_t *memory = m->out->memory = FR_ARENA_ARRAY(m->arena, size_t, s->n_workers);
    if (!memory) return no_memory(m);
    FR_TRY(count_weight_blocks(m));
    for (int k = 0; k < s->n_stages; k++) { /* the largest workspace of a worker's stages */
        const size_t bytes = (size_t)m->out->timing.cost[k].workspace_bytes;
        for (int w = s->worker_of[k]; w < s->worker_of[k] + s->replicas[k]; w++)
            if (bytes > memory[w]) memory[w] = bytes;
    }
    for (int k = 0; k < s->n_stages; k++) {
        double bytes = stage_memory(m, k);
        for (int q = 0; q < s->replicas[k]; q++) memory[s->worker_of[k] + q] += (size_t)bytes;
    }
    return FR_OK;
}

/* --- the whole --------------------------------------------------------------------------------*/

static fr_status make(maker *m)
{
    FR_TRY(find_links(m));
    FR_TRY(make_schedule(m));
    FR_TRY(make_timing(m));
    return add_memory(m);
}

fr_status fr_spread_make(fr_ctx *ctx, const fr_spread_desc *d, fr_spread *out)
{
    *out = (fr_spread){.arena = FR_NEW(owned)};
    owned *own = out->arena;
    if (!own) return fr__no_memory(ctx, sizeof(owned), "a spread");
    maker m = {.ctx = ctx, .d = d, .arena = &own->arena, .out = out};
    fr_status status = d->n_stages >= 1
                           ? make(&m)
                           : fr_fail(ctx, FR_INVALID, "a spread of %d stages", d->n_stages);
    if (status != FR_OK) fr_spread_free(out);
    return status;
}

void fr_spread_free(fr_spread *s)
{
    owned *own = s->arena;
    if (!own) return;
    fr_schedule_free(own->schedule);
    fr__arena_fini(&own->arena);
    fr__free(own);
    *s = (fr_spread){0};
}
