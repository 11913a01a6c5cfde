/* rig.h -- for the tests of this folder: random schedules with costs and clusters. */
#ifndef FR_TEST_SIM_RIG_H
#define FR_TEST_SIM_RIG_H

#include "support/test.h"

#include <forerun/clock.h>
#include <forerun/exec_plan.h>
#include <forerun/sim.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIG_STAGES = 16, RIG_WORKERS = 64 };

typedef struct rig {
    fr_ctx *ctx;
    uint64_t seed;
    const fr_schedule *s;
    bool has_reduce;
    fr_stage_cost cost[RIG_STAGES];
    bool fused[RIG_STAGES];
    double speed[RIG_WORKERS];
    size_t forward_bytes[RIG_STAGES], backward_bytes[RIG_STAGES];
    fr_cluster *cluster;
} rig;

static inline uint32_t rig_random(rig *r)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->seed >> 33);
}

static inline int rig_from(rig *r, int low, int high)
{
    return low + (int)(rig_random(r) % (uint32_t)(high - low + 1));
}

static inline double rig_real(rig *r) { return (rig_random(r) % 1000 + 1) / 1000.; }

static inline void rig_init(rig *r, uint64_t seed)
{
    *r = (rig){.ctx = fr_ctx_create(), .seed = seed};
    assert_non_null(r->ctx);
}

static inline void rig_fini(rig *r)
{
    fr_schedule_free(r->s);
    fr_cluster_free(r->cluster);
    fr_ctx_free(r->ctx);
    r->s = NULL, r->cluster = NULL, r->ctx = NULL;
}

static inline void rig_check(rig *r, fr_status status)
{
    if (status != FR_OK) fail_msg("%s", fr_ctx_error(r->ctx));
}

/* Stages of F = I = W = 1, B = 2, without parameters, on workers of speed 1. */
static inline void rig_schedule(rig *r, const char *name, int n_stages, int chunks, int n_micro,
                                int n_batches, const int *replicas, bool must_reduce)
{
    const fr_schedule_desc d = {.n_stages = n_stages,
                                .chunks = chunks,
                                .n_micro = n_micro,
                                .n_batches = n_batches,
                                .replicas = replicas,
                                .must_reduce = must_reduce};
    fr_schedule_free(r->s);
    r->s = NULL;
    rig_check(r, fr_schedule_create(r->ctx, fr_generator_find(name), &d, &r->s));
    for (int k = 0; k < RIG_STAGES; k++)
        r->cost[k] =
            (fr_stage_cost){.forward = 1, .backward = 2, .back_input = 1, .back_weight = 1};
    for (int w = 0; w < RIG_WORKERS; w++) r->speed[w] = 1;
}

static inline fr_sim_desc rig_desc(rig *r, int64_t n_batches)
{
    return (fr_sim_desc){.schedule = r->s,
                         .timing = {.cost = r->cost,
                                    .speed = r->speed,
                                    .cluster = r->cluster,
                                    .forward_bytes = r->forward_bytes,
                                    .backward_bytes = r->backward_bytes},
                         .n_batches = n_batches};
}

/* Updates are fused as in the execution plan of such a run. */
static inline void rig_fuse(rig *r, fr_sim_desc *d)
{
    fr_exec_plan *p;
    const fr_exec_desc plan = {.schedule = r->s,
                               .want_norm = d->steps_together,
                               .lone_sync = d->sync_every > 0 ? "average" : NULL};
    d->update_in_backward = r->fused;
    memset(r->fused, 0, sizeof r->fused);
    if (r->s->is_forward_only) return;
    rig_check(r, fr_exec_plan_create(r->ctx, &plan, &p, NULL));
    memcpy(r->fused, p->update_in_backward, sizeof *r->fused * (size_t)r->s->n_stages);
    fr_exec_plan_free(p);
}

/* Any schedule with random costs; with replicas if it supports them. */
static inline void rig_random_schedule(rig *r, bool can_replicate)
{
    const fr_generator *const *list = fr_generator_list();
    int n_generators = 0, replicas[RIG_STAGES], chunks = 1, all = 1;
    while (list[n_generators]) n_generators++;
    const fr_generator *g = list[rig_from(r, 0, n_generators - 1)];
    int n = rig_from(r, 1, 5), m = rig_from(r, 1, 6), batches = g->is_flush ? 1 : rig_from(r, 1, 4);
    if (g->has_chunks) chunks = rig_from(r, 1, 3), m = n * rig_from(r, 1, 3);
    if (g->is_v) chunks = 2, m = n * rig_from(r, 2, 3);
    int same = can_replicate && !g->is_forward_only ? rig_from(r, 1, 3) : 1;
    for (int k = 0; k < n * chunks; k++) {
        replicas[k] = g->any_replicas && chunks == 1 && same > 1 ? rig_from(r, 1, same) : same;
        all = all % replicas[k] == 0 ? all : all * replicas[k];
    }
    r->has_reduce = all > 1 || rig_from(r, 0, 1);
    rig_schedule(r, g->name, n * chunks, chunks, m * all, batches, replicas, r->has_reduce);
    for (int k = 0; k < r->s->n_stages; k++) {
        double input = rig_real(r), weight = rig_real(r);
        r->cost[k] = (fr_stage_cost){.forward = rig_real(r),
                                     .backward = input + weight,
                                     .back_input = input,
                                     .back_weight = weight,
                                     .step = rig_real(r) / 4,
                                     .param_bytes = rig_from(r, 1, 20) * 1000000};
        r->forward_bytes[k] = (size_t)rig_from(r, 0, 1000) * 1000;
        r->backward_bytes[k] = (size_t)rig_from(r, 0, 1000) * 1000;
    }
}

static inline void rig_random_speeds(rig *r)
{
    for (int w = 0; w < RIG_WORKERS; w++) r->speed[w] = 0.25 * rig_from(r, 1, 8);
}

/* Flat, or boxes with buses or ports, as wide as a message of 1 MB takes from 0.01 s to 1 s. */
static inline void rig_random_cluster(rig *r, bool is_flat)
{
    double bandwidth = pow(10, 6 + 2 * rig_real(r)), latency = rig_from(r, 0, 1) * 0.01;
    fr_cluster_free(r->cluster);
    r->cluster = NULL;
    rig_check(r, fr_cluster_flat(r->ctx, r->s->n_workers, bandwidth, latency, &r->cluster));
    if (is_flat) return;
    /* The flat cluster's one group becomes the root of two boxes. */
    static fr_cluster_group groups[3];
    int half = (r->s->n_workers + 1) / 2;
    for (int g = 0; g < 3; g++)
        groups[g] = (fr_cluster_group){.name = "box",
                                       .bandwidth = bandwidth * (g == 0 ? 0.3 : 1),
                                       .latency = latency,
                                       .is_shared = rig_from(r, 0, 1),
                                       .parent = g == 0 ? -1 : 0};
    for (int i = 0; i < r->cluster->n_devices; i++) r->cluster->devices[i].group = i < half ? 1 : 2;
    r->cluster->n_groups = 3;
    r->cluster->groups = groups;
}

static inline fr_sim_result rig_run(rig *r, const fr_sim_desc *d)
{
    fr_sim_result out;
    rig_check(r, fr_simulate(r->ctx, d, &out));
    return out;
}

static inline double rig_makespan(rig *r, const fr_sim_desc *d)
{
    fr_sim_result out = rig_run(r, d);
    double makespan = out.makespan;
    fr_sim_free(&out);
    return makespan;
}

static inline void is_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b)))) fail_msg("%.12g, expected %.12g", a, b);
}

#endif
