/* gather.c -- the gradient of a mini-batch, put together from its micro-batches and replicas.
 *
 * Micro-batches of a part add to one block, one after the other; with exact_sum each is written
 * fresh and they are added along a binary tree (tree.c), which goes on over the replicas inside the
 * transport's sum: the whole tree does not depend on how many replicas there are.
 *
 * Replicas: the block is cut into buckets. A backward goes from the end of the model to its
 * beginning, and so do the buckets: each is handed in as soon as the last backward has made it
 * final, and travels while the rest is still computed. */
#include "engine/engine.h"

/* floats: long enough for full bandwidth, short enough to overlap */
enum { BUCKET = FR_BUCKET_BYTES / sizeof(float) };

/* All buckets but the first of the block, which is handed in last and has nothing to hide behind,
 * are whole. */
static int bucket_of(const fr_gather *g, size_t offset)
{
    return offset < g->edge[1] ? 0 : 1 + (int)((offset - g->edge[1]) / BUCKET);
}

/* --- set-up ----------------------------------------------------------------------------------- */

fr_status fr__gather_plan(fr_part *p)
{
    fr_engine *e = p->engine;
    fr_gather *g = &p->gather;
    p->n_grad_blocks = 1;
    p->grad_stride = fr__align_up(p->n_grads * sizeof(float)) / sizeof(float);
    g->has_tree = e->desc.exact_sum && p->n_micro > 1;
    if (!g->has_tree) return FR_OK;
    if (!fr__tree_plan(&e->arena, p->n_micro, &g->tree))
        return fr__no_memory(e->ctx, (size_t)p->n_micro * sizeof(int), "the order of a sum");
    p->n_grad_blocks = g->tree.n_blocks;
    return FR_OK;
}

/* Floats of the block that backwards report, by bucket; padding and gradients of ties are not. */
static void count_due(fr_part *p)
{
    fr_gather *g = &p->gather;
    for (int i = 0; i < fr_program_n_placements(p->layout); i++) {
        const fr_placement *at = fr_program_placement(p->layout, i);
        const fr_param *param = fr_graph_param(p->engine->desc.graph, at->param);
        if (param->is_buffer || at->offset >= p->n_weights) continue;
        for (size_t done = 0, n; done < at->count; done += n) {
            int bucket = bucket_of(g, at->offset + done);
            size_t left = g->edge[bucket + 1] - (at->offset + done);
            n = at->count - done < left ? at->count - done : left;
            g->n_due[bucket] += n;
        }
    }
}

/* The sum of a stage's replicas; its lists go to the arena. */
static fr_status describe(const fr_part *p, fr_sum_desc *d)
{
    fr_engine *e = p->engine;
    int n = p->n_replicas;
    int *members = FR_ARENA_ARRAY(&e->arena, int, n);
    float **memory = FR_ARENA_ARRAY(&e->arena, float *, n);
    char **room = FR_ARENA_ARRAY(&e->arena, char *, n);
    fr_device **devices = FR_ARENA_ARRAY(&e->arena, fr_device *, n);
    if (!members || !memory || !room || !devices) return fr__no_memory(e->ctx, 0, "replicas");
    for (int q = 0; q < n; q++) {
        const fr_part *other = fr__part(e, p->stage, q);
        members[q] = other->worker->index;
        memory[q] = other->grads;
        room[q] = other->gather.room;
        devices[q] = other->worker->dev;
    }
    *d = (fr_sum_desc){.n_members = n,
                       .members = members,
                       .n_buckets = p->gather.n_buckets,
                       .edge = p->gather.edge,
                       .memory = memory,
                       .room = room,
                       .devices = devices};
    return FR_OK;
}

static fr_status make_buckets(fr_part *p)
{
    fr_engine *e = p->engine;
    fr_gather *g = &p->gather;
    g->n_buckets = (int)((p->n_grads + BUCKET - 1) / BUCKET);
    g->edge = FR_ARENA_ARRAY(&e->arena, size_t, g->n_buckets + 1);
    g->n_due = FR_ARENA_ARRAY(&e->arena, size_t, g->n_buckets);
    g->n_left = FR_ARENA_ARRAY(&e->arena, size_t, g->n_buckets);
    g->posted_ns = FR_ARENA_ARRAY(&e->arena, uint64_t, g->n_buckets);
    if (!g->edge || !g->n_due || !g->n_left || !g->posted_ns)
        return fr__no_memory(e->ctx, 0, "replicas");
    for (int i = 1; i <= g->n_buckets; i++)
        g->edge[i] = p->n_grads - (size_t)(g->n_buckets - i) * BUCKET;
    return FR_OK;
}

fr_status fr__gather_measure(fr_part *p)
{
    fr_engine *e = p->engine;
    fr_gather *g = &p->gather;
    fr_sum_desc d;
    if (!e->sums_grads || p->n_replicas == 1 || p->n_grads == 0) return FR_OK;
    FR_TRY(make_buckets(p));
    count_due(p);
    FR_TRY(describe(p, &d));
    g->room_bytes = e->transport->sum_room(e->group, &d, p->replica);
    return FR_OK;
}

static void begin_round(fr_gather *g)
{
    g->next = g->n_buckets - 1;
    for (int i = 0; i < g->n_buckets; i++) g->n_left[i] = g->n_due[i];
}

/* Emulation: the replicas of a stage meet for each bucket. */
static fr_status add_meetings(fr_part *first, const int *members)
{
    fr_engine *e = first->engine;
    fr_gather *g = &first->gather;
    g->meetings = FR_ARENA_ARRAY(&e->arena, fr_meeting *, g->n_buckets);
    if (!g->meetings) return fr__no_memory(e->ctx, 0, "emulation");
    for (int i = 0; i < g->n_buckets; i++) {
        size_t bytes = (g->edge[i + 1] - g->edge[i]) * sizeof(float);
        FR_TRY(fr__pace_meeting(e, first->n_replicas, members, bytes, &g->meetings[i]));
        if (i > 0) fr__pace_follow(g->meetings[i - 1], g->meetings[i]);
    }
    for (int q = 1; q < first->n_replicas; q++) first[q].gather.meetings = g->meetings;
    return FR_OK;
}

/* Every process makes the sums of all stages, also where none of the replicas lives. */
fr_status fr__gather_open(fr_engine *e)
{
    for (int k = 0; e->sums_grads && k < e->n_stages; k++) {
        fr_part *first = fr__part(e, k, 0), *mine = NULL;
        fr_sum_desc d;
        fr_sum *sum;
        if (first->n_replicas == 1 || first->n_grads == 0) continue;
        for (int q = 0; q < first->n_replicas; q++)
            if (first[q].worker->is_local) mine = &first[q];
        if (!mine) FR_TRY(make_buckets(mine = first));
        FR_TRY(describe(mine, &d));
        FR_TRY(e->transport->add_sum(e->group, &d, &sum));
        for (int q = 0; q < first->n_replicas; q++) {
            if (!first[q].worker->is_local) continue;
            first[q].gather.sum = sum;
            begin_round(&first[q].gather);
        }
        if (e->pace) FR_TRY(add_meetings(first, d.members));
    }
    return FR_OK;
}

/* --- micro-batches ---------------------------------------------------------------------------- */

float *fr__gather_block(const fr_part *p, int j, bool *adds)
{
    const fr_gather *g = &p->gather;
    *adds = !g->has_tree && j > 0;
    return g->has_tree ? p->grads + (size_t)g->tree.block[j] * p->grad_stride : p->grads;
}

void fr__gather_add(fr_part *p, int j)
{
    const fr__tree *t = &p->gather.tree;
    if (!p->gather.has_tree) return;
    for (int i = t->first_merge[j]; i < t->first_merge[j + 1]; i++)
        fr__device_add(p->worker->dev, p->grads + (size_t)t->merges[i].to * p->grad_stride,
                       p->grads + (size_t)t->merges[i].from * p->grad_stride, p->n_grads);
}

/* --- replicas --------------------------------------------------------------------------------- */

/* In the time that the backward under way should take, not when it was computed. */
static void post_paced(fr_part *p, int bucket, bool is_alive)
{
    fr_gather *g = &p->gather;
    const fr_stage_cost *cost = &p->engine->desc.timing->cost[p->stage];
    fr_worker *w = p->worker;
    double share = (double)(p->n_grads - g->edge[bucket]) / (double)p->n_grads;
    double span = w->span > 0 ? w->span + p->engine->desc.timing->overhead_s : 0;
    double at = w->clock + span * fr_curve_time(&cost->final, share);
    g->posted_ns[bucket] = fr__pace_ns(p->engine->paced, at);
    fr__pace_post(w, g->meetings[bucket], at, is_alive);
}

static void hand_in(fr_part *p, bool is_alive)
{
    fr_gather *g = &p->gather;
    const fr_engine *e = p->engine;
    int bucket = g->next--;
    if (e->paced)
        post_paced(p, bucket, is_alive);
    else
        g->posted_ns[bucket] = fr__now_ns();
    e->transport->sum_post(g->sum, p->replica, bucket, is_alive);
    if (is_alive)
        p->worker->traffic.sums += 2 * sizeof(float) * (g->edge[bucket + 1] - g->edge[bucket]) *
                                   (size_t)(p->n_replicas - 1) / (size_t)p->n_replicas;
}

void fr__gather_ready(void *part, size_t offset, size_t count, const float *grad)
{
    fr_part *p = part;
    fr_gather *g = &p->gather;
    (void)grad;
    for (size_t done = 0, n; done < count; done += n) {
        int bucket = bucket_of(g, offset + done);
        size_t left = g->edge[bucket + 1] - (offset + done);
        n = count - done < left ? count - done : left;
        g->n_left[bucket] -= n < g->n_left[bucket] ? n : g->n_left[bucket];
    }
    /* Gradients of tied parameters lie behind the others and are not reported: then all wait for
     * the end of the backward. */
    while (g->next >= 0 && g->n_left[g->next] == 0 && p->n_grads == p->n_weights) hand_in(p, true);
    p->engine->transport->poll(p->engine->group, p->worker->index);
}

void fr__gather_hand_in(fr_part *p, bool is_alive)
{
    if (!p->gather.sum) return;
    while (p->gather.next >= 0) hand_in(p, is_alive);
}

static fr_status wait_bucket(fr_part *p, int bucket, bool *is_alive)
{
    fr_worker *w = p->worker;
    uint64_t start = fr__now_ns();
    atomic_store(&w->is_waiting, 1);
    fr_status status = w->engine->transport->sum_wait(p->gather.sum, p->replica, bucket, is_alive);
    atomic_store(&w->is_waiting, 0);
    w->wait_ns += fr__now_ns() - start;
    if (w->engine->paced && status == FR_OK) fr__pace_take(w, p->gather.meetings[bucket]);
    return status;
}

static void note_sum(fr_part *p, int64_t batch, int bucket)
{
    fr_event event = {.action = FR_DO_REDUCE,
                      .is_beside = true,
                      .stage = p->stage,
                      .peer = -1,
                      .batch = batch,
                      .micro = bucket,
                      .version = fr_store_version(p->store),
                      .start_ns = p->gather.posted_ns[bucket],
                      .end_ns = fr__worker_now(p->worker)};
    fr__push_event(p->worker, &event);
}

fr_status fr__gather_take(fr_part *p, int64_t batch, fr_take_fn take, bool *is_alive)
{
    fr_gather *g = &p->gather;
    const fr_transport *t = p->engine->transport;
    *is_alive = true;
    if (!g->sum) return FR_OK;
    for (int bucket = g->n_buckets - 1; bucket >= 0; bucket--) {
        bool is_whole;
        FR_TRY(wait_bucket(p, bucket, &is_whole));
        /* Who has nothing to give says so from its first bucket on: see fr__update_reduce. */
        if (!is_whole && *is_alive && bucket < g->n_buckets - 1)
            return fr_fail(p->engine->ctx, FR_INTERNAL,
                           "stage %d: a replica withdrew a gradient that it had begun to hand in",
                           p->stage);
        *is_alive = is_whole;
        if (is_whole) note_sum(p, batch, bucket);
        for (int k = 0; *is_alive && k < p->n_replicas; k++) {
            size_t at, count;
            const float *piece = t->sum_piece(g->sum, p->replica, bucket, k, &at, &count);
            if (count > 0) FR_TRY(take(p, at, count, piece));
        }
    }
    begin_round(g);
    return FR_OK;
}
