/* sim.c -- time to generate schedules and to simulate many workers; prints JSON.
 *
 *     bench_sim [workers [micro-batches of a worker [mini-batches]]]     4096 64 1 by default
 *
 * Two cases: a pipeline with one stage per worker, and a hybrid of sqrt(workers) stages with
 * sqrt(workers) replicas each. Costs are assumed: a layer of a large transformer on A100-like
 * devices. */
#include <forerun/sim.h>

#include "base/alloc.h"
#include "base/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct sizes {
    int n_workers, n_micro, n_batches;
} sizes;

static double seconds_since(uint64_t start) { return (double)(fr__now_ns() - start) * 1e-9; }

/* Boxes of eight, two levels. */
static fr_status make_cluster(fr_ctx *ctx, int n, fr_cluster **out)
{
    FR_TRY(fr_cluster_flat(ctx, n, 25e9, 5e-6, out));
    fr_cluster *c = *out;
    int n_boxes = (n + 7) / 8;
    fr_cluster_group *groups = FR_NEW_ARRAY(fr_cluster_group, n_boxes + 1);
    if (!groups) return FR_NO_MEMORY;
    groups[0] = c->groups[0];
    for (int g = 1; g <= n_boxes; g++)
        groups[g] = (fr_cluster_group){.name = "box", .bandwidth = 300e9, .latency = 2e-6};
    for (int i = 0; i < n; i++) c->devices[i].group = 1 + i / 8;
    c->groups = groups;
    c->n_groups = n_boxes + 1;
    return FR_OK;
}

static fr_status bench(fr_ctx *ctx, const char *name, int n_stages, int n_replicas, const sizes *z,
                       bool is_last)
{
    const fr_schedule *s = NULL;
    fr_cluster *c = NULL;
    fr_sim_result out = {0};
    int *replicas = FR_NEW_ARRAY(int, n_stages);
    fr_stage_cost *cost = FR_NEW_ARRAY(fr_stage_cost, n_stages);
    size_t *bytes = FR_NEW_ARRAY(size_t, n_stages);
    if (!replicas || !cost || !bytes) return FR_NO_MEMORY;
    for (int k = 0; k < n_stages; k++) {
        replicas[k] = n_replicas;
        cost[k] = (fr_stage_cost){.forward = 5e-3,
                                  .backward = 10e-3,
                                  .back_input = 5e-3,
                                  .back_weight = 5e-3,
                                  .step = 2e-3,
                                  .param_bytes = 200 << 20};
        bytes[k] = 16 << 20;
    }
    const fr_schedule_desc d = {.n_stages = n_stages,
                                .n_micro = z->n_micro * n_replicas,
                                .replicas = n_replicas > 1 ? replicas : NULL};
    uint64_t start = fr__now_ns();
    FR_TRY(fr_schedule_create(ctx, fr_generator_find("1f1b"), &d, &s));
    double create_s = seconds_since(start);
    FR_TRY(make_cluster(ctx, s->n_workers, &c));
    fr_sim_desc sim = {
        .schedule = s,
        .timing = {.cost = cost, .cluster = c, .forward_bytes = bytes, .backward_bytes = bytes},
        .n_batches = z->n_batches,
        .overlaps = true};
    start = fr__now_ns();
    FR_TRY(fr_simulate(ctx, &sim, &out));
    double simulate_s = seconds_since(start);
    long long n_instr = 0;
    for (int w = 0; w < s->n_workers; w++) n_instr += s->lists[w].n;
    printf("  {\"name\": \"%s\", \"workers\": %d, \"stages\": %d, \"replicas\": %d,\n"
           "   \"micro_of_a_worker\": %d, \"mini_batches\": %d, \"instructions\": %lld,\n"
           "   \"schedule_s\": %.3f, \"simulate_s\": %.3f,\n"
           "   \"makespan_s\": %.6g, \"bubble\": %.4f}%s\n",
           name, s->n_workers, n_stages, n_replicas, z->n_micro, z->n_batches,
           n_instr * z->n_batches, create_s, simulate_s, out.makespan, out.bubble,
           is_last ? "" : ",");
    fr_sim_free(&out);
    fr_schedule_free(s);
    fr__free(c->groups);
    fr_cluster_free(c);
    fr__free(replicas);
    fr__free(cost);
    fr__free(bytes);
    return FR_OK;
}

int main(int argc, char **argv)
{
    sizes z = {argc > 1 ? atoi(argv[1]) : 4096, argc > 2 ? atoi(argv[2]) : 64,
               argc > 3 ? atoi(argv[3]) : 1};
    fr_ctx *ctx = fr_ctx_create();
    int side = (int)lround(sqrt(z.n_workers));
    printf("[\n");
    fr_status status = bench(ctx, "pipeline", z.n_workers, 1, &z, false);
    if (status == FR_OK) status = bench(ctx, "hybrid", side, z.n_workers / side, &z, true);
    printf("]\n");
    if (status != FR_OK) fprintf(stderr, "bench_sim: %s\n", fr_ctx_error(ctx));
    fr_ctx_free(ctx);
    return status == FR_OK ? 0 : 1;
}
