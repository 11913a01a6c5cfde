/* drain.c -- what replicas of a stage agree on when the pipeline is empty: running statistics. Each
 * replica has seen its own micro-batches; afterwards all hold the mean, added in the fixed order of
 * a sum. Weights need nothing where replicas have made the same updates; where each steps for
 * itself the rule sees to it (peers.c). */
#include "engine/engine.h"

static bool has_statistics(const fr_part *p)
{
    return p->n_replicas > 1 && p->n_buffers > 0 && p->engine->desc.schedule;
}

/* Room for a description of the statistics of a stage's replicas: one bucket. */
typedef struct sheet {
    int *members;
    float **memory;
    char **room;
    fr_device **devices;
    size_t *edge;
} sheet;

static fr_status describe(fr_part *p, fr_sum_desc *d)
{
    fr_engine *e = p->engine;
    sheet s = {.members = FR_ARENA_ARRAY(&e->arena, int, p->n_replicas),
               .memory = FR_ARENA_ARRAY(&e->arena, float *, p->n_replicas),
               .room = FR_ARENA_ARRAY(&e->arena, char *, p->n_replicas),
               .devices = FR_ARENA_ARRAY(&e->arena, fr_device *, p->n_replicas),
               .edge = FR_ARENA_ARRAY(&e->arena, size_t, 2)};
    if (!s.members || !s.memory || !s.room || !s.devices || !s.edge)
        return fr__no_memory(e->ctx, 0, "replicas");
    s.edge[1] = p->n_buffers;
    for (int q = 0; q < p->n_replicas; q++) {
        const fr_part *other = fr__part(e, p->stage, q);
        s.members[q] = other->worker->index;
        s.memory[q] = other->buffers;
        s.room[q] = other->buffer_room;
        s.devices[q] = other->worker->dev;
    }
    *d = (fr_sum_desc){.n_members = p->n_replicas,
                       .members = s.members,
                       .n_buckets = 1,
                       .edge = s.edge,
                       .memory = s.memory,
                       .room = s.room,
                       .devices = s.devices};
    return FR_OK;
}

fr_status fr__drain_measure(fr_part *p)
{
    fr_sum_desc d;
    if (!has_statistics(p)) return FR_OK;
    FR_TRY(describe(p, &d));
    p->buffer_room_bytes = p->engine->transport->sum_room(p->engine->group, &d, p->replica);
    return FR_OK;
}

fr_status fr__drain_open(fr_engine *e)
{
    for (int k = 0; k < e->n_stages; k++) {
        fr_part *first = fr__part(e, k, 0);
        fr_sum_desc d;
        fr_sum *sum;
        if (!has_statistics(first)) continue;
        FR_TRY(describe(first, &d));
        FR_TRY(e->transport->add_sum(e->group, &d, &sum));
        for (int q = 0; q < first->n_replicas; q++)
            if (first[q].worker->is_local) first[q].buffer_sum = sum;
    }
    return FR_OK;
}

static fr_status take_mean(fr_part *p)
{
    const fr_transport *t = p->engine->transport;
    float share = 1 / (float)p->n_replicas;
    bool is_alive;
    t->sum_post(p->buffer_sum, p->replica, 0, true);
    FR_TRY(t->sum_wait(p->buffer_sum, p->replica, 0, &is_alive));
    for (int k = 0; k < p->n_replicas; k++) {
        size_t at, count;
        const float *piece = t->sum_piece(p->buffer_sum, p->replica, 0, k, &at, &count);
        fr__device_blend(p->worker->dev, FR_BLEND_SCALE, p->buffers + at, piece, share, count);
    }
    return FR_OK;
}

static fr_status drain(fr_worker *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < w->n_parts; i++)
        if (w->parts[i]->buffer_sum) FR_TRY(take_mean(w->parts[i]));
    for (int i = 0; i < w->n_parts; i++) FR_TRY(fr__peers_drain(w->parts[i]));
    return FR_OK;
}

fr_status fr__drain(fr_engine *e)
{
    if (!e->has_replicas) return FR_OK;
    fr_status status = fr__jobs_run(e, drain, false);
    if (status != FR_OK) e->is_broken = true;
    return status;
}
