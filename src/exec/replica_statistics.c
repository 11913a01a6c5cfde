/* replica_statistics.c -- the mean of running statistics over the replicas of a stage, while the
 * pipeline is empty. Each replica has seen its own micro-batches; afterwards all hold the mean,
 * added in the fixed order of a sum. */
#include "exec/stage.h"

static bool has_statistics(const fr__exec *x)
{
    return x->d.n_replicas > 1 && x->n_buffers > 0 && fr__exec_trains(x);
}

static float *buffers_of(const fr__exec *x, char **room)
{
    *room = x->statistics_room;
    return x->buffers;
}

/* One bucket. */
static fr_status describe(const fr__exec *x, fr_sum_desc *d)
{
    size_t *edge = FR_ARENA_ARRAY(x->d.arena, size_t, 2);
    if (!edge) return fr__exec_no_memory(x);
    edge[1] = x->n_buffers;
    return fr__describe_sum(x, 1, edge, buffers_of, d);
}

fr_status fr__statistics_measure(fr__exec *x)
{
    fr_sum_desc d;
    if (!has_statistics(x)) return FR_OK;
    FR_TRY(describe(x, &d));
    x->statistics_room_bytes = x->d.transport->sum_room(x->d.group, &d, x->d.replica);
    return FR_OK;
}

fr_status fr__exec_open_statistics(fr__exec *const *replicas)
{
    fr__exec *first = replicas[0];
    fr_sum_desc d;
    fr_sum *sum;
    if (!has_statistics(first)) return FR_OK;
    FR_TRY(describe(first, &d));
    FR_TRY(first->d.transport->add_sum(first->d.group, &d, &sum));
    for (int q = 0; q < first->d.n_replicas; q++)
        if (replicas[q]->dev) replicas[q]->statistics_sum = sum;
    return FR_OK;
}

fr_status fr__exec_mean_statistics(fr__exec *x)
{
    const fr_transport *t = x->d.transport;
    float share = 1 / (float)x->d.n_replicas;
    bool is_alive;
    if (!x->statistics_sum) return FR_OK;
    FR_TRY(fr_device_sync(x->dev));
    t->sum_post(x->statistics_sum, x->d.replica, 0, true);
    FR_TRY(t->sum_wait(x->statistics_sum, x->d.replica, 0, &is_alive));
    for (int k = 0; k < x->d.n_replicas; k++) {
        size_t at, count;
        const float *piece = t->sum_piece(x->statistics_sum, x->d.replica, 0, k, &at, &count);
        fr__device_blend(x->dev, FR_BLEND_SCALE, x->buffers + at, piece, share, count);
    }
    return FR_OK;
}
