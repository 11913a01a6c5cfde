/* grad_reduction.c -- the gradient of a mini-batch: the sum over its micro-batches and replicas.
 *
 * Micro-batches of an executor add to one block, one after the other; with exact_sum each is
 * written fresh and they are added along a binary tree (exact_sum.c), which continues over the
 * replicas inside the transport's sum: the whole tree does not depend on the number of replicas.
 *
 * Replicas: the block is cut into buckets. A backward runs from the end of the model to its
 * beginning, and so do the buckets: each is posted as soon as the last backward has made it final,
 * and travels while the rest is still computed. */
#include "exec/stage.h"

#include <forerun/cost.h>

/* floats: long enough for full bandwidth, short enough to overlap */
enum { BUCKET = FR_BUCKET_BYTES / sizeof(float) };

/* All buckets but the first of the block, which is posted last and has nothing to hide behind, are
 * whole. */
static int bucket_of(const fr__grad_reduction *g, size_t offset)
{
    return offset < g->edge[1] ? 0 : 1 + (int)((offset - g->edge[1]) / BUCKET);
}

/* --- set-up ----------------------------------------------------------------------------------- */

fr_status fr__reduction_plan(fr__exec *x)
{
    fr__grad_reduction *g = &x->reduction;
    x->n_grad_blocks = 1;
    x->grad_stride = fr__align_up(x->n_grads * sizeof(float)) / sizeof(float);
    g->has_tree = x->d.exact_sum && x->d.n_micro > 1;
    if (!g->has_tree) return FR_OK;
    if (!fr__tree_plan(x->d.arena, x->d.n_micro, &g->tree)) return fr__exec_no_memory(x);
    x->n_grad_blocks = g->tree.n_blocks;
    return FR_OK;
}

/* Floats of the block that backwards report, by bucket; padding and gradients of ties are not. */
static void count_due(fr__exec *x)
{
    fr__grad_reduction *g = &x->reduction;
    for (int i = 0; i < fr_program_n_placements(x->layout); i++) {
        const fr_placement *at = fr_program_placement(x->layout, i);
        const fr_param *param = fr_graph_param(x->d.graph, at->param);
        if (param->is_buffer || at->offset >= x->n_weights) continue;
        for (size_t done = 0, n; done < at->count; done += n) {
            int bucket = bucket_of(g, at->offset + done);
            size_t left = g->edge[bucket + 1] - (at->offset + done);
            n = at->count - done < left ? at->count - done : left;
            g->n_due[bucket] += n;
        }
    }
}

static bool is_reduced(const fr__exec *x)
{
    return fr__exec_trains(x) && x->d.sums_replicas && x->d.n_replicas > 1 && x->n_grads > 0;
}

static fr_status make_buckets(fr__exec *x)
{
    fr__grad_reduction *g = &x->reduction;
    g->n_buckets = (int)((x->n_grads + BUCKET - 1) / BUCKET);
    g->edge = FR_ARENA_ARRAY(x->d.arena, size_t, g->n_buckets + 1);
    g->n_due = FR_ARENA_ARRAY(x->d.arena, size_t, g->n_buckets);
    g->n_left = FR_ARENA_ARRAY(x->d.arena, size_t, g->n_buckets);
    if (!g->edge || !g->n_due || !g->n_left) return fr__exec_no_memory(x);
    for (int i = 1; i <= g->n_buckets; i++)
        g->edge[i] = x->n_grads - (size_t)(g->n_buckets - i) * BUCKET;
    return FR_OK;
}

fr_status fr__describe_sum(const fr__exec *x, int n_buckets, const size_t *edge,
                           fr__replica_memory_fn memory_of, fr_sum_desc *d)
{
    int n = x->d.n_replicas;
    int *members = FR_ARENA_ARRAY(x->d.arena, int, n);
    float **memory = FR_ARENA_ARRAY(x->d.arena, float *, n);
    char **room = FR_ARENA_ARRAY(x->d.arena, char *, n);
    fr_device **devices = FR_ARENA_ARRAY(x->d.arena, fr_device *, n);
    if (!members || !memory || !room || !devices) return fr__exec_no_memory(x);
    for (int q = 0; q < n; q++) {
        const fr__exec *other = x->d.replicas[q];
        members[q] = other->d.worker;
        devices[q] = other->dev;
        memory[q] = memory_of(other, &room[q]);
    }
    *d = (fr_sum_desc){.n_members = n,
                       .members = members,
                       .n_buckets = n_buckets,
                       .edge = edge,
                       .memory = memory,
                       .room = room,
                       .devices = devices};
    return FR_OK;
}

static float *grads_of(const fr__exec *x, char **room)
{
    *room = x->reduction.room;
    return x->grads;
}

static fr_status describe(const fr__exec *x, fr_sum_desc *d)
{
    return fr__describe_sum(x, x->reduction.n_buckets, x->reduction.edge, grads_of, d);
}

fr_status fr__reduction_measure(fr__exec *x)
{
    fr_sum_desc d;
    if (!is_reduced(x)) return FR_OK;
    FR_TRY(make_buckets(x));
    count_due(x);
    FR_TRY(describe(x, &d));
    x->reduction.room_bytes = x->d.transport->sum_room(x->d.group, &d, x->d.replica);
    return FR_OK;
}

static void begin_round(fr__grad_reduction *g)
{
    g->next = g->n_buckets - 1;
    for (int i = 0; i < g->n_buckets; i++) g->n_left[i] = g->n_due[i];
}

fr_status fr__exec_open_reduction(fr__exec *const *replicas)
{
    fr__exec *mine = NULL;
    fr_sum_desc d;
    fr_sum *sum;
    if (!is_reduced(replicas[0])) return FR_OK;
    for (int q = 0; q < replicas[0]->d.n_replicas; q++)
        if (replicas[q]->dev) mine = replicas[q];
    if (!mine) FR_TRY(make_buckets(mine = replicas[0]));
    FR_TRY(describe(mine, &d));
    FR_TRY(mine->d.transport->add_sum(mine->d.group, &d, &sum));
    for (int q = 0; q < mine->d.n_replicas; q++) {
        if (!replicas[q]->dev) continue;
        replicas[q]->reduction.sum = sum;
        begin_round(&replicas[q]->reduction);
    }
    return FR_OK;
}

int fr__exec_n_buckets(const fr__exec *x) { return x->reduction.n_buckets; }

size_t fr__exec_bucket_bytes(const fr__exec *x, int bucket)
{
    return (x->reduction.edge[bucket + 1] - x->reduction.edge[bucket]) * sizeof(float);
}

/* --- micro-batches ---------------------------------------------------------------------------- */

float *fr__reduction_block(const fr__exec *x, int j, bool *adds)
{
    const fr__grad_reduction *g = &x->reduction;
    *adds = !g->has_tree && j > 0;
    return g->has_tree ? x->grads + (size_t)g->tree.block[j] * x->grad_stride : x->grads;
}

void fr__reduction_add(fr__exec *x, int j)
{
    const fr__tree *t = &x->reduction.tree;
    if (!x->reduction.has_tree) return;
    for (int i = t->first_merge[j]; i < t->first_merge[j + 1]; i++)
        fr__device_add(x->dev, FR_F32, x->grads + (size_t)t->merges[i].to * x->grad_stride,
                       x->grads + (size_t)t->merges[i].from * x->grad_stride, x->n_grads);
}

/* --- replicas --------------------------------------------------------------------------------- */

/* Bytes that a replica sends for a sum of `bytes`, along a ring. */
static size_t sent_bytes(const fr__exec *x, size_t bytes)
{
    return 2 * bytes * (size_t)(x->d.n_replicas - 1) / (size_t)x->d.n_replicas;
}

static void post(fr__exec *x, bool is_alive)
{
    fr__grad_reduction *g = &x->reduction;
    const fr__exec_hooks *h = &x->d.hooks;
    int bucket = g->next--;
    if (h->posted)
        h->posted(h->user, FR__SUM_GRADS, bucket,
                  (double)(x->n_grads - g->edge[bucket]) / (double)x->n_grads,
                  is_alive ? sent_bytes(x, fr__exec_bucket_bytes(x, bucket)) : 0, is_alive);
    x->d.transport->sum_post(g->sum, x->d.replica, bucket, is_alive);
}

void fr__reduction_ready(void *exec, size_t offset, size_t count, const float *grad)
{
    fr__exec *x = exec;
    fr__grad_reduction *g = &x->reduction;
    (void)grad;
    for (size_t done = 0, n; done < count; done += n) {
        int bucket = bucket_of(g, offset + done);
        size_t left = g->edge[bucket + 1] - (offset + done);
        n = count - done < left ? count - done : left;
        g->n_left[bucket] -= n < g->n_left[bucket] ? n : g->n_left[bucket];
    }
    /* Gradients of tied parameters are behind the others and are not reported: then all buckets
     * wait for the end of the backward. */
    while (g->next >= 0 && g->n_left[g->next] == 0 && x->n_grads == x->n_weights) post(x, true);
    x->d.transport->poll(x->d.group, x->d.worker);
}

fr_status fr__exec_post(fr__exec *x, bool is_alive)
{
    if (!x->reduction.sum || x->reduction.next < 0) return FR_OK;
    FR_TRY(fr_device_sync(x->dev)); /* others will read the gradient */
    while (x->reduction.next >= 0) post(x, is_alive);
    return FR_OK;
}

static fr_status wait_bucket(fr__exec *x, int bucket, bool *is_alive)
{
    const fr__exec_hooks *h = &x->d.hooks;
    fr__exec_waits(h, true);
    fr_status status = x->d.transport->sum_wait(x->reduction.sum, x->d.replica, bucket, is_alive);
    fr__exec_waits(h, false);
    if (h->taken && status == FR_OK) h->taken(h->user, FR__SUM_GRADS, bucket, *is_alive);
    return status;
}

static fr_status take_piece(fr__exec *x, fr__take what, size_t offset, size_t count,
                            const float *sum)
{
    const fr__exec_hooks *h = &x->d.hooks;
    if (what == FR__TAKE_BACK)
        return fr__device_copy(x->dev, x->grads + offset, sum, count * sizeof(float));
    if (what == FR__TAKE_STEP) {
        fr_store_range(x->store, offset, count, sum);
        if (h->stepped) h->stepped(h->user, (double)count / (double)x->n_weights);
    }
    return FR_OK;
}

fr_status fr__exec_take(fr__exec *x, int64_t batch, fr__take what, bool *is_alive)
{
    fr__grad_reduction *g = &x->reduction;
    *is_alive = true;
    if (!g->sum) return FR_OK;
    if (what == FR__TAKE_STEP) fr_store_begin(x->store, batch, 1);
    for (int bucket = g->n_buckets - 1; bucket >= 0; bucket--) {
        bool is_whole;
        FR_TRY(wait_bucket(x, bucket, &is_whole));
        /* A replica that has nothing to give says so from its first bucket on. */
        if (!is_whole && *is_alive && bucket < g->n_buckets - 1)
            return fr_fail(x->ctx, FR_INTERNAL,
                           "stage %d: a replica withdrew a gradient that it had begun to post",
                           x->d.stage);
        *is_alive = is_whole;
        for (int k = 0; is_whole && k < x->d.n_replicas; k++) {
            size_t at, count;
            const float *sum =
                x->d.transport->sum_piece(g->sum, x->d.replica, bucket, k, &at, &count);
            if (count > 0) FR_TRY(take_piece(x, what, at, count, sum));
        }
    }
    begin_round(g);
    return FR_OK;
}
