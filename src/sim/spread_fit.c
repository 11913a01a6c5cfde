/* spread_fit.c -- which nodes a layout recomputes so that each worker is within its memory.
 *
 * The memory of a worker is that of its own stages, so each is looked at alone: all nodes of its
 * stages together, since a worker has one memory for them (cost/keep.h). Replicas of a stage
 * recompute the same nodes: the one with the least memory decides. */
#include "sim/sim.h"

#include <math.h>
#include <string.h>

/* Bytes that the replicas of a worker have for activations, the smallest of them. */
static double room_of(const fr_spread *made, const size_t *limits, int first, int n_replicas,
                      double activations)
{
    double room = INFINITY;
    for (int w = first; w < first + n_replicas; w++)
        if (limits[w] > 0)
            room = fmin(room, (double)limits[w] - ((double)made->memory[w] - activations));
    return room;
}

static fr_status fit_worker(fr_ctx *ctx, const fr_spread_desc *d, const fr_spread *made,
                            const size_t *limits, int stage, fr__keep_stage *own, bool *recompute,
                            bool *fits)
{
    const fr_schedule *s = made->schedule;
    const int first = s->worker_of[stage];
    fr__keep_set set = {.recompute = recompute};
    double activations = 0;
    int n = 0;
    for (int k = stage; k < s->n_stages; k++) {
        if (s->worker_of[k] != first) continue;
        own[n] = fr__spread_stage(d, s, k);
        activations += fr__keep_bytes(&own[n++], NULL);
    }
    double room = room_of(made, limits, first, s->replicas[stage], activations);
    if (activations <= room) return FR_OK;
    FR_TRY(fr__keep_in_stages(ctx, n, own, room, &set));
    *fits = isfinite(set.seconds);
    return FR_OK;
}

fr_status fr_spread_fit(fr_ctx *ctx, const fr_spread_desc *d, const fr_spread *made,
                        const size_t *limits, bool *recompute, bool *fits)
{
    const fr_schedule *s = made->schedule;
    fr__keep_stage *own = FR_NEW_ARRAY(fr__keep_stage, s->n_stages);
    bool *is_done = FR_NEW_ARRAY(bool, s->n_workers);
    fr_status status = own && is_done ? FR_OK : fr__no_memory(ctx, sizeof *own, "stages");
    memset(recompute, 0, (size_t)d->profile->n_nodes * sizeof *recompute);
    *fits = true;
    for (int k = 0; k < s->n_stages && status == FR_OK && *fits; k++) {
        if (is_done[s->worker_of[k]]) continue;
        is_done[s->worker_of[k]] = true;
        status = fit_worker(ctx, d, made, limits, k, own, recompute, fits);
    }
    fr__free(own), fr__free(is_done);
    return status;
}
